"""Known inputs in moments of lagged rows.

Bounds on how far noise differs, against networks whose noise is known and against regressions by hand.

`core.statistics.diagnostics` against statsmodels, and on series whose roots are known.

Robustness values against a published example and against made-up hidden causes.
"""

import numpy as np
import pytest
from scipy.signal import lfilter
from statsmodels.regression.mixed_linear_model import MixedLM
from statsmodels.tsa.stattools import adfuller

from feddbn.core.designs.design import Nuisance
from feddbn.core.designs.gram import restored
from feddbn.core.statistics.diagnostics import (
    NOISE_FACTOR,
    edge_robustness,
    evidence_for_nuisances,
    memory_filter,
    memory_of_noise,
    neutral_inputs,
    noise_level,
    noise_spread,
    robustness_value,
    slow_findings,
    slow_levels,
    without_memory,
)
from feddbn.core.statistics.moments import Moments, dependences
from support.simulated_moments import lagged, lagged_moments


def recordings(n_recordings, n_rows, offset, seed=0, d=3):
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n_recordings):
        x = rng.standard_normal((n_rows, d))
        for t in range(1, n_rows):
            x[t] += 0.5 * x[t - 1]
        found.append(x + offset * rng.standard_normal(d))
    return found


def evidence(found, n_lags=1, restore=True):
    rows = [lagged(x, n_lags) for x in found]
    Z = np.concatenate(rows)
    within = sum((r - r.mean(axis=0)).T @ (r - r.mean(axis=0)) for r in rows)
    common = (Z - Z.mean(axis=0)).T @ (Z - Z.mean(axis=0))
    given = common, within, len(Z), len(rows), found[0].shape[1]
    if not restore:
        return evidence_for_nuisances(*given), rows
    whole = restored(within / len(Z), given[-1], Nuisance("recording"), len(Z) / len(rows)) * len(Z)
    return evidence_for_nuisances(*given, whole=whole), rows


@pytest.mark.parametrize("offset", [0.0, 0.2, 2.0])
@pytest.mark.parametrize("n_lags", [0, 1, 2])
def test_evidence_is_that_of_levels_with_a_variance_for_each_variable(offset, n_lags):
    """Row by row: how far apart the mean residuals of recordings are, in units of the noise within them."""
    found, rows = evidence(recordings(5, 40, offset), n_lags, restore=False)
    d, n, R = 3, sum(map(len, rows)), len(rows)
    Z = np.concatenate(rows)
    X = np.hstack([np.eye(R)[np.repeat(np.arange(R), [len(r) for r in rows])], Z[:, d:]])
    weights = np.linalg.lstsq(X, Z[:, :d], rcond=None)[0]
    variance = np.square(Z[:, :d] - X @ weights).sum(axis=0) * (n - R) / n / (n - R - n_lags * d)
    unexplained = [r[:, :d] - r[:, d:] @ weights[R:] for r in rows]
    mean = np.concatenate(unexplained).mean(axis=0)
    apart = sum(len(u) * np.square(u.mean(axis=0) - mean) for u in unexplained)
    if n_lags:
        # What errors of the weights add in the mean.
        past, within = (
            Z[:, d:] - Z[:, d:].mean(axis=0),
            np.concatenate([r[:, d:] - r[:, d:].mean(axis=0) for r in rows]),
        )
        inner = np.linalg.inv(within.T @ within)
        apart -= variance * np.trace(inner @ (past.T @ past - within.T @ within))
    apart = np.maximum(apart / (R - 1), variance)
    X = np.hstack([np.ones((n, 1)), Z[:, d:]])
    refitted = np.square(Z[:, :d] - X @ np.linalg.lstsq(X, Z[:, :d], rcond=None)[0]).sum(axis=0) / (
        n - X.shape[1]
    )
    pooled = ((n - R) * variance + (R - 1) * apart) / (n - 1)
    # Minus twice the restricted log-likelihood of n - 1 contrasts, R - 1 of which are between recordings.
    common = (n - 1) * np.log(np.maximum(np.minimum(pooled, refitted), variance))
    gains = common - (n - R) * np.log(variance) - (R - 1) * np.log(apart) - 2 * np.log(n)
    expected = gains[gains > 0].sum() if gains.max() > 0 else gains.max()
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-4)


@pytest.mark.parametrize("level", [0.5, 1.0])
def test_evidence_is_the_restricted_likelihood_of_a_mixed_model(level):
    """One variable without lags, recordings of one length: what statsmodels maximises."""
    rng = np.random.default_rng(4)
    R, T = 12, 20
    x = rng.standard_normal((R, T)) + level * rng.standard_normal((R, 1))
    y, n = x.ravel(), R * T
    fitted = MixedLM(y, np.ones((n, 1)), groups=np.repeat(np.arange(R), T)).fit(reml=True)
    null = -0.5 * ((n - 1) * np.log(2 * np.pi * y.var(ddof=1)) + (n - 1) + np.log(n))
    common, own = (
        np.array([[np.square(part).sum()]]) for part in (y - y.mean(), x - x.mean(axis=1, keepdims=True))
    )
    whole = own / (1 - 1 / T)
    found = evidence_for_nuisances(common, own, n, R, 1, whole=whole)
    assert found == pytest.approx(2 * (fitted.llf - null) - 2 * np.log(n), abs=0.01)
    assert (common - own)[0, 0] / n - whole[0, 0] * (R - 1) / n**2 == pytest.approx(
        fitted.cov_re[0, 0] * (R - 1) / R, rel=0.01
    )


def test_one_variable_among_many_with_levels_is_enough():
    found = recordings(60, 20, 0.0, d=12)
    rng = np.random.default_rng(1)
    for x in found:
        x[:, 5] += rng.standard_normal()
    assert evidence(found)[0] > 20


@pytest.mark.parametrize("seed", range(5))
def test_means_that_differ_are_seen_and_means_that_do_not_are_left(seed):
    assert evidence(recordings(8, 100, 1.0, seed))[0] > 0
    assert evidence(recordings(8, 100, 0.0, seed))[0] < 0


def test_many_short_recordings_keep_a_common_mean_and_one_has_nothing_to_differ_from():
    assert evidence(recordings(64, 9, 0.0))[0] < 0
    assert evidence(recordings(1, 100, 3.0))[0] == 0


@pytest.mark.parametrize("n_rows", [3, 4, 6, 8])
@pytest.mark.parametrize("seed", range(5))
def test_few_rows_never_give_recordings_levels_they_do_not_have(n_rows, seed):
    assert evidence(recordings(10, n_rows, 0.0, seed, d=6))[0] <= 0


def test_a_constant_column_does_no_harm():
    found = recordings(4, 60, 1.0)
    for x in found:
        x[:, 1] = 7.0
    assert np.isfinite(evidence(found)[0])


def stepped_rows(n: int = 20_000, memory: float = 0.0) -> np.ndarray:
    """``[x_t, x_{t-1}]`` of an input (column 0) that jumps, and of two variables with noise variances 4 and 1."""
    rng = np.random.default_rng(0)
    u = 7.0 * (np.cumsum(rng.random(n) < 0.02) % 2)
    noise = rng.normal(size=(n, 2)) * [2.0, 1.0]
    for t in range(1, n):
        noise[t] += memory * noise[t - 1]
    a = 0.5 * u + noise[:, 0]
    x = np.column_stack([u, a, 0.9 * a + noise[:, 1]])
    return lagged(x)


def test_the_noise_level_is_the_mean_of_the_others_whatever_their_network():
    moments = Moments.of_rows(stepped_rows())
    assert noise_level(moments, 3, [0]) == pytest.approx(2.0, rel=0.03)
    assert noise_level(moments.scaled(np.tile([0.01, 1.0, 1.0], 2)), 3, [0]) == pytest.approx(
        noise_level(moments, 3, [0])
    )


def test_inputs_are_neutral_when_they_vary_as_the_noise_does():
    moments = Moments.of_rows(stepped_rows())
    found, level = neutral_inputs(moments, 3, [0])
    assert found.scatter[0, 0] / found.n == pytest.approx(np.exp(level))
    assert np.array_equal(found.scatter[1:3, 1:3], moments.scatter[1:3, 1:3])
    assert neutral_inputs(moments, 3, []) == (moments, 0.0)


def test_a_step_is_neither_slow_nor_memory_of_the_noise():
    plain = Moments.of_rows(stepped_rows())
    assert slow_findings(plain, ["u", "a", "b"], [0]) == ()
    assert slow_findings(plain, ["u", "a", "b"])[0].about == ("u",)
    assert memory_of_noise(plain, 3, [0]) == pytest.approx(0.0, abs=0.03)
    assert memory_of_noise(Moments.of_rows(stepped_rows(memory=0.6)), 3, [0]) == pytest.approx(0.6, abs=0.03)


def test_what_follows_from_an_input_is_said_to_and_the_input_is_not():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 3))
    x[:, 2] = 3.0 * x[:, 0]
    moments = Moments.of_rows(x)
    assert [one.column for one in dependences(moments.scatter, moments.n, 3)] == [2]
    (one,) = dependences(moments.scatter, moments.n, 3, [2])
    assert (one.column, one.others) == (0, (2,))
    # An input that follows from its own past, as a ramp does, is no trouble.
    ramp = np.column_stack([np.arange(1.0, 201), x[:, 0], np.arange(200.0), x[:, 1]])
    moments = Moments.of_rows(ramp)
    assert len(dependences(moments.scatter, moments.n, 2)) == 1
    assert dependences(moments.scatter, moments.n, 2, [0]) == []


def rows_of(seed, noise, n=4000, d=5, n_lags=1):
    """Lagged rows of a random stable network with the given noise."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(d)
    W = np.zeros((d, d))
    W[np.ix_(order, order)] = np.triu(rng.uniform(-0.6, 0.6, (d, d)), 1)
    A = 0.3 * rng.normal(size=(d, d)) / np.sqrt(d)
    impact = np.linalg.inv(np.eye(d) - W)
    x = np.zeros((n + n_lags, d))
    for t in range(1, len(x)):
        x[t] = (x[t - 1] @ A + noise * rng.normal(size=d)) @ impact
    return lagged(x, n_lags)


def spread_of(Z, d=5):
    moments = Moments.of_rows(Z)
    return noise_spread(moments.scatter, moments.n, d)


@pytest.mark.parametrize("seed", range(4))
def test_no_network_has_noise_that_differs_less_than_the_bound(seed):
    noise = np.exp(np.random.default_rng(100 + seed).uniform(0, 2, 5))
    found = spread_of(rows_of(seed, noise))
    assert found.factor <= noise[found.large] / noise[found.small]
    assert spread_of(rows_of(seed, np.ones(5))).factor <= 1.0


def test_the_bounds_are_residual_variances_of_two_regressions():
    Z = rows_of(3, np.array([1.0, 1.0, 8.0, 1.0, 1.0]), n=500)
    Z = Z - Z.mean(axis=0)

    def left(j, columns):
        beta, *_ = np.linalg.lstsq(Z[:, columns], Z[:, j], rcond=None)
        return float(((Z[:, j] - Z[:, columns] @ beta) ** 2).sum())

    low = [left(j, [k for k in range(10) if k != j]) / 490 for j in range(5)]
    high = [left(j, list(range(5, 10))) / 494 for j in range(5)]
    found = spread_of(Z)
    assert (found.large, found.small) == (int(np.argmax(low)), int(np.argmin(high)))
    chance = np.exp(-1.5 * np.sqrt(2 / 490 + 2 / 494))
    assert found.factor == pytest.approx(np.sqrt(max(low) / min(high)) * chance)


def test_units_change_the_bound_as_much_as_the_noise():
    Z, units = rows_of(1, np.ones(5)), np.array([1.0, 1.0, 30.0, 1.0, 0.1])
    found = spread_of(Z * np.tile(units, 2))
    assert (found.large, found.small) == (2, 4)
    assert found.factor > NOISE_FACTOR
    assert 100 < found.factor <= 300


def test_too_few_rows_and_sums_of_no_rows_give_no_bound():
    assert spread_of(rows_of(0, np.ones(5), n=15)) is None
    assert noise_spread(np.eye(1), 100.0, 1) is None
    # Noise on the sums can make a matrix that no rows have.
    scatter = 100 * np.array([[1.0, 0.9, 0.9], [0.9, 1.0, -0.9], [0.9, -0.9, 1.0]])
    assert noise_spread(scatter, 100.0, 3) is None


def test_columns_that_follow_from_others_are_never_the_noisy_ones():
    Z = rows_of(0, np.ones(5))
    Z[:, [1, 6]] = 50 * Z[:, [0, 5]]
    found = spread_of(Z)
    assert found.large not in (0, 1)
    assert found.factor < 1.5


@pytest.mark.parametrize("seed", range(4))
def test_strong_weights_let_variances_differ_but_not_the_bound(seed):
    d, rng = 8, np.random.default_rng(seed)
    W = np.triu(rng.uniform(0.5, 2.0, (d, d)) * rng.choice([-1.0, 1.0], (d, d)), 1)
    x = rng.normal(size=(2000, d)) @ np.linalg.inv(np.eye(d) - W)
    moments = Moments.of_rows(x)
    assert np.sqrt(moments.scatter.max() / np.diag(moments.scatter).min()) > 5
    assert noise_spread(moments.scatter, moments.n, d).factor < 1.05


def slow_series(n: int, roots: list[float], seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal((n, len(roots)))
    return np.column_stack([lfilter([1], [1, -root], noise[:, k]) for k, root in enumerate(roots)])


@pytest.mark.filterwarnings("ignore:adfuller:FutureWarning")
@pytest.mark.parametrize("n_lags", [1, 2, 4])
def test_the_statistic_is_the_augmented_dickey_fuller_one(n_lags):
    x = 1e4 + 30 * slow_series(200, [0.5, 0.95, 1.0], 0)
    found = slow_levels(lagged_moments(x, n_lags), 3)
    for j in range(3):
        expected = adfuller(x[:, j], maxlag=n_lags - 1, regression="c", autolag=None)[0]
        assert found.statistic[j] == pytest.approx(expected, rel=1e-6)


def test_slow_variables_are_found_and_others_are_not():
    slow = slow_levels(lagged_moments(slow_series(3000, [0.3, 0.98, 0.8, 1.0], 1), 1), 4)
    assert slow.slow == [3, 1], "the slowest first"
    assert slow.persistence[1] == pytest.approx(0.98, abs=0.01)
    assert slow.independent_rows[0] == pytest.approx(3000 * 0.7 / 1.3, rel=0.1)


def test_few_rows_of_a_random_walk_are_enough_and_few_rows_of_noise_are_no_alarm():
    walks = slow_levels(lagged_moments(slow_series(60, [1.0] * 200, 2), 1), 200)
    noise = slow_levels(lagged_moments(slow_series(25, [0.3] * 200, 3), 1), 200)
    assert len(walks.slow) > 120
    assert not noise.slow


def test_without_lags_or_rows_nothing_is_said_and_series_that_stand_still_are_no_reason_to_fail():
    x = slow_series(50, [0.5, 0.5], 4)
    assert slow_levels(Moments.of_rows(x), 2) is None
    assert slow_levels(lagged_moments(x[:3], 1), 2) is None
    still = np.zeros((30, 2))
    still[-1] = 1.0
    assert np.isfinite(slow_levels(lagged_moments(still, 2), 2).persistence).all()


def remembering(n=3000, rho=0.6, seed=0):
    rng = np.random.default_rng(seed)
    W, A = np.zeros((3, 3)), np.zeros((3, 3))
    W[0, 1], A[1, 2] = 0.6, 0.5
    x, u = np.zeros((n, 3)), np.zeros(3)
    for t in range(1, n):
        u = rho * u + rng.standard_normal(3)
        x[t] = (x[t - 1] @ A + u) @ np.linalg.inv(np.eye(3) - W)
    return x * [1.0, 100.0, 0.01] + [5.0, 0.0, -3.0], W, A


def test_filtered_moments_are_those_of_filtered_rows():
    x, _, _ = remembering(200)
    found = without_memory(lagged_moments(x, 3), 0.4, 3)
    expected = lagged_moments(x[1:] - 0.4 * x[:-1], 2)
    assert found.n == expected.n
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.scatter, expected.scatter, rtol=1e-8, atol=1e-8)
    assert memory_filter(0.4, 2, 3).shape == (12, 9)


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.6, 0.85])
def test_the_memory_is_found_in_any_units(rho):
    x, _, _ = remembering(rho=rho)
    assert memory_of_noise(lagged_moments(x, 2), 3) == pytest.approx(rho, abs=0.06)


def test_the_published_example_and_limits():
    # Cinelli and Hazlett (2020), Darfur: t = 4.18 with 783 degrees of freedom has a robustness value of 13.9 %.
    assert float(robustness_value(4.18, 783)) == pytest.approx(0.139, abs=5e-4)
    assert robustness_value(np.array([0.0, 1e-200, 1e8, 1e200]), 100).tolist() == pytest.approx([0, 0, 1, 1])


def test_a_hidden_cause_of_just_that_strength_explains_an_effect_away():
    rng = np.random.default_rng(0)
    x, y, z = rng.standard_normal((3, 4000))
    y = 0.3 * x + y + 0.2 * z
    rows = np.column_stack([y, x, z])
    moments = Moments.of_rows(rows)
    support = np.zeros((3, 1), dtype=bool)
    support[1:] = True
    share = edge_robustness(moments, support)[1, 0]
    # What z leaves of x and y, and a cause made of both residuals that explains `share` of each.
    z1 = np.column_stack([np.ones(4000), z])
    rx, ry = (v - z1 @ np.linalg.lstsq(z1, v, rcond=None)[0] for v in (x, y))
    ex = rx / np.linalg.norm(rx)
    ey = ry - (ry @ ex) * ex
    ey /= np.linalg.norm(ey)
    noise = rng.standard_normal(4000)
    noise -= (
        np.column_stack([z1, ex, ey]) @ np.linalg.lstsq(np.column_stack([z1, ex, ey]), noise, rcond=None)[0]
    )
    noise /= np.linalg.norm(noise)
    # u explains `share` of rx, and given rx `share` of what is left of ry.
    u = np.sqrt(share) * ex + np.sqrt(share * (1 - share)) * ey + (1 - share) * noise
    full = np.column_stack([np.ones(4000), x, z, u])
    beta = np.linalg.lstsq(full, y, rcond=None)[0]
    assert abs(beta[1]) < 0.003
    weaker = u + 0.5 * noise
    beta = np.linalg.lstsq(np.column_stack([np.ones(4000), x, z, weaker]), y, rcond=None)[0]
    assert beta[1] > 0.03
