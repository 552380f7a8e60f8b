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
    r"cannot send to 'server'|no connection to server|Connector \[\S+ ACTIVE .*failed with exception (?P<why>.*)"
)
_MOST_WORDS = 200
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
        self._is_lost = False
        # Reason -> when it was last told; the engine mentions it in some of its lines only.
        self._told: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the terminal shows a record."""
        name = str(getattr(record, "fullName", record.name))
        if name.startswith(SITE):
            return True
        if name.startswith(_TRANSPORT) and self._is_about_the_server(record.getMessage()):
            return False
        return record.levelno > logging.INFO

    def _is_about_the_server(self, message: str) -> bool:
        """Say once that the server is gone and why, or that it is back; return whether the message was about that."""
        lost = _LOST.search(message)
        if lost is not None:
            self._is_lost = True
            why = (lost["why"] or "")[:_MOST_WORDS].strip()
            now = self._clock()
            if now - self._told.get(why, -self._every_s) >= self._every_s and (why or not self._told):
                self._told[why] = now
                said = "the server cannot be reached; this site keeps trying"
                logging.getLogger(SITE).warning("%s%s", said, f" ({why})" if why else "")
            return True
        if self._is_lost and _FOUND.search(message):
            self._is_lost, self._told = False, {}
            logging.getLogger(SITE).info("the server can be reached again")
            return True
        return False
