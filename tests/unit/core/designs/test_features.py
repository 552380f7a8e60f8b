"""The functions of curved effects: against quadrature of another kind, finite differences and what a normal implies."""

import numpy as np
import pytest
from scipy.integrate import quad_vec
from scipy.interpolate import CubicSpline
from scipy.stats import norm

from feddbn.core.designs.features import (
    CURVE_KNOTS,
    N_CURVES,
    FeatureMap,
    callable_map,
    curve_features,
    feature_map,
    natural_spline,
    register_feature_map,
    relative_variances,
    square_features,
)
from feddbn.errors import ParameterError
from support.saying import refused


def test_spline_basis_spans_natural_splines_and_is_linear_outside():
    knots = np.array([-2.0, -0.5, 0.4, 1.0, 2.5])
    x = np.linspace(-4.0, 5.0, 400)
    basis = np.column_stack([np.ones_like(x), natural_spline(x, knots)])
    for k in range(len(knots)):
        curve = CubicSpline(knots, np.eye(len(knots))[k], bc_type="natural")
        inside = (x >= knots[0]) & (x <= knots[-1])
        coefficient = np.linalg.lstsq(basis[inside], curve(x[inside]), rcond=None)[0]
        np.testing.assert_allclose(basis[inside] @ coefficient, curve(x[inside]), atol=1e-9)
    for outside in (x < knots[0], x > knots[-1]):
        second = np.diff(basis[outside], n=2, axis=0)
        np.testing.assert_allclose(second, 0.0, atol=1e-10)


@pytest.mark.usefixtures("registries")
def test_a_users_function_becomes_a_map_of_its_own_width():
    features = callable_map(lambda v: np.stack([np.sin(v), np.cos(v), v**3], axis=-1), d=2)
    register_feature_map(features)
    assert feature_map(features.name).width == 3
    found = features(np.ones((1, 2)))
    np.testing.assert_allclose(found[0], np.tile([np.sin(1), np.cos(1), 1.0], (2, 1)))


def test_under_a_standard_normal_they_are_orthonormal_and_have_no_line():
    def products(z):
        values = np.concatenate([[1.0, z], curve_features(np.array([z]))[0]])
        return np.outer(values, values) * norm.pdf(z)

    table, _ = quad_vec(products, -9, 9, points=CURVE_KNOTS)
    np.testing.assert_allclose(table, np.eye(2 + N_CURVES), atol=1e-7)


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


def test_squares_have_mean_0_and_variance_1_and_an_end():
    z = np.random.default_rng(0).standard_normal(400_000)
    f = square_features(z)[:, 0]
    assert f.mean() == pytest.approx(0, abs=0.02)
    assert f.std() == pytest.approx(1, abs=0.05)
    np.testing.assert_array_equal(square_features(np.array([3.0, -7.0])), 8 / np.sqrt(2))


def test_maps_and_functions_that_cannot_be_are_refused():
    with refused(ParameterError, "'bad'"):
        FeatureMap("bad", lambda v: v * np.nan, 1)(np.ones((2, 2)))
    with refused(ParameterError, "'wide'", "(2, 2, 1)", "(2, 2, 2)"):
        FeatureMap("wide", lambda v: v, 2)(np.ones((2, 2)))
