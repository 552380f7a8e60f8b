"""The functions of curved effects: against quadrature of another kind, finite differences and what a normal implies."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from feddbn.core.designs.features import (
    CURVE_KNOTS,
    N_CURVES,
    curve_features,
    relative_variances,
    square_features,
)


def expected(function):
    """Its mean under a standard normal, by adaptive quadrature."""
    return quad(lambda z: function(z) * norm.pdf(z), -9, 9, points=CURVE_KNOTS, limit=400)[0]


def one(k):
    return lambda z: float(curve_features(np.array([z]))[0, k])


def test_under_a_standard_normal_they_are_orthonormal_and_have_no_line():
    functions = [lambda z: 1.0, lambda z: z, *(one(k) for k in range(N_CURVES))]
    table = [[expected(lambda z, f=f, g=g: f(z) * g(z)) for g in functions] for f in functions]
    np.testing.assert_allclose(table, np.eye(len(functions)), atol=1e-7)


def test_they_are_constant_beyond_the_outer_knots():
    values = curve_features(np.array([2.4, 5.0, 1e9, -2.4, -5.0, -1e9]))
    np.testing.assert_array_equal(values[0], values[1])
    np.testing.assert_array_equal(values[0], values[2])
    np.testing.assert_array_equal(values[3], values[5])


def test_smooth_ones_come_first_and_are_expected_to_be_larger():
    z, h = np.linspace(-2.399, 2.399, 20_001), 1e-4
    second = (curve_features(z + h) - 2 * curve_features(z) + curve_features(z - h)) / h**2
    roughness = (second**2).sum(axis=0) * (z[1] - z[0])
    assert (np.diff(roughness) > 0).all()
    np.testing.assert_allclose(relative_variances(), np.sqrt(roughness[0] / roughness), rtol=2e-3)


def test_every_function_ends_above_zero():
    assert (curve_features(np.array([CURVE_KNOTS[-1]]))[0] > 0).all()


def test_squares_have_mean_0_and_variance_1_and_an_end():
    z = np.random.default_rng(0).standard_normal(400_000)
    f = square_features(z)[:, 0]
    assert f.mean() == pytest.approx(0, abs=0.02)
    assert f.std() == pytest.approx(1, abs=0.05)
    np.testing.assert_array_equal(square_features(np.array([3.0, -7.0])), 8 / np.sqrt(2))
