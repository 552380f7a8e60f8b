"""Sites that come and go by a timetable, over a clock that jumps from one arrival to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from feddbn.errors import ParameterError

__all__ = ["VisitingSites"]

HOUR_S = 3600.0


class Answering(Protocol):
    """A site's end of the line."""

    def handle(self, message: bytes) -> bytes:
        """Return the reply to a message."""
        ...


class VisitingSites:
    """An exchange with sites each of which is there at some hours only.

    A site is opened anew for every message and thrown away after it: all that it knows is on its disk.

    Parameters
    ----------
    open_site
        Starts a site.
    hours
        Site -> (from, to) of each of its visits, in hours from the beginning, in order.
    on_visit
        Told (hour, site) when a site answers a message.
    loses
        ``(hour, site)``: whether the site is killed before its reply has left.
    """

    def __init__(
        self,
        open_site: Callable[[str], Answering],
        hours: Mapping[str, Sequence[tuple[float, float]]],
        on_visit: Callable[[float, str], None] = lambda hour, site: None,
        loses: Callable[[float, str], bool] = lambda hour, site: False,
    ) -> None:
        for site, visits in hours.items():
            if any(not start < end for start, end in visits):
                raise ParameterError(f"hours has a visit of {site!r} that ends before it begins.")
        self._open = open_site
        self._hours = {site: tuple(visits) for site, visits in hours.items()}
        self._on_visit = on_visit
        self._loses = loses
        self.hour = 0.0

    def clock(self) -> float:
        """Return the time in seconds."""
        return HOUR_S * self.hour

    def wait(self, seconds: float) -> None:
        """Let time pass: at least so long, and then until somebody is there."""
        least = self.hour + seconds / HOUR_S
        starts = [
            max(start, least) for visits in self._hours.values() for start, end in visits if end > least
        ]
        self.hour = min(starts, default=least + 1.0)

    def is_here(self, site: str) -> bool:
        """Whether a site is there now."""
        return any(start <= self.hour < end for start, end in self._hours.get(site, ()))

    def __call__(self, messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return the replies of those who are there."""
        replies = {}
        for site, message in messages.items():
            if self.is_here(site):
                reply = self._open(site).handle(message)
                if self._loses(self.hour, site):
                    continue
                self._on_visit(self.hour, site)
                replies[site] = reply
        return replies
