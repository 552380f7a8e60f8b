"""Wrong edges of OneShotDBN on simulated federations: the tables of the documentation.

    python benchmarks/oneshot_accuracy.py [recovery] [few-rows] [units] [large] [averaging] [one] --seeds 10

Networks: weights +-[.3, .5] unless said, mean degree 4, lag degree 1, seeds as printed. A wrong edge is a
false or a missing one (FP + FN); a reversal counts twice. Nothing is tuned per setting and nothing looks at
the truth.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from threadpoolctl import threadpool_limits

from feddbn.errors import UnitsWarning
from feddbn.methods.oneshot import OneShotDBN
from feddbn.sim.simulation import simulate

RECOVERY = [(10, 512), (20, 512), (10, 256), (20, 256)]
FEW_ROWS = [(20, 100), (15, 90), (10, 50), (5, 25)]


def fits(d, n, seeds, rescale=False, simulation=None, **options):
    """(seeds, 3): wrong edges of W, of A, and seconds."""
    rows = []
    for seed in seeds:
        fed = simulate(d=d, n_samples=n, n_sites=5, random_state=seed, **(simulation or {}))
        factors = np.random.default_rng(seed).uniform(0.5, 2, d) if rescale else np.ones(d)
        sites = {name: [table * factors for table in tables] for name, tables in fed.sites.items()}
        start = time.process_time()
        model = OneShotDBN(**options).fit(sites)
        seconds = time.process_time() - start
        wrong = [
            int(((a != 0) != (b != 0)).sum()) for a, b in ((model.W_, fed.truth.W), (model.A_, fed.truth.A))
        ]
        rows.append((*wrong, seconds))
    return np.array(rows)


def line(label, result):
    mean, spread = result.mean(axis=0), result.std(axis=0, ddof=1)
    print(
        f"{label:44s} W {mean[0]:5.2f} +- {spread[0]:4.2f}   A {mean[1]:5.2f} +- {spread[1]:4.2f}"
        f"   {mean[2]:6.2f} s",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["recovery", "few-rows", "units"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--d", type=int, default=10, help="with the part 'one'")
    parser.add_argument("--n", type=int, default=512, help="with the part 'one'")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UnitsWarning)
    k = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    print(f"seeds {k[0]} to {k[-1]}; mean +- standard deviation", flush=True)
    with threadpool_limits(1):
        if "recovery" in arguments.parts:
            for d, n in RECOVERY:
                line(f"d={d} n={n}", fits(d, n, k))
        if "few-rows" in arguments.parts:
            for d, n in FEW_ROWS:
                line(f"d={d} n={n}", fits(d, n, k))
        if "one" in arguments.parts:
            line(f"d={arguments.d} n={arguments.n}", fits(arguments.d, arguments.n, k))
        if "averaging" in arguments.parts:
            for d, n in [(5, 25), (5, 64), (10, 50), (10, 100), (15, 90), (20, 100)]:
                for average in (False, True):
                    line(f"d={d} n={n} average={average}", fits(d, n, k, average=average))
        if "units" in arguments.parts:
            line("d=10 n=512 rescaled, gaussian", fits(10, 512, k, rescale=True))
            line(
                "d=10 n=512 rescaled, equal variances", fits(10, 512, k, rescale=True, noise_variance="equal")
            )
            exponential = {"noise": "exponential"}
            line("d=10 n=512 rescaled, exponential", fits(10, 512, k, rescale=True, simulation=exponential))
        if "large" in arguments.parts:
            line("d=100 n=1000", fits(100, 1000, k[:3]))


if __name__ == "__main__":
    main()
