from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from feddbn.core.designs.features import (
    DEFAULT_KNOTS,
    FeatureLayout,
    FeatureMap,
    callable_map,
    feature_map,
    feature_rows,
    natural_spline,
    register_feature_map,
    smooth,
)
from feddbn.core.designs.lagged import Block, lagged_rows
from feddbn.errors import ParameterError


def _all(stream):
    return np.concatenate([chunk.rows for chunk in stream])


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


@pytest.mark.parametrize("name", ["linear", "quadratic", "spline"])
@pytest.mark.parametrize("n_lags", [1, 3])
def test_blocks_that_continue_a_segment_give_the_rows_of_the_whole(name, n_lags):
    x = np.random.default_rng(1).standard_normal((41, 2))
    labels = np.arange(41)
    whole = [Block(x, labels=labels)]
    cuts = [0, 1, 2, 9, 9, 30, 41]
    pieces = [Block(x[a:b], starts_segment=a == 0 and b == 1, labels=labels[a:b]) for a, b in pairwise(cuts)]
    features = feature_map(name)
    one = list(feature_rows(whole, n_lags, features, smoothing=0.5))
    many = list(feature_rows(pieces, n_lags, features, smoothing=0.5, chunk_rows=4))
    np.testing.assert_allclose(_all(one), _all(many), atol=1e-13)
    np.testing.assert_array_equal(np.concatenate([c.labels for c in many]), labels[n_lags:])
    np.testing.assert_array_equal(np.concatenate([c.labels for c in one]), labels[n_lags:])


def test_neither_lags_nor_smoothing_cross_into_a_new_segment():
    x = np.random.default_rng(2).standard_normal((20, 2))
    together = _all(feature_rows([Block(x[:8]), Block(x[8:])], 2, feature_map("quadratic"), smoothing=0.3))
    apart = [
        _all(feature_rows([Block(part)], 2, feature_map("quadratic"), smoothing=0.3))
        for part in (x[:8], x[8:])
    ]
    np.testing.assert_array_equal(together, np.concatenate(apart))
    assert len(together) == 6 + 10


def test_linear_features_without_smoothing_are_the_lagged_rows():
    x = np.random.default_rng(3).standard_normal((15, 3))
    rows = _all(feature_rows([Block(x)], 2, feature_map("linear")))
    lagged = np.concatenate(list(lagged_rows([Block(x)], 2)))
    np.testing.assert_array_equal(rows[:, :9], lagged)
    np.testing.assert_array_equal(rows[:, 9:], lagged[:, 3:])


def test_layout_points_at_the_columns_it_names():
    x = np.random.default_rng(4).standard_normal((12, 3)) + 5.0
    origin, scale = np.array([5.0, 4.0, 5.5]), np.array([1.0, 2.0, 0.5])
    rows = _all(
        feature_rows([Block(x)], 2, feature_map("quadratic"), smoothing=0.7, origin=origin, scale=scale)
    )
    layout = FeatureLayout(3, 2, 2)
    assert rows.shape == (10, layout.q)
    z = (x - origin) / scale
    e = smooth(z, 0.7)
    np.testing.assert_allclose(rows[:, layout.own(1)], np.column_stack([z[1:-1, 1], z[:-2, 1]]))
    columns = layout.features()
    np.testing.assert_allclose(rows[:, columns[2]], np.column_stack([e[1:-1, 2], e[1:-1, 2] ** 2]))
    np.testing.assert_allclose(rows[:, columns[3 + 1]], np.column_stack([e[:-2, 1], e[:-2, 1] ** 2]))


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


def test_knots_are_public_the_same_everywhere_and_used():
    x = np.random.default_rng(5).standard_normal((30, 2))
    default = _all(feature_rows([Block(x)], 1, feature_map("spline")))
    named = _all(feature_rows([Block(x)], 1, feature_map("spline"), knots=np.array(DEFAULT_KNOTS)))
    other = _all(feature_rows([Block(x)], 1, feature_map("spline"), knots=np.array([-1.0, 0.0, 1.0])))
    np.testing.assert_array_equal(default, named)
    assert default.shape[1] == 2 * (1 + 1 + 3)
    assert other.shape[1] == 2 * (1 + 1 + 2)


def test_knots_that_do_not_increase_are_refused():
    with pytest.raises(
        ParameterError, match=r"knots must be at least 3 increasing numbers, got \(0.0, 1.0\)"
    ):
        natural_spline(np.zeros((2, 1)), np.array([0.0, 1.0]))


def test_a_users_function_becomes_a_map_of_its_own_width():
    features = callable_map(lambda v: np.stack([np.sin(v), np.cos(v), v**3], axis=-1), d=2)
    register_feature_map(features)
    assert feature_map(features.name).width(4) == 3
    rows = _all(feature_rows([Block(np.ones((4, 2)))], 1, features))
    np.testing.assert_allclose(rows[0, 4:], np.tile([np.sin(1), np.cos(1), 1.0], 2))


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
