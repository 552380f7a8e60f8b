"""What curves are worth and cost under differential privacy: wrong edges with straight lines, splines and squares.

    python benchmarks/privacy_curves.py --recordings 2000 500 --epsilon 8 4 1 --seeds 0-4

d = 5, mean degree 2, ten sites, recordings of 20 steps, delta 1e-5 for each recording; effects are draws of a Gaussian
process, or lines with --effects linear. All three have the same budget; bounds are chosen privately. Prints the table of
docs/measurements.md: mean number of wrong edges (structural Hamming distance of W and of A together), how many of them are
there and should not be, and mean effective rows.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from privacy_utility import N_SITES, noisy_sites
from threadpoolctl import threadpool_limits

from feddbn.errors import DataError, ResultWarning
from feddbn.methods.oneshot import OneShotDBN
from feddbn.results.scoring import score
from feddbn.sim.simulation import simulate

FEATURES = ("linear", "spline", "quadratic")


def one(
    n_recordings: int, epsilon: float, seed: int, effects: str, features: str
) -> tuple[float, float, float]:
    """Return wrong edges, those of them that were found, and effective rows; a fit that says it has too little is empty."""
    made = simulate(
        d=5,
        n_lags=1,
        n_sites=N_SITES,
        n_samples=19 * n_recordings,
        n_recordings=n_recordings // N_SITES,
        mean_degree=2,
        effects=effects,
        random_state=seed,
    )
    private = noisy_sites(made, epsilon, seed, curves=features != "linear")
    try:
        model = OneShotDBN(features=features, federation=private).fit(None)
    except DataError:
        return float((made.truth.W != 0).sum() + (made.truth.A != 0).sum()), 0.0, 0.0
    parts = score(made.truth, model.dbn_)
    wrong = sum(parts[part]["shd"] for part in ("W", "A"))
    counts = (np.count_nonzero(model.W_), np.count_nonzero(model.A_))
    false = sum(
        float(np.nan_to_num(parts[part]["fdr"])) * n for part, n in zip(("W", "A"), counts, strict=True)
    )
    return wrong, false, float(model.n_samples_)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recordings", type=int, nargs="+", default=[500])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[8.0])
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--effects", default="gp")
    given = parser.parse_args()
    first, last = (int(x) for x in given.seeds.split("-"))
    print(f"| recordings | epsilon | {' | '.join(FEATURES)} |")
    print("|---|---|---|---|---|")
    for n in given.recordings:
        for epsilon in given.epsilon:
            cells = []
            for features in FEATURES:
                runs = [one(n, epsilon, seed, given.effects, features) for seed in range(first, last + 1)]
                wrong, false, rows = np.mean(runs, axis=0)
                cells.append(f"{wrong:.1f} ({false:.1f} too many), {rows:,.0f} rows")
            print(f"| {n:,} | {epsilon:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore", ResultWarning)
    with threadpool_limits(1):
        main()
