"""A site's audit logs on disk, one for each run, with an index under the site's key; what all of them together have cost.

``<state>/_audit/<run id>.jsonl``, ``<run id>.head`` and ``index.json``. Logs are never pruned. An entry is on disk before the
answer it is about leaves. Its head is written then, too, over the one before and without waiting for the disk: a machine that
loses power may come back with an older head, and a log may be ahead of its head. A process that is killed while it writes
leaves half a line: nothing left the site then, so the line is cut off.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from feddbn.errors import FileError
from feddbn.privacy.audit import AuditEntry, BookHead, BookIndex, index_key, parse_entries, verify_chain
from feddbn.privacy.ledger import Ledger
from feddbn.privacy.policy import SitePolicy, Unit
from feddbn.runtime.deployed.lines import append_lines, whole_part
from feddbn.runtime.deployed.settings import SiteSettings
from feddbn.runtime.deployed.store import AUDIT, EventLog, write_atomically

__all__ = ["Account", "Books", "account_of", "books_of"]


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

    def words(self, policy: SitePolicy) -> str:
        """Return what was spent and what is left of a policy's budget, in words."""
        limit = policy.max_epsilon
        if self.doubt:
            return f"not known, and counts as all spent: {self.doubt}"
        spent = self.spent(policy.unit, policy.delta)
        if limit is None:
            return "no budget is set (max_epsilon in the policy)"
        if spent == float("inf"):
            return f"all of {limit:g} spent: answers without noise for each {policy.unit} have left this site"
        left = max(limit - spent, 0.0)
        return f"epsilon {spent:.3g} of {limit:g} for each {policy.unit} spent, {left:.3g} left (delta = {policy.delta:g})"


class Books:
    """The audit logs of one site.

    Parameters
    ----------
    state
        The site's state directory.
    secret
        Secret bytes of the site's identity; empty without one, and whoever can write the logs can then rewrite the index.
    tell
        Called with a sentence for the site's owner.
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
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked():
            if not self._index.exists() and not self._logs():
                self._store(BookIndex())

    def lines(self, run_id: str) -> list[str]:
        """Return the log of a run, to go on with; half a line at its end is cut off, and a log that was cut is refused."""
        with self._locked():
            lines = self._lines(run_id)
            problem = self._problem(run_id, lines, self._read_index() or BookIndex())
            if problem is not None:
                raise FileError(f"{problem}; restore it from a backup of {self._directory}.")
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
        return _decoded(whole, run_id)

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
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked():
            heads = {}
            for run_id in self._logs():
                report = verify_chain(self._lines(run_id))
                if report.problem is not None:
                    raise FileError(f"the log of run {run_id!r} is not intact: {report.problem}.")
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
            f"the index of the audit logs {what}; if the logs in {self._directory} are complete, `feddbn site adopt` takes "
            "them as they are."
        )

    def _path(self, run_id: str) -> Path:
        return self._directory / f"{run_id}.jsonl"

    def _head(self, run_id: str) -> Path:
        return self._directory / f"{run_id}.head"

    def _logs(self) -> list[str]:
        # What begins with "_" is the site's own log (audit_files.py), about which a run's log is not.
        return sorted(path.stem for path in self._directory.glob("*.jsonl") if not path.name.startswith("_"))

    def _read_index(self) -> BookIndex | None:
        try:
            return BookIndex.from_bytes(self._index.read_bytes(), self._key)
        except FileNotFoundError:
            return None

    def _store(self, index: BookIndex) -> None:
        write_atomically(self._index, index.to_bytes(self._key))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time reads or writes the books."""
        with open(self._directory / "index.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


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


def _decoded(content: bytes, run_id: str) -> list[str]:
    try:
        return content.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise FileError(f"the audit log of run {run_id!r} is not text.") from None
