"""The simulator against statsmodels' VARProcess with the same parameters.

statsmodels writes ``y_t = sum_l F_l y_{t-l} + v_t`` with column vectors, so ``F_l = (A_l (I - W)^{-1})'`` and
``Cov(v) = (I - W)^{-T} diag(scale^2) (I - W)^{-1}``; its ``acf(h)[h] = E[y_t y_{t-h}']``.
"""

import numpy as np
import pytest
from statsmodels.tsa.vector_ar.var_model import VARProcess

import feddbn

pytestmark = pytest.mark.promise


def _var_process(dbn):
    mixing = np.linalg.inv(np.eye(dbn.d) - dbn.W)
    coefficients = np.array([(A @ mixing).T for A in dbn.A])
    return VARProcess(coefficients, None, mixing.T @ np.diag(dbn.noise_variances) @ mixing)


def _autocovariances(rows, n_lags):
    # The process has mean 0, so products need no centring and are unbiased.
    n = len(rows)
    return np.array([rows[h:].T @ rows[: n - h] / (n - h) for h in range(n_lags + 1)])


@pytest.mark.parametrize(
    "arguments",
    [
        {"n_lags": 1},
        {"n_lags": 3, "noise": "laplace", "noise_scale": (0.5, 1.0, 2.0, 0.7, 1.5)},
        {"n_lags": 2, "noise": "exponential", "w_range": (0.5, 0.8)},
    ],
)
def test_sample_autocovariances_match_the_var_process(arguments):
    size = {"d": 5, "n_sites": 1, "n_samples": 60 * 2000, "n_recordings": 60}
    fed = feddbn.simulate(**size, mean_degree=2.5, lag_degree=1.5, random_state=11, **arguments)
    process = _var_process(fed.truth)
    assert process.is_stable()
    expected = process.acf(4)
    # Recordings are independent, so their spread gives the standard error of the mean over them.
    samples = np.array([_autocovariances(rows.to_numpy(), 4) for rows in fed.sites["site-0"]])
    standard_error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    z = (samples.mean(axis=0) - expected) / standard_error
    assert np.abs(z).max() < 5
    assert np.all(standard_error < 0.05 * np.abs(expected[0]).max())


def _first_row_covariance(burn_in):
    fed = feddbn.simulate(
        d=3,
        n_sites=1,
        n_samples=20_000,
        n_recordings=20_000,
        burn_in=burn_in,
        w_range=(0.6, 0.7),
        lag_degree=1.5,
        random_state=1,
    )
    first = np.array([rows.to_numpy()[0] for rows in fed.sites["site-0"]])
    return first.T @ first / len(first), _var_process(fed.truth)


def test_the_first_row_already_follows_the_stationary_distribution():
    sample, process = _first_row_covariance(burn_in=100)
    np.testing.assert_allclose(sample, process.acf(0)[0], atol=0.05 * np.abs(process.acf(0)[0]).max())


def test_without_burn_in_the_first_row_is_a_shock_only():
    sample, process = _first_row_covariance(burn_in=0)
    stationary = process.acf(0)[0]
    np.testing.assert_allclose(sample, process.sigma_u, atol=0.05 * np.abs(process.sigma_u).max())
    assert np.abs(sample - stationary).max() > 0.3 * np.abs(stationary).max()
