from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from feddbn.core.designs.features import (
    FeatureMap,
    callable_map,
    feature_map,
    natural_spline,
    register_feature_map,
    smooth,
)
from feddbn.errors import ParameterError


def test_smoothing_equals_a_plain_loop():
    x = np.random.default_rng(0).standard_normal((30, 3))
    expected = x.copy()
    for t in range(1, 30):
        expected[t] = 0.6 * x[t] + 0.4 * expected[t - 1]
    np.testing.assert_allclose(smooth(x, 0.6), expected, atol=1e-14)


def test_smoothing_of_one_returns_the_values():
    x = np.random.default_rng(0).standard_normal((5, 2))
    np.testing.assert_array_equal(smooth(x, 1.0), x)


@pytest.mark.parametrize("value", [0.0, -0.1, 1.1, float("nan")])
def test_smoothing_outside_the_unit_interval_is_refused(value):
    with pytest.raises(ParameterError, match=r"smoothing must lie in \(0, 1\]"):
        smooth(np.zeros((3, 1)), value)


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


def test_knots_that_do_not_increase_are_refused():
    with pytest.raises(
        ParameterError, match=r"knots must be at least 3 increasing numbers, got \(0.0, 1.0\)"
    ):
        natural_spline(np.zeros((2, 1)), np.array([0.0, 1.0]))


def test_a_users_function_becomes_a_map_of_its_own_width():
    features = callable_map(lambda v: np.stack([np.sin(v), np.cos(v), v**3], axis=-1), d=2)
    register_feature_map(features)
    assert feature_map(features.name).width(4) == 3
    found = features(np.ones((1, 2)), np.zeros(0))
    np.testing.assert_allclose(found[0], np.tile([np.sin(1), np.cos(1), 1.0], (2, 1)))


def test_a_function_of_the_wrong_shape_is_refused():
    with pytest.raises(ParameterError, match=r"features returned shape \(2,\) for values of shape \(2, 3\)"):
        callable_map(lambda v: v.sum(axis=1), d=3)


def test_a_map_that_gives_nan_or_another_width_is_refused():
    bad = FeatureMap("bad", lambda v, k: v * np.nan, lambda k: 1)
    with pytest.raises(ParameterError, match="'bad' returned values that are not finite"):
        bad(np.ones((2, 2)), np.zeros(3))
    wide = FeatureMap("wide", lambda v, k: v, lambda k: 2)
    with pytest.raises(ParameterError, match=r"'wide' returned shape \(2, 2, 1\).*must return \(2, 2, 2\)"):
        wide(np.ones((2, 2)), np.zeros(3))


def test_unknown_and_taken_names_are_refused():
    with pytest.raises(ParameterError, match="no feature map is named 'cubic' here; known are linear"):
        feature_map("cubic")
    with pytest.raises(ParameterError, match="'spline' is taken"):
        register_feature_map(FeatureMap("spline", lambda v, k: v, lambda k: 1))
