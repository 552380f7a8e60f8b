"""Anything a person may hold time series in -> named sites of recordings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import combinations
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from feddbn.core.designs.recordings import SiteData
from feddbn.data.described import described, descriptions, left_out
from feddbn.data.kinds import read_kinds
from feddbn.data.layout import Layout, names_of_keys, quoted, unnamed
from feddbn.data.memory import AlignedSite, ArrayRecording, MemorySite
from feddbn.data.readings import Counted, Gathered, beyond_limits, refuse_readings, site_tally, tidy_frame
from feddbn.data.segments import MOST_EMPTY
from feddbn.data.steps import MOST_APART, StepCount, StepTable
from feddbn.data.streaming import FileSite, RowCutter, finer_site, index_files, uneven_times
from feddbn.data.tables import (
    ENDINGS,
    Table,
    data_files,
    data_folders,
    frame_within,
    is_labelled,
    stem,
    table_of,
)
from feddbn.data.times import Clock, StepCounter, order_of
from feddbn.errors import DataError, FileError, Given, ParameterError
from feddbn.findings import Finding

__all__ = ["STREAM_BYTES", "held", "read_sites", "readable_sites", "reading_steps"]

STREAM_BYTES = 64 * 2**20


@dataclass(frozen=True)
class _Part:
    """One table of a site: a frame or an array under the name its recording gets."""

    name: str
    table: pd.DataFrame | np.ndarray
    said: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class _Series:
    """One recording before it is cut into segments."""

    name: str
    frame: pd.DataFrame
    layout: Layout


def read_sites(
    data: Any,
    *,
    layout: Layout | None = None,
    stream_bytes: int = STREAM_BYTES,
    same_variables: bool = True,
    **columns: Any,
) -> dict[str, SiteData]:
    """Return site name -> its recordings, with the same variables in the same order everywhere.

    Parameters
    ----------
    data
        - a dict from site name to its rows: a frame that narwhals reads (pandas, Polars, PyArrow, Modin; lazily Polars,
          DuckDB, Ibis), anything with ``__arrow_c_stream__``, an array (rows, variables), a DataArray or Dataset of
          xarray, a `SqlTable`, a path; a list of them, or an array (recordings, rows, variables), one entry per
          recording; or a `SiteData`, which passes through;
        - one of these alone: with `site` a long table of all sites, otherwise one site ``"site-0"``;
        - a path to a text (.csv, .tsv), Parquet (.parquet) or Arrow file (.arrow, .feather): as the frame in it, except
          that without `site` the one site has the file's name; or to a directory: each file, or sub-directory of files, is
          one site with its name, and each file in a sub-directory is one recording;
        - a path to a .toml file that says where data are (``data = ...``) and how they are read (fields of `Layout`), or to
          a directory of such files, one for each site.
    layout, columns
        Which columns are what, and how times are read: a `feddbn.Layout`, or its fields by name (``site="ward"``).
    stream_bytes
        A site whose files, lazy frames or answers to queries are larger than this together stays where it is and is read
        in batches.
    same_variables
        False leaves every site with the variables it has.

    Examples
    --------
    >>> import pandas as pd
    >>> from feddbn.data import read_sites
    >>> rows = pd.DataFrame({"ward": ["a", "a", "b", "b"], "pulse": [60.0, 62.0, 70.0, 71.0]})
    >>> sorted(read_sites(rows, site="ward"))
    ['a', 'b']
    """
    said = Layout.of(layout, columns, "read_sites")
    reader = _Reader(said, stream_bytes)
    try:
        return _together(*reader.read(data), reader.layout, same_variables)
    except DataError as error:

        def read(other: Layout) -> None:
            again = _Reader(other, stream_bytes)
            _together(*again.read(reader._data), again.layout, same_variables)

        raise _with_cures(error, said, read) from None


def readable_sites(data: Any, layout: Layout) -> tuple[dict[str, SiteData], dict[str, DataError]]:
    """Return the sites that can be read, as `read_sites` does, and site -> why it is refused."""
    reader = _EachReader(layout, STREAM_BYTES)
    found, clocks = reader.read(data)
    kept = {name: site for name, site in found.items() if name not in reader.refused}

    def read(name: str, other: Layout) -> object:
        return _Reader(other, STREAM_BYTES).read({name: reader.given[name][0]})

    refused = {
        name: _with_cures(one, reader.given[name][1], partial(read, name))
        for name, one in reader.refused.items()
    }
    return {} if refused and not kept else _together(kept, clocks, reader.layout), refused


_JITTERS = (0.1, 0.2, 0.3, 0.4, 0.49)
_CURES: dict[str, tuple[tuple[dict[str, Any], ...], ...]] = {
    "closer": (
        ({"freq": "MS"}, {"freq": "B"}, *({"jitter": share} for share in _JITTERS)),
        ({"irregular": "average"},),
    ),
    "same-time": (({"irregular": "average"},),),
    "earlier": (({"sort": True},),),
}
"""Code of a refusal -> settings that may cure it; of several of one kind the first that does is named."""


def _with_cures(error: DataError, layout: Layout, read: Callable[[Layout], object]) -> DataError:
    """The refusal with the settings that cure it: each was tried on the data, and none is one that was given."""
    if error.code not in _CURES:
        return error
    named = [f"{Given('series')} if a column tells recordings apart"]
    cures = named if error.code in ("same-time", "earlier") and layout.series is None else []
    for several in _CURES[error.code]:
        for change in several:
            ((name, value),) = change.items()
            is_given = (
                layout.freq is not None if name == "freq" else name == "jitter" and value <= layout.tolerance
            )
            if is_given or layout.way != "refuse":
                continue
            try:
                read(replace(layout, **change))
            except DataError:
                continue
            cures.append(f"{Given(name, value)}")
            break
    sentence = "".join(f"{part}" for part in error.parts)
    if not cures:
        return error
    return DataError(f"{sentence[:-1]}, or use {', or '.join(cures)}.", code=error.code, **error.values)


def _together(
    found: dict[str, SiteData], clocks: Mapping[str, Clock], layout: Layout, same_variables: bool = True
) -> dict[str, SiteData]:
    if not found:
        raise DataError("data has no sites; give at least one.")
    found = _on_one_step(found, clocks, layout)
    read_kinds(layout.kinds, tuple(dict.fromkeys(name for one in found.values() for name in one.variables)))
    if not same_variables:
        return {name: _align({name: one}, layout)[name] for name, one in found.items()}
    return _align(found, layout)


def held(data: Any) -> Any:
    """Return data that can be read again and again: streams that would be used up become frames."""
    if is_labelled(data) or issparse(data):
        return data
    if isinstance(data, Mapping):
        return {name: held(value) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [held(value) if hasattr(value, "__arrow_c_stream__") else value for value in data]
    return table_of(data) if hasattr(data, "__arrow_c_stream__") else data


class _Reader:
    """Finds out what was given; every branch ends in `_memory_site` or a `FileSite`."""

    def __init__(self, layout: Layout, stream_bytes: int) -> None:
        self.layout = layout
        self.stream_bytes = stream_bytes
        self.clocks: dict[str, Clock] = {}
        self.remarks: tuple[Finding, ...] = ()

    def read(self, data: Any) -> tuple[dict[str, SiteData], dict[str, Clock]]:
        """Return the sites and the clocks of those that have times."""
        self._data = data = held(data)
        name = stem(Path(data)) if isinstance(data, (str, PathLike)) else "site-0"
        told, layout = described(data, self.layout)
        if layout is not self.layout and layout.site is None:
            return {name: self._site(name, data)}, self.clocks
        data, self.layout, site = told, self._settled(layout), layout.site
        if isinstance(data, Mapping) and not is_labelled(data) and not issparse(data):
            names = [str(name) for name in data]
            if len(set(names)) < len(names):
                raise DataError("data has two sites of the same name; site names are compared as text.")
            if site is not None:
                raise ParameterError(
                    f"{Given('site', site)} goes with one table of all sites, but data is a dict whose keys name the sites."
                )
            return {str(name): self._site(str(name), value) for name, value in data.items()}, self.clocks
        if isinstance(data, (str, PathLike)) and Path(data).is_dir():
            return self._directory(Path(data)), self.clocks
        found = table_of(data, self.layout)
        if site is None:
            return {name: self._site(name, found)}, self.clocks
        if isinstance(found, Table):
            return self._long_table(found), self.clocks
        if isinstance(found, pd.DataFrame):
            return self._long(found), self.clocks
        raise ParameterError(f"{Given('site', site)} needs one DataFrame or file, not {type(data).__name__}.")

    def _settled(self, layout: Layout) -> Layout:
        """The layout with a step, which is one for all sites, where it needs one."""
        if not layout.needs_step:
            return layout
        if not self.remarks:
            table = reading_steps(self._data, self.layout, self.stream_bytes)
            step = table.best
            if step is None:
                raise DataError(
                    f"no usual step keeps {MOST_APART:.0%} of the readings apart; give one with {Given('freq')}.",
                    code="no-step",
                )
            values = {"step": step, "part": float(table.kept[table.steps.index(step)])}
            self.remarks = (Finding("auto-step", "note", values, cure={"freq": step}),)
        return replace(layout, freq=self.remarks[0].values["step"], irregular="average")

    def _site(self, name: str, value: Any) -> SiteData:
        value, layout = described(value, self.layout)
        if layout is not self.layout:
            of_all, self.layout = self.layout, self._settled(layout)
            try:
                return self._site(name, value)
            finally:
                self.layout = of_all
        where = f"site {name!r}"
        if isinstance(value, (str, PathLike)) and Path(value).is_dir():
            value = data_files(Path(value))
            if not value:
                raise FileError(f"{where} has no {ENDINGS} file in its directory.")
        value = table_of(value, layout)
        items = [table_of(item, layout) for item in value] if isinstance(value, (list, tuple)) else [value]
        if items and all(isinstance(item, Table) for item in items):
            return self._tables(name, items, layout)
        if items and all(isinstance(item, (pd.DataFrame, np.ndarray, Table)) for item in items):
            frames = (item.frame() if isinstance(item, Table) else item for item in items)
            parts = [_Part(f"recording-{i}", item) for i, item in enumerate(frames)]
            return self._memory_site(name, parts, layout)
        if issparse(value):
            raise DataError(f"{where} is sparse, which is not read; give {type(value).__name__}.toarray().")
        if isinstance(value, (list, tuple)) and not value:
            raise DataError(f"{where} is an empty list; give at least one recording or leave the site out.")
        if isinstance(value, SiteData):
            return value
        raise DataError(
            f"{where} is of type {type(value).__name__}; give a DataFrame, a two-dimensional array, a list "
            "of them, or a path."
        )

    def _directory(self, path: Path) -> dict[str, SiteData]:
        if self.layout.site is not None:
            raise ParameterError(
                f"{Given('site', self.layout.site)} goes with one table of all sites, but {str(path)!r} is a "
                "directory whose files name the sites."
            )
        told = descriptions(path)
        others = left_out(path) if told else []
        if others:
            raise FileError(
                f"directory {str(path)!r} has descriptions ({quoted([one.name for one in told])}), which do not name "
                f"{quoted(others)}; describe each by a file with data = {others[0]!r}, or move what is no site elsewhere.",
                code="left-out",
            )
        if told:
            return {stem(file): self._site(stem(file), file) for file in told}
        groups = [(stem(file), [file]) for file in data_files(path)]
        groups += [(one.name, data_files(one)) for one in data_folders(path)]
        names = [name for name, _ in groups]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise FileError(
                f"directory {str(path)!r} has more than one file or folder for site {twice[0]!r}; rename one."
            )
        if not groups:
            raise FileError(f"directory {str(path)!r} has no {ENDINGS} file in it or its sub-directories.")
        return {name: self._site(name, files) for name, files in sorted(groups)}

    def _tables(self, name: str, tables: Sequence[Table], layout: Layout) -> SiteData:
        """Small tables are read at once, and so is whatever has to be sorted; others stay where they are."""
        parts, left = [], self.stream_bytes - sum(table.size or 0 for table in tables)
        for table in tables if left >= 0 or layout.sort else ():
            frame = table.frame() if layout.sort else frame_within(table, left + (table.size or 0))
            if frame is None:
                break
            left -= int(frame.memory_usage().sum()) if table.size is None else 0
            parts.append(_Part(table.name, frame, table.said))
        if len(parts) == len(tables):
            return self._memory_site(name, parts, layout)
        streamed = FileSite(tables, name=name, layout=layout)
        self._note_clock(name, streamed)
        return streamed

    def _note_clock(self, name: str, site: FileSite) -> None:
        site.said = (*self.remarks, *(one for table in site.tables[:1] for one in table.said))
        if site.layout.time is not None and site.index.clock is not None:
            self.clocks[name] = site.index.clock

    def _long(
        self,
        frame: pd.DataFrame,
        origin: str = "data",
        part: str = "recording-0",
        said: tuple[Finding, ...] = (),
    ) -> dict[str, SiteData]:
        column = self.layout.site
        assert column is not None
        frame, layout = tidy_frame(frame, self.layout, origin)
        if self.layout.names is not None and isinstance(layout, Gathered):
            self.layout.require_sources(layout.found, origin, f"readings in column {self.layout.names!r} of")
        inner = replace(layout, site=None, variables=layout.choose_variables(list(frame.columns), origin))
        keys = names_of_keys(frame[column], "site", origin)
        sites: dict[str, SiteData] = {}
        for name, rows in frame.drop(columns=column).groupby(keys, sort=False):
            own = _Part(part, rows.reset_index(drop=True), said)
            sites[str(name)] = self._memory_site(str(name), [own], inner)
        return sites

    def _long_table(self, table: Table) -> dict[str, SiteData]:
        """The sites of one table that names them in a column."""
        frame = table.frame() if self.layout.sort else frame_within(table, self.stream_bytes)
        if frame is not None:
            return self._long(frame, table.where, table.name, table.said)
        whole = FileSite([table], layout=self.layout)
        tables, layout = whole.tables, whole.layout
        sites: dict[str, SiteData] = {}
        for name, index in index_files(tables, layout, table.where).items():
            streamed = FileSite(tables, name=name, layout=layout, index=index)
            self._note_clock(name, streamed)
            sites[name] = streamed
        return sites

    def _memory_site(self, name: str, parts: list[_Part], layout: Layout) -> MemorySite:
        where = f"site {name!r}"
        collected: list[_Series] = []
        variables: tuple[str, ...] | None = None
        layouts: list[Layout] = []
        for part in parts:
            place = where if len(parts) == 1 else f"recording {part.name!r} of {where}"
            frame, own = _as_frame(part.table, layout, place)
            layouts.append(own)
            mine = own.choose_variables([str(c) for c in frame.columns], place)
            if variables is not None:
                layout.require_same(mine, variables, place, f"recording {parts[0].name!r}")
            variables = variables or mine
            if own.series is None:
                collected.append(_Series(part.name, frame, own))
                continue
            prefix = f"{part.name}/" if len(parts) > 1 else ""
            for key, rows in frame.groupby(names_of_keys(frame[own.series], "series", place), sort=False):
                collected.append(_Series(f"{prefix}{key}", rows, own))
        assert variables is not None
        if layout.sort:
            collected = [_sorted(item, where) for item in collected]
        clock, remarks = self._clock(name, collected)
        remarks += self.remarks + site_tally(layout, layouts, name)
        remarks += tuple(part.said[0] for part in parts if part.said)[:1]
        items, n_dropped, n_beyond = [], 0, np.zeros(len(variables), dtype=np.int64)
        for item in collected:
            place = f"recording {item.name!r} of {where}"
            cutter = RowCutter(place, variables, item.layout, clock)
            try:
                segments = tuple(cutter.feed(item.frame))
            except DataError as error:
                if error.code == "not-numeric":
                    refuse_readings(item.frame, item.layout, place)
                raise
            items.append(ArrayRecording(item.name, segments))
            n_dropped += cutter.segmenter.n_dropped
            n_beyond += cutter.n_beyond
        remarks += beyond_limits(variables, n_beyond)
        step = None if clock is None else clock.text
        return MemorySite(variables, tuple(items), n_dropped, remarks, step)

    def _clock(self, name: str, collected: list[_Series]) -> tuple[Clock | None, tuple[Finding, ...]]:
        timed = [(i, item) for i, item in enumerate(collected) if item.layout.time is not None]
        if not timed:
            return None, ()
        counter = StepCounter(self.layout.day_first)
        for i, item in timed:
            counter.feed(i, item.frame[item.layout.time], f"recording {item.name!r} of site {name!r}")
        own = timed[0][1].layout
        clock = counter.clock(own.tolerance, own.clock)
        self.clocks[name] = clock
        return clock, uneven_times(counter, clock, own)


class _EachReader(_Reader):
    """Reads on after a site that is refused, which is empty then."""

    def __init__(self, layout: Layout, stream_bytes: int) -> None:
        super().__init__(layout, stream_bytes)
        self.refused: dict[str, DataError] = {}
        self.given: dict[str, tuple[Any, Layout]] = {}

    def _site(self, name: str, value: Any) -> SiteData:
        try:
            return super()._site(name, value)
        except DataError as error:
            self.clocks.pop(name, None)
            self.refused[name], self.given[name] = error, (value, self.layout)
            return MemorySite((), ())


class _CountingReader(_EachReader):
    """Counts what usual steps would keep of the readings of every site."""

    def __init__(self, layout: Layout, stream_bytes: int) -> None:
        super().__init__(layout, stream_bytes)
        self.counts: list[StepCount] = []

    def _settled(self, layout: Layout) -> Layout:
        own = {one.name: getattr(layout, one.name) for one in fields(Layout)}
        return Counted(**own | {"irregular": "average", "freq": None}, counts=self.counts)

    def _site(self, name: str, value: Any) -> SiteData:
        n = len(self.counts)
        site = super()._site(name, value)
        if name in self.refused:
            del self.counts[n:]
        return site


def reading_steps(data: Any, layout: Layout, stream_bytes: int = STREAM_BYTES) -> StepTable:
    """Return which usual steps keep how much of the readings of all sites that can be read."""
    reader = _CountingReader(layout, stream_bytes)
    sites, _ = reader.read(data)
    if reader.refused and len(reader.refused) == len(sites):
        raise next(iter(reader.refused.values()))
    return StepTable.of(reader.counts)


def _sorted(item: _Series, where: str) -> _Series:
    time = item.layout.time
    if time is None:
        raise ParameterError(
            f"{Given('sort', True)} needs times to sort by; name their column with {Given('time')}."
        )
    order = order_of(item.frame[time], f"recording {item.name!r} of {where}", item.layout.day_first)
    return item if order is None else replace(item, frame=item.frame.iloc[order])


def _as_frame(table: pd.DataFrame | np.ndarray, layout: Layout, where: str) -> tuple[pd.DataFrame, Layout]:
    if isinstance(table, pd.DataFrame):
        return tidy_frame(table, layout, where)
    if table.ndim != 2:
        fix = (
            "; reshape(-1, 1) makes one variable of it"
            if table.ndim == 1
            else ", or 3 (recordings, rows, variables)"
        )
        raise DataError(
            f"{where} is an array with {table.ndim} dimensions instead of 2 (rows, variables){fix}."
        )
    for argument, column in layout.keys.items():
        if column is not None:
            raise DataError(
                f"{where} is an array without column names, so {Given(argument, column)} cannot be found; give a "
                "DataFrame."
            )
    names = unnamed(table.shape[1])
    if layout.variables is not None and len(layout.variables) == table.shape[1]:
        names = tuple(layout.variables)
    return tidy_frame(pd.DataFrame(table, columns=list(names), copy=False), layout, where)


def _on_one_step(
    sites: dict[str, SiteData], clocks: Mapping[str, Clock], layout: Layout
) -> dict[str, SiteData]:
    """Sites whose step is a whole multiple of the finest one are read on that, with empty rows in between."""
    known = {name: clock for name, clock in clocks.items() if clock.step is not None}
    different = tuple(dict.fromkeys(known.values()))
    most = MOST_EMPTY + 1 if layout.gaps == "keep" and layout.way == "refuse" else 1
    for finest in different:
        steps = {clock: clock.steps_of(finest) for clock in different}
        if all(0 < n <= most for n in steps.values()):
            slow = {name: steps[clock] for name, clock in known.items() if steps[clock] > 1}
            return sites | {
                n: finer_site(sites[n], replace(finest, every=every)) for n, every in slow.items()
            }
    for (first, a), (other, b) in combinations(known.items(), 2):
        if a.steps_of(b) != 1:
            raise DataError(
                f"site {first!r} has a row every {a.describe()} but site {other!r} every {b.describe()}, so one "
                f"lag would mean different things; resample one of them, or give the expected step with {Given('freq')}.",
                code="two-steps",
            )
    return sites


def _align(sites: dict[str, SiteData], layout: Layout) -> dict[str, SiteData]:
    first, layout = next(iter(sites)), replace(layout, sources=None)
    reference = tuple(layout.variables or sites[first].variables)
    aligned: dict[str, SiteData] = {}
    for name, data in sites.items():
        if layout.variables is not None:
            layout.choose_variables(tuple(data.variables), f"site {name!r}")
        else:
            layout.require_same(tuple(data.variables), reference, f"site {name!r}", f"site {first!r}")
        aligned[name] = data if tuple(data.variables) == reference else AlignedSite(reference, data)
    return aligned
