"""One store for a site and for a server, the SQLite file ``_store.sqlite`` in its folder; what lies beside it is for people.

Theory of operation
-------------------
A store has values that are replaced (`put`, `get`) and logs that only grow (`append`, `records`), each in a *place*: a run,
by its id, or something of the whole site, which begins with "_" as no run does. Runs are pruned, the others never. Every
change is one transaction: all or nothing, and on disk when the call returns. What must be read and written together is put
into `hold`, which keeps all other processes out meanwhile. A process that is killed, a disk that is full and a machine that
loses power leave the store as it was before or after a change, and SQLite mends what was half done when it is next opened.

*Which journal.* A rollback journal with ``synchronous = FULL``, and not a write-ahead log. (1) Promises rest on what is on
disk: FULL waits for the journal, for the change, and for the journal to be void. (2) Between changes the whole state is one
file, so a copy of it is a backup. (3) What must be gone is gone, as secrets of masks once their sum is open: free pages are
overwritten (``secure_delete``) and the journal is emptied after such a change (`erase`), while a write-ahead log keeps old
pages for long. (4) It needs no memory shared between processes, which network disks do not have. A change takes .3 ms, or
2 ms where it erases, where a write-ahead log takes .2 ms; a site changes its store two or three times for a question.

A connection lives as long as a transaction. So there is none that a fork could inherit, or that goes on with a file that was
replaced, and threads need no order.

*Sealed logs* (`SealedLog`) show that a line was changed, lost or put back; the ledger and the audit logs are two.

Beside the store lie the heads of sealed logs, locks, and a folder for each run: ``events.jsonl``, and at the end
``result.feddbn`` with ``personal.feddbn`` (at a site) or ``outcome.json`` (at the server). All are for their owner only.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import math
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from feddbn.errors import FeddbnError, FileError, StateError
from feddbn.federation.protocol.encoding import encode
from feddbn.federation.protocol.messages import (
    Journal,
    SiteRecord,
    check_run_id,
    decode_record,
    encode_record,
    read_journal,
)
from feddbn.federation.protocol.study import StudyResult

STORE = "_store.sqlite"
"""No run can be called so, nor like what lies beside it."""
RESULT, EVENTS = "result.feddbn", "events.jsonl"
"""In a run's folder: what it ended with, and what happened."""
_FORMAT = 1
_WAIT_S = 60.0
SYNCHRONOUS = "FULL"
"""What is committed outlives a machine that loses its power."""
_TABLES = """
CREATE TABLE kept (id INTEGER PRIMARY KEY AUTOINCREMENT, place TEXT NOT NULL, name TEXT NOT NULL, time REAL NOT NULL,
                   content BLOB NOT NULL, UNIQUE (place, name));
CREATE TABLE lines (place TEXT NOT NULL, log TEXT NOT NULL, number INTEGER NOT NULL, time REAL NOT NULL,
                    content BLOB NOT NULL, PRIMARY KEY (place, log, number));
"""


class _Held(threading.local):
    """The transactions of this thread, by file, with what is to be done after each."""

    def __init__(self) -> None:
        self.open: dict[Path, tuple[sqlite3.Connection, list[Callable[[], None]]]] = {}


_HELD = _Held()


class Store:
    """The store in a folder, which is made with the first change."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._path = self.folder.absolute() / STORE

    @property
    def exists(self) -> bool:
        """Whether something was ever kept here."""
        return self._path.exists()

    @contextlib.contextmanager
    def hold(self, erase: bool = False) -> Iterator[None]:
        """Make what is read and written meanwhile one change; inside another one it is a part of that.

        With `erase`, what it replaces is not on disk any more when it ends.
        """
        with self._transaction("IMMEDIATE", erase):
            yield

    def after(self, do: Callable[[], None]) -> None:
        """Do something once the change under way is on disk."""
        _HELD.open[self._path][1].append(do)

    def get(self, place: str, name: str) -> bytes | None:
        """Return a value, None if there is none."""
        return self.version(place, name)[1]

    def version(self, place: str, name: str) -> tuple[int, bytes | None]:
        """Return a value with a number that no other value of this store has or had; (0, None) if there is none."""
        found = self._read("SELECT id, content FROM kept WHERE place = ? AND name = ?", place, name)
        return (int(found[0][0]), bytes(found[0][1])) if found else (0, None)

    def put(self, place: str, name: str, content: bytes) -> int:
        """Replace a value; return its number."""
        with self._transaction("IMMEDIATE") as connection:
            values = (place, name, time.time(), content)
            done = connection.execute(
                "INSERT OR REPLACE INTO kept (place, name, time, content) VALUES (?, ?, ?, ?)", values
            )
            return int(done.lastrowid or 0)

    def drop(self, place: str, name: str) -> None:
        """Forget a value."""
        self._write("DELETE FROM kept WHERE place = ? AND name = ?", place, name)

    def names(self, place: str) -> list[str]:
        """Return the names of a place's values, sorted."""
        return [
            str(name) for (name,) in self._read("SELECT name FROM kept WHERE place = ? ORDER BY name", place)
        ]

    def append(self, place: str, log: str, *records: bytes) -> None:
        """Add to the end of a log."""
        with self._transaction("IMMEDIATE") as connection:
            (n,) = connection.execute(
                "SELECT COALESCE(MAX(number) + 1, 0) FROM lines WHERE place = ? AND log = ?", (place, log)
            ).fetchone()
            rows = [(place, log, n + k, time.time(), record) for k, record in enumerate(records)]
            connection.executemany("INSERT INTO lines VALUES (?, ?, ?, ?, ?)", rows)

    def records(self, place: str, log: str, start: int = 0) -> list[bytes]:
        """Return a log, from a number on."""
        wanted = "SELECT content FROM lines WHERE place = ? AND log = ? AND number >= ? ORDER BY number"
        return [bytes(content) for (content,) in self._read(wanted, place, log, start)]

    def changed(self) -> dict[str, float]:
        """Return when each place was last changed."""
        both = "SELECT place, time FROM kept UNION ALL SELECT place, time FROM lines"
        return dict(self._read(f"SELECT place, MAX(time) FROM ({both}) GROUP BY place"))

    def forget(self, place: str) -> None:
        """Forget all that a place has."""
        with self.hold(erase=True):
            for table in ("kept", "lines"):
                self._write(f"DELETE FROM {table} WHERE place = ?", place)

    def _read(self, wanted: str, *values: object) -> list[Any]:
        if not self.exists:
            return []
        with self._transaction("DEFERRED") as connection:
            # Another process may be about to make the tables.
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            return connection.execute(wanted, values).fetchall() if version else []

    def _write(self, change: str, *values: object) -> None:
        with self._transaction("IMMEDIATE") as connection:
            connection.execute(change, values)

    @contextlib.contextmanager
    def _transaction(self, kind: str, erase: bool = False) -> Iterator[sqlite3.Connection]:
        if self._path in _HELD.open:
            with self._told():
                yield _HELD.open[self._path][0]
            return
        if kind == "IMMEDIATE" and not self.exists:
            private_directory(self.folder)
            self._make()
        after: list[Callable[[], None]] = []
        with self._told(), contextlib.closing(self._connection(kind, erase)) as connection:
            _HELD.open[self._path] = (connection, after)
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                # Closing takes back what was not committed.
                del _HELD.open[self._path]
        for do in after:
            do()

    def _make(self) -> None:
        """Make an empty file that is for its owner only, unless there is one; SQLite would make one that all can read."""
        try:
            # This does not open it: to close any file of a store would end the locks of this process on it.
            os.mknod(self._path, stat.S_IFREG | 0o600)
        except FileExistsError:
            return
        except OSError:
            # Not everybody may do this everywhere. What is opened instead is never closed, for the same reason.
            try:
                for_owner(str(self._path), os.O_CREAT | os.O_EXCL | os.O_RDWR)
            except FileExistsError:
                return
            except OSError as error:
                raise _not_stored(error) from None

    def _connection(self, kind: str, erase: bool) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None)
        try:
            mode = "TRUNCATE" if erase else "PERSIST"
            for setting in (f"journal_mode = {mode}", f"synchronous = {SYNCHRONOUS}", "secure_delete = ON"):
                connection.execute(f"PRAGMA {setting}")
            connection.execute(f"BEGIN {kind}")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, _FORMAT):
                raise FileError(
                    f"{self._path} was written by a later version of feddbn; use that one.",
                    code="later-store",
                )
            if version == 0 and kind == "IMMEDIATE":
                for statement in (*_TABLES.split(";")[:-1], f"PRAGMA user_version = {_FORMAT}"):
                    connection.execute(statement)
            return connection
        except BaseException:
            connection.close()
            raise

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise _not_stored(error) from None
        except sqlite3.Error as error:
            raise FileError(
                f"{self._path} is damaged ({error}); restore it from a backup.", code="damaged-store"
            ) from None


def _not_stored(error: Exception) -> StateError:
    return StateError(f"nothing can be stored or read on this machine's disk: {error}.", code="not-stored")


class Slot:
    """A value of a run that one process at a time goes on with.

    Two processes may hold the same run for a moment (a job that was given up and the one that resumes it). A save is refused
    if the value is not the one that was read or written last here, so that only one of them can go on.
    """

    def __init__(self, folder: Path, run_id: str, name: str, erase: bool = False) -> None:
        self._store = Store(folder)
        self._erase = erase
        self._run_id = check_run_id(run_id)
        self._name = name
        self._seen = 0

    def load(self) -> bytes | None:
        """Return it, or None if there is none."""
        self._seen, content = self._store.version(self._run_id, self._name)
        return content

    def save(self, content: bytes) -> None:
        """Replace it, all or nothing."""
        with self._store.hold(self._erase):
            if self._store.version(self._run_id, self._name)[0] != self._seen:
                raise StateError(
                    f"another process of this site has gone on with run {self._run_id!r}.", code="gone-on"
                )
            number = self._store.put(self._run_id, self._name, content)
        self._seen = number

    def drop(self) -> None:
        """Forget it, whoever wrote it last."""
        if self._store.version(self._run_id, self._name)[0]:
            with self._store.hold(self._erase):
                self._store.drop(self._run_id, self._name)
        self._seen = 0


class SealedLog:
    """Lines, each under a tag, that show every later change.

    A line has a keyed hash of itself and of the line before it. The head, a file of its own (``_<name>.head``), says how many
    lines there are, the last hash, and a part of the key; the rest is `secret`, without which whoever can write the files can
    seal anything. So a changed byte, a lost line, a lost store and a store from a backup are noticed; what is not as it was
    is neither read nor written. The head is written after the line and without waiting for the disk: a crash may leave lines
    that it does not know of yet. They are whole, and they count.
    """

    HEAD_BYTES = 256

    def __init__(
        self, folder: Path, name: str, damaged: Callable[[], FeddbnError], secret: bytes = b""
    ) -> None:
        self._store = Store(folder)
        self._place = f"_{name}"
        self._head = self._store.folder / f"_{name}.head"
        self._damaged = damaged
        self._secret = hashlib.sha256(secret).digest()
        self._lines: list[tuple[str, str]] = []
        self._macs = [""]
        self.hold = self._store.hold

    def lines(self, tag: str | None = None) -> list[str]:
        """Return the lines of a tag, or all, in the order they were written."""
        self._read_on()
        return [text for one, text in self._lines if tag in (None, one)]

    def tagged(self) -> list[tuple[str, str]]:
        """Return every line with its tag."""
        self._read_on()
        return list(self._lines)

    def as_they_are(self) -> list[tuple[str, str]]:
        """Return every line with its tag, whatever the hashes say."""
        found = []
        for record in self._store.records(self._place, ""):
            _, tag, text = (*record.decode(errors="replace").split(" ", 2), "", "")[:3]
            found.append((tag, text))
        return found

    @property
    def key(self) -> bytes:
        """The secret of this log, which is made with it."""
        with self.hold():
            return self._read_on() or self._begin()

    def append(self, tag: str, *texts: str) -> None:
        """Write lines."""
        with self.hold():
            key = self.key
            macs = [self._macs[-1]]
            for text in texts:
                macs.append(_mac(key, macs[-1], tag, text))
            records = [f"{mac} {tag} {text}".encode() for mac, text in zip(macs[1:], texts, strict=True)]
            self._store.append(self._place, "", *records)
            n, last = len(self._lines) + len(texts), macs[-1]
            self._store.after(lambda: self._move(n, last))

    def seal_anew(self, lines: Sequence[tuple[str, str]]) -> None:
        """Have these lines, whatever there was before."""
        with self.hold():
            self._store.forget(self._place)
            self._head.unlink(missing_ok=True)
            self._lines, self._macs = [], [""]
            for tag, text in lines:
                self.append(tag, text)

    def _begin(self) -> bytes:
        head = {"salt": os.urandom(32).hex(), "lines": 0, "last": ""}
        write_atomically(self._head, json.dumps(head).encode().ljust(self.HEAD_BYTES))
        return self._key(head["salt"])

    def _move(self, n: int, last: str) -> None:
        """Write a head over the one before; where that fails, the log is ahead, and nothing else is wrong."""
        with contextlib.suppress(OSError, ValueError), open(self._head, "rb+", buffering=0) as file:
            salt = json.loads(file.read())["salt"]
            content = json.dumps({"salt": salt, "lines": n, "last": last}).encode()
            os.pwrite(file.fileno(), content.ljust(self.HEAD_BYTES), 0)

    def _key(self, salt: object) -> bytes:
        return hashlib.blake2b(bytes.fromhex(str(salt)), key=self._secret, digest_size=32).digest()

    def _read_on(self) -> bytes:
        """Read what was written since, and return the key, empty before the first line; refuse what is not as it was."""
        try:
            return self._take()
        except (ValueError, KeyError, TypeError, IndexError):
            # Another process may be writing the head just now.
            time.sleep(0.05)
        try:
            return self._take()
        except (ValueError, KeyError, TypeError, IndexError):
            raise self._damaged() from None

    def _take(self) -> bytes:
        try:
            head = json.loads(self._head.read_bytes())
            key = self._key(head["salt"])
        except FileNotFoundError:
            if self._store.records(self._place, ""):
                raise ValueError("no head") from None
            return b""
        # From the last line that was read: a change that failed may have taken it back.
        start = max(len(self._lines) - 1, 0)
        records = self._store.records(self._place, "", start)
        if self._lines and not (records and records[0].startswith(self._macs[-1].encode())):
            self._lines, self._macs, start = [], [""], 0
            records = self._store.records(self._place, "")
        for record in records[len(self._lines) - start :]:
            mac, tag, text = record.decode().split(" ", 2)
            if not hmac.compare_digest(mac, _mac(key, self._macs[-1], tag, text)):
                raise ValueError("another line")
            self._lines.append((tag, text))
            self._macs.append(mac)
        if self._macs[head["lines"]] != head["last"]:
            raise ValueError("another head")
        return key


def _mac(key: bytes, before: str, tag: str, text: str) -> str:
    return hmac.new(key, f"{before} {tag} {text}".encode(), "sha256").hexdigest()[:32]


class FileStore:
    """One site's records on disk."""

    def __init__(self, root: Path, site: str) -> None:
        self.root = Path(root)
        self.site = site
        self._slots: dict[str, Slot] = {}

    def _slot(self, run_id: str) -> Slot:
        return self._slots.setdefault(run_id, Slot(self.root, run_id, "record"))

    def load(self, run_id: str) -> SiteRecord | None:
        """Return the record of a run, or None."""
        stored = self._slot(run_id).load()
        return None if stored is None else decode_record(stored, run_id, self.site)

    def save(self, record: SiteRecord) -> None:
        """Replace the record of its run."""
        run_directory(self.root, record.run_id)
        self._slot(record.run_id).save(encode_record(record))

    def keep(self, run_id: str, result: StudyResult, personal: Mapping[str, np.ndarray]) -> None:
        """Write the shared result and this site's personal arrays for its people."""
        directory = run_directory(self.root, run_id)
        write_atomically(directory / RESULT, result.to_bytes())
        if personal:
            write_atomically(
                directory / "personal.feddbn", encode({"type": "personal", "site": self.site}, personal)
            )


class Claim:
    """What one process at a time has, until it lets go or ends: a killed one never blocks its successor.

    Whoever comes second gets an `OSError`.
    """

    def __init__(self, path: Path) -> None:
        private_directory(path.parent)
        self._file = open(path, "ab", opener=for_owner)  # noqa: SIM115 (closed by `close`)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise

    def close(self) -> None:
        """Let go."""
        self._file.close()


class RunJournal:
    """The journal of a run in the server's store; one process at a time."""

    def __init__(self, runs: Path, run_id: str) -> None:
        self._store = Store(runs)
        self._run_id = run_id
        try:
            self._claim = Claim(run_directory(runs, run_id) / "lock")
        except OSError:
            raise StateError(
                f"run {run_id!r} is already going on: its journal is in use.", code="in-use"
            ) from None

    def read(self) -> Journal | None:
        """Return the journal."""
        return read_journal(self._store.records(self._run_id, "journal"))

    def write(self, record: bytes) -> None:
        """Append a record."""
        self._store.append(self._run_id, "journal", record)

    def secret(self, name: str) -> bytes:
        """Return 32 secret bytes of the run, which are made when they are first asked for."""
        with self._store.hold():
            found = self._store.get(self._run_id, name)
            if found is None:
                found = os.urandom(32)
                self._store.put(self._run_id, name, found)
        return found

    def close(self) -> None:
        """Let others go on with the run."""
        self._claim.close()


class EventLog:
    """What happened, for people: JSON lines with a time; small, and cut to its last half when it exceeds `max_bytes`.

    Nothing rests on it, so nobody waits for the disk. A line that a killed process left half written is passed over.
    """

    def __init__(self, path: Path, max_bytes: int = 16 * 2**20) -> None:
        self.path = Path(path)
        self.max_bytes = max_bytes

    def write(self, event: Mapping[str, Any]) -> None:
        """Append one event."""
        values = {k: v for k, v in event.items() if v not in (None, "", (), -1)}
        line = json.dumps({"time": iso_time(), **values}, default=str).encode() + b"\n"
        with open(self.path, "ab+", opener=for_owner) as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - 1, 0))
            file.write(line if file.read(1) in (b"", b"\n") else b"\n" + line)
        if end + len(line) > self.max_bytes:
            content = self.path.read_bytes()[-self.max_bytes // 2 :]
            write_atomically(self.path, content[content.find(b"\n") + 1 :])

    def read(self) -> list[dict[str, Any]]:
        """Return all events."""
        events = []
        for line in self.path.read_bytes().splitlines() if self.path.exists() else ():
            with contextlib.suppress(ValueError):
                events.append(json.loads(line))
        return events


def for_owner(path: str, flags: int) -> int:
    """Open a file that only its owner reads; an `opener` of `open`."""
    return os.open(path, flags, 0o600)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file all or nothing: temporary file, flush to disk, rename, flush the directory; only its owner reads it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    with open(temporary, "wb", opener=for_owner) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


DAYS = ".days"
"""The last days, since 1970, on which somebody looked for old runs."""


def iso_time(seconds: float | None = None) -> str:
    """Return a time in seconds, by default now, as ISO text in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def run_directory(root: Path, run_id: str, create: bool = True) -> Path:
    """Return the directory of a run below `root`."""
    path = Path(root) / check_run_id(run_id)
    if create and not path.is_dir():
        private_directory(path)
    return path


def private_directory(path: Path) -> None:
    """Make a directory that only its owner reads, where there is none."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise FileError(f"the directory {path} cannot be created: {error.strerror}.") from None


def _limit(root: Path, keep_days: float, now: float | None) -> float:
    """Return before when something was last changed that is too old: it was so on three days of looking.

    A clock that jumps ahead makes everything old at once, and what is deleted does not come back when the clock does.
    """
    path, today = Path(root) / DAYS, int((time.time() if now is None else now) // 86400)
    known: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        known = [int(day) for day in path.read_text().split()]
    # Days ahead of today were written by a clock that was.
    days = [*(day for day in known if day < today), today][-5:]
    with contextlib.suppress(OSError):
        write_atomically(path, " ".join(map(str, days)).encode())
    return (days[-3] - keep_days) * 86400 if len(days) > 2 else -math.inf


def prune_runs(root: Path, keep_days: float, now: float | None = None) -> list[str]:
    """Forget runs that have ended and did not change for `keep_days` days; return their ids.

    A run has ended when its result is here. That stays, for people; a run that waits can go on. Folders of others are not
    looked at, and what is not of a run is kept: audit logs, approvals, the ledger, and whatever budgets are read from.
    """
    if not Path(root).is_dir():
        return []
    store, limit = Store(root), _limit(root, keep_days, now)
    found = []
    for name, when in sorted(store.changed().items()):
        place = Path(root) / name
        if name.startswith("_") or not (place / RESULT).is_file():
            continue
        if max(when, (place / RESULT).stat().st_mtime) < limit:
            store.forget(name)
            (place / EVENTS).unlink(missing_ok=True)
            found.append(name)
    return found
