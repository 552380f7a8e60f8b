"""Networks in continuous time against brute force: matrix exponentials, conditional Gaussians, finite differences."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import expm

from feddbn.errors import DataError, HistoryWarning, ParameterError
from feddbn.model.rates import RateNetwork, step_length

RATES = np.array([[-0.5, 0.3, 0.0], [0.0, -0.8, 0.25], [-0.2, 0.0, -0.4]])


def network(**others: object) -> RateNetwork:
    noise = np.array([[1.0, 0.2, 0.0], [0.2, 0.7, 0.1], [0.0, 0.1, 0.5]])
    root = np.random.default_rng(3).normal(size=(np.count_nonzero(RATES),) * 2) * 0.02
    given = {
        "mean": [1.0, -2.0, 0.5], "nugget": [0.1, 0.0, 0.3], "levels": np.diag([0.4, 0.2, 0.0]) + 0.05,
        "errors": root @ root.T, "step": "30min",
    }  # fmt: skip
    return RateNetwork.driven(RATES, noise, ["a", "b", "c"], **{**given, **others})


def test_the_noise_is_the_one_it_is_driven_by():
    found = network().noise
    assert np.allclose(found, [[1.0, 0.2, 0.0], [0.2, 0.7, 0.1], [0.0, 0.1, 0.5]])


def test_an_effect_is_an_entry_of_the_matrix_exponential():
    one = network()
    for h in (0.0, 0.3, 2.0, 12.0):
        want = expm(RATES.T * h)
        for i, source in enumerate("abc"):
            for j, target in enumerate("abc"):
                assert one.effect(source, target, steps=h).value == pytest.approx(want[j, i], abs=1e-13)
    assert one.effect("a", "b", hours=3).steps == 6.0
    assert float(one.effect("a", "b", hours=3)) == float(one.effect("a", "b", steps=6))


def test_the_interval_of_an_effect_is_that_of_finite_differences():
    one = network()
    places, small = np.argwhere(RATES != 0), 1e-6
    for source, target, h in (("a", "b", 1.0), ("a", "c", 2.5), ("c", "c", 4.0), ("b", "a", 7.0)):
        i, j = "abc".index(source), "abc".index(target)
        gradient = []
        for k, m in places:
            ends = []
            for sign in (1, -1):
                moved = RATES.copy()
                moved[k, m] += sign * small
                ends.append(expm(moved.T * h)[j, i])
            gradient.append((ends[0] - ends[1]) / (2 * small))
        want = np.sqrt(np.array(gradient) @ one.errors @ np.array(gradient))
        found = one.effect(source, target, steps=h, level=0.9)
        assert found.error == pytest.approx(want, rel=1e-6)
        assert found.upper - found.value == pytest.approx(1.6448536 * want, rel=1e-6)


def test_one_step_networks_compose():
    one = network()
    A = one.network(0.5).A[0]
    assert np.allclose(A @ A, one.network(1).A[0])
    # The total effects of the discrete network at whole steps are those of the continuous one.
    total = one.network(1).total_effects(3)
    assert total[3, 0, 2] == pytest.approx(one.effect("a", "c", steps=3).value)
    assert np.allclose(one.network(1).stationary_mean(), one.mean)


def _brute(one: RateNetwork, at: np.ndarray, values: np.ndarray, asked: np.ndarray) -> tuple:
    """Condition the joint normal of all readings directly."""
    d = one.d
    every = [(t, i, False) for t in asked for i in range(d)]
    seen = [(at[k], i, True) for k, i in np.argwhere(np.isfinite(values))]

    def covariance(p: tuple, q: tuple) -> float:
        (t, i, _), (u, j, _) = p, q
        S, A = one.stationary, one.rates.T
        state = (expm(A * (t - u)) @ S)[i, j] if t >= u else (S @ expm(A.T * (u - t)))[i, j]
        return state + (0.0 if one.levels is None else one.levels[i, j])

    K = np.array([[covariance(p, q) for q in seen] for p in seen])
    K += np.diag([one.nugget[i] for _, i, _ in seen])
    C = np.array([[covariance(p, q) for q in seen] for p in every])
    own = np.array([covariance(p, p) + one.nugget[p[1]] for p in every])
    off = np.array([values[k, i] - one.mean[i] for k, i in np.argwhere(np.isfinite(values))])
    mean = C @ np.linalg.solve(K, off) + np.array([one.mean[p[1]] for p in every])
    variance = own - np.einsum("ij,ji->i", C, np.linalg.solve(K, C.T))
    return mean.reshape(-1, d), np.sqrt(variance).reshape(-1, d)


@pytest.mark.parametrize("levels", [None, "own"])
def test_forecasts_are_conditional_gaussians(levels):
    one = network() if levels else replace(network(), levels=None)
    rng = np.random.default_rng(0)
    at = np.sort(rng.uniform(0, 6, 14))
    at[5] = at[6]
    values = rng.normal(size=(14, 3)) + one.mean
    values[rng.random((14, 3)) < 0.5] = np.nan
    values[3] = np.nan
    asked = np.array([8.0, 2.5, at[7], -1.0, 6.01, 2.5])
    start = pd.Timestamp("2024-01-01")
    history = pd.DataFrame(values, columns=list("abc"), index=start + pd.to_timedelta(at * 1800, unit="s"))
    exact = (history.index - history.index[0]) / pd.Timedelta("30min")
    dates = history.index[0] + pd.to_timedelta(asked * 1800, unit="s")
    found = one.forecast(history, times=dates, interval=0.9)
    mean, sd = _brute(
        one, np.asarray(exact), values, np.asarray((dates - history.index[0]) / pd.Timedelta("30min"))
    )
    assert np.allclose(found.mean, mean, atol=1e-9)
    assert np.allclose(found.sd, sd, atol=1e-9)
    assert np.allclose(found.upper - found.mean, 1.6448536269514722 * sd)
    assert list(found.mean.index) == list(dates)


def test_steps_follow_the_last_row_also_an_empty_one():
    one = network(step=None)
    rows = np.array([[1.0, 0.0, 0.0], [2.0, 1.0, 0.5], [np.nan] * 3])
    ahead = one.forecast(rows, steps=2)
    assert ahead.mean.index.tolist() == [3.0, 4.0]
    assert ahead.lower is None
    mean, _ = _brute(one, np.arange(3.0), rows, np.array([3.0, 4.0]))
    assert np.allclose(ahead.mean, mean)
    numbers = replace(one, step="0.5")
    half = numbers.forecast(pd.DataFrame(rows, columns=list("abc"), index=[0.0, 0.5, 1.0]), times=[1.5, 2.0])
    assert np.allclose(half.mean, mean)


def test_far_readings_are_doubted():
    one = network(step=None)
    rows = np.random.default_rng(0).normal(size=(40, 3)) * 50
    with pytest.warns(HistoryWarning):
        one.forecast(rows, steps=1)


def test_it_reads_back_bit_for_bit():
    one = replace(network(), probability=np.full((3, 3), 1 / 3), longest=48.0)
    back = RateNetwork.from_dict(json.loads(json.dumps(one.to_dict())))
    assert back.to_dict() == one.to_dict()
    assert np.array_equal(back.errors, one.errors)
    assert back.variables == one.variables
    assert back.effect("a", "b", hours=1) == one.effect("a", "b", hours=1)


def test_the_table_has_a_row_for_each_rate():
    table = network().to_frame()
    assert len(table) == np.count_nonzero(RATES)
    own = table[table["source"] == table["target"]].set_index("source")["half_life"]
    assert own["a"] == pytest.approx(np.log(2) / 0.5)
    pair = table.query("source == 'b' and target == 'c'").iloc[0]
    assert pair["rate"] == 0.25
    assert np.isnan(pair["half_life"])
    assert pair["upper"] - pair["rate"] == pytest.approx(1.959964 * pair["error"], rel=1e-6)


def test_words_for_a_step():
    assert [network(step=one).unit for one in ("1h", "15min", "2", None)] == ["h", "15min", "step", "step"]
    assert network(step="1D").unit == "D"
    with pytest.raises(ParameterError):
        step_length("soon")
    with pytest.raises(ParameterError):
        step_length("MS")


def test_bad_input_is_refused():
    one = network()
    with pytest.raises(ParameterError) as refused:
        network(step="2").effect("a", "b", hours=1)
    assert refused.value.code == "step-is-no-time"
    for given in ({}, {"steps": 1, "hours": 1}, {"steps": -1}, {"hours": np.nan}, {"steps": 1, "level": 1}):
        with pytest.raises(ParameterError):
            one.effect("a", "b", **given)
    with pytest.raises(ParameterError):
        one.effect("a", "z", steps=1)
    with pytest.raises(ParameterError):
        RateNetwork.driven([[0.1, 0], [0, -1]], [1, 1])
    with pytest.raises(ParameterError):
        network(nugget=[-1.0, 0, 0])
    with pytest.raises(ParameterError):
        network(errors=np.eye(2))
    frame = pd.DataFrame(np.ones((2, 3)), columns=list("abc"))
    dates = frame.set_index(pd.DatetimeIndex(["2024-01-02", "2024-01-01"]))
    for history, asked in (
        (dates, {"steps": 1}),
        (frame.set_index(pd.Index([0.0, 1.0])), {"steps": 1}),
        (frame.set_index(pd.Index(["x", "y"])), {"steps": 1}),
        (frame[["a", "b"]], {"steps": 1}),
        (frame * np.nan, {"steps": 1}),
    ):
        with pytest.raises(DataError):
            one.forecast(history, **asked)
    for asked in ({}, {"steps": 1, "times": [1]}, {"steps": 0}, {"times": []}, {"times": ["x"]}):
        with pytest.raises(ParameterError):
            one.forecast(frame, **asked)
    with pytest.raises(ParameterError):
        one.forecast(dates.sort_index(), times=["2024-01-03T00:00Z"])
    with pytest.raises(DataError):
        network(step="2").forecast(dates.sort_index(), steps=1)
