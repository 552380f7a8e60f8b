"""Large networks and many rows on one core: time, peak memory and errors, every fit in a process of its own.

python benchmarks/large.py networks --d 1000 --seeds 0-2         # OneShotDBN and FDBNL, five sites, 10 d rows
python benchmarks/large.py rows --rows 100000000                 # one site in Parquet files, d = 10 (4.3 GB of disk)
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from settings import federation, shd
from timing import Table

METHODS = ("OneShotDBN", "FDBNL")
_CHAINS = 25


def peak() -> float:
    """Megabytes this process has needed at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fitted(estimator: Any, sites: Any) -> tuple[Any, float]:
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = estimator.fit(sites)
    return model, time.process_time() - start


def without_a_look() -> dict[str, Any]:
    """Arguments that leave out every look at the data."""
    from feddbn import AS_THEY_ARE

    return {"prepare": AS_THEY_ARE, "check_residuals": False}


def network(method: str, d: int, degree: float, seed: int, as_they_are: bool) -> dict[str, Any]:
    """One fit of a network with d variables from 10 d rows of five sites."""
    import feddbn

    fed = federation(d, 5, 10 * d, seed, mean_degree=degree)
    before, more = peak(), without_a_look() if as_they_are else {}
    model, seconds = fitted(getattr(feddbn, method)(**more), fed.sites)
    edges = int((fed.truth.W != 0).sum()), int((fed.truth.A != 0).sum())
    # The SHD of A has no reversals.
    wrong = shd(fed.truth.W, model.W_), int(((model.A_ != 0) != (fed.truth.A != 0)).sum())
    return {
        "method": method, "d": d, "degree": degree, "seed": seed, "default": not as_they_are, "seconds": seconds,
        "data MB": before, "peak MB": peak(), "edges": sum(edges), "shd of W": wrong[0], "wrong in A": wrong[1],
        "share": sum(wrong) / max(sum(edges), 1), "sums": int(model.n_rounds_),
    }  # fmt: skip


def write_rows(folder: Path, n_rows: int, seed: int, d: int = 10, per_file: int = 2_500_000) -> Any:
    """Write rows of one network to Parquet files in single precision; return the network.

    A file holds 25 stretches that were simulated side by side; where they meet, one row in 100,000 has a wrong predecessor.
    """
    import pyarrow
    from pyarrow import parquet

    truth = federation(d, 1, 100, seed).truth
    rng = np.random.default_rng(seed)
    to_x = np.linalg.inv(np.eye(d) - truth.W)
    lagged = truth.A[0] @ to_x
    for number, start in enumerate(range(0, n_rows, per_file)):
        length = -(-min(per_file, n_rows - start) // _CHAINS)
        x = rng.standard_normal((length + 100, _CHAINS, d)) @ to_x
        for t in range(1, len(x)):
            x[t] += x[t - 1] @ lagged
        rows = x[100:].transpose(1, 0, 2).reshape(-1, d)[: min(per_file, n_rows - start)].astype(np.float32)
        table = pyarrow.table({f"x{j}": rows[:, j] for j in range(d)})
        parquet.write_table(table, folder / f"part{number:04d}.parquet", compression="none")
    return truth


def rows(folder: str, n_rows: int, seed: int, as_they_are: bool) -> dict[str, Any]:
    """OneShotDBN on the Parquet files of a folder, read batch by batch."""
    import feddbn
    from feddbn.data import read_site

    truth = federation(10, 1, 100, seed).truth
    before, more, start = peak(), without_a_look() if as_they_are else {}, time.process_time()
    site = read_site(sorted(Path(folder).glob("*.parquet")), name="site")
    read = time.process_time() - start
    model, seconds = fitted(feddbn.OneShotDBN(**more), {"site": site})
    seconds += read
    assert model.n_samples_ > 0.999 * n_rows - 1000
    return {
        "rows": n_rows, "default": not as_they_are, "seconds": seconds, "rows/s": n_rows / seconds, "sums": model.n_rounds_,
        "before MB": before, "peak MB": peak(), "shd of W": shd(truth.W, model.W_),
        "wrong in A": int(((model.A_ != 0) != (truth.A != 0)).sum()),
    }  # fmt: skip


def in_a_process(*call: Any) -> dict[str, Any]:
    """One of the functions above in a fresh interpreter, so that its peak is its own."""
    done = subprocess.run(
        [sys.executable, __file__, "one", json.dumps(call)], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def seeds_of(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["networks", "rows", "one"])
    parser.add_argument("call", nargs="?", help="for one: a function and its arguments as JSON")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--d", type=int, nargs="+", default=[1000])
    parser.add_argument("--degree", type=float, default=4.0)
    parser.add_argument("--seeds", type=seeds_of, default=range(1))
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--as-they-are", action="store_true", help="no look at the data")
    parser.add_argument("--out", type=Path, help="also write the numbers to this JSON file")
    given = parser.parse_args(arguments)
    if given.part == "one":
        name, *call = json.loads(given.call)
        print(json.dumps({"network": network, "rows": rows}[name](*call)))
        return
    found: list[dict[str, Any]] = []
    if given.part == "networks":
        for d in given.d:
            for seed in given.seeds:
                for method in given.methods:
                    found.append(in_a_process("network", method, d, given.degree, seed, given.as_they_are))
    else:
        for seed in given.seeds:
            with tempfile.TemporaryDirectory() as folder:
                write_rows(Path(folder), given.rows, seed)
                found.append(in_a_process("rows", folder, given.rows, seed, given.as_they_are))
    table = Table(f"Large: {given.part}", list(found[0]))
    for one in found:
        table.add(*one.values())
    table.note = (
        "CPU seconds of one thread; peak megabytes of the whole process, the simulated data included."
    )
    print(table.text())
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
