"""`core.statistics.diagnostics` against statsmodels, and on series whose roots are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter
from statsmodels.tsa.stattools import adfuller

from feddbn.core.statistics.diagnostics import slow_levels
from feddbn.core.statistics.moments import Moments


def moments_of(x: np.ndarray, n_lags: int) -> Moments:
    return Moments.of_rows(np.hstack([x[n_lags - k : len(x) - k] for k in range(n_lags + 1)]))


def series(n: int, roots: list[float], seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal((n, len(roots)))
    return np.column_stack([lfilter([1], [1, -root], noise[:, k]) for k, root in enumerate(roots)])


@pytest.mark.filterwarnings("ignore:adfuller:FutureWarning")
@pytest.mark.parametrize("n_lags", [1, 2, 4])
def test_the_statistic_is_the_augmented_dickey_fuller_one(n_lags):
    x = 1e4 + 30 * series(200, [0.5, 0.95, 1.0], 0)
    found = slow_levels(moments_of(x, n_lags), 3)
    for j in range(3):
        expected = adfuller(x[:, j], maxlag=n_lags - 1, regression="c", autolag=None)[0]
        assert found.statistic[j] == pytest.approx(expected, rel=1e-6)


def test_slow_variables_are_found_and_others_are_not():
    slow = slow_levels(moments_of(series(3000, [0.3, 0.98, 0.8, 1.0], 1), 1), 4)
    assert slow.slow == [3, 1], "the slowest first"
    assert slow.persistence[1] == pytest.approx(0.98, abs=0.01)
    assert slow.independent_rows[0] == pytest.approx(3000 * 0.7 / 1.3, rel=0.1)


def test_few_rows_of_a_random_walk_are_enough_and_few_rows_of_noise_are_no_alarm():
    walks = slow_levels(moments_of(series(60, [1.0] * 200, 2), 1), 200)
    noise = slow_levels(moments_of(series(25, [0.3] * 200, 3), 1), 200)
    assert len(walks.slow) > 120
    assert not noise.slow


def test_without_lags_or_rows_nothing_is_said():
    x = series(50, [0.5, 0.5], 4)
    assert slow_levels(Moments.of_rows(x), 2) is None
    assert slow_levels(moments_of(x[:3], 1), 2) is None


def test_a_series_that_does_not_move_in_its_lags_is_no_reason_to_fail():
    x = np.zeros((30, 2))
    x[-1] = 1.0
    found = slow_levels(moments_of(x, 2), 2)
    assert np.isfinite(found.persistence).all()


def test_the_sentence_names_the_slowest_and_what_to_do():
    found = slow_levels(moments_of(series(2000, [0.999] * 5 + [0.2], 5), 1), 6)
    sentence = found.sentence(list("abcdef"))
    assert sentence.startswith("levels near a unit root: ")
    assert "and 1 more" in sentence
    assert "f" not in sentence.split("(")[0].split(": ")[1].split(" and ")[0].split(", ")
    assert "strength" in sentence
    quick = slow_levels(moments_of(series(500, [0.1, 0.2], 6), 1), 2)
    assert quick.sentence(["a", "b"]) is None
