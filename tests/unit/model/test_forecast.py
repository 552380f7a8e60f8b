from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from feddbn.errors import ParameterError
from feddbn.model.dbn import DBN

RandomDBN = Callable[..., DBN]


def brute_force(
    dbn: DBN, held: dict[int, np.ndarray], history: np.ndarray, steps: int, n: int, seed: int
) -> np.ndarray:
    """(n, steps, d) paths written out equation by equation in topological order, no matrix algebra."""
    rng = np.random.default_rng(seed)
    order = topological(dbn.W)
    paths = np.zeros((n, dbn.n_lags + steps, dbn.d))
    paths[:, : dbn.n_lags] = history[len(history) - dbn.n_lags :]
    for t in range(steps):
        now = dbn.n_lags + t
        for j in order:
            if j in held and not np.isnan(held[j][t]):
                paths[:, now, j] = held[j][t]
                continue
            value = dbn.intercept[j] + rng.normal(0.0, np.sqrt(dbn.noise_variances[j]), size=n)
            for i in range(dbn.d):
                value = value + dbn.W[i, j] * paths[:, now, i]
                for lag in range(1, dbn.n_lags + 1):
                    value = value + dbn.A[lag - 1][i, j] * paths[:, now - lag, i]
            paths[:, now, j] = value
    return paths[:, dbn.n_lags :]


def topological(W: np.ndarray) -> list[int]:
    order: list[int] = []
    while len(order) < len(W):
        order += [
            j
            for j in range(len(W))
            if j not in order and all(W[i, j] == 0 or i in order for i in range(len(W)))
        ]
    return order


@pytest.mark.promise
@pytest.mark.parametrize("seed", range(2))
def test_do_equals_brute_force_simulation_within_monte_carlo_error(seed: int, random_dbn: RandomDBN) -> None:
    dbn = random_dbn(seed, d=4, n_lags=2)
    rng = np.random.default_rng(seed)
    history, steps, n = rng.normal(size=(5, 4)), 6, 20_000
    held = {1: np.full(steps, 2.0), 3: np.array([1.0, np.nan, -1.0, np.nan, np.nan, 3.0])}
    ours = dbn.do({"v1": 2.0, "v3": held[3]}, history, steps, interval=0.9)
    paths = brute_force(dbn, held, history, steps, n, seed + 50)
    error = paths.std(axis=0) / np.sqrt(n)
    assert np.all(np.abs(ours.mean.to_numpy() - paths.mean(axis=0)) <= 5 * error + 1e-9)
    np.testing.assert_allclose(ours.sd.to_numpy(), paths.std(axis=0), rtol=0.04, atol=1e-9)
    assert ours.lower is not None
    np.testing.assert_array_equal(ours.lower["v1"], np.full(steps, 2.0))


def test_do_does_not_change_what_the_held_variable_does_not_reach() -> None:
    W = np.zeros((3, 3))
    W[0, 1] = 0.5
    dbn = DBN(W, np.zeros((1, 3, 3)))
    history = np.ones((1, 3))
    plain, held = dbn.forecast(history, 3), dbn.do({"x1": 9.0}, history, 3)
    pd.testing.assert_frame_equal(plain.mean[["x0", "x2"]], held.mean[["x0", "x2"]])
    assert (dbn.do({"x0": 2.0}, history, 3).mean["x1"] == 1.0).all()


def test_a_held_value_that_differs_changes_the_others_by_the_total_effect(random_dbn: RandomDBN) -> None:
    dbn = random_dbn(7, d=5, n_lags=2)
    history = np.zeros((2, 5))
    pulse = np.array([1.0, np.nan, np.nan, np.nan, np.nan])
    zero = np.array([0.0, np.nan, np.nan, np.nan, np.nan])
    difference = dbn.do({0: pulse}, history, 5).mean - dbn.do({0: zero}, history, 5).mean
    np.testing.assert_allclose(difference, dbn.impulse_responses(4)[:, 0, :], atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("is_drawn", [False, True])
def test_90_percent_intervals_cover_90_percent_of_200_series(is_drawn: bool, random_dbn: RandomDBN) -> None:
    rng = np.random.default_rng(11)
    hits = total = 0
    for k in range(200):
        dbn = random_dbn(k % 10, d=3, n_lags=1)
        path = dbn.simulate(60 + 8, random_state=rng, burn_in=50).to_numpy()
        noise = rng.normal(size=(5000, 3)) * np.sqrt(dbn.noise_variances) if is_drawn else "gaussian"
        ours = dbn.forecast(path[:60], 8, interval=0.9, noise=noise, n_paths=400, random_state=rng)
        assert ours.lower is not None
        assert ours.upper is not None
        inside = (path[60:] >= ours.lower.to_numpy()) & (path[60:] <= ours.upper.to_numpy())
        hits, total = hits + inside.sum(), total + inside.size
    assert 0.87 <= hits / total <= 0.93


def test_simulated_intervals_follow_the_noise_they_are_given() -> None:
    dbn = DBN(np.zeros((1, 1)), np.zeros((0, 1, 1)), noise_variances=np.ones(1))
    uniform = dbn.forecast(None, 1, interval=0.98, noise="uniform", n_paths=20_000, random_state=0)
    assert uniform.upper is not None
    assert uniform.upper.iloc[0, 0] == pytest.approx(0.98 * np.sqrt(3), abs=0.02)
    atoms = dbn.forecast(
        None,
        1,
        interval=0.5,
        noise=np.array([[-4.0], [4.0]]),
        n_paths=500,
        random_state=0,
    )
    assert atoms.upper is not None
    assert atoms.upper.iloc[0, 0] == 4.0


def test_simulation_is_deterministic_by_seed_and_matches_the_stationary_moments(
    random_dbn: RandomDBN,
) -> None:
    dbn = random_dbn(3, d=3, n_lags=2)
    first, again = dbn.simulate(20_000, random_state=5), dbn.simulate(20_000, random_state=5)
    pd.testing.assert_frame_equal(first, again)
    np.testing.assert_allclose(first.cov(), dbn.stationary_covariance(), rtol=0.1, atol=0.1)
    np.testing.assert_allclose(first.mean(), dbn.stationary_mean(), atol=0.2)
    laplace = dbn.simulate(20_000, random_state=5, noise="laplace")
    np.testing.assert_allclose(dbn.residuals(laplace).var(axis=0), dbn.noise_variances, rtol=0.1)


def test_static_network_forecasts_its_mean_without_any_history() -> None:
    W = np.array([[0.0, 2.0], [0.0, 0.0]])
    dbn = DBN(W, np.zeros((0, 2, 2)), intercept=np.array([1.0, 0.5]))
    assert dbn.is_stationary
    np.testing.assert_allclose(dbn.forecast(None, 2).mean, [[1.0, 2.5]] * 2)
    np.testing.assert_allclose(dbn.do({"x0": 3.0}, None, 1).mean, [[3.0, 6.5]])


def test_forecast_continues_the_times_of_the_history_and_matches_columns_by_name(
    random_dbn: RandomDBN,
) -> None:
    dbn = random_dbn(1, d=2, n_lags=1)
    times = pd.date_range("2024-01-01", periods=5, freq="h")
    frame = pd.DataFrame({"v1": np.arange(5.0), "other": 0.0, "v0": np.arange(5.0) ** 2}, index=times)
    ours = dbn.forecast(frame, 2)
    assert list(ours.mean.index) == [times[-1] + pd.Timedelta(hours=k) for k in (1, 2)]
    np.testing.assert_allclose(ours.mean, dbn.forecast(frame[["v0", "v1"]].to_numpy(), 2).mean)
    tidy = dbn.forecast(frame, 2, interval=0.5).to_frame()
    assert list(tidy.columns) == ["step", "time", "variable", "mean", "sd", "lower", "upper"]
    assert tidy.iloc[3]["mean"] == pytest.approx(ours.mean.iloc[1, 1])


def test_an_unstable_network_forecasts_from_a_history_but_has_no_stationary_start() -> None:
    dbn = DBN(np.zeros((1, 1)), np.full((1, 1, 1), 1.5))
    assert not dbn.is_stationary
    assert dbn.forecast(np.ones((1, 1)), 2).mean.iloc[1, 0] == pytest.approx(2.25)
    with pytest.raises(ParameterError, match=r"1\.500"):
        dbn.simulate(5)
