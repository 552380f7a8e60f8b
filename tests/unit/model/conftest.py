"""Random stable networks for the tests of this folder."""

from collections.abc import Callable

import numpy as np
import pytest

from feddbn.model.dbn import DBN
from support.networks import curved, make_curve, make_product


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


def _curved_dbn(zero: bool = False) -> DBN:
    """Four variables, two lags: curves within a moment and across, a square, a product; with `zero` all of them are 0."""
    W, A = np.zeros((4, 4)), np.zeros((2, 4, 4))
    W[0, 1], W[1, 2] = 0.5, -0.3
    A[0, 0, 0], A[0, 1, 1], A[0, 2, 2], A[1, 3, 3], A[0, 2, 0] = 0.4, 0.3, -0.2, 0.35, 0.2
    on = 0.0 if zero else 1.0
    covariance = tuple(map(tuple, (0.01 * (np.eye(4) + 0.3)).tolist()))
    curves = (
        make_curve(0, 1, 0, 1.0, 1.5, (0.3 * on, -0.2 * on, 0.1 * on), "spline", covariance),
        make_curve(1, 3, 0, 0.0, 2.0, (0.3 * on,), "quadratic"),
        make_curve(3, 0, 2, -0.5, 1.2, (0.2 * on, 0.0, 0.1 * on, 0.0, 0.05 * on, -0.05 * on)),
        make_curve(2, 2, 1, 0.2, 1.0, (0.15 * on,)),
    )
    products = (
        make_product(1, 3, 2, 1, 0.2 * on, (0.0, 0.5), (2.0, 1.5)),
        make_product(0, 0, 3, 1, -0.2 * on, (1.0, 1.0), (1.5, 1.5)),
        make_product(0, 1, 3, 0, 0.2 * on, (1.0, 0.0), (1.5, 2.0)),
    )
    intercept, variances = np.array([0.5, -0.2, 0.1, 0.3]), np.array([0.5, 0.8, 0.3, 0.6])
    return curved(W, A, list("abcd"), intercept, variances, [*curves, *products])


@pytest.fixture(scope="session")
def curved_dbn() -> Callable[..., DBN]:
    return _curved_dbn
