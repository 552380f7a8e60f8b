"""The tables as they were given, once through, and what is kept of a recording while its rows pass by.

Reading for a fit refuses some tables and forgets the index of others. Here nothing is refused but what cannot be opened, so
that everything that is wrong can be told at once.

Counts and extremes are exact. Everything costly looks at the first rows (at most `HEAD_ROWS` of a recording, and
`SITE_ROWS` of a site). Memory is bounded.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import SiteData
from feddbn.data.layout import Layout, names_of_keys, positions, unnamed, with_levels
from feddbn.data.memory import MemorySite
from feddbn.data.read import STREAM_BYTES, _Part, _Reader
from feddbn.data.readings import tidy_frame
from feddbn.data.tables import Table, frame_within

__all__ = ["SiteProfile", "chunks", "profile_sites", "recorded"]

_BATCH_ROWS = 65536


@dataclass(frozen=True)
class Chunk:
    """Some rows of one recording with all columns that have no declared role.

    `index` is the index of a DataFrame that was given, None otherwise; `chosen` are the columns that a fit would use;
    `is_timed` says whether the times of the rows are known.
    """

    site: str
    recording: str
    frame: pd.DataFrame
    chosen: tuple[str, ...]
    index: pd.Index | None = None
    is_file: bool = False
    is_timed: bool = False


def chunks(data: Any, layout: Layout) -> Iterator[Chunk]:
    """Yield the rows of everything that `feddbn.data.read_sites` takes, each recording in order."""
    reader = _RawReader(layout, STREAM_BYTES)
    found, _ = reader.read(data)
    for name, site in found.items():
        if name in reader.tables:
            own, sources = reader.tables[name]
            for number, source in enumerate(sources):
                yield from _table_chunks(name, source, own, len(sources) > 1, number)
        else:
            yield from recorded(name, site)


class _RawReader(_Reader):
    """Finds out what was given as for a fit, and stops before the tables are read."""

    def __init__(self, layout: Layout, stream_bytes: int) -> None:
        super().__init__(layout, stream_bytes)
        self.tables: dict[str, tuple[Layout, list[_Part | Table]]] = {}

    def _memory_site(self, name: str, parts: list[_Part], layout: Layout) -> MemorySite:
        self.tables[name] = (layout, list(parts))
        return MemorySite((), ())

    def _tables(self, name: str, tables: Sequence[Table], layout: Layout) -> SiteData:
        if layout.gathers:
            # Rows are made of readings first.
            return super()._tables(name, tables, layout)
        self.tables[name] = (layout, list(tables))
        return MemorySite((), ())

    def _long_table(self, table: Table) -> dict[str, SiteData]:
        frame = frame_within(table, self.stream_bytes)
        if frame is None and self.layout.gathers:
            return super()._long_table(table)
        if frame is not None:
            return self._long(frame, table.where, table.name)
        # One pass for all sites: the rows say to which of them they belong.
        return {table.name: self._tables(table.name, [table], self.layout)}


def recorded(name: str, site: SiteData) -> Iterator[Chunk]:
    """Yield the rows of data that were read already."""
    is_timed = getattr(site, "step", None) is not None
    for recording in site.recordings():
        for block in recording.blocks():
            frame = pd.DataFrame(block.values, columns=list(site.variables), copy=False)
            yield Chunk(name, recording.name, frame, tuple(site.variables), is_timed=is_timed)


def _table_chunks(
    site: str, source: _Part | Table, layout: Layout, is_many: bool, number: int
) -> Iterator[Chunk]:
    where, name = f"site {site!r}", source.name
    is_file = not isinstance(source, _Part)
    for frame in _frames(source, layout):
        index = None if is_file else frame.index
        tidy, own = tidy_frame(frame, layout, where)
        if index is not None and tidy.index is not frame.index and len(tidy.columns) > len(frame.columns):
            index = None
        keys = [key for key in own.keys.values() if key is not None]
        tidy = _in_order(tidy, own.time)
        columns = [str(column) for column in tidy.columns if column not in keys]
        chosen = columns if own.variables is None else [c for c in own.variables if c in columns]
        names = [
            names_of_keys(tidy[key], role, where)
            for role, key in (("site", own.site), ("series", own.series))
            if key is not None
        ]
        # What is no level is told by the reading for a fit.
        levels = {
            key: positions(tidy[key], kind)[0]
            for key, kind in with_levels(own.kinds).items()
            if key in columns
        }
        numeric = [c for c in chosen if c not in levels and pd.api.types.is_numeric_dtype(tidy[c].dtype)]
        within = {}
        if numeric and (own.limits or own.units):
            plausible = own.plausible(tidy[numeric].to_numpy(dtype=float, na_value=np.nan), numeric)
            within = dict(zip(numeric, plausible.T, strict=True))
        body = tidy[columns].assign(**levels, **within)
        if not names:
            yield Chunk(site, name, body, tuple(chosen), index, is_file, own.time is not None)
            continue
        for key, rows in body.groupby(names if len(names) > 1 else names[0], sort=False):
            parts = list(key) if isinstance(key, tuple) else [key]
            owner = str(parts[0]) if own.site is not None else site
            series = str(parts[-1]) if own.series is not None else name
            prefix = f"{name}/" if is_many and own.series is not None else ""
            yield Chunk(owner, prefix + series, rows, tuple(chosen), None, is_file, own.time is not None)


def _in_order(frame: pd.DataFrame, time: str | None) -> pd.DataFrame:
    """Rows in the order of their times; a fit refuses others, but all else can be said about them, too."""
    if time is None or frame[time].dtype.kind not in "iufM" or frame[time].is_monotonic_increasing:
        return frame
    return frame.sort_values(time, kind="stable")


def _frames(source: _Part | Table, layout: Layout) -> Iterator[pd.DataFrame]:
    if isinstance(source, _Part):
        table = source.table
        if isinstance(table, np.ndarray):
            d = table.shape[1] if table.ndim == 2 else 1
            names = (
                layout.variables
                if layout.variables is not None and len(layout.variables) == d
                else unnamed(d)
            )
            table = pd.DataFrame(table.reshape(len(table), -1)[:, :d], columns=list(names), copy=False)
        yield table
    elif (small := frame_within(source, STREAM_BYTES)) is not None:
        yield small
    else:
        keys = layout.keys.values()
        columns = [c for c in source.columns() if c in keys or c not in source.index_columns]
        time = source.time_index
        if layout.time is None and time is not None:
            columns, layout = [*columns, time], replace(layout, time=time)
        for frame in source.frames(columns, 0, _BATCH_ROWS)[1]:
            yield frame if time is None else frame.set_index(time)


HEAD_ROWS = 20_000
SITE_ROWS = 200_000
MOST_TEXTS = 51
"""So many different texts of a column are kept; a column with more holds no levels."""


class Extreme:
    """The smallest value of each column, how often it occurs, and the next one; `sign` -1 gives the largest."""

    def __init__(self, d: int, sign: float) -> None:
        self._sign = sign
        self._first = np.full(d, np.inf)
        self._next = np.full(d, np.inf)
        self.count = np.zeros(d, dtype=np.int64)

    @property
    def value(self) -> FloatArray:
        """(d,) the extreme values."""
        return self._sign * self._first

    @property
    def following(self) -> FloatArray:
        """(d,) the values next to them."""
        return self._sign * self._next

    def feed(self, values: FloatArray) -> None:
        """Take rows (n, d); NaN is ignored."""
        values = np.where(np.isnan(values), np.inf, self._sign * values)
        first = values.min(axis=0)
        equal = values == first
        following = np.where(equal, np.inf, values).min(axis=0)
        count = np.where(np.isfinite(first), equal.sum(axis=0), 0)
        lower, same = first < self._first, first == self._first
        self._next = np.where(
            lower,
            np.minimum(self._first, following),
            np.minimum(self._next, np.where(same, following, first)),
        )
        self.count = np.where(lower, count, self.count + np.where(same, count, 0))
        self._first = np.minimum(self._first, first)


@dataclass
class RecordingProfile:
    """What is known of one recording; arrays have one entry per column of `columns`."""

    name: str
    columns: tuple[str, ...]
    head_rows: int
    n_rows: int = 0
    is_date: NDArray[np.bool_] = field(init=False)
    n_missing: NDArray[np.int64] = field(init=False)
    n_text: NDArray[np.int64] = field(init=False)
    n_numbers: NDArray[np.int64] = field(init=False)
    lowest: Extreme = field(init=False)
    highest: Extreme = field(init=False)

    def __post_init__(self) -> None:
        d = len(self.columns)
        self.place = {name: j for j, name in enumerate(self.columns)}
        self.is_date = np.zeros(d, dtype=bool)
        self.n_missing, self.n_text, self.n_numbers = (np.zeros(d, dtype=np.int64) for _ in range(3))
        self.lowest, self.highest = Extreme(d, 1.0), Extreme(d, -1.0)
        self.texts: list[set[str]] = [set() for _ in range(d)]
        self._heads: list[FloatArray] = []
        self._held = 0

    def feed(self, frame: pd.DataFrame) -> None:
        """Take the next rows."""
        if not len(frame):
            return
        values, codes = self._numbers(frame)
        self.n_rows += len(values)
        self.n_numbers += np.isfinite(values).sum(axis=0)
        self.lowest.feed(values)
        self.highest.feed(values)
        room = self.head_rows - self._held
        if room > 0:
            kept = values[:room] if codes is None else np.where(np.isnan(values), codes, values)[:room]
            self._heads.append(kept)
            self._held += len(kept)

    def _numbers(self, frame: pd.DataFrame) -> tuple[FloatArray, FloatArray | None]:
        """Values (n, d), and codes (n, d) of text where there is any, so that its changes can be seen."""
        frame = frame[list(self.columns)]
        plain = frame.to_numpy()
        if plain.dtype == np.float64:
            self.n_missing += np.isnan(plain).sum(axis=0)
            return np.where(np.isfinite(plain), plain, np.nan), None
        values = np.full(frame.shape, np.nan)
        codes: FloatArray | None = None
        for j, name in enumerate(self.columns):
            column = frame[name]
            self.n_missing[j] += int(column.isna().sum())
            if pd.api.types.is_numeric_dtype(column.dtype) and column.dtype.kind != "c":
                values[:, j] = column.to_numpy(dtype=float, na_value=np.nan)
                continue
            dates = _dates(column)
            if dates is not None:
                self.is_date[j] = True
                values[:, j] = dates
                continue
            read = pd.to_numeric(column.astype(object), errors="coerce").to_numpy(dtype=float)
            values[:, j] = read
            is_text = np.isnan(read) & ~column.isna().to_numpy()
            self.n_text[j] += int(is_text.sum())
            if is_text.any():
                codes = np.full(frame.shape, np.nan) if codes is None else codes
                found, names = pd.factorize(column.astype(str))
                codes[is_text, j] = found[is_text]
                room = max(MOST_TEXTS - len(self.texts[j]), 0)
                self.texts[j] |= {str(name).strip() for name in names[np.unique(found[is_text])][:room]}
        values[~np.isfinite(values)] = np.nan
        return values, codes

    @cached_property
    def head(self) -> FloatArray:
        """(m, d) the first rows; text is coded by whole numbers."""
        return np.concatenate(self._heads) if self._heads else np.empty((0, len(self.columns)))


def _dates(column: pd.Series) -> FloatArray | None:
    """Seconds since 1970 if the column holds dates (also day first), else None."""
    if pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
        return None
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    if not pd.api.types.is_datetime64_any_dtype(column.dtype):
        some = column.dropna().astype(str).head(20)
        # A number such as 2024 or 12.5 can be read as a date, too.
        if not len(some) or not some.str.contains(r"\d[-/.:]\d+[-/.:]\d|\d[-/]\d").all():
            return None
    for options in ({"format": "ISO8601", "utc": True}, {"dayfirst": True, "utc": True}):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                read = pd.DatetimeIndex(pd.to_datetime(column, **options))
        except (ValueError, TypeError, OverflowError):
            continue
        seconds = np.asarray(read.as_unit("ns").asi8, dtype=float) / 1e9
        return np.where(read.isna(), np.nan, seconds)
    return None


@dataclass
class SiteProfile:
    """The recordings of a site, once all rows have passed; `chosen` are the columns that a fit would use."""

    name: str
    chosen: tuple[str, ...]
    is_file: bool
    index: pd.Index | None = None
    is_timed: bool = False
    recordings: dict[str, RecordingProfile] = field(default_factory=dict)

    @cached_property
    def long(self) -> list[RecordingProfile]:
        """Those with rows."""
        return [one for one in self.recordings.values() if one.n_rows]

    def column(self, name: str) -> Iterable[tuple[RecordingProfile, int]]:
        """Yield the recordings that have this column, and its place there."""
        for one in self.long:
            if name in one.place:
                yield one, one.place[name]

    def total(self, what: str, name: str) -> int:
        """Return the total of a count ("n_missing", "n_text", "n_numbers") of a column."""
        return sum(int(getattr(one, what)[j]) for one, j in self.column(name))

    @cached_property
    def numeric(self) -> tuple[str, ...]:
        """The chosen columns that hold numbers only."""
        return tuple(
            name
            for name in self.chosen
            if not self.total("n_text", name)
            and self.total("n_numbers", name)
            and not any(one.is_date[j] for one, j in self.column(name))
        )


def profile_sites(rows: Iterable[Chunk]) -> dict[str, SiteProfile]:
    """Return site -> profile after one pass over the rows."""
    sites: dict[str, SiteProfile] = {}
    left: dict[str, int] = {}
    for chunk in rows:
        new = SiteProfile(chunk.site, chunk.chosen, chunk.is_file, chunk.index, chunk.is_timed)
        site = sites.setdefault(chunk.site, new)
        recording = site.recordings.get(chunk.recording)
        if recording is None:
            room = min(HEAD_ROWS, max(left.setdefault(chunk.site, SITE_ROWS), 0))
            columns = tuple(str(name) for name in chunk.frame.columns)
            recording = RecordingProfile(chunk.recording, columns, room)
            site.recordings[chunk.recording] = recording
        before = min(recording.n_rows, recording.head_rows)
        recording.feed(chunk.frame)
        left[chunk.site] = left[chunk.site] - min(recording.n_rows, recording.head_rows) + before
    return sites
