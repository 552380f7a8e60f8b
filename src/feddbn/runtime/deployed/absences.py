"""Which sites are not in the sums of a run, how often, and why, as far as they said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Absence", "absences_in"]


@dataclass(frozen=True)
class Absence:
    """A site that sums were made without.

    Attributes
    ----------
    site
        Its name.
    missed, sums
        How many of the sums that it was asked for lack it, of how many that the run made.
    why
        What was last heard of it; empty if nothing.
    """

    site: str
    missed: int
    sums: int
    why: str = ""

    @property
    def words(self) -> str:
        """One sentence."""
        often = "all sums" if self.missed == self.sums else f"{self.missed} of {self.sums} sums"
        return f"site {self.site!r} is missing from {often}{f': {self.why}' if self.why else '.'}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, with the sentence."""
        return {**asdict(self), "words": self.words}


def absences_in(events: Iterable[Mapping[str, Any]]) -> list[Absence]:
    """Return the absences that a run's events tell of, by site; a run that was resumed has one file of events."""
    missed: dict[str, set[int]] = {}
    why: dict[str, str] = {}
    sums: set[int] = set()
    for event in events:
        what, site = event.get("what"), str(event.get("site", ""))
        if what == "sum":
            sums.add(int(event["seq"]))
            for name in event.get("missing", ()):
                missed.setdefault(str(name), set()).add(int(event["seq"]))
        elif what in ("silent", "refused") and site:
            why[site] = str(event.get("sentence", ""))
    return [Absence(site, len(of), len(sums), why.get(site, "")) for site, of in sorted(missed.items())]
