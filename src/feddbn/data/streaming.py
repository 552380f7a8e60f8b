"""Sites whose rows stay on disk: files are read again, batch by batch, each time the rows are needed.

Theory of operation
-------------------
- A first pass over the site, series and time columns alone (none for a Parquet file without them) finds
  where each recording begins and ends and the sampling step. It happens on first use and is kept.
- ``recordings()`` opens one cursor per file; reading recordings in order is one pass over the file.
- Each recording feeds its batches to a `Segmenter`, so segments are the same as in memory.

Known weaknesses: the rows of a recording must stand together in the file; CSV can only be read from its
beginning, so going back to an earlier recording costs a pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd

from feddbn.core.designs.recordings import Block, FinerSite, SiteData
from feddbn.data.kinds import read_kinds
from feddbn.data.layout import Layout, declared_kinds, frame_values, names_of_keys, row_labels
from feddbn.data.readings import beyond_limits, gathered_table, site_tally
from feddbn.data.segments import MOST_EMPTY, Segmenter
from feddbn.data.tables import CsvTable, Cursor, ParquetTable, Table, open_table
from feddbn.data.times import Clock, Grid, IntArray, StepCounter, parse_times
from feddbn.errors import DataError, ParameterError
from feddbn.findings import Finding
from feddbn.settings import whole

__all__ = [
    "CsvSite",
    "FileIndex",
    "FileRecording",
    "FileSite",
    "ParquetSite",
    "RowCutter",
    "RowRange",
    "index_files",
    "uneven_times",
]

_MOST_SEGMENTS = 10_000
Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


@dataclass(frozen=True)
class RowRange:
    """Rows ``start <= row < stop`` of one table are one recording; `stop` None means to the end."""

    name: str
    table: int
    start: int
    stop: int | None


@dataclass(frozen=True)
class Known:
    """What reading a recording to its end has told.

    Attributes
    ----------
    n_dropped
        How many rows are left out for missing values.
    segments
        (time of the first row, number of rows) of each; None if a cell is missing, or if they are too many to keep.
    n_beyond
        How many cells of each variable lie beyond their limits.
    """

    n_dropped: int
    segments: tuple[tuple[int, int], ...] | None
    n_beyond: IntArray


@dataclass(frozen=True)
class FileIndex:
    """Where a site's recordings are, its clock (None without times), and what to know about its times."""

    runs: tuple[RowRange, ...]
    clock: Clock | None
    remarks: tuple[Finding, ...] = ()


def uneven_times(counter: StepCounter, clock: Clock, layout: Layout) -> tuple[Finding, ...]:
    """Return a finding if rows were taken as evenly spaced that are not quite, and nobody asked for it."""
    is_said = layout.jitter is not None or layout.way != "refuse"
    found = None if is_said else counter.unevenness(clock, layout.tolerance)
    if found is None:
        return _coarser(clock) if layout.gaps == "keep" else ()
    share, most = found
    values = {"share": share, "most": most, "step": clock.describe()}
    return (Finding("uneven-times", "note", values, (str(layout.time),), {"jitter": 0}),)


def finer_site(site: SiteData, clock: Clock) -> FinerSite:
    """A site on a clock whose step is a part of its own."""
    remarks = (*getattr(site, "remarks", ()), *_coarser(clock))
    return FinerSite(site, clock.every, clock.text, remarks)


def _coarser(clock: Clock) -> tuple[Finding, ...]:
    """Return a finding if a site has rows at some of the steps only."""
    if not 1 < clock.every <= MOST_EMPTY + 1 or clock.step is None:
        return ()
    own = replace(clock, step=clock.step * clock.every)
    values = {"every": clock.every, "own": own.text, "step": clock.text}
    return (Finding("coarser-rows", "note", values),)


def index_files(
    tables: Sequence[Table], layout: Layout, where: str, batch_rows: int = 65536
) -> dict[str, FileIndex]:
    """Return site -> index, from the site, series and time columns alone; without site= the key is ``""``."""
    runs: dict[str, list[RowRange]] = {}
    counters: dict[str, StepCounter] = {}
    for number, table in enumerate(tables):
        prefix = f"{table.name}/" if len(tables) > 1 else ""
        keys = [name for name in (layout.site, layout.series) if name is not None]
        time = layout.time
        if not keys and time is None:
            runs.setdefault("", []).append(RowRange(table.name, number, 0, table.n_rows()))
            continue
        seen: set[tuple[str, ...]] = set()
        current: tuple[str, ...] | None = None
        row = 0
        columns = [*keys, *([time] if time is not None else [])]
        for frame in table.frames(columns, 0, batch_rows)[1]:
            if not len(frame):
                continue
            arguments = {layout.site: "site", layout.series: "series"}
            names = [names_of_keys(frame[key], arguments[key], where) for key in keys]
            changed = np.zeros(len(frame), dtype=bool)
            changed[0] = True
            for column in names:
                changed[1:] |= column[1:] != column[:-1]
            edges = [*np.flatnonzero(changed).tolist(), len(frame)]
            for start, stop in pairwise(edges):
                key = tuple(str(column[start]) for column in names)
                site = key[0] if layout.site is not None else ""
                mine = runs.setdefault(site, [])
                if key != current:
                    if key in seen:
                        raise DataError(
                            f"{where}: the rows of recording {key[-1]!r} do not stand together in {table.where}, which is "
                            f"too large to read at once; sort it by {', '.join(map(repr, keys))} and time."
                        )
                    seen.add(key)
                    current = key
                    name = prefix + key[-1] if layout.series is not None else table.name
                    mine.append(RowRange(name, number, row + start, row + stop))
                else:
                    mine[-1] = replace(mine[-1], stop=row + stop)
                if time is not None:
                    counter = counters.setdefault(site, StepCounter(layout.day_first))
                    counter.feed((number, mine[-1].start), frame[time].iloc[start:stop], where)
            row += len(frame)
    found = {}
    for site, its_runs in runs.items():
        if site not in counters:
            found[site] = FileIndex(tuple(its_runs), None)
            continue
        clock = counters[site].clock(layout.tolerance, layout.clock)
        found[site] = FileIndex(tuple(its_runs), clock, uneven_times(counters[site], clock, layout))
    return found


class RowCutter:
    """Turns the tables of one recording, whole or batch by batch, into blocks of numbers: times come to their grid, and
    segments end where rows are missing.
    """

    def __init__(self, where: str, variables: Sequence[str], layout: Layout, clock: Clock | None) -> None:
        self._layout = layout
        self._clock = None if layout.time is None else clock
        step = None if self._clock is None else self._clock.step
        self._grid = Grid(step, layout.tolerance)
        self.n_beyond = np.zeros(len(variables), dtype=np.int64)
        self.segmenter = Segmenter(
            where,
            variables,
            step,
            layout.gaps,
            layout.time or "time",
            fills=_fills(layout, self._clock),
        )

    def feed(self, frame: pd.DataFrame) -> Iterator[Block]:
        """Yield the blocks of the next rows."""
        layout, where, ticks = self._layout, self.segmenter.where, None
        if self._clock is not None:
            ticks = self._grid.snap(self._clock.ticks(frame[layout.time], where))
            first = parse_times(frame[layout.time].head(1), where, layout.day_first)
            self.segmenter.is_local = isinstance(first, pd.DatetimeIndex) and first.tz is None
        labels, unlabelled = row_labels(frame, layout, where)
        found = frame_values(frame, self.segmenter.variables, where, layout.kinds)
        values = layout.plausible(found, self.segmenter.variables)
        if values is not found:
            self.n_beyond += (np.isnan(values) & ~np.isnan(found)).sum(axis=0)
        return self.segmenter.feed(values, ticks, labels, unlabelled)


def _fills(layout: Layout, clock: Clock | None) -> tuple[int, ...]:
    """How many rows may be missing between two so that empty ones stand for them."""
    if layout.gaps != "keep" or clock is None:
        return ()
    if layout.way == "average":
        return tuple(range(1, MOST_EMPTY + 1))
    return (clock.every - 1,) if clock.every > 1 else ()


class FileSite:
    """Recordings in tables that are read in batches; memory does not grow with the number of rows."""

    def __init__(
        self,
        paths: Paths | Sequence[Table],
        variables: Sequence[str] | None = None,
        *,
        batch_rows: int = 65536,
        name: str | None = None,
        layout: Layout | None = None,
        index: FileIndex | None = None,
        **columns: Any,
    ) -> None:
        self.batch_rows: int = whole(1).check("batch_rows", batch_rows)
        columns |= {} if variables is None else {"variables": tuple(variables)}
        self.layout = Layout.of(layout, columns, type(self).__name__)
        given = [paths] if isinstance(paths, (str, PathLike)) else paths
        tables = [self._table(Path(one)) if isinstance(one, (str, PathLike)) else one for one in given]
        if not tables:
            raise ParameterError("paths is empty; give at least one file.")
        self.tables = tuple(tables)
        self.name = name or self.tables[0].name
        self._given_index = index
        self.known: dict[RowRange, Known] = {}
        self._versions = self._found_versions()
        self.said: tuple[Finding, ...] = ()
        indexed = {table.time_index for table in self.tables}
        if self.layout.time is None and len(indexed) == 1:
            self.layout = replace(self.layout, time=indexed.pop())
        self._made: tuple[Layout, tuple[Layout, ...]] = (self.layout, (self.layout,))
        if self.layout.gathers:
            self._gather()
        self._resolve_columns()
        read_kinds(declared_kinds(columns.get("kinds")), self.variables)

    def _found_versions(self) -> list[object]:
        return [table.version() for table in self.tables]

    def _require_same_files(self) -> None:
        """Rows are read many times, and whatever is known of them is of the tables that were opened."""
        if self._found_versions() != self._versions:
            raise DataError(
                f"files of site {self.name!r} have changed since they were opened; open them again."
            )

    def _table(self, path: Path) -> Table:
        """Return the table in a file."""
        return open_table(path, self.layout)

    def _gather(self) -> None:
        """Make rows of readings, once; they are tables of their own from then on."""
        made = [gathered_table(table, self.layout, self.batch_rows) for table in self.tables]
        self.tables = tuple(table for table, _ in made)
        self._made = (self.layout, tuple(layout for _, layout in made))
        self.layout, self._versions = made[0][1], self._found_versions()

    def _resolve_columns(self) -> None:
        where = f"site {self.name!r}"
        chosen: tuple[str, ...] | None = None
        for table in self.tables:
            columns = table.columns()
            self.layout.require_keys(columns, where)
            keys = self.layout.keys.values()
            data = [name for name in columns if name in keys or name not in table.index_columns]
            mine = self.layout.choose_variables(data, where)
            if chosen is not None:
                self.layout.require_same(mine, chosen, f"{table.where} of {where}", self.tables[0].where)
            chosen = chosen or mine
        assert chosen is not None
        self.variables: tuple[str, ...] = chosen

    @cached_property
    def index(self) -> FileIndex:
        """Where the recordings are and the sampling step; the first use reads the key columns once."""
        if self._given_index is not None:
            return self._given_index
        found = index_files(self.tables, self.layout, f"site {self.name!r}", self.batch_rows)
        return found.get("", FileIndex((), self.layout.clock))

    @property
    def step(self) -> str | None:
        """The length of a step, None without times."""
        return None if self.index.clock is None else self.index.clock.text

    @property
    def remarks(self) -> tuple[Finding, ...]:
        """What was decided about the times, and what was done to readings and to cells beyond their limits."""
        return (*self.said, *self.index.remarks, *site_tally(*self._made, self.name), *self._beyond)

    @cached_property
    def _beyond(self) -> tuple[Finding, ...]:
        if not self.layout.limits:
            return ()
        self._read_all()
        n = np.sum([known.n_beyond for known in self.known.values()], axis=0)
        return beyond_limits(self.variables, n)

    def _read_all(self) -> None:
        for recording in self.recordings():
            recording.count_dropped()

    @cached_property
    def n_dropped_rows(self) -> int:
        """Number of rows left out for missing values; recordings that were not read yet are."""
        self._read_all()
        return sum(known.n_dropped for known in self.known.values())

    def recordings(self) -> Iterator[FileRecording]:
        """Yield the recordings in the order of the files and their rows."""
        self._require_same_files()
        ends = {run.table: run.stop for run in self.index.runs}
        cursors = [self.cursor(number, ends.get(number)) for number in range(len(self.tables))]
        before = 0
        for run in self.index.runs:
            if run.table != before:
                # Who only looked at first rows has left the file open.
                cursors[before].release()
            before = run.table
            yield FileRecording(self, run, cursors[run.table])
        self._require_same_files()

    def cursor(self, table: int, end: int | None = None) -> Cursor:
        """Return a place in one of the tables, at the columns that recordings are read from."""
        named = self.layout.keys
        keys = [name for name in (named["time"], named["label"]) if name is not None]
        return Cursor(self.tables[table], [*self.renamed, *keys], self.batch_rows, end)

    @cached_property
    def renamed(self) -> dict[str, str]:
        """Column of each variable -> the variable."""
        return {one.name: self.variables[k] for k, one in self.layout.sources_of(self.variables)}


class FileRecording:
    """One recording of a `FileSite`."""

    def __init__(self, site: FileSite, run: RowRange, cursor: Cursor) -> None:
        self.name = run.name
        self.site = site
        self.run = run
        self.cursor = cursor

    def blocks(self) -> Iterator[Block]:
        """Yield the rows in batches; a batch that continues a segment says so."""
        where = f"recording {self.name!r} of site {self.site.name!r}"
        site = self.site
        cutter = RowCutter(where, site.variables, site.layout, site.index.clock)
        segments: list[tuple[int, int]] = []
        for block in self._feed(cutter):
            n, time = len(block.values), block.time or 0
            if not block.starts_segment and segments:
                time, before = segments.pop()
                n += before
            if len(segments) < _MOST_SEGMENTS:
                segments.append((time, n))
            yield block
        is_known = not cutter.segmenter.has_empty and len(segments) < _MOST_SEGMENTS
        known = tuple(segments) if is_known else None
        site.known[self.run] = Known(cutter.segmenter.n_dropped, known, cutter.n_beyond)

    def _feed(self, cutter: RowCutter) -> Iterator[Block]:
        row = self.run.start
        while (frame := self.cursor.read(row, self.run.stop)) is not None:
            row += len(frame)
            yield from cutter.feed(frame.rename(columns=self.site.renamed))

    def count_dropped(self) -> int:
        """Return how many rows are left out for missing values; reads the recording if nobody has."""
        if self.run not in self.site.known:
            for _ in self.blocks():
                pass
        return self.site.known[self.run].n_dropped

    def known_segments(self) -> tuple[tuple[int, int], ...] | None:
        """(time of the first row, number of rows) of each segment, if it is known and no cell is missing."""
        known = self.site.known.get(self.run)
        return None if known is None else known.segments


@final
class ParquetSite(FileSite):
    """A site whose recordings are in Parquet files (needs pyarrow).

    Parameters
    ----------
    paths
        One file or several; without `series` each is one recording.
    variables, layout, columns
        Which columns are what, and how times are read: as in `read_sites`, but rows cannot be sorted.
    batch_rows
        Rows held in memory at once.
    name
        The site's name in messages; by default the first file's.

    Examples
    --------
    >>> import tempfile, pathlib, pandas as pd
    >>> from feddbn.data import ParquetSite
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "rows.parquet"
    >>> pd.DataFrame({"x": [1.0, 3.0], "y": [2.0, 4.0]}).to_parquet(path)
    >>> ParquetSite(path).variables
    ('x', 'y')
    """

    def _table(self, path: Path) -> Table:
        return ParquetTable(path)


@final
class CsvSite(FileSite):
    r"""A site whose recordings are in CSV or TSV files; parameters as for `ParquetSite`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from feddbn.data import CsvSite
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "rows.csv"
    >>> _ = path.write_text("x,y\n1,2\n3,4\n", encoding="utf-8")
    >>> CsvSite(path).variables
    ('x', 'y')
    """

    def _table(self, path: Path) -> Table:
        return CsvTable(path, self.layout)
