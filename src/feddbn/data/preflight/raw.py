"""The tables as they were given, before rows are dropped and columns lose their roles: once through, in batches.

Reading for a fit refuses some tables and forgets the index of others. Here nothing is refused but what cannot be
opened, so that everything that is wrong can be told at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.designs.recordings import SiteData
from feddbn.data.layout import Layout, names_of_keys, tidy_frame, unnamed
from feddbn.data.levels import positions, with_levels
from feddbn.data.memory import MemorySite
from feddbn.data.read import STREAM_BYTES, _Part, _Reader
from feddbn.data.tables import Table, open_table, stem

__all__ = ["Chunk", "chunks", "recorded"]

_BATCH_ROWS = 65536


@dataclass(frozen=True)
class Chunk:
    """Some rows of one recording with all columns that have no declared role.

    `index` is the index of a DataFrame that was given, None otherwise; `chosen` are the columns that a fit would use.
    """

    site: str
    recording: str
    frame: pd.DataFrame
    chosen: tuple[str, ...]
    index: pd.Index | None = None
    is_file: bool = False


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

    def _files(self, name: str, files: list[Path], layout: Layout) -> SiteData:
        tables = [open_table(file, layout.text_columns, layout.level_names) for file in files]
        self.tables[name] = (layout, list(tables))
        return MemorySite((), ())

    def _long_file(self, path: Path) -> dict[str, SiteData]:
        if path.stat().st_size <= self.stream_bytes:
            return super()._long_file(path)
        # One pass for all sites: the rows say to which of them they belong.
        return {stem(path): self._files(stem(path), [path], self.layout)}


def recorded(name: str, site: SiteData) -> Iterator[Chunk]:
    """Yield the rows of data that were read already."""
    for recording in site.recordings():
        for block in recording.blocks():
            frame = pd.DataFrame(block.values, columns=list(site.variables), copy=False)
            yield Chunk(name, recording.name, frame, tuple(site.variables))


def _table_chunks(
    site: str, source: _Part | Table, layout: Layout, is_many: bool, number: int
) -> Iterator[Chunk]:
    where = f"site {site!r}"
    is_file = not isinstance(source, _Part)
    name = source.name if isinstance(source, _Part) else stem(source.path)
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
        body = tidy[columns].assign(**levels)
        if not names:
            yield Chunk(site, name, body, tuple(chosen), index, is_file)
            continue
        for key, rows in body.groupby(names if len(names) > 1 else names[0], sort=False):
            parts = list(key) if isinstance(key, tuple) else [key]
            owner = str(parts[0]) if own.site is not None else site
            series = str(parts[-1]) if own.series is not None else name
            prefix = f"{name}/" if is_many and own.series is not None else ""
            yield Chunk(owner, prefix + series, rows, tuple(chosen), None, is_file)


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
    elif source.path.stat().st_size <= STREAM_BYTES:
        yield source.frame()
    else:
        keys = layout.keys.values()
        columns = [c for c in source.columns() if c in keys or c not in source.index_columns]
        time = source.time_index
        if layout.time is None and time is not None:
            columns, layout = [*columns, time], replace(layout, time=time)
        for frame in source.frames(columns, 0, _BATCH_ROWS)[1]:
            yield frame if time is None else frame.set_index(time)
