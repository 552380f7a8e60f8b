"""What a site's terminal shows: studies, warnings, and in plain words whether the server can be reached.

Named in ``local/log_config.json`` of kits. The engine's own log, ``log.txt`` in the kit, has everything.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

__all__ = ["StudiesOnly"]

SITE = "feddbn.site"
_TRANSPORT = "nvflare.fuel.f3"
_LOST = re.compile(
    r"cannot send to 'server'|no connection to server|Connector \[\S+ ACTIVE .*failed with exception"
)
_FOUND = re.compile(r"Connection \[.* => .*\] is created")


class StudiesOnly(logging.Filter):
    """Passes what the site says and warnings; of the engine's many lines about a lost connection it makes one.

    Parameters
    ----------
    every_s
        How often a server that cannot be reached is told again.
    clock
        Seconds that only grow.
    """

    def __init__(self, every_s: float = 300.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._every_s = every_s
        self._clock = clock
        self._lost_at: float | None = None
        self._told_at = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the terminal shows a record."""
        name = str(getattr(record, "fullName", record.name))
        if name.startswith(SITE):
            return True
        if name.startswith(_TRANSPORT) and self._is_about_the_server(record.getMessage()):
            return False
        return record.levelno > logging.INFO

    def _is_about_the_server(self, message: str) -> bool:
        """Say once that the server is gone, or that it is back; return whether the message was about that."""
        if _LOST.search(message):
            now = self._clock()
            if self._lost_at is None or now - self._told_at >= self._every_s:
                self._lost_at, self._told_at = self._lost_at or now, now
                logging.getLogger(SITE).warning("the server cannot be reached; this site keeps trying")
            return True
        if self._lost_at is not None and _FOUND.search(message):
            self._lost_at = None
            logging.getLogger(SITE).info("the server can be reached again")
            return True
        return False
