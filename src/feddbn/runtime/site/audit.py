"""A site's audit logs: what left, who asked, whether the logs are whole, and what all of it has cost.

They are one sealed log of the site's store (`SealedLog`), under a key made from its identity. Each run has a log of
what it asked and what left, and the site one of its own: greetings, refused ones too, approvals and the ends of runs;
with each it says how far the run's log had come. `check_logs` holds them against each other and against hashes that
others hold; `logs_of` reads them for people; `export_logs` writes them as JSON lines, ``<run id>.jsonl`` and
``_site.jsonl``, which need no feddbn to be verified.

Logs are never pruned. A line is on disk before the answer it is about leaves. Each answer takes the hash of the last line
along (`SiteAudit.last_hash`), and the lead keeps it: that of the line that ends a run stands for all logs of the site.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feddbn.errors import FeddbnError, FileError, reading
from feddbn.findings import Finding
from feddbn.privacy.audit import (
    GENESIS,
    AuditChain,
    AuditEntry,
    ChainReport,
    parse_entries,
    verify_chain,
)
from feddbn.privacy.ledger import Ledger, entry_epsilon
from feddbn.privacy.policy import SitePolicy, Unit
from feddbn.runtime.store import STORE, FileStore, SealedLog, Store, iso_time, private_directory

if TYPE_CHECKING:
    from feddbn.privacy.keys import Identity

SITE_LOG = "_site"
SUFFIX = ".jsonl"
DECISIONS = ("approved", "revoked", "declined", "admitted")
"""Events that only the site's owner can bring about."""

MOST_REFUSED = 100
"""Refused greetings that the site's own log takes in a day: others could fill it."""


@dataclass
class _Standing:
    """Where the site's own log stands, and what it says since midnight and since its owner last decided something."""

    chain: AuditChain
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
    """All logs of a site, written by any of its processes; without a key nothing is signed."""

    def __init__(
        self, state: Path, site: str, identity: Identity | None, clock: Callable[[], float] = time.time
    ) -> None:
        self.state = Path(state)
        self.site = site
        self.identity = identity
        self._clock = clock
        self._known: _Standing | None = None
        secret = b"" if identity is None else identity.sign(b"key of audit logs")
        self._log = SealedLog(state, "audit", self.damaged, secret)
        self.hold = self._log.hold

    @property
    def key(self) -> bytes | None:
        """The public key that the site's logs are signed for."""
        return None if self.identity is None else self.identity.public

    def lines(self, run_id: str) -> list[str]:
        """Return the log of a run, to go on with; nothing goes on where one of the site's logs was touched."""
        return self._log.lines(run_id)

    def append(self, run_id: str, line: str) -> None:
        """Add an entry to the log of a run; it is on disk when the call returns."""
        self._log.append(run_id, line)

    def entries(self) -> list[AuditEntry]:
        """Return what the site's own log says."""
        return parse_entries(self.lines(SITE_LOG))

    def about(self, digest: str) -> list[AuditEntry]:
        """Return what all logs say of the study of this digest, in the order it was written."""
        lines = [line for _, line in self._log.tagged() if digest in line]
        return [entry for entry in parse_entries(lines) if entry.study_digest == digest]

    def note(self, event: str, task: str = "", note: str = "", run: str = "", **more: Any) -> AuditEntry:
        """Write one entry of the site's own log, on disk when this returns; a log that is not intact is not continued.

        What was written today is not written again, unless the owner has decided something since, and refused greetings are
        not all written where they are many: a server that repeats itself does not fill the disk.
        """
        with self.hold():
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
            entry = standing.chain.add(write=partial(self.append, SITE_LOG), time=now, **said)
            standing.hear(entry)
            return entry

    def last_hash(self) -> str:
        """Return the hash of the line that was written last; empty without a key: an unsigned line could be guessed."""
        last = [] if self.identity is None else parse_entries(self._log.lines()[-1:])
        return last[0].hash if last else ""

    def _standing(self) -> _Standing:
        """Return where the site's own log stands; its entries are read if they are not as this process left them."""
        lines = self.lines(SITE_LOG)
        if self._known is None or self._known.chain.n_entries != len(lines):
            chain = AuditChain.resume(lines, self.identity, self.key)
            self._known = _Standing(chain)
            for entry in parse_entries(lines):
                self._known.hear(entry)
        return self._known

    def _reached(self, run_id: str) -> str:
        """How far the log of a run has come, "n hash"."""
        if not run_id:
            return ""
        last = parse_entries(self.lines(run_id)[-1:])
        return f"{last[0].index + 1} {last[0].hash}" if last else f"0 {GENESIS}"

    def account(self) -> Account:
        """Return what all logs of runs together say, unless one was touched."""
        by_run: dict[str, list[str]] = {}
        try:
            for run_id, line in self._log.tagged():
                by_run.setdefault(run_id, []).append(line)
            by_run.pop(SITE_LOG, None)
            entries = {run_id: tuple(parse_entries(lines)) for run_id, lines in by_run.items()}
            return Account(entries, self._unlogged(by_run))
        except FeddbnError as error:
            return Account(doubt=str(error))

    def _unlogged(self, logged: Collection[str]) -> str | None:
        """A sentence if a run that is still in the store has answered and has no log: somebody has taken all away."""
        for run_id in Store(self.state).changed():
            if run_id in logged or run_id.startswith("_"):
                continue
            record = FileStore(self.state, self.site).load(run_id)
            if record is not None and record.digest:
                return f"run {run_id!r} has answered, and its log is missing; restore the site's state from a backup."
        return None

    def adopt(self) -> int:
        """Seal the logs as they are, if each is intact by itself; return how many runs have one. The owner's decision."""
        lines = self._log.as_they_are()
        logs: dict[str, list[str]] = {}
        for run_id, line in lines:
            logs.setdefault(run_id, []).append(line)
        for run_id, log in logs.items():
            report = verify_chain(log)
            if report.problem is not None:
                raise FileError(
                    f"the log of run {run_id!r} is not intact: {report.problem}.", code="damaged-log"
                )
        self._log.seal_anew(lines)
        return len(logs.keys() - {SITE_LOG})

    @staticmethod
    def damaged() -> FileError:
        """Return what is said where they are not as they were."""
        return FileError(
            "the audit logs in this site's store or their head (_audit.head) were damaged, lost or put back from a backup; "
            "restore the latest of both, or, if no log was deleted or shortened, take them as they are with `feddbn site "
            "verify --adopt`.",
            code="damaged-log",
        )


@dataclass(frozen=True)
class Account:
    """What all logs say was sent; `doubt` is a sentence if they cannot be trusted, and everything counts as spent then."""

    by_run: Mapping[str, tuple[AuditEntry, ...]] = field(default_factory=dict)
    doubt: str | None = None

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


@dataclass(frozen=True)
class LogReport:
    """One log: its chain, and what is wrong with it, or None."""

    log: str
    chain: ChainReport
    problem: str | None


def logs_at(place: Path) -> dict[str, list[str]]:
    """Return the lines of each log at a place, by file name: of a site's state, of a folder of exported logs, of one file."""
    place = Path(place)
    if (place / STORE).exists():
        logs: dict[str, list[str]] = {}
        for tag, line in SealedLog(place, "audit", SiteAudit.damaged).as_they_are():
            logs.setdefault(f"{tag}{SUFFIX}", []).append(line)
        return logs
    # A site that has not run yet has no state, and no logs.
    is_one = place.is_file() or place.suffix == SUFFIX
    paths = [place] if is_one else sorted(place.glob(f"*{SUFFIX}"))
    with reading(f"the audit log {str(place)!r}"):
        return {path.name: path.read_text("utf-8", "replace").splitlines() for path in paths}


def export_logs(state: Path, out: Path) -> list[Path]:
    """Write the logs of a site's store as files of JSON lines; return their paths."""
    private_directory(out)
    paths = []
    for name, lines in logs_at(state).items():
        paths.append(Path(out) / name)
        paths[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def check_logs(
    logs: Mapping[str, Sequence[str]], key: bytes | None = None, held: Iterable[str] = ()
) -> list[LogReport]:
    """Return a report for each log; `key` is the site's public key, `held` are hashes of last lines that the lead has.

    A log that the site's own log speaks of and that is not there has a report, too, and so has a hash that no line has.
    """
    promised = _promised(logs.get(f"{SITE_LOG}{SUFFIX}", ()))
    reports = [
        _report(name, logs.get(name, ()), key, promised.get(name, ())) for name in sorted({*logs, *promised})
    ]
    return [*reports, *lost_lines(logs, held)]


def lost_lines(logs: Mapping[str, Sequence[str]], held: Iterable[str]) -> list[LogReport]:
    """Return a report for each hash that a site has given and that no line of its logs has any more."""
    known = {entry.hash for lines in logs.values() for entry in _readable(lines)}
    wrong = "no line of the logs has it any more: a log was shortened or rewritten after the lead had it"
    return [
        LogReport(f"hash {one[:12]}", ChainReport(0, GENESIS, None), wrong)
        for one in dict.fromkeys(held)
        if one not in known
    ]


def _report(
    name: str, lines: Sequence[str], key: bytes | None, promised: Sequence[tuple[int, str, str]]
) -> LogReport:
    chain = verify_chain(lines, key=key)
    if chain.problem is not None:
        return LogReport(name, chain, chain.problem)
    entries = parse_entries(lines)
    wrong = (_missing(entries, *one) for one in promised)
    return LogReport(name, chain, next((problem for problem in wrong if problem is not None), None))


def _readable(lines: Sequence[str]) -> list[AuditEntry]:
    """Return the entries of a log; none of one that cannot be read, which has a report of its own."""
    try:
        return parse_entries(lines)
    except FileError:
        return []


def _missing(entries: Sequence[AuditEntry], n: int, last: str, time: str) -> str | None:
    if len(entries) < n:
        return f"it has {len(entries)} entries, but the site's own log says {n} at {time}: entries were taken away"
    if n and entries[n - 1].hash != last:
        return f"its entry {n} is not the one that the site's own log names at {time}: it was rewritten"
    return None


def _promised(site_log: Sequence[str]) -> dict[str, list[tuple[int, str, str]]]:
    """Return, for each run's log, (entries, hash, time) that the site's own log says it had."""
    found: dict[str, list[tuple[int, str, str]]] = {}
    for entry in _readable(site_log):
        n, _, last = entry.chain.partition(" ")
        if entry.run and n.isdigit() and int(n) > 0:
            found.setdefault(f"{entry.run}{SUFFIX}", []).append((int(n), last, entry.time))
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
            # What the owner decided is about one study each, and refusals may have different reasons.
            is_round = entry.event not in DECISIONS and (
                entry.event != "refused" or kept is None or kept.asked == line.asked
            )
            if kept is not None and is_round and (kept.task, kept.outcome) == (line.task, line.outcome):
                kept = replace(line, time=kept.time, times=kept.times + 1)
                continue
            if kept is not None:
                yield kept
            kept = line
        if kept is not None:
            yield kept


def logs_of(place: Path, run: str = "") -> list[RunLog]:
    """Return what the logs at a place say about each run, or about one, the oldest first."""
    found: dict[str, list[AuditEntry]] = {}
    for lines in logs_at(place).values():
        for entry in parse_entries(lines):
            if run in ("", entry.run):
                found.setdefault(entry.run, []).append(entry)
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
        protection = "in the clear" if entry.protection == "none" else entry.protection
        cost = entry_epsilon(entry)
        outcome = f"sent {entry.length} numbers, {protection}" + (
            "" if cost is None else f", epsilon {cost:.3g}"
        )
    return LogLine(entry.time, outcome, ": ".join(word for word in words if word), epsilon, left, entry.task)
