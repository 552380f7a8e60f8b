"""Rows on their way from a table to recordings: in memory, or in files that nobody else can read once they are many."""

from __future__ import annotations

import os
import shutil
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BATCH_ROWS", "MOST_BYTES", "Room", "Rows"]

BATCH_ROWS = 65536
"""Rows that are read and handed over at once, where they are not all in memory."""
MOST_BYTES = 64 * 2**20
"""Numbers that are held in memory at most, before they go into files."""
_LOOKED_THROUGH = 1 << 18


class Room:
    """How many bytes some rows may take in memory; beyond that they go into a folder of their own, below `place`.

    Only who runs the process can read the folder. It goes away with the last of its rows.
    """

    def __init__(self, most: float = MOST_BYTES, place: Path | None = None) -> None:
        self._left, self._place = most, place
        self.held: list[weakref.ref[Rows]] = []
        self.folder: Path | None = None
        self.n_files = 0

    def hold(self, n_bytes: int) -> None:
        """Count bytes that are held from now on; all rows are put into files where they are too many."""
        self._left -= n_bytes
        if self._left < 0 and self.folder is None:
            self.folder = Path(mkdtemp(prefix="feddbn-", dir=self._place))
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
            for one in (held() for held in self.held):
                if one is not None:
                    one.spill()

    def __getstate__(self) -> dict[str, Any]:
        # Another process reads the files, and leaves them there.
        return {"_left": 0, "_place": self._place, "held": [], "folder": self.folder, "n_files": 0}


class Rows:
    """Columns of rows by name, each (n,) or (n, k); objects stay in memory."""

    def __init__(self, room: Room) -> None:
        self.room, self.n = room, 0
        self._parts: dict[str, list[NDArray[Any]]] = {}
        self._files: dict[str, tuple[Path, np.dtype[Any], tuple[int, ...]]] = {}
        room.held.append(weakref.ref(self))

    @property
    def is_in_files(self) -> bool:
        """Whether numbers are in files."""
        return self.room.folder is not None

    def append(self, **columns: NDArray[Any]) -> None:
        """Take the next rows."""
        for name, part in columns.items():
            self._put(name, part)
        self.n += len(part)
        self.room.hold(sum(part.nbytes for part in columns.values()))

    def _put(self, name: str, part: NDArray[Any]) -> None:
        if not self.is_in_files or part.dtype.kind not in "fib":
            self._parts.setdefault(name, []).append(part)
            return
        if name not in self._files:
            assert self.room.folder is not None
            self.room.n_files += 1
            path = self.room.folder / f"{self.room.n_files}-{name}"
            self._files[name] = path, part.dtype, part.shape[1:]
        with open(self._files[name][0], "ab", opener=_private) as file:
            np.ascontiguousarray(part).tofile(file)

    def spill(self) -> None:
        """Put what is in memory into files."""
        for name, parts in list(self._parts.items()):
            del self._parts[name]
            for part in parts:
                self._put(name, part)

    def read(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Return one column of some rows."""
        if name not in self._files:
            parts = self._parts[name]
            parts[:] = [parts[0] if len(parts) == 1 else np.concatenate(parts)]
            return parts[0][start:stop]
        path, dtype, shape = self._files[name]
        width = int(np.prod(shape, dtype=int))
        count = ((self.n if stop is None else stop) - start) * width
        return np.fromfile(path, dtype, count, offset=start * width * dtype.itemsize).reshape(-1, *shape)

    def __contains__(self, name: str) -> bool:
        return name in self._parts or name in self._files

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Yield where to begin and end to see all rows in bounded memory: all at once where they are in memory."""
        at_once = _LOOKED_THROUGH if self.is_in_files else max(self.n, 1)
        for start in range(0, self.n, at_once):
            yield start, min(start + at_once, self.n)

    def keep(self, names: Iterable[str]) -> None:
        """Forget all other columns."""
        kept = set(names)
        for name in [name for name in self._files if name not in kept]:
            self._files.pop(name)[0].unlink()
        self._parts = {name: parts for name, parts in self._parts.items() if name in kept}

    def take(self, order: NDArray[np.intp]) -> Rows:
        """Return rows in another order."""
        found = Rows(self.room)
        at_once = BATCH_ROWS if self.is_in_files else max(len(order), 1)
        for start in range(0, len(order), at_once):
            part = order[start : start + at_once]
            found.append(**{name: self.pick(name, part) for name in (*self._parts, *self._files)})
        return found

    def pick(self, name: str, order: NDArray[np.integer]) -> NDArray[Any]:
        """Return one column of some rows in any order."""
        if name not in self._files:
            return np.asarray(self.read(name)[order])
        path, dtype, shape = self._files[name]
        return np.array(np.memmap(path, dtype, "r", shape=(self.n, *shape))[order])


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
