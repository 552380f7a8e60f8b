"""Networks with hidden causes: fit and score against other ways to the same numbers, and what is found."""

from itertools import combinations

import numpy as np
import pytest
from scipy import linalg, stats

from feddbn.core.constraints import EdgeConstraints
from feddbn.core.orders.hidden import FactorModel, find_hidden_causes, score_with_exceptions
from feddbn.core.orders.parents import Criterion
from feddbn.core.orders.search import OrderResult
from feddbn.core.statistics.moments import Moments

D = 6
EFFECTS = (0, 2, 4)


def truth():
    """A network of six variables, and the loads of one hidden cause."""
    W, A, loads = np.zeros((D, D)), 0.4 * np.eye(D), np.zeros((1, D))
    W[0, 1] = W[2, 3] = 0.5
    W[1, 5] = W[3, 5] = -0.4
    A[1, 2] = A[5, 0] = 0.4
    loads[0, EFFECTS] = [0.9, -0.8, 0.8]
    return W, A, loads


def population(W, A, noise, n):
    """Moments of n lagged rows as they are on average: the stationary covariance and one step on."""
    mixing = np.linalg.inv(np.eye(D) - W)
    step, innovation = A @ mixing, mixing.T @ noise @ mixing
    now = linalg.solve_discrete_lyapunov(step.T, innovation)
    S = np.block([[now, (now @ step).T], [now @ step, now]])
    return Moments(float(n), np.zeros(2 * D), S * n)


def simulated(seed, n=800):
    W, A, loads = truth()
    rng = np.random.default_rng(seed)
    u = rng.standard_normal((n, D)) + rng.standard_normal((n, 1)) @ loads
    x, mixing = np.zeros((n, D)), np.linalg.inv(np.eye(D) - W)
    for t in range(1, n):
        x[t] = (x[t - 1] @ A + u[t]) @ mixing
    z = np.hstack([x[1:], x[:-1]])
    return z - z.mean(axis=0)


def settled():
    z = simulated(0)
    W, A, loads = truth()
    model = FactorModel(Moments.of_rows(z), D, EdgeConstraints.none(D, 1), price=7.0)
    support = np.concatenate([W, A]) != 0
    return z, model, model.settle(support, loads != 0, loads, 1.0)


def test_the_score_is_that_of_a_multivariate_normal():
    z, _, network = settled()
    u = z[:, :D] - z @ network.weights
    omega = network.variance * np.eye(D) + network.loads.T @ network.loads
    deviance = -2 * stats.multivariate_normal(np.zeros(D), omega).logpdf(u).sum()
    n, n_parameters = len(z), network.support.sum() + network.loaded.sum()
    assert network.score == pytest.approx(deviance - n * D * (np.log(2 * np.pi) + 1) + 7.0 * n_parameters)


def test_no_single_weight_load_or_variance_would_fit_better():
    z, _, network = settled()

    def deviance(weights, loads, variance):
        u, omega = z[:, :D] - z @ weights, variance * np.eye(D) + loads.T @ loads
        return -2 * stats.multivariate_normal(np.zeros(D), omega).logpdf(u).sum()

    best = deviance(network.weights, network.loads, network.variance)
    for step in (-0.05, 0.05):
        for place in np.argwhere(network.support):
            moved = network.weights.copy()
            moved[tuple(place)] += step
            assert deviance(moved, network.loads, network.variance) > best
        for place in np.argwhere(network.loaded):
            moved = network.loads.copy()
            moved[tuple(place)] += step
            assert deviance(network.weights, moved, network.variance) > best
        assert deviance(network.weights, network.loads, network.variance + step) > best


def test_a_group_of_equal_variances_is_the_best_of_all_groups():
    rng, n, price = np.random.default_rng(3), 50.0, 5.0
    variances = rng.uniform(0.5, 3.0, 5)
    support = np.zeros((5, 5), dtype=bool)
    support[0, 1] = True
    network = OrderResult(tuple(range(5)), ((),) * 5, variances * n, 0.0, "free", support)
    scores = []
    for size in range(1, 6):
        for alike in combinations(range(5), size):
            common = np.log(variances[list(alike)].mean()) * size
            others = sum(np.log(variances[j]) for j in range(5) if j not in alike)
            scores.append(n * (common + others) + np.log(n) * (5 - size))
    assert score_with_exceptions(network, n, price) == pytest.approx(min(scores) + price)


def looked_for(moments):
    return find_hidden_causes(moments, EdgeConstraints.none(D, 1), Criterion(), np.random.default_rng(0))


@pytest.mark.slow
def test_a_hidden_cause_is_found_with_its_effects_and_the_network_around_it():
    W, A, loads = truth()
    found = looked_for(population(W, A, np.eye(D) + loads.T @ loads, 1500))
    assert found is not None
    assert found.effects == (EFFECTS,)
    np.testing.assert_array_equal(found.support, np.concatenate([W, A]) != 0)
    np.testing.assert_allclose(found.weights, np.concatenate([W, A]), atol=0.02)
    np.testing.assert_allclose(np.abs(found.loads), np.abs(loads), atol=0.05)


@pytest.mark.parametrize("variances", [np.ones(D), [1, 1, 2, 1, 1, 1], [0.5, 1, 2, 3, 0.7, 1.5]])
def test_edges_and_unequal_variances_are_no_hidden_cause(variances):
    W, A, _ = truth()
    assert looked_for(population(W, A, np.diag(np.asarray(variances, dtype=float)), 1500)) is None


def test_required_edges_stay_and_forbidden_ones_do_not_come():
    W, A, loads = truth()
    allowed, required = EdgeConstraints.none(D, 1).allowed.copy(), np.zeros((2 * D, D), dtype=bool)
    required[1, 3], allowed[D + 5, 0] = True, False
    moments = population(W, A, np.eye(D) + loads.T @ loads, 1500)
    found = find_hidden_causes(
        moments, EdgeConstraints(allowed, required), Criterion(), np.random.default_rng(0), -np.inf
    )
    assert found is not None
    assert found.support[1, 3]
    assert not found.support[D + 5, 0]
