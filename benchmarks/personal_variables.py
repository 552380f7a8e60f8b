"""Three sites, 10 variables, each missing two, n_k=500: weights against the fit to complete data, 5 seeds.

python benchmarks/personal_variables.py [n_seeds]
"""

import sys

import numpy as np

import feddbn
from feddbn import PFDBNL

MISSING = ((0, 1), (4, 5), (8, 9))


def main(n_seeds: int) -> None:
    for seed in range(n_seeds):
        fed = feddbn.simulate(d=10, n_sites=3, n_samples=1500, mean_degree=4, random_state=seed)
        data = {
            name: [x.drop(columns=[f"x{i}" for i in MISSING[k]]) for x in frames]
            for k, (name, frames) in enumerate(fed.sites.items())
        }
        part, full = PFDBNL(mu=1.0, different_variables=True).fit(data), PFDBNL(mu=1.0).fit(fed.sites)
        order = [list(part.feature_names_in_).index(f"x{i}") for i in range(10)]
        gap = np.abs(part.W_[np.ix_(order, order)] - full.W_)
        lag_gap = np.abs(part.A_[0][np.ix_(order, order)] - full.A_[0])
        holders = sum(
            np.outer(h, h) for h in (np.array([int(i not in m) for i in range(10)]) for m in MISSING)
        )
        shared = holders >= 2
        edges = (full.W_ != 0) & (holders >= 2)
        all_three = holders == 3
        print(
            f"seed {seed}: max |dW| over entries held by >= 2 sites {gap[shared].max():.3f}, "
            f"by all 3 {gap[all_three].max():.3f}, "
            f"all {gap.max():.3f}; edges beyond .1: {int((gap[edges] > 0.1).sum())} of {int(edges.sum())}; "
            f"max |dA| >= 2 sites {lag_gap[shared].max():.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
