"""The neural peer of the benchmarks is what it says: gradients are slopes, and an easy network is found."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def neural(script):
    return script("neural_notears")


def _problem(neural, rng):
    recordings = [rng.normal(size=(9, 3)), rng.normal(size=(6, 3))]
    X, Z = neural.rows_of(recordings, 1)
    return neural.Problem(X, Z, lambda1=0.03, lambda2=0.2, hidden=2)


def test_the_gradient_is_the_slope_of_the_value(neural):
    rng = np.random.default_rng(0)
    problem = _problem(neural, rng)
    theta = rng.uniform(0.1, 0.6, problem.n_parameters)
    _, gradient = problem.value(theta, alpha=0.7, rho=3.0)
    step = 1e-6
    for k in range(len(theta)):
        beside = [theta.copy(), theta.copy()]
        beside[0][k] += step
        beside[1][k] -= step
        up, down = (problem.value(t, 0.7, 3.0)[0] for t in beside)
        assert gradient[k] == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-8)


def test_an_easy_curved_network_is_found(neural):
    rng = np.random.default_rng(2)
    noise = 0.3 * rng.normal(size=(400, 3))
    x = noise.copy()
    x[:, 0] = rng.normal(size=400)
    x[:, 1] += np.sin(2 * x[:, 0])
    x[1:, 2] += np.tanh(2 * x[:-1, 1])
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    found = neural.fit([x[:200], x[200:]], rng, lambda1=0.005, lambda2=0.01, kept_back=0.2)
    W, A = found.edges(0.5)
    assert found.h < 1e-6
    assert np.argwhere(W).tolist() == [[0, 1]]
    assert [1, 2] in np.argwhere(A[0]).tolist()
    assert found.held_out < 0.9
