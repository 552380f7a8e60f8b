"""Cuts by dynamic programming are those that trying all of them finds."""

from itertools import combinations

import numpy as np
import pytest

from feddbn.core.changes.fits import best_partitions, ranges_of


def total(cost, cuts):
    return sum(cost[a, b] for a, b in ranges_of(cuts, len(cost) - 1))


@pytest.mark.parametrize("seed", range(5))
def test_no_other_cuts_are_better(seed):
    rng = np.random.default_rng(seed)
    n_blocks = 8
    cost = np.full((n_blocks + 1, n_blocks + 1), np.inf)
    for a in range(n_blocks):
        for b in range(a + 1, n_blocks + 1):
            cost[a, b] = rng.normal() if b - a >= 2 else np.inf
    found = best_partitions(cost, 5)
    # Ranges of two blocks or more: at most three cuts.
    assert [len(cuts) for cuts, _ in found] == [0, 1, 2, 3]
    for k, (cuts, value) in enumerate(found):
        every = [total(cost, some) for some in combinations(range(1, n_blocks), k)]
        assert value == pytest.approx(min(every))
        assert total(cost, cuts) == pytest.approx(value)


def test_ranges_hold_every_block_once():
    assert ranges_of((2, 5), 7) == [(0, 2), (2, 5), (5, 7)]
    assert ranges_of((), 3) == [(0, 3)]
