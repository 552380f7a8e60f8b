"""A site's register of sums on disk: ``<state>/_register/sums.jsonl``, one line for each set of sites.

The file is never pruned, and runs at the same time share it under a lock. A line is on disk before the sum it is about
can be opened; a last line that a crash cut short is of a sum that was not, and is dropped.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from feddbn.core.designs.recordings import Recording, SiteData
from feddbn.errors import FileError, ProtocolError
from feddbn.privacy.keys import Identity
from feddbn.privacy.register import Entry, read_entries
from feddbn.runtime.deployed.lines import append_lines, whole_part

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
    """What one site knows of earlier sums, in a file, with what its owner may want to know of each."""

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

    def entries(self) -> tuple[Entry, ...]:
        """Return every sum that is on disk, this site's own and those it was told of, in the order they were written."""
        return tuple({entry.members: entry for entry in self._lines()}.values())

    def add(self, entries: Sequence[Entry]) -> None:
        """Write some more; they are on disk when this returns."""
        # A damaged register is not written to.
        self._lines()
        about = ({**self._about, "sum": entry.listed()} for entry in entries)
        append_lines(self._path, *(json.dumps(one, sort_keys=True) for one in about))

    def _lines(self) -> list[Entry]:
        """What the whole lines say."""
        try:
            lines = whole_part(self._path.read_bytes()).splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise FileError(f"the register {self._path} cannot be read: {error.strerror}.") from None
        found: list[Entry] = []
        for number, line in enumerate(lines, 1):
            try:
                (entry,) = read_entries([json.loads(line)["sum"]])
            except (ValueError, KeyError, TypeError, ProtocolError):
                raise FileError(
                    f"line {number} of the register {self._path} was damaged; without it this site cannot tell which sums "
                    "its data were part of. Restore the file, or take part in studies with noise only."
                ) from None
            found.append(entry)
        return found
