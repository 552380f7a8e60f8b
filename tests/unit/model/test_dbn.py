"""Tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from feddbn.core.designs.recordings import Block, lagged_rows
from feddbn.core.statistics.moments import Moments
from feddbn.errors import DataError, ParameterError
from feddbn.model.dbn import DBN
from support.report_results import random_dbn

W = np.array([[0.0, 0.5], [0.0, 0.0]])
A = np.zeros((1, 2, 2))


def test_a_network_is_read_only_and_says_its_size() -> None:
    dbn = DBN(W, A)
    with pytest.raises(ValueError, match="read-only"):
        dbn.W[0, 0] = 1.0
    assert repr(dbn) == "<DBN: 2 variables, 1 lag, 1 contemporaneous and 0 lagged edges>"


def test_equality_is_exact() -> None:
    dbn, near = DBN(W, A), DBN(W + 1e-9 * (W != 0), A)
    assert dbn.equals(DBN(W, A))
    assert not dbn.equals(near)
    assert not dbn.equals(DBN(W, A, ["a", "b"]))
    assert not dbn.equals(DBN(W, np.zeros((2, 2, 2))))


def test_a_static_network_has_the_covariance_of_its_shocks() -> None:
    static = DBN(W, np.zeros((0, 2, 2)), noise_variances=np.array([2.0, 1.0]))
    np.testing.assert_allclose(static.stationary_covariance(), [[2.0, 1.0], [1.0, 1.5]])
    assert static.spectral_radius == 0.0


def test_a_noiseless_network_has_no_likelihood() -> None:
    silent = DBN(np.zeros((2, 2)), A, noise_variances=np.array([0.0, 1.0]))
    data = np.column_stack([np.zeros(50), np.random.default_rng(0).normal(size=50)])
    with pytest.raises(ParameterError, match="log_likelihood needs positive noise_variances"):
        silent.log_likelihood(data)


@pytest.mark.parametrize(
    ("name", "given", "value", "first"),
    [
        ("impulse_responses", (3,), "response", 0),
        ("impulse_responses", (3, "reduced"), "response", 0),
        ("fevd", (3,), "share", 1),
    ],
)
def test_every_cell_is_that_of_the_array(name, given, value, first):
    dbn = random_dbn(4, n_lags=2, seed=3)
    array = getattr(dbn, name)(*given)
    frame = dbn.tidy(array, value, first=first)
    assert frame.columns.tolist() == ["source", "target", "step", value]
    assert len(frame) == array.size
    for row in frame.sample(20, random_state=0).to_dict("records"):
        i, j = dbn.variables.index(row["source"]), dbn.variables.index(row["target"])
        assert row[value] == array[row["step"] - first, i, j]


RandomDBN = Callable[..., DBN]


def path_sum(dbn: DBN, i: int, j: int, horizon: int) -> float:
    """Sum over every directed path (i, 0) -> (j, horizon), enumerated one edge at a time."""
    stack = dbn.adjacency_matrices

    def walk(node: int, time: int) -> float:
        total = 0.0
        for lag, k in itertools.product(range(dbn.n_lags + 1), range(dbn.d)):
            weight, then = stack[lag][node, k], time + lag
            if weight and then <= horizon:
                total += weight * ((k, then) == (j, horizon)) + weight * walk(k, then)
        return total

    return walk(i, 0)


@pytest.mark.parametrize("seed", range(3))
def test_effects_equal_enumerated_paths(seed: int, random_dbn: RandomDBN) -> None:
    dbn = random_dbn(seed, d=3, n_lags=2)
    total = dbn.impulse_responses(3)
    for i, j, h in itertools.product(range(3), range(3), range(4)):
        own = float(i == j and h == 0)
        assert total[h, i, j] == pytest.approx(own + path_sum(dbn, i, j, h))


def test_variance_shares_sum_to_one_and_a_noiseless_source_has_none(random_dbn: RandomDBN) -> None:
    dbn = random_dbn(2, d=4, n_lags=1)
    shares = dbn.fevd(5)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert (shares >= 0).all()
    silent = DBN(dbn.W, dbn.A, dbn.variables, dbn.intercept, np.array([0.0, 1.0, 1.0, 1.0]))
    np.testing.assert_array_equal(silent.fevd(5)[:, 0, :], 0.0)
    with pytest.raises(ParameterError, match="noise_variances"):
        DBN(np.zeros((2, 2)), np.zeros((1, 2, 2)), noise_variances=np.zeros(2)).impulse_responses(
            2, "orthogonalised"
        )


def test_network_from_moments_has_the_intercept_and_variances_of_the_residuals(random_dbn: RandomDBN) -> None:
    dbn = random_dbn(4, d=3, n_lags=2)
    data = dbn.simulate(300, random_state=0).to_numpy() + 5.0
    moments = Moments.of_rows(np.concatenate(list(lagged_rows([Block(data)], 2))))
    fitted = DBN.from_moments(dbn.W, dbn.A, moments, dbn.variables)
    residuals = fitted.residuals(data)
    np.testing.assert_allclose(residuals.mean(axis=0), 0.0, atol=1e-10)
    np.testing.assert_allclose(residuals.var(axis=0), fitted.noise_variances, rtol=1e-10)
    with pytest.raises(ParameterError, match=r"moments.*9.*4.*n=0"):
        DBN.from_moments(dbn.W, dbn.A, Moments.empty(4))


def test_likelihood_and_residuals_respect_the_borders_of_stretches(random_dbn: RandomDBN) -> None:
    dbn = random_dbn(5, d=3, n_lags=2)
    one, two = dbn.simulate(40, random_state=1), dbn.simulate(30, random_state=2)
    assert dbn.residuals([one, two]).shape == (38 + 28, 3)
    assert dbn.log_likelihood([one, two]) == pytest.approx(dbn.log_likelihood(one) + dbn.log_likelihood(two))
    assert dbn.log_likelihood([one, two.iloc[:2]]) == pytest.approx(dbn.log_likelihood(one))
    with pytest.raises(DataError, match=r"data.*n_lags=2.*2"):
        dbn.log_likelihood([two.iloc[:2]])
    with pytest.raises(DataError, match="data contains NaN or infinity"):
        dbn.residuals(one.mask(one > one.max().min() - 1e-9))
