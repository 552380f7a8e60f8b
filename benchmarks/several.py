"""Several kinds of mess at once, with and without a site whose columns are in another order: is it found, what is learned?

    python benchmarks/several.py --seeds 700-719
    python benchmarks/several.py --seeds 700-704 --rows-wanted everything "everything, a site mixed up"

d = 12, six sites of 300 rows: offsets, gains, a trend, a daily cycle, .5 % spikes, 15 % empty cells, t noise with 5 degrees,
noise variances that differ. "named" counts the fits in which the odd site, and no other, found that it does not fit.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from settings import federation
from timing import Table

import feddbn
from feddbn.metrics import edge_scores

MESS = {
    "offsets": 3.0,
    "gains": 0.4,
    "trend": 3.0,
    "cycle": 1.5,
    "spikes": 0.005,
    "missing": 0.15,
    "heavy-tails": 5.0,
    "unequal-noise": 2.0,
}
# What the sites do, and whether the columns of one are in another order.
ROWS: dict[str, tuple[dict[str, float], bool]] = {
    "everything": (MESS, False),
    "everything, a site mixed up": (MESS, True),
    "a site mixed up": ({}, True),
    "a cycle, a site mixed up": ({"cycle": 1.5}, True),
    "30 % empty, a site mixed up": (MESS | {"missing": 0.3}, True),
    "2 % spikes, a site mixed up": (MESS | {"spikes": 0.02}, True),
}


def trial(row: str, seed: int, d: int, n_sites: int, rows: int) -> tuple[int, int, bool, int, float]:
    """Wrong edges of W and A, whether the odd site was named, how many honest ones were, CPU seconds."""
    mess, is_mixed = ROWS[row]
    fed = federation(
        d, n_sites, n_sites * rows, seed, mean_degree=2.5, lag_degree=1, w_range=(0.3, 0.6), mess=mess
    )
    sites, rng = dict(fed.sites), np.random.default_rng([seed, 32])
    odd = list(sites)[int(rng.integers(n_sites))] if is_mixed else None
    if odd is not None:
        order = np.arange(d)
        while np.mean(order != np.arange(d)) < 0.5:
            order = rng.permutation(d)
        sites[odd] = [frame.iloc[:, order].set_axis(frame.columns, axis=1) for frame in sites[odd]]
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = feddbn.OneShotDBN(n_lags=1).fit(sites)
    seconds = time.process_time() - started
    named = set(model.site_notes_)
    w, a = edge_scores(fed.truth.W, model.W_), edge_scores(fed.truth.A, model.A_)
    return w.shd, a.shd, odd in named, len(named - {odd}), seconds


def table(wanted: list[str], seeds: range, d: int = 12, n_sites: int = 6, rows: int = 300) -> Table:
    """One row for each kind of federation."""
    found = Table(
        "Several kinds of mess at once",
        ["sites", "wrong links", "worst", "wrong delayed edges", "odd site named", "others named", "seconds"],
        note=f"OneShotDBN, d={d}, {n_sites} sites of {rows} rows, seeds {seeds[0]}-{seeds[-1]}, means.",
    )
    for row in wanted:
        trials = [trial(row, seed, d, n_sites, rows) for seed in seeds]
        w, a, named, others, seconds = (np.array(part, dtype=float) for part in zip(*trials, strict=True))
        hits = f"{int(named.sum())} of {len(seeds)}" if ROWS[row][1] else "-"
        found.add(row, w.mean(), int(w.max()), a.mean(), hits, int(others.sum()), seconds.mean())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="700-719", help="a range such as 700-719")
    parser.add_argument("--d", type=int, default=12)
    parser.add_argument("--sites", type=int, default=6)
    parser.add_argument("--rows", type=int, default=300, help="of a site")
    parser.add_argument("--rows-wanted", nargs="+", choices=list(ROWS), default=list(ROWS))
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    print(table(options.rows_wanted, seeds, options.d, options.sites, options.rows).text(), flush=True)


if __name__ == "__main__":
    main()
