"""OneShotDBN at its defaults against pooled DYNOTEARS whose penalty and threshold are chosen with the truth.

    python benchmarks/oneshot_against_dynotears.py --seeds 10 --first-seed 100 [--d 5 10 20] [--n 128] [--strong | --weak]

DYNOTEARS gets the penalty (.02, .05, .1, .2) and threshold (.05 to .4, on penalised or refitted weights) with
the fewest wrong edges over the networks of each row, and, in a column of its own, the best ones for every
single network, which no user could have. Wrong edges are FP + FN of W and A together; the difference is that
to the first choice, with its standard error.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from threadpoolctl import threadpool_limits

from feddbn import Dynotears, Prepare, Rounds
from feddbn.errors import UnitsWarning
from feddbn.methods.oneshot import OneShotDBN
from feddbn.sim.simulation import simulate

PENALTIES = (0.02, 0.05, 0.1, 0.2)
THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
RANGES = ((0.3, 0.5), (0.5, 2.0))


def wrong(W, A, truth, threshold=0.0):
    """FP + FN of W and A together."""
    pairs = ((W, truth.W), (A, truth.A))
    return sum(int(((np.abs(found) > threshold) != (true != 0)).sum()) for found, true in pairs)


def dynotears(sites, truth):
    """Wrong edges at every setting."""
    found = []
    for penalty in PENALTIES:
        model = Dynotears(
            lambda_w=penalty,
            lambda_a=penalty,
            w_threshold=0.0,
            a_threshold=0.0,
            rounds=Rounds(tol=1e-4, max_rounds=300),
            prepare=Prepare(scale="none"),
        )
        model.fit(sites)
        weights = [(model.W_, model.A_), (model.W_raw_, model.A_raw_)]
        found += [wrong(W, A, truth, t) for W, A in weights for t in THRESHOLDS]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--d", type=int, nargs="*", default=[5, 10, 15, 20])
    parser.add_argument("--n", type=int, nargs="*")
    parser.add_argument("--weak", action="store_true", help="weights +-[.3, .5] only")
    parser.add_argument("--strong", action="store_true", help="weights +-[.5, 2] only")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UnitsWarning)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    print(f"Seeds {seeds[0]} to {seeds[-1]}; mean ± standard deviation.\n")
    print(
        "| d, n | weights | OneShotDBN | DYNOTEARS, best setting | best for each network | difference ± s.e. | s |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    for d in arguments.d:
        for n in arguments.n or (5 * d, 128, 512):
            for w_range in RANGES[arguments.strong : 1 if arguments.weak else 2]:
                compare(d, n, w_range, seeds)


def compare(d, n, w_range, seeds):
    """Print one row."""
    ours, theirs, seconds = [], [], []
    for seed in seeds:
        fed = simulate(d=d, n_samples=n, n_sites=5, w_range=w_range, random_state=seed)
        start = time.process_time()
        model = OneShotDBN().fit(fed.sites)
        seconds.append(time.process_time() - start)
        ours.append(wrong(model.W_, model.A_, fed.truth))
        theirs.append(dynotears(fed.sites, fed.truth))
    mine, grid = np.array(ours), np.array(theirs)
    best = grid[:, grid.mean(axis=0).argmin()]
    difference = mine - best
    cells = [f"{v.mean():.1f} ± {v.std(ddof=1):.1f}" for v in (mine, best, grid.min(axis=1))]
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    print(
        f"| {d}, {n} | ±[{w_range[0]}, {w_range[1]}] | {' | '.join(cells)} "
        f"| {difference.mean():+.1f} ± {error:.1f} | {np.mean(seconds):.1f} |",
        flush=True,
    )


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
