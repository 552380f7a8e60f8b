"""What every kind of site data offers, however it is stored: all that a site program may read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar, runtime_checkable

from feddbn.core.designs.lagged import Block

__all__ = ["Recording", "SiteData", "over_parts"]

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
