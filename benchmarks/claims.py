"""What edges are claimed with where assumptions break: collect fits, fit the discounts, test them on other violations.

    python benchmarks/claims.py collect FOLDER --seeds 900-903 --processes 2
    python benchmarks/claims.py test FOLDER
    python benchmarks/claims.py fit FOLDER

`collect` appends one JSON line per fit to files in FOLDER and leaves out what is there already, so it can be stopped and
started again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from breaches import FAMILIES, draw

from feddbn import OneShotDBN
from feddbn.errors import FeddbnError
from feddbn.results.result import plain

Job = tuple[str, int, int]
"""Family, strength, seed."""


def one_fit(job: Job) -> dict[str, Any]:
    """What a default fit says of one federation, and which edges are right."""
    family, strength, seed = job
    sites, truth = draw(family, strength, seed)
    start = time.perf_counter()
    found: dict[str, Any] = {"family": family, "strength": strength, "seed": seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = OneShotDBN(n_lags=1).fit(sites)
        except FeddbnError as error:
            return found | {"refused": str(error)}
    found["seconds"] = round(time.perf_counter() - start, 2)
    found["d"], found["rows"] = truth.d, sum(len(one[0]) for one in sites.values())
    found["findings"] = [plain(one.to_dict()) for one in model.findings_]
    found["residuals"] = None if model.residuals_ is None else plain(asdict(model.residuals_))
    found["noise"], found["features"] = model.noise_variance_, model.features_
    found["varsort"] = None if model.units_ is None else plain(model.units_.varsortability)
    true = set(truth.edges()[["source", "target", "lag"]].itertuples(index=False, name=None))
    table = model.edge_probabilities_.merge(model.hidden_, on=["source", "target", "lag"], how="left")
    keys = list(zip(table["source"], table["target"], table["lag"], strict=True))
    table["right"] = [key in true for key in keys]
    table["linked"] = [key in true or (key[2] == 0 and (key[1], key[0], 0) in true) for key in keys]
    place = {name: k for k, name in enumerate(truth.variables)}
    sd = dict(zip(truth.variables, model.standard_deviations_, strict=True))
    table["weight"] *= table["source"].map(sd) / table["target"].map(sd)
    for end in ("source", "target"):
        table[end] = table[end].map(place)
    found["columns"] = list(table.columns)
    found["edges"] = [[_short(value) for value in row] for row in table.itertuples(index=False, name=None)]
    found["n_true"] = len(true)
    return found


def _short(value: Any) -> Any:
    value = plain(value)
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _key(found: dict[str, Any]) -> Job:
    return found["family"], found["strength"], found["seed"]


def read(folder: Path) -> list[dict[str, Any]]:
    """All fits of a folder."""
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def collect(arguments: argparse.Namespace) -> None:
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    done = {_key(one) for one in read(folder)}
    first, _, last = arguments.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    names = arguments.only or list(FAMILIES)
    jobs: list[Job] = [
        (name, strength, seed + 1000 * more)
        for seed in seeds
        for name in names
        for strength in (0, 1)
        for more in range(arguments.clean if name == "clean" else 1)
    ]
    jobs = [job for job in jobs if job not in done]
    start = time.perf_counter()
    with (
        ProcessPoolExecutor(arguments.processes) as pool,
        (folder / f"{first}-{last or first}.jsonl").open("a") as file,
    ):
        for k, found in enumerate(pool.map(one_fit, jobs), start=1):
            file.write(json.dumps(found, allow_nan=False) + "\n")
            file.flush()
            if k % 50 == 0 or k == len(jobs):
                print(f"{k} of {len(jobs)} fits, {time.perf_counter() - start:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["collect", "fit", "test"])
    parser.add_argument("folder")
    parser.add_argument("--seeds", default="900-903")
    parser.add_argument("--only", nargs="+", choices=list(FAMILIES))
    parser.add_argument("--clean", type=int, default=5, help="clean federations for each of another kind")
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    {"collect": collect}[arguments.what](arguments)


if __name__ == "__main__":
    main()
