"""What a site remembers of all sums: one ledger, a sealed log of its store.

Each line is of a kind: "sum" (with which sites), "version" and "rows" (of which rows and cells), "recordings" (of a run),
"columns" (which were told), "steps" (how much they told), "asked" (what the questions of a run take for
granted). The ledger is never pruned, and runs at the same time share it. A line is on disk before the sum it is
about can be opened. What was changed, lost
or put back from a backup is noticed (`SealedLog`), and the site refuses.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from feddbn.core.arrays import BoolArray
from feddbn.core.designs.recordings import Recording, RowNumbers, SiteData
from feddbn.data.site import with_columns
from feddbn.errors import FileError, SiteRefused, StateError
from feddbn.federation.guards.dominance import ToldColumns
from feddbn.federation.guards.row_set_guard import Ids, RowTable, UsedRows
from feddbn.federation.protocol.study import Study
from feddbn.privacy.keys import Identity
from feddbn.privacy.register import Entry, read_entries
from feddbn.runtime.store import SealedLog, Store


def data_version(data: SiteData, identity: Identity) -> str:
    """Return a name for exactly these data; without the site's secret key it tells nothing about them.

    It does not depend on the order of recordings or on how the rows come in blocks.
    """
    return hashlib.sha256(identity.sign(b"data " + _content(data)[0])).hexdigest()[:16]


class SameData:
    """Refuses a run whose first numbers were made of other data than these: two versions are not mixed in one result."""

    def __init__(self, state: Path, data: SiteData) -> None:
        self._store = Store(state)
        self._data = data
        self._same: set[str] = set()

    @cached_property
    def _version(self) -> bytes:
        return _content(self._data)[0]

    def check(self, run_id: str, leaves: bool) -> None:
        """Refuse a run of other data; where its first numbers leave, take down of which."""
        if run_id in self._same:
            return
        known = self._store.get(run_id, "data")
        if known is None and leaves:
            known = self._version
            self._store.put(run_id, "data", known)
        if known is None:
            return
        if known != self._version:
            raise StateError(
                f"the data of this site are not those with which run {run_id!r} began; put them back, or begin a new run.",
                code="other-data",
            )
        self._same.add(run_id)


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


class SiteLedger:
    """The ledger in a site's store, in the order it was written; `about` is added to each line that is written here."""

    def __init__(self, state: Path, **about: str) -> None:
        self._log = SealedLog(state, "ledger", self._damaged)
        self._about = about
        self._read: dict[str, dict[str, Any]] = {}
        self.hold = self._log.hold

    def all(self, kind: str) -> list[dict[str, Any]]:
        """What the lines of a kind say."""
        lines = self._log.lines(kind)
        for line in lines:
            if line not in self._read:
                self._read[line] = json.loads(line)
        return [self._read[line] for line in lines]

    def add(self, kind: str, values: Iterable[Mapping[str, Any]]) -> None:
        """Write some more. A damaged ledger is not written to."""
        self._log.append(kind, *(json.dumps({**self._about, **one}, sort_keys=True) for one in values))

    @property
    def key(self) -> bytes:
        """The secret of this ledger, which is made with it."""
        return self._log.key

    @staticmethod
    def _damaged() -> FileError:
        return FileError(
            "the ledger of this site's store or its head (_ledger.head) was damaged, lost or put back from a backup; without "
            "it this site cannot tell which sums its data were part of. Restore the latest of both, or take part in studies "
            "with noise only.",
            code="damaged-register",
        )


class FileShelf:
    """What one site knows of earlier sums, with what its owner may want to know of each."""

    def __init__(self, state: Path, run_id: str, study: str) -> None:
        self._ledger = SiteLedger(state, run=run_id, study=study)
        self.hold = self._ledger.hold

    def entries(self) -> tuple[Entry, ...]:
        """Return every sum that is on disk, this site's own and those it was told of, in the order they were written."""
        return read_entries([line["sum"] for line in self._ledger.all("sum")], most=None)

    def add(self, entries: Sequence[Entry]) -> None:
        """Write some more; they are on disk when this returns."""
        self._ledger.add("sum", ({"sum": entry.listed()} for entry in entries))


class FileRowBook:
    """Which rows a site has used, of all versions of its data.

    `data` are all that the site offers, whatever a study chooses of it. Run and study are for the owner.
    """

    def __init__(self, state: Path, data: SiteData, run_id: str = "", study: str = "") -> None:
        self._ledger = SiteLedger(state, run=run_id, study=study)
        self._data = data
        self._tables: dict[str, RowTable] = {}
        self._now: dict[tuple[str, ...], RowTable] = {}
        self._used: list[UsedRows] = []
        self.hold = self._ledger.hold

    @cached_property
    def _known(self) -> tuple[str, Mapping[str, int]]:
        content, order = _content(self._data)
        return content.hex()[:16], order

    def order(self) -> Mapping[str, int]:
        """Return the number of each recording."""
        return self._known[1]

    def table(self, variables: Sequence[str] | None = None) -> RowTable:
        """Return the rows of the present version."""
        names = tuple(self._data.variables if variables is None else variables)
        if names not in self._now:
            version, order = self._known
            self._now[names] = RowTable.of(with_columns(self._data, names), order, version, self._ledger.key)
        return self._now[names]

    def used(self) -> tuple[UsedRows, ...]:
        """Return what was written down."""
        for line in self._ledger.all("version")[len(self._tables) :]:
            self._tables[line["data"]] = self._read_table(line)
        for line in self._ledger.all("rows")[len(self._used) :]:
            table, names = self._tables[line["data"]], tuple(line["variables"])
            cells = _bits(line["cells"], len(table.digests), len(names)).astype(np.uint64) if names else None
            if cells is not None and line.get("bounded"):
                places = np.unravel_index(_unpacked(line["bounded"]), cells.shape)
                cells[places] = np.frombuffer(_data(line["values"]), dtype="<u8")
            about = (str(line["key"]), int(line["n_lags"]), table)
            self._used.append(
                UsedRows(*about, _unpacked(line["rows"]), _unpacked(line["left_out"]), names, cells)
            )
        return tuple(self._used)

    def add(self, used: Sequence[UsedRows]) -> None:
        """Write some more down; it is on disk when this returns."""
        table = self.table()
        self.used()
        if table.data not in self._tables:
            self._ledger.add("version", [self._table_line(table)])
        self._ledger.add(
            "rows",
            (
                {
                    "data": table.data,
                    "key": one.key,
                    "n_lags": one.n_lags,
                    "rows": _packed(one.rows),
                    "left_out": _packed(one.left_out),
                    "variables": one.variables,
                    **_cell_line(one.cells),
                }
                for one in used
            ),
        )

    def _last(self) -> Ids:
        return next(reversed(self._tables.values())).digests if self._tables else np.zeros(1, dtype=np.uint64)

    def _table_line(self, table: RowTable) -> dict[str, Any]:
        """Where rows stand in the version before it, and those that are new; most rows stay."""
        before = self._last()
        order = np.argsort(before)
        place = order[np.minimum(np.searchsorted(before[order], table.digests), len(before) - 1)]
        is_old = before[place] == table.digests
        new = _text(table.digests[~is_old].astype("<u8").tobytes())
        where = _packed(np.where(is_old, place, -1))
        return {"data": table.data, "offers": list(table.variables), "old": where, "new": new}

    def _read_table(self, line: Mapping[str, Any]) -> RowTable:
        place = _unpacked(line["old"])
        digests = self._last()[place]
        digests[place < 0] = np.frombuffer(_data(line["new"]), dtype="<u8")
        return RowTable(str(line["data"]), tuple(line["offers"]), digests, np.arange(len(digests)))


def _cell_line(cells: Ids | None) -> dict[str, str]:
    """Which cells are there, and of those that were bounded the digests of their values."""
    if cells is None:
        return {"cells": ""}
    found = {"cells": _text(np.packbits(cells > 0).tobytes())}
    places = np.flatnonzero(cells > 1)
    if len(places):
        values = cells.ravel()[places].astype("<u8").tobytes()
        found |= {"bounded": _packed(places), "values": _text(values)}
    return found


class FileColumnBook:
    """Which columns a site has told, of all versions of its data."""

    def __init__(self, state: Path, run_id: str = "", study: str = "") -> None:
        self._ledger = SiteLedger(state, run=run_id, study=study)
        self.hold = self._ledger.hold

    def told(self) -> tuple[ToldColumns, ...]:
        """Return what was written down, each once."""
        return tuple(dict.fromkeys(ToldColumns.read(line["told"]) for line in self._ledger.all("columns")))

    def add(self, told: Sequence[ToldColumns]) -> None:
        """Write some more down; it is on disk when this returns."""
        self._ledger.add("columns", ({"told": one.listed()} for one in told))


class FileStepBook:
    """How many numbers steps of models have told, of all versions of the data: most of their rows are the same."""

    def __init__(self, state: Path, data: SiteData, run_id: str = "", study: str = "") -> None:
        self._ledger = SiteLedger(state, run=run_id, study=study)
        self._data = data
        self.hold = self._ledger.hold

    @cached_property
    def _version(self) -> str:
        return _content(self._data)[0].hex()[:16]

    def answered(self) -> Mapping[str, int]:
        """Return how many of each kind were answered; those of another version of the data are other sums."""
        found: dict[str, int] = {}
        for line in self._ledger.all("steps"):
            version, kind, stop = str(line["data"]), str(line["of"]), int(line["stop"])
            kind = kind if version == self._version else f"{version} {kind}"
            found[kind] = max(stop, found.get(kind, 0))
        return found

    def add(self, kind: str, stop: int) -> None:
        """Write down how many of a kind are answered now; it is on disk when this returns."""
        self._ledger.add("steps", [{"data": self._version, "of": kind, "stop": stop}])


def _text(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


def _data(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text, validate=True))


def _packed(rows: RowNumbers) -> str:
    """Rows that follow each other take little room."""
    return _text(np.diff(rows, prepend=0).astype("<i8").tobytes())


def _unpacked(text: str) -> RowNumbers:
    return np.cumsum(np.frombuffer(_data(text), dtype="<i8"))


def _bits(text: str, n: int, d: int) -> BoolArray:
    found = np.unpackbits(np.frombuffer(_data(text), dtype=np.uint8), count=n * d)
    return found.reshape(n, d).astype(bool)


@dataclass(frozen=True)
class _Known:
    """The recordings of one run: number of rows and digest of each; `base` is the run that it updated."""

    run: str
    base: str
    sites: tuple[str, ...]
    recordings: tuple[tuple[int, str], ...]


class RecordingBook:
    """Which recordings a site offered in which run."""

    def __init__(self, state: Path, data: SiteData) -> None:
        self._ledger = SiteLedger(state)
        self._data = data

    def begin(self, run_id: str, study: Study) -> None:
        """Write down what is offered in a run, or refuse: rows of an update that are not new, parts beside their whole."""
        with self._ledger.hold():
            known = [_known(line) for line in self._ledger.all("recordings")]
            now = [_Prefixes(recording) for recording in self._data.recordings()]
            if study.update_of:
                self._require_new(study, known, now)
            self._require_same_sites(study, known, now)
            recordings = tuple(sorted(one.whole for one in now))
            line = _Known(run_id, study.update_of, tuple(sorted(study.sites)), recordings)
            if line not in known:
                self._ledger.add("recordings", [vars(line)])

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
