"""What a server has asked and been told in a collection, on disk: ``<runs>/<run id>/visits.feddbn``.

A *visit* is one message to each of some sites. The book says when a visit was opened, which replies have come, and
whether it was closed without some sites. A reply is on disk before anything is made of it. So a server that is
restarted asks for what is missing, and for nothing twice.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from feddbn.core.encoding import decode, encode
from feddbn.errors import ProtocolError, StateError
from feddbn.federation.protocol.messages import framed, frames
from feddbn.runtime.deployed.lines import for_owner

__all__ = ["Visit", "VisitBook", "visit_name"]


def visit_name(messages: Mapping[str, bytes]) -> str:
    """Return the name of the visit with these messages: the same messages to the same sites have the same."""
    parts = [f"{site} {hashlib.sha256(messages[site]).hexdigest()}" for site in sorted(messages)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@dataclass
class Visit:
    """One message to each of some sites.

    Attributes
    ----------
    opened
        When its window was opened, in seconds.
    replies
        Site -> its reply.
    missing
        Who was left out when it was closed; None while it is open.
    """

    opened: float
    replies: dict[str, bytes] = field(default_factory=dict)
    missing: tuple[str, ...] | None = None


class VisitBook:
    """The visits of a run; without a path they are forgotten with the object.

    `run_directory` and the journal's lock keep two servers from writing it at the same time.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._visits: dict[str, Visit] = {}
        if path is not None and path.exists():
            self._read(path)

    def find(self, name: str) -> Visit | None:
        """Return a visit that was opened before."""
        return self._visits.get(name)

    def open(self, name: str, now: float) -> Visit:
        """Open a visit, or open it again after its window has closed."""
        self._write({"what": "opened", "visit": name, "time": now})
        return self._opened(name, now)

    def add(self, name: str, site: str, reply: bytes) -> None:
        """Take down what a site replied."""
        self._write({"what": "reply", "visit": name, "site": site}, reply)
        self._visits[name].replies[site] = reply

    def close(self, name: str, missing: tuple[str, ...]) -> None:
        """Take down that a visit has ended without some sites."""
        self._write({"what": "closed", "visit": name, "missing": list(missing)})
        self._visits[name].missing = missing

    def _opened(self, name: str, now: float) -> Visit:
        before = self._visits.get(name)
        self._visits[name] = Visit(now, {} if before is None else before.replies)
        return self._visits[name]

    def _write(self, values: dict[str, Any], reply: bytes = b"") -> None:
        if self._path is None:
            return
        record = framed(encode({"type": "visit", **values}, {"reply": np.frombuffer(reply, dtype=np.uint8)}))
        with open(self._path, "ab", opener=for_owner, buffering=0) as file:
            file.write(record)
            os.fsync(file.fileno())

    def _read(self, path: Path) -> None:
        stored, whole = path.read_bytes(), 0
        for offset, record in frames(stored):
            try:
                meta, arrays = decode(record)
                self._take(meta, arrays["reply"].tobytes())
            except (ProtocolError, KeyError) as error:
                if offset + len(framed(record)) == len(stored):
                    break
                raise StateError(f"{path} is damaged at byte {offset}: {error}; begin a new run.") from None
            whole = offset + len(framed(record))
        if whole < len(stored):
            # Half a record: the machine died while it was written, before anything was made of it.
            os.truncate(path, whole)

    def _take(self, meta: Mapping[str, Any], reply: bytes) -> None:
        what, name = meta["what"], str(meta["visit"])
        if what == "opened":
            self._opened(name, float(meta["time"]))
        elif what == "reply":
            self._visits[name].replies[str(meta["site"])] = reply
        else:
            self._visits[name].missing = tuple(meta["missing"])
