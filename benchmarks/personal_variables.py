"""Three sites, 10 variables, each missing two, n_k=500: weights against the fit to complete data.

python benchmarks/personal_variables.py [n_seeds] [first_seed]
"""

import sys

import numpy as np

import feddbn
from feddbn import PFDBNL, Partial

MISSING = ((0, 1), (4, 5), (8, 9))


def main(seeds: range, n_samples: int = 1500) -> None:
    held = [np.array([int(i not in m) for i in range(10)]) for m in MISSING]
    holders = sum(np.outer(h, h) for h in held)
    for seed in seeds:
        fed = feddbn.simulate(d=10, n_sites=3, n_samples=n_samples, mean_degree=4, random_state=seed)
        data = {
            name: [x.drop(columns=[f"x{i}" for i in MISSING[k]]) for x in frames]
            for k, (name, frames) in enumerate(fed.sites.items())
        }
        part = PFDBNL(mu=1.0, partial=Partial(different_variables=True)).fit(data)
        order = [list(part.feature_names_in_).index(f"x{i}") for i in range(10)]
        W = part.W_[np.ix_(order, order)]
        full = PFDBNL(mu=1.0).fit(fed.sites)
        gap, edges = np.abs(W - full.W_), (full.W_ != 0) & (holders >= 2)
        print(
            f"seed {seed} (objective {part.objective_:.3f}): full fit (objective {full.objective_:.3f}): max |dW| of entries "
            f"held by >= 2 sites {gap[holders >= 2].max():.3f}, all {gap.max():.3f}, edges beyond .1: "
            f"{int((gap[edges] > 0.1).sum())} of {int(edges.sum())}",
            flush=True,
        )


if __name__ == "__main__":
    n_seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    main(range(first, first + n_seeds))
