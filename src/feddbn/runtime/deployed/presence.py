"""Which sites of a federation are there, and since when the others are silent, as its lead sees it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from feddbn.runtime.deployed.store import write_atomically

__all__ = ["SILENT_S", "Presence", "SeenSites", "span_in_words"]

SILENT_S = 25.0
"""Sites report every 10 s. One that missed two reports is silent."""
_NEAR_ENOUGH_S = 60.0


@dataclass(frozen=True)
class Presence:
    """One site.

    Attributes
    ----------
    site
        Its name.
    is_here
        Whether it can be asked now.
    heard
        When it was last heard of, in seconds since 1970 by the server's clock; None if it never was.
    """

    site: str
    is_here: bool
    heard: float | None = None

    @property
    def since(self) -> str:
        """When it was last heard of, as text; empty if it never was."""
        return (
            ""
            if self.heard is None
            else datetime.fromtimestamp(self.heard, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        )

    def words(self, now: float | None = None) -> str:
        """Return "west is connected", "west is silent since 2026-01-31 09:15:00 UTC (3 min)" or "... not connected"."""
        if self.is_here:
            return f"{self.site} is connected"
        if self.heard is None:
            return f"{self.site} is not connected"
        gone = (time.time() if now is None else now) - self.heard
        return f"{self.site} is silent since {self.since} ({span_in_words(gone)})"


def span_in_words(seconds: float) -> str:
    """Return a length of time in the two units that matter: "12 s", "3 min 10 s", "5 h 20 min" or "2 days"."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole < 600 and whole % 60 else "")
    if whole < 2 * 86400:
        return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 // 60 else "")
    return f"{whole // 86400} days"


class SeenSites:
    """What a lead remembers of sites: servers forget those that are gone for long.

    Parameters
    ----------
    path
        The file; one that cannot be read is begun anew.
    """

    def __init__(self, path: Path) -> None:
        self._path = Path(path)

    def completed(self, there: Iterable[Presence], named: Iterable[str] = ()) -> list[Presence]:
        """Return what the server says, and those that it no longer knows or that somebody names; remember them all.

        A site that is there reports all the time, and a page looks every two seconds: of it a minute is near enough.
        """
        before = self._read()
        found = {one.site: one for one in there}
        for site in (*before, *named):
            found.setdefault(site, Presence(site, False, before.get(site)))
        heard = {one.site: one.heard for one in found.values() if one.heard is not None}
        if any(_is_news(one, before.get(one.site)) for one in found.values()):
            self._path.parent.mkdir(exist_ok=True, mode=0o700)
            write_atomically(self._path, json.dumps(heard).encode())
        return sorted(found.values(), key=lambda one: one.site)

    def _read(self) -> dict[str, float]:
        try:
            return {str(k): float(v) for k, v in json.loads(self._path.read_text(encoding="utf-8")).items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}


def _is_news(one: Presence, remembered: float | None) -> bool:
    """Whether what is remembered of a site would mislead: it was never heard, went silent since, or a minute has passed."""
    if one.heard is None or one.heard == remembered:
        return False
    return remembered is None or not one.is_here or abs(one.heard - remembered) >= _NEAR_ENOUGH_S
