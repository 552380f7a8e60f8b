"""What every kind of site data offers, however it is stored: all that a site program may read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from feddbn.core.designs.lagged import Block

__all__ = ["Recording", "SiteData"]


class Recording(Protocol):
    """One series of one subject, machine or person: the unit of privacy. Lags never cross recordings."""

    @property
    def name(self) -> str:
        """Name of the recording within its site."""
        ...

    def blocks(self) -> Iterator[Block]:
        """Yield the rows in time order; may be called many times."""
        ...


@runtime_checkable
class SiteData(Protocol):
    """A site's recordings over named variables."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the columns."""
        ...

    def recordings(self) -> Iterator[Recording]:
        """Yield the recordings, always in the same order."""
        ...
