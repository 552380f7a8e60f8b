"""Curves, products and edge effects against formulas that are written out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from feddbn.core.designs.features import CURVE_KNOTS, FeatureMap, curve_features, register_feature_map
from feddbn.errors import CurvesWarning, ParameterError
from feddbn.model.dbn import DBN
from support.networks import curved, make_curve, make_product, part_at

CurvedDBN = Callable[..., DBN]


def test_a_quadratic_curve_is_the_written_formula_and_constant_beyond_three_scales() -> None:
    curve = make_curve(0, 1, 1, origin=2.0, scale=0.5, coefficients=(1.5,), basis="quadratic")
    x = np.array([2.0, 2.5, 3.5, 4.5])
    inside = 1.5 * (((x - 2.0) / 0.5) ** 2 - 1) / np.sqrt(2)
    np.testing.assert_allclose(part_at(curve, x)[:3], inside[:3], rtol=1e-14)
    np.testing.assert_allclose(part_at(curve, 4.5), 1.5 * (9 - 1) / np.sqrt(2), rtol=1e-14)
    assert curve.term.ranges[0] == (0.5, 3.5)


def test_a_spline_curve_is_a_natural_cubic_spline_through_its_values_at_the_knots() -> None:
    rng = np.random.default_rng(1)
    curve = make_curve(0, 1, 0, -1.0, 3.0, tuple(rng.normal(size=6)))
    knots = -1.0 + 3.0 * np.array(CURVE_KNOTS)
    same = CubicSpline(knots, part_at(curve, knots), bc_type="natural")
    x = np.linspace(*curve.term.ranges[0], 200)
    np.testing.assert_allclose(part_at(curve, x), same(x), atol=1e-10)
    for end in (knots[0], knots[-1]):
        outside = end + np.sign(end + 1.0) * np.array([1.0, 50.0, 1e150])
        np.testing.assert_allclose(part_at(curve, outside), same(end), rtol=1e-8)


@pytest.mark.usefixtures("registries")
def test_a_registered_map_is_a_basis_without_its_first_feature_if_that_is_the_value() -> None:
    name = "tests.curves.sine"
    map_ = FeatureMap(name, lambda x: np.stack([x, np.sin(x)], axis=-1), 2, has_identity=True)
    register_feature_map(map_)
    curve = make_curve(0, 1, 1, 1.0, 2.0, (0.7,), name)
    x = np.linspace(-4, 4, 9).reshape(3, 3)
    np.testing.assert_allclose(part_at(curve, x), 0.7 * np.sin((x - 1.0) / 2.0))
    with pytest.raises(ParameterError, match="feature"):
        part_at(make_curve(0, 1, 1, 1.0, 2.0, (0.7,), "unheard of"), x)
    with pytest.raises(ParameterError, match="2"):
        part_at(make_curve(0, 1, 1, 1.0, 2.0, (0.7, 0.1), name), x)


def test_a_product_is_the_written_formula_clipped_to_four_scales() -> None:
    product = make_product(0, 1, 2, 1, 0.5, (1.0, -1.0), (2.0, 0.5))
    assert part_at(product, 3.0, 0.0) == pytest.approx(0.5 * 1.0 * 2.0)
    assert part_at(product, 1e9, -1e9) == pytest.approx(0.5 * 4.0 * -4.0)


def test_a_curve_without_a_straight_part_and_a_product_are_edges() -> None:
    curve, product = make_curve(0, 1, 0, 0.0, 1.0, (1.0,)), make_product(0, 2, 1, 1, 1.0, (0, 0), (1, 1))
    dbn = curved(np.zeros((3, 3)), np.zeros((1, 3, 3)), open_edges=[("x0", "x1")], parts=[curve, product])
    table = dbn.edges()
    assert table[["source", "target", "lag", "weight", "shape", "oriented"]].values.tolist() == [
        ["x0", "x1", 0, 0.0, "curved", False],
        ["x0", "x1", 1, 0.0, "product", True],
        ["x2", "x1", 1, 0.0, "product", True],
    ]
    assert dbn.to_networkx().number_of_edges() == 3
    assert "1" in repr(dbn)


def test_the_size_of_an_effect_is_its_standard_deviation_over_a_normal_source() -> None:
    b = (0.5, -0.3, 0.2)
    W = np.array([[0.0, -0.7], [0.0, 0.0]])
    dbn = curved(W, np.zeros((0, 2, 2)), None, [3.0, 0.0], [4.0, 1.0], [make_curve(0, 1, 0, 3.0, 2.0, b)])
    # The functions are uncorrelated with the value and with each other, with variance 1.
    size = -np.sqrt((0.7 * 2.0) ** 2 + np.sum(np.square(b)))
    # The noise of the target has variance 1.
    assert dbn.standardised_weights()[0, 0, 1] == pytest.approx(size / np.sqrt(size**2 + 1), rel=0.03)


def test_the_whole_effect_is_line_and_curve_and_zero_at_the_origin(curved_dbn: CurvedDBN) -> None:
    dbn = curved_dbn()
    effect = dbn.effect("a", "b", 0)
    x = np.linspace(-4, 6, 31)
    curve = next(part for part in dbn.parts if part.target == 1)
    by_hand = 0.5 * (x - 1.0) + part_at(curve, x) - part_at(curve, 1.0)
    np.testing.assert_allclose(effect.at(x)[:, 0], by_hand, atol=1e-12)
    assert effect.at([0.0, effect.origin, 2.0])[1, 0] == 0.0
    square = dbn.effect("a", "d", 1)
    np.testing.assert_allclose(square.at(x)[:, 0], -0.2 * np.clip((x - 1.0) / 1.5, -4, 4) ** 2, atol=1e-12)
    assert dbn.effect("c", "a", 1).at([3.0])[0, 0] == pytest.approx(0.2 * (3.0 - 0.2))


def test_the_table_equals_the_evaluation_and_says_what_is_inside(curved_dbn: CurvedDBN) -> None:
    dbn = curved_dbn()
    table = dbn.curves_table(n=21)
    assert table.groupby(["source", "target", "lag"], sort=False).size().tolist() == [21] * 5
    for (source, target, lag), part in table.groupby(["source", "target", "lag"], sort=False):
        effect = dbn.effect(source, target, lag)
        values = part["value"].to_numpy()
        np.testing.assert_allclose(part["effect"], effect.at(values)[:, 0], atol=1e-12)
        np.testing.assert_allclose(part["lower"], effect.band(values)[0][:, 0], atol=1e-12)
        low, high = effect.range_seen
        np.testing.assert_array_equal(part["inside"], (values >= low) & (values <= high))
        assert not part["inside"].iloc[[0, -1]].any()
        assert part["inside"].iloc[10]
    assert DBN(np.zeros((2, 2)), np.zeros((0, 2, 2))).curves_table().empty


def test_the_band_covers_the_truth_in_nineteen_of_twenty_regressions() -> None:
    rng = np.random.default_rng(8)
    x = np.linspace(-2.5, 2.5, 11)

    def truth(x: np.ndarray) -> np.ndarray:
        return np.asarray(0.5 * x + curve_features(x)[..., :2] @ [0.4, -0.2])

    covered = []
    for _ in range(300):
        z = rng.normal(size=150)
        design = np.column_stack([np.ones(150), z, curve_features(z)])
        y = truth(z) + rng.normal(size=150)
        inverse = np.linalg.inv(design.T @ design)
        b = inverse @ design.T @ y
        variance = ((y - design @ b) ** 2).sum() / (150 - 8)
        covariance = tuple(map(tuple, (variance * inverse[1:, 1:]).tolist()))
        W = np.array([[0.0, b[1]], [0.0, 0.0]])
        part = make_curve(0, 1, 0, 0.0, 1.0, tuple(b[2:]), covariance=covariance)
        dbn = curved(W, np.zeros((0, 2, 2)), parts=[part])
        lower, upper = (bound[:, 0] for bound in dbn.effect(0, 1, 0).band(x))
        difference = truth(x) - truth(np.array(0.0))
        covered.append((lower <= difference) & (difference <= upper))
    # 300 trials: a share of .95 has a standard error of .0126.
    assert np.all(np.abs(np.delete(np.mean(covered, axis=0), 5) - 0.95) < 0.045)


def test_networks_that_differ_in_a_curve_are_not_equal(curved_dbn: CurvedDBN) -> None:
    dbn = curved_dbn()
    stored = dbn.to_dict()
    stored["nodes"][1]["terms"][-1]["coefficients"][0][0] += 1e-3
    other = DBN.from_dict(stored)
    assert not dbn.equals(other)
    straight = DBN(dbn.W, dbn.A, dbn.variables, dbn.intercept, dbn.noise_variances)
    assert not dbn.equals(straight)
    assert not straight.equals(dbn)


def chain() -> DBN:
    """a -> b within the moment with a curve, b -> c a step later, straight."""
    W, A = np.zeros((3, 3)), np.zeros((1, 3, 3))
    W[0, 1], A[0, 1, 2], A[0, 2, 2] = 0.5, 0.8, 0.5
    return curved(W, A, list("abc"), parts=[make_curve(0, 1, 0, 1.0, 2.0, (0.6, 0.3))])


def test_along_a_chain_the_effect_is_the_difference_of_the_curve_times_the_weights() -> None:
    dbn = chain()
    difference = float(np.diff(dbn.effect("a", "b", 0).at([2.0, 3.5])[:, 0])[0])
    table = dbn.effects("a", "c", 4, at=2.0, by=1.5, random_state=0)
    assert table["at"].tolist() == [2.0] * 5
    assert table["by"].tolist() == [1.5] * 5
    expected = difference * 0.8 * np.array([0.0, 1.0, 0.5, 0.25, 0.125])
    np.testing.assert_allclose(table["total"], expected, atol=1e-12)
    np.testing.assert_allclose(table["cumulative"], np.cumsum(expected), atol=1e-12)
    np.testing.assert_allclose(table["error"], 0.0, atol=1e-12)
    default = dbn.effects("a", "b", 0, random_state=0)
    assert (default["at"][0], default["by"][0]) == (1.0, 2.0)
    assert default["total"][0] == pytest.approx(float(dbn.effect("a", "b", 0).at(3.0)[0, 0]))


def test_zero_curves_give_the_effects_of_the_linear_network(curved_dbn: CurvedDBN) -> None:
    dbn = curved_dbn(zero=True)
    line = DBN(dbn.W, dbn.A, dbn.variables, dbn.intercept, dbn.noise_variances)
    ours = dbn.effects("a", "c", 5, at=0.3, by=0.7, random_state=1)
    theirs = line.effects("a", "c", 5, at=0.3, by=0.7)
    np.testing.assert_allclose(ours["total"], theirs["total"], atol=1e-12)
    usual = line.effects("a", "c", 5)
    # By default one standard deviation, as where effects are curves.
    sd = np.sqrt(line.stationary_covariance()[0, 0])
    np.testing.assert_allclose(usual["by"], sd)
    np.testing.assert_allclose(theirs["total"], 0.7 / sd * usual["total"])
    assert list(theirs.columns[:3]) == ["horizon", "at", "by"]
    assert list(usual.columns) == ["horizon", "by", "total", "error", "cumulative"]


def test_the_effect_at_a_value_is_that_of_brute_force_with_other_noise(curved_dbn: CurvedDBN) -> None:
    dbn, n = curved_dbn(), 4000
    history = np.random.default_rng(0).normal(size=(2, 4))
    found = dbn.effects("b", "d", 3, at=-1.0, by=2.0, history=history, n_paths=n, random_state=3)
    held = {"b": [1.0, np.nan, np.nan, np.nan]}, {"b": [-1.0, np.nan, np.nan, np.nan]}
    high, low = (
        dbn.do(one, history, 4, random_state=seed, n_paths=n).mean for seed, one in enumerate(held, 10)
    )
    sd = dbn.forecast(history, 4, random_state=0).sd["d"].to_numpy()
    np.testing.assert_allclose(found["total"], (high - low)["d"], atol=4.5 * np.max(sd) * np.sqrt(2 / n))
    assert (found["error"] < 0.1).all()


def test_values_beyond_the_range_seen_are_warned_of() -> None:
    with pytest.warns(CurvesWarning, match="'a'.*1.*9.*-3.8.*5.8"):
        chain().effects("a", "b", 0, by=8.0, random_state=0)
