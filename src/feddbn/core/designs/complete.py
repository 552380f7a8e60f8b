"""Recordings without their rows with missing cells: what programs read that cannot use such rows.

A row with a missing cell is left out and ends its segment, so that no lag reaches over it. Wrap a recording, or a
whole site, in one line; data without missing cells pass through unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from feddbn.core.arrays import may_lack_cells
from feddbn.core.designs.lagged import Block
from feddbn.core.designs.recordings import Recording, SiteData, known_segments, over_parts

__all__ = ["CompleteRows", "CompleteSite", "complete_blocks"]

T = TypeVar("T")


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
                labels = None if block.labels is None else block.labels[start:stop]
                begins = start > 0 or block.starts_segment or is_cut
                yield Block(block.values[start:stop], begins, labels, clock + start)
            is_late, is_cut = True, not keep[-1]
        clock += n


@dataclass(frozen=True)
class CompleteRows:
    """A recording seen without its rows with missing cells."""

    recording: Recording

    @property
    def name(self) -> str:
        """Name of the recording."""
        return self.recording.name

    def blocks(self) -> Iterator[Block]:
        """Yield the complete rows; a segment ends at every row that is left out."""
        return complete_blocks(self.recording.blocks())

    def known_segments(self) -> Sequence[tuple[int, int]] | None:
        """Those of the recording: one that knows them lacks no cell."""
        return known_segments(self.recording)

    def over_parts(self, n_lags: int, work: Callable[[Recording], T]) -> list[T]:
        """Return `work` of the complete rows of every part: whether a row and its lags are complete, its part tells."""
        return over_parts(self.recording, n_lags, partial(_of_complete, work))


def _of_complete(work: Callable[[Recording], T], part: Recording) -> T:
    return work(CompleteRows(part))


@dataclass(frozen=True)
class CompleteSite:
    """A site seen without its rows with missing cells."""

    site: SiteData

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.site.variables)

    def recordings(self) -> Iterator[CompleteRows]:
        """Yield the recordings without such rows."""
        return (CompleteRows(recording) for recording in self.site.recordings())
