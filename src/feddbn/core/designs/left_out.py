"""Rows of a site by numbers that do not depend on which variables are read, and a site without some of them.

The number of a row is made of its recording and of the time since the recording's first row. Both are the same whichever
variables are chosen, so that two choices can be compared row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from feddbn.core.designs.lagged import Block
from feddbn.core.designs.recordings import Recording, SiteData

__all__ = ["RowNumbers", "SiteRows", "WithoutRows", "numbered", "site_rows"]

RowNumbers = NDArray[np.int64]
_ROWS = 2**40
"""More rows than a recording has."""


@dataclass(frozen=True)
class SiteRows:
    """The rows of a site, sorted.

    Attributes
    ----------
    every, present, complete
        Numbers of all rows, of those with any cell, and of those without an empty one.
    starts
        Numbers of the rows that begin a segment: no lag reaches over them.
    """

    every: RowNumbers
    present: RowNumbers
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
    found: list[list[RowNumbers]] = [[], [], [], []]
    for recording in site.recordings():
        for numbers, block in numbered(recording, order):
            is_empty = np.isnan(block.values)
            starts = numbers[:1] if block.starts_segment else numbers[:0]
            parts = (numbers, numbers[~is_empty.all(axis=1)], numbers[~is_empty.any(axis=1)], starts)
            for one, part in zip(found, parts, strict=True):
                one.append(part)
    none = np.zeros(0, dtype=np.int64)
    return SiteRows(*(np.unique(np.concatenate([none, *parts])) for parts in found))


def numbered(recording: Recording, order: Mapping[str, int]) -> Iterator[tuple[RowNumbers, Block]]:
    """Each block with the numbers of its rows; it says its time, so that a part of it keeps its numbers."""
    first, clock = order[recording.name] * _ROWS, 0
    for block in recording.blocks():
        clock = clock if block.time is None else block.time
        yield first + clock + np.arange(len(block.values), dtype=np.int64), replace(block, time=clock)
        clock += len(block.values)


@dataclass(frozen=True)
class WithoutRows:
    """A site some of whose rows have no cell.

    Attributes
    ----------
    left_out
        Numbers of these rows.
    order
        Number of each recording.
    """

    site: SiteData
    left_out: RowNumbers
    order: Mapping[str, int]

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.site.variables)

    def recordings(self) -> Iterator[Recording]:
        """Yield the recordings, with these rows empty."""
        return (_Emptied(recording, self.left_out, self.order) for recording in self.site.recordings())


@dataclass(frozen=True)
class _Emptied:
    recording: Recording
    left_out: RowNumbers
    order: Mapping[str, int]

    @property
    def name(self) -> str:
        return self.recording.name

    def blocks(self) -> Iterator[Block]:
        for numbers, block in numbered(self.recording, self.order):
            goes = np.isin(numbers, self.left_out)
            yield (
                replace(block, values=np.where(goes[:, None], np.nan, block.values)) if goes.any() else block
            )
