"""What noise of .3 of the sampling error costs: wrong edges with exact sums and with noise.

    python benchmarks/noise.py [n_seeds]

Networks: weights +-[.3, .5], mean degree 4, lag degree 1; a wrong edge is a false or a missing one, of W and A together.
Nothing is tuned. "Paper" is the paper's setting of ten sites with 5 or 6 rows for each variable.
"""

import sys
import warnings

import numpy as np
from threadpoolctl import threadpool_limits

import feddbn
from feddbn.errors import ResultWarning

SETTINGS = (
    ("OneShotDBN", 8, 1_000, 5),
    ("OneShotDBN", 8, 5_000, 5),
    ("FDBNL", 8, 1_000, 5),
    ("FDBNL", 8, 5_000, 5),
    ("OneShotDBN", 20, 1_000, 5),
    ("OneShotDBN", 8, 500, 5),
    ("OneShotDBN", 8, 250, 5),
    ("OneShotDBN, paper", 5, 30, 10),
    ("OneShotDBN, paper", 10, 50, 10),
    ("FDBNL, paper", 5, 30, 10),
    ("FDBNL, paper", 10, 50, 10),
    ("FDBNL, paper", 15, 90, 10),
    ("FDBNL, paper", 20, 100, 10),
)


def wrong(model, truth) -> int:
    """Edges that are there and should not be, and the other way round."""
    return sum(int(((a != 0) != (b != 0)).sum()) for a, b in ((model.W_, truth.W), (model.A_, truth.A)))


def main(n_seeds: int, settings=SETTINGS) -> None:
    print("| method | d | n | sites | wrong edges, exact | with noise | more |")
    print("|---|---|---|---|---|---|---|")
    for name, d, n, n_sites in settings:
        method, found = getattr(feddbn, name.split(",")[0]), []
        for seed in range(n_seeds):
            data = feddbn.simulate(d=d, n_samples=n, n_sites=n_sites, random_state=seed)
            pair = []
            for protection in ("exact", "noise"):
                federation = feddbn.simulated(data.sites, protection=protection, random_state=seed)
                pair.append(wrong(method(federation=federation).fit(None), data.truth))
            found.append(pair)
        exact, noisy = np.mean(found, axis=0)
        more = np.diff(found, axis=1).ravel()
        error = more.std(ddof=1) / np.sqrt(len(more)) if len(more) > 1 else 0.0
        print(
            f"| {name} | {d} | {n:,} | {n_sites} | {exact:.1f} | {noisy:.1f} | {more.mean():+.1f} ± {error:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResultWarning)
        warnings.simplefilter("ignore", UserWarning)
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
