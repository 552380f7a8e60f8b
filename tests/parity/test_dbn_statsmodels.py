"""Forecasts, responses, variance shares, likelihood and residual checks against statsmodels' VAR."""

import numpy as np
import pytest
from statsmodels.tsa.vector_ar.var_model import VAR, VARProcess, forecast_interval

from feddbn.model.dbn import DBN
from feddbn.model.dynamics import innovation_covariance, reduced_coefficients

pytestmark = pytest.mark.promise


def make(seed: int, d: int, n_lags: int, ordered: bool = False) -> DBN:
    rng = np.random.default_rng(seed)
    order = np.arange(d) if ordered else rng.permutation(d)
    W = np.zeros((d, d))
    W[np.ix_(order, order)] = np.triu(rng.normal(size=(d, d)), 1) * 0.7
    A = rng.normal(size=(n_lags, d, d))
    dbn = DBN(W, A)
    while dbn.spectral_radius >= 0.9:
        A = A * 0.8
        dbn = DBN(W, A)
    return DBN(W, A, None, rng.normal(size=d), rng.uniform(0.2, 3.0, size=d))


def process_of(dbn: DBN) -> VARProcess:
    coefs = reduced_coefficients(dbn).transpose(0, 2, 1)
    return VARProcess(
        coefs, (dbn.intercept @ np.linalg.inv(np.eye(dbn.d) - dbn.W))[:, None], innovation_covariance(dbn)
    )


CASES = [(0, 3, 1), (1, 5, 2), (2, 4, 3), (3, 8, 1)]


@pytest.mark.parametrize(("seed", "d", "n_lags"), CASES)
def test_forecasts_and_intervals_equal_statsmodels(seed: int, d: int, n_lags: int) -> None:
    dbn = make(seed, d, n_lags)
    process = process_of(dbn)
    history = np.random.default_rng(seed + 100).normal(size=(n_lags + 4, d))
    point, lower, upper = forecast_interval(
        history[-n_lags:], process.coefs, process.intercept, process.sigma_u, steps=12, alpha=0.1, exog=None
    )
    ours = dbn.forecast(history, 12, interval=0.9)
    assert ours.lower is not None
    assert ours.upper is not None
    np.testing.assert_allclose(ours.mean.to_numpy(), point, atol=1e-8, rtol=0)
    np.testing.assert_allclose(ours.lower.to_numpy(), lower, atol=1e-8, rtol=0)
    np.testing.assert_allclose(ours.upper.to_numpy(), upper, atol=1e-8, rtol=0)


@pytest.mark.parametrize(("seed", "d", "n_lags"), CASES)
def test_impulse_responses_equal_statsmodels(seed: int, d: int, n_lags: int) -> None:
    dbn = make(seed, d, n_lags)
    process = process_of(dbn)
    reduced = dbn.impulse_responses(10, "reduced").transpose(0, 2, 1)
    orthogonal = dbn.impulse_responses(10, "orthogonalised").transpose(0, 2, 1)
    np.testing.assert_allclose(reduced, process.ma_rep(10), atol=1e-8, rtol=0)
    np.testing.assert_allclose(orthogonal, process.orth_ma_rep(10), atol=1e-8, rtol=0)


@pytest.mark.parametrize(("seed", "d", "n_lags"), CASES)
def test_structural_responses_equal_orthogonalised_ones_when_the_causal_order_is_the_column_order(
    seed: int, d: int, n_lags: int
) -> None:
    dbn = make(seed, d, n_lags, ordered=True)
    expected = process_of(dbn).orth_ma_rep(8).transpose(0, 2, 1)
    np.testing.assert_allclose(dbn.impulse_responses(8, sd=True), expected, atol=1e-8, rtol=0)


@pytest.mark.parametrize(("seed", "d", "n_lags"), CASES)
def test_stationary_moments_equal_statsmodels(seed: int, d: int, n_lags: int) -> None:
    dbn = make(seed, d, n_lags)
    process = process_of(dbn)
    np.testing.assert_allclose(dbn.stationary_mean(), process.mean(), atol=1e-8)
    np.testing.assert_allclose(dbn.stationary_covariance(), process.acf(n_lags)[0], atol=1e-6, rtol=1e-6)


def fitted(seed: int) -> tuple[DBN, np.ndarray, object]:
    """The network that says exactly what an OLS VAR says: Cholesky in column order."""
    data = make(seed, 4, 2).simulate(400, random_state=seed).to_numpy()
    results = VAR(data).fit(2)
    sigma = results.sigma_u_mle
    L = np.linalg.cholesky(sigma)
    inverse_B = np.linalg.inv(L / np.diag(L)).T
    W = np.eye(4) - inverse_B
    A = results.coefs.transpose(0, 2, 1) @ inverse_B
    return DBN(np.triu(W, 1), A, None, results.intercept @ inverse_B, np.diag(L) ** 2), data, results


@pytest.mark.parametrize("seed", [0, 1])
def test_fitted_var_has_the_same_forecast_shares_likelihood_and_residuals(seed: int) -> None:
    dbn, data, results = fitted(seed)
    np.testing.assert_allclose(dbn.forecast(data, 6).mean, results.forecast(data[-2:], 6), atol=1e-8)
    # statsmodels divides by n - df where the likelihood divides by n; shares do not depend on that factor.
    shares = results.fevd(8).decomp  # (to, step, from)
    np.testing.assert_allclose(dbn.fevd(8), shares.transpose(1, 2, 0), atol=1e-8)
    np.testing.assert_allclose(dbn.fevd(8, "orthogonalised"), shares.transpose(1, 2, 0), atol=1e-8)
    np.testing.assert_allclose(dbn.log_likelihood(data), results.llf, rtol=1e-10)
    # Its residuals are those of the reduced form.
    reduced = dbn.residuals(data) @ np.linalg.inv(np.eye(dbn.d) - dbn.W)
    np.testing.assert_allclose(reduced, results.resid, atol=1e-8)


@pytest.mark.parametrize(("seed", "d", "n_lags"), CASES[:2])
def test_errors_of_weights_and_bands_of_responses_equal_statsmodels(seed: int, d: int, n_lags: int) -> None:
    n, made = 4000, make(seed, d, n_lags)
    # With noise that is independent between variables equations are estimated one by one.
    rows = DBN(np.zeros((d, d)), made.A * 0.5, noise_variances=made.noise_variances).simulate(
        n, random_state=seed
    )
    fitted = VAR(np.asarray(rows)).fit(n_lags, trend="c")
    dbn = DBN(np.zeros((d, d)), fitted.coefs.transpose(0, 2, 1), noise_variances=np.diag(fitted.sigma_u))
    np.testing.assert_allclose(dbn.standard_errors(n)[1:].reshape(-1, d), fitted.bse[1:], rtol=0.06)
    low, high = dbn.response_bands(6, n, level=0.6827, n_draws=2000)
    theirs = fitted.irf(6).stderr(orth=False)[1:].transpose(0, 2, 1)
    np.testing.assert_allclose(((high - low) / 2)[1:], theirs, rtol=0.15, atol=1e-3)
