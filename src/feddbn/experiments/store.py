"""Results as rows in one append-only file of JSON lines.

Rules of the file
-----------------
* Only one process writes (an advisory lock on ``rows.lock``); workers hand their rows to it.
* A row is written by one call and forced to disk before the next cell counts as done. A kill can therefore only
  leave one torn line at the end, which has no newline; opening the store cuts it off. Its cell runs again.
* A cell is identified by the hash of everything that determines its result, so a finished cell never runs twice
  and an edited configuration never reuses a row it does not match.

Known weakness: on file systems without advisory locks (some network mounts) two writers are not kept apart.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from feddbn.errors import FileError, StateError

__all__ = ["ROWS_FILE", "RowStore", "read_rows"]

ROWS_FILE = "rows.jsonl"
Row = dict[str, Any]


def read_rows(directory: str | os.PathLike[str]) -> dict[str, Row]:
    """Cell identity -> its row, for every complete line; a torn last line is left out, not repaired."""
    file = Path(directory) / ROWS_FILE
    return _parse(file.read_bytes(), file)[0] if file.is_file() else {}


class RowStore:
    """Rows of a directory, open for appending; use as a context manager."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self.file = self.directory / ROWS_FILE
        self._rows: dict[str, Row] = {}
        self._handle: IO[bytes] | None = None
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> RowStore:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(
                f"out={str(self.directory)!r} cannot be made a directory ({error.strerror})."
            ) from error
        self._lock = _locked(self.directory / "rows.lock")
        content = self.file.read_bytes() if self.file.is_file() else b""
        self._rows, n_whole = _parse(content, self.file)
        self._handle = self.file.open("ab")
        if n_whole < len(content):
            self._handle.truncate(n_whole)
        return self

    def __exit__(self, *_: object) -> None:
        for handle in (self._handle, self._lock):
            if handle is not None:
                handle.close()
        self._handle = self._lock = None

    def __contains__(self, cell: str) -> bool:
        return cell in self._rows

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row and force it to disk; a cell that has a row already is an error."""
        if self._handle is None:
            raise StateError("the row store is not open; use it in a with statement.")
        cell = str(row["cell"])
        if cell in self._rows:
            raise StateError(f"cell {cell} has a row already; a cell runs once.")
        line = json.dumps(row, sort_keys=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        self._handle.write(line)
        self._handle.flush()
        os.fsync(self._handle.fileno())
        self._rows[cell] = dict(row)


def _parse(content: bytes, file: Path) -> tuple[dict[str, Row], int]:
    """The rows, and the length of the part made of whole lines."""
    n_whole = content.rfind(b"\n") + 1
    rows: dict[str, Row] = {}
    for number, line in enumerate(content[:n_whole].splitlines(), start=1):
        try:
            row = json.loads(line)
            rows[row["cell"]] = row
        except (ValueError, TypeError, KeyError) as error:
            raise StateError(
                f"line {number} of {str(file)!r} is not a row; remove the line, its cell then runs again."
            ) from error
    return rows, n_whole


def _locked(path: Path) -> IO[bytes]:
    handle = path.open("ab")
    try:
        import fcntl
    except ImportError:  # not a POSIX system: see the known weakness
        return handle
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        raise StateError(
            f"another run is writing to {str(path.parent)!r}; wait for it or choose another directory with --out."
        ) from None
    return handle
