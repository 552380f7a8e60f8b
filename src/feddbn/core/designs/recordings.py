"""What every kind of site data offers, however it is stored: all that a site program may read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from feddbn.core.designs.lagged import CHUNK_ROWS, Block, stretches

__all__ = ["Recording", "SiteData", "known_segments", "over_parts", "usable_runs"]

T = TypeVar("T")


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


def known_segments(recording: Recording) -> Sequence[tuple[int, int]] | None:
    """What a recording without empty cells may offer as ``known_segments()``: (time of the first row, rows) of each one."""
    known: Any = getattr(recording, "known_segments", None)
    return None if known is None else known()


def usable_runs(recording: Recording, n_lags: int) -> list[tuple[int, int]]:
    """(time of the first, number) of consecutive rows that have `n_lags` rows before them, at most `CHUNK_ROWS` each.

    A recording that does not know its segments is read.
    """
    segments = known_segments(recording)
    if segments is None:
        return [(part.time, part.values.shape[-2] - n_lags) for part in stretches(recording.blocks(), n_lags)]
    return [
        (time + start, min(CHUNK_ROWS, n - start))
        for time, n in segments
        for start in range(n_lags, n, CHUNK_ROWS)
    ]


def over_parts(recording: Recording, n_lags: int, work: Callable[[Recording], T]) -> list[T]:
    """Return `work` of every part of a recording, in the order of time.

    A recording that other machines read offers ``over_parts(n_lags, work)``: every row that has `n_lags` rows before it has
    them in exactly one part. Any other recording is one part.
    """
    parted: Any = getattr(recording, "over_parts", None)
    return [work(recording)] if parted is None else list(parted(n_lags, work))


@runtime_checkable
class SiteData(Protocol):
    """A site's recordings over named variables.

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
