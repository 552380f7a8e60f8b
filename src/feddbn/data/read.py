"""Anything a person may hold time series in -> named sites of recordings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from os import PathLike
from pathlib import Path
from typing import Any

from feddbn.core.designs.recordings import SiteData
from feddbn.data.cells import names_of_keys
from feddbn.data.collect import Collected, Part
from feddbn.data.described import described, descriptions, left_out
from feddbn.data.kinds import read_kinds
from feddbn.data.layout import Layout, quoted
from feddbn.data.rows import MOST_BYTES, Room
from feddbn.data.site import Site, with_columns
from feddbn.data.tables import ENDINGS, Table, data_files, data_folders, is_labelled, stem, table_of
from feddbn.errors import DataError, FileError, Given, ParameterError

__all__ = ["Read", "read_all", "read_site", "read_sites"]


@dataclass(frozen=True)
class Read:
    """Sites as they were read, also those that are refused; `refused` says why the sites do not go together."""

    sites: Mapping[str, SiteData]
    layout: Layout
    refused: DataError | None = None


def read_site(
    source: Any, layout: Layout | None = None, name: str = "site-0", place: Path | None = None
) -> Site:
    """Return one site; nothing that is wrong with its rows is raised, but is why the site is `refused`.

    Parameters
    ----------
    source
        The tables of the site, one or a list of them: frames, arrays, paths, a `SqlTable`.
    layout
        Which columns are what.
    place
        A folder for the rows of large tables; by default that of temporary files.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data import read_site
    >>> site = read_site(np.array([[1.0, 2.0], [np.inf, 3.0]]))
    >>> site.refused.code, site.profile.n_rows
    ('infinite', 2)
    """
    found = read_all({name: source}, layout or Layout(), place).sites[name]
    assert isinstance(found, Site)
    return found


def read_sites(
    data: Any,
    *,
    layout: Layout | None = None,
    place: Path | None = None,
    **columns: Any,
) -> dict[str, SiteData]:
    """Return site name -> its recordings, with the same variables in the same order everywhere.

    Every source is read once. Rows of files, lazy frames and answers to queries that are too many for memory go into files of
    float64 that nobody else can read, and that go away with their site.

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
    place
        A folder for the rows of large tables; by default that of temporary files.

    Examples
    --------
    >>> import pandas as pd
    >>> from feddbn.data import read_sites
    >>> rows = pd.DataFrame({"ward": ["a", "a", "b", "b"], "pulse": [60.0, 62.0, 70.0, 71.0]})
    >>> sorted(read_sites(rows, site="ward"))
    ['a', 'b']
    """
    found = read_all(data, Layout.of(layout, columns, "read_sites"), place)
    for site in found.sites.values():
        if isinstance(site, Site) and site.refused is not None:
            raise site.refused
    if found.refused is not None:
        raise found.refused
    return aligned(found.sites, found.layout)


def read_all(data: Any, layout: Layout, place: Path | None = None) -> Read:
    """Return all sites, also those that are refused."""
    told, own = described(data, layout)
    reader = _Reader(own, place)
    found = reader.read(
        told, stem(Path(data)) if isinstance(data, (str, PathLike)) else "site-0", own is not layout
    )
    if not found:
        raise DataError("data has no sites; give at least one.")
    sites = {name: one.site() if isinstance(one, Collected) else one for name, one in found.items()}
    return Read(sites, own, _of_two_steps(sites))


@dataclass(frozen=True)
class _Reader:
    """Finds out what was given, and reads it."""

    layout: Layout
    place: Path | None

    def read(self, data: Any, name: str, is_one: bool) -> dict[str, Collected | SiteData]:
        """Return the sites, whose readings are yet to be made rows; `is_one` says that a folder is one site, not several."""
        is_folder = isinstance(data, (str, PathLike)) and Path(data).is_dir()
        # Some sparse arrays are dicts.
        is_table = isinstance(data, Mapping) and not is_labelled(data) and not hasattr(data, "toarray")
        site = self.layout.site
        if not is_table and not (is_folder and (site is not None or not is_one)):
            return {name: self._site(name, data)} if site is None else self._long(data)
        if site is not None:
            raise ParameterError(
                f"{Given('site', site)} goes with one table of all sites; here the keys of a dict, or the files of a folder, "
                "name the sites."
            )
        several: Mapping[Any, Any] = data if is_table else _in_folder(Path(data))
        named = {str(one): value for one, value in several.items()}
        if len(named) < len(several):
            raise DataError("data has two sites of the same name; site names are compared as text.")
        return {one: self._site(one, value) for one, value in named.items()}

    def _site(self, name: str, value: Any) -> Collected | SiteData:
        value, layout = described(value, self.layout)
        where = f"site {name!r}"
        if isinstance(value, (str, PathLike)) and Path(value).is_dir():
            value = data_files(Path(value))
        made = Collected(name, layout, self._room([]))
        try:
            value = table_of(value, layout, where)
            if isinstance(value, SiteData):
                return value
            is_list = isinstance(value, (list, tuple))
            tables = [table_of(one, layout, where) for one in value] if is_list else [value]
            if not tables or not all(isinstance(one, Table) for one in tables):
                what = "is sparse" if hasattr(value, "toarray") else f"is of type {type(value).__name__}"
                what = what if tables else "has no recording"
                raise DataError(
                    f"{where} {what}; give a DataFrame, a two-dimensional array, a list of them, or a path to {ENDINGS}."
                )
            made = Collected(name, layout, self._room(tables))
            for k, table in enumerate(tables):
                own = f"recording-{k}" if table.name == "recording-0" else table.name
                inside = where if len(tables) == 1 else f"recording {own!r} of {where}"
                prefix = f"{own}/" if len(tables) > 1 else ""
                part = Part.of(replace(table, name=own), layout, inside, prefix)
                made.begin(part)
                for frame in part.frames():
                    made.feed(frame, part)
        except DataError as error:
            made.errors.append(error)
        return made

    def _room(self, tables: Iterable[Table]) -> Room:
        """Rows of frames are in memory anyway."""
        return Room(float("inf") if all(one.is_held for one in tables) else MOST_BYTES, self.place)

    def _long(self, data: Any) -> dict[str, Collected | SiteData]:
        """The sites of one table that names them in a column."""
        table, column = table_of(data, self.layout), str(self.layout.site)
        if not isinstance(table, Table):
            raise ParameterError(
                f"{Given('site', column)} needs one DataFrame or file, not {type(data).__name__}."
            )
        part = Part.of(table, self.layout, table.where)
        room, names, sites = self._room([table]), dict[str, int](), dict[str, Collected]()
        for frame in part.frames():
            keys = names_of_keys(frame[column], "site", table.where)
            for key, rows in frame.drop(columns=column).groupby(keys, sort=False):
                name = str(key)
                if name not in sites:
                    sites[name] = Collected(name, self.layout, room, names)
                    sites[name].begin(part)
                sites[name].feed(rows, part)
        return dict(sorted(sites.items())) if self.layout.gathers else dict(sites)


def _in_folder(path: Path) -> dict[str, Any]:
    """Return site name -> what it has in a folder: the file that describes it, its file, or the files in its own folder."""
    told = descriptions(path)
    others = left_out(path) if told else []
    if others:
        raise FileError(
            f"directory {str(path)!r} has descriptions ({quoted([one.name for one in told])}), which do not name "
            f"{quoted(others)}; describe each by a file with data = {others[0]!r}, or move what is no site elsewhere.",
            code="left-out",
        )
    groups: list[tuple[str, Any]] = [(stem(one), one) for one in told]
    if not told:
        groups = [(stem(one), [one]) for one in data_files(path)]
        groups = sorted(groups + [(one.name, data_files(one)) for one in data_folders(path)])
    names = [name for name, _ in groups]
    twice = [name for name in names if names.count(name) > 1]
    if twice or not names:
        what = f"more than one file or folder for site {twice[0]!r}" if twice else f"no {ENDINGS} file"
        raise FileError(f"directory {str(path)!r} has {what}; give each site one of its own.")
    return dict(groups)


def _of_two_steps(sites: Mapping[str, SiteData]) -> DataError | None:
    """What to say of the first two sites whose steps differ, None if all have one."""
    clocks = {
        name: site.clock for name, site in sites.items() if isinstance(site, Site) and site.refused is None
    }
    known = ((name, clock) for name, clock in clocks.items() if clock is not None and clock.step is not None)
    for (one, a), (other, b) in combinations(known, 2):
        if not a.is_like(b):
            return DataError(
                f"site {one!r} has a row every {a.text} but site {other!r} every {b.text}, so one lag would mean different "
                f"things; average them in steps of the longer one with {Given('freq')} and {Given('irregular', 'average')}.",
                code="two-steps",
            )
    return None


def aligned(sites: Mapping[str, SiteData], layout: Layout) -> dict[str, SiteData]:
    """Return the sites with the same variables in the same order."""
    read_kinds(layout.kinds, tuple(dict.fromkeys(name for one in sites.values() for name in one.variables)))
    layout, found = replace(layout, sources=None), dict[str, SiteData]()
    first = next(iter(sites))
    for name, site in sites.items():
        own = tuple(site.variables)
        reference = tuple(layout.variables or sites[first].variables)
        if layout.variables is not None:
            layout.choose_variables(own, f"site {name!r}")
        else:
            layout.require_same(own, reference, f"site {name!r}", f"site {first!r}")
        found[name] = with_columns(site, reference)
    return found
