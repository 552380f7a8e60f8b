from __future__ import annotations

import numpy as np
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
from support.saying import refused


def test_smoothing_equals_a_plain_loop():
    x = np.random.default_rng(0).standard_normal((30, 3))
    expected = x.copy()
    for t in range(1, 30):
        expected[t] = 0.6 * x[t] + 0.4 * expected[t - 1]
    np.testing.assert_allclose(smooth(x, 0.6), expected, atol=1e-14)
    np.testing.assert_array_equal(smooth(x, 1.0), x)
    for value in (0.0, 1.1, float("nan")):
        with refused(ParameterError, "smoothing", value):
            smooth(x, value)


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


def test_a_users_function_becomes_a_map_of_its_own_width():
    features = callable_map(lambda v: np.stack([np.sin(v), np.cos(v), v**3], axis=-1), d=2)
    register_feature_map(features)
    assert feature_map(features.name).width(4) == 3
    found = features(np.ones((1, 2)), np.zeros(0))
    np.testing.assert_allclose(found[0], np.tile([np.sin(1), np.cos(1), 1.0], (2, 1)))


def test_maps_and_functions_that_cannot_be_are_refused():
    with refused(ParameterError, "(2,)", "(2, 3)"):
        callable_map(lambda v: v.sum(axis=1), d=3)
    with refused(ParameterError, "'bad'"):
        FeatureMap("bad", lambda v, k: v * np.nan, lambda k: 1)(np.ones((2, 2)), np.zeros(3))
    with refused(ParameterError, "'wide'", "(2, 2, 1)", "(2, 2, 2)"):
        FeatureMap("wide", lambda v, k: v, lambda k: 2)(np.ones((2, 2)), np.zeros(3))
    with refused(ParameterError, "'cubic'", "linear"):
        feature_map("cubic")
    with refused(ParameterError, "'spline'"):
        register_feature_map(FeatureMap("spline", lambda v, k: v, lambda k: 1))
