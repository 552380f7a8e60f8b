"""A site's register of sums on disk: ``<state>/_register/sums.jsonl``, one line for each set of sites.

The file is never pruned, and runs at the same time share it under a lock. A line is on disk before the sum it is about
can be opened; a last line that a crash cut short is of a sum that was not, and is dropped.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from feddbn.core.designs.recordings import Recording, SiteData
from feddbn.errors import FileError
from feddbn.privacy.keys import Identity
from feddbn.privacy.register import Members

__all__ = ["FileShelf", "data_version"]


def data_version(data: SiteData, identity: Identity) -> str:
    """Return a name for exactly these data; without the site's secret key it tells nothing about them.

    It does not depend on the order of recordings or on how the rows come in blocks.
    """
    parts = sorted(_digest(recording) for recording in data.recordings())
    content = hashlib.sha256(json.dumps([list(data.variables), parts]).encode()).digest()
    return hashlib.sha256(identity.sign(b"data " + content)).hexdigest()[:16]


def _digest(recording: Recording) -> str:
    digest = hashlib.sha256()
    for block in recording.blocks():
        digest.update(b"a segment begins" if block.starts_segment else b"")
        digest.update(np.ascontiguousarray(block.values, dtype=np.float64).tobytes())
    return digest.hexdigest()


class FileShelf:
    """The sets of sums of one site in a file, with what its owner may want to know of each."""

    def __init__(self, directory: Path, run_id: str, study: str) -> None:
        self._path = Path(directory) / "sums.jsonl"
        self._about = {"run": run_id, "study": study}

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep every other process of this site from reading and writing meanwhile."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self._path.with_name("lock"), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def sets(self) -> tuple[Members, ...]:
        """Return every set that is on disk, in the order they were written."""
        return tuple(dict.fromkeys(frozenset(json.loads(line)["members"]) for line in self._lines()))

    def add(self, members: Members) -> None:
        """Write one more set; it is on disk when this returns."""
        is_new = not self._path.exists()
        kept = b"".join(line + b"\n" for line in self._lines())
        with open(self._path, "ab", opener=_private) as file:
            file.truncate(len(kept))
            file.write(
                json.dumps({**self._about, "members": sorted(members)}, sort_keys=True).encode() + b"\n"
            )
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            directory = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def _lines(self) -> list[bytes]:
        """Whole lines; what follows the last newline was cut short."""
        try:
            lines = self._path.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise FileError(f"the register {self._path} cannot be read: {error.strerror}.") from None
        for number, line in enumerate(lines, 1):
            try:
                members = json.loads(line)["members"]
                if not isinstance(members, list) or not all(isinstance(one, str) for one in members):
                    raise ValueError("members")
            except (ValueError, KeyError, TypeError):
                raise FileError(
                    f"line {number} of the register {self._path} was damaged; without it this site cannot tell which sums "
                    "its data were part of. Restore the file, or take part in studies with noise only."
                ) from None
        return lines


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
