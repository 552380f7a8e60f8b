"""What a site was asked and what left it, in plain words, from its audit logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from feddbn.privacy.audit import AuditEntry, parse_entries
from feddbn.runtime.deployed.audit_files import DECISIONS, SITE_LOG, whole_lines

__all__ = ["LogLine", "RunLog", "logs_of"]


@dataclass(frozen=True)
class LogLine:
    """One line for people; equal questions that followed each other (rounds of a method) are one."""

    time: str
    outcome: str
    asked: str
    epsilon: str
    left: str
    task: str
    times: int = 1


@dataclass(frozen=True)
class RunLog:
    """What is logged about one run; of the site itself where `run` is empty."""

    run: str
    entries: tuple[AuditEntry, ...]

    @property
    def title(self) -> str:
        """The run, its study and who asked."""
        if not self.run:
            return "the site itself"
        first = next((entry for entry in self.entries if entry.study), self.entries[0])
        study = f", study {first.study} ({first.study_digest[:12]})" if first.study else ""
        return f"run {self.run}{study}, asked by {first.asked_by}"

    def lines(self) -> Iterator[LogLine]:
        """Yield the lines for people."""
        kept: LogLine | None = None
        for entry in self.entries:
            line = _line(entry)
            # What the owner decided is about one study each.
            is_round = entry.event not in DECISIONS
            if kept is not None and is_round and (kept.task, kept.outcome) == (line.task, line.outcome):
                kept = replace(line, time=kept.time, times=kept.times + 1)
                continue
            if kept is not None:
                yield kept
            kept = line
        if kept is not None:
            yield kept


def logs_of(directory: Path, run: str = "") -> list[RunLog]:
    """Return what the logs below `directory` say about each run, or about one, the oldest first."""
    found: dict[str, list[AuditEntry]] = {}
    for path in sorted(Path(directory).glob("*.jsonl")):
        for entry in parse_entries(whole_lines(path)):
            # Entries of earlier versions do not name their run; their file does.
            about = entry.run or ("" if path.name == SITE_LOG else path.stem)
            if run in ("", about):
                found.setdefault(about, []).append(entry)
    logs = [RunLog(name, tuple(_in_order(entries))) for name, entries in found.items()]
    return sorted(logs, key=lambda log: log.entries[0].time)


def _in_order(entries: Iterable[AuditEntry]) -> list[AuditEntry]:
    """Return them by time; in one second, a greeting comes before what it leads to, and the end after it."""
    ranks = {"agreed": 0, "finished": 2}
    return sorted(entries, key=lambda entry: (entry.time, ranks.get(entry.event, 1), entry.index))


def _line(entry: AuditEntry) -> LogLine:
    epsilon = "-" if entry.epsilon is None else f"{entry.epsilon:.3g} per {entry.unit}"
    left = "-"
    if entry.budget is not None and entry.epsilon is not None:
        left = f"{max(entry.budget - entry.epsilon, 0):.3g} of {entry.budget:g}"
    about = entry.study if entry.event in DECISIONS else ""
    words = (entry.task, entry.asked, about, entry.note)
    outcome = entry.event
    if entry.event == "sent":
        # Entries of version 1 know no other word for a sum that the server could read.
        protection = "in the clear" if entry.protection == "none" else entry.protection
        outcome = f"sent {entry.length} numbers, {protection}"
    return LogLine(entry.time, outcome, ": ".join(word for word in words if word), epsilon, left, entry.task)
