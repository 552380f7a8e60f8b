"""A hidden cause with a memory of two variables, from exact covariances of systems of which one variable is hidden."""

import numpy as np
import pytest

from feddbn.core.orders.slow_causes import _Pair, slow_cause
from feddbn.core.statistics.moments import Moments
from support.hidden_systems import exact_correlations

N, D = 8000, 4
PRICE = np.log(N)


def system(phi=0.7, load=0.6):
    """c -> a within a row and a -> d a row later; the last variable acts on a and b and is not seen."""
    W, A = np.zeros((D + 1, D + 1)), np.zeros((1, D + 1, D + 1))
    A[0][np.diag_indices(D + 1)] = [0.5, 0.5, 0.6, 0.4, phi]
    W[2, 0], A[0, 0, 3] = 0.45, 0.4
    W[D, 0], W[D, 1] = load, load
    return W, A


def moments(W, A):
    scales = [0.8, 0.8, 0.8, 0.8, 0.7]
    return Moments(N, np.zeros(2 * D), N * exact_correlations(W, A, range(D), 1, scales))


def true_support(W, A):
    return np.concatenate([W[:D, :D], A[0][:D, :D]]) != 0


def seen_edges():
    """What a fit finds of the system: its own edges, and those that stand for the hidden cause."""
    support = true_support(*system())
    support[[0, D + 0, D + 1, D + 2, D + 2], [1, 1, 0, 0, 1]] = True
    return support


def test_a_hidden_cause_is_found_with_its_memory_and_the_edges_it_stands_for():
    found = slow_cause(moments(*system()), seen_edges(), PRICE)
    assert found.effects == (0, 1)
    assert found.memory == pytest.approx(0.7, abs=0.02)
    assert found.gain > 20
    np.testing.assert_array_equal(found.support, true_support(*system()))


def test_edges_between_two_variables_are_no_hidden_cause():
    W, A = system(load=0.0)
    W[0, 1], A[0, 0, 1], A[0, 1, 0] = 0.5, 0.3, -0.3
    found = slow_cause(moments(W, A), true_support(W, A), PRICE)
    assert found is None or found.gain < -100
    W, A = system(load=0.0)
    # With one edge between any two variables nothing is looked for, nor without lags.
    assert slow_cause(moments(W, A), true_support(W, A), PRICE) is None
    assert slow_cause(moments(W, A), true_support(W, A)[:D], PRICE) is None


def test_required_edges_stay():
    required = np.zeros((2 * D, D), dtype=bool)
    required[0, 1] = True
    found = slow_cause(moments(*system()), seen_edges(), PRICE, required)
    assert found is None or found.support[0, 1]


def test_the_deviance_is_smallest_where_the_system_is():
    """At the true parameters the implied moments are those given, so that no other deviance is less."""
    W, A = system()
    pair = _Pair(moments(W, A), seen_edges(), seen_edges(), PRICE, (0, 1))
    R = pair.S
    C = np.linalg.solve(R[D:, D:], R[D:, :D])
    left = R[:D, :D] - R[:D, D:] @ C
    least = N * (np.linalg.slogdet(left)[1] + D)
    scales = np.array([0.8, 0.8, 0.8, 0.8])
    S = _covariance(W, A)
    root = np.sqrt(np.diag(S))
    weights = np.concatenate([W[:D, :D], A[0][:D, :D]]) * np.tile(root, 2)[:, None] / root
    h = 0.7 / np.sqrt(1 - 0.7**2)
    loads = 0.6 * h / root * np.array([1, 1, 0, 0])
    assert pair._deviance(weights, (scales / root) ** 2, loads, 0.7) == pytest.approx(least, rel=1e-9)
    assert pair._deviance(weights, (scales / root) ** 2, loads, 0.6) > least + 1


def _covariance(W, A):
    """Stationary, of the seen variables, by summing what shocks leave."""
    through = np.linalg.inv(np.eye(D + 1) - W)
    step, S = A[0] @ through, np.zeros((D + 1, D + 1))
    shock = through.T @ np.diag([0.64, 0.64, 0.64, 0.64, 0.49]) @ through
    for _ in range(300):
        S = step.T @ S @ step + shock
    return S[:D, :D]
