"""A site as its files are now, however long its process lives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from feddbn.errors import FeddbnError
from feddbn.federation.protocol.endpoint import SiteEndpoint
from feddbn.federation.protocol.messages import read_request


class CurrentSite:
    """Answers with the policy as it is at each message, and with data that are read anew for each new run.

    `open` returns the endpoint of the site, with its masks on disk. A run whose policy has changed is looked at again, as
    after a restart of the site; one whose data have changed is refused there.
    """

    def __init__(self, policy: Path | None, open: Callable[[], SiteEndpoint]) -> None:
        self._policy = policy
        self._open = open
        self._opening = threading.Lock()
        self._endpoint: SiteEndpoint | None = None
        self._rules = b""
        self._run = ""

    def handle(self, message: bytes, caller: str = "server") -> bytes:
        """Return the reply to one message."""
        return self._now(message, caller).handle(message, caller)

    def _now(self, message: bytes, caller: str) -> SiteEndpoint:
        kind = run = ""
        if caller == "server":
            # What cannot be read is refused below.
            with suppress(FeddbnError):
                request = read_request(message)
                kind, run = request.kind, request.run_id
        # A message that is asked again while data are still being read must meet the same endpoint.
        with self._opening:
            rules = b"" if self._policy is None else self._policy.read_bytes()
            is_new = kind == "hello" and run != self._run
            if self._endpoint is None or rules != self._rules or is_new:
                self._endpoint = None
                self._endpoint = self._open()
                self._rules, self._run = rules, run
            return self._endpoint
