"""A site's audit logs on disk: what left, who asked, whether the logs are whole, and what all of it has cost.

``<state>/_audit/<run id>.jsonl`` holds what a run asked and what left (`Books`), with ``<run id>.head`` and
``index.json`` under the site's key. ``_site.jsonl`` (no run can have this name) is the site's own log (`SiteAudit`):
greetings, refused ones too, approvals and the ends of runs; with each it says how far the run's log had come, so that
its last hash stands for all logs of the site. `check_logs` holds them against each other and against the heads that
others hold; `logs_of` reads them for people.

Logs are never pruned. A line is on disk before the answer it is about leaves. A head is written then, too, over the one
before and without waiting for the disk: a machine that loses power may come back with an older head, and a log may be
ahead of its head. A process that is killed while it writes leaves half a line: nothing left the site then, so the line
is cut off.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feddbn.errors import FileError
from feddbn.findings import Finding
from feddbn.privacy.audit import (
    GENESIS,
    AuditChain,
    AuditEntry,
    BookHead,
    BookIndex,
    ChainReport,
    Head,
    against_log,
    index_key,
    parse_entries,
    signed_head,
    verify_chain,
)
from feddbn.privacy.ledger import Ledger, entry_epsilon
from feddbn.privacy.policy import SitePolicy, Unit
from feddbn.runtime.deployed.settings import SiteSettings
from feddbn.runtime.deployed.store import (
    AUDIT,
    EventLog,
    Version,
    append_lines,
    file_version,
    iso_time,
    locked,
    whole_part,
    write_atomically,
)

if TYPE_CHECKING:
    from feddbn.privacy.keys import Identity

SITE_LOG = "_site.jsonl"
DECISIONS = ("approved", "revoked", "declined")
"""Events that only the site's owner can bring about."""

MOST_REFUSED = 100
"""Refused greetings that the site's own log takes in a day: others could fill it."""


def whole_lines(path: Path) -> list[str]:
    """Return the lines of a log up to the last that was written to its end; none if there is no log."""
    try:
        return whole_part(Path(path).read_bytes()).decode("utf-8").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FileError(f"the audit log {path.name} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise FileError(f"the audit log {path.name} is not text.") from None


@dataclass
class _Standing:
    """Where the site's own log stands, and what it says since midnight and since its owner last decided something."""

    chain: AuditChain
    version: Version | None = None
    day: str = ""
    said: dict[tuple[str, ...], AuditEntry] = field(default_factory=dict)
    n_refused: int = 0

    def hear(self, entry: AuditEntry) -> None:
        """Take an entry down."""
        if entry.time[:10] != self.day:
            self.day, self.n_refused = entry.time[:10], 0
            self.said.clear()
        if entry.event in DECISIONS:
            self.said.clear()
        self.said[_about(entry)] = entry
        self.n_refused += entry.event == "refused"


def _about(entry: AuditEntry) -> tuple[str, ...]:
    """All that an entry says but when."""
    return tuple(
        str(value)
        for name, value in entry.fields().items()
        if name not in ("index", "time", "previous", "hash", "signature")
    )


class SiteAudit:
    """The site's own log, written by any of its processes; without a key nothing is signed, and there are no heads."""

    def __init__(
        self, state: Path, site: str, identity: Identity | None, clock: Callable[[], float] = time.time
    ) -> None:
        self.directory = Path(state) / AUDIT
        self.site = site
        self.identity = identity
        self._clock = clock
        self._known: _Standing | None = None

    @property
    def key(self) -> bytes | None:
        """The public key that the site's logs are signed for."""
        return None if self.identity is None else self.identity.public

    @property
    def path(self) -> Path:
        """The site's own log."""
        return self.directory / SITE_LOG

    def run_log(self, run_id: str) -> Path:
        """Return the log of a run."""
        return self.directory / f"{run_id}.jsonl"

    def entries(self) -> list[AuditEntry]:
        """Return what the site's own log says."""
        return parse_entries(whole_lines(self.path))

    def note(self, event: str, task: str = "", note: str = "", run: str = "", **more: Any) -> AuditEntry:
        """Write one entry, on disk when this returns; a log that is not intact is not continued.

        What was written today is not written again, unless the owner has decided something since, and refused greetings are
        not all written where they are many: a server that repeats itself does not fill the disk.
        """
        with self.locked():
            standing = self._standing()
            now = iso_time(self._clock())
            said = {
                "site": self.site,
                "event": event,
                "task": task,
                "asked_by": more.pop("asked_by", "server"),
                "note": note[:500],
                "run": run,
                "chain": self._reached(run),
                **more,
            }
            if event == "refused" and now[:10] == standing.day and standing.n_refused >= MOST_REFUSED:
                said = {name: said[name] for name in ("site", "event", "task", "asked_by")}
                said["note"] = (
                    f"more than {MOST_REFUSED} greetings were refused today; this log does not list the others"
                )
            # Made without a signature first: most of what a server repeats is not written.
            known = standing.said.get(_about(AuditChain().add(time=now, **said)))
            if known is not None and event not in DECISIONS and now[:10] == standing.day:
                return known
            entry = standing.chain.add(write=partial(append_lines, self.path), time=now, **said)
            standing.hear(entry)
            standing.version = file_version(self.path)
            return entry

    def head(self) -> Head | None:
        """Return where the site's own log stands, signed; None for a site without a key."""
        if self.identity is None:
            return None
        with self.locked():
            return signed_head(self.identity, self.site, self._standing().chain, iso_time(self._clock()))

    def _standing(self) -> _Standing:
        """Return where the site's own log stands; it is read if it is not as this process left it."""
        version = file_version(self.path)
        if self._known is None or version is None or self._known.version != version:
            lines = whole_lines(self.path)
            chain = AuditChain.resume(lines, self.identity, self.key)
            # There was no such log in the version that did not sign.
            if self.key is not None and lines and verify_chain(lines, key=self.key).seal == "unkeyed":
                raise FileError(
                    "the audit log is not intact (it is not signed) and is not continued.", code="not-signed"
                )
            self._known = _Standing(chain, version)
            for entry in parse_entries(lines):
                self._known.hear(entry)
        return self._known

    def _reached(self, run_id: str) -> str:
        """How far the log of a run has come, "n hash"."""
        if not run_id:
            return ""
        try:
            last = parse_entries(whole_lines(self.run_log(run_id))[-1:])
        except FileError:
            return "not a log"
        return f"{last[0].index + 1} {last[0].hash}" if last else f"0 {GENESIS}"

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Hold the site's own log and what it keeps of others: several processes may answer for one site."""
        return locked(self.directory, "site.lock")


@dataclass(frozen=True)
class Account:
    """What all logs say was sent.

    `doubt` is a sentence if they cannot be trusted, and everything counts as spent then; `doubtful` are the runs whose own
    log is the reason.
    """

    by_run: Mapping[str, tuple[AuditEntry, ...]] = field(default_factory=dict)
    doubt: str | None = None
    doubtful: frozenset[str] = frozenset()

    @property
    def ledger(self) -> Ledger:
        """Everything that was released, in all runs."""
        return Ledger.replay(entry for entries in self.by_run.values() for entry in entries)

    def spent(self, unit: Unit, delta: float) -> float:
        """Return the epsilon of everything for one unit; infinite if it cannot be known."""
        return float("inf") if self.doubt else self.ledger.for_unit(unit).epsilon(delta)


def budget_finding(account: Account, policy: SitePolicy) -> Finding:
    """Return what was spent of a policy's budget; `spent` is None where answers without noise have left."""
    if account.doubt:
        return Finding("budget-unknown", "error", {"doubt": account.doubt})
    if policy.max_epsilon is None:
        return Finding("budget-unset", "note")
    spent = account.spent(policy.unit, policy.delta)
    values = {"limit": policy.max_epsilon, "unit": policy.unit, "delta": policy.delta}
    return Finding("budget", "note", {**values, "spent": None if spent == float("inf") else spent})


class Books:
    """The audit logs of one site's runs.

    Without `secret`, bytes of the site's identity, whoever can write the logs can rewrite the index, too. `tell` hears
    sentences for the owner.
    """

    def __init__(
        self, state: Path, secret: bytes = b"", tell: Callable[[str], None] = lambda sentence: None
    ) -> None:
        self._state = Path(state)
        self._directory = self._state / AUDIT
        self._index = self._directory / "index.json"
        self._key = index_key(secret)
        self._tell = tell
        self._indexed: set[str] = set()

    def begin(self) -> None:
        """Make the place for the logs; a site without logs gets an empty index, one with logs only by `adopt`."""
        with self._locked():
            if not self._index.exists() and not self._logs():
                self._store(BookIndex())

    def lines(self, run_id: str) -> list[str]:
        """Return the log of a run, to go on with; half a line at its end is cut off, and a log that was cut is refused."""
        with self._locked():
            lines = self._lines(run_id)
            problem = self._problem(run_id, lines, self._read_index() or BookIndex())
            if problem is not None:
                raise FileError(
                    f"{problem}; restore it from a backup of {self._directory}.", code="damaged-log"
                )
            return lines

    def _lines(self, run_id: str) -> list[str]:
        path = self._path(run_id)
        if not path.exists():
            return []
        content = path.read_bytes()
        whole = whole_part(content)
        if whole != content:
            with open(path, "r+b") as file:
                file.truncate(len(whole))
                os.fsync(file.fileno())
            self._tell(
                f"the audit log of run {run_id!r} ended in half a line, which was cut off: a process was killed "
                "while it wrote, and what the line was about never left."
            )
        return whole_lines(path)

    def append(self, run_id: str, line: str) -> None:
        """Add an entry to the log of a run; it is on disk when the call returns."""
        (entry,) = parse_entries([line])
        with self._locked():
            if run_id not in self._indexed:
                self._enter(run_id)
            append_lines(self._path(run_id), line)
            if run_id in self._indexed:
                self._move(run_id, BookHead(entry.index + 1, entry.hash))

    def _move(self, run_id: str, head: BookHead) -> None:
        """Write a head over the one before; where that fails, the log is ahead, and nothing else is wrong."""
        try:
            file = os.open(self._head(run_id), os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(file, head.to_bytes(run_id, self._key), 0)
            finally:
                os.close(file)
        except OSError as error:
            self._tell(f"the head of the audit log of run {run_id!r} cannot be written: {error.strerror}.")

    def _enter(self, run_id: str) -> None:
        """Have a run in the index, with a head, before its log begins."""
        index = self._read_index()
        if index is None:
            # Without an index nobody can tell whether the logs are all, and a new one would hide that.
            return
        if run_id not in index.runs:
            write_atomically(self._head(run_id), BookHead().to_bytes(run_id, self._key))
            self._store(BookIndex(index.runs | {run_id}))
        self._indexed.add(run_id)

    def account(self) -> Account:
        """Return what all logs together say, after checking every one of them."""
        if not self._directory.is_dir():
            return Account(doubt=self._unlogged())
        with self._locked():
            index, logs = self._read_index(), self._logs()
            by_run: dict[str, tuple[AuditEntry, ...]] = {}
            problems: dict[str, str] = {}
            for run_id in sorted({*logs, *(index or BookIndex()).runs}):
                try:
                    lines = self._lines(run_id) if run_id in logs else None
                    problem = self._problem(run_id, lines, index or BookIndex())
                    by_run[run_id] = tuple(parse_entries(lines or ()))
                except FileError as error:
                    problem = str(error).rstrip(".")
                if problem is not None:
                    problems[run_id] = f"{problem}; restore it from a backup of {self._directory}."
            first = next(iter(problems.values()), None) or self._unlogged() or self._unindexed(index, logs)
            return Account(by_run, first, frozenset(problems))

    def adopt(self) -> int:
        """Index the logs as they are, if each is intact by itself; return how many there are. The owner's decision."""
        with self._locked():
            heads = {}
            for run_id in self._logs():
                report = verify_chain(self._lines(run_id))
                if report.problem is not None:
                    raise FileError(
                        f"the log of run {run_id!r} is not intact: {report.problem}.", code="damaged-log"
                    )
                heads[run_id] = BookHead(report.n_entries, report.last_hash)
            for run_id, head in heads.items():
                write_atomically(self._head(run_id), head.to_bytes(run_id, self._key))
            self._store(BookIndex(frozenset(heads)))
            return len(heads)

    def _problem(self, run_id: str, lines: Sequence[str] | None, index: BookIndex) -> str | None:
        """What is wrong with the log of a run, as a sentence without its full stop."""
        head: BookHead | None = BookHead()
        if run_id in index.runs:
            try:
                head = BookHead.from_bytes(self._head(run_id).read_bytes(), run_id, self._key)
            except FileNotFoundError:
                head = None
        if head is None:
            return f"the head of the log of run {run_id!r} is missing or was altered"
        return head.problem(run_id, lines)

    def _unlogged(self) -> str | None:
        """A sentence if a run whose files are still here has answered and has no log: somebody has taken it away."""
        for events in sorted(self._state.glob("*/events.jsonl")):
            run_id = events.parent.name
            if not self._path(run_id).exists() and any(
                str(event.get("what", "")).startswith("executed") for event in EventLog(events).read()
            ):
                return f"run {run_id!r} has answered, and its log is missing; restore it from a backup of {self._directory}."
        return None

    def _unindexed(self, index: BookIndex | None, logs: Sequence[str]) -> str | None:
        """A sentence if there are logs and no index that could tell whether they are all."""
        if index is not None or not (logs or self._index.exists()):
            return None
        what = "was altered, or the identity is another" if self._index.exists() else "is missing"
        return (
            f"the index of the audit logs {what}; if the logs in {self._directory} are complete, `feddbn site verify "
            "--adopt` takes them as they are."
        )

    def _path(self, run_id: str) -> Path:
        return self._directory / f"{run_id}.jsonl"

    def _head(self, run_id: str) -> Path:
        return self._directory / f"{run_id}.head"

    def _logs(self) -> list[str]:
        # What begins with "_" is the site's own log, about which a run's log is not.
        return sorted(path.stem for path in self._directory.glob("*.jsonl") if not path.name.startswith("_"))

    def _read_index(self) -> BookIndex | None:
        try:
            return BookIndex.from_bytes(self._index.read_bytes(), self._key)
        except FileNotFoundError:
            return None

    def _store(self, index: BookIndex) -> None:
        write_atomically(self._index, index.to_bytes(self._key))

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        """One process at a time reads or writes the books."""
        return locked(self._directory, "index.lock")


def books_of(settings: SiteSettings, tell: Callable[[str], None] = lambda sentence: None) -> Books:
    """Return the books of a site, under the key of its identity."""
    if settings.identity is None:
        return Books(settings.state, tell=tell)
    try:
        return Books(settings.state, settings.identity.read_bytes(), tell)
    except OSError as error:
        raise FileError(f"the identity {settings.identity} cannot be read: {error.strerror}.") from None


def account_of(settings: SiteSettings) -> Account:
    """Return what a site's books say; nothing is written but a torn line cut off."""
    return books_of(settings).account()


@dataclass(frozen=True)
class LogReport:
    """One log: its chain, and what is wrong with it, or None."""

    log: str
    chain: ChainReport
    problem: str | None


def check_logs(directory: Path, key: bytes | None = None, heads: Sequence[Head] = ()) -> list[LogReport]:
    """Return a report for each log below `directory`; `key` is the site's public key, `heads` are of its own log.

    A log that the site's own log or a head speaks of and that is not there has a report, too.
    """
    paths = {path.name: path for path in sorted(Path(directory).glob("*.jsonl"))}
    promised = _promised(paths.get(SITE_LOG))
    names = sorted({*paths, *promised, *([SITE_LOG] if heads else [])})
    return [_report(Path(directory) / name, key, promised.get(name, ()), heads) for name in names]


def _report(
    path: Path, key: bytes | None, promised: Sequence[tuple[int, str, str]], heads: Sequence[Head]
) -> LogReport:
    try:
        lines = whole_lines(path)
    except FileError as error:
        return LogReport(path.name, ChainReport(0, "", str(error)), str(error).rstrip("."))
    chain = verify_chain(lines, key=key)
    if chain.problem is not None:
        return LogReport(path.name, chain, chain.problem)
    entries = parse_entries(lines)
    wrong: list[str | None] = [_missing(entries, *one) for one in promised]
    if path.name == SITE_LOG:
        # There was no such log in the version that did not sign.
        wrong += ["it is not signed"] if key is not None and lines and chain.seal == "unkeyed" else []
        wrong += [against_log(head, entries) for head in heads]
    return LogReport(path.name, chain, next((problem for problem in wrong if problem is not None), None))


def _missing(entries: Sequence[AuditEntry], n: int, last: str, time: str) -> str | None:
    if len(entries) < n:
        return f"it has {len(entries)} entries, but the site's own log says {n} at {time}: entries were taken away"
    if n and entries[n - 1].hash != last:
        return f"its entry {n} is not the one that the site's own log names at {time}: it was rewritten"
    return None


def _promised(site_log: Path | None) -> dict[str, list[tuple[int, str, str]]]:
    """Return, for each run's log, (entries, hash, time) that the site's own log says it had."""
    found: dict[str, list[tuple[int, str, str]]] = {}
    try:
        entries = [] if site_log is None else parse_entries(whole_lines(site_log))
    except FileError:
        return {}
    for entry in entries:
        n, _, last = entry.chain.partition(" ")
        if entry.run and n.isdigit() and int(n) > 0:
            found.setdefault(f"{entry.run}.jsonl", []).append((int(n), last, entry.time))
    return found


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
    """Return what the logs below `directory`, or one log, say about each run, or about one, the oldest first."""
    found: dict[str, list[AuditEntry]] = {}
    for path in [directory] if directory.is_file() else sorted(directory.glob("*.jsonl")):
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
        cost = entry_epsilon(entry)
        outcome = f"sent {entry.length} numbers, {protection}" + (
            "" if cost is None else f", epsilon {cost:.3g}"
        )
    return LogLine(entry.time, outcome, ": ".join(word for word in words if word), epsilon, left, entry.task)
