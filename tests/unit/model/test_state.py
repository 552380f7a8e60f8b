"""Histories with missing cells, against the joint Gaussian distribution of all rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from feddbn.errors import DataError
from feddbn.model.dbn import DBN
from feddbn.model.dynamics import (
    companion,
    innovation_covariance,
    last_state,
    reduced_coefficients,
    stationary_mean,
)

RandomDBN = Callable[..., DBN]
STEPS = 4


def _joint_covariance(dbn: DBN, n: int) -> np.ndarray:
    """(n d, n d) covariance of n rows in a row: long sums of the moving-average form, no Lyapunov equation."""
    d, long = dbn.d, 400
    F = companion(reduced_coefficients(dbn))
    psi, power = [], np.eye(len(F))
    for _ in range(long + n):
        psi.append(power[:d, :d])
        power = power @ F
    Q = innovation_covariance(dbn)
    blocks = [sum(psi[k].T @ Q @ psi[k + h] for k in range(long)) for h in range(n)]
    rows = [[blocks[t - s] if t >= s else blocks[s - t].T for t in range(n)] for s in range(n)]
    return np.block(rows)


def _conditional(dbn: DBN, history: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the next rows, given the present cells of all."""
    n, d = history.shape
    S = _joint_covariance(dbn, n + STEPS)
    mean = np.tile(stationary_mean(dbn), n + STEPS)
    seen = np.flatnonzero(~np.isnan(history.ravel()))
    ahead = np.arange(n * d, (n + STEPS) * d)
    B = np.linalg.solve(S[np.ix_(seen, seen)], S[np.ix_(seen, ahead)])
    m = mean[ahead] + (history.ravel()[seen] - mean[seen]) @ B
    V = S[np.ix_(ahead, ahead)] - S[np.ix_(ahead, seen)] @ B
    return m.reshape(STEPS, d), np.sqrt(np.diag(V)).reshape(STEPS, d)


@pytest.mark.parametrize("n_lags", [1, 2])
@pytest.mark.parametrize("pattern", ["end", "empty rows", "everywhere"])
def test_forecasts_are_those_of_the_joint_distribution_given_the_present_cells(
    random_dbn: RandomDBN, n_lags: int, pattern: str
) -> None:
    dbn = random_dbn(4, d=3, n_lags=n_lags)
    rng = np.random.default_rng(2)
    history = dbn.simulate(12, random_state=1).to_numpy().copy()
    if pattern == "end":
        history[-1, 0] = np.nan
        history[-3, 1:] = np.nan
    elif pattern == "empty rows":
        history[-3:] = np.nan
    else:
        history[rng.random(history.shape) < 0.3] = np.nan
        history[np.arange(12), rng.integers(0, 3, 12)] = np.nan
    mean, sd = _conditional(dbn, history)
    ours = dbn.forecast(history, STEPS)
    np.testing.assert_allclose(ours.mean, mean, atol=1e-6)
    np.testing.assert_allclose(ours.sd, sd, atol=1e-6)
    assert ours.n_inferred == np.isnan(history[-n_lags:]).sum()


def test_a_history_that_lacks_nothing_at_its_end_is_as_sure_as_before(random_dbn: RandomDBN) -> None:
    dbn = random_dbn(5, d=3, n_lags=2)
    history = dbn.simulate(10, random_state=1).to_numpy().copy()
    history[3] = np.nan
    whole, short = dbn.forecast(history, 2), dbn.forecast(history[-2:], 2)
    assert whole.n_inferred == 0
    pd.testing.assert_frame_equal(whole.mean, short.mean)
    pd.testing.assert_frame_equal(whole.sd, short.sd)


def test_simulated_intervals_include_what_missing_cells_leave_open(random_dbn: RandomDBN) -> None:
    dbn, rng = random_dbn(6, d=3, n_lags=2), np.random.default_rng(0)
    history = dbn.simulate(10, random_state=1).to_numpy().copy()
    history[-2:] = np.nan
    exact = dbn.forecast(history, 3, interval=0.8)
    noise = rng.normal(size=(40000, 3)) * np.sqrt(dbn.noise_variances)
    drawn = dbn.forecast(history, 3, interval=0.8, noise=noise, n_paths=40000, random_state=0)
    known = dbn.forecast(history[:-2], 3)
    assert (exact.sd.iloc[0] > known.sd.iloc[0]).all()
    assert exact.lower is not None
    assert drawn.lower is not None
    np.testing.assert_allclose(drawn.lower, exact.lower, atol=0.06)


def test_empty_rows_at_the_end_are_moments_that_have_passed(random_dbn: RandomDBN) -> None:
    dbn = random_dbn(7, d=2, n_lags=1)
    times = pd.date_range("2024-01-01", periods=6, freq="h")
    rows = dbn.simulate(6, random_state=0).to_numpy().copy()
    rows[-2:] = np.nan
    ahead = dbn.forecast(pd.DataFrame(rows, index=times, columns=list(dbn.variables)), 1)
    assert ahead.mean.index[0] == times[-1] + pd.Timedelta(hours=1)
    np.testing.assert_allclose(ahead.mean, dbn.forecast(rows[:-2], 3).mean.iloc[2:].to_numpy())


def test_present_cells_are_kept_even_if_the_network_has_no_noise() -> None:
    dbn = DBN(np.zeros((2, 2)), np.array([[[0.5, 0.2], [0.0, 0.5]]]), noise_variances=np.zeros(2))
    state = last_state(dbn, np.array([[1.0, 1.0], [3.0, np.nan]]))
    np.testing.assert_allclose(state.rows, [[3.0, 0.7]])
    assert state.n_inferred == 1


def test_where_nothing_can_be_inferred_a_sentence_says_so() -> None:
    walk = DBN(np.zeros((2, 2)), np.eye(2)[None])
    with pytest.raises(DataError, match="stationary"):
        walk.forecast(np.array([[1.0, np.nan], [np.nan, 2.0]]), 1)
    with pytest.raises(DataError, match="history"):
        walk.forecast(np.full((3, 2), np.nan), 1)
