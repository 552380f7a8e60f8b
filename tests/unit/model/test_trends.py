"""Forecasts along a recording's own trend and cycle, and histories that do not fit the network."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.errors import DataError, HistoryWarning, ParameterError
from feddbn.model.dbn import DBN
from feddbn.model.trends import fit_trend
from support.networks import curved, make_curve

NAMES = ["a", "b", "c"]


def network() -> feddbn.DBN:
    W, A = np.zeros((3, 3)), np.diag([0.6, 0.4, 0.3])[None]
    W[0, 1], W[1, 2] = 0.8, -0.7
    return feddbn.DBN(W, A, NAMES, noise_variances=np.ones(3))


def course_of(n: int, seed: int) -> np.ndarray:
    """A line and a cycle of 24 rows for each of three variables."""
    rng = np.random.default_rng(seed)
    t = np.arange(n)[:, None]
    phase, size, slope = rng.uniform(0, 6, 3), rng.uniform(3, 5, 3), rng.normal(0, 0.03, 3)
    return rng.normal(0, 10, 3) + slope * t + size * np.sin(2 * np.pi * t / 24 + phase)


def recording(n: int, seed: int) -> np.ndarray:
    return course_of(n, seed) + network().simulate(n, random_state=seed).to_numpy()


def test_without_trend_and_cycle_it_is_the_plain_forecast_at_the_recordings_mean():
    x = recording(80, 0)
    x[5, 1] = x[79, 2] = np.nan
    course = fit_trend(x, variables=NAMES)
    with pytest.warns(HistoryWarning):
        found = network().do({"b": 3.0}, x, 6, 0.9, trend=course)
    with pytest.warns(HistoryWarning):
        plain = network().at_level(np.nanmean(x, axis=0)).do({"b": 3.0}, x, 6, 0.9)
    for part in ("mean", "lower", "upper", "sd"):
        np.testing.assert_allclose(getattr(found, part), getattr(plain, part), atol=1e-10)


def test_a_course_is_that_of_ordinary_least_squares():
    x, t = recording(100, 1), np.arange(100)
    columns = np.column_stack([np.ones(100), t, np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 24)])
    expected = columns @ np.linalg.lstsq(columns, x, rcond=None)[0]
    np.testing.assert_allclose(fit_trend(x, 1, [24]).at(t), expected, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_held_out_rows_are_forecast_better_along_the_course(seed):
    x = recording(288, seed)
    past, future = x[:240], x[240:]
    # Along its course a recording is what the network expects, and nothing is warned of.
    along = network().forecast(past, 48, trend=fit_trend(past, 1, [24], variables=NAMES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HistoryWarning)
        plain = network().at_level(past.mean(axis=0)).forecast(past, 48)
    error = [float(np.square(one.mean.to_numpy() - future).mean()) for one in (along, plain)]
    assert error[0] < 0.5 * error[1]


def test_intervals_along_the_course_cover():
    inside = []
    for seed in range(30):
        x = recording(264, seed)
        found = network().forecast(x[:240], 24, 0.9, trend=fit_trend(x[:240], 1, [24], variables=NAMES))
        inside.append((found.lower.to_numpy() < x[240:]) & (x[240:] < found.upper.to_numpy()))
    assert 0.82 < float(np.mean(inside)) < 0.95


def test_a_line_goes_on_as_far_as_the_history_is_long_and_higher_polynomials_not_at_all():
    t = np.arange(41.0)
    line = fit_trend((2 * t)[:, None], 1)
    assert line.at(np.array([60.0, 80.0, 500.0])).ravel() == pytest.approx([120, 160, 160])
    assert line.remarks(40) == []
    assert "40" in line.remarks(41)[0]
    cubic = fit_trend((t**3)[:, None], 3)
    assert cubic.at(np.array([20.0, 40.0, 60.0])).ravel() == pytest.approx([8000, 64000, 64000])
    assert "last" in cubic.remarks(1)[0]


def test_times_with_gaps_and_ends_are_kept():
    t = np.r_[0:50, 70:120]
    course = fit_trend((0.5 * t + np.sin(2 * np.pi * t / 10))[:, None], 1, [10], times=t)
    assert course.at(np.array([60.0, 125.0])).ravel() == pytest.approx(
        [30 + np.sin(2 * np.pi * 6), 62.5 + np.sin(2 * np.pi * 12.5)]
    )


def test_few_cells_have_a_mean_and_none_are_refused():
    x = recording(60, 2)
    x[8:, 1] = np.nan
    course = fit_trend(x, 1, [24])
    assert course.at(np.array([0.0, 59.0]))[:, 1] == pytest.approx([np.nanmean(x[:, 1])] * 2)
    x[:, 1] = np.nan
    with pytest.raises(DataError, match="'1'"):
        fit_trend(x, 1)
    with pytest.raises(ParameterError, match=r"times.*60"):
        fit_trend(recording(60, 2), times=np.zeros(60))
    with pytest.raises(ParameterError, match="a, b, c"):
        network().forecast(recording(60, 2), 3, trend=fit_trend(recording(60, 2)))


def test_a_network_with_curves_goes_on_about_the_recordings_level_but_along_no_trend() -> None:
    A = np.array([[[0.5, 0.3], [0.0, 0.4]]])
    dbn = curved(np.zeros((2, 2)), A, ["a", "b"], parts=[make_curve(0, 1, 1, 0.0, 1.0, (0.3,))])
    rows = dbn.simulate(400, random_state=0) + np.array([0.5, 1.0])
    found = dbn.forecast(rows, 3, random_state=1, trend=fit_trend(rows, variables=["a", "b"]))
    # A curve is a function of the value itself, so the level is not taken off before.
    same = dbn.at_level(rows.mean().to_numpy()).forecast(rows, 3, random_state=1)
    np.testing.assert_array_equal(found.mean, same.mean)
    with pytest.raises(ParameterError, match="trend"):
        dbn.forecast(rows, 3, trend=fit_trend(rows, 1))


LEVEL = np.array([0.0, 0.0, 40.0])


def vitals() -> DBN:
    W = np.zeros((3, 3))
    W[0, 1] = 0.8
    A = np.array([[[0.7, 0.0, 0.0], [0.0, 0.6, 0.3], [0.2, 0.0, 0.5]]])
    return DBN(W, A, ("hr", "map", "spo2"), intercept=np.array([20.0, 5.0, 30.0]), noise_variances=np.ones(3))


def rows(n: int, seed: int) -> np.ndarray:
    return vitals().simulate(n, seed).to_numpy()


def warned(dbn: DBN, x: np.ndarray) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dbn.forecast(x, 1)
    return [str(one.message) for one in caught if issubclass(one.category, HistoryWarning)]


@pytest.mark.parametrize("n", [1, 5, 30, 300])
def test_an_ordinary_history_is_not_doubted(n: int) -> None:
    assert not any(warned(vitals(), rows(n, seed)) for seed in range(50))


@pytest.mark.parametrize("n", [30, 300])
def test_other_units_and_levels_are_named(n: int) -> None:
    for seed in range(10):
        x = rows(n, seed)
        (text,) = warned(vitals(), x * [1, 10, 1])
        assert "'map'" in text
        assert warned(vitals(), x + LEVEL)
        assert not warned(vitals().at_level((x + LEVEL).mean(axis=0)), x + LEVEL)
        assert warned(vitals().at_level(x.mean(axis=0) / 100), x / 100)


def test_a_forecast_warns_and_refuses() -> None:
    x = pd.DataFrame(rows(100, 0), columns=["hr", "map", "spo2"])
    with pytest.warns(HistoryWarning, match="worthless"):
        vitals().forecast(x * 10, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vitals().forecast(x, 2)
    dates = pd.date_range("2024-01-01", periods=100, freq="h")
    with pytest.raises(DataError, match=r"times.*index.*sort_index"):
        vitals().forecast(x.set_axis(dates[::-1]), 2)
    with pytest.raises(DataError, match="twice"):
        vitals().forecast(x.set_axis(dates.repeat(2)[:100]), 2)


def test_times_go_on() -> None:
    x = pd.DataFrame(rows(50, 1), columns=["hr", "map", "spo2"])
    numbered = vitals().forecast(x.set_axis(pd.Index(0.72 * np.arange(50), name="t")), 2).mean
    np.testing.assert_allclose(numbered.index, 0.72 * np.array([50, 51]))
    assert numbered.index.name == "t"
    assert list(vitals().forecast(x, 2).mean.index) == [1, 2]
    months = vitals().forecast(x.set_axis(pd.period_range("2020-01", periods=50, freq="M")), 1).mean
    assert str(months.index[0]) == "2024-03"
