"""Whatever holds rows, as tables that are read once, batch by batch.

`table_of` is the one border, and `batches` what it is for: frames of any kind, arrays, xarray, text, Parquet and Arrow files,
and answers to queries are frames of pandas from here on.
"""

from __future__ import annotations

import re
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from feddbn.data.cells import with_levels
from feddbn.data.layout import Layout, quoted, unnamed
from feddbn.data.rows import BATCH_ROWS
from feddbn.errors import DataError, FeddbnError, FileError, Given, MissingExtra, ParameterError, reading

__all__ = ["SqlTable", "Table", "batches", "plain_frame", "table_of"]

Frames = Iterator[pd.DataFrame]
_SQL_MEMORY = "1GB"


@dataclass(frozen=True)
class Table:
    """Rows under named columns.

    Attributes
    ----------
    name, where
        What a recording or a site gets called, and how sentences name the table.
    columns
        Names of the columns.
    opened
        Reads some of the columns, in batches.
    errors
        The context in which it reads: what goes wrong there is said in one sentence.
    index_columns, time_index
        Columns that held the row index of the DataFrame that was written; the one of them that holds dates, if it is alone.
    is_held
        Whether the rows are in memory already.
    """

    name: str
    where: str
    columns: tuple[str, ...]
    opened: Callable[[list[str]], Frames]
    errors: Callable[[], AbstractContextManager[None]] = nullcontext
    index_columns: tuple[str, ...] = ()
    time_index: str | None = None
    is_held: bool = False

    def __post_init__(self) -> None:
        names = self.columns
        twice = (
            sorted({name for name in names if names.count(name) > 1}) if len({*names}) < len(names) else []
        )
        if twice:
            said = f"{self.where} has more than one column {quoted(twice)}; give every column its own name."
            raise DataError(said, code="twice")

    def frames(self, columns: Sequence[str]) -> Frames:
        """Yield the rows of some columns."""
        with self.errors():
            found = iter(self.opened(list(columns)))
        while True:
            with self.errors():
                frame = next(found, None)
            if frame is None:
                return
            yield frame


def batches(source: Any, layout: Layout | None = None) -> Frames:
    """Yield the rows of anything that holds one table, once, in frames of bounded size; those in memory come whole.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data.tables import batches
    >>> [frame.shape for frame in batches(np.ones((3, 2)))]
    [(3, 2)]
    """
    found = table_of(source, layout)
    if not isinstance(found, Table):
        raise ParameterError(f"data of type {type(source).__name__} is not one table.")
    return found.frames(found.columns)


def table_of(value: Any, layout: Layout | None = None, where: str = "data") -> Any:
    """Return what a person may hold rows in as a `Table`, or as a list of them, one for each recording.

    What is neither is returned as it is.
    """
    layout = layout or Layout()
    if isinstance(value, np.ndarray):
        arrays = value if value.ndim == 3 else [value]
        frames = [_named(one, layout, where) for one in arrays]
        value = frames if value.ndim == 3 else frames[0]
    elif is_labelled(value):
        value = _of_labelled(value, layout)
    if isinstance(value, pd.DataFrame):
        return _of_frame(value, layout, where)
    if isinstance(value, list) and all(isinstance(one, pd.DataFrame) for one in value):
        return [_of_frame(one, layout, where) for one in value]
    if isinstance(value, (str, PathLike)):
        return _of_file(Path(value), layout)
    if isinstance(value, SqlTable):
        return _of_query(value)
    frame = nw.from_native(value, pass_through=True, allow_series=True)
    if isinstance(frame, nw.LazyFrame):
        return _of_lazy(frame)
    with _needing("pyarrow", "parquet"):
        # Polars hands its columns over by pyarrow.
        if isinstance(frame, nw.DataFrame):
            return _of_frame(frame.to_pandas(), layout, where)
        if hasattr(value, "__arrow_c_stream__") and not isinstance(frame, nw.Series):
            import pyarrow as pa

            stream = pa.RecordBatchReader.from_stream(value)
            names = tuple(map(str, stream.schema.names))
            return _computed(names, lambda columns: (one.select(columns).to_pandas() for one in stream))
    return value


@contextmanager
def _needing(package: str, extra: str) -> Iterator[None]:
    try:
        yield
    except FeddbnError:
        raise
    except ImportError:
        raise MissingExtra(package, extra) from None


# ---- memory


def _of_frame(frame: pd.DataFrame, layout: Layout, where: str) -> Table:
    """A frame of pandas; levels of its index that have a role are columns, and dates in it are a time."""
    keys, index, time_index = layout.keys.values(), frame.index, None
    if any(name in index.names for name in keys if name is not None and name not in frame.columns):
        frame = frame.reset_index()
    elif layout.time is None and isinstance(index, (pd.DatetimeIndex, pd.PeriodIndex)):
        name = str(index.name or "index")
        if name not in frame.columns:
            frame, time_index = frame.rename_axis(index=name).reset_index(), name
    elif index.nlevels > 1:
        raise DataError(
            f"{where} has an index with the levels {quoted(index.names)}; say what they are with {Given('series')} and "
            f"{Given('time')}, or take them off with reset_index(drop=True).",
            code="index-levels",
        )
    names = tuple(map(str, frame.columns))
    if any(type(name) is not str for name in frame.columns):
        frame = frame.set_axis(list(names), axis=1)

    def opened(columns: list[str]) -> Frames:
        yield frame if tuple(columns) == names else frame[columns]

    return Table("recording-0", where, names, opened, time_index=time_index, is_held=True)


def _named(values: Any, layout: Layout, where: str) -> pd.DataFrame:
    """The frame of an array (rows, variables)."""
    if values.ndim != 2:
        said = f"{where} is an array with {values.ndim} dimensions instead of 2 (rows, variables)"
        raise DataError(f"{said}; reshape(-1, 1) makes one variable of a series.")
    names = layout.variables if layout.variables and len(layout.variables) == values.shape[1] else ()
    return pd.DataFrame(values, columns=list(names or unnamed(values.shape[1])), copy=False)


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
    """Return whatever holds one table as one frame of pandas; anything else is returned as it is."""
    if isinstance(value, (pd.DataFrame, np.ndarray)):
        return value
    found = table_of(value, layout)
    if not isinstance(found, Table):
        return found
    parts = list(found.frames(found.columns))
    whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(found.columns))
    return whole if found.time_index is None else whole.set_index(found.time_index)


# ---- files

_CSV = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")
_ARROW = (".arrow", ".feather", ".ipc")
ENDINGS = ".csv, .tsv, .parquet, .arrow or .feather"
_PACKED = (".gz", ".bz2", ".xz", ".zst")
_VALUE = re.compile(r"\s*[-+]?\d+(\.\d*|-\d\d-\d\d.*)")
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


def _of_file(path: Path, layout: Layout) -> Table:
    """The table in a file, chosen by its ending."""
    if not path.exists():
        raise FileError(f"file {str(path)!r} does not exist; check the path.")
    where, kind = f"file {str(path)!r}", _kind(path)
    if kind in _CSV:
        return _of_text(path, where, layout)
    if kind not in (*_PARQUET, *_ARROW):
        raise FileError(
            f"file {str(path)!r} is of a kind that is not read; use {ENDINGS} (text also as .gz)."
        )
    with _needing("pyarrow", "parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    errors = partial(reading, where, "Parquet" if kind in _PARQUET else "Arrow")
    with errors():
        if kind in _PARQUET:
            schema, opened = pq.read_schema(path), partial(_of_parquet, path)
        else:
            with pa.memory_map(str(path)) as mapped:
                schema, opened = pa.ipc.open_file(mapped).schema, partial(_of_arrow, path)
    stored = (schema.pandas_metadata or {}).get("index_columns", [])
    index = tuple(one for one in stored if isinstance(one, str))
    is_time = len(index) == 1 and str(schema.field(index[0]).type).startswith("timestamp")
    return Table(stem(path), where, tuple(schema.names), opened, errors, index, index[0] if is_time else None)


def _of_parquet(path: Path, columns: list[str]) -> Frames:
    import pyarrow.parquet as pq

    # A buffered stream reads pages as they are needed; without it whole column chunks would be held.
    with pq.ParquetFile(path, buffer_size=1 << 18, pre_buffer=False) as file:
        for batch in file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
            # Columns stay where they were read to; numbers are copied once.
            yield batch.to_pandas(ignore_metadata=True, split_blocks=True)


def _of_arrow(path: Path, columns: list[str]) -> Frames:
    import pyarrow as pa

    with pa.memory_map(str(path)) as mapped:
        file = pa.ipc.open_file(mapped)
        for batch in map(file.get_batch, range(file.num_record_batches)):
            for row in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.select(columns).slice(row, BATCH_ROWS).to_pandas(ignore_metadata=True)


def _of_text(path: Path, where: str, layout: Layout) -> Table:
    """A text file with a header, written as `layout` says; nothing is guessed, but what seems to be meant is proposed.

    Its columns of names and levels are read as text, so that batches agree on their type. A word such as "None" is no empty
    cell in a column that has it among its levels.
    """
    plain: dict[str, Any] = {
        "sep": layout.separator or _CSV[_kind(path)],
        "decimal": layout.decimal or ".",
        "encoding": layout.encoding,
    }
    if plain["sep"] == plain["decimal"]:
        said = f"{Given('decimal', plain['decimal'])} is what stands between columns, too; give {Given('separator')}."
        raise ParameterError(said)
    text = {**plain, "header": None, "dtype": str, "keep_default_na": False}
    errors = partial(_text_errors, where, layout.encoding or "UTF-8")
    with errors():
        # As a header, pandas would rename what is there twice, and take more cells below it for an index.
        names = tuple(map(str, pd.read_csv(path, nrows=1, **text).iloc[0]))
        mark = next((one for one in ";\t" if len(names) == 1 and one in names[0]), None)
        if mark is not None:
            said = f"{where} seems to separate columns by {mark!r}; give {Given('separator', mark)}."
            raise FileError(said, code="separator")
        pd.read_csv(path, nrows=2, **text)
    if 2 * sum(_VALUE.fullmatch(name) is not None for name in names) > len(names):
        said = f"{where} has values in its first line; write a line with the names of the columns above it."
        raise DataError(said, code="header")
    names = tuple(name or f"Unnamed: {j}" for j, name in enumerate(names))
    words = {name: _EMPTY - {*kind.levels} for name, kind in with_levels(layout.kinds).items()}
    plain["dtype"] = dict.fromkeys(filter(None, (layout.site, layout.series, layout.names, *words)), str)
    if words:
        empty = {name: sorted(words.get(name, _EMPTY)) for name in names}
        plain |= {"na_values": empty, "keep_default_na": False}

    def opened(columns: list[str]) -> Frames:
        # All columns are read: pandas takes no notice of lines with more cells where it is asked for some.
        with pd.read_csv(path, chunksize=BATCH_ROWS, low_memory=False, **plain) as reader:
            for frame in reader:
                yield frame[columns]

    return Table(stem(path), where, names, opened, errors)


@contextmanager
def _text_errors(where: str, encoding: str) -> Iterator[None]:
    try:
        with reading(where, "CSV"):
            yield
    except FileError as error:
        said, code = str(error)[:-1], error.code
        if "No columns to parse" in said:
            said = f"{where} is empty; write a line with the names of columns, and rows below it"
            code = "empty"
        elif code == "not-text":
            said = f"{where} is not {encoding} text; say what it is, often {Given('encoding', 'latin-1')}"
        elif "saw" in said:
            said += f": a line has more cells than there are columns; say what separates columns with {Given('separator')}, "
            said += f"and what begins decimals with {Given('decimal')}"
        else:
            raise
        raise FileError(f"{said}.", code=code) from None


# ---- what is computed when it is asked for


@contextmanager
def _engine_errors(where: str) -> Iterator[None]:
    try:
        with _needing("pyarrow", "parquet"):
            yield
    except FeddbnError:
        raise
    except Exception as error:
        # Every engine has errors of its own.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise DataError(f"{where} cannot be read: {reason}.", code="engine") from None


def _computed(names: tuple[str, ...], opened: Callable[[list[str]], Frames], where: str = "data") -> Table:
    return Table("recording-0", where, names, opened, partial(_engine_errors, where))


def _of_lazy(frame: nw.LazyFrame[Any]) -> Table:
    native, kind = frame.to_native(), frame.implementation

    def opened(columns: list[str]) -> Frames:
        if kind.is_duckdb():
            return _of_relation(native, columns)
        if kind.is_polars() and hasattr(native, "collect_batches"):
            found = native.select(columns).collect_batches(chunk_size=BATCH_ROWS, maintain_order=True)
        elif kind.is_ibis():
            found = native.select(columns).to_pyarrow_batches(chunk_size=BATCH_ROWS)
        else:
            found = [frame.select(columns).collect("pandas")]
        return (one.to_pandas() for one in found)

    with _engine_errors("data"):
        return _computed(tuple(map(str, frame.collect_schema())), opened)


def _of_query(table: SqlTable) -> Table:
    """The answer to a query; the engine lives as long as the table."""
    engine = table.connected()
    with _engine_errors("the query"):
        relation = engine.sql(table.query)

    def opened(columns: list[str], _engine: Any = engine) -> Frames:
        return _of_relation(relation, columns)

    return _computed(tuple(relation.columns), opened, "the query")


def _of_relation(relation: Any, columns: Sequence[str]) -> Frames:
    """Yield the rows of a relation of DuckDB; exact decimals become the nearest numbers, which Arrow would miss."""
    kinds = dict(zip(relation.columns, map(str, relation.types), strict=True))
    names = {name: '"' + name.replace('"', '""') + '"' for name in columns}
    exact = [name for name in columns if kinds[name].startswith(("DECIMAL", "HUGEINT", "UHUGEINT"))]
    chosen = (f"CAST({one} AS DOUBLE) AS {one}" if name in exact else one for name, one in names.items())
    found = relation.project(", ".join(chosen))
    # The second is its name in earlier versions of DuckDB.
    for batch in (getattr(found, "to_arrow_reader", None) or found.fetch_record_batch)(BATCH_ROWS):
        yield batch.to_pandas()


@dataclass(frozen=True)
class SqlTable:
    """The rows of a query that DuckDB answers (the extra `sql`), read in batches.

    Parameters
    ----------
    query
        One SELECT. It may name files (``FROM 'vitals.parquet'``) and tables of `database`. It is asked once; end it with
        ORDER BY unless it reads one table as it is.
    database
        A database that DuckDB attaches, for reading only: a file of its own, or, with extensions that are never fetched
        unasked, a file of SQLite or ``postgres:`` with the words by which to connect.
    folder
        Where files with relative paths are looked for; by default where the program runs.

    Examples
    --------
    >>> from feddbn.data import SqlTable, read_sites
    >>> rows = SqlTable("SELECT range AS x, range % 3 AS y FROM range(100)")
    >>> read_sites(rows)["site-0"].variables
    ('x', 'y')
    """

    query: str
    database: str | PathLike[str] | None = None
    folder: str | PathLike[str] | None = None

    def connected(self) -> Any:
        """Return DuckDB in a memory of its own, with bounds; what does not fit goes to a folder that nobody else can read."""
        with _needing("duckdb", "sql"):
            import duckdb
        spill = tempfile.TemporaryDirectory(prefix="feddbn-")
        # One thread gives rows in one order; nothing is fetched from elsewhere, nor taken from variables of Python.
        options: dict[str, Any] = {"threads": 1, "memory_limit": _SQL_MEMORY, "temp_directory": spill.name}
        options |= {"autoinstall_known_extensions": False, "python_enable_replacements": False}
        engine = duckdb.connect(config=options)
        weakref.finalize(engine, spill.cleanup)
        with _engine_errors("the query"):
            statements = engine.extract_statements(self.query) if isinstance(self.query, str) else []
            engine.execute("SET TimeZone = 'UTC'")
        if [str(one.type).rpartition(".")[2] for one in statements] != ["SELECT"]:
            raise ParameterError(f"the query {self.query!r} must be one SELECT and nothing else.")
        if self.folder is not None:
            engine.execute("SET file_search_path = ?", [fspath(self.folder)])
        if self.database is not None:
            _attach(engine, fspath(self.database))
        return engine


def _attach(engine: Any, database: str) -> None:
    if not database.startswith(("postgres:", "postgresql:")) and not Path(database).exists():
        raise FileError(f"database {database!r} does not exist; check the path.", code="no-file")
    literal = database.replace("'", "''")
    try:
        engine.execute(f"ATTACH '{literal}' AS given (READ_ONLY)")
        engine.execute("USE given")
    except Exception as error:
        # The words that connect to a server may have a password among them, and DuckDB repeats them.
        said = f"the database cannot be opened by DuckDB ({type(error).__name__}); check it with ATTACH in DuckDB itself, "
        raise DataError(
            f"{said}which names what is wrong or the extension that it lacks.", code="engine"
        ) from None
