"""The one rule about rows: a number that leaves rests on no row of this site, or on at least `min_rows` of them.

Rules of this file
------------------
- It knows no method. A question says which columns of which rows it adds up (`Question.in_view`); here they are counted.
- *Columns.* Where a column has one value but in a few rows, its products with the others are these rows. So the rows that
  differ from its most common value, over the site and within recordings, are none or enough. For a variable with levels the
  same holds for each of them.
- *Empty cells.* Where rows with empty cells count, a sum is over the rows that have a cell, or two. Two such sums differ by
  the rows in which one of two other cells is empty. So for every column and every two others the rows that have the first
  and only one of the two are none or enough; a column that is always there, or never, counts as one of them.
- *Parts.* All of this for each part of the rows that has sums of its own: blocks of time, rows that are held out.

Rows with empty cells that are too few are left out before anything else (`rare_rows`); whatever else is too few is refused.

Known weakness: a column that varies a little everywhere and very much in one row passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.designs.design import design_rows
from feddbn.core.designs.recordings import (
    ROWS_OF_A_RECORDING,
    CompleteRows,
    Recording,
    RowNumbers,
    SiteData,
    WithoutRows,
)
from feddbn.federation.programs.statistics import held_out_part, training_part
from feddbn.federation.protocol.task import View


@dataclass
class _Column:
    """How often a column has each of its values, as long as these are few."""

    least: int
    counts: dict[float, int] = field(default_factory=dict)
    here: dict[float, int] = field(default_factory=dict)
    n_within: int = 0
    is_sure: bool = False

    def add(self, values: FloatArray) -> None:
        """Take down some values of a recording."""
        if self.is_sure:
            return
        found, counts = np.unique(values[~np.isnan(values)], return_counts=True)
        if len(found) > self.least:
            self.is_sure = True
            return
        for value, n in zip(found.tolist(), counts.tolist(), strict=True):
            self.counts[value] = self.counts.get(value, 0) + n
            self.here[value] = self.here.get(value, 0) + n

    def end_recording(self) -> None:
        """Begin another recording."""
        self.n_within += _varying(self.here)
        self.here = {}
        self.is_sure = self.is_sure or self.n_within >= self.least

    @property
    def varying(self) -> tuple[int, int]:
        """Rows that differ from the most common value: over the site, and within recordings; at most `least` are counted."""
        if self.is_sure:
            return self.least, self.least
        return _varying(self.counts), self.n_within


def _varying(counts: Mapping[float, int]) -> int:
    most = max(counts.values(), default=0)
    # Without a value that comes twice there is no usual one.
    return sum(counts.values()) - (most if most > 1 else 0)


@dataclass
class Part:
    """What is in view in one part of the rows.

    Attributes
    ----------
    n
        Number of rows.
    columns, levels
        One for each column of the design; rows with each level of each variable that has levels.
    patterns
        Which cells rows have, as bytes, and how many rows are like that.
    """

    n: int
    columns: list[_Column]
    levels: list[IntArray]
    patterns: dict[bytes, int] = field(default_factory=dict)

    def add(self, values: FloatArray, view: View) -> None:
        """Take down some rows of a recording."""
        self.n += len(values)
        for column, one in zip(self.columns, values.T, strict=True):
            column.add(one)
        for counts, one in zip(self.levels, _levels(values, view), strict=True):
            counts += np.bincount(one, minlength=len(counts))
        if view.are_pairs:
            packed, counts = np.unique(np.packbits(~np.isnan(values), axis=1), axis=0, return_counts=True)
            for row, n in zip(packed, counts.tolist(), strict=True):
                self.patterns[row.tobytes()] = self.patterns.get(row.tobytes(), 0) + n

    def rare(self, least: int, q: int) -> tuple[set[bytes], int]:
        """Patterns of empty cells without which no sum is over few rows, and the fewest rows that one is over with them."""
        if len(self.patterns) < 2 and self.n >= least:
            return set(), 0
        keys = list(self.patterns)
        counts = np.array([self.patterns[key] for key in keys])
        bits = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), -1)
        masks = np.unpackbits(bits, axis=1, count=q).astype(bool)
        goes, fewest = np.zeros(len(keys), dtype=bool), 0
        while True:
            bad, few = _few_by_cells(masks, np.where(goes, 0, counts), least)
            if not few:
                return {key for key, is_gone in zip(keys, goes, strict=True) if is_gone}, fewest
            fewest = fewest or few
            goes |= bad

    def few(self, least: int, view: View) -> int:
        """The fewest rows, more than none and less than `least`, that some number would rest on; 0 if there are none."""
        if view.is_rounded:
            return 0
        found = [n for column in self.columns for n in column.varying]
        found += [int(n) for counts in self.levels for n in counts]
        if view.are_pairs:
            found.append(self.rare(least, view.design.q)[1])
        return min((n for n in found if 0 < n < least), default=0)


def _few_by_cells(masks: BoolArray, counts: IntArray, least: int) -> tuple[BoolArray, int]:
    """(u,) patterns in sums, or differences of two sums of one column, over few rows; and the fewest such rows."""
    # Columns that are there in the same rows are one; one is never there, and so a sum is a difference, too.
    kinds = np.unique(np.concatenate([masks, np.zeros((len(masks), 1), dtype=bool)], axis=1), axis=1)
    bad, fewest = np.zeros(len(masks), dtype=bool), 0
    for own in kinds.T:
        here = np.flatnonzero(own & (counts > 0))
        present, weights = kinds[here].astype(np.float64), counts[here].astype(np.float64)
        both = present.T @ (present * weights[:, None])
        one = np.diag(both)
        differ = one[:, None] + one[None, :] - 2 * both
        for j, k in np.argwhere(np.triu((differ > 0.5) & (differ < least - 0.5), 1)):
            bad[here[kinds[here, j] != kinds[here, k]]] = True
            fewest = min(fewest or least, round(float(differ[j, k])))
    return bad, fewest


def _levels(values: FloatArray, view: View) -> Iterator[IntArray]:
    """The levels of rows, variable by variable, as their columns have them."""
    start = 0
    for coding in view.design.codings:
        columns = values[:, start : start + coding.width]
        start += coding.width
        if coding.groups:
            is_indicator = coding.kind.name == "categorical"
            found = columns @ np.arange(1, coding.width + 1) if is_indicator else columns[:, 0]
            yield found.astype(np.int64)


def parts_in_view(view: View, data: SiteData, least: int) -> dict[int, Part]:
    """Count what is in view, part by part; of a fold the rows before held-out ones are part 0, and these part 1."""
    sizes = [coding.kind.n_levels for coding in view.design.codings if coding.groups]
    parts: dict[int, Part] = {}
    for recording in view.seen(data).recordings():
        for number, piece in enumerate(_pieces(recording, view)):
            for rows in design_rows(view.design, piece.blocks()):
                values, times = rows.values, rows.time + np.arange(len(rows.values))
                if view.is_whole:
                    some = ~np.isnan(values).all(axis=1)
                    values, times = values[some], times[some]
                labels = None if view.part_of is None else rows.labels
                at = np.full(len(values), number) if view.part_of is None else view.part_of(times, labels)
                for k in np.unique(at).tolist():
                    if k not in parts:
                        columns = [_Column(least) for _ in range(view.design.q)]
                        parts[k] = Part(0, columns, [np.zeros(n, dtype=np.int64) for n in sizes])
                    parts[k].add(values[at == k], view)
        for part in parts.values():
            for column in part.columns:
                column.end_recording()
    return parts


def view_key(view: View) -> tuple[object, ...]:
    """What tells two views of one site's data apart."""
    parts = (one.tobytes() if isinstance(one, np.ndarray) else one for one in view.key)
    return (view.design.digest, view.is_whole, view.are_pairs, view.is_rounded, view.fold, *parts)


def _pieces(recording: Recording, view: View) -> Iterator[Recording]:
    parts = [recording]
    if view.fold:
        held_out = held_out_part(recording, view.fold, view.design.n_lags)
        parts = [training_part(recording, view.fold), held_out]
    return iter(parts) if view.is_whole else map(CompleteRows, parts)


def rare_rows(view: View, data: SiteData, order: Mapping[str, int], least: int) -> RowNumbers:
    """Numbers of the rows that have to be left out, since what they have in common is seen in few of them.

    Of a lagged row those go that have an empty cell; if none has, the last.
    """
    left_out = np.zeros(0, dtype=np.int64)
    width, d = view.design.n_lags + 1, view.design.d
    while True:
        seen = WithoutRows(data, left_out, order, ends_segments=True)
        rare = {k: part.rare(least, view.design.q)[0] for k, part in parts_in_view(view, seen, least).items()}
        if not any(rare.values()):
            return left_out
        goes = [left_out]
        for recording in view.seen(seen).recordings():
            first = order[recording.name] * ROWS_OF_A_RECORDING
            for number, piece in enumerate(_pieces(recording, view)):
                for rows in design_rows(view.design, piece.blocks()):
                    is_empty = np.isnan(rows.values)
                    keys = [row.tobytes() for row in np.packbits(~is_empty, axis=1)]
                    at = np.flatnonzero([key in rare.get(number, ()) for key in keys])
                    lacks: BoolArray = np.any(is_empty[at].reshape(len(at), width, d), axis=2)
                    lacks[:, 0] |= ~np.any(lacks, axis=1)
                    place, lag = np.nonzero(lacks)
                    goes.append(first + rows.time + at[place] - lag)
        left_out = np.unique(np.concatenate(goes))
