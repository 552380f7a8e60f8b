"""What carries messages between the server and its sites: the only thing an engine has to provide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

__all__ = ["Exchange"]


class Exchange(Protocol):
    """One message to each named site, one reply from each that answered in time; who is missing has dropped out."""

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        ...

    def __call__(self, messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Send and wait; never raises for a site that is silent."""
        ...
