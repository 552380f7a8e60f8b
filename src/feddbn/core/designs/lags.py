"""Bins of the time between two readings, and which readings are in them.

One ladder for everybody: bin k holds the pairs of readings whose delay is near ``2 ** (k / 2)``, two bins for each doubling,

    edge(k) = 2 ** ((k - 1/2) / 2)    in hours, in units of a numeric clock, or in rows

A design says which bins of the ladder it has and nothing else about time. So what differs between the sums of any two designs
is whole bins: edges that anybody could choose would be put on both sides of one pair of readings. Whole numbers of hours or
rows up to 4 have a bin each, and none is at an edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.designs.recordings import Block, Recording, RecordingView, SiteView
from feddbn.errors import ParameterError

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
