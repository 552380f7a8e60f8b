"""Gradients and informations of generalised linear models are the derivatives of their likelihoods."""

import numpy as np
import pytest
from scipy import stats

from feddbn.core.glm import n_parameters, row_terms

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2))
CASES = {
    "logistic": (rng.integers(0, 2, 60), np.array([0.3, -0.8, 0.5]), 2),
    "poisson": (rng.poisson(2.0, 60), np.array([0.4, 0.3, -0.2]), 0),
    "negative-binomial": (rng.poisson(3.0, 60), np.array([0.4, 0.3, -0.2, -0.7]), 0),
    "multinomial": (rng.integers(0, 3, 60), np.array([0.1, -0.4, 0.6, 0.2, -0.5, 0.3]), 3),
    "cumulative": (rng.integers(0, 4, 60), np.array([-1.0, 0.2, 1.5, 0.7, -0.4]), 4),
}


def differences(f, theta, h=1e-5):
    steps = np.eye(len(theta)) * h
    return np.array([(f(theta + step) - f(theta - step)) / (2 * h) for step in steps])


@pytest.mark.parametrize("family", CASES)
def test_derivatives_are_those_of_differences(family):
    y, theta, n_levels = CASES[family]
    y = y.astype(float)
    assert len(theta) == n_parameters(family, 2, n_levels)
    terms = row_terms(family, y, X, theta, n_levels)
    gradient = differences(lambda t: row_terms(family, y, X, t, n_levels).log_likelihood, theta)
    np.testing.assert_allclose(terms.gradient, gradient, rtol=1e-6, atol=1e-6)
    information = -differences(lambda t: row_terms(family, y, X, t, n_levels).gradient, theta)
    np.testing.assert_allclose(terms.information, information, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("family", CASES)
def test_terms_add_up_over_rows(family):
    y, theta, n_levels = CASES[family]
    y = y.astype(float)
    whole = row_terms(family, y, X, theta, n_levels)
    parts = [row_terms(family, y[part], X[part], theta, n_levels) for part in (slice(0, 7), slice(7, 60))]
    assert whole.log_likelihood == pytest.approx(sum(part.log_likelihood for part in parts))
    np.testing.assert_allclose(whole.information, parts[0].information + parts[1].information)


def test_likelihoods_are_those_of_scipy():
    eta = np.c_[np.ones(60), X]
    y, theta, _ = CASES["poisson"]
    mean = np.exp(eta @ theta)
    assert row_terms("poisson", y.astype(float), X, theta).log_likelihood == pytest.approx(
        stats.poisson.logpmf(y, mean).sum()
    )
    y, theta, _ = CASES["negative-binomial"]
    mean, r = np.exp(eta @ theta[:-1]), np.exp(-theta[-1])
    assert row_terms("negative-binomial", y.astype(float), X, theta).log_likelihood == pytest.approx(
        stats.nbinom.logpmf(y, r, r / (r + mean)).sum()
    )


def test_far_out_predictors_leave_numbers():
    y = np.array([0.0, 1.0, 2.0])
    for family, theta, n_levels in (
        ("logistic", [0.0, 1e4], 2),
        ("multinomial", [0.0, 0.0, 1e4, -1e4], 3),
        ("cumulative", [-1.0, 1.0, 1e4], 3),
    ):
        values = np.minimum(y, n_levels - 1.0)
        terms = row_terms(family, values, np.array([[-1.0], [0.0], [1.0]]), np.array(theta), n_levels)
        assert np.isfinite(terms.log_likelihood)
        assert np.isfinite(terms.gradient).all()
        assert np.isfinite(terms.information).all()
