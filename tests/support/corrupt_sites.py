"""Eight simulated sites of 200 rows with some corruption, and the default fit of them."""

from __future__ import annotations

import warnings

from feddbn import OneShotDBN
from feddbn.errors import UnitsWarning
from reproduction.corruptions import simulate


def corrupt(corruptions, seed):
    return simulate(
        corruptions,
        d=8,
        n_sites=8,
        n_samples=1600,
        mean_degree=2.5,
        lag_degree=1,
        w_range=(0.3, 0.6),
        random_state=seed,
    )


def fitted(sites, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitsWarning)
        return OneShotDBN(**options).fit(sites)
