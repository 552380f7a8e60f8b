"""Power: against the noncentral t distribution, against regressions that are drawn, and laws that hold for every rule."""

from math import asinh, inf, sqrt

import numpy as np
import pytest
from scipy.stats import chi2, false_discovery_control, nct, norm
from scipy.stats import t as student
from statsmodels.stats.power import FTestPower

from feddbn import AS_THEY_ARE, FDBNL, OneShotDBN
from feddbn.analysis.power import (
    DiscoveryRule,
    Linear,
    Rule,
    discovery_rule,
    known_share,
    planted,
    priced_rule,
    stable,
    usual_network,
)
from feddbn.core.statistics.moments import Moments
from feddbn.core.statistics.parts import UNKNOWN_DISPERSION


@pytest.mark.parametrize(("n", "k", "effect"), [(60, 3, 0.4), (300, 5, 0.15), (3000, 10, 0.05)])
def test_one_edge_at_a_level_has_the_power_of_its_t_test(n, k, effect):
    left = n - k - 2
    cut = student.isf(0.025, left)
    rule = Rule(constant=(asinh(cut / sqrt(left)) * sqrt(n - k - 3)) ** 2, controls=k)
    # The cause is random: its sum of squares is a chi square.
    shifts = effect * np.sqrt(chi2.ppf((np.arange(200) + 0.5) / 200, n - k - 1))
    exact = np.mean(nct.sf(cut, left, shifts) + nct.cdf(-cut, left, shifts))
    assert rule.power(effect, n) == pytest.approx(exact, abs=0.01)
    fixed = FTestPower().power(effect, df_num=left, df_denom=1, alpha=0.05)
    assert rule.power(effect, n) == pytest.approx(fixed, abs=0.03)


@pytest.mark.parametrize(
    "rule", [priced_rule("bic", 8, 1), priced_rule("ebic", 8, 2), DiscoveryRule(tested=64, edges=4)]
)
def test_power_effect_and_rows_are_inverses_and_monotone(rule):
    ns, effects = (50, 200, 1000, 10_000), (0.02, 0.1, 0.2, 0.5)
    smallest = [rule.smallest(n) for n in ns]
    assert sorted(smallest, reverse=True) == smallest
    for n, effect in zip(ns, smallest, strict=True):
        assert rule.power(effect, n) == pytest.approx(0.8, abs=1e-4)
        assert rule.rows(effect) == pytest.approx(n, rel=1e-3)
        found = [rule.power(one, n) for one in effects]
        assert sorted(found) == found
    assert rule.smallest(1000, 0.95) > smallest[2] > rule.smallest(1000, 0.5)


def test_what_nobody_can_find_is_infinite():
    assert Rule(per_log_row=2.0).smallest(5) == inf
    assert Rule(per_log_row=2.0).power(3.0, 5) == 0
    assert Rule(per_log_row=2.0).rows(0.0) == inf
    assert Rule(threshold=0.2).rows(0.15) == inf
    # More candidates, larger effects.
    assert priced_rule("ebic", 40, 1).smallest(500) > priced_rule("ebic", 5, 1).smallest(500)


def test_a_planted_edge_has_its_effect_and_draws_have_the_covariance():
    rng = np.random.default_rng(700)
    network, edges, S = stable(lambda g: usual_network(6, 2, g), rng, np.full(3, 0.3))
    assert len(edges) == 3
    x = np.zeros((20_000, 6))
    for t in range(2, len(x)):
        past = x[t - 1] @ network.weights[6:12] + x[t - 2] @ network.weights[12:]
        x[t] = (past + rng.normal(size=6) * np.sqrt(network.variances)) @ np.linalg.inv(
            np.eye(6) - network.weights[:6]
        )
    rows = np.hstack([x[2:], x[1:-1], x[:-2]])
    for m, j in edges:
        P = np.flatnonzero(network.weights[:, j])
        residual = rows[:, j] - rows[:, P] @ np.linalg.lstsq(rows[:, P], rows[:, j], rcond=None)[0]
        others = rows[:, P[m != P]]
        cause = rows[:, m] - others @ np.linalg.lstsq(others, rows[:, m], rcond=None)[0]
        assert abs(network.weights[m, j]) * cause.std() / residual.std() == pytest.approx(0.3, abs=0.03)
    root = np.sqrt(np.diag(S))
    scale = np.outer(root, root)
    assert np.cov(rows.T) / scale == pytest.approx(S / scale, abs=0.1)
    assert known_share(np.eye(4), 0.2, rng) == pytest.approx(0.64, abs=0.06)
    with pytest.raises(ValueError, match="stable"):
        planted(Linear(np.vstack([np.zeros((2, 2)), np.eye(2)]), np.ones(2)), np.zeros(0), rng)


@pytest.mark.parametrize(("tested", "edges", "strong", "level"), [(64, 4, 8, 0.1), (200, 20, 0, 0.2)])
def test_discoveries_have_the_power_of_drawn_tests(tested, edges, strong, level):
    rng, n, effect = np.random.default_rng(700), 1000, 0.1
    rule = DiscoveryRule(
        controls=0, fdr=level, tested=tested, edges=edges, others=(0.3,) * 2 * strong, networks=2
    )
    at = np.zeros(tested)
    at[:edges], at[edges : edges + strong] = effect, 0.3
    z = rng.normal(size=(1000, tested)) + np.sqrt(n) * np.arcsinh(at)
    found = false_discovery_control(2 * norm.sf(np.abs(z)), axis=1)[:, :edges] <= level
    assert rule.power(effect, n) == pytest.approx(found.mean(), abs=0.025)


@pytest.mark.slow
def test_the_learner_finds_discoveries_as_often_as_promised():
    d, n, rng, found = 6, 600, np.random.default_rng(700), []
    rule = discovery_rule(0.2, lambda g: usual_network(d, 1, g), 3, rng)
    assert 0.7 < np.mean(rule.left) < 1
    # Nothing is known of the parts of these rows.
    effect = rule.smallest(n / UNKNOWN_DISPERSION, 0.7)
    for _ in range(40):
        _, edges, S = stable(lambda g: usual_network(d, 1, g), rng, np.full(3, effect))
        x = rng.multivariate_normal(np.zeros(len(S)), S, n)
        network = OneShotDBN(fdr=0.2).fit_moments(
            Moments(float(n), x.mean(0), np.cov(x.T) * (n - 1)), list("abcdef")
        )
        kept = network.is_edge.reshape(-1, d)
        found += [kept[m, j] for m, j in edges]
    assert np.mean(found) == pytest.approx(0.7, abs=0.12)


def test_a_weight_of_this_size_is_above_the_threshold_in_four_of_five_fits():
    rng, found, n = np.random.default_rng(701), 0, 300
    effect = Rule(threshold=FDBNL().a_threshold).smallest(n)
    for _ in range(40):
        x = rng.normal(size=(n + 1, 2))
        x[1:, 1] += effect * x[:-1, 0]
        found += FDBNL(check_residuals=False, prepare=AS_THEY_ARE).fit({"a": x}).A_[0][0, 1] != 0
    assert found / 40 == pytest.approx(0.8, abs=0.12)
