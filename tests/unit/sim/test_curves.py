import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from feddbn.sim.shapes import (
    CURVES,
    EFFECTS,
    GRID,
    draw_curve,
    flat_curve,
    gaussian_features,
    gaussian_process,
)


def _draws(effects, n=40):
    rng = np.random.default_rng(1)
    return [draw_curve(effects, rng) for _ in range(n)]


@pytest.mark.parametrize("kind", list(CURVES))
def test_curves_have_mean_0_and_variance_1_over_a_normal_cause_and_are_bounded(kind):
    z = np.random.default_rng(0).standard_normal(200_000)
    for curve in _draws(kind, 10):
        assert curve.kind == kind
        values = curve(z)
        assert values.mean() == pytest.approx(0, abs=0.02)
        assert values.std() == pytest.approx(1, abs=0.02)
        np.testing.assert_array_equal(curve([-1e9, -3.0, 3.0, 1e9])[[0, 3]], curve([-3.0, 3.0]))


def test_a_sigmoid_is_a_standardised_tanh_by_quadrature():
    rng, same = np.random.default_rng(1), np.random.default_rng(1)
    curve = draw_curve("sigmoid", rng)
    slope, place = same.uniform(1, 3), same.uniform(-1, 1)

    def raw(z):
        return np.tanh(slope * (np.clip(z, -3, 3) - place))

    mean = quad(lambda z: raw(z) * norm.pdf(z), -9, 9)[0]
    variance = quad(lambda z: (raw(z) - mean) ** 2 * norm.pdf(z), -9, 9)[0]
    z = np.array([-4.0, -2.5, -0.73, 0.0, 0.4, 1.9, 7.0])
    np.testing.assert_allclose(curve(z), (raw(z) - mean) / np.sqrt(variance), atol=2e-4)


def test_features_of_the_kernel_give_the_kernel():
    features = gaussian_features()
    np.testing.assert_allclose(features @ features.T, np.exp(-0.5 * (GRID[:, None] - GRID) ** 2), atol=1e-12)


@pytest.mark.slow
def test_gaussian_processes_have_the_covariance_of_their_kernel():
    rng = np.random.default_rng(2)
    n = 2000
    at = np.searchsorted(GRID, [-2.0, -1.0, 0.0, 0.5, 2.0])
    draws = np.array([gaussian_process(rng)[at] for _ in range(n)])
    z = GRID[at]
    kernel = np.exp(-0.5 * (z[:, None] - z) ** 2)
    assert draws.mean(axis=0) == pytest.approx(np.zeros(5), abs=4 / np.sqrt(n))
    # A covariance of n draws of normal variables has a standard error of at most sqrt(2 / n).
    np.testing.assert_allclose(draws.T @ draws / n, kernel, atol=4.5 * np.sqrt(2 / n))
    kurtosis = (draws**4).mean(axis=0) / (draws**2).mean(axis=0) ** 2
    np.testing.assert_allclose(kurtosis, 3, atol=0.35)


def test_every_kind_has_the_shape_of_its_name():
    for curve in _draws("sigmoid"):
        steps = np.diff(curve.table)
        assert (steps > 0).all()
    for curve in _draws("threshold"):
        away = np.diff(curve(np.array([-3.0, -1.5, 1.5, 3.0])))
        assert away[0] == pytest.approx(0, abs=1e-2)
        assert away[2] == pytest.approx(0, abs=1e-2)
        assert away[1] > 1.5
    jumps = [np.diff(curve.table).max() for curve in _draws("threshold")]
    assert {jump > 1.5 for jump in jumps} == {True, False}, "some steps are sharp, some are smooth"
    for curve in _draws("quadratic"):
        second = np.diff(curve(np.linspace(-1.9, 1.9, 39)), 2)
        assert second.min() > 0
        assert np.ptp(second) < 1e-6 * second.max()
    for curve in _draws("spline"):
        assert abs(np.diff(curve.table, 2)[[0, -1]]).max() < 1e-4 * np.ptp(curve.table), (
            "a natural spline ends straight"
        )


def test_mixed_effects_are_half_straight_and_else_of_every_kind():
    drawn = _draws("mixed", 1000)
    kinds = [curve.kind for curve in drawn if curve is not None]
    assert len(kinds) == pytest.approx(500, abs=65)
    assert set(kinds) == set(CURVES)
    assert min(kinds.count(kind) for kind in CURVES) > 60
    assert _draws("linear", 3) == [None] * 3
    assert EFFECTS[0] == "linear"
    assert EFFECTS[1:] == (*CURVES, "mixed")


def test_a_flat_curve_is_flat():
    assert not flat_curve()(np.linspace(-5, 5, 11)).any()
