"""Recordings without the rows that have an empty cell, for what cannot use them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from feddbn.core.designs.lagged import Block
from feddbn.core.designs.recordings import Recording

__all__ = ["CompleteRows", "complete_blocks"]


@dataclass(frozen=True)
class CompleteRows:
    """A recording of which rows with an empty cell are left out; a lag never crosses them."""

    recording: Recording

    @property
    def name(self) -> str:
        """Name of the recording."""
        return self.recording.name

    def blocks(self) -> Iterator[Block]:
        """Yield what is complete."""
        return complete_blocks(self.recording.blocks())


def complete_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the complete rows; where one was left out a new segment begins."""
    clock, is_cut = 0, False
    for block in blocks:
        values, n = block.values, len(block.values)
        clock = clock if block.time is None else block.time
        # One finite total proves that no cell is empty, without an (n, d) mask.
        if np.isfinite(values.sum()):
            yield block if not is_cut or block.starts_segment else _part(block, 0, n, clock, True)
            is_cut = False
        else:
            kept = ~np.isnan(values).any(axis=1)
            edges = np.flatnonzero(np.diff(np.r_[False, kept, False].astype(np.int8)))
            for first, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
                yield _part(block, first, stop, clock, first > 0 or is_cut or block.starts_segment)
            is_cut = n > 0 and not kept[-1] if n else is_cut
        clock += n


def _part(block: Block, first: int, stop: int, clock: int, starts_segment: bool) -> Block:
    labels = None if block.labels is None else block.labels[first:stop]
    return Block(block.values[first:stop], starts_segment, labels, clock + first)
