"""Anything a person may hold time series in -> named sites of recordings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from feddbn.core.designs.recordings import SiteData
from feddbn.core.kinds import read_kinds
from feddbn.data.layout import Layout, names_of_keys, unnamed
from feddbn.data.memory import AlignedSite, ArrayRecording, MemorySite
from feddbn.data.readings import tidy_frame
from feddbn.data.streaming import CsvSite, FileSite, ParquetSite, RowCutter, index_files, uneven_times
from feddbn.data.tables import ParquetTable, data_files, open_table, plain_frame, stem
from feddbn.data.times import Clock, StepCounter, order_of
from feddbn.errors import DataError, FileError, Given, ParameterError
from feddbn.findings import Finding

__all__ = ["STREAM_BYTES", "read_sites", "readable_sites"]

STREAM_BYTES = 64 * 2**20


@dataclass(frozen=True)
class _Part:
    """One table of a site: a frame or an array under the name its recording gets."""

    name: str
    table: pd.DataFrame | np.ndarray


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
        - a dict from site name to a DataFrame (pandas, Polars, PyArrow or another that narwhals reads), an array
          (rows, variables), a list of them (one per recording), a path, or a `SiteData`, which passes through;
        - one DataFrame: with `site` a long table of all sites, otherwise one site ``"site-0"``, as for a
          bare array or list;
        - a path to a .csv, .tsv or .parquet file: as the DataFrame in it, except that without `site` the one
          site has the file's name; or to a directory: each file, or sub-directory of files, is one site with
          its name, and each file in a sub-directory is one recording.
    layout, columns
        Which columns are what, and how times are read: a `feddbn.Layout`, or its fields by name (``site="ward"``).
    stream_bytes
        A site whose files are larger than this together stays on disk and is read in batches.
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
    layout = Layout.of(layout, columns, "read_sites")
    return _together(*_Reader(layout, stream_bytes).read(data), layout, same_variables)


def readable_sites(data: Any, layout: Layout) -> tuple[dict[str, SiteData], dict[str, DataError]]:
    """Return the sites that can be read, as `read_sites` does, and site -> why it is refused."""
    reader = _EachReader(layout, STREAM_BYTES)
    found, clocks = reader.read(data)
    kept = {name: site for name, site in found.items() if name not in reader.refused}
    return {} if reader.refused and not kept else _together(kept, clocks, layout), reader.refused


def _together(
    found: dict[str, SiteData], clocks: Mapping[str, Clock], layout: Layout, same_variables: bool = True
) -> dict[str, SiteData]:
    if not found:
        raise DataError("data has no sites; give at least one.")
    _require_one_step(clocks)
    read_kinds(layout.kinds, tuple(dict.fromkeys(name for one in found.values() for name in one.variables)))
    if not same_variables:
        return {name: _align({name: one}, layout)[name] for name, one in found.items()}
    return _align(found, layout)


class _Reader:
    """Finds out what was given; every branch ends in `_memory_site` or a `FileSite`."""

    def __init__(self, layout: Layout, stream_bytes: int) -> None:
        self.layout = layout
        self.stream_bytes = stream_bytes
        self.clocks: dict[str, Clock] = {}

    def read(self, data: Any) -> tuple[dict[str, SiteData], dict[str, Clock]]:
        """Return the sites and the clocks of those that have times."""
        data = plain_frame(data)
        if isinstance(data, Mapping) and not issparse(data):
            names = [str(name) for name in data]
            if len(set(names)) < len(names):
                raise DataError("data has two sites of the same name; site names are compared as text.")
            inner = replace(self.layout, site=None)
            if self.layout.site is not None:
                raise ParameterError(
                    f"{Given('site', self.layout.site)} goes with one table of all sites, but data is a dict whose "
                    "keys name the sites."
                )
            sites = {str(name): self._site(str(name), value, inner) for name, value in data.items()}
        elif isinstance(data, (str, PathLike)):
            sites = self._path(Path(data))
        elif isinstance(data, pd.DataFrame) and self.layout.site is not None:
            sites = self._long(data)
        else:
            if self.layout.site is not None:
                raise ParameterError(
                    f"{Given('site', self.layout.site)} needs one DataFrame or file, not {type(data).__name__}."
                )
            sites = {"site-0": self._site("site-0", data, self.layout)}
        return sites, self.clocks

    def _site(self, name: str, value: Any, layout: Layout) -> SiteData:
        where, value = f"site {name!r}", plain_frame(value)
        if isinstance(value, (list, tuple)):
            value = [plain_frame(item) for item in value]
        if isinstance(value, (str, PathLike)):
            path = Path(value)
            return self._files(name, data_files(path) if path.is_dir() else [path], layout)
        if isinstance(value, (pd.DataFrame, np.ndarray)):
            return self._memory_site(name, [_Part("recording-0", value)], layout)
        if isinstance(value, (list, tuple)) and value:
            if all(isinstance(item, (str, PathLike)) for item in value):
                return self._files(name, [Path(item) for item in value], layout)
            if all(isinstance(item, (pd.DataFrame, np.ndarray)) for item in value):
                parts = [_Part(f"recording-{i}", item) for i, item in enumerate(value)]
                return self._memory_site(name, parts, layout)
        if issparse(value):
            raise DataError(
                f"{where} is sparse, which is not supported; give {type(value).__name__}.toarray()."
            )
        if isinstance(value, (list, tuple)) and not value:
            raise DataError(f"{where} is an empty list; give at least one recording or leave the site out.")
        if isinstance(value, SiteData):
            return value
        raise DataError(
            f"{where} is of type {type(value).__name__}; give a DataFrame, a two-dimensional array, a list "
            "of them, or a path."
        )

    def _path(self, path: Path) -> dict[str, SiteData]:
        if not path.exists():
            raise FileError(f"file {str(path)!r} does not exist; check the path.")
        if not path.is_dir():
            if self.layout.site is not None:
                return self._long_file(path)
            return {stem(path): self._files(stem(path), [path], self.layout)}
        if self.layout.site is not None:
            raise ParameterError(
                f"{Given('site', self.layout.site)} goes with one table of all sites, but {str(path)!r} is a "
                "directory whose files "
                "name the sites."
            )
        groups = [(stem(file), [file]) for file in data_files(path)]
        for folder in sorted(
            item for item in path.iterdir() if item.is_dir() and not item.name.startswith((".", "_"))
        ):
            if data_files(folder):
                groups.append((folder.name, data_files(folder)))
        names = [name for name, _ in groups]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise FileError(
                f"directory {str(path)!r} has more than one file or folder for site {twice[0]!r}; rename one."
            )
        if not groups:
            raise FileError(
                f"directory {str(path)!r} has no .csv, .tsv or .parquet file in it or its sub-directories."
            )
        return {name: self._files(name, files, self.layout) for name, files in sorted(groups)}

    def _files(self, name: str, files: list[Path], layout: Layout) -> SiteData:
        if not files:
            raise FileError(f"site {name!r} has no .csv, .tsv or .parquet file in its directory.")
        tables = [open_table(file, layout.text_columns, layout.level_names) for file in files]
        kinds = {type(table) for table in tables}
        is_large = sum(file.stat().st_size for file in files) > self.stream_bytes
        if len(kinds) == 1 and is_large and not layout.sort:
            cls = ParquetSite if kinds == {ParquetTable} else CsvSite
            streamed = cls(files, name=name, layout=layout)
            self._note_clock(name, streamed)
            return streamed
        return self._memory_site(name, [_Part(stem(t.path), t.frame()) for t in tables], layout)

    def _note_clock(self, name: str, site: FileSite) -> None:
        if site.layout.time is not None and site.index.clock is not None:
            self.clocks[name] = site.index.clock

    def _long(
        self, frame: pd.DataFrame, origin: str = "data", part: str = "recording-0"
    ) -> dict[str, SiteData]:
        column = self.layout.site
        assert column is not None
        frame, layout = tidy_frame(frame, self.layout, origin)
        inner = replace(layout, site=None, variables=layout.choose_variables(list(frame.columns), origin))
        keys = names_of_keys(frame[column], "site", origin)
        sites: dict[str, SiteData] = {}
        for name, rows in frame.drop(columns=column).groupby(keys, sort=False):
            sites[str(name)] = self._memory_site(str(name), [_Part(part, rows.reset_index(drop=True))], inner)
        return sites

    def _long_file(self, path: Path) -> dict[str, SiteData]:
        table = open_table(path, self.layout.text_columns, self.layout.level_names)
        origin = f"file {path.name!r}"
        if path.stat().st_size <= self.stream_bytes or self.layout.sort:
            return self._long(table.frame(), origin, stem(path))
        cls = ParquetSite if isinstance(table, ParquetTable) else CsvSite
        layout = cls(path, name=path.name, layout=self.layout).layout
        sites: dict[str, SiteData] = {}
        for name, index in index_files([table], layout, origin).items():
            streamed = cls(path, name=name, layout=layout, index=index)
            self._note_clock(name, streamed)
            sites[name] = streamed
        return sites

    def _memory_site(self, name: str, parts: list[_Part], layout: Layout) -> MemorySite:
        where = f"site {name!r}"
        collected: list[_Series] = []
        variables: tuple[str, ...] | None = None
        for part in parts:
            place = where if len(parts) == 1 else f"recording {part.name!r} of {where}"
            frame, own = _as_frame(part.table, layout, place)
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
        items, n_dropped = [], 0
        for item in collected:
            cutter = RowCutter(f"recording {item.name!r} of {where}", variables, item.layout, clock)
            items.append(ArrayRecording(item.name, tuple(cutter.feed(item.frame))))
            n_dropped += cutter.segmenter.n_dropped
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

    def _site(self, name: str, value: Any, layout: Layout) -> SiteData:
        return self._or_empty(name, lambda: super(_EachReader, self)._site(name, value, layout))

    def _files(self, name: str, files: list[Path], layout: Layout) -> SiteData:
        return self._or_empty(name, lambda: super(_EachReader, self)._files(name, files, layout))

    def _or_empty(self, name: str, read: Callable[[], SiteData]) -> SiteData:
        try:
            return read()
        except DataError as error:
            self.clocks.pop(name, None)
            self.refused[name] = error
            return MemorySite((), ())


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
        fix = {
            1: "reshape(-1, 1) makes one variable of it",
            3: "give list(array) for one recording per entry",
        }
        raise DataError(
            f"{where} is an array with {table.ndim} dimensions instead of 2 (rows, variables)"
            + (f"; {fix[table.ndim]}." if table.ndim in fix else ".")
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


def _require_one_step(clocks: Mapping[str, Clock]) -> None:
    known = {name: clock for name, clock in clocks.items() if clock.step is not None}
    for other, b in known.items():
        first, a = next(iter(known.items()))
        if not a.is_like(b):
            raise DataError(
                f"site {first!r} has a row every {a.describe()} but site {other!r} every {b.describe()}, so one "
                f"lag would mean different things; resample one of them, or give the expected step with {Given('freq')}."
            )


def _align(sites: dict[str, SiteData], layout: Layout) -> dict[str, SiteData]:
    first = next(iter(sites))
    reference = tuple(layout.variables or sites[first].variables)
    aligned: dict[str, SiteData] = {}
    for name, data in sites.items():
        if layout.variables is not None:
            layout.choose_variables(tuple(data.variables), f"site {name!r}")
        else:
            layout.require_same(tuple(data.variables), reference, f"site {name!r}", f"site {first!r}")
        aligned[name] = data if tuple(data.variables) == reference else AlignedSite(reference, data)
    return aligned
