"""Bins of the time between readings, and how many readings are in them."""

import numpy as np
import pytest

from feddbn.core.designs.lags import (
    LagDesign,
    RowsAlone,
    ladder_edge,
    lag_sums,
    readings_in_pairs,
    recording_readings,
)
from feddbn.core.designs.recordings import Block
from feddbn.data.memory import ArrayRecording, MemorySite
from feddbn.errors import ParameterError


def irregular(rng, n=40, d=3, share=0.4, grid=0.0):
    times = np.sort(rng.uniform(0, 20, n))
    times = np.unique(np.round(times / grid) * grid) if grid else times
    values = rng.normal(size=(len(times), d))
    values[rng.random(values.shape) > share] = np.nan
    return times, values


def test_bins_of_any_two_designs_are_bins_of_one_ladder():
    """Delays from 0.1 to 9 hours and from 7 minutes to 3 days: edges that are near each other are the same."""
    a = LagDesign.spanning(("x",), "hours", 0.1, 9).edges
    b = LagDesign.spanning(("x",), "hours", 7 / 60, 72).edges
    both = np.sort(np.concatenate([a, b]))
    gaps = np.diff(both) / both[:-1]
    assert np.all((gaps == 0) | (gaps > 0.4))
    np.testing.assert_allclose(a[1:] / a[:-1], 2**0.5)


@pytest.mark.parametrize("delay", [1, 2, 3, 4, 24, 0.25])
def test_round_delays_are_well_inside_a_bin(delay):
    design = LagDesign.spanning(("x",), "rows", delay, delay)
    assert design.n_bins == 1
    low, high = design.edges
    assert low * 1.05 < delay < high / 1.05
    assert low < design.middles[1] < high


def test_bins_that_are_not_on_the_ladder_are_refused():
    for more in ({"first": -41}, {"n_bins": 0}, {"first": 0, "n_bins": 62}, {"clock": "days"}):
        with pytest.raises(ParameterError):
            LagDesign(**({"variables": ("x",), "clock": "hours", "first": 0, "n_bins": 3} | more))
    for shortest, longest in ((0, 1), (2, 1), (1, np.inf), (-1, 1)):
        with pytest.raises(ParameterError):
            LagDesign.spanning(("x",), "hours", shortest, longest)
    assert ladder_edge(1) == 2**0.25


def counted(pieces, design):
    """The same by all pairs."""
    later, earlier = (np.empty(design.shape, dtype=object) for _ in range(2))
    for one in (later, earlier):
        for place in np.ndindex(*design.shape):
            one[place] = set()
    for number, (times, there, wanted) in enumerate(pieces):
        for r, s in np.ndindex(len(times), len(times)):
            delay = times[r] - times[s]
            b = 0 if delay == 0 else int(np.searchsorted(design.edges, delay))
            if delay < 0 or (delay > 0 and not 1 <= b <= design.n_bins):
                continue
            for i, j in np.argwhere(np.outer(there[r], there[s])):
                if wanted is None or wanted[r, i] or wanted[s, j]:
                    later[b, i, j].add((number, r))
                    earlier[b, i, j].add((number, s))
    sizes = [np.vectorize(len)(one) for one in (later, earlier)]
    return np.minimum(*sizes)


@pytest.mark.parametrize("grid", [0.0, 0.5])
@pytest.mark.parametrize("some", [False, True])
def test_readings_in_pairs_are_counted_as_by_hand(grid, some):
    rng = np.random.default_rng(900)
    design = LagDesign.spanning(("a", "b", "c"), "hours", 0.25, 8)
    pieces = []
    for _ in range(3):
        times, values = irregular(rng, grid=grid)
        there = ~np.isnan(values)
        pieces.append((times, there, there & (rng.random(there.shape) < 0.1) if some else None))
    found = readings_in_pairs(pieces, design)
    np.testing.assert_array_equal(found, counted(pieces, design))
    assert found.any()


def test_a_sum_has_pairs_where_it_has_readings():
    rng = np.random.default_rng(901)
    design = LagDesign.spanning(("a", "b", "c"), "hours", 0.05, 30)
    pieces = [irregular(rng, n=12, share=0.3) for _ in range(2)]
    counts = lag_sums(pieces, design.edges).counts
    n = readings_in_pairs(((times, ~np.isnan(values), None) for times, values in pieces), design)
    np.testing.assert_array_equal(counts > 0, n > 0)
    assert np.all(n <= counts)


def test_one_reading_may_have_many_pairs_and_is_still_one():
    times, there = np.arange(30.0), np.ones((30, 2), dtype=bool)
    there[:, 1] = False
    there[15, 1] = True
    design = LagDesign.spanning(("a", "b"), "rows", 1, 8)
    n = readings_in_pairs([(times, there, None)], design)
    counts = lag_sums([(times, np.where(there, 1.0, np.nan))], design.edges).counts
    assert counts[-1, 0, 1] == 3
    assert n[-1, 0, 1] == n[-1, 1, 0] == 1


def test_rows_have_their_own_times_or_follow_each_other():
    x = np.arange(8.0)[:, None]
    times = np.array([0, 0.5, 3.0])
    follow = ArrayRecording("r", (Block(x[:3], time=0), Block(x[3:5], False), Block(x[5:], time=10)))
    (one,) = recording_readings(follow, 0.5)
    np.testing.assert_array_equal(one[0], [0, 0.5, 1, 1.5, 2, 5, 5.5, 6])
    np.testing.assert_array_equal(one[1], x)
    apart = ArrayRecording("r", (Block(x[:3]), Block(x[3:])))
    assert [len(part[0]) for part in recording_readings(apart, 1.0)] == [3, 5]
    own = ArrayRecording("r", (Block(x[:3], times=times), Block(x[3:4], False, times=np.array([9.0]))))
    (one,) = recording_readings(own, 2.0)
    np.testing.assert_array_equal(one[0], [0, 1, 6, 18])
    alone = RowsAlone(MemorySite(("x",), [own]))
    assert [block.times for one in alone.recordings() for block in one.blocks()] == [None, None]
