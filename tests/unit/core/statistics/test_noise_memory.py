import numpy as np
import pytest

from feddbn.core.designs.recordings import Block, lagged_rows
from feddbn.core.statistics.diagnostics import memory_filter, memory_of_noise, without_memory
from feddbn.core.statistics.moments import Moments


def series(n=3000, rho=0.6, seed=0):
    rng = np.random.default_rng(seed)
    W, A = np.zeros((3, 3)), np.zeros((3, 3))
    W[0, 1], A[1, 2] = 0.6, 0.5
    x, u = np.zeros((n, 3)), np.zeros(3)
    for t in range(1, n):
        u = rho * u + rng.standard_normal(3)
        x[t] = (x[t - 1] @ A + u) @ np.linalg.inv(np.eye(3) - W)
    return x * [1.0, 100.0, 0.01] + [5.0, 0.0, -3.0], W, A


def moments(x, n_lags):
    return Moments.of_rows(np.concatenate(list(lagged_rows([Block(x)], n_lags))))


def test_filtered_moments_are_those_of_filtered_rows():
    x, _, _ = series(200)
    found = without_memory(moments(x, 3), 0.4, 3)
    expected = moments(x[1:] - 0.4 * x[:-1], 2)
    assert found.n == expected.n
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.scatter, expected.scatter, rtol=1e-8, atol=1e-8)
    assert memory_filter(0.4, 2, 3).shape == (12, 9)


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.6, 0.85])
def test_the_memory_is_found_in_any_units(rho):
    x, _, _ = series(rho=rho)
    assert memory_of_noise(moments(x, 2), 3) == pytest.approx(rho, abs=0.06)
