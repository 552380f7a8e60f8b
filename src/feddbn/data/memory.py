"""Recordings that are already in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from feddbn.core.lagged import Block

__all__ = ["ArrayRecording", "MemorySite"]


@dataclass(frozen=True)
class ArrayRecording:
    """A recording as a tuple of contiguous segments; a lag never crosses from one to the next."""

    name: str
    segments: tuple[Block, ...]

    def blocks(self) -> Iterator[Block]:
        """Yield the segments."""
        yield from self.segments


@dataclass(frozen=True)
class MemorySite:
    """A site's recordings in memory; `n_dropped_rows` were unusable (missing values) when they were read."""

    variables: tuple[str, ...]
    items: Sequence[ArrayRecording]
    n_dropped_rows: int = 0

    def recordings(self) -> Iterator[ArrayRecording]:
        """Yield the recordings."""
        yield from self.items
