"""Where all audit logs of a site stand, under the site's key: who deletes, cuts or edits a log is seen.

A log's chain shows edits in the middle. The index holds, for every run, how many entries its log had and the hash of the last
one, and a keyed hash (BLAKE2b) over all of that. A log may be ahead of the index (a process that was killed between the two
writes): what is too much in the books costs budget and hides nothing. A log that is behind, altered or missing is not
trusted, and with it the whole budget.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from feddbn.privacy.audit import AuditEntry, parse_entries, verify_chain

__all__ = ["BookIndex", "Head", "index_key"]

_FORMAT = 1
_PURPOSE = b"feddbn books 1"


def index_key(secret: bytes) -> bytes:
    """Return the key of the index from a site's secret; without a secret the index shows accidents only."""
    return hashlib.blake2b(_PURPOSE, key=hashlib.sha256(secret).digest(), digest_size=32).digest()


@dataclass(frozen=True)
class Head:
    """Where the log of a run stands: number of entries and hash of the last."""

    n_entries: int
    last_hash: str


@dataclass(frozen=True)
class BookIndex:
    """The heads of all logs, by run."""

    heads: Mapping[str, Head] = field(default_factory=dict)

    def with_head(self, run_id: str, head: Head) -> BookIndex:
        """Return the index with one log further on."""
        return BookIndex({**self.heads, run_id: head})

    def to_bytes(self, key: bytes) -> bytes:
        """Return the index as it is stored."""
        body = {run: [head.n_entries, head.last_hash] for run, head in sorted(self.heads.items())}
        return json.dumps({"format": _FORMAT, "heads": body, "mac": _mac(body, key)}, indent=0).encode()

    @classmethod
    def from_bytes(cls, stored: bytes, key: bytes) -> BookIndex | None:
        """Return the stored index, or None if it was not written with this key or was altered."""
        try:
            values = json.loads(stored)
            body, mac = values["heads"], str(values["mac"])
            heads = {str(run): Head(int(n), str(last)) for run, (n, last) in body.items()}
        except (ValueError, TypeError, KeyError, AttributeError):
            return None
        if values.get("format") != _FORMAT or not hmac.compare_digest(mac, _mac(body, key)):
            return None
        return cls(heads)

    def problem(self, run_id: str, lines: Iterable[str] | None) -> str | None:
        """Return what is wrong with the log of a run, as a sentence without its full stop; None if it can be trusted.

        `lines` is None if there is no log.
        """
        head = self.heads.get(run_id, Head(0, ""))
        if lines is None:
            return f"the log of run {run_id!r} is missing" if head.n_entries else None
        kept = [line for line in lines if line.strip()]
        report = verify_chain(kept)
        if report.problem is not None:
            return f"the log of run {run_id!r} is not intact: {report.problem}"
        if report.n_entries < head.n_entries:
            lost = head.n_entries - report.n_entries
            return f"the log of run {run_id!r} lacks its last {lost} entr{'y' if lost == 1 else 'ies'}"
        if head.n_entries and _entry(kept, head.n_entries).hash != head.last_hash:
            return f"the log of run {run_id!r} was written anew"
        return None


def _entry(lines: list[str], number: int) -> AuditEntry:
    (entry,) = parse_entries(lines[number - 1 : number])
    return entry


def _mac(body: object, key: bytes) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), key=key, digest_size=32).hexdigest()
