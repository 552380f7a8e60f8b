"""The look for curvature: sums against their definition, false alarms and power, and what the shape of noise is worth."""

import numpy as np
import pytest
from scipy import stats

from feddbn.core.statistics.residual_checks import (
    CurvatureSums,
    check_residuals,
    curvature_p,
    information_of_shape,
    residual_sums,
)


def rows(n=400, d=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal((n, d))


def test_sums_are_products_with_hermite_polynomials_of_clipped_values():
    z, u = rows()
    z[0, 0] = 50.0
    sums = CurvatureSums.of_rows(z, u)
    c = np.clip(z[:, 0], -3, 3)
    square, cube = (c**2 - 1) / np.sqrt(2), (c**3 - 3 * c) / np.sqrt(6)
    assert sums.products[0, 0, 1] == pytest.approx(square @ u[:, 1])
    assert sums.products[1, 0, 1] == pytest.approx(cube @ u[:, 1])
    assert sums.squares[1, 0, 1] == pytest.approx((cube**2) @ (u[:, 1] ** 2))
    again = CurvatureSums.from_vector(sums.to_vector(), 2)
    np.testing.assert_array_equal(again.products, sums.products)
    half = (
        CurvatureSums.of_rows(z[:200], u[:200]).to_vector()
        + CurvatureSums.of_rows(z[200:], u[200:]).to_vector()
    )
    np.testing.assert_allclose(half, sums.to_vector())


@pytest.mark.parametrize("lead", [(), (3,)])
def test_sums_of_lagged_values_are_those_of_stacked_rows(lead):
    rng = np.random.default_rng(1)
    x, u = rng.standard_normal((*lead, 52, 4)) * 2, rng.standard_normal((*lead, 50, 3))
    stacked = np.concatenate([x[..., 2 - lag : 52 - lag, :] for lag in range(3)], axis=-1)
    found, expected = CurvatureSums.of_lagged(x, u, 2), CurvatureSums.of_rows(stacked, u)
    assert found.products.shape == (*lead, 2, 12, 3)
    np.testing.assert_allclose(found.to_vector(), expected.to_vector(), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("noise", ["normal", "exponential"])
def test_straight_lines_raise_no_more_alarms_than_the_level(noise):
    everything = np.ones((2, 2), dtype=bool)
    found = []
    for seed in range(400):
        z, u = rows(seed=seed)
        if noise == "exponential":
            u = np.random.default_rng(seed).exponential(size=u.shape) - 1.0
        found.append(curvature_p(CurvatureSums.of_rows(z, u), everything, everything))
    # Four standard errors above the level.
    assert np.mean(np.array(found) < 0.05) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 400)


def test_a_bend_is_found_where_it_may_be_looked_for_only():
    z, u = rows(1000)
    u[:, 1] += 0.3 * (z[:, 0] ** 2 - 1)
    sums, nowhere = CurvatureSums.of_rows(z, u), np.zeros((2, 2), dtype=bool)
    before = np.array([[False, True], [False, False]])
    assert curvature_p(sums, before, before) < 1e-8
    assert curvature_p(sums, nowhere, before) < 1e-8
    assert curvature_p(sums, before, ~before) > 0.001


def checks_of(u):
    return check_residuals(residual_sums([(0, u)], (0, len(u) - 1), u.shape[1], 2))


def test_the_shape_of_noise_is_worth_its_negentropy():
    rng = np.random.default_rng(0)
    gaussian = rng.standard_normal((200_000, 1))
    assert information_of_shape(checks_of(gaussian)) == pytest.approx(0, abs=1e-3)
    shape = 30.0
    gamma = (rng.gamma(shape, size=(200_000, 1)) - shape) / np.sqrt(shape)
    exact = stats.norm.entropy() - stats.gamma(shape, scale=1 / np.sqrt(shape)).entropy()
    assert information_of_shape(checks_of(gamma)) == pytest.approx(float(exact), rel=0.15)
    exponential = rng.exponential(size=(200_000, 1)) - 1
    exact = stats.norm.entropy() - stats.expon.entropy()
    assert information_of_shape(checks_of(exponential)) == pytest.approx(float(exact), rel=0.01)
