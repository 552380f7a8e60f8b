"""Recordings of rows, however they are stored, and how they are seen: with lags, without gaps, by numbers.

Lagged rows are ``z_t = [x_t, x_{t-1}, ..., x_{t-p}]``. Orientation, stated once for the whole package: a coefficient
matrix is indexed ``[from, to]``; the stack ``C = [W; A_1; ...; A_p]`` has shape ``((p+1) d, d)``; the columns of ``z``
are in the same order as the rows of ``C``.

`complete_rows` are what programs read that cannot use rows with missing cells. A row with a missing cell is left out and
ends its segment, so that no lag reaches over it. Wrap a recording, or a whole site, in one line; data without missing
cells pass through unchanged.

`WithoutRows` knows rows by numbers that do not depend on which variables are read. The number of a row is made of its
recording and of the time since the recording's first row. Both are the same whichever variables are chosen, so that two
choices can be compared row by row.

Folds are later blocks of every recording, held out one after the other. A fold is (block b, number of blocks B, share in
thousandths). It trains on the rows before block b of the last `share` of a recording and tests on block b: the future is
never used to predict the past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray, may_lack_cells
from feddbn.errors import DataError

CHUNK_ROWS = 4096


@dataclass(frozen=True)
class Block:
    """Rows that directly follow each other in time.

    Attributes
    ----------
    values
        (n, d), finite; with ``missing="keep"`` NaN where a cell is missing (`complete` leaves such rows out).
    starts_segment
        False if the first row directly follows the last row of the block before it; a lag may then reach
        back.
    labels
        One label per row, or None; used to centre rows group by group.
    time
        Sampling steps from the recording's first row to this block's first; None if no time is known to have
        passed since the block before.
    weights
        (n,) how much each row counts in every sum (`core.designs.weights`); None: 1.
    """

    values: FloatArray
    starts_segment: bool = True
    labels: NDArray[np.generic] | None = None
    time: int | None = None
    weights: FloatArray | None = None

    def part(self, start: int, stop: int, starts_segment: bool, time: int | None) -> Block:
        """Some of its rows, as a block."""
        labels = None if self.labels is None else self.labels[start:stop]
        weights = None if self.weights is None else self.weights[start:stop]
        return Block(self.values[start:stop], starts_segment, labels, time, weights)


@dataclass(frozen=True)
class Stretch:
    """Contiguous rows of one segment, of which the last m are usable: the first p serve as their lags.

    Attributes
    ----------
    values
        (p + m, d).
    starts_segment
        Whether no stretch of this segment came before.
    labels
        (m,) labels of the usable rows, or None.
    time
        Sampling steps from the recording's first row to the first usable one.
    weights
        (m,) those of the usable rows, or None.
    """

    values: FloatArray
    starts_segment: bool
    labels: NDArray[np.generic] | None
    time: int
    weights: FloatArray | None = None


def stretches(blocks: Iterable[Block], n_lags: int, chunk_rows: int = CHUNK_ROWS) -> Iterator[Stretch]:
    """Yield every usable row once, with its lags, at most `chunk_rows` of them at a time.

    A row is usable if its `n_lags` predecessors lie in the same segment. Blocks are cut, not copied; where one
    continues a segment, the `n_lags` rows before it are put in front of its first chunk.
    """
    tail: FloatArray | None = None
    is_first, clock = True, 0
    for block in blocks:
        values = block.values
        clock = clock if block.time is None else block.time
        if block.starts_segment or tail is None:
            tail, is_first = values[:0], True
        n_carried, n = len(tail), len(values)
        n_usable = n_carried + n - n_lags
        for start in range(0, n_usable, chunk_rows):
            low, high = start - n_carried, min(start + chunk_rows, n_usable) + n_lags - n_carried
            rows = values[low:high] if low >= 0 else np.concatenate([tail[start:], values[:high]])
            labels = None if block.labels is None else block.labels[low + n_lags : high]
            weights = None if block.weights is None else block.weights[low + n_lags : high]
            yield Stretch(rows, is_first, labels, clock + low + n_lags, weights)
            is_first = False
        clock += n
        if n < n_lags:
            values = np.concatenate([tail, values])
        tail = values[max(len(values) - n_lags, 0) :]


PIECE_ROWS = 1 << 16
"""Rows of a segment that are looked at together: what is found depends on segments, not on how they are read."""


def pieces(blocks: Iterable[Block]) -> Iterator[tuple[FloatArray, FloatArray | None]]:
    """Yield the rows (n, d) of each segment of a recording, and their weights, at most `PIECE_ROWS` at a time, however blocks
    cut it.
    """
    held: list[Block] = []
    n = 0
    for block in blocks:
        if block.starts_segment and n:
            yield _joined(held)
            held, n = [], 0
        while n + len(block.values) >= PIECE_ROWS:
            room = PIECE_ROWS - n
            yield _joined([*held, block.part(0, room, False, None)])
            held, n, block = [], 0, block.part(room, len(block.values), False, None)
        if len(block.values):
            held.append(block)
            n += len(block.values)
    if n:
        yield _joined(held)


def _joined(blocks: Sequence[Block]) -> tuple[FloatArray, FloatArray | None]:
    weights = [one.weights for one in blocks if one.weights is not None]
    return np.concatenate([one.values for one in blocks]), np.concatenate(weights) if weights else None


def lagged_rows(blocks: Iterable[Block], n_lags: int, chunk_rows: int = CHUNK_ROWS) -> Iterator[FloatArray]:
    """Yield arrays (m, (n_lags+1) d) whose rows are z_t, at most `chunk_rows` rows each."""
    for stretch in stretches(blocks, n_lags, chunk_rows):
        m, d = len(stretch.values) - n_lags, stretch.values.shape[1]
        rows = np.empty((m, (n_lags + 1) * d))
        stack_lags(stretch.values, range(n_lags + 1), rows)
        yield rows


def stack_lags(values: FloatArray, lags: Sequence[int], out: FloatArray) -> None:
    """Write the values (p + m, k) at each of the lags, side by side, into the m rows of `out`."""
    m, (n, k) = len(out), values.shape
    for position, lag in enumerate(lags):
        first = n - m - lag
        out[:, position * k : (position + 1) * k] = values[first : first + m]


class Recording(Protocol):
    """One series of one subject, machine or person: the unit of privacy. Lags never cross recordings.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data import read_sites
    >>> recording = next(read_sites({"a": np.ones((5, 2))})["a"].recordings())
    >>> sum(len(block.values) for block in recording.blocks())
    5
    """

    @property
    def name(self) -> str:
        """Name of the recording within its site."""
        ...

    def blocks(self) -> Iterator[Block]:
        """Yield the rows in time order; may be called many times."""
        ...


def all_rows(recording: Recording) -> tuple[FloatArray, FloatArray]:
    """All rows of a recording, and at which time step each is."""
    pieces, steps, end = [], [], -1
    for block in recording.blocks():
        first = end + 1 if block.time is None else block.time
        pieces.append(block.values)
        steps.append(first + np.arange(len(block.values), dtype=np.float64))
        end = first + len(block.values) - 1
    return np.concatenate(pieces), np.concatenate(steps)


def known_segments(recording: Recording) -> Sequence[tuple[int, int]] | None:
    """What a recording without empty cells may offer as ``known_segments()``: (time of the first row, rows) of each one."""
    known: Any = getattr(recording, "known_segments", None)
    return None if known is None else known()


def usable_runs(recording: Recording, n_lags: int) -> tuple[tuple[int, int], ...]:
    """(time of the first, number) of consecutive rows that have `n_lags` rows before them, at most `CHUNK_ROWS` each.

    A recording that does not know its segments is read.
    """
    segments = known_segments(recording)
    if segments is None:
        parts = stretches(recording.blocks(), n_lags)
        return tuple((part.time, part.values.shape[-2] - n_lags) for part in parts)
    return tuple(
        (time + start, min(CHUNK_ROWS, n - start))
        for time, n in segments
        for start in range(n_lags, n, CHUNK_ROWS)
    )


@runtime_checkable
class SiteData(Protocol):
    """A site's recordings over named variables.

    A site whose rows have times may say the length of a step as text, ``step="1h"``.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data import SiteData, read_sites
    >>> site = read_sites({"a": np.ones((5, 2))})["a"]
    >>> isinstance(site, SiteData), site.variables
    (True, ('x0', 'x1'))
    """

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the columns."""
        ...

    def recordings(self) -> Iterator[Recording]:
        """Yield the recordings, always in the same order."""
        ...


def complete_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the blocks without rows that have a missing cell; what follows such a row begins a segment."""
    clock, is_cut, is_late = 0, False, False
    for block in blocks:
        n = block.values.shape[-2]
        clock = clock if block.time is None else block.time
        has_gap = may_lack_cells(block.values)
        keep = np.asarray(~np.isnan(block.values).any(axis=1) if has_gap else np.ones(0, dtype=bool))
        if not has_gap or keep.all():
            if is_late:
                block = replace(block, starts_segment=block.starts_segment or is_cut, time=clock)
            yield block
            is_cut = is_cut and n == 0
        else:
            edges = np.flatnonzero(np.diff(np.concatenate([[False], keep, [False]]).astype(np.int8)))
            for start, stop in edges.reshape(-1, 2).tolist():
                begins = start > 0 or block.starts_segment or is_cut
                yield block.part(start, stop, begins, clock + start)
            is_late, is_cut = True, not keep[-1]
        clock += n


@dataclass(frozen=True)
class RecordingView:
    """A recording whose blocks are `seen` otherwise; `has_same_rows` says that its segments stay as they are."""

    recording: Recording
    seen: Callable[[Recording], Iterable[Block]]
    has_same_rows: bool = False

    @property
    def name(self) -> str:
        """Name of the recording."""
        return self.recording.name

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks as they are seen."""
        yield from self.seen(self.recording)

    def known_segments(self) -> Sequence[tuple[int, int]] | None:
        """Those of the recording, if it has them still."""
        return known_segments(self.recording) if self.has_same_rows else None


@dataclass(frozen=True)
class SiteView:
    """A site whose recordings are seen otherwise."""

    data: SiteData

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.data.variables)

    @property
    def step(self) -> str | None:
        """The length of a step, None without times."""
        return getattr(self.data, "step", None)

    def recordings(self) -> Iterator[Recording]:
        """Yield the recordings as they are seen."""
        raise NotImplementedError


@dataclass(frozen=True)
class SitePart(SiteView):
    """A site with a part of each recording, or each seen otherwise."""

    part: Callable[[Recording], Recording]

    def recordings(self) -> Iterator[Recording]:
        """Yield the parts."""
        return map(self.part, self.data.recordings())


def complete_rows(recording: Recording) -> Recording:
    """Return a recording without its rows with missing cells; a segment ends at every row that is left out."""
    # One that knows its segments lacks no cell.
    return RecordingView(recording, lambda one: complete_blocks(one.blocks()), has_same_rows=True)


RowNumbers = NDArray[np.int64]
ROWS_OF_A_RECORDING = 2**40
"""More rows than a recording has."""


@dataclass(frozen=True)
class SiteRows:
    """The rows of a site, sorted.

    Attributes
    ----------
    every, complete
        Numbers of all rows, and of those without an empty cell.
    starts
        Numbers of the rows that begin a segment: no lag reaches over them.
    """

    every: RowNumbers
    complete: RowNumbers
    starts: RowNumbers

    def lagged(self, rows: RowNumbers, n_lags: int) -> RowNumbers:
        """Return those of some rows whose `n_lags` predecessors are among them, too."""
        if n_lags == 0 or not len(rows):
            return rows
        begins = np.concatenate([[True], np.diff(rows) != 1]) | np.isin(rows, self.starts)
        place = np.arange(len(rows))
        since = place - np.maximum.accumulate(np.where(begins, place, 0))
        return rows[since >= n_lags]


def site_rows(site: SiteData, order: Mapping[str, int]) -> SiteRows:
    """Return the rows of a site; `order` has the number of each recording."""
    found: list[list[RowNumbers]] = [[], [], []]
    for recording in site.recordings():
        for numbers, block in numbered(recording, order):
            starts = numbers[:1] if block.starts_segment else numbers[:0]
            parts = (numbers, numbers[~np.isnan(block.values).any(axis=1)], starts)
            for one, part in zip(found, parts, strict=True):
                one.append(part)
    none = np.zeros(0, dtype=np.int64)
    return SiteRows(*(np.unique(np.concatenate([none, *parts])) for parts in found))


def numbered(recording: Recording, order: Mapping[str, int]) -> Iterator[tuple[RowNumbers, Block]]:
    """Each block with the numbers of its rows; it says its time, so that a part of it keeps its numbers."""
    first, clock = order[recording.name] * ROWS_OF_A_RECORDING, 0
    for block in recording.blocks():
        clock = clock if block.time is None else block.time
        yield first + clock + np.arange(len(block.values), dtype=np.int64), replace(block, time=clock)
        clock += len(block.values)


@dataclass(frozen=True)
class WithoutRows(SiteView):
    """A site some of whose rows have no cell.

    Attributes
    ----------
    left_out
        Numbers of these rows.
    order
        Number of each recording.
    ends_segments
        Whether a row that is left out ends its segment, so that no row after it has it for a lag.
    """

    left_out: RowNumbers
    order: Mapping[str, int]

    ends_segments: bool = False

    def recordings(self) -> Iterator[Recording]:
        """Yield the recordings with these rows empty."""
        return (RecordingView(one, self._emptied) for one in self.data.recordings())

    def ending_segments(self) -> WithoutRows:
        """The same, so that no row has one that is left out for a lag; sites within this one alike."""
        data = self.data.ending_segments() if isinstance(self.data, WithoutRows) else self.data
        return replace(self, data=data, ends_segments=True)

    def _emptied(self, recording: Recording) -> Iterator[Block]:
        was_cut = False
        for numbers, block in numbered(recording, self.order):
            goes = np.isin(numbers, self.left_out)
            if not len(goes) or not (was_cut or goes.any()):
                yield block
            elif not self.ends_segments:
                yield replace(block, values=np.where(goes[:, None], np.nan, block.values))
            else:
                edges = [0, *(np.flatnonzero(np.diff(goes)) + 1).tolist(), len(goes)]
                for start, stop in pairwise(edges):
                    begins = start > 0 or block.starts_segment or was_cut != goes[0]
                    part = block.part(start, stop, begins, (block.time or 0) + start)
                    yield replace(part, values=np.full_like(part.values, np.nan)) if goes[start] else part
                was_cut = bool(goes[-1])


def training_site(data: SiteData, fold: tuple[int, ...]) -> SiteData:
    """Return a site with its rows before the held-out block; as it is without a fold. A site without a row in it refuses."""
    if not fold:
        return data
    _require_rows(data, fold)
    return SitePart(data, lambda recording: training_part(recording, fold))


def _require_rows(data: SiteData, fold: tuple[int, ...]) -> None:
    """Refuse where this site has no row of some block: sums with and without that block would leave the site out."""
    edges = [_edges(recording, fold) for recording in data.recordings()]
    if not all(any(own[b] < own[b + 1] for own in edges) for b in range(fold[1])):
        raise DataError(
            f"this site has too few rows to hold out {fold[2] / 10:g} % of them in n_blocks={fold[1]} blocks; test on a "
            "larger share, in fewer blocks, or leave the site out."
        )


def _rows_between(start: int, stop: int, recording: Recording) -> Iterator[Block]:
    """Rows start <= t < stop of a recording."""
    offset, is_first = 0, True
    for block in recording.blocks():
        low, high = max(start - offset, 0), min(stop - offset, len(block.values))
        offset += len(block.values)
        if low < high:
            time = None if block.time is None else block.time + low
            yield block.part(low, high, is_first or block.starts_segment or low > 0, time)
            is_first = False


def _edges(recording: Recording, fold: tuple[int, ...]) -> list[int]:
    """Where the blocks begin, and where the last one ends."""
    _, n_blocks, thousandths = fold
    n = sum(len(b.values) for b in recording.blocks())
    first = n - round(n * thousandths / 1000)
    return [first + round((n - first) * i / n_blocks) for i in range(n_blocks + 1)]


def _bounds(recording: Recording, fold: tuple[int, ...]) -> tuple[int, int]:
    edges = _edges(recording, fold)
    return edges[fold[0]], edges[fold[0] + 1]


def training_part(recording: Recording, fold: tuple[int, ...]) -> Recording:
    """Return the rows before the held-out block; all of them without a fold."""
    if not fold:
        return recording
    return RecordingView(recording, partial(_rows_between, 0, _bounds(recording, fold)[0]))


def held_out_part(recording: Recording, fold: tuple[int, ...], n_lags: int) -> Recording:
    """Return the held-out block, with the `n_lags` rows before it that only serve as lags."""
    start, stop = _bounds(recording, fold)
    return RecordingView(recording, partial(_rows_between, max(start - n_lags, 0), stop))
