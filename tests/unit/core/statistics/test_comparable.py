"""Bounds on how far noise differs, against networks whose noise is known and against regressions by hand."""

import numpy as np
import pytest

from feddbn.core.statistics.diagnostics import NOISE_FACTOR, noise_spread
from feddbn.core.statistics.moments import Moments


def rows_of(seed, noise, n=4000, d=5, n_lags=1):
    """Lagged rows of a random stable network with the given noise."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(d)
    W = np.zeros((d, d))
    W[np.ix_(order, order)] = np.triu(rng.uniform(-0.6, 0.6, (d, d)), 1)
    A = 0.3 * rng.normal(size=(d, d)) / np.sqrt(d)
    impact = np.linalg.inv(np.eye(d) - W)
    x = np.zeros((n + n_lags, d))
    for t in range(1, len(x)):
        x[t] = (x[t - 1] @ A + noise * rng.normal(size=d)) @ impact
    return np.hstack([x[n_lags - k : len(x) - k] for k in range(n_lags + 1)])


def spread_of(Z, d=5):
    moments = Moments.of_rows(Z)
    return noise_spread(moments.scatter, moments.n, d)


@pytest.mark.parametrize("seed", range(8))
def test_no_network_has_noise_that_differs_less_than_the_bound(seed):
    noise = np.exp(np.random.default_rng(100 + seed).uniform(0, 2, 5))
    found = spread_of(rows_of(seed, noise))
    assert found.factor <= noise[found.large] / noise[found.small]


@pytest.mark.parametrize("seed", range(8))
def test_equal_noise_is_never_told_apart(seed):
    found = spread_of(rows_of(seed, np.ones(5)))
    assert found.factor <= 1.0


def test_the_bounds_are_residual_variances_of_two_regressions():
    Z = rows_of(3, np.array([1.0, 1.0, 8.0, 1.0, 1.0]), n=500)
    Z = Z - Z.mean(axis=0)

    def left(j, columns):
        beta, *_ = np.linalg.lstsq(Z[:, columns], Z[:, j], rcond=None)
        return float(((Z[:, j] - Z[:, columns] @ beta) ** 2).sum())

    low = [left(j, [k for k in range(10) if k != j]) / 490 for j in range(5)]
    high = [left(j, list(range(5, 10))) / 494 for j in range(5)]
    found = spread_of(Z)
    assert (found.large, found.small) == (int(np.argmax(low)), int(np.argmin(high)))
    chance = np.exp(-1.5 * np.sqrt(2 / 490 + 2 / 494))
    assert found.factor == pytest.approx(np.sqrt(max(low) / min(high)) * chance)


def test_units_change_the_bound_as_much_as_the_noise():
    Z, units = rows_of(1, np.ones(5)), np.array([1.0, 1.0, 30.0, 1.0, 0.1])
    found = spread_of(Z * np.tile(units, 2))
    assert (found.large, found.small) == (2, 4)
    assert found.factor > NOISE_FACTOR
    assert 100 < found.factor <= 300


@pytest.mark.parametrize("n_lags", [0, 2])
def test_any_number_of_lags_will_do(n_lags):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(400, 3 * (n_lags + 1))) * np.tile([1.0, 1.0, 10.0], n_lags + 1)
    moments = Moments.of_rows(Z)
    found = noise_spread(moments.scatter, moments.n, 3)
    assert found.large == 2
    assert 7 < found.factor < 10


def test_too_few_rows_give_no_bound():
    assert spread_of(rows_of(0, np.ones(5), n=15)) is None
    assert noise_spread(np.eye(1), 100.0, 1) is None


def test_sums_that_are_those_of_no_rows_give_no_bound():
    # Noise on the sums can make a matrix that no rows have.
    scatter = 100 * np.array([[1.0, 0.9, 0.9], [0.9, 1.0, -0.9], [0.9, -0.9, 1.0]])
    assert noise_spread(scatter, 100.0, 3) is None


def test_columns_that_follow_from_others_are_never_the_noisy_ones():
    Z = rows_of(0, np.ones(5))
    Z[:, [1, 6]] = 50 * Z[:, [0, 5]]
    found = spread_of(Z)
    assert found.large not in (0, 1)
    assert found.factor < 1.5


@pytest.mark.parametrize("seed", range(4))
def test_strong_weights_let_variances_differ_but_not_the_bound(seed):
    d, rng = 8, np.random.default_rng(seed)
    W = np.triu(rng.uniform(0.5, 2.0, (d, d)) * rng.choice([-1.0, 1.0], (d, d)), 1)
    x = rng.normal(size=(2000, d)) @ np.linalg.inv(np.eye(d) - W)
    moments = Moments.of_rows(x)
    assert np.sqrt(moments.scatter.max() / np.diag(moments.scatter).min()) > 5
    assert noise_spread(moments.scatter, moments.n, d).factor < 1.05
