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
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from breaches import FAMILIES, draw
from scipy.optimize import minimize

import feddbn
from feddbn import OneShotDBN
from feddbn.errors import FeddbnError
from feddbn.findings import Finding
from feddbn.methods import oneshot
from feddbn.results.calibration import (
    FEATURES,
    OTHER,
    Calibration,
    Discount,
    claimed,
    contradictions,
    features,
    trusted,
    with_doubts,
)
from feddbn.results.result import plain, write_json

FROZEN = Path(feddbn.__file__).parent / "results" / "calibration-1.json"

_EDGE, _DOUBTS = ["source", "target", "lag"], ["robustness", "could_be_hidden"]
Job = tuple[str, int, int]
"""Family, strength, seed."""


def one_fit(job: Job) -> dict[str, Any]:
    """What a default fit says of one federation, and which edges are right."""
    family, strength, seed = job
    sites, truth = draw(family, strength, seed)
    start = time.perf_counter()
    found: dict[str, Any] = {"family": family, "strength": strength, "seed": seed}
    raw: list[pd.DataFrame] = []

    def kept(table: pd.DataFrame, *others: Any) -> pd.DataFrame:
        raw.append(table)
        return claimed(table, *others)

    with warnings.catch_warnings(), patch.object(oneshot, "claimed", kept):
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
    true = set(truth.edges()[_EDGE].itertuples(index=False, name=None))
    table = raw[0].merge(model.hidden_, on=_EDGE, how="left")
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


# What lowers a share; the other slopes may have any sign.
LOWERING = ("own past", "in doubt", "crowded")
FEWEST_FITS, FEWEST_FAMILIES = 8, 3
WRONG = 1.5
"""How many right edges that are not claimed a wrong one that is claimed weighs: claims err on the safe side."""


@dataclass(frozen=True)
class Collected:
    """One fit: what speaks against it, its table of edges, and how many edges of its network are wrong."""

    family: str
    found: dict[str, float]
    table: pd.DataFrame

    @property
    def network(self) -> pd.DataFrame:
        return self.table[self.table["weight"] != 0]

    @property
    def wrong(self) -> float:
        """The share of the edges as drawn that are wrong; a link without a direction is right either way."""
        network = self.network
        right = np.where(network["oriented"].astype(bool), network["right"], network["linked"])
        return float(1 - right.mean()) if len(network) else 0.0


def prepared(stored: list[dict[str, Any]]) -> list[Collected]:
    fits = []
    for one in stored:
        if "refused" not in one:
            findings = [Finding.from_dict(finding) for finding in one["findings"]]
            table = pd.DataFrame(one["edges"], columns=one["columns"])
            hidden = table.loc[table["weight"] != 0, [*_EDGE, *_DOUBTS]]
            table = with_doubts(table.drop(columns=_DOUBTS), hidden)
            fits.append(Collected(one["family"], contradictions(findings), table))
    return fits


def fitted(fits: list[Collected]) -> Calibration:
    """The discounts by penalised likelihood of the fits that something speaks against."""
    fits = [one for one in fits if one.found]
    seen: dict[str, list[str]] = {}
    for one in fits:
        for name in one.found:
            seen.setdefault(name, []).append(one.family)
    named = [n for n, by in seen.items() if len(by) >= FEWEST_FITS and len(set(by)) >= FEWEST_FAMILIES]
    names = [*sorted(named), OTHER]
    link, direction = (
        _maximised([_rows(one, of) for one in fits], names, of) for of in ("link", "direction")
    )
    return Calibration(link, direction)


Rows = tuple[dict[str, float], np.ndarray, np.ndarray, np.ndarray]


def _rows(one: Collected, of: str) -> Rows:
    """What was found, features, probability and truth of the links of a fit, or of the directions of those that are right."""
    table = one.table
    likelier = (table["lag"] > 0) | (table["direction"].fillna(0.5) > 0.5) | (table["weight"] != 0)
    is_meant = likelier & (table["presence"] > 0.05)
    if of == "direction":
        is_meant &= (table["lag"] == 0) & table["linked"] & table["direction"].notna()
    part = table[is_meant]
    p, y = ("presence", "linked") if of == "link" else ("direction", "right")
    x = features(table)[is_meant.to_numpy()]
    return one.found, x, part[p].to_numpy(dtype=float), part[y].to_numpy(dtype=float)


def _maximised(rows: list[Rows], names: list[str], of: str) -> Discount:
    """Penalised maximum likelihood; of the findings of a fit the one that lowers an edge most takes the gradient."""
    X, p, y = (np.concatenate([row[k] for row in rows]) for k in (1, 2, 3))
    clear = np.zeros((len(X), len(names)))
    start = 0
    for found, x, _, _ in rows:
        for name, value in found.items():
            k = names.index(name if name in names else OTHER)
            clear[start : start + len(x), k] = np.maximum(clear[start : start + len(x), k], value)
        start += len(x)
    slope, base = (p, 0.0) if of == "link" else (p - 0.5, 0.5)
    at = np.arange(len(X))

    def loss(b: np.ndarray) -> tuple[float, np.ndarray]:
        share = 1 / (1 + np.exp(-(b[: len(names)] + (X @ b[len(names) :])[:, None])))
        left = 1 - clear * (1 - share)
        k = left.argmin(axis=1)
        r, s, c = left[at, k], share[at, k], clear[at, k]
        q = np.clip(base + slope * r, 1e-6, 1 - 1e-6)
        # Levels are drawn towards their mean, slopes towards 0.
        away = np.append(b[: len(names)] - b[: len(names)].mean(), b[len(names) :])
        value = -(y * np.log(q) + WRONG * (1 - y) * np.log(1 - q)).sum() + (away**2).sum()
        g = (WRONG * (1 - y) / (1 - q) - y / q) * slope * c * s * (1 - s)
        return float(value), np.append(np.bincount(k, g, len(names)), X.T @ g) + 2 * away

    limits = [(None, None)] * len(names) + [(None, 0.0) if f in LOWERING else (None, None) for f in FEATURES]
    found = minimize(
        loss,
        np.r_[np.full(len(names), 2.0), np.zeros(len(FEATURES))],
        jac=True,
        bounds=limits,
        method="L-BFGS-B",
    )
    values = [round(float(value), 4) + 0.0 for value in found.x]
    return Discount(
        dict(zip(names, values, strict=False)), dict(zip(FEATURES, values[len(names) :], strict=True))
    )


def with_claims(one: Collected, discounts: Calibration) -> pd.DataFrame:
    return claimed(one.table.drop(columns=_DOUBTS), one.network[[*_EDGE, *_DOUBTS]], one.found, discounts)


def test(arguments: argparse.Namespace) -> None:
    """Claims for every family, by discounts that were fitted without it."""
    fits = prepared(read(Path(arguments.folder)))
    others = prepared(read(Path(arguments.on))) if arguments.on else fits
    tables, rows = [], []
    for family in dict.fromkeys(one.family for one in others):
        discounts = fitted([one for one in fits if one.family != family])
        for one in others:
            if one.family == family:
                table = with_claims(one, discounts)
                network = table[table["weight"] != 0]
                low = trusted(network) < 0.5
                tables.append(table.assign(family=family))
                rows.append((family, one.wrong, bool(2 * low.sum() > len(low)), bool(one.found)))
    edges = pd.concat(tables, ignore_index=True)
    of_fits = pd.DataFrame(rows, columns=["family", "wrong", "abstains", "contradicted"])
    print(f"{len(of_fits)} fits of {of_fits['family'].nunique()} families, each left out of the fitting\n")
    print("| claimed | edges | right | raw | edges | right |\n|---|---|---|---|---|---|")
    bounds = [0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0]
    for low, high in [*pairwise(bounds), (0.9, 1.0)]:
        cells = [f"{low:g} to {high:g}"]
        for column in ("probability", "raw"):
            part = edges[(edges[column] > low) & (edges[column] <= high)]
            cells += [str(len(part)), f"{part['right'].mean():.3f}", f"{low:g} to {high:g}"]
        print("| " + " | ".join(cells[:-1]) + " |")
    clean = edges["family"] == "clean"
    n_true = int(edges.loc[clean, "right"].sum())
    for column in ("raw", "probability"):
        sure = edges[clean & (edges[column] > 0.9)]
        print(
            f"clean, {column} > .9: {sure['right'].sum()} of {n_true} true edges, {(~sure['right']).sum()} wrong"
        )
    bad, of_clean = of_fits[of_fits["wrong"] > 0.5], of_fits[of_fits["family"] == "clean"]
    print(f"more than half of the edges wrong: abstains in {bad['abstains'].sum()} of {len(bad)} fits")
    print(f"clean: abstains in {of_clean['abstains'].sum()} of {len(of_clean)} fits")
    right = of_fits[(of_fits["wrong"] < 0.2)]
    print(f"less than a fifth wrong: abstains in {right['abstains'].sum()} of {len(right)} fits\n")
    print(
        "| family | fits | wrong edges | contradicted | abstains | raw > .9 | right | claimed > .9 | right |\n"
        + "|---" * 9
        + "|"
    )
    for family, part in of_fits.groupby("family", sort=False):
        own = edges[edges["family"] == family]
        cells = [
            family,
            len(part),
            f"{part['wrong'].mean():.2f}",
            part["contradicted"].sum(),
            part["abstains"].sum(),
        ]
        for column in ("raw", "probability"):
            sure = own[own[column] > 0.9]
            cells += [len(sure), f"{sure['right'].mean():.2f}" if len(sure) else "-"]
        print("| " + " | ".join(map(str, cells)) + " |")


def fit(arguments: argparse.Namespace) -> None:
    """Freeze the discounts of all fits of a folder."""
    stored = read(Path(arguments.folder))
    fits = prepared(stored)
    found = fitted(fits)
    told = {
        "version": 1,
        "command": "python benchmarks/claims.py collect FOLDER "
        f"--seeds {arguments.seeds}; python benchmarks/claims.py fit FOLDER --seeds {arguments.seeds}",
        "feddbn": feddbn.__version__,
        "fits": len(fits),
        "families": len({one.family for one in fits}),
        "contradicted": sum(bool(one.found) for one in fits),
        "seeds": sorted({one["seed"] for one in stored}),
        "link": asdict(found.link),
        "direction": asdict(found.direction),
    }
    write_json(told, FROZEN)
    print(json.dumps(told, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["collect", "fit", "test"])
    parser.add_argument("folder")
    parser.add_argument("--seeds", default="900-903")
    parser.add_argument("--only", nargs="+", choices=list(FAMILIES))
    parser.add_argument("--clean", type=int, default=5, help="clean federations for each of another kind")
    parser.add_argument("--on", help="test on the fits of this folder instead")
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    {"collect": collect, "fit": fit, "test": test}[arguments.what](arguments)


if __name__ == "__main__":
    main()
