"""Later blocks of every recording, held out one after the other.

A fold is (block b, number of blocks B, share in thousandths). It trains on the rows before block b of the last `share` of a
recording and tests on block b: the future is never used to predict the past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from feddbn.core.designs.recordings import Block, Recording, SiteData
from feddbn.errors import DataError


@dataclass(frozen=True)
class SitePart:
    """A site with a part of each recording."""

    data: SiteData
    part: Callable[[Recording], Recording]

    @property
    def variables(self) -> tuple[str, ...]:
        """Those of the site."""
        return self.data.variables

    def recordings(self) -> Iterator[Recording]:
        """The parts."""
        return map(self.part, self.data.recordings())


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


@dataclass(frozen=True)
class _Part:
    """Rows start <= t < stop of a recording."""

    recording: Recording
    start: int
    stop: int

    @property
    def name(self) -> str:
        return self.recording.name

    def blocks(self) -> Iterator[Block]:
        offset, is_first = 0, True
        for block in self.recording.blocks():
            low, high = max(self.start - offset, 0), min(self.stop - offset, len(block.values))
            offset += len(block.values)
            if low < high:
                labels = None if block.labels is None else block.labels[low:high]
                time = None if block.time is None else block.time + low
                yield Block(block.values[low:high], is_first or block.starts_segment or low > 0, labels, time)
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
    return _Part(recording, 0, _bounds(recording, fold)[0]) if fold else recording


def held_out_part(recording: Recording, fold: tuple[int, ...], n_lags: int) -> Recording:
    """Return the held-out block, with the `n_lags` rows before it that only serve as lags."""
    start, stop = _bounds(recording, fold)
    return _Part(recording, max(start - n_lags, 0), stop)
