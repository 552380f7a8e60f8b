"""Distributions given causes, against scipy.stats, statsmodels, finite differences and draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from feddbn.core.kinds import Kind
from feddbn.model.nodes import Node
from support.networks import make_node

KIND = {
    "continuous": Kind(),
    "positive": Kind("positive"),
    "count": Kind("count"),
    "overdispersed": Kind("count"),
    "binary": Kind("binary"),
    "ordinal": Kind("ordinal", ("no", "some", "much", "bad")),
    "categorical": Kind("categorical", ("a", "b", "c")),
}


def conditional(name: str) -> Node:
    kind = KIND[name]
    intercept = {"ordinal": [-1.0, 0.2, 1.5], "categorical": [0.3, -0.4]}.get(name, [0.4])
    k = 2 if name == "categorical" else 1
    effects = (np.array([[0.8, -0.5][:k]]), np.array([[-0.3, 0.6][:k], [0.5, 0.1][:k]]))
    dispersion = {"continuous": 0.7, "positive": 0.3, "overdispersed": 0.5, "count": 0.0}.get(name, 1.0)
    return make_node(kind, ((0, 1), (1, 0)), intercept, effects, dispersion)


@pytest.fixture
def codes() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(40, 3))


def drawn(node: Node, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return node.law(codes).from_normal(rng.standard_normal(len(codes)))


def frozen(name: str, node: Node, codes: np.ndarray):
    eta = node.intercept[0] + codes @ node.slopes[:, 0]
    mu, a = np.exp(eta), node.dispersion
    return {
        "continuous": lambda: stats.norm(eta, np.sqrt(a)),
        "positive": lambda: stats.lognorm(np.sqrt(a), scale=mu),
        "count": lambda: stats.poisson(mu),
        "overdispersed": lambda: stats.nbinom(1 / a, 1 / (1 + a * mu)),
        "binary": lambda: stats.bernoulli(1 / (1 + np.exp(-eta))),
    }[name]()


@pytest.mark.parametrize("name", ["continuous", "positive", "count", "overdispersed", "binary"])
def test_as_scipy_says(name, codes):
    node = conditional(name)
    theirs, law = frozen(name, node, codes), node.law(codes)
    z = np.random.default_rng(0).normal(size=len(codes))
    x = theirs.ppf(stats.norm.cdf(z))
    np.testing.assert_allclose(node.law(codes).mean, theirs.mean(), rtol=1e-12)
    np.testing.assert_allclose(law.from_normal(z), x, rtol=1e-9)
    density = theirs.logpmf if hasattr(theirs.dist, "logpmf") else theirs.logpdf
    np.testing.assert_allclose(node.law(codes).log_density(x), density(x), rtol=1e-9, atol=1e-12)
    if name in ("continuous", "positive"):
        np.testing.assert_allclose(law.to_normal(x, None), z, rtol=1e-9, atol=1e-12)
    else:
        np.testing.assert_allclose(law.upto(x), theirs.cdf(x), rtol=1e-9)


@pytest.mark.parametrize("dispersion", [0.0, 1e-9, 0.01, 2.0])
@pytest.mark.parametrize("mean", [1e-6, 0.3, 7.0, 400.0, 1e8])
def test_counts_at_all_sizes(mean, dispersion):
    node = make_node(Kind("count"), (), np.log(mean), (), dispersion)
    theirs = stats.nbinom(1 / dispersion, 1 / (1 + dispersion * mean)) if dispersion else stats.poisson(mean)
    z = np.linspace(-6, 6, 41)
    law = node.law(np.zeros((41, 0)))
    x = law.from_normal(z)
    assert np.array_equal(x, np.floor(x))
    assert np.all(np.diff(x) >= 0)
    # The smallest whole number at which the distribution function reaches that of z.
    # Large numbers have approximate quantiles.
    slack = 1e-12 if mean < 1e6 else 2e-4
    assert np.all(law.upto(x) >= stats.norm.cdf(z) - slack)
    assert np.all(law.upto(x) - np.exp(law.log_density(x)) < stats.norm.cdf(z) + slack)
    if dispersion > 1e-6 or not dispersion:
        np.testing.assert_allclose(law.upto(x), theirs.cdf(x), rtol=1e-6, atol=1e-12)
    if dispersion == 1e-9 and mean < 1e3:
        poisson = stats.poisson(mean)
        np.testing.assert_allclose(law.log_density(x), poisson.logpmf(x), rtol=1e-5, atol=1e-3)


def test_levels_by_their_formulas(codes):
    node = conditional("ordinal")
    slope = codes @ node.slopes[:, 0]
    upto = 1 / (1 + np.exp(-(node.intercept[None] - slope[:, None])))
    wanted = np.diff(np.concatenate([np.zeros((40, 1)), upto, np.ones((40, 1))], axis=1), axis=1)
    np.testing.assert_allclose(node.law(codes).probabilities, wanted, rtol=1e-10)
    np.testing.assert_allclose(node.law(codes).mean, wanted @ np.arange(4), rtol=1e-10)

    node = conditional("categorical")
    odds = np.exp(np.concatenate([np.zeros((40, 1)), node.intercept + codes @ node.slopes], axis=1))
    np.testing.assert_allclose(
        node.law(codes).probabilities, odds / odds.sum(axis=1, keepdims=True), rtol=1e-12
    )
    x = np.arange(40) % 3
    np.testing.assert_allclose(
        node.law(codes).log_density(x), np.log(odds[np.arange(40), x] / odds.sum(axis=1)), rtol=1e-10
    )
    law, up = node.law(codes), np.cumsum(odds / odds.sum(axis=1, keepdims=True), axis=1)
    np.testing.assert_allclose(law.upto(x), up[np.arange(40), x], rtol=1e-9)


def test_probabilities_far_out_stay_right():
    node = make_node(Kind("ordinal", ("a", "b", "c")), (), [700.0, 701.0], ())
    logs = node.law(np.zeros((1, 0))).log_probabilities[0]
    np.testing.assert_allclose(logs[1:], [-700 + np.log(-np.expm1(-1.0)), -701.0], rtol=1e-12)
    binary = make_node(Kind("binary"), (), 800.0, ())
    assert binary.law(np.zeros((1, 0))).log_density(np.zeros(1))[0] == -800.0


@pytest.mark.parametrize("name", list(KIND))
def test_draws_follow_the_law(name):
    node = conditional(name)
    codes = np.tile([0.5, -0.2, 1.0], (40000, 1))
    x = drawn(node, codes, np.random.default_rng(8))
    assert len(node.kind.misfits(x)) == 0
    if node.kind.levels:
        share = np.bincount(x.astype(int), minlength=node.kind.n_levels) / len(x)
        np.testing.assert_allclose(share, node.law(codes[:1]).probabilities[0], atol=4 * 0.5 / 200)
    else:
        mean, law = node.law(codes[:1]).mean[0], frozen(name, node, codes[:1])
        assert abs(x.mean() - mean) < 4 * law.std()[0] / np.sqrt(len(x))
        assert x.var() == pytest.approx(law.var()[0], rel=0.08)


def test_as_statsmodels_predicts():
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(1)
    codes = rng.normal(size=(300, 2))
    for kind, family in (("binary", sm.families.Binomial()), ("count", sm.families.Poisson())):
        node = make_node(Kind(kind), ((0, 1), (1, 1)), 0.2, (np.array([[0.5]]), np.array([[-0.4]])), 0.0)
        fit = sm.GLM(drawn(node, codes, rng), sm.add_constant(codes), family=family).fit()
        b = fit.params
        learned = replace(node, intercept=b[0], coefficients=(b[1:2, None], b[2:, None]))
        np.testing.assert_allclose(learned.law(codes).mean, fit.fittedvalues, rtol=1e-9)
        assert learned.law(codes).log_density(fit.model.endog).sum() == pytest.approx(fit.llf, rel=1e-9)
