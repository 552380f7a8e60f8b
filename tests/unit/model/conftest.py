"""Random stable networks for the tests of this folder."""

from collections.abc import Callable

import numpy as np
import pytest

from feddbn.model.dbn import DBN


def _random_dbn(seed: int, d: int = 4, n_lags: int = 2, radius: float = 0.8) -> DBN:
    rng = np.random.default_rng(seed)
    order = rng.permutation(d)
    W = np.zeros((d, d))
    W[np.ix_(order, order)] = np.triu(rng.normal(size=(d, d)) * (rng.random((d, d)) < 0.6), 1)
    A = rng.normal(size=(n_lags, d, d)) * (rng.random((n_lags, d, d)) < 0.6)
    for _ in range(200):
        dbn = DBN(W, A, [f"v{i}" for i in range(d)], rng.normal(size=d), rng.uniform(0.3, 2.0, size=d))
        if dbn.spectral_radius < radius:
            return dbn
        A *= 0.8
    raise AssertionError("no stable network found")


@pytest.fixture(scope="session")
def random_dbn() -> Callable[..., DBN]:
    return _random_dbn
