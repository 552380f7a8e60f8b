"""What left a site, in a log that shows every later edit.

One JSON object a line. Every entry carries the SHA-256 of the entry before it and of itself, so that
changing, removing or reordering an entry breaks the chain at that place. Removing entries from the end
leaves a shorter valid chain: write the last hash down elsewhere (`verify_chain(..., expected_last=...)`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from feddbn.errors import FileError

__all__ = ["GENESIS", "AuditChain", "AuditEntry", "ChainReport", "parse_entries", "verify_chain"]

GENESIS = "0" * 64


@dataclass(frozen=True)
class AuditEntry:
    """One line of the log.

    Attributes
    ----------
    index, time, site
        Position in the log, ISO time, who writes.
    event
        "sent" or "refused".
    task, asked_by
        What was asked, and by whom.
    length, norm, n_bytes
        Size of the vector, its Euclidean norm before masking (this log stays at the site), bytes as float64.
    protection
        "none", "noise", "masked" or "masked and noise".
    unit, noise_multiplier, epsilon, delta
        Unit of privacy and the total epsilon so far; epsilon is None where no noise is claimed and infinite
        in effect.
    note
        Why a task was refused, otherwise empty.
    previous, hash
        The chain.
    """

    index: int
    time: str
    site: str
    event: str
    task: str
    asked_by: str
    length: int
    norm: float
    n_bytes: int
    protection: str
    unit: str | None
    noise_multiplier: float | None
    epsilon: float | None
    delta: float | None
    note: str
    previous: str
    hash: str

    def to_line(self) -> str:
        """Return the entry as one line of JSON, without a newline."""
        return _canonical(asdict(self))


@dataclass(frozen=True)
class ChainReport:
    """Whether a log is intact: number of good entries, the last good hash, and what is wrong, or None."""

    n_entries: int
    last_hash: str
    problem: str | None

    @property
    def is_intact(self) -> bool:
        """Whether nothing is wrong."""
        return self.problem is None


class AuditChain:
    """Makes the next entry of a log; `resume` continues one that exists."""

    def __init__(self, n_entries: int = 0, last_hash: str = GENESIS) -> None:
        self.n_entries = n_entries
        self.last_hash = last_hash

    @classmethod
    def resume(cls, lines: Iterable[str]) -> AuditChain:
        """Continue an existing log; refuse one that is not intact."""
        report = verify_chain(lines)
        if report.problem is not None:
            raise FileError(f"the audit log is not intact ({report.problem}) and is not continued.")
        return cls(report.n_entries, report.last_hash)

    def add(
        self,
        *,
        time: str,
        site: str,
        event: str,
        task: str,
        asked_by: str,
        length: int = 0,
        norm: float = 0.0,
        protection: str = "none",
        unit: str | None = None,
        noise_multiplier: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        note: str = "",
    ) -> AuditEntry:
        """Return the next entry and move the chain on."""
        body: dict[str, Any] = {
            "index": self.n_entries,
            "time": time,
            "site": site,
            "event": event,
            "task": task,
            "asked_by": asked_by,
            "length": length,
            "norm": norm,
            "n_bytes": 8 * length,
            "protection": protection,
            "unit": unit,
            "noise_multiplier": noise_multiplier,
            "epsilon": None if epsilon is None or math.isinf(epsilon) else epsilon,
            "delta": delta,
            "note": note,
            "previous": self.last_hash,
        }
        entry = AuditEntry(**body, hash=_digest(body))
        self.n_entries += 1
        self.last_hash = entry.hash
        return entry


def _canonical(body: dict[str, Any]) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(b"feddbn audit 1 " + _canonical(body).encode()).hexdigest()


_FIELDS = {field.name for field in fields(AuditEntry)}


def _parse(line: str, number: int) -> AuditEntry:
    try:
        body = json.loads(line)
        if set(body) != _FIELDS:
            raise ValueError("fields")
        return AuditEntry(**body)
    except (ValueError, TypeError):
        raise FileError(f"line {number} of the audit log is not an entry.") from None


def parse_entries(lines: Iterable[str]) -> list[AuditEntry]:
    """Return the entries of a log; blank lines are skipped."""
    return [_parse(line, number) for number, line in enumerate(lines, 1) if line.strip()]


def verify_chain(lines: Iterable[str], expected_last: str | None = None) -> ChainReport:
    """Return where the first edit is, if there is one."""
    last, count = GENESIS, 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = _parse(line, number)
        except FileError as error:
            return ChainReport(count, last, str(error).rstrip("."))
        body = asdict(entry)
        body.pop("hash")
        if entry.previous != last or entry.index != count:
            return ChainReport(count, last, f"line {number} does not follow the line before it")
        if _digest(body) != entry.hash:
            return ChainReport(count, last, f"line {number} was edited")
        last, count = entry.hash, count + 1
    if expected_last is not None and expected_last != last:
        return ChainReport(
            count, last, "the last hash is not the expected one; entries are missing at the end"
        )
    return ChainReport(count, last, None)


def totals(entries: Sequence[AuditEntry]) -> dict[str, float]:
    """Return how often what was sent or refused, and how many bytes left."""
    sent = [entry for entry in entries if entry.event == "sent"]
    return {
        "sent": float(len(sent)),
        "refused": float(len(entries) - len(sent)),
        "bytes": float(sum(entry.n_bytes for entry in sent)),
    }
