"""Curvature and change: sums against their definition, false alarms and power; and what the shape of noise is worth."""

import warnings

import numpy as np
import pytest
from scipy import stats

from feddbn.core.statistics.residual_checks import (
    CurvatureSums,
    ResidualSums,
    changing_weights,
    check_residuals,
    curvature_p,
    echo_weights,
    information_of_shape,
    largest_z_p,
    residual_sums,
    row_places,
    sums_length,
    violations,
)

RNG = np.random.default_rng


def pooled(recordings, n_back=2):
    """Sums over recordings, each one piece."""
    d = recordings[0].shape[1]
    vectors = [residual_sums([(0, u, None)], (0, len(u) - 1), d, n_back).to_vector() for u in recordings]
    return ResidualSums.from_vector(np.sum(vectors, axis=0), d, n_back)


def standardised(u):
    return u / np.sqrt((u**2).mean(axis=0))


def test_the_vector_reads_back():
    u = RNG(0).standard_normal((30, 3))
    sums = residual_sums([(0, u, None)], (0, 29), 3, 2)
    vector = sums.to_vector()
    assert len(vector) == sums_length(3, 2)
    again = ResidualSums.from_vector(vector, 3, 2)
    for name in ResidualSums.shapes(3, 2):
        np.testing.assert_array_equal(getattr(again, name), getattr(sums, name))


def test_pieces_that_continue_each_other_give_the_sums_of_the_whole():
    u = RNG(1).standard_normal((50, 3))
    whole = residual_sums([(7, u, None)], (7, 56), 3, 3).to_vector()
    parts = [(k + 7, u[k:stop], None) for k, stop in ((0, 1), (1, 2), (2, 30), (30, 50))]
    np.testing.assert_allclose(residual_sums(parts, (7, 56), 3, 3).to_vector(), whole, rtol=1e-12)


def test_no_pair_crosses_a_gap():
    u = RNG(2).standard_normal((20, 2))
    sums = residual_sums([(0, u[:8], None), (9, u[8:], None)], (0, 20), 2, 2)
    assert sums.counts.tolist() == [20, 7 + 11, 6 + 10]
    expected = u[1:8].T @ u[:7] + u[9:].T @ u[8:-1]
    np.testing.assert_allclose(sums.products[1], expected, rtol=1e-12)
    np.testing.assert_allclose(sums.squares[1], (u[1:8] ** 2).T @ u[:7] ** 2 + (u[9:] ** 2).T @ u[8:-1] ** 2)


def test_one_value_cannot_rule_a_sum():
    u = np.zeros((10, 1))
    u[3] = 1e9
    assert residual_sums([(0, u, None)], (0, 9), 1, 2).squares[0, 0, 0] == 20.0**4


def test_autocorrelation_and_arch_are_those_of_statsmodels():
    tools = pytest.importorskip("statsmodels.stats.diagnostic")
    from statsmodels.stats.stattools import durbin_watson
    from statsmodels.tsa.stattools import acf

    u = RNG(3).standard_normal((400, 2))
    for t in range(1, 400):
        u[t, 0] += 0.3 * u[t - 1, 0]
        u[t, 1] *= np.sqrt(0.5 + 0.5 * u[t - 1, 1] ** 2)
    u = standardised(u - u.mean(axis=0))
    checks = check_residuals(pooled([u]))
    for j in range(2):
        assert checks.autocorrelation[j] == pytest.approx(acf(u[:, j], nlags=1)[1], abs=0.003)
        assert 2 * (1 - checks.autocorrelation[j]) == pytest.approx(durbin_watson(u[:, j]), abs=0.04)
        # Engle's statistic is n R^2 of squares on squares a row before.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            engle = tools.het_arch(u[:, j], nlags=1)[0]
        # Gaussian residuals that correlate by r have squares that correlate by r^2.
        explained = 2 * max(checks.autocorrelation[j] ** 2 - 4 / 399, 0.0) / (checks.kurtosis[j] - 1)
        assert 399 * (checks.arch[j] + explained) ** 2 == pytest.approx(engle, rel=0.1, abs=0.1)
    assert abs(checks.arch[0]) < 0.1 < checks.arch[1]
    box = tools.acorr_ljungbox(u[:, 0], lags=[1])["lb_pvalue"].iloc[0]
    assert box < 1e-4
    assert checks.memory_p < 1e-4


def test_tails_are_those_of_scipy():
    u = RNG(4).standard_t(4, (500, 2))
    u = standardised(u - u.mean(axis=0))
    checks = check_residuals(pooled([u]))
    np.testing.assert_allclose(checks.kurtosis, stats.kurtosis(u, fisher=False), rtol=1e-9)
    np.testing.assert_allclose(checks.skewness, stats.skew(u), rtol=1e-9)
    worst = min(stats.jarque_bera(u[:, j]).pvalue for j in range(2))
    assert checks.tails_p == pytest.approx(2 * worst, rel=1e-6)


def test_variances_of_recordings_are_compared_by_bartletts_test():
    recordings = [RNG(k).standard_normal((40, 1)) * (1 + (k % 2)) for k in range(6)]
    scale = np.sqrt((np.concatenate(recordings) ** 2).mean(axis=0))
    recordings = [u / scale for u in recordings]
    checks = check_residuals(pooled(recordings))
    everything = np.concatenate(recordings)
    kurtosis = (everything**4).mean() / (everything**2).mean() ** 2
    expected = stats.bartlett(*[u[:, 0] for u in recordings]).statistic / max((kurtosis - 1) / 2, 1.0)
    assert checks.spread_p == pytest.approx(stats.chi2.sf(expected, 5), rel=1e-6)
    # Variances of 1 and 4: log 4 apart, so log 2 from their mean.
    assert checks.spread[0] == pytest.approx(np.log(2), rel=0.25)


def test_thirds_of_a_recording_are_told_apart():
    u = RNG(5).standard_normal((300, 2))
    u[200:, 1] *= 3
    checks = check_residuals(pooled([standardised(u)]))
    expected = (standardised(u) ** 2).reshape(3, 100, 2).mean(axis=1)
    np.testing.assert_allclose(checks.thirds, expected, rtol=1e-12)
    assert checks.thirds_p < 1e-6
    assert "thirds" in violations(checks)


def test_inflation_is_how_much_a_score_varies_more_than_least_squares_believes():
    rng = RNG(6)
    level = np.repeat(rng.choice([0.3, 1.7], 4000), 10)
    u = rng.standard_normal((40_000, 2)) * np.sqrt(level)[:, None]
    x, e = u[:, 0], u[:, 1]
    # White's variance of sum x e against that of homoscedastic noise.
    white = (x**2 * e**2).sum() / ((x**2).sum() * (e**2).mean())
    checks = check_residuals(pooled([standardised(u)]))
    assert white == pytest.approx((0.3**2 + 1.7**2) / 2, rel=0.05)
    assert checks.shared == pytest.approx(np.corrcoef(x**2, e**2)[0, 1], rel=1e-2)
    assert checks.inflation == pytest.approx(white, rel=0.1)
    assert "volatility" in violations(checks)


def test_dependence_of_a_row_is_seen_whatever_its_variance_does():
    rng = RNG(7)
    u = rng.standard_normal((2000, 3))
    u[:, 2] += 0.2 * u[:, 0]
    checks = check_residuals(pooled([standardised(u)]))
    assert checks.dependence == pytest.approx(np.abs(np.corrcoef(u.T)[0, 2]), abs=0.01)
    assert "dependence" in violations(checks)


def test_white_noise_contradicts_nothing_and_p_values_are_not_too_small():
    p, found = [], []
    for seed in range(200):
        u = standardised(RNG(seed).standard_normal((150, 4)))
        checks = check_residuals(pooled([u[:70], u[70:]]))
        found.append(violations(checks))
        p.append(
            [checks.memory_p, checks.dependence_p, checks.volatility_p, checks.thirds_p, checks.spread_p]
        )
    assert sum(map(bool, found)) <= 4
    # Squares are skewed, so few rows give their p-value too light a tail; sizes guard that verdict.
    assert (np.delete(np.array(p), 2, axis=1) < 0.05).mean(axis=0).max() < 0.08


def test_an_echo_is_the_response_along_lagged_edges():
    rng = RNG(8)
    W, A = np.zeros((3, 3)), rng.normal(size=(2, 3, 3)) * 0.3
    W[0, 1], W[1, 2] = 0.5, -0.4
    v = np.array([1.0, 4.0, 0.25])
    weights = echo_weights(W, A, v, 3)
    mixing = np.linalg.inv(np.eye(3) - W)
    for i in range(3):
        x = np.zeros((5, 3))
        shock = np.zeros(3)
        shock[i] = np.sqrt(v[i])
        x[0] = shock @ mixing
        for t in range(1, 4):
            lagged = sum(x[t - k] @ A[k - 1] for k in range(1, min(t, 2) + 1))
            np.testing.assert_allclose(weights[t - 1, i], lagged / np.sqrt(v), atol=1e-12)
            x[t] = lagged @ mixing


def test_errors_of_measurement_leave_an_echo():
    rng = RNG(9)
    A = np.diag([0.7, 0.7, 0.7])
    x = np.zeros((3000, 3))
    for t in range(1, 3000):
        x[t] = x[t - 1] @ A + rng.standard_normal(3)
    x += rng.standard_normal(x.shape) * x.std(axis=0)
    B = np.linalg.lstsq(x[:-1], x[1:], rcond=None)[0]
    u = x[1:] - x[:-1] @ B
    checks = check_residuals(
        pooled([standardised(u)]), echo_weights(np.zeros((3, 3)), B[None], u.var(axis=0), 2)
    )
    assert checks.echo[1] > 6
    assert "memory" in violations(checks)


def test_a_variable_without_residual_is_left_out():
    u = RNG(10).standard_normal((100, 3))
    checks = check_residuals(pooled([standardised(u) * [1, 0, 1]]))
    assert checks.kurtosis[1] == 3.0
    assert np.isfinite(checks.inflation)
    assert violations(checks) == ()


def test_without_residuals_nothing_is_found():
    nothing = ResidualSums.from_vector(np.zeros(sums_length(3, 2)), 3, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checks = check_residuals(nothing, np.ones((2, 3, 3)))
    assert checks.n == 0
    assert not violations(checks)


def test_the_p_value_of_the_largest_is_bonferronis():
    assert largest_z_p(np.array([1.0, -3.0])) == pytest.approx(2 * 2 * stats.norm.sf(3.0))
    assert largest_z_p(np.zeros(0)) == 1.0


def noise_pairs(n=400, d=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal((n, d))


def test_sums_are_products_with_hermite_polynomials_of_clipped_values():
    z, u = noise_pairs()
    z[0, 0] = 50.0
    sums = CurvatureSums.of_rows(z, u)
    c = np.clip(z[:, 0], -3, 3)
    square, cube = (c**2 - 1) / np.sqrt(2), (c**3 - 3 * c) / np.sqrt(6)
    assert sums.products[0, 0, 1] == pytest.approx(square @ u[:, 1])
    assert sums.products[1, 0, 1] == pytest.approx(cube @ u[:, 1])
    assert sums.squares[1, 0, 1] == pytest.approx((cube**2) @ (u[:, 1] ** 2))
    again = CurvatureSums.from_vector(sums.to_vector(), 2, 2)
    np.testing.assert_array_equal(again.products, sums.products)
    half = (
        CurvatureSums.of_rows(z[:200], u[:200]).to_vector()
        + CurvatureSums.of_rows(z[200:], u[200:]).to_vector()
    )
    np.testing.assert_allclose(half, sums.to_vector())


def test_sums_of_lagged_values_are_those_of_rows():
    rng = np.random.default_rng(1)
    x, u = rng.standard_normal((52, 4)) * 2, rng.standard_normal((50, 3))
    rows = np.hstack([x[2 - lag : 52 - lag] for lag in range(3)])
    for places, n_shapes in ((None, 2), (row_places(5, 50, 90), 3)):
        found, expected = CurvatureSums.of_lagged(x, u, 2, places), CurvatureSums.of_rows(rows, u, places)
        assert found.products.shape == (n_shapes, 12, 3)
        assert len(found.to_vector()) == CurvatureSums.length(12, 3, changes=places is not None)
        np.testing.assert_allclose(found.to_vector(), expected.to_vector(), rtol=1e-11, atol=1e-11)
    by_hand = np.clip(rows, -3, 3)[:, 7] * places * u[:, 1]
    np.testing.assert_allclose(found.products[2, 7, 1], by_hand.sum(), rtol=1e-11)
    np.testing.assert_allclose(found.squares[2, 7, 1], (by_hand**2).sum(), rtol=1e-11)


@pytest.mark.parametrize("noise", ["normal", "exponential"])
def test_straight_lines_raise_no_more_alarms_than_the_level(noise):
    everything = np.ones((2, 2), dtype=bool)
    found = []
    for seed in range(400):
        z, u = noise_pairs(seed=seed)
        if noise == "exponential":
            u = np.random.default_rng(seed).exponential(size=u.shape) - 1.0
        found.append(curvature_p(CurvatureSums.of_rows(z, u), everything, everything))
    # Four standard errors above the level.
    assert np.mean(np.array(found) < 0.05) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 400)


def rare_shocks(rng, shape, share=0.04):
    """Two values, of mean 0 and variance 1; kurtosis 22 at a share of .04."""
    return ((rng.random(shape) < share) - share) / np.sqrt(share * (1 - share))


def test_rare_large_shocks_are_neither_curvature_nor_memory_nor_dependence():
    before = np.repeat([False, True], 4)[:, None] & np.ones((8, 4), dtype=bool)
    found, bare = [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x, u = rare_shocks(rng, (601, 4)), rare_shocks(rng, (600, 4))
        sums = CurvatureSums.of_lagged(x, u - u.mean(axis=0), 1)
        checks = checks_of(u - u.mean(axis=0))
        found.append([curvature_p(sums, before, before), checks.memory_p, checks.dependence_p])
        bare.append(float(np.abs(sums.products / np.sqrt(sums.squares))[:, before].max()))
    allowed = 0.05 + 4 * np.sqrt(0.05 * 0.95 / 200)
    assert (np.mean(np.array(found) < 0.05, axis=0) < allowed).all()
    # By their own squares alone, some of 64 numbers would be beyond what chance makes in one of 20 cases.
    assert np.mean(64 * 2 * stats.norm.sf(bare) < 0.05) > 2 * allowed


def test_a_bend_is_found_where_it_may_be_looked_for_only():
    z, u = noise_pairs(1000)
    u[:, 1] += 0.3 * (z[:, 0] ** 2 - 1)
    sums, nowhere = CurvatureSums.of_rows(z, u), np.zeros((2, 2), dtype=bool)
    before = np.array([[False, True], [False, False]])
    assert curvature_p(sums, before, before) < 1e-8
    assert curvature_p(sums, nowhere, before) < 1e-8
    assert curvature_p(sums, before, ~before) > 0.001


def drifting(z, weights, u, places):
    """What is said of y = 5 (sum of z weights + u), weights (n, 4), given the network in which two columns are causes."""
    y = (z * weights).sum(axis=1) + u
    z, y = z - z.mean(axis=0), y - y.mean()
    b = np.linalg.lstsq(z[:, :2], y, rcond=None)[0]
    left = y - z[:, :2] @ b
    columns, scale = np.column_stack([5 * y, z]), np.array([5.0, 1, 1, 1, 1])
    sums = CurvatureSums.of_rows(columns / scale, left[:, None] / left.std(), places)
    before = np.array([[False], [True], [True], [True], [True]])
    args = (len(y), columns.T @ columns / len(y), scale, before & (np.arange(5) < 3)[:, None], before)
    return sums, args, changing_weights(sums, *args)


def correlated(rng, n):
    """Four columns within the reach of the sums, of which the first two correlate and the last two."""
    mix = np.array([[1, 0.6, 0, 0], [0, 0.8, 0, 0], [0, 0, 1, 0.3], [0, 0, 0, 0.9]])
    return np.clip(rng.standard_normal((n, 4)), -1.5, 1.5) @ mix


def test_places_have_mean_nothing_and_mean_square_one():
    places = np.concatenate([row_places(0, 7, 20), row_places(7, 13, 20)])
    np.testing.assert_allclose([places.mean(), (places**2).mean()], [0, 1], atol=1e-12)
    np.testing.assert_allclose(np.diff(places), places[1] - places[0])
    assert row_places(0, 1, 1) == [0.0]


def test_a_drift_is_that_of_a_regression_with_products_of_columns_and_places():
    rng, n = RNG(3), 40_000
    z, places = correlated(rng, n), row_places(0, n, n)
    weights = np.array([0.4, -0.3, 0, 0]) + places[:, None] * np.array([0.05, 0, 0.06, 0])
    sums, args, found = drifting(z, weights, rng.standard_normal(n) * 0.7, places)
    assert {one.source for one in found} == {1, 3}
    y = 5 * (z * weights).sum(axis=1)
    for one in found:
        causes = [0, 1, one.source - 1][: 2 + (one.source > 2)]
        X = np.column_stack([z[:, causes], places[:, None] * z[:, causes]])
        fit = np.linalg.lstsq(X, y, rcond=None)[0].reshape(2, -1)[:, causes.index(one.source - 1)]
        drift = (one.second - one.first) / 2 * np.sqrt(3) / 2
        # Four standard errors.
        assert ((one.first + one.second) / 2, drift) == pytest.approx(
            tuple(fit), abs=5 * 4 * 0.7 / np.sqrt(n) * 1.5
        )
    # A drift of .05 with noise of .7: z = .05 sqrt(n) / .7 for what the other cause does not explain.
    explained = np.corrcoef(z[:, 0], z[:, 1])[0, 1] ** 2
    squares = z[:, 0].var() * n * (1 - explained)
    z_score, drawn = 0.05 * np.sqrt(squares) / 0.7, 0.05 * squares
    log_evidence = np.log(next(one.evidence for one in found if one.source == 1))
    assert log_evidence == pytest.approx(
        z_score**2 / 2 * drawn / (1 + drawn) - np.log(1 + drawn) / 2, rel=0.3
    )
    assert changing_weights(CurvatureSums(sums.products[:2], sums.squares[:2]), *args) == ()
    assert changing_weights(sums, 0, *args[1:]) == ()


def test_weights_of_both_halves_are_told_of_effects_that_stop_and_begin():
    rng, n = RNG(4), 3000
    z, late = correlated(rng, n), np.arange(n) >= n // 2
    weights = np.column_stack([0.4 * ~late, np.full(n, -0.3), np.zeros(n), 0.3 * late])
    _, _, found = drifting(z, weights, rng.standard_normal(n) * 0.7, row_places(0, n, n))
    assert {one.source for one in found} == {1, 4}
    for one in found:
        expected = (2.0, 0.0) if one.source == 1 else (0.0, 1.5)
        assert (one.first, one.second) == pytest.approx(expected, abs=0.5)


@pytest.mark.parametrize("noise", ["constant", "nine times the variance", "heavy"])
def test_constant_weights_raise_no_more_alarms_than_the_level(noise):
    n_said, n = 0, 300
    for seed in range(300):
        rng = RNG(seed)
        z, u = correlated(rng, n), rng.standard_normal(n)
        if noise == "heavy":
            u = rng.standard_t(3, n)
        if noise == "nine times the variance":
            late = np.where(np.arange(n) < n // 2, 1.0, 3.0)
            z, u = z * late[:, None] / 2, u * late
        n_said += bool(drifting(z, np.array([0.4, -0.3, 0, 0.1]), u, row_places(0, n, n))[2])
    assert n_said <= 300 * (0.01 + 4 * np.sqrt(0.01 * 0.99 / 300))


def checks_of(u):
    return check_residuals(residual_sums([(0, u, None)], (0, len(u) - 1), u.shape[1], 2))


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
