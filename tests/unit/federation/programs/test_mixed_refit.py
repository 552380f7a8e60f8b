"""The refit is the pooled maximum likelihood of statsmodels, however rows are split over sites."""

import warnings

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.optimize import minimize
from statsmodels.miscmodels.ordinal_model import OrderedModel

from feddbn.core.glm import NodeModel
from feddbn.core.kinds import Kind, coding_of
from feddbn.data import read_sites
from feddbn.federation.programs.mixed import MOST_STEPS, NORMAL, mixed_moments_program, refit_program
from feddbn.federation.protocol.task import run_program
from feddbn.methods.base import simulated

N = 600
KINDS = (
    Kind(),
    Kind("binary"),
    Kind("count"),
    Kind("categorical", ("a", "b", "c")),
    Kind("ordinal", ("w", "x", "y", "z")),
    Kind("count"),
    Kind("positive"),
)
# Far from 0: what is not standardised would lose its digits.
LEVEL = 1000.0


def rows(seed=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=N)
    b = rng.random(N) < 1 / (1 + np.exp(-0.7 * x))
    c = rng.poisson(np.exp(0.3 + 0.4 * x + 0.5 * b))
    e = np.exp(np.c_[np.zeros(N), 0.5 * x, b - 0.5])
    k = (rng.random((N, 1)) > np.cumsum(e / e.sum(axis=1, keepdims=True), axis=1)).sum(axis=1)
    o = np.digitize(0.8 * x + 0.7 * b + rng.logistic(size=N), [-1, 0.5, 2])
    wide = rng.negative_binomial(2, 2 / (2 + np.exp(0.5 + 0.3 * x)))
    p = np.exp(0.5 * x - 0.3 * b + 0.4 * rng.normal(size=N))
    return np.c_[x + LEVEL, b, c, k, o, wide, p].astype(float)


DATA = rows()
MODELS = (
    NodeModel(0, (), NORMAL),
    NodeModel(1, (0, 3), "logistic"),
    NodeModel(2, (0, 1), "poisson"),
    NodeModel(3, (0, 1), "multinomial"),
    NodeModel(4, (0, 1, 3), "cumulative"),
    NodeModel(5, (0,), "poisson"),
    NodeModel(6, (0, 1, 2), NORMAL),
)


def fitted(data, split, models=MODELS, kinds=KINDS):
    federation = simulated(read_sites({f"s{i}": part for i, part in enumerate(np.split(data, split))}))
    codings = tuple(map(coding_of, kinds))
    told = run_program(mixed_moments_program(federation.variables, 0, codings), federation)
    moments, design = told.moments, told.design
    counts = [
        np.bincount(data[:, j].astype(int)).tolist() if kind.levels else () for j, kind in enumerate(kinds)
    ]
    constant = np.zeros(len(kinds), dtype=bool)
    return run_program(refit_program(moments, design, models, counts, constant), federation)


def with_one(*columns):
    return sm.add_constant(np.column_stack(columns))


x, b, c, k, o, wide, p = DATA.T
LEVELS = np.c_[k == 1, k == 2].astype(float)


def same(estimate, fit, n_intercepts=1):
    """The estimate, whose first cause is x, against a fit on x - LEVEL."""
    theta, errors = np.asarray(fit.params).ravel(), np.asarray(fit.bse).ravel()
    k = n_intercepts
    np.testing.assert_allclose(estimate.theta[k:], theta[k:], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(estimate.theta[:k] + LEVEL * estimate.theta[k : 2 * k], theta[:k], atol=1e-6)
    np.testing.assert_allclose(np.sqrt(np.diag(estimate.covariance))[k:], errors[k:], rtol=1e-4)
    assert estimate.log_likelihood == pytest.approx(fit.llf, abs=1e-6)


@pytest.fixture(scope="module")
def pooled():
    """All rows in one place, by statsmodels."""
    near = x - LEVEL
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "logistic": sm.Logit(b, with_one(near, LEVELS)).fit(disp=0, tol=1e-12),
            "poisson": sm.GLM(c, with_one(near, b), family=sm.families.Poisson()).fit(tol=1e-12),
            "multinomial": sm.MNLogit(k, with_one(near, b)).fit(disp=0, tol=1e-12),
            "wider": sm.NegativeBinomial(wide, with_one(near)).fit(disp=0, method="newton", tol=1e-12),
            "cumulative": OrderedModel(o, np.c_[near, b, LEVELS], distr="logit").fit(
                method="bfgs", disp=0, gtol=1e-9, maxiter=500
            ),
            "normal": sm.OLS(np.log(p), with_one(near, b, np.log1p(c))).fit(),
        }


@pytest.mark.parametrize("split", [[], [200, 350], [7, 30, 31]], ids=["one", "three", "uneven"])
def test_every_family_is_the_pooled_fit(split, pooled):
    found = fitted(DATA, split)
    assert found.is_exact
    assert found.n_sums <= 10
    families = [one.model.family for one in found.estimates]
    assert families == [*(m.family for m in MODELS[:5]), "negative-binomial", NORMAL]
    _, logistic, poisson, multinomial, cumulative, wider, normal = found.estimates
    same(logistic, pooled["logistic"])
    same(poisson, pooled["poisson"])
    same(multinomial, pooled["multinomial"], 2)
    same(normal, pooled["normal"])
    assert normal.dispersion == pytest.approx(pooled["normal"].scale)
    fit = pooled["wider"]
    assert wider.theta[1] == pytest.approx(fit.params[1], rel=1e-6)
    assert wider.theta[0] + LEVEL * wider.theta[1] == pytest.approx(fit.params[0], rel=1e-6)
    assert wider.dispersion == pytest.approx(fit.params[2], rel=1e-6)
    assert np.sqrt(wider.covariance[1, 1]) == pytest.approx(fit.bse[1], rel=1e-4)
    assert wider.log_likelihood == pytest.approx(fit.llf, abs=1e-6)
    fit = pooled["cumulative"]
    np.testing.assert_allclose(cumulative.theta[3:], fit.params[:4], rtol=1e-6, atol=1e-6)
    edges = fit.model.transform_threshold_params(fit.params)[1:-1]
    np.testing.assert_allclose(cumulative.theta[:3] - LEVEL * cumulative.theta[3], edges, atol=1e-6)
    np.testing.assert_allclose(np.sqrt(np.diag(cumulative.covariance))[3:], fit.bse[:4], rtol=1e-4)
    assert cumulative.log_likelihood == pytest.approx(fit.llf, abs=1e-6)


def test_where_values_are_told_apart_without_an_error_a_prior_holds_them_and_the_others_have_none():
    data = DATA[:, :2].copy()
    data[:, 1] = data[:, 0] > LEVEL + 0.2
    apart = fitted(data, [300], (NodeModel(1, (0,), "logistic"),), KINDS[:2])
    assert apart.is_exact
    (one,) = apart.estimates
    assert one.has_ridge
    # The penalised maximum, by another optimiser.
    z = (data[:, 0] - data[:, 0].mean()) / data[:, 0].std()

    def penalised(t):
        eta = t[0] + t[1] * z
        return np.logaddexp(0, eta).sum() - data[:, 1] @ eta + t[1] ** 2 / (2 * 2.5**2)

    best = minimize(penalised, np.zeros(2), tol=1e-12).x
    assert one.theta[1] == pytest.approx(best[1] / data[:, 0].std(), rel=1e-4)
    assert not any(one.has_ridge for one in fitted(DATA, [300]).estimates)


def test_a_level_without_any_count_is_held_too_and_steps_are_bounded():
    rng = np.random.default_rng(0)
    level = rng.integers(0, 2, 200)
    data = np.c_[level, rng.poisson(2.0, 200) * level].astype(float)
    found = fitted(data, [50], (NodeModel(1, (0,), "poisson"),), (Kind("binary"), Kind("count")))
    assert found.is_exact
    assert found.n_sums <= MOST_STEPS
    assert found.estimates[0].has_ridge
    assert np.exp(found.estimates[0].theta[0]) < 0.05
