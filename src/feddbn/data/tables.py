"""CSV, TSV and Parquet files as tables: whole, or row by row in bounded memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from feddbn.errors import FileError, MissingExtra, reading

__all__ = [
    "CsvTable",
    "Cursor",
    "ParquetTable",
    "Table",
    "data_files",
    "open_table",
    "stem",
]


def plain_frame(value: Any) -> Any:
    """Return a frame of Polars, PyArrow or another kind that narwhals reads as one of pandas.

    Anything else, frames of pandas among them, is returned as it is. A lazy frame is computed.
    """
    if isinstance(value, (pd.DataFrame, np.ndarray)):
        return value
    frame = nw.from_native(value, pass_through=True)
    try:
        if isinstance(frame, nw.LazyFrame):
            frame = frame.collect("pandas")
        return frame.to_pandas() if isinstance(frame, nw.DataFrame) else value
    except ImportError:
        # Polars hands its columns over by pyarrow.
        raise MissingExtra("pyarrow", "parquet") from None


_CSV = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")
_PACKED = (".gz", ".bz2", ".xz", ".zst")
# What pandas takes for an empty cell.
_EMPTY = frozenset(
    (
        "",
        "#N/A",
        "#N/A N/A",
        "#NA",
        "-1.#IND",
        "-1.#QNAN",
        "-NaN",
        "-nan",
        "1.#IND",
        "1.#QNAN",
        "<NA>",
        "N/A",
        "NA",
    )
) | {"NULL", "NaN", "None", "n/a", "nan", "null"}


def _kind(path: Path) -> str:
    suffixes = [s.lower() for s in path.suffixes]
    if len(suffixes) > 1 and suffixes[-1] in _PACKED and suffixes[-2] in _CSV:
        return suffixes[-2]
    return suffixes[-1] if suffixes else ""


def is_data_file(path: Path) -> bool:
    """Whether the file's ending is one we read; hidden files are not data."""
    return (
        path.is_file()
        and not path.name.startswith((".", "_"))
        and (_kind(path) in _CSV or _kind(path) in _PARQUET)
    )


def stem(path: Path) -> str:
    """Return the file's name without its endings (``a.csv.gz`` -> ``a``)."""
    kind = _kind(path)
    name = path.name
    return name[: name.lower().rindex(kind)] if kind and path.is_file() else name


def data_files(folder: Path) -> list[Path]:
    """Return the data files directly inside a folder, sorted by name."""
    return sorted(path for path in folder.iterdir() if is_data_file(path))


def open_table(
    path: Path, text_columns: Sequence[str] = (), levels: Mapping[str, tuple[str, ...]] | None = None
) -> Table:
    """Return the table in a file, chosen by its ending."""
    if not path.exists():
        raise FileError(f"file {str(path)!r} does not exist; check the path.")
    if _kind(path) in _PARQUET:
        return ParquetTable(path)
    if _kind(path) in _CSV:
        return CsvTable(path, tuple(text_columns), levels or {})
    raise FileError(
        f"file {str(path)!r} is not of a kind this package reads; use .csv, .tsv (also .gz) or .parquet."
    )


@dataclass(frozen=True)
class CsvTable:
    """A text file with a header.

    `text_columns` are read as text, so that batches agree on their type. A word such as "None" is no empty cell in a column
    that has it among its `levels`.
    """

    path: Path
    text_columns: tuple[str, ...] = ()
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    seekable = False
    index_columns: tuple[str, ...] = ()
    time_index: str | None = None

    @property
    def _options(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "sep": _CSV.get(_kind(self.path), ","),
            "dtype": dict.fromkeys(self.text_columns, str),
        }
        words = {name: _EMPTY & set(levels) for name, levels in self.levels.items()}
        if not any(words.values()):
            return plain
        columns = pd.read_csv(self.path, nrows=0, **plain).columns
        empty = {name: sorted(_EMPTY - words.get(name, set())) for name in columns}
        return {**plain, "keep_default_na": False, "na_values": empty}

    def columns(self) -> tuple[str, ...]:
        """Return the names in the header."""
        with reading(f"file {str(self.path)!r}", "CSV"):
            frame = pd.read_csv(self.path, nrows=0, **self._options)
        return self._checked(frame)

    def frame(self) -> pd.DataFrame:
        """Return the whole table."""
        with reading(f"file {str(self.path)!r}", "CSV"):
            frame: pd.DataFrame = pd.read_csv(self.path, low_memory=False, **self._options)
        self._checked(frame)
        return frame

    def n_rows(self) -> int | None:
        """Return None: only reading tells."""
        return None

    def frames(
        self, columns: Sequence[str], start: int, batch_rows: int
    ) -> tuple[int, Iterator[pd.DataFrame]]:
        """(first row, batches of these columns from there on); text can only be read from its beginning."""
        return 0, self._frames(columns, batch_rows)

    def _frames(self, columns: Sequence[str], batch_rows: int) -> Iterator[pd.DataFrame]:
        with reading(f"file {str(self.path)!r}", "CSV"):
            reader = pd.read_csv(
                self.path, usecols=list(columns), chunksize=batch_rows, low_memory=False, **self._options
            )
        with reader:
            while True:
                with reading(f"file {str(self.path)!r}", "CSV"):
                    frame = next(reader, None)
                if frame is None:
                    return
                yield frame

    def _checked(self, frame: pd.DataFrame) -> tuple[str, ...]:
        names = tuple(str(name) for name in frame.columns)
        for mark in (";", "\t", ","):
            if len(names) == 1 and mark in names[0]:
                raise FileError(
                    f"file {str(self.path)!r} seems to separate columns by {mark!r}; save it with commas as "
                    ".csv or with tabs as .tsv."
                )
        return names


@dataclass(frozen=True)
class ParquetTable:
    """A Parquet file, or several that follow each other as one table: a file of `later` begins where the one before ends.

    Needs pyarrow, imported only here. `path` is the first file's, for names and messages.
    """

    path: Path
    later: tuple[Path, ...] = ()
    seekable = True

    def _open(self, path: Path | None = None) -> Any:
        try:
            import pyarrow.parquet as pq
        except ImportError:
            raise MissingExtra("pyarrow", "parquet") from None
        path = path or self.path
        with reading(f"file {str(path)!r}", "Parquet"):
            # A buffered stream reads pages as they are needed; without it whole column chunks would be held.
            return pq.ParquetFile(path, buffer_size=1 << 18, pre_buffer=False)

    @property
    def index_columns(self) -> tuple[str, ...]:
        """Columns that hold the row index of the DataFrame the file was written from."""
        with self._open() as file:
            stored = (file.schema_arrow.pandas_metadata or {}).get("index_columns", [])
        return tuple(name for name in stored if isinstance(name, str))

    @property
    def time_index(self) -> str | None:
        """The index column if there is one and it holds dates."""
        names = self.index_columns
        if len(names) != 1:
            return None
        with self._open() as file:
            return names[0] if str(file.schema_arrow.field(names[0]).type).startswith("timestamp") else None

    def columns(self) -> tuple[str, ...]:
        """Return the names in the schema of the first file, which all others have to have."""
        names: dict[Path, tuple[str, ...]] = {}
        for path in (self.path, *self.later):
            with self._open(path) as file:
                names[path] = tuple(file.schema_arrow.names)
            lacking = sorted(set(names[self.path]) ^ set(names[path]))
            if lacking:
                raise FileError(
                    f"files {str(self.path)!r} and {str(path)!r} cannot be joined: column {lacking[0]!r} is in one of them "
                    "only; give files with the same columns."
                )
        return names[self.path]

    def frame(self) -> pd.DataFrame:
        """Return the whole table, with the index it was written with."""
        parts: list[pd.DataFrame] = []
        for path in (self.path, *self.later):
            with self._open(path) as file, reading(f"file {str(path)!r}", "Parquet"):
                parts.append(file.read().to_pandas())
        return pd.concat(parts) if self.later else parts[0]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The first row of every file and, last, the number of rows, from the files' footers."""
        sizes = []
        for path in (self.path, *self.later):
            with self._open(path) as file:
                sizes.append(int(file.metadata.num_rows))
        return (0, *accumulate(sizes))

    def n_rows(self) -> int | None:
        """Return the number of rows."""
        return self.starts[-1]

    def frames(
        self, columns: Sequence[str], start: int, batch_rows: int
    ) -> tuple[int, Iterator[pd.DataFrame]]:
        """(first row, batches of these columns from there on), from the row group that holds row `start`."""
        number = min(max(bisect_right(self.starts, start) - 1, 0), len(self.later))
        paths = (self.path, *self.later)[number:]
        first, group = self.starts[number], 0
        with self._open(paths[0]) as file:
            while group < file.num_row_groups and first + file.metadata.row_group(group).num_rows <= start:
                first += file.metadata.row_group(group).num_rows
                group += 1
        groups = (group, *(0 for _ in paths[1:]))
        parts = (self._frames(one, columns, at, batch_rows) for one, at in zip(paths, groups, strict=True))
        return first, chain.from_iterable(parts)

    def _frames(
        self, path: Path, columns: Sequence[str], group: int, batch_rows: int
    ) -> Iterator[pd.DataFrame]:
        with self._open(path) as file:
            groups = list(range(group, file.num_row_groups))
            if not groups:
                return
            batches = file.iter_batches(
                batch_size=batch_rows, row_groups=groups, columns=list(columns), use_threads=False
            )
            while True:
                with reading(f"file {str(path)!r}", "Parquet"):
                    batch = next(batches, None)
                if batch is None:
                    return
                # Columns stay where they were read to; numbers are copied once, by `layout.frame_values`.
                yield batch.to_pandas(ignore_metadata=True, split_blocks=True)


Table = CsvTable | ParquetTable


class Cursor:
    """Rows of a table by position; reading on in order costs one pass, going back starts again.

    At row `end`, if it is given, nobody is expected to read on.
    """

    def __init__(self, table: Table, columns: Sequence[str], batch_rows: int, end: int | None = None) -> None:
        self._end = end
        self._open: Callable[[int], tuple[int, Iterator[pd.DataFrame]]] = lambda start: table.frames(
            columns, start, batch_rows
        )
        self._seekable = table.seekable
        self._frames: Iterator[pd.DataFrame] | None = None
        self._buffer = pd.DataFrame()
        self._at = 0

    def read(self, start: int, stop: int | None) -> pd.DataFrame | None:
        """Return some rows from `start` on, none at or after `stop`; None when there are no more."""
        if stop is not None and start >= stop:
            if start == self._end:
                self.release()
            return None
        end = self._at + len(self._buffer)
        if self._frames is None or start < self._at or (self._seekable and start > end):
            self._at, self._frames = self._open(start)
            self._buffer = pd.DataFrame()
        while start >= self._at + len(self._buffer):
            self._at += len(self._buffer)
            following = next(self._frames, None)
            if following is None:
                self.release()
                return None
            self._buffer = following
        offset = start - self._at
        return self._buffer.iloc[offset : None if stop is None else offset + stop - start]

    def release(self) -> None:
        """Close the file until it is read again: an open one holds megabytes, and sites may have many."""
        self._frames, self._buffer = None, pd.DataFrame()
