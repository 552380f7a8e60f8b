"""Heads of audit logs, by which people see that a log was shortened or rewritten.

A head says: "at this time my log had n entries, and this was the last one's hash", signed by the site. Sites give
their heads to each other. A log that does not reach a head that somebody holds, or reaches it with another hash, is
not the log it was. Who holds a head signs that too (a receipt), so that the site can show who could contradict it.

A head tells others how many entries a log has; its hash tells nothing (audit.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from feddbn.errors import FileError
from feddbn.privacy.audit import AuditChain, AuditEntry, Signer

__all__ = [
    "Head",
    "Receipt",
    "against_log",
    "contradiction",
    "is_signed",
    "read_head",
    "read_receipt",
    "signed_head",
    "signed_receipt",
]

MOST_ENTRIES = 2**53
_SHAPES = {
    "site": r"[^\x00-\x1f\x7f]{1,200}",
    "hash": r"[0-9a-f]{64}",
    "time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    "signature": r"[0-9a-f]{128}",
    "holder": r"[^\x00-\x1f\x7f]{1,200}",
}


@dataclass(frozen=True)
class Head:
    """Where a site's log stood at a time, signed by the site."""

    site: str
    n_entries: int
    hash: str
    time: str
    signature: str

    def fields(self) -> dict[str, Any]:
        """Return what travels and is stored."""
        return dict(vars(self))


@dataclass(frozen=True)
class Receipt:
    """That `holder` holds a head of another site, signed by the holder."""

    holder: str
    head: Head
    signature: str

    def fields(self) -> dict[str, Any]:
        """Return what travels and is stored."""
        return {**vars(self), "head": self.head.fields()}


def signed_head(identity: Signer, site: str, chain: AuditChain, time: str) -> Head:
    """Return the head of a log."""
    statement = _of_head(site, chain.n_entries, chain.last_hash, time)
    return Head(site, chain.n_entries, chain.last_hash, time, identity.sign(statement).hex())


def signed_receipt(identity: Signer, holder: str, head: Head) -> Receipt:
    """Return the holder's word that it holds a head."""
    return Receipt(holder, head, identity.sign(_of_receipt(holder, head)).hex())


def is_signed(word: Head | Receipt, key: bytes) -> bool:
    """Whether the owner of the public key signed this head or receipt."""
    from feddbn.privacy.keys import verify_signature

    if isinstance(word, Head):
        statement = _of_head(word.site, word.n_entries, word.hash, word.time)
    else:
        statement = _of_receipt(word.holder, word.head)
    return verify_signature(key, bytes.fromhex(word.signature), statement)


def _of_head(site: str, n_entries: int, last_hash: str, time: str) -> bytes:
    return b"head 1 " + json.dumps([site, n_entries, last_hash, time]).encode()


def _of_receipt(holder: str, head: Head) -> bytes:
    return b"receipt 1 " + json.dumps([holder, head.fields()], sort_keys=True).encode()


def read_head(fields: object) -> Head:
    """Return the head that travelled as `Head.fields`; anything else is refused."""
    values = _checked(fields, {"site", "n_entries", "hash", "time", "signature"}, "head")
    n = values["n_entries"]
    if not isinstance(n, int) or isinstance(n, bool) or not 0 <= n <= MOST_ENTRIES:
        raise FileError("this is not the head of an audit log: n_entries is not a number of entries.")
    return Head(**values)


def read_receipt(fields: object) -> Receipt:
    """Return the receipt that travelled as `Receipt.fields`; anything else is refused."""
    values = _checked(fields, {"holder", "head", "signature"}, "receipt")
    return Receipt(values["holder"], read_head(values["head"]), values["signature"])


def _checked(fields: object, names: set[str], what: str) -> Mapping[str, Any]:
    if not isinstance(fields, Mapping) or set(fields) != names:
        raise FileError(f"this is not the {what} of an audit log: it needs {', '.join(sorted(names))}.")
    for name, shape in _SHAPES.items():
        if name in names and not (isinstance(fields[name], str) and re.fullmatch(shape, fields[name])):
            raise FileError(f"this is not the {what} of an audit log: its {name} is malformed.")
    return fields


def contradiction(held: Head, shown: Head) -> str | None:
    """Return what is wrong if a site that gave the head `held` shows `shown` later, or None.

    The end of a sentence. A head that is not later than the one held may have been sent again by somebody else; and a
    longer log need not be a continuation, which only the log itself shows.
    """
    if shown.n_entries < held.n_entries and shown.time > held.time:
        return (
            f"the log of {shown.site} was shortened: it shows {shown.n_entries} entries, but had {held.n_entries} "
            f"at {held.time}"
        )
    if shown.n_entries == held.n_entries and shown.hash != held.hash:
        return (
            f"the log of {shown.site} was rewritten: its entry {held.n_entries} is not the one of {held.time}"
        )
    return None


def against_log(head: Head, entries: Sequence[AuditEntry]) -> str | None:
    """Return what is wrong with a log that should reach `head`, as the end of a sentence, or None."""
    if len(entries) < head.n_entries:
        return (
            f"it has {len(entries)} entries, but had {head.n_entries} at {head.time}: entries were taken away"
        )
    if head.n_entries and entries[head.n_entries - 1].hash != head.hash:
        return f"its entry {head.n_entries} is not the one it had at {head.time}: it was rewritten"
    return None
