"""What a site was asked and what left it, in a log that shows every later edit.

One JSON object a line. Every entry carries the SHA-256 of the entry before it and of itself, so that
changing, removing or reordering an entry breaks the chain at that place. A site that has an identity key signs
every entry: whoever can write the file but lacks the key can shorten it, and nothing else. That a log was
shortened is seen by a hash of its last line that somebody else holds: each reply of a site brings one to the lead.

A hash covers its entry's signature, which nobody without the key can compute. So a hash may be shown to others:
it tells nothing about what its entry says.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol

from feddbn.errors import FileError

GENESIS = "0" * 64
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
        "none", "noise", "masked", "masked and noise" or "masked and weighted".
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
    code: str = ""

    def to_line(self) -> str:
        """Return the entry as one line of JSON, without a newline."""
        return _canonical(self.fields())

    def fields(self) -> dict[str, Any]:
        """Return what its line holds."""
        return dict(vars(self))


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
        draft = AuditEntry(self.n_entries, **said, previous=self.last_hash)
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
    return b"audit " + _canonical(signed).encode()


def _digest(body: dict[str, Any]) -> str:
    covered = {name: value for name, value in body.items() if name != "hash"}
    return hashlib.sha256(b"feddbn audit " + _canonical(covered).encode()).hexdigest()


_NAMES = {field.name for field in fields(AuditEntry)}


def _parse(line: str, number: int) -> AuditEntry:
    try:
        body = json.loads(line)
        if set(body) != _NAMES:
            raise ValueError("fields")
        return AuditEntry(**body)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise FileError(f"line {number} of the audit log is not an entry.") from None


def parse_entries(lines: Iterable[str]) -> list[AuditEntry]:
    """Return the entries of a log; blank lines are skipped."""
    return [_parse(line, number) for number, line in enumerate(lines, 1) if line.strip()]


def verify_chain(lines: Iterable[str], key: bytes | None = None) -> ChainReport:
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
        if key is not None and not entry.signature:
            return wrong(f"line {number} is not signed", "unsigned")
        signed = signed or bool(entry.signature)
        last, count = entry.hash, count + 1
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
