"""What differential privacy costs: SHD of W against epsilon, recording-level, delta 1e-5, OneShotDBN.

    python benchmarks/privacy_utility.py run ROWS.csv --recordings 500 --epsilon 8 4 --seeds 0-9
    python benchmarks/privacy_utility.py table ROWS.csv

d = 10, mean degree 4, ten sites, recordings of 20 steps. The whole path: clipping bound chosen privately,
noise at the sites, secure aggregation, noise-aware moments, OneShotDBN with its defaults. Rows are appended
as they are made; those that are there are not made again.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from feddbn.data import read_sites
from feddbn.errors import DataError, UnitsWarning
from feddbn.federation.protocol.site import Site
from feddbn.methods.oneshot import OneShotDBN
from feddbn.results.scoring import score
from feddbn.runtime.noisy import PrivateFederation
from feddbn.runtime.simulated.private import private_federation
from feddbn.sim.simulation import SimulatedFederation, simulate

N_SITES, DELTA, FIRST_FRESH = 10, 1e-5, 200
COLUMNS = [
    "recordings",
    "epsilon",
    "seed",
    "learned",
    "shd",
    "shd_paper",
    "tpr",
    "fdr",
    "edges",
    "effective_rows",
]


def noisy_sites(made: SimulatedFederation, epsilon: float, seed: int) -> PrivateFederation:
    """Return the sites of a simulation with noise, which is drawn from another stream than the data."""
    sites = {name: Site(name, site) for name, site in read_sites(made.sites).items()}
    rng = np.random.default_rng([seed, 10_000])
    return private_federation(sites, epsilon, DELTA, rng=rng)


def one(n_recordings: int, epsilon: float, seed: int) -> dict[str, float]:
    """Return the scores of one private fit; a fit that says it has too little is an empty network."""
    made = simulate(
        d=10,
        n_lags=1,
        n_sites=N_SITES,
        n_samples=19 * n_recordings,
        n_recordings=n_recordings // N_SITES,
        mean_degree=4,
        random_state=seed,
    )
    private = noisy_sites(made, epsilon, seed)
    n_true = float((made.truth.W != 0).sum())
    row = {"recordings": n_recordings, "epsilon": epsilon, "seed": seed}
    try:
        model = OneShotDBN(federation=private).fit(None)
    except DataError:
        empty = {"learned": 0, "shd": n_true, "shd_paper": n_true, "tpr": 0.0, "fdr": 0.0, "edges": 0}
        return {**row, **empty, "effective_rows": 0.0}
    part = score(made.truth, model.dbn_)["W"]
    assert private.last is not None
    scores = {key: part[key] for key in ("shd", "shd_paper", "tpr", "fdr")}
    edges = int((model.W_ != 0).sum())
    rows = private.last.noisy.moments.n
    return {**row, "learned": 1, **scores, "edges": edges, "effective_rows": rows}


def run(path: Path, recordings: list[int], epsilons: list[float], seeds: range) -> None:
    done: set[tuple[int, float, int]] = set()
    if path.exists():
        there = pd.read_csv(path)
        done = set(zip(there["recordings"], there["epsilon"], there["seed"], strict=True))
    with open(path, "a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if not done:
            writer.writeheader()
        for n in recordings:
            for epsilon in epsilons:
                for seed in seeds:
                    if (n, epsilon, seed) not in done:
                        start = time.process_time()
                        row = one(n, epsilon, seed)
                        writer.writerow(row)
                        file.flush()
                        print({**row, "cpu_s": round(time.process_time() - start, 1)}, flush=True)


def table(path: Path) -> None:
    """Print the table of docs/privacy.md: SHD of both sets of seeds, then means over all of them."""
    frame = pd.read_csv(path)
    # An empty network has no false discovery.
    frame["fdr"] = frame["fdr"].fillna(0.0)
    frame["is_fresh"] = frame["seed"] >= FIRST_FRESH
    frame["wrong"] = frame["fdr"] * frame["edges"]
    print(
        "| recordings | epsilon | SHD, seeds 0-9 | SHD, seeds 200-209 | TPR | FDR (either set) "
        "| edges, wrong ones | effective rows |"
    )
    print("|---|---|---|---|---|---|---|---|")
    settings = frame.groupby(["recordings", "epsilon"])
    for (n, epsilon), part in sorted(settings, key=lambda item: (-item[0][0], -item[0][1])):
        sets = [part[part["is_fresh"] == fresh] for fresh in (False, True)]
        shd = [f"{p['shd'].mean():.1f} +- {p['shd'].std(ddof=0):.1f}" if len(p) else "" for p in sets]
        fdr = ", ".join(f"{p['fdr'].mean():.2f}" for p in sets if len(p))
        print(
            f"| {n:,} | {epsilon:g} | {shd[0]} | {shd[1]} | {part['tpr'].mean():.2f} | {fdr} "
            f"| {part['edges'].mean():.1f}, {part['wrong'].mean():.1f} | {part['effective_rows'].mean():,.0f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--recordings", type=int, nargs="+", default=[500])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[8.0, 4.0, 2.0, 1.0])
    parser.add_argument("--seeds", default="0-9")
    given = parser.parse_args()
    if given.what == "run":
        first, last = (int(x) for x in given.seeds.split("-"))
        run(given.rows, given.recordings, given.epsilon, range(first, last + 1))
    else:
        table(given.rows)


if __name__ == "__main__":
    warnings.simplefilter("ignore", UnitsWarning)
    with threadpool_limits(1):
        main()
