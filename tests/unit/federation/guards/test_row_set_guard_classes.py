"""Sets of rows whose combinations show no few rows, against all combinations of small sets."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feddbn.federation.guards.row_set_guard import too_few

EVERY = np.arange(24)


def gone(new, known, least):
    """The rows that must go, those next to rows that are out first."""
    out = np.setdiff1d(EVERY, new)
    near = None if not len(out) else np.argsort(np.abs(new[:, None] - out).min(axis=1), kind="stable")
    return new[too_few(new.astype(np.uint64), [one.astype(np.uint64) for one in known], least, near)]


def admitted(sets, least):
    """The sets as a site would use them, one after the other."""
    known = []
    for new in sets:
        left = np.array(sorted(new), dtype=np.int64)
        while len(goes := gone(left, known, least)):
            left = np.setdiff1d(left, goes)
        known.append(left)
    return known


def fewest(sets):
    """How many rows the smallest combination of the sets is about; by trying them."""
    table = np.array([np.isin(EVERY, one) for one in sets], dtype=int)
    coefficients = itertools.product(range(-2, 3), repeat=len(sets))
    sizes = (int(np.count_nonzero(np.array(one) @ table)) for one in coefficients)
    return min((size for size in sizes if size), default=0)


@given(st.lists(st.sets(st.integers(0, 23)), min_size=1, max_size=4), st.integers(1, 6))
def test_no_combination_of_what_is_used_is_about_few_rows(sets, least):
    used = admitted(sets, least)
    assert fewest(used) >= least or fewest(used) == 0


def test_without_the_rule_a_combination_is_about_one_row():
    """Any two of these differ by five rows or more."""
    a, b = set(range(24)), set(range(18))
    c = set(range(12)) | set(range(18, 24))
    d = set(range(11))
    sets = [np.array(sorted(one)) for one in (a, b, c, d)]
    assert min(len(set(x) ^ set(y)) for x, y in itertools.combinations(sets, 2)) >= 5
    assert fewest(sets) == 1
    assert fewest(admitted((a, b, c, d), 5)) >= 5


def test_as_few_rows_as_needed_are_left_out():
    whole = EVERY
    # Three rows lack something: two more are left out, next to them.
    np.testing.assert_array_equal(gone(np.setdiff1d(EVERY, [7, 8, 9]), [whole], 5), [6, 10])
    # Enough rows lack something; nothing more is left out.
    assert not len(gone(EVERY[5:], [whole], 5))
    # The same set, and a first one.
    assert not len(gone(EVERY, [whole], 5))
    assert not len(gone(EVERY, [], 5))


@pytest.mark.parametrize(
    ("new", "known", "goes"),
    [
        # Few rows of a set that was summed.
        ([0, 1], [np.arange(10)], [0, 1]),
        # Few rows that never were.
        ([*range(10), 20], [np.arange(10)], [20]),
        # A set of which no part may be used alone.
        (range(7), [np.arange(9)], list(range(7))),
        # A first set of few rows.
        ([1, 2], [], [1, 2]),
        ([], [np.arange(10)], []),
    ],
)
def test_few_rows_are_not_used(new, known, goes):
    np.testing.assert_array_equal(gone(np.array(list(new), dtype=np.int64), known, 5), goes)
