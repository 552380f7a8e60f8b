"""Files that survive a crash: lines, a site's records, the server's journal, event logs, and their pruning.

A line is on disk when `append_lines` returns, and a site acts only after that. So half a line at the end of a file is about
something that did not happen: it is not read, and the next line takes its place.

Layout of a site's state directory: ``<state>/<run id>/record.feddbn`` (previous and current state, replaced
atomically), ``masks.feddbn`` (in studies that collect), ``events.jsonl`` (what happened), ``result.feddbn`` and
``personal.feddbn`` (at the end).
Layout of a server's runs directory: ``<runs>/<run id>/journal.feddbn``, ``visits.feddbn`` (in studies that collect),
``events.jsonl``, ``outcome.json``, ``result.feddbn``. Directories are created for their owner only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from feddbn.core.encoding import encode
from feddbn.errors import FileError, StateError
from feddbn.federation.protocol.messages import (
    Journal,
    SiteRecord,
    check_run_id,
    decode_record,
    encode_record,
    read_journal,
)
from feddbn.federation.protocol.study_methods import StudyResult


def for_owner(path: str, flags: int) -> int:
    """Open a file that only its owner reads; an `opener` of `open`."""
    return os.open(path, flags, 0o600)


def flush_directory(path: Path) -> None:
    """Have the names in a directory on disk."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def whole_part(content: bytes) -> bytes:
    """Return the content of a file without half a line at its end."""
    return content[: content.rfind(b"\n") + 1]


def whole_length(file: IO[bytes]) -> int:
    """Return the length of a file without half a line at its end; reads one byte if there is none."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 1, 0))
    if file.read(1) in (b"", b"\n"):
        return size
    file.seek(0)
    return len(whole_part(file.read()))


def _write_all(file: IO[bytes], content: bytes) -> None:
    # Without a buffer, which would try again to write what failed when the file is closed.
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def append_lines(path: Path, *lines: str) -> None:
    """Add lines to a file, new or not, in place of half a line at its end; they are on disk when the call returns.

    If that fails the file ends as before: what could not be written did not happen.
    """
    is_new = not path.exists()
    with open(path, "ab+", opener=for_owner, buffering=0) as file:
        end = whole_length(file)
        file.truncate(end)
        try:
            _write_all(file, b"".join(line.rstrip("\n").encode() + b"\n" for line in lines))
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(end)
            raise
    if is_new:
        flush_directory(path.parent)


AUDIT = "_audit"
DAYS = ".days"
"""The last days, since 1970, on which somebody looked for old runs."""
REGISTER = "_register"


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


@contextlib.contextmanager
def locked(directory: Path, name: str = "lock") -> Iterator[None]:
    """Keep every other process of this site from what is in a directory meanwhile."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(directory / name, "ab", opener=for_owner) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file all or nothing: temporary file, flush to disk, rename, flush the directory; only its owner reads it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    with open(temporary, "wb", opener=for_owner) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    flush_directory(path.parent)


Version = tuple[int, int, int]


def file_version(path: Path) -> Version | None:
    """Tell one content of a file that is only ever replaced, or that only grows, from another."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


class OwnFile:
    """A file of a run that one process at a time goes on with.

    Two processes may hold the same run for a moment (a job that was given up and the one that resumes it). A save is refused
    if the file on disk is not the one that was read or written last here, so that only one of them can go on.
    """

    def __init__(self, root: Path, run_id: str, name: str) -> None:
        self._root = Path(root)
        self._run_id = run_id
        self._name = name
        self._seen: Version | None = None

    def load(self) -> bytes | None:
        """Return its content, or None if there is none."""
        path = run_directory(self._root, self._run_id, create=False) / self._name
        self._seen = file_version(path)
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(
                f"the stored state of run {self._run_id!r} cannot be read: {error.strerror}.",
                code="unreadable",
            ) from None

    def save(self, content: bytes) -> None:
        """Replace its content, all or nothing."""
        path = run_directory(self._root, self._run_id) / self._name
        try:
            with locked(path.parent):
                if file_version(path) != self._seen:
                    raise StateError(
                        f"another process of this site has gone on with run {self._run_id!r}.", code="gone-on"
                    )
                write_atomically(path, content)
                self._seen = file_version(path)
        except OSError as error:
            raise StateError(
                f"the state of run {self._run_id!r} cannot be stored: {error.strerror}.", code="not-stored"
            ) from None


class FileStore:
    """One site's records on disk."""

    def __init__(self, root: Path, site: str) -> None:
        self.root = Path(root)
        self.site = site
        self._files: dict[str, OwnFile] = {}

    def _file(self, run_id: str) -> OwnFile:
        return self._files.setdefault(run_id, OwnFile(self.root, run_id, "record.feddbn"))

    def load(self, run_id: str) -> SiteRecord | None:
        """Return the record of a run, or None."""
        stored = self._file(run_id).load()
        return None if stored is None else decode_record(stored, run_id, self.site)

    def save(self, record: SiteRecord) -> None:
        """Replace the record of its run."""
        self._file(record.run_id).save(encode_record(record))

    def keep(self, run_id: str, result: StudyResult, personal: Mapping[str, np.ndarray]) -> None:
        """Write the shared result and this site's personal arrays."""
        directory = run_directory(self.root, run_id)
        write_atomically(directory / "result.feddbn", result.to_bytes())
        if personal:
            write_atomically(
                directory / "personal.feddbn", encode({"type": "personal", "site": self.site}, personal)
            )


class JournalFile:
    """The journal of a run on disk; one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._file = open(self.path, "a+b", buffering=0)  # noqa: SIM115 (closed by `close`)
        try:
            # The lock ends with the process, so a killed server never blocks its successor.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise StateError(
                f"the journal {self.path} is in use: this run is already going on.", code="in-use"
            ) from None

    def read(self) -> Journal | None:
        """Return the journal; a torn last record is cut off."""
        self._file.seek(0)
        journal, length = read_journal(self._file.read())
        self._file.truncate(length)
        return journal

    def write(self, record: bytes) -> None:
        """Append a record and flush it to disk."""
        self._file.write(record)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Release the file."""
        self._file.close()


class EventLog:
    """JSON lines with a time; small, and cut to its last half when it exceeds `max_bytes`."""

    def __init__(self, path: Path, max_bytes: int = 16 * 2**20) -> None:
        self.path = Path(path)
        self.max_bytes = max_bytes

    def write(self, event: Mapping[str, Any]) -> None:
        """Append one event."""
        values = {k: v for k, v in event.items() if v not in (None, "", (), -1)}
        line = json.dumps({"time": iso_time(), **values}, default=str)
        with open(self.path, "ab+") as file:
            # Half a line, left by a process that was killed, goes.
            end = whole_length(file)
            if end != file.seek(0, os.SEEK_END):
                file.truncate(end)
            file.write(line.encode() + b"\n")
        if end + len(line) > self.max_bytes:
            content = self.path.read_bytes()[-self.max_bytes // 2 :]
            write_atomically(self.path, content[content.find(b"\n") + 1 :])

    def read(self) -> list[dict[str, Any]]:
        """Return all events; half a line at the end, left by a process that was killed, is skipped."""
        if not self.path.exists():
            return []
        whole = whole_part(self.path.read_bytes()).decode("utf-8")
        return [json.loads(line) for line in whole.splitlines() if line.strip()]


def _last_change(directory: Path) -> float:
    """Return when a directory or a file directly in it was last changed."""
    times = [0.0]
    for item in (directory, *directory.iterdir()):
        # A file that is being replaced by another process may vanish under our eyes.
        with contextlib.suppress(FileNotFoundError):
            times.append(item.stat().st_mtime)
    return max(times)


def unchanged_directories(root: Path, keep_days: float, now: float | None = None) -> list[Path]:
    """Return the directories below `root` that had not changed for `keep_days` days on three days of looking, sorted.

    A clock that jumps ahead makes everything old at once, and what is deleted does not come back when the clock does.
    """
    if not Path(root).is_dir():
        return []
    path, today = Path(root) / DAYS, int((time.time() if now is None else now) // 86400)
    known: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        known = [int(day) for day in path.read_text().split()]
    # Days ahead of today were written by a clock that was.
    days = [*(day for day in known if day < today), today][-5:]
    with contextlib.suppress(OSError):
        write_atomically(path, " ".join(map(str, days)).encode())
    limit = (days[-3] - keep_days) * 86400 if len(days) > 2 else -math.inf
    return [path for path in sorted(Path(root).iterdir()) if path.is_dir() and _last_change(path) < limit]


def prune_runs(root: Path, keep_days: float, keep: Iterable[str] = (), now: float | None = None) -> list[str]:
    """Delete runs whose files have not changed for `keep_days` days, except those in `keep`; return their ids."""
    kept = frozenset(keep)
    # What is not a run (no run's name begins so) is kept: audit logs, approvals, the register, and whatever budgets are
    # read from.
    old = [
        path
        for path in unchanged_directories(root, keep_days, now)
        if path.name not in kept and not path.name.startswith("_")
    ]
    return delete_directories(old)


def delete_directories(directories: Iterable[Path]) -> list[str]:
    """Delete directories with all they hold; return their names."""
    names = []
    for path in directories:
        shutil.rmtree(path, ignore_errors=True)
        names.append(path.name)
    return names
