"""What every kind of site data offers, however it is stored: all that a site program may read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from feddbn.core.designs.lagged import Block

__all__ = ["Recording", "SiteData"]


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
