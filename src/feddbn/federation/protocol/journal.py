"""The server's checkpoint: an append-only journal of sums; resuming is replaying.

A server program is deterministic. Its journal therefore needs no program state: a header (run, study,
version, sites) and one record per sum (number, task digest, contributors, value) are enough. Resuming runs
the program again, feeds it the recorded sums after checking that it asked the same questions, and goes on
live where the journal ends: bit-identical by construction.

Layout: records one after the other, each an 8-byte length and a self-checking message that names the digest
of the record before it. The last record may be torn (the machine died while writing it): it is dropped.
Damage anywhere else raises `StateError`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from feddbn.core.encoding import decode, encode
from feddbn.errors import ProtocolError, StateError
from feddbn.federation.protocol.frames import framed, frames
from feddbn.federation.protocol.task import Sum

__all__ = ["Entry", "Header", "Journal", "read_journal"]


@dataclass(frozen=True)
class Header:
    """What a run is: it never changes after the first record."""

    run_id: str
    study: str
    study_digest: str
    version: str
    sites: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """One sum that was counted."""

    seq: int
    digest: str
    answer: Sum


class Journal:
    """The records of a run; `header_bytes` and `add` return what must reach the disk before going on."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.entries: list[Entry] = []
        self.last = ""

    def header_bytes(self) -> bytes:
        """Return the first record."""
        head = self.header
        meta = {"type": "journal", "run": head.run_id, "study": head.study, "study_digest": head.study_digest}
        return self._frame({**meta, "version": head.version, "sites": list(head.sites)}, {})

    def add(self, digest: str, answer: Sum) -> bytes:
        """Append a sum and return its record."""
        entry = Entry(len(self.entries), digest, answer)
        meta = {"type": "sum", "seq": entry.seq, "digest": digest, "sites": list(answer.contributors)}
        frame = self._frame(meta, {"value": answer.value})
        self.entries.append(entry)
        return frame

    def _frame(self, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        record = encode({**meta, "before": self.last}, arrays)
        self.last = hashlib.sha256(record).hexdigest()
        return framed(record)


def read_journal(stored: bytes) -> tuple[Journal | None, int]:
    """Return the journal and how many bytes of `stored` are whole records; (None, 0) without a header."""
    journal: Journal | None = None
    last, whole = "", 0
    for offset, record in frames(stored):
        end = offset + len(framed(record))
        try:
            meta, arrays = decode(record)
        except ProtocolError as error:
            if end == len(stored):
                break
            raise StateError(f"the journal is damaged at byte {offset}: {error}") from None
        if meta.get("before") != last:
            raise StateError(
                f"the journal is damaged at byte {offset}: a record before it was changed or removed."
            )
        last = hashlib.sha256(record).hexdigest()
        if journal is not None:
            answer = Sum(arrays["value"], tuple(meta["sites"]))
            journal.entries.append(Entry(int(meta["seq"]), str(meta["digest"]), answer))
        elif meta.get("type") == "journal":
            run_id, study, digest, version = (
                str(meta[k]) for k in ("run", "study", "study_digest", "version")
            )
            journal = Journal(Header(run_id, study, digest, version, tuple(meta["sites"])))
        else:
            raise StateError("the journal does not begin with a header.")
        journal.last = last
        whole = end
    return journal, whole
