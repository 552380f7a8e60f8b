"""What a site was asked and what left it, in a log that shows every later edit.

One JSON object a line. Every entry carries the SHA-256 of the entry before it and of itself, so that
changing, removing or reordering an entry breaks the chain at that place. A site that has an identity key signs
every entry: whoever can write the file but lacks the key can shorten it, and nothing else. That a log was
shortened is seen by the heads that other sites hold (below), or by a last hash that was written down
(`verify_chain(..., expected_last=...)`).

A hash covers its entry's signature, which nobody without the key can compute. So a hash may be shown to others:
it tells nothing about what its entry says.

Entries of version 1 have neither signatures nor study; they are still read, and verify as "unkeyed".
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from feddbn.errors import FileError

GENESIS = "0" * 64
T = TypeVar("T")
Seal = Literal["signed", "unchecked", "unkeyed"]


class Signer(Protocol):
    """What signs entries: a site's identity."""

    def sign(self, statement: bytes) -> bytes:
        """Return the signature of a statement."""
        ...


@dataclass(frozen=True)
class AuditEntry:
    """One line of the log.

    Attributes
    ----------
    index, time, site
        Position in the log, ISO time, who writes.
    event
        "sent" or "refused"; in the site's own log also "agreed", "finished", "approved", "revoked",
        "declined", "admitted" and "warning".
    task, asked_by
        What was asked, and by whom.
    length, norm, n_bytes
        Size of the vector, its Euclidean norm before masking (this log stays at the site), bytes as float64.
    protection
        "none", "noise", "masked", "masked and noise" or "masked and sampling noise".
    unit, noise_multiplier, epsilon, delta
        Unit of privacy and the total epsilon so far; epsilon is None where no noise is claimed and infinite
        in effect.
    note, code
        Why a task was refused, or what happened, in words and as the code of the error; otherwise empty.
    previous, hash
        The chain.
    run, study, study_digest
        For which run of which study.
    task_digest, asked
        SHA-256 of everything the site's program read of the question, and its parameters in short.
    budget
        The owner's largest epsilon when this was written, None if there is none.
    chain
        "n hash": how many entries the log of `run` had then, and the last one's hash.
    signature
        The site's signature of everything above, empty if it has no key.
    version
        3; entries of version 2 have no code, and those of version 1 do not say their version.
    """

    index: int
    time: str
    site: str
    event: str
    task: str
    asked_by: str
    length: int = 0
    norm: float = 0.0
    n_bytes: int = 0
    protection: str = "none"
    unit: str | None = None
    noise_multiplier: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    note: str = ""
    previous: str = GENESIS
    hash: str = ""
    run: str = ""
    study: str = ""
    study_digest: str = ""
    task_digest: str = ""
    asked: str = ""
    budget: float | None = None
    chain: str = ""
    signature: str = ""
    version: int = 1
    code: str = ""

    def to_line(self) -> str:
        """Return the entry as one line of JSON, without a newline."""
        return _canonical(self.fields())

    def fields(self) -> dict[str, Any]:
        """Return what its line holds."""
        return {name: getattr(self, name) for name in _FIELDS[self.version]}


@dataclass(frozen=True)
class ChainReport:
    """Whether a log is intact: number of good entries, the last good hash, and what is wrong, also as a code, or None.

    `seal` is "signed" if the site's signature was checked, "unchecked" if there is one and no key was given, and
    "unkeyed" if there is none: whoever can write the file can then write another chain.
    """

    n_entries: int
    last_hash: str
    problem: str | None
    seal: Seal = "unkeyed"
    code: str = ""

    @property
    def is_intact(self) -> bool:
        """Whether nothing is wrong."""
        return self.problem is None


class AuditChain:
    """Makes the next entry of a log; `resume` continues one that exists. With `identity`, entries are signed."""

    def __init__(self, n_entries: int = 0, last_hash: str = GENESIS, identity: Signer | None = None) -> None:
        self.n_entries = n_entries
        self.last_hash = last_hash
        self._identity = identity

    @classmethod
    def resume(
        cls, lines: Iterable[str], identity: Signer | None = None, key: bytes | None = None
    ) -> AuditChain:
        """Continue an existing log; refuse one that is not intact."""
        report = verify_chain(lines, key=key)
        if report.problem is not None:
            raise FileError(
                f"the audit log is not intact ({report.problem}) and is not continued.", code=report.code
            )
        return cls(report.n_entries, report.last_hash, identity)

    def add(self, *, write: Callable[[str], None] = lambda line: None, **said: Any) -> AuditEntry:
        """Return the next entry, which says these fields, and move the chain on, once `write` has kept its line."""
        draft = AuditEntry(self.n_entries, **said, previous=self.last_hash, version=_VERSION)
        epsilon = None if draft.epsilon is None or math.isinf(draft.epsilon) else draft.epsilon
        draft = replace(draft, n_bytes=8 * draft.length, epsilon=epsilon)
        if self._identity is not None:
            draft = replace(draft, signature=self._identity.sign(_statement(draft.fields())).hex())
        entry = replace(draft, hash=_digest(draft.fields()))
        write(entry.to_line())
        self.n_entries += 1
        self.last_hash = entry.hash
        return entry


def _canonical(body: dict[str, Any]) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _statement(body: dict[str, Any]) -> bytes:
    """What a site signs of an entry: all of it but signature and hash."""
    signed = {name: value for name, value in body.items() if name not in ("signature", "hash")}
    return b"audit 2 " + _canonical(signed).encode()


def _digest(body: dict[str, Any]) -> str:
    covered = {name: value for name, value in body.items() if name != "hash"}
    label = b"feddbn audit %d " % body.get("version", 1)
    return hashlib.sha256(label + _canonical(covered).encode()).hexdigest()


_VERSION = 3
_NAMES = tuple(field.name for field in fields(AuditEntry))
# What entries of each version hold.
_FIELDS = {1: _NAMES[: _NAMES.index("hash") + 1], 2: _NAMES[:-1], _VERSION: _NAMES}


def _parse(line: str, number: int) -> AuditEntry:
    try:
        body = json.loads(line)
        if set(body) != set(_FIELDS[body.get("version", 1)]):
            raise ValueError("fields")
        return AuditEntry(**body)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise FileError(f"line {number} of the audit log is not an entry.") from None


def parse_entries(lines: Iterable[str]) -> list[AuditEntry]:
    """Return the entries of a log; blank lines are skipped."""
    return [_parse(line, number) for number, line in enumerate(lines, 1) if line.strip()]


def verify_chain(
    lines: Iterable[str], expected_last: str | None = None, key: bytes | None = None
) -> ChainReport:
    """Return where the first edit is, if there is one; `key` is the public key of the site that wrote the log.

    The last signature covers the hashes of all entries before it, so it alone is checked.
    """
    last, count, entry, signed = GENESIS, 0, None, False

    def wrong(problem: str, code: str, seal: Seal = "unkeyed") -> ChainReport:
        return ChainReport(count, last, problem, seal, code)

    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = _parse(line, number)
        except FileError as error:
            return wrong(str(error).rstrip("."), "not-an-entry")
        if entry.previous != last or entry.index != count:
            return wrong(f"line {number} does not follow the line before it", "out-of-order")
        if _digest(entry.fields()) != entry.hash:
            return wrong(f"line {number} was edited", "edited")
        if signed and not entry.signature:
            return wrong(f"line {number} is not signed, but lines before it are", "unsigned")
        if key is not None and entry.version > 1 and not entry.signature:
            return wrong(f"line {number} is not signed", "unsigned")
        signed = signed or bool(entry.signature)
        last, count = entry.hash, count + 1
    if expected_last is not None and expected_last != last:
        return wrong("the last hash is not the expected one; entries are missing at the end", "shortened")
    if entry is None or not signed:
        return ChainReport(count, last, None, "unkeyed")
    if key is None:
        return ChainReport(count, last, None, "unchecked")
    if not _is_signed(entry, key):
        return wrong("its last line was not signed by this site's key", "foreign-signature", "unchecked")
    return ChainReport(count, last, None, "signed")


def _is_signed(entry: AuditEntry, key: bytes) -> bool:
    from feddbn.privacy.keys import verify_signature

    try:
        signature = bytes.fromhex(entry.signature)
    except (ValueError, TypeError):
        return False
    return verify_signature(key, signature, _statement(entry.fields()))


def totals(entries: Sequence[AuditEntry]) -> dict[str, float]:
    """Return how often what was sent or refused, and how many bytes left."""
    sent = [entry for entry in entries if entry.event == "sent"]
    return {
        "sent": float(len(sent)),
        "refused": float(sum(entry.event == "refused" for entry in entries)),
        "bytes": float(sum(entry.n_bytes for entry in sent)),
    }


# Heads of audit logs, by which people see that a log was shortened or rewritten.
#
# A head says: "at this time my log had n entries, and this was the last one's hash", signed by the site. Sites give
# their heads to each other. A log that does not reach a head that somebody holds, or reaches it with another hash, is
# not the log it was. Who holds a head signs that too (a receipt), so that the site can show who could contradict it.
#
# A head tells others how many entries a log has; its hash tells nothing.

_Name = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,200}$")]
_Time = Annotated[str, Field(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")]
_Signature = Annotated[str, Field(pattern="^[0-9a-f]{128}$")]


@dataclass(frozen=True)
class Head:
    """Where a site's log stood at a time, signed by the site."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    site: _Name
    n_entries: Annotated[int, Field(strict=True, ge=0, le=2**53)]
    hash: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    time: _Time
    signature: _Signature

    def fields(self) -> dict[str, Any]:
        """Return what travels and is stored."""
        return dict(vars(self))


@dataclass(frozen=True)
class Receipt:
    """That `holder` holds a head of another site, signed by the holder."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    holder: _Name
    head: Head
    signature: _Signature

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


_HEAD, _RECEIPT = TypeAdapter(Head), TypeAdapter(Receipt)


def read_head(fields: object) -> Head:
    """Return the head that travelled as `Head.fields`; anything else is refused."""
    try:
        return _HEAD.validate_python(fields)
    except ValidationError:
        raise FileError("this is not the head of an audit log.", code="no-head") from None


def well_formed(values: object, read: Callable[[object], T], most: int | None = None) -> list[T]:
    """Return what can be read of a list that came from elsewhere."""
    found = []
    for value in values[:most] if isinstance(values, list) else ():
        with contextlib.suppress(FileError):
            found.append(read(value))
    return found


def read_receipt(fields: object) -> Receipt:
    """Return the receipt that travelled as `Receipt.fields`; anything else is refused."""
    try:
        return _RECEIPT.validate_python(fields)
    except ValidationError:
        raise FileError("this is not a receipt for the head of an audit log.", code="no-receipt") from None


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
