"""Sums of products by the time between readings, against a double loop; the learner, against theory and a Kalman filter."""

from __future__ import annotations

import numpy as np
import pytest

from feddbn.core.continuous import LagSums, lag_sums
from feddbn.errors import DataError

EDGES = np.array([0.0, 0.3, 0.9, 2.0])
PARTS = ("counts", "products", "delays", "later", "earlier")


def some_recordings(seed: int, n: int = 3, d: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n):
        rows = int(rng.integers(4, 30))
        times = np.sort(rng.uniform(0, 8, rows))
        times[2] = times[1]
        values = rng.standard_normal((rows, d))
        values[rng.random((rows, d)) < 0.4] = np.nan
        found.append((times, values))
    return found


def by_loops(recordings: list[tuple[np.ndarray, np.ndarray]], edges: np.ndarray) -> dict[str, np.ndarray]:
    d = recordings[0][1].shape[1]
    found = {part: np.zeros((len(edges), d, d)) for part in PARTS}
    for times, values in recordings:
        cells = [(t, i, v) for t, row in zip(times, values, strict=True) for i, v in enumerate(row)]
        for a, (s, i, x) in enumerate(cells):
            for b, (t, j, y) in enumerate(cells):
                delay = s - t
                if np.isnan(x) or np.isnan(y) or delay < 0 or delay > edges[-1]:
                    continue
                if delay == 0:
                    if i == j and a != b:
                        continue
                    place = 0
                else:
                    place = next((k for k in range(1, len(edges)) if edges[k - 1] < delay <= edges[k]), -1)
                    if place < 0:
                        continue
                for part, number in zip(PARTS, (1.0, x * y, delay, x, y), strict=True):
                    found[part][place, i, j] += number
    return found


@pytest.mark.parametrize("edges", [EDGES, EDGES + 0.2])
def test_sums_are_those_of_a_double_loop(edges: np.ndarray) -> None:
    recordings = some_recordings(1)
    sums, truth = lag_sums(recordings, edges), by_loops(recordings, edges)
    for part in PARTS:
        np.testing.assert_allclose(getattr(sums, part), truth[part], atol=1e-12)
    assert sums.n_recordings == 3
    assert sums.time == pytest.approx(sum(t[-1] - t[0] for t, _ in recordings))


def test_a_delay_on_an_edge_belongs_to_the_bin_before_it() -> None:
    sums = lag_sums([(np.array([0.0, 1.0, 2.0]), np.ones((3, 1)))], [0, 1, 2])
    assert sums.counts[:, 0, 0].tolist() == [3, 2, 1]


def test_sums_of_sites_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    recordings = some_recordings(2, n=5)
    whole = lag_sums(recordings, EDGES)
    parts = lag_sums(recordings[:2], EDGES) + lag_sums(recordings[2:], EDGES)
    monkeypatch.setattr("feddbn.core.continuous._ROWS_AT_ONCE", 20)
    for other in (parts, lag_sums(iter(recordings), EDGES)):
        for part in (*PARTS, "n_recordings", "time"):
            np.testing.assert_allclose(getattr(whole, part), getattr(other, part), atol=1e-12)


def test_a_recording_without_readings_counts_nothing() -> None:
    empty = (np.array([0.0, 4.0]), np.full((2, 3), np.nan))
    with_it, without = lag_sums([*some_recordings(3), empty], EDGES), lag_sums(some_recordings(3), EDGES)
    assert (with_it.n_recordings, with_it.time) == (without.n_recordings, without.time)
    assert np.array_equal(with_it.counts, without.counts)


def test_what_cannot_be_added_up_is_refused() -> None:
    one = (np.array([0.0, 1.0]), np.ones((2, 1)))
    with pytest.raises(ValueError, match="edges"):
        lag_sums([one], [1, 1])
    with pytest.raises(ValueError, match="recordings"):
        lag_sums([], EDGES)
    with pytest.raises(DataError):
        lag_sums([(np.array([1.0, 0.0]), np.ones((2, 1)))], EDGES)
    with pytest.raises(DataError):
        lag_sums([(np.array([0.0, 1.0]), np.array([[1.0], [np.inf]]))], EDGES)
    with pytest.raises(ValueError, match="do not belong"):
        lag_sums([(np.zeros(3), np.ones((2, 1)))], EDGES)
    with pytest.raises(ValueError, match="add up"):
        _ = lag_sums([one], [0, 1]) + lag_sums([one], [0, 2])
    assert isinstance(lag_sums([one], [0, 1]), LagSums)
