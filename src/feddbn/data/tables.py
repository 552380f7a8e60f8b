"""Whatever holds rows, as tables: whole, or batch by batch in bounded memory.

`table_of` is the one border. Files, SQL and lazy frames become a `Table`, which is read again each time its rows are
needed; frames in memory become frames of pandas. What no file holds still has to give the same rows whenever it is read:
`StreamTable` compares every batch with what it was before.
"""

from __future__ import annotations

import sys
import tempfile
import weakref
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from feddbn.data.layout import Layout, quoted, refuse_values, unnamed
from feddbn.errors import DataError, FeddbnError, FileError, Given, MissingExtra, ParameterError, reading
from feddbn.findings import Finding

__all__ = ["SqlTable", "Table", "frame_within", "open_table", "plain_frame", "sorted_frames", "table_of"]

Frames = Iterator[pd.DataFrame]
_BATCH_ROWS = 65536
_LOOKED_AT = 200
_SQL_MEMORY = "1GB"


class Table(ABC):
    """Rows under named columns that can be read many times.

    Attributes
    ----------
    name, where, size
        What a recording or a site gets called, how sentences name the table, and its bytes, None where only reading tells.
    index_columns, time_index
        Columns that hold the row index of the DataFrame the table was written from; the one of them that holds dates, if
        it is the only one.
    """

    name: str = "recording-0"
    where: str = "data"
    size: int | None = None
    index_columns: tuple[str, ...] = ()
    time_index: str | None = None
    seekable = False
    said: Any = ()

    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns."""

    @abstractmethod
    def frame(self) -> pd.DataFrame:
        """Return the whole table, with the index it was written with."""

    @abstractmethod
    def _frames(self, columns: list[str], batch_rows: int) -> Frames:
        """Yield batches of these columns."""

    def n_rows(self) -> int | None:
        """Return the number of rows, None where only reading tells."""
        return None

    def version(self) -> object:
        """Return what changes if the rows may have."""
        return None

    def frames(self, columns: Sequence[str], start: int, batch_rows: int) -> tuple[int, Frames]:
        """(first row, batches of these columns from there on); most tables can only be read from the beginning."""
        return 0, self._frames(list(columns), batch_rows)


def table_of(value: Any, layout: Layout | None = None) -> Any:
    """Return what a person may hold rows in as a `Table` or a frame of pandas, or as a list of them, one for each recording.

    What is neither is returned as it is.
    """
    if isinstance(value, np.ndarray) and value.ndim == 3:
        return list(value)
    if isinstance(value, (pd.DataFrame, np.ndarray, Table)):
        return value
    if is_labelled(value):
        return _of_labelled(value, layout or Layout())
    if isinstance(value, (str, PathLike)):
        return open_table(Path(value), layout)
    frame = nw.from_native(value, pass_through=True, allow_series=True)
    if isinstance(frame, nw.LazyFrame):
        return StreamTable(frame)
    with _needing("pyarrow", "parquet"):
        # Polars hands its columns over by pyarrow.
        if isinstance(frame, nw.DataFrame):
            return frame.to_pandas()
        if hasattr(value, "__arrow_c_stream__") and not isinstance(frame, nw.Series):
            import pyarrow as pa

            return pa.table(value).to_pandas()
    return value


@contextmanager
def _needing(package: str, extra: str) -> Iterator[None]:
    try:
        yield
    except FeddbnError:
        raise
    except ImportError:
        raise MissingExtra(package, extra) from None


def is_labelled(value: Any) -> bool:
    """Whether it is a DataArray or Dataset of xarray; a Dataset is a mapping, too."""
    return type(value).__module__.partition(".")[0] == "xarray" and hasattr(value, "dims")


def _of_labelled(value: Any, layout: Layout) -> pd.DataFrame | list[pd.DataFrame]:
    """Return what xarray holds as one frame, or as one for each recording.

    The last dimension of a DataArray has the variables; a Dataset has them by name. Rows are along the dimension that
    `layout` names as the time, else the one with dates, else the last; any other one names the recording or the site.
    """
    if not hasattr(value, "data_vars"):
        last = value.dims[-1]
        if last not in value.coords:
            value = value.assign_coords({last: list(unnamed(value.sizes[last]))})
        value = value.to_dataset(dim=last)
    dims = [*dict.fromkeys(dim for one in value.data_vars.values() for dim in one.dims)]
    dated = [dim for dim in dims if isinstance(value.indexes.get(dim), pd.DatetimeIndex)]
    rows = layout.time if layout.time in dims else (dated or dims)[-1]
    others = [dim for dim in dims if dim != rows]
    unknown = [dim for dim in others if dim not in (layout.site, layout.series)]
    if len(unknown) > 1 or len(others) > 2:
        raise DataError(
            f"data has the dimensions {quoted(dims)}; name those of sites and recordings with {Given('site')} and "
            f"{Given('series')}."
        )
    found: pd.DataFrame = value.to_dataframe(dim_order=[*others, rows])[list(value.data_vars)]
    found = found.reset_index(others)
    parts = found.groupby(unknown[0], sort=False) if unknown else ()
    return [part.drop(columns=unknown) for _, part in parts] if unknown else found


def plain_frame(value: Any, layout: Layout | None = None) -> Any:
    """Return whatever holds rows as one frame of pandas; anything else is returned as it is."""
    found = table_of(value, layout)
    return found.frame() if isinstance(found, Table) else found


def frame_within(table: Table, n_bytes: int) -> pd.DataFrame | None:
    """Return the whole table if it has at most so many bytes, else None."""
    if table.size is not None:
        return table.frame() if table.size <= n_bytes else None
    parts, left = [], n_bytes
    for frame in table.frames(table.columns(), 0, _BATCH_ROWS)[1]:
        parts.append(frame)
        left -= int(frame.memory_usage().sum())
        if left < 0:
            return None
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(table.columns()))


_CSV = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")
_ARROW = (".arrow", ".feather", ".ipc")
ENDINGS = ".csv, .tsv, .parquet, .arrow or .feather"
_PACKED = (".gz", ".bz2", ".xz", ".zst")
# What pandas takes for an empty cell.
_EMPTY = set("|#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA".split("|"))  # noqa: SIM905
_EMPTY |= {"NULL", "NaN", "None", "n/a", "nan", "null"}


def _kind(path: Path) -> str:
    suffixes = [s.lower() for s in path.suffixes]
    if len(suffixes) > 1 and suffixes[-1] in _PACKED and suffixes[-2] in _CSV:
        return suffixes[-2]
    return suffixes[-1] if suffixes else ""


def stem(path: Path) -> str:
    """Return the file's name without its endings (``a.csv.gz`` -> ``a``)."""
    kind, name = _kind(path), path.name
    return name[: name.lower().rindex(kind)] if kind and path.is_file() else name


def data_files(folder: Path) -> list[Path]:
    """Return the data files directly inside a folder, sorted by name; hidden files are none."""
    files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith((".", "_"))]
    return sorted(path for path in files if _kind(path) in (*_CSV, *_PARQUET, *_ARROW))


def data_folders(folder: Path) -> list[Path]:
    """Return the folders directly inside a folder that have data files; hidden ones are none."""
    folders = sorted(one for one in folder.iterdir() if one.is_dir() and not one.name.startswith((".", "_")))
    return [one for one in folders if data_files(one)]


def open_table(path: Path, layout: Layout | None = None) -> Table:
    """Return the table in a file, chosen by its ending."""
    if not path.exists():
        raise FileError(f"file {str(path)!r} does not exist; check the path.")
    if _kind(path) in (*_PARQUET, *_ARROW):
        return ParquetTable(path) if _kind(path) in _PARQUET else ArrowTable(path)
    if _kind(path) in _CSV:
        return CsvTable(path, layout)
    raise FileError(f"file {str(path)!r} is of a kind that is not read; use {ENDINGS} (text also as .gz).")


class _File(Table):
    """A table in one file."""

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.where = path, stem(path), f"file {str(path)!r}"
        self.size = self._found()[-1]

    def _found(self, path: Path | None = None) -> tuple[int, ...]:
        with reading(self.where):
            found = (path or self.path).stat()
        return found.st_ino, found.st_mtime_ns, found.st_size

    def version(self) -> object:
        """Return what changes with the file."""
        return self._found()


class CsvTable(_File):
    """A text file with a header; `layout` says how it is written.

    Its columns of names are read as text, so that batches agree on their type. A word such as "None" is no empty cell in a
    column that has it among its levels.
    """

    def __init__(self, path: Path, layout: Layout | None = None) -> None:
        super().__init__(path)
        self.layout = layout or Layout()
        self.read_as: dict[str, str] = {}

    @property
    def said(self) -> tuple[Finding, ...]:
        """What was recognised of how the file is written, and nobody said."""
        return (Finding("text-format", "note", dict(self.read_as)),) if self.read_as else ()

    def _separates(self, mark: str, text: Mapping[str, Any]) -> bool:
        """Whether a mark stands in rows, too: in the header alone it belongs to the name of one column."""
        with self._reading():
            rows = pd.read_csv(self.path, nrows=_LOOKED_AT, **{**text, "sep": mark}).iloc[1:, 1:]
        return not len(rows) or bool((rows.fillna("") != "").any(axis=None))

    def _has_decimal_commas(self, text: Mapping[str, Any]) -> bool:
        """Whether the first rows have numbers such as 0,5 and none such as 0.5; 1,000 alone may be a thousand."""
        with self._reading():
            cells = pd.read_csv(self.path, nrows=_LOOKED_AT, **text).stack().iloc[:]
        commas = cells[cells.str.fullmatch(r"\s*[-+]?\d*,\d+\s*").fillna(False)]
        if not len(commas) or cells.str.fullmatch(r"\s*[-+]?\d*\.\d+\s*").fillna(False).any():
            return False
        return not commas.str.fullmatch(r"\s*[-+]?[1-9]\d{0,2},\d{3}\s*").all()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            with reading(self.where, "CSV"):
                yield
        except FileError as error:
            if "No columns to parse" in str(error):
                raise FileError(
                    f"{self.where} is empty; write a line with the names of columns, and rows below it.",
                    code="empty",
                ) from None
            said = f"{self.where} is not {self.layout.encoding or 'UTF-8'} text{self._strange()}; say what it is, often "
            said += f"{Given('encoding', 'latin-1')}."
            if "saw" in str(error) and "Expected" in str(error):
                said = f"{str(error)[:-1]}: a line has more cells than there are columns; say what separates columns with "
                said += f"{Given('separator')}, and what begins decimals with {Given('decimal')}."
            elif error.code != "not-text":
                raise
            raise FileError(said, code=error.code) from None

    def _strange(self) -> str:
        """The first line that is no such text, as a part of a sentence."""
        with open(self.path, "rb") as file:
            for row, line in enumerate(file if self.path.suffix not in _PACKED else ()):
                try:
                    line.decode(self.layout.encoding or "utf-8")
                except UnicodeDecodeError as error:
                    cell = line[: error.end].decode("latin-1").split(_CSV.get(_kind(self.path), ","))[-1]
                    return f": line {row + 1} has {cell!r}..."
        return ""

    @cached_property
    def _options(self) -> dict[str, Any]:
        layout = self.layout
        plain: dict[str, Any] = {
            "sep": layout.separator or _CSV.get(_kind(self.path), ","),
            "decimal": layout.decimal or ".",
            "encoding": layout.encoding,
        }
        text: dict[str, Any] = {"header": None, "dtype": str, "keep_default_na": False, **plain}
        # As a header, pandas would rename what is there twice, and take more cells below it for an index.
        with self._reading():
            head = pd.read_csv(self.path, nrows=1, **text)
        names = [str(name) for name in head.iloc[0]] if len(head) else []
        marks = [one for one in ";\t,|" if len(names) == 1 and one in names[0] and one != plain["sep"]]
        mark = next((one for one in marks if self._separates(one, text)), None)
        if mark is not None and layout.separator is not None:
            said = f"{self.where} seems to separate columns by {mark!r}; give {Given('separator', mark)}."
            raise FileError(said, code="separator")
        if mark is not None:
            plain["sep"] = text["sep"] = self.read_as["separator"] = mark
            names = names[0].split(mark)
        if layout.decimal is None and plain["sep"] != "," and self._has_decimal_commas(text):
            plain["decimal"] = self.read_as["decimal"] = ","
        if plain["sep"] == plain["decimal"]:
            said = f"{Given('decimal', plain['decimal'])} is what stands between columns, too; give {Given('separator')}."
            raise ParameterError(said)
        with self._reading():
            pd.read_csv(self.path, nrows=2, **text)
        refuse_twice([name for name in names if name], self.where)
        plain["dtype"] = dict.fromkeys(layout.text_columns, str)
        words = {name: _EMPTY & set(levels) for name, levels in layout.level_names.items()}
        if not any(words.values()):
            return plain
        empty = {name: sorted(_EMPTY - words.get(name, set())) for name in names}
        return {**plain, "keep_default_na": False, "na_values": empty}

    def columns(self) -> tuple[str, ...]:
        """Return the names in the header."""
        with self._reading():
            return tuple(str(name) for name in pd.read_csv(self.path, nrows=0, **self._options).columns)

    def frame(self) -> pd.DataFrame:
        """Return the whole table."""
        with self._reading():
            return pd.DataFrame(pd.read_csv(self.path, low_memory=False, **self._options))

    def _frames(self, columns: list[str], batch_rows: int) -> Frames:
        read: dict[str, Any] = {"usecols": columns, "chunksize": batch_rows, "low_memory": False}
        with self._reading():
            reader = pd.read_csv(self.path, **read, **self._options)
        with reader:
            while True:
                with self._reading():
                    frame = next(reader, None)
                if frame is None:
                    return
                yield frame


def refuse_twice(names: Sequence[str], where: str) -> None:
    """Refuse two columns of one name."""
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        refuse_values(names, where)
        raise DataError(
            f"{where} has more than one column {quoted(twice)}; give every column its own name.", code="twice"
        )


class _ArrowFile(_File):
    """A file with types (needs pyarrow), perhaps written from a DataFrame with an index."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        schema = self._schema()
        self._names = tuple(schema.names)
        stored = (schema.pandas_metadata or {}).get("index_columns", [])
        self.index_columns = tuple(name for name in stored if isinstance(name, str))
        kinds = [str(schema.field(name).type) for name in self.index_columns]
        if len(kinds) == 1 and kinds[0].startswith("timestamp"):
            self.time_index = self.index_columns[0]

    @abstractmethod
    def _schema(self) -> Any:
        """Return the columns and their types."""

    def columns(self) -> tuple[str, ...]:
        """Return the names in the schema."""
        refuse_twice(self._names, self.where)
        return self._names


class ParquetTable(_ArrowFile):
    """A Parquet file."""

    seekable = True

    def _open(self) -> Any:
        with _needing("pyarrow", "parquet"):
            import pyarrow.parquet as pq
        with reading(self.where, "Parquet"):
            # A buffered stream reads pages as they are needed; without it whole column chunks would be held.
            return pq.ParquetFile(self.path, buffer_size=1 << 18, pre_buffer=False)

    def _schema(self) -> Any:
        with self._open() as file:
            return file.schema_arrow

    def frame(self) -> pd.DataFrame:
        """Return the whole table, with the index it was written with."""
        with self._open() as file, reading(self.where, "Parquet"):
            whole: pd.DataFrame = file.read().to_pandas()
        return whole

    def n_rows(self) -> int | None:
        """Return the number of rows."""
        with self._open() as file:
            return int(file.metadata.num_rows)

    def frames(self, columns: Sequence[str], start: int, batch_rows: int) -> tuple[int, Frames]:
        """(first row, batches of these columns from there on), from the row group that holds row `start`."""
        first, group = 0, 0
        with self._open() as file:
            while group < file.num_row_groups and first + file.metadata.row_group(group).num_rows <= start:
                first += file.metadata.row_group(group).num_rows
                group += 1
        return first, self._rows(columns, group, batch_rows)

    def _frames(self, columns: list[str], batch_rows: int) -> Frames:
        return self.frames(columns, 0, batch_rows)[1]

    def _rows(self, columns: Sequence[str], group: int, batch_rows: int) -> Frames:
        with self._open() as file:
            groups = list(range(group, file.num_row_groups))
            read = {"row_groups": groups, "columns": list(columns), "use_threads": False}
            batches = file.iter_batches(batch_rows, **read) if groups else iter(())
            while True:
                with reading(self.where, "Parquet"):
                    batch = next(batches, None)
                if batch is None:
                    return
                # Columns stay where they were read to; numbers are copied once, by `layout.frame_values`.
                yield batch.to_pandas(ignore_metadata=True, split_blocks=True)


class ArrowTable(_ArrowFile):
    """An Arrow or Feather file."""

    @contextmanager
    def _open(self) -> Iterator[Any]:
        with _needing("pyarrow", "parquet"):
            import pyarrow as pa
        with reading(self.where, "Arrow"), pa.memory_map(str(self.path)) as file:
            yield pa.ipc.open_file(file)

    def _schema(self) -> Any:
        with self._open() as file:
            return file.schema

    def frame(self) -> pd.DataFrame:
        """Return the whole table, with the index it was written with."""
        with self._open() as file:
            return pd.DataFrame(file.read_all().to_pandas())

    def _frames(self, columns: list[str], batch_rows: int) -> Frames:
        with self._open() as file:
            for batch in map(file.get_batch, range(file.num_record_batches)):
                for row in range(0, batch.num_rows, batch_rows):
                    yield batch.select(columns).slice(row, batch_rows).to_pandas(ignore_metadata=True)


class StreamTable(Table):
    """A lazy frame: computed batch by batch, and again for each pass over its rows, which have to be the same ones."""

    def __init__(self, source: nw.LazyFrame[Any] | None) -> None:
        self.source: Any = source
        self._seen: dict[tuple[str, int, int], int] = {}

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            with _needing("pyarrow", "parquet"):
                yield
        except FeddbnError:
            raise
        except Exception as error:
            # Every engine has errors of its own.
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            raise DataError(f"{self.where} cannot be read: {reason}.", code="engine") from None

    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        with self._reading():
            names = self._columns()
        refuse_twice(names, self.where)
        return names

    def _columns(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self.source.collect_schema())

    def frame(self) -> pd.DataFrame:
        """Return the whole table."""
        found = frame_within(self, sys.maxsize)
        assert found is not None
        return found

    def _frames(self, columns: list[str], batch_rows: int) -> Frames:
        row, batches = 0, None
        while True:
            with self._reading():
                batches = batches or self._batches(columns, batch_rows)
                frame = next(batches, None)
            if frame is None:
                self._require_same("", 0, row)
                return
            for name in columns:
                self._require_same(name, row, pd.util.hash_pandas_object(frame[name], index=False).to_numpy())
            row += len(frame)
            yield frame

    def _require_same(self, column: str, row: int, found: Any) -> None:
        # Batches of other lengths cannot be compared; in the end their number of rows is.
        n, held = (0, found) if isinstance(found, int) else (len(found), zlib.crc32(found.tobytes()))
        if self._seen.setdefault((column, row, n), held) != held:
            raise DataError(
                f"{self.where} gave other rows, or in another order, when it was read again; sort it by columns that tell "
                "all rows apart, or write it to a Parquet file first.",
                code="other-rows",
            )

    def _batches(self, columns: list[str], batch_rows: int) -> Frames:
        native, kind = self.source.to_native(), self.source.implementation
        if kind.is_duckdb():
            return _of_relation(native, columns, batch_rows)
        if kind.is_polars() and hasattr(native, "collect_batches"):
            batches = native.select(columns).collect_batches(chunk_size=batch_rows, maintain_order=True)
        elif kind.is_ibis():
            batches = native.select(columns).to_pyarrow_batches(chunk_size=batch_rows)
        else:
            batches = [self.source.select(columns).collect("pandas")]
        return (one.to_pandas() for one in batches)


def _duckdb() -> Any:
    """DuckDB in a memory of its own, with bounds; whatever does not fit goes to a folder that nobody else can read."""
    with _needing("duckdb", "sql"):
        import duckdb
    spill = tempfile.TemporaryDirectory(prefix="feddbn-")
    # One thread gives rows in one order; nothing is fetched from elsewhere, nor taken from variables of Python.
    options: dict[str, Any] = {"threads": 1, "memory_limit": _SQL_MEMORY, "temp_directory": spill.name}
    options |= {"autoinstall_known_extensions": False, "python_enable_replacements": False}
    engine = duckdb.connect(config=options)
    weakref.finalize(engine, spill.cleanup)
    return engine


def sorted_frames(frames: Frames, by: Sequence[str], batch_rows: int = _BATCH_ROWS) -> Frames:
    """Yield the rows of frames with the same columns in the order of `by`, however many they are (needs duckdb).

    Rows that are equal in all of these columns come in no order that can be relied on.
    """
    engine, failed = _duckdb(), list[BaseException]()
    import pyarrow as pa

    if (first := next(frames, None)) is None:
        return
    schema = pa.Schema.from_pandas(first, preserve_index=False)

    def batches() -> Iterator[Any]:
        try:
            for frame in chain([first], frames):
                yield pa.RecordBatch.from_pandas(frame, schema, preserve_index=False)
        except BaseException as error:
            # DuckDB would only say that something went wrong.
            failed.append(error)
            raise

    engine.register("given", pa.RecordBatchReader.from_batches(schema, batches()))
    order = ", ".join(map(_quoted, by))
    try:
        yield from _of_relation(engine.sql(f"SELECT * FROM given ORDER BY {order}"), schema.names, batch_rows)
    except Exception:
        if failed:
            raise failed[0] from None
        raise


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _of_relation(relation: Any, columns: Sequence[str], batch_rows: int) -> Frames:
    """Yield the rows of a relation of DuckDB; exact decimals become the nearest numbers, which Arrow would miss."""
    kinds = dict(zip(relation.columns, map(str, relation.types), strict=True))
    exact = [name for name, kind in kinds.items() if kind.startswith(("DECIMAL", "HUGEINT", "UHUGEINT"))]
    chosen = (f"CAST({_quoted(c)} AS DOUBLE) AS {_quoted(c)}" if c in exact else _quoted(c) for c in columns)
    found = relation.project(", ".join(chosen))
    # The second is its name in earlier versions of DuckDB.
    for batch in (getattr(found, "to_arrow_reader", None) or found.fetch_record_batch)(batch_rows):
        yield batch.to_pandas()


class SqlTable(StreamTable):
    """The rows of a query that DuckDB answers (the extra `sql`), read in batches.

    Parameters
    ----------
    query
        One SELECT. It may name files (``FROM 'vitals.parquet'``) and tables of `database`. Rows have to come in the same
        order each time: end it with ORDER BY unless it reads one table as it is.
    database
        A file of DuckDB or SQLite, or ``postgres:`` with the words by which to connect (``postgres:dbname=icu``). It is
        opened for reading only. SQLite and Postgres need extensions of DuckDB, which are never fetched unasked.
    folder
        Where files with relative paths are looked for; by default where the program runs.

    Examples
    --------
    >>> from feddbn.data import SqlTable, read_sites
    >>> rows = SqlTable("SELECT range AS x, range % 3 AS y FROM range(100)")
    >>> read_sites(rows)["site-0"].variables
    ('x', 'y')
    """

    where = "the query"

    def __init__(
        self,
        query: str,
        database: str | PathLike[str] | None = None,
        folder: str | PathLike[str] | None = None,
    ) -> None:
        if not isinstance(query, str) or not query.strip():
            raise ParameterError(f"query={query!r} must be a SELECT, as text.")
        self.query, self.database, self.folder = query, database, folder
        super().__init__(None)

    def __getstate__(self) -> dict[str, Any]:
        # Another process opens the database itself.
        return {name: value for name, value in vars(self).items() if name != "_engine"}

    @cached_property
    def _engine(self) -> tuple[Any, str | None]:
        """DuckDB with the database, if there is one, under the name it has there."""
        engine = _duckdb()
        kinds = [str(one.type).rpartition(".")[2] for one in engine.extract_statements(self.query)]
        if kinds != ["SELECT"]:
            raise ParameterError(f"the query {self.query!r} must be one SELECT and nothing else.")
        return engine, None if self.database is None else self._attach(engine, fspath(self.database))

    def _attach(self, engine: Any, database: str) -> str:
        kind, name, target = "postgres", "postgres", database
        if not database.startswith(("postgres:", "postgresql:")):
            with reading(f"database {database!r}", "a database"), open(database, "rb") as file:
                kind = "sqlite" if file.read(16) == b"SQLite format 3\0" else "duckdb"
            name = Path(database).stem
        elif "://" not in database:
            target = database.removeprefix("postgres:")
        literal = target.replace("'", "''")
        try:
            engine.execute(f"ATTACH '{literal}' AS {_quoted(name)} (READ_ONLY, TYPE {kind})")
        except Exception as error:
            # The words that connect to a server may have a password among them.
            reason, code = str(error).replace(target, "...").splitlines()[0].rstrip("."), "engine"
            if f"INSTALL {kind}" in str(error):
                code = "no-extension"
                reason = f"DuckDB lacks its extension; once: python -c \"import duckdb; duckdb.sql('INSTALL {kind}')\""
            raise DataError(f"the {kind} database cannot be opened ({reason}).", code=code) from None
        return name

    def _relation(self) -> Any:
        """The query on a connection of its own, so that several passes can be under way."""
        engine, name = self._engine
        cursor = engine.cursor()
        cursor.execute("SET TimeZone = 'UTC'")
        if self.folder is not None:
            cursor.execute("SET file_search_path = ?", [fspath(self.folder)])
        if name is not None:
            cursor.execute(f"USE {_quoted(name)}")
        return cursor.sql(self.query)

    def _columns(self) -> tuple[str, ...]:
        return tuple(self._relation().columns)

    def _batches(self, columns: list[str], batch_rows: int) -> Frames:
        return _of_relation(self._relation(), columns, batch_rows)


class Cursor:
    """Rows of a table by position; reading on in order costs one pass, going back starts again.

    At row `end`, if it is given, nobody is expected to read on.
    """

    def __init__(self, table: Table, columns: Sequence[str], batch_rows: int, end: int | None = None) -> None:
        self._end, self._seekable = end, table.seekable
        self._open = partial(table.frames, columns, batch_rows=batch_rows)
        self._frames: Frames | None = None
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
