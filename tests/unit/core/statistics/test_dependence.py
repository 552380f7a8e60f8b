"""Columns that follow from others are found and named, by second moments alone."""

import numpy as np
import pytest

from feddbn.core.statistics.moments import Moments, dependences, independent

NAMES = ("a", "b", "c", "e")


def lagged(x, n_lags=1):
    n = len(x)
    z = np.hstack([x[n_lags - lag : n - lag] for lag in range(n_lags + 1)])
    return Moments.of_rows(z)


def sentences(x, n_lags=1):
    moments = lagged(x, n_lags)
    return [one.sentence(NAMES) for one in dependences(moments.scatter, moments.n, x.shape[1])]


@pytest.fixture
def x():
    return np.random.default_rng(3).standard_normal((200, 4)) * [1.0, 20.0, 0.3, 1.0] + [0, 50, 0, 3]


def test_clean_columns_are_not_named(x):
    assert sentences(x) == []
    assert sentences(x, n_lags=0) == []


def test_few_rows_make_no_column_dependent(x):
    assert sentences(x[:8]) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda x: x[:, 0] + 1e-8 * x[:, 3], "e is a copy of a (up"),
        (lambda x: 7 - 2 * x[:, 1], "e is a multiple of b (up"),
        (lambda x: x[:, 0] + x[:, 2], "e is the sum of a, c (up"),
        (lambda x: x[:, 0] - 9 * x[:, 2], "e is a linear combination of c, a (up"),
        (lambda x: np.r_[0.0, x[:-1, 0]], "e is a copy of a at lag 1 (up"),
    ],
)
def test_a_column_that_follows_from_others_is_named_once_with_the_cure(x, change, expected):
    x[:, 3] = change(x)
    (sentence,) = sentences(x)
    assert sentence.startswith(expected)
    assert "out with variables=" in sentence


def test_long_combinations_name_the_four_largest_parts():
    x = np.random.default_rng(0).standard_normal((100, 8))
    x[:, 7] = x[:, :7] @ np.arange(1.0, 8.0)
    (one,) = dependences(*(lambda m: (m.scatter, m.n))(Moments.of_rows(x)), 8)
    assert "of x6, x5, x4, x3 and 3 more" in one.sentence([f"x{i}" for i in range(8)])


def test_sums_with_noise_that_are_not_positive_name_nothing(x):
    moments = lagged(x)
    noisy = moments.scatter.copy()
    noisy[0, 3] = noisy[3, 0] = 1.2 * np.sqrt(noisy[0, 0] * noisy[3, 3])
    assert dependences(noisy, moments.n, 4) == []


def test_independent_columns_are_the_first_ones_of_their_span():
    x = np.random.default_rng(1).standard_normal((50, 5))
    x[:, 1], x[:, 4] = x[:, 0], x[:, 2] - x[:, 3]
    assert independent(np.corrcoef(x.T)) == [0, 2, 3]
