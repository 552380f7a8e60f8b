"""Where all audit logs of a site stand, under the site's key: who deletes, cuts or edits a log is seen.

A log's chain shows edits in the middle. A head says how many entries the log of a run had and the hash of the last one; the
index names all runs that have a log. Both carry a keyed hash (BLAKE2b). Each head is stored by itself, so that an entry costs
the same however many runs there were. A log may be ahead of its head (a process that was killed between the two writes):
what is too much in the books costs budget and hides nothing. A log that is behind, altered or missing is not trusted, and
with it the whole budget.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from feddbn.privacy.audit import AuditEntry, parse_entries, verify_chain

__all__ = ["BookIndex", "Head", "index_key"]

_FORMAT = 2
_PURPOSE = b"feddbn books 1"
_HEAD_BYTES = 512


def index_key(secret: bytes) -> bytes:
    """Return the key of the index from a site's secret; without a secret the index shows accidents only."""
    return hashlib.blake2b(_PURPOSE, key=hashlib.sha256(secret).digest(), digest_size=32).digest()


@dataclass(frozen=True)
class Head:
    """Where the log of a run stands: number of entries and hash of the last."""

    n_entries: int = 0
    last_hash: str = ""

    def to_bytes(self, run_id: str, key: bytes) -> bytes:
        """Return it as it is stored: always as long, so that it can be written over the one before."""
        return _sealed("head", [run_id, self.n_entries, self.last_hash], key).ljust(_HEAD_BYTES)

    @classmethod
    def from_bytes(cls, stored: bytes, run_id: str, key: bytes) -> Head | None:
        """Return the stored head, or None if it is of another run or key, or was altered."""
        body = _opened("head", stored, key)
        return cls(int(body[1]), str(body[2])) if body is not None and body[0] == run_id else None

    def problem(self, run_id: str, lines: Iterable[str] | None) -> str | None:
        """Return what is wrong with the log of a run, as a sentence without its full stop; None if it can be trusted.

        `lines` is None if there is no log.
        """
        if lines is None:
            return f"the log of run {run_id!r} is missing" if self.n_entries else None
        kept = [line for line in lines if line.strip()]
        report = verify_chain(kept)
        if report.problem is not None:
            return f"the log of run {run_id!r} is not intact: {report.problem}"
        if report.n_entries < self.n_entries:
            lost = self.n_entries - report.n_entries
            return f"the log of run {run_id!r} lacks its last {lost} entr{'y' if lost == 1 else 'ies'}"
        if self.n_entries and _entry(kept, self.n_entries).hash != self.last_hash:
            return f"the log of run {run_id!r} was written anew"
        return None


@dataclass(frozen=True)
class BookIndex:
    """All runs that have a log, and so a head."""

    runs: frozenset[str] = frozenset()

    def to_bytes(self, key: bytes) -> bytes:
        """Return the index as it is stored."""
        return _sealed("runs", sorted(self.runs), key)

    @classmethod
    def from_bytes(cls, stored: bytes, key: bytes) -> BookIndex | None:
        """Return the stored index, or None if it was not written with this key or was altered."""
        body = _opened("runs", stored, key)
        return None if body is None else cls(frozenset(map(str, body)))


def _sealed(what: str, body: list[Any], key: bytes) -> bytes:
    return json.dumps({"format": _FORMAT, what: body, "mac": _mac(what, body, key)}).encode()


def _opened(what: str, stored: bytes, key: bytes) -> list[Any] | None:
    """The body of what was sealed with this key; None if it was not, or is something else."""
    try:
        values = json.loads(stored)
        body, mac = list(values[what]), str(values["mac"])
    except (ValueError, TypeError, KeyError):
        return None
    is_ours = values.get("format") == _FORMAT and hmac.compare_digest(mac, _mac(what, body, key))
    return body if is_ours else None


def _entry(lines: list[str], number: int) -> AuditEntry:
    (entry,) = parse_entries(lines[number - 1 : number])
    return entry


def _mac(what: str, body: list[Any], key: bytes) -> str:
    text = json.dumps([what, body], separators=(",", ":"))
    return hashlib.blake2b(text.encode(), key=key, digest_size=32).hexdigest()
