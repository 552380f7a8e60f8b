"""What a site remembers of all sums, on disk: ``<state>/_register/sums.jsonl``, one line for each set of sites,
``rows.jsonl``, one for each set of its own rows, ``recordings.jsonl``, one for each run, ``resamples.jsonl`` and
``steps.jsonl``.

The files are never pruned, and runs at the same time share them under a lock. A line is on disk before the sum it is about
can be opened; a last line that a crash cut short is of a sum that was not, and is dropped.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from feddbn.core.designs.recordings import Recording, RowNumbers, SiteData
from feddbn.errors import FileError, ProtocolError, SiteRefused
from feddbn.federation.guards.row_set_guard import UsedRows
from feddbn.federation.protocol.study import Study
from feddbn.privacy.keys import Identity
from feddbn.privacy.register import Entry, read_entries
from feddbn.runtime.deployed.store import append_lines, locked, whole_part

T = TypeVar("T")


def data_version(data: SiteData, identity: Identity) -> str:
    """Return a name for exactly these data; without the site's secret key it tells nothing about them.

    It does not depend on the order of recordings or on how the rows come in blocks.
    """
    return hashlib.sha256(identity.sign(b"data " + _content(data)[0])).hexdigest()[:16]


def _content(data: SiteData) -> tuple[bytes, dict[str, int]]:
    """A digest of the data, and a number for each recording that depends on its rows and not on its place."""
    digests = sorted((_digest(recording), recording.name) for recording in data.recordings())
    told = json.dumps([list(data.variables), [digest for digest, _ in digests]])
    return hashlib.sha256(told.encode()).digest(), {name: number for number, (_, name) in enumerate(digests)}


def _digest(recording: Recording) -> str:
    digest = hashlib.sha256()
    for block in recording.blocks():
        digest.update(b"a segment begins" if block.starts_segment else b"")
        digest.update(np.ascontiguousarray(block.values, dtype=np.float64).tobytes())
    return digest.hexdigest()


class RegisterLines(Generic[T]):
    """A file of lines in the register, and what each says.

    `read` makes something of a line's values; `means` says what the site cannot tell without a line.
    """

    def __init__(self, path: Path, read: Callable[[Any], T], means: str) -> None:
        self._path = Path(path)
        self._read = read
        self._means = means

    def hold(self) -> contextlib.AbstractContextManager[None]:
        """Keep every other process of this site from reading and writing meanwhile."""
        return locked(self._path.parent)

    def all(self) -> list[T]:
        """What the whole lines say."""
        try:
            lines = whole_part(self._path.read_bytes()).splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise FileError(
                f"the register {self._path} cannot be read: {error.strerror}.", code="unreadable"
            ) from None
        found: list[T] = []
        for number, line in enumerate(lines, 1):
            try:
                found.append(self._read(json.loads(line)))
            except (ValueError, KeyError, TypeError, ProtocolError, zlib.error):
                raise FileError(
                    f"line {number} of the register {self._path} was damaged; without it this site cannot tell "
                    f"{self._means}. Restore the file, or take part in studies with noise only.",
                    code="damaged-register",
                ) from None
        return found

    def add(self, values: Iterable[Mapping[str, Any]]) -> None:
        """Write some more; they are on disk when this returns."""
        append_lines(self._path, *(json.dumps(one, sort_keys=True) for one in values))


class FileShelf:
    """What one site knows of earlier sums, in a file, with what its owner may want to know of each."""

    def __init__(self, directory: Path, run_id: str, study: str) -> None:
        means = "which sums its data were part of"
        self._lines = RegisterLines(
            Path(directory) / "sums.jsonl", lambda line: read_entries([line["sum"]])[0], means
        )
        self._about = {"run": run_id, "study": study}

    def hold(self) -> contextlib.AbstractContextManager[None]:
        """Keep every other process of this site from reading and writing meanwhile."""
        return self._lines.hold()

    def entries(self) -> tuple[Entry, ...]:
        """Return every sum that is on disk, this site's own and those it was told of, in the order they were written."""
        return tuple({entry.members: entry for entry in self._lines.all()}.values())

    def add(self, entries: Sequence[Entry]) -> None:
        """Write some more; they are on disk when this returns."""
        # A damaged register is not written to.
        self._lines.all()
        self._lines.add({**self._about, "sum": entry.listed()} for entry in entries)


class _DataBook(Generic[T]):
    """A file of what was done with the present version of a site's data; each of its lines is of one version.

    `data` are all that the site offers, whatever a study chooses of it. Run and study are for the owner.
    """

    file: str
    means: str

    def __init__(self, directory: Path, data: SiteData, run_id: str = "", study: str = "") -> None:
        self._lines = RegisterLines(Path(directory) / self.file, self._line, self.means)
        self._data = data
        self._about = {"run": run_id, "study": study}

    @staticmethod
    def _line(line: Any) -> tuple[str, T]:
        """Return the version of the data that a line is of, and what it says."""
        raise NotImplementedError

    @cached_property
    def _known(self) -> tuple[str, Mapping[str, int]]:
        content, order = _content(self._data)
        return content.hex()[:16], order

    def hold(self) -> contextlib.AbstractContextManager[None]:
        """Keep every other process of this site from reading and writing meanwhile."""
        return self._lines.hold()

    def _all(self) -> tuple[T, ...]:
        return tuple(one for version, one in self._lines.all() if version == self._known[0])

    def _write(self, *values: Mapping[str, Any]) -> None:
        self._lines.add({**self._about, "data": self._known[0], **one} for one in values)


class FileRowBook(_DataBook[UsedRows]):
    """Which rows a site has used, in a file."""

    file, means = "rows.jsonl", "which of its rows were summed"

    @staticmethod
    def _line(line: Any) -> tuple[str, UsedRows]:
        rows, left_out = _unpacked(line["rows"]), _unpacked(line["left_out"])
        used = UsedRows(str(line["cells"]), int(line["n_lags"]), rows, left_out, str(line.get("run", "")))
        return str(line["data"]), used

    def order(self) -> Mapping[str, int]:
        """Return the number of each recording."""
        return self._known[1]

    def used(self) -> tuple[UsedRows, ...]:
        """Return what was written down of the present version of the data."""
        return self._all()

    def add(self, used: Sequence[UsedRows]) -> None:
        """Write some more down; it is on disk when this returns."""
        packed = [{"rows": _packed(one.rows), "left_out": _packed(one.left_out)} for one in used]
        self._write(
            *({"cells": one.cells, "n_lags": one.n_lags, **p} for one, p in zip(used, packed, strict=True))
        )


class FileResampleBook(_DataBook[tuple[str, int]]):
    """How many resamples a site has answered, in a file."""

    file, means = "resamples.jsonl", "how often its rows were resampled"

    @staticmethod
    def _line(line: Any) -> tuple[str, tuple[str, int]]:
        return str(line["data"]), (str(line["kind"]), int(line["stop"]))

    def answered(self) -> Mapping[str, int]:
        """Return how many of each kind were answered from the present version of the data."""
        found: dict[str, int] = {}
        for kind, stop in self._all():
            found[kind] = max(stop, found.get(kind, 0))
        return found

    def add(self, kind: str, stop: int) -> None:
        """Write down how many of a kind are answered now; it is on disk when this returns."""
        self._write({"kind": kind, "stop": stop})


class FileStepBook(FileResampleBook):
    """How many numbers steps of models have told, in a file."""

    file, means = "steps.jsonl", "how much steps of models have told about its rows"


def _packed(rows: RowNumbers) -> str:
    """Rows that follow each other take little room."""
    return base64.b64encode(zlib.compress(np.diff(rows, prepend=0).astype("<i8").tobytes())).decode()


def _unpacked(text: str) -> RowNumbers:
    return np.cumsum(np.frombuffer(zlib.decompress(base64.b64decode(text, validate=True)), dtype="<i8"))


@dataclass(frozen=True)
class _Known:
    """The recordings of one run: number of rows and digest of each; `base` is the run that it updated."""

    run: str
    base: str
    sites: tuple[str, ...]
    recordings: tuple[tuple[int, str], ...]


class RecordingBook:
    """Which recordings a site offered in which run: ``<state>/_register/recordings.jsonl``."""

    def __init__(self, directory: Path, data: SiteData) -> None:
        self._lines = RegisterLines(
            Path(directory) / "recordings.jsonl", _known, "which recordings were in which run"
        )
        self._data = data

    def begin(self, run_id: str, study: Study) -> None:
        """Write down what is offered in a run, or refuse: rows of an update that are not new, parts beside their whole."""
        with self._lines.hold():
            known = self._lines.all()
            now = [_Prefixes(recording) for recording in self._data.recordings()]
            if study.update_of:
                self._require_new(study, known, now)
            self._require_same_sites(study, known, now)
            recordings = tuple(sorted(one.whole for one in now))
            line = _Known(run_id, study.update_of, tuple(sorted(study.sites)), recordings)
            if line not in known:
                self._lines.add([vars(line)])

    def _require_new(self, study: Study, known: Sequence[_Known], now: Sequence[_Prefixes]) -> None:
        # Also the runs that the earlier one has updated.
        wanted, base = {study.update_of}, study.update_of
        while base := next((one.base for one in known if one.run == base and one.base not in wanted), ""):
            wanted.add(base)
        before = [one for one in known if one.run in wanted]
        if not any(one.run == study.update_of for one in before):
            raise SiteRefused(
                f"the study updates run {study.update_of!r}, in which this site did not take part or which it has forgotten.",
                code="unknown-run",
            )
        if any(set(one.sites) != set(study.sites) for one in before):
            raise SiteRefused(
                f"the study updates run {study.update_of!r} with other sites than it had.", code="other-sites"
            )
        old = {recording for one in before for recording in one.recordings}
        if any(one.begins_with(old) for one in now):
            raise SiteRefused(
                f"recordings of this site were in run {study.update_of!r}, or go on where they ended; offer new rows only, "
                "with the last n_lags rows of a recording that goes on in front.",
                code="rows-not-new",
            )

    def _require_same_sites(self, study: Study, known: Sequence[_Known], now: Sequence[_Prefixes]) -> None:
        """Refuse the whole where its parts were summed with other sites than are asked now."""
        sites, here = tuple(sorted(study.sites)), {one.whole for one in now}
        sets = [(one, frozenset(one.recordings)) for one in known]
        for (first, old), (second, new) in itertools.combinations(sets, 2):
            if first.sites == second.sites == sites or old & new:
                continue
            is_whole = bool(old & here and new & here)
            if second.base == first.run:
                # A recording that has grown may hold the rows of both.
                has_old = any(one.begins_with(old) for one in now)
                has_grown = any(one.begins_with(old) and one.whole not in old for one in now)
                is_whole |= has_grown or (has_old and any(one.begins_with(new) for one in now))
            if is_whole:
                raise SiteRefused(
                    f"rows of this site were added up in parts (runs {first.run!r} and {second.run!r}) with other sites; "
                    "with these the sum of all would show single sites. Ask the same sites, or use a study with noise.",
                    code="parts-elsewhere",
                )


class _Prefixes:
    """Digests of a recording's beginnings."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        n = sum(len(block.values) for block in recording.blocks())
        self.whole = (n, self._digest(n))
        self._found = {n: self.whole[1]}

    def begins_with(self, old: Collection[tuple[int, str]]) -> bool:
        """Whether it is one of the old recordings, or begins with all rows of one."""
        for n in {n for n, _ in old if 0 < n <= self.whole[0]}:
            if n not in self._found:
                self._found[n] = self._digest(n)
            if (n, self._found[n]) in old:
                return True
        return False

    def _digest(self, n: int) -> str:
        digest, left = hashlib.sha256(), n
        for block in self._recording.blocks():
            values = np.ascontiguousarray(block.values[:left], dtype=np.float64)
            if not len(values):
                break
            digest.update(values.tobytes())
            left -= len(values)
        return digest.hexdigest()


def _known(line: Any) -> _Known:
    recordings = tuple((int(n), str(digest)) for n, digest in line["recordings"])
    return _Known(str(line["run"]), str(line["base"]), tuple(line["sites"]), recordings)
