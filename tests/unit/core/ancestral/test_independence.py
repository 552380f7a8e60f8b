"""Partial correlations of subsets: against residuals of regressions on made-up rows, and SciPy's p-values."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from feddbn.core.ancestral.search import PartialCorrelations

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(80, 7)) @ RNG.normal(size=(7, 7))


def by_residuals(x, y, given):
    Z = np.column_stack([np.ones(len(ROWS)), ROWS[:, list(given)]])
    left = [ROWS[:, k] - Z @ np.linalg.lstsq(Z, ROWS[:, k], rcond=None)[0] for k in (x, y)]
    r = np.corrcoef(*left)[0, 1]
    freedom = len(ROWS) - len(given) - 2
    return r, 2 * stats.t.sf(abs(r) * np.sqrt(freedom / (1 - r * r)), freedom)


@pytest.fixture(scope="module")
def test():
    return PartialCorrelations(np.corrcoef(ROWS.T), len(ROWS))


@pytest.mark.parametrize(("always", "size"), [((), 0), ((2,), 0), ((), 2), ((2, 3), 1), ((6,), 3)])
def test_they_are_those_of_residuals(test, always, size):
    others = [k for k in range(2, 7) if k not in always]
    values, p_values, sets = test.subsets(0, 1, always, others, size, 1000)
    assert {tuple(sorted(one)) for one in sets.tolist()} == set(combinations(others, size))
    for value, p, extra in zip(values, p_values, sets.tolist(), strict=True):
        expected = by_residuals(0, 1, [*always, *extra])
        assert (value, p) == pytest.approx(expected, abs=1e-9)
        assert test.one(0, 1, [*always, *extra]) == pytest.approx(expected, abs=1e-9)


def test_few_subsets_are_those_of_the_nodes_that_go_most_with_the_pair(test):
    strength = [max(abs(test.one(0, k, [])[0]), abs(test.one(1, k, [])[0])) for k in range(2, 7)]
    best = {2 + int(k) for k in np.argsort(strength)[-3:]}
    _, _, sets = test.subsets(0, 1, (), range(2, 7), 2, 3)
    assert set(sets.ravel().tolist()) == best


def test_what_follows_from_conditions_is_independent_of_all():
    R = np.corrcoef(np.column_stack([ROWS[:, :2], ROWS[:, 1], np.full(len(ROWS), 1e-9) + ROWS[:, 3]]).T)
    test = PartialCorrelations(R, 80)
    assert test.one(0, 1, [2]) == (0.0, 1.0)
    assert test.subsets(0, 1, (), [2], 1, 10)[0] == pytest.approx(0.0, abs=1e-9)
    assert np.isfinite(test.subsets(0, 3, (1, 2), [], 0, 10)[0]).all()


def test_too_few_rows_show_nothing():
    test = PartialCorrelations(np.corrcoef(ROWS.T), 4)
    assert test.one(0, 1, [2, 3])[1] == 1.0
