"""Recordings that are already in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.designs.recordings import Block, Recording, SiteData
from feddbn.errors import DataError, Given
from feddbn.findings import Finding

__all__ = ["AlignedSite", "ArrayRecording", "MemorySite"]


@dataclass(frozen=True)
class ArrayRecording:
    """A recording as a tuple of contiguous segments; a lag never crosses from one to the next.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data import read_sites
    >>> recording = next(read_sites({"a": np.ones((5, 2))})["a"].recordings())
    >>> recording.name, [block.values.shape for block in recording.blocks()]
    ('recording-0', [(5, 2)])
    """

    name: str
    segments: tuple[Block, ...]

    def blocks(self) -> Iterator[Block]:
        """Yield the segments."""
        yield from self.segments


@dataclass(frozen=True)
class MemorySite:
    """A site's recordings in memory; `n_dropped_rows` were left out (missing values) when they were read.

    `remarks` say what was decided on reading, `step` is the length of a step, None without times.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data import read_sites
    >>> site = read_sites({"a": [np.ones((5, 2)), np.ones((7, 2))]})["a"]
    >>> site.variables, len(list(site.recordings()))
    (('x0', 'x1'), 2)
    """

    variables: tuple[str, ...]
    items: Sequence[ArrayRecording]
    n_dropped_rows: int = 0
    remarks: tuple[Finding, ...] = ()
    step: str | None = None

    def recordings(self) -> Iterator[ArrayRecording]:
        """Yield the recordings."""
        yield from self.items


@dataclass(frozen=True)
class AlignedSite:
    """Another site seen through `variables`: some of its columns in this order, to line up with others."""

    variables: tuple[str, ...]
    site: SiteData

    @property
    def n_dropped_rows(self) -> int:
        """Rows the underlying site dropped."""
        return int(getattr(self.site, "n_dropped_rows", 0))

    @property
    def remarks(self) -> tuple[Finding, ...]:
        """What was decided when the underlying site was read."""
        return tuple(getattr(self.site, "remarks", ()))

    @property
    def step(self) -> str | None:
        """The length of a step, None without times."""
        return getattr(self.site, "step", None)

    def recordings(self) -> Iterator[Recording]:
        """Yield the recordings with reordered columns."""
        own = list(self.site.variables)
        order = tuple(own.index(name) for name in self.variables)
        for recording in self.site.recordings():
            yield _Reordered(recording, order)


LARGEST = 1e100
"""Cells beyond this cannot be squared and summed."""


def check_magnitudes(sites: Mapping[str, SiteData]) -> None:
    """Refuse cells in memory that are too large to compute with.

    For fits in one process only: where sites answer for themselves, whether one refuses must not depend on a single cell.
    """
    for name, site in sites.items():
        for recording in site.recordings() if isinstance(site, MemorySite) else ():
            n_before = 0
            for block in recording.blocks():
                huge = np.abs(block.values) > LARGEST
                if huge.any():
                    row, column = (int(one) for one in np.argwhere(huge)[0])
                    raise DataError(
                        f"recording {recording.name!r} of site {name!r} has {block.values[row, column]:g} in column "
                        f"{site.variables[column]!r} at row {n_before + row} (counted from 0), which is too large to compute "
                        f"with; leave such cells empty, or say what is plausible with {Given('limits')}.",
                        code="huge",
                    )
                n_before += len(block.values)


def with_columns(site: SiteData, variables: tuple[str, ...]) -> SiteData:
    """Return a site with some of its columns; in memory they are copied, as if only they had been read."""
    found = AlignedSite(variables, site)
    if tuple(site.variables) == variables:
        return site
    if not isinstance(site, MemorySite):
        return found
    items = [
        ArrayRecording(
            one.name, tuple(replace(b, values=np.ascontiguousarray(b.values)) for b in one.blocks())
        )
        for one in found.recordings()
    ]
    return replace(site, variables=variables, items=items)


@dataclass(frozen=True)
class _Reordered:
    recording: Recording
    order: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.recording.name

    def blocks(self) -> Iterator[Block]:
        for block in self.recording.blocks():
            yield replace(block, values=block.values[:, list(self.order)])
