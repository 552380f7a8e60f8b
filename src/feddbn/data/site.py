"""What was read of one site: recordings of rows, a profile of its tables, and what was found on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from feddbn.core.designs.recordings import Block, SiteData, known_segments
from feddbn.core.designs.recordings import Recording as AnyRecording
from feddbn.data.rows import BATCH_ROWS, Rows
from feddbn.data.times import Clock, clock_of
from feddbn.errors import DataError, Given
from feddbn.findings import Finding

if TYPE_CHECKING:
    from feddbn.data.profile import Profile

__all__ = ["Recording", "Site", "check_magnitudes", "with_columns"]


@dataclass(frozen=True)
class Recording:
    """One series: contiguous segments, in blocks; a lag never crosses from one segment to the next.

    Attributes
    ----------
    known
        The time of the first row and the number of rows of each segment, where no cell is missing.
    end, last
        The time step and the time of its last row, which may be empty.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data import read_sites
    >>> recording = next(read_sites({"a": np.ones((5, 2))})["a"].recordings())
    >>> recording.name, [block.values.shape for block in recording.blocks()]
    ('recording-0', [(5, 2)])
    """

    name: str
    segments: Iterable[Block]
    known: Sequence[tuple[int, int]] | None = None
    end: int = -1
    last: Any = None

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks of all segments."""
        yield from self.segments

    def known_segments(self) -> Sequence[tuple[int, int]] | None:
        """(time of the first row, number of rows) of each segment, where no cell is missing."""
        return self.known


@dataclass(frozen=True)
class StoredSegments:
    """Segments of rows that are stored: whole ones of memory, batches of files; first row, end and time of each."""

    rows: Rows
    spans: Sequence[tuple[int, int, int]]

    def __iter__(self) -> Iterator[Block]:
        for first, end, time in self.spans:
            at_once = BATCH_ROWS if self.rows.is_in_files else end - first
            for start in range(first, end, at_once):
                stop = min(start + at_once, end)
                labels = self.rows.read("label", start, stop) if "label" in self.rows else None
                values = self.rows.read("values", start, stop)
                yield Block(values, start == first, labels, time + start - first)


@dataclass(frozen=True)
class Site:
    """A site's recordings.

    Attributes
    ----------
    n_dropped_rows
        Rows that are in no segment.
    findings
        What was decided on reading.
    clock
        How time is counted, None without times.
    profile
        What its tables show, counted while they were read.
    refused
        Why its rows cannot be used; it has no recordings then.
    views
        How it was seen, which can be computed again.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data import read_sites
    >>> site = read_sites({"a": [np.ones((5, 2)), np.ones((7, 2))]})["a"]
    >>> site.variables, len(list(site.recordings()))
    (('x0', 'x1'), 2)
    """

    variables: tuple[str, ...]
    items: Iterable[Recording]
    n_dropped_rows: int = 0
    findings: tuple[Finding, ...] = ()
    clock: Clock | None = None
    profile: Profile | None = None
    refused: DataError | None = None
    views: dict[Any, SiteData] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def step(self) -> str | None:
        """The length of a step as text, None without times."""
        return None if self.clock is None else self.clock.text

    def recordings(self) -> Iterator[Recording]:
        """Yield the recordings."""
        yield from self.items


@dataclass(frozen=True)
class _Picked:
    """The blocks of a recording with some of its columns in this order, as if only they had been read."""

    recording: AnyRecording
    order: tuple[int, ...]

    def __iter__(self) -> Iterator[Block]:
        for block in self.recording.blocks():
            yield replace(block, values=np.ascontiguousarray(block.values[:, self.order]))


@dataclass(frozen=True)
class _Seen:
    """The recordings of a site with some of its columns."""

    site: SiteData
    order: tuple[int, ...]

    def __iter__(self) -> Iterator[Recording]:
        for one in self.site.recordings():
            yield Recording(one.name, _Picked(one, self.order), known_segments(one))


def with_columns(site: SiteData, variables: tuple[str, ...]) -> SiteData:
    """Return a site with some of its columns in this order; rows are picked whenever they are needed."""
    own = tuple(site.variables)
    if own == variables:
        return site
    items = _Seen(site, tuple(own.index(name) for name in variables))
    dropped, findings = int(getattr(site, "n_dropped_rows", 0)), tuple(getattr(site, "findings", ()))
    clock, step = getattr(site, "clock", None), getattr(site, "step", None)
    clock = clock_of(step) if clock is None and step is not None else clock
    return Site(variables, items, dropped, findings, clock, getattr(site, "profile", None))


LARGEST = 1e100
"""Cells beyond this cannot be squared and summed."""


def check_magnitudes(sites: Mapping[str, SiteData]) -> None:
    """Refuse columns with cells that are too large to compute with.

    For fits in one process only: where sites answer for themselves, whether one refuses must not depend on a single cell.
    """
    for name, site in sites.items():
        largest = site.profile.largest() if isinstance(site, Site) and site.profile is not None else {}
        for column, size in largest.items():
            if size > LARGEST:
                raise DataError(
                    f"site {name!r} has a cell of size {size:g} in column {column!r}, which is too large to compute with; "
                    f"leave such cells empty, or say what is plausible with {Given('limits')}.",
                    code="huge",
                )
