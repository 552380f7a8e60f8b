"""What differential privacy costs: SHD of W against epsilon, recording-level, delta 1e-5, OneShotDBN.

    python benchmarks/privacy_utility.py [n_recordings epsilon n_seeds] ...

d = 10, mean degree 4, ten sites, recordings of 20 steps. The whole path: clipping bound chosen privately,
noise at the sites, secure aggregation, noise-aware moments, OneShotDBN with its defaults.
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np
from threadpoolctl import threadpool_limits

from feddbn.data import read_sites
from feddbn.errors import DataError, UnitsWarning
from feddbn.federation.dp_guard import DpGuard
from feddbn.federation.private_moments import private_moments_plan
from feddbn.federation.site import Site
from feddbn.methods.oneshot import OneShotDBN
from feddbn.methods.scoring import score
from feddbn.methods.simulation import simulate
from feddbn.privacy.secagg import default_threshold
from feddbn.runtime.private import PrivateFederation
from feddbn.runtime.secure import secure_federation

N_SITES, DELTA = 10, 1e-5
DEFAULT = [(5000, 1.0, 10), (500, 8.0, 10), (500, 4.0, 10), (500, 2.0, 10), (500, 1.0, 10), (100, 1.0, 10)]


def one(n_recordings: int, epsilon: float, seed: int) -> tuple[float, float, float, float, float]:
    federation = simulate(
        d=10,
        n_lags=1,
        n_sites=N_SITES,
        n_samples=19 * n_recordings,
        n_recordings=n_recordings // N_SITES,
        mean_degree=4,
        random_state=seed,
    )
    plan = private_moments_plan("moments", "recording", epsilon, DELTA)
    guards = {
        name: DpGuard(plan, np.random.default_rng([seed, k]), 1.001 * epsilon, DELTA)
        for k, name in enumerate(sorted(federation.sites))
    }
    sites = {name: Site(name, site, (guards[name],)) for name, site in read_sites(federation.sites).items()}
    private = PrivateFederation(secure_federation(sites), plan, default_threshold(N_SITES))
    try:
        model = OneShotDBN(federation=private).fit(None)
    except DataError:
        return float("nan"), 0.0, 0.0, 0.0, 0.0
    part = score(federation.truth, model.dbn_)["W"]
    assert private.last is not None
    return part["shd"], part["shd_paper"], part["tpr"], part["fdr"], private.last.noisy.moments.n


def main() -> None:
    given = [float(x) for x in sys.argv[1:]]
    jobs = [
        (int(a), b, int(c)) for a, b, c in zip(given[::3], given[1::3], given[2::3], strict=True)
    ] or DEFAULT
    print("recordings  epsilon  SHD of W (reversal 1)  SHD (FP+FN)  TPR  FDR  effective rows  seconds")
    for n_recordings, epsilon, n_seeds in jobs:
        start = time.perf_counter()
        rows = np.array([one(n_recordings, epsilon, seed) for seed in range(n_seeds)])
        mean, spread = np.nanmean(rows, axis=0), np.nanstd(rows, axis=0)
        print(
            f"{n_recordings:10d}  {epsilon:7g}  {mean[0]:.2f} +- {spread[0]:.2f}  {mean[1]:.2f}  {mean[2]:.2f}  "
            f"{mean[3]:.2f} (worst {rows[:, 3].max():.2f})  {mean[4]:.0f}  {time.perf_counter() - start:.0f}  "
            f"{rows[:, 0].astype(int).tolist()}",
            flush=True,
        )


if __name__ == "__main__":
    warnings.simplefilter("ignore", UnitsWarning)
    with threadpool_limits(1):
        main()
