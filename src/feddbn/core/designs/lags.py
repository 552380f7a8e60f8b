"""Bins of the time between two readings, the sums over the pairs in them, and which readings these rest on.

One ladder for everybody: bin k holds the pairs of readings whose delay is near ``2 ** (k / 2)``, two bins for each doubling,

    edge(k) = 2 ** ((k - 1/2) / 2)    in hours, in units of a numeric clock, or in rows

A design says which bins of the ladder it has and nothing else about time. So what differs between the sums of any two designs
is whole bins: edges that anybody could choose would be put on both sides of one pair of readings. Whole numbers of hours or
rows up to 4 have a bin each, and none is at an edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.designs.recordings import Block, Recording, RecordingView, SiteView
from feddbn.errors import DataError, ParameterError

CLOCKS = ("rows", "numbers", "hours")
"""What time is counted in: rows that follow each other, a column of numbers, or dates."""
BINS_PER_DOUBLING = 2
_ROWS_AT_ONCE = 65_536
FIRST_BIN, LAST_BIN = -40, 60
"""From 4 milliseconds to 120,000 years, if the clock has hours."""


def ladder_edge(k: int) -> float:
    """Where bin k of the ladder begins."""
    return float(2.0 ** ((k - 0.5) / BINS_PER_DOUBLING))


@dataclass(frozen=True)
class LagDesign:
    """Which products of readings are added up.

    Attributes
    ----------
    variables
        Names.
    clock
        One of `CLOCKS`.
    first, n_bins
        Number of its first bin on the ladder, and of bins.

    Examples
    --------
    >>> from feddbn.core.designs.lags import LagDesign
    >>> design = LagDesign.spanning(("pulse", "pressure"), "hours", 1, 4)
    >>> design.n_bins, design.edges.round(2).tolist()
    (5, [0.84, 1.19, 1.68, 2.38, 3.36, 4.76])
    """

    variables: tuple[str, ...]
    clock: str
    first: int
    n_bins: int

    def __post_init__(self) -> None:
        if self.clock not in CLOCKS:
            raise ParameterError(f"clock={self.clock!r} is not known; choose one of {', '.join(CLOCKS)}.")
        if self.first < FIRST_BIN or self.n_bins < 1 or self.first + self.n_bins - 1 > LAST_BIN:
            raise ParameterError(
                f"first={self.first} and n_bins={self.n_bins} must name bins from {FIRST_BIN} to {LAST_BIN}."
            )

    @classmethod
    def spanning(cls, variables: Sequence[str], clock: str, shortest: float, longest: float) -> LagDesign:
        """The bins that hold delays from `shortest` to `longest`."""
        if not 0 < shortest <= longest < math.inf:
            raise ParameterError(
                f"shortest={shortest} and longest={longest} must be positive, and the first not above the other."
            )
        first, last = (round(BINS_PER_DOUBLING * math.log2(delay)) for delay in (shortest, longest))
        return cls(tuple(variables), clock, first, last - first + 1)

    @property
    def edges(self) -> FloatArray:
        """(n_bins + 1,) where bins begin, and where the last ends; a delay at an edge belongs to the bin before it."""
        return np.array([ladder_edge(self.first + k) for k in range(self.n_bins + 1)])

    @property
    def middles(self) -> FloatArray:
        """(n_bins + 1,) the middle delay of each bin; pairs read at the same time come first."""
        each = 2.0 ** (np.arange(self.first, self.first + self.n_bins) / BINS_PER_DOUBLING)
        return np.concatenate([[0.0], each])

    @property
    def d(self) -> int:
        """Number of variables."""
        return len(self.variables)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(bins, d, d): bins of delays, variable that is read later, variable that is read earlier."""
        return self.n_bins + 1, self.d, self.d


class RowsAlone(SiteView):
    """A site whose rows are looked at one by one: when they were read does not matter."""

    def seen(self, recording: Recording) -> Recording:
        """Without the times of rows."""
        return _Alone(recording)


class _Alone(RecordingView):
    def blocks(self) -> Iterator[Block]:
        return (
            block if block.times is None else replace(block, times=None) for block in self.recording.blocks()
        )


Reading = tuple[FloatArray, FloatArray]
"""Ascending times (n,) and values (n, d), NaN where a variable was not read."""


def recording_readings(recording: Recording, step: float) -> list[Reading]:
    """The rows of a recording at their times, `step` long; rows between which nobody knows how much time passed are apart."""
    parts: list[list[Reading]] = []
    clock = 0.0
    for block in recording.blocks():
        n = len(block.values)
        is_apart = block.starts_segment and block.time is None and block.times is None
        clock = clock if block.time is None else float(block.time)
        times = clock + np.arange(n, dtype=np.float64) if block.times is None else block.times
        clock += n
        if not parts or is_apart:
            parts.append([])
        parts[-1].append((times * step, block.values))
    return [
        (np.concatenate([times for times, _ in part]), np.concatenate([values for _, values in part]))
        for part in parts
    ]


@dataclass(frozen=True)
class LagSums:
    """Sums over pairs of readings of one recording, by the time from the earlier to the later one. They add up.

    Arrays are (B + 1, d, d), ``[b, i, j]`` for pairs with variable i read later than j. Bin 0 has the pairs read at the same
    time, i = j there being one reading with itself; bin b pairs with ``edges[b - 1] < delay <= edges[b]``.

    Attributes
    ----------
    edges
        (B + 1,) ascending, not negative.
    counts, products, delays
        Numbers of pairs, sums of ``y_i(t + delay) y_j(t)``, and of the time between them.
    later, earlier
        Sums of ``y_i(t + delay)``, and of ``y_j(t)``, over these pairs.
    n_recordings, time
        Recordings with a reading, and the sum of the times from first to last reading of each.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.core.designs.lags import lag_sums
    >>> times, values = np.array([0.0, 0.4, 2.0]), np.array([[1.0, np.nan], [np.nan, 2.0], [3.0, 5.0]])
    >>> sums = lag_sums([(times, values)], edges=[0, 1, 2])
    >>> sums.counts[1].tolist(), sums.products[2].tolist()
    ([[0.0, 0.0], [1.0, 0.0]], [[3.0, 6.0], [5.0, 10.0]])
    """

    edges: FloatArray
    counts: FloatArray
    products: FloatArray
    delays: FloatArray
    later: FloatArray
    earlier: FloatArray
    n_recordings: float
    time: float

    def __add__(self, other: LagSums) -> LagSums:
        """Sums over the pairs of both."""
        if not np.array_equal(self.edges, other.edges) or self.counts.shape != other.counts.shape:
            raise ValueError("sums in different bins of time or of other variables do not add up")
        added = [getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "edges"]
        return LagSums(self.edges, *added)


def lag_sums(recordings: Iterable[Reading], edges: Iterable[float]) -> LagSums:
    """Add up the pairs of readings of some recordings.

    Parameters
    ----------
    recordings
        (n,) ascending times and (n, d) values of each, NaN where a variable was not read. Rows at one time are one row.
    edges
        (B + 1,) edges of the bins of time between two readings.
    """
    borders = np.asarray(list(edges), dtype=float)
    if borders.ndim != 1 or len(borders) < 2 or borders[0] < 0 or not (np.diff(borders) > 0).all():
        raise ValueError(f"edges must be two or more ascending numbers from 0 on; got {borders.tolist()}")
    total: LagSums | None = None
    for group in _groups(recordings):
        sums = _sums_of(group, borders)
        total = sums if total is None else total + sums
    if total is None:
        raise ValueError("recordings must hold at least one")
    return total


def _groups(
    recordings: Iterable[Reading],
) -> Iterator[list[Reading]]:
    """Recordings that are handled together: a few large products are faster than many small ones."""
    group: list[Reading] = []
    size = 0
    for given_times, given_values in recordings:
        times, values = np.asarray(given_times, dtype=float), np.asarray(given_values, dtype=float)
        if values.ndim != 2 or times.shape != values.shape[:1]:
            raise ValueError(f"times {times.shape} do not belong to values {values.shape}")
        if not np.isfinite(times).all() or (np.diff(times) < 0).any() or np.isinf(values).any():
            raise DataError(
                "times of a recording must be finite and ascending, and its values finite or empty"
            )
        read = ~np.isnan(values).all(axis=1)
        times, values = times[read], values[read]
        if size and size + len(times) > _ROWS_AT_ONCE:
            yield group
            group, size = [], 0
        group.append((times, values))
        size += len(times)
    if group:
        yield group


def _sums_of(group: list[Reading], edges: FloatArray) -> LagSums:
    d = group[0][1].shape[1]
    # Values and whether they are there, side by side: one product has the counts and all three sums.
    times = np.concatenate([times for times, _ in group])
    values = np.concatenate([values for _, values in group])
    owner = np.repeat(np.arange(len(group)), [len(times) for times, _ in group])
    there = ~np.isnan(values)
    rows = np.concatenate([np.where(there, values, 0.0), there], axis=1)
    sums = np.zeros((len(edges), 2 * d, 2 * d))
    delays = np.zeros((len(edges), d, d))
    sums[0] = rows.T @ rows
    for k in range(1, len(rows)):
        delay = times[k:] - times[:-k]
        near = np.flatnonzero((owner[k:] == owner[:-k]) & (delay <= edges[-1]))
        if not len(near):
            break
        delay = delay[near]
        bins = np.where(delay == 0, 0, np.searchsorted(edges, delay))
        bins[(delay > 0) & (delay <= edges[0])] = len(edges)
        order = np.argsort(bins, kind="stable")
        cuts = np.searchsorted(bins[order], np.arange(len(edges) + 1))
        for b in np.flatnonzero(np.diff(cuts)).tolist():
            chosen = order[cuts[b] : cuts[b + 1]]
            first, second = rows[near[chosen]], rows[near[chosen] + k]
            product = second.T @ first
            if b == 0:
                # Two rows at one time: neither is later, and two readings of one variable are no square.
                product = product + product.T
                for part in (slice(0, d), slice(d, 2 * d)):
                    np.fill_diagonal(product[:d, part], 0.0)
                    np.fill_diagonal(product[d:, part], 0.0)
            else:
                delays[b] += (second[:, d:] * delay[chosen, None]).T @ first[:, d:]
            sums[b] += product
    lengths = [times[-1] - times[0] for times, _ in group if len(times)]
    return LagSums(
        edges,
        counts=sums[:, d:, d:].copy(),
        products=sums[:, :d, :d].copy(),
        delays=delays,
        later=sums[:, :d, d:].copy(),
        earlier=sums[:, d:, :d].copy(),
        n_recordings=float(len(lengths)),
        time=float(np.sum(lengths)),
    )


def readings_in_pairs(
    recordings: Iterable[tuple[FloatArray, BoolArray, BoolArray | None]], design: LagDesign
) -> IntArray:
    """(bins, d, d) on how many different readings the sum over each kind of pair rests: of the later variable or of the
    earlier one, whichever are fewer.

    Pairs are many where readings are few: one reading has a pair with every other one.

    Parameters
    ----------
    recordings
        Ascending times (n,), which variables are read then (n, d), and which of these readings have to be in a pair for it to
        count (n, d); None: all.
    """
    shape = design.shape
    found = np.zeros((2, *shape))
    for times, there, chosen in _side_by_side(recordings, 2 * design.edges[-1]):
        others = there & ~chosen
        # As floats: products of whole numbers have no fast routine.
        before_any, before_chosen = _before(there), _before(chosen)
        rows, rest = chosen.astype(np.float64), others.astype(np.float64)
        for b in range(shape[0]):
            low, high = (0.0, 0.0) if b == 0 else design.edges[b - 1 : b + 1].tolist()
            for side, (start, stop) in enumerate(_within(times, low, high)):
                # A chosen reading needs any other, every other reading a chosen one.
                counts = rows.T @ (before_any[stop] > before_any[start]).astype(np.float64)
                if others.any():
                    counts += rest.T @ (before_chosen[stop] > before_chosen[start]).astype(np.float64)
                found[side, b] += counts if side == 0 else counts.T
    return np.asarray(found.min(axis=0).astype(np.int64))


def _side_by_side(
    recordings: Iterable[tuple[FloatArray, BoolArray, BoolArray | None]], gap: float
) -> Iterator[tuple[FloatArray, BoolArray, BoolArray]]:
    """Many short recordings as one, far enough apart that no pair reaches from one to the next."""
    parts: list[tuple[FloatArray, BoolArray, BoolArray]] = []
    start, n = 0.0, 0
    for times, there, wanted in recordings:
        if not len(times):
            continue
        parts.append((times - times[0] + start, there, there if wanted is None else there & wanted))
        start, n = float(parts[-1][0][-1]) + gap, n + len(times)
        if n > _ROWS_AT_ONCE:
            yield _joined(parts)
            parts, start, n = [], 0.0, 0
    if parts:
        yield _joined(parts)


def _joined(parts: list[tuple[FloatArray, BoolArray, BoolArray]]) -> tuple[FloatArray, BoolArray, BoolArray]:
    times, there, chosen = zip(*parts, strict=True)
    return np.concatenate(times), np.concatenate(there), np.concatenate(chosen)


def _within(times: FloatArray, low: float, high: float) -> Iterator[tuple[IntArray, IntArray]]:
    """For each row which rows are earlier, then which are later, by more than `low` and up to `high`; 0: at the same time."""
    if high == 0:
        same = np.searchsorted(times, times, "left"), np.searchsorted(times, times, "right")
        yield from (same, same)
        return
    yield np.searchsorted(times, times - high, "left"), np.searchsorted(times, times - low, "left")
    yield np.searchsorted(times, times + low, "right"), np.searchsorted(times, times + high, "right")


def _before(there: BoolArray) -> IntArray:
    """(n + 1, d) how many readings come before each row."""
    none = np.zeros((1, there.shape[1]), dtype=np.int32)
    return np.concatenate([none, np.cumsum(there, axis=0, dtype=np.int32)])
