"""A history in other units, of another level or in another order is told; an ordinary one is not."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from feddbn.errors import DataError, HistoryWarning
from feddbn.model.dbn import DBN
from feddbn.model.forecast import doubts

LEVEL = np.array([0.0, 0.0, 40.0])


def network() -> DBN:
    W = np.zeros((3, 3))
    W[0, 1] = 0.8
    A = np.array([[[0.7, 0.0, 0.0], [0.0, 0.6, 0.3], [0.2, 0.0, 0.5]]])
    return DBN(W, A, ("hr", "map", "spo2"), intercept=np.array([20.0, 5.0, 30.0]), noise_variances=np.ones(3))


def rows(n: int, seed: int) -> np.ndarray:
    return network().simulate(n, seed).to_numpy()


@pytest.mark.parametrize("n", [1, 5, 30, 300])
def test_an_ordinary_history_is_not_doubted(n: int) -> None:
    assert [doubts(network(), rows(n, seed)) for seed in range(50)] == [[]] * 50


@pytest.mark.parametrize("n", [30, 300])
def test_other_units_and_levels_are_named(n: int) -> None:
    for seed in range(10):
        x = rows(n, seed)
        (text,) = doubts(network(), x * [1, 10, 1])
        assert "'map'" in text
        assert "other units" in text
        (text,) = doubts(network(), x + LEVEL)
        assert "another level (dbn.at_level)" in text
        at_level = network().at_level((x + LEVEL).mean(axis=0))
        assert doubts(at_level, x + LEVEL) == []
        (text,) = doubts(network().at_level(x.mean(axis=0) / 100), x / 100)
        assert "times" in text


def test_few_rows_are_compared_with_where_the_process_is() -> None:
    (text,) = doubts(network(), rows(2, 0) * 10)
    assert "deviations" in text


def test_rows_out_of_order_are_told() -> None:
    for seed in range(10):
        x = rows(300, seed)
        (text,) = doubts(network(), np.random.default_rng(seed).permutation(x))
        assert "order" in text
    A = np.diag([0.6, 0.5, 0.6])[None]
    mild = DBN(np.zeros((3, 3)), A, noise_variances=np.ones(3))
    told = [
        doubts(mild, rng.permutation(mild.simulate(300, rng)))
        for rng in map(np.random.default_rng, range(20))
    ]
    assert sum("better" in " ".join(text) for text in told) >= 18


def test_a_forecast_warns_and_refuses() -> None:
    x = pd.DataFrame(rows(100, 0), columns=["hr", "map", "spo2"])
    with pytest.warns(HistoryWarning, match="worthless"):
        network().forecast(x * 10, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network().forecast(x, 2)
    dates = pd.date_range("2024-01-01", periods=100, freq="h")
    with pytest.raises(DataError, match=r"times.*index.*sort_index"):
        network().forecast(x.set_axis(dates[::-1]), 2)
    with pytest.raises(DataError, match="twice"):
        network().forecast(x.set_axis(dates.repeat(2)[:100]), 2)
    pd.MultiIndex.from_product([["a", "b"], range(50)])


def test_times_go_on() -> None:
    x = pd.DataFrame(rows(50, 1), columns=["hr", "map", "spo2"])
    numbered = network().forecast(x.set_axis(pd.Index(0.72 * np.arange(50), name="t")), 2).mean
    np.testing.assert_allclose(numbered.index, 0.72 * np.array([50, 51]))
    assert numbered.index.name == "t"
    assert list(network().forecast(x, 2).mean.index) == [1, 2]
    months = network().forecast(x.set_axis(pd.period_range("2020-01", periods=50, freq="M")), 1).mean
    assert str(months.index[0]) == "2024-03"
