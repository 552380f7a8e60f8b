"""Whatever holds rows, as tables that are read once, batch by batch.

`table_of` is the one border, and `batches` what it is for: frames of any kind, arrays, xarray, text, Parquet and Arrow files,
and answers to queries are frames of pandas from here on.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from feddbn.data.layout import Layout, quoted, refuse_values, unnamed
from feddbn.data.rows import BATCH_ROWS
from feddbn.errors import DataError, FeddbnError, FileError, Given, MissingExtra, ParameterError, reading
from feddbn.findings import Finding

__all__ = ["SqlTable", "Table", "batches", "plain_frame", "table_of"]

Frames = Iterator[pd.DataFrame]
_LOOKED_AT = 200
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
    frames
        Reads some of the columns, in batches.
    index_columns, time_index
        Columns that held the row index of the DataFrame that was written; the one of them that holds dates, if it is alone.
    index
        The index of a DataFrame that was given.
    is_held
        Whether the rows are in memory already.
    said
        What was recognised of how the table is written, and nobody said.
    """

    name: str
    where: str
    columns: tuple[str, ...]
    frames: Callable[[Sequence[str]], Frames]
    index_columns: tuple[str, ...] = ()
    time_index: str | None = None
    index: pd.Index | None = None
    is_held: bool = False
    said: tuple[Finding, ...] = ()

    def __post_init__(self) -> None:
        refuse_twice(self.columns, self.where)


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
        made = [_of_array(one, layout, where) for one in arrays]
        return made if value.ndim == 3 else made[0]
    if isinstance(value, pd.DataFrame):
        return _of_frame(value, layout, where)
    if is_labelled(value):
        found = _of_labelled(value, layout)
        frames = [_of_frame(one, layout, where) for one in (found if isinstance(found, list) else [found])]
        return frames if isinstance(found, list) else frames[0]
    if isinstance(value, (str, PathLike)):
        return _of_file(Path(value), layout)
    if isinstance(value, SqlTable):
        return Table("recording-0", "the query", value.columns(), value.frames)
    frame = nw.from_native(value, pass_through=True, allow_series=True)
    if isinstance(frame, nw.LazyFrame):
        return _of_lazy(frame)
    with _needing("pyarrow", "parquet"):
        # Polars hands its columns over by pyarrow.
        if isinstance(frame, nw.DataFrame):
            return _of_frame(frame.to_pandas(), layout, where)
        if hasattr(value, "__arrow_c_stream__") and not isinstance(frame, nw.Series):
            import pyarrow as pa

            return _of_stream(pa.RecordBatchReader.from_stream(value))
    return value


@contextmanager
def _needing(package: str, extra: str) -> Iterator[None]:
    try:
        yield
    except FeddbnError:
        raise
    except ImportError:
        raise MissingExtra(package, extra) from None


def _of_frame(frame: pd.DataFrame, layout: Layout, where: str) -> Table:
    """A frame of pandas; levels of its index that have a role are columns, and dates in it are a time."""
    keys, index, time_index = [*layout.keys.values()], frame.index, None
    if any(name in index.names for name in keys if name is not None and name not in frame.columns):
        frame, index = frame.reset_index(), pd.RangeIndex(len(frame))
    elif layout.time is None and isinstance(index, (pd.DatetimeIndex, pd.PeriodIndex)):
        name = str(index.name or "index")
        if name not in frame.columns:
            frame, time_index = frame.rename_axis(index=name).reset_index(), name
    names = tuple(map(str, frame.columns))
    refuse_twice(names, where)
    if any(type(name) is not str for name in frame.columns):
        frame = frame.set_axis(list(names), axis=1)

    def frames(columns: Sequence[str]) -> Frames:
        yield frame if tuple(columns) == names else frame[list(columns)]

    return Table("recording-0", where, names, frames, (), time_index, index, True)


def _of_array(values: Any, layout: Layout, where: str) -> Table:
    if values.ndim != 2:
        fix = (
            "; reshape(-1, 1) makes one variable of it"
            if values.ndim == 1
            else ", or 3 (recordings, rows, variables)"
        )
        raise DataError(
            f"{where} is an array with {values.ndim} dimensions instead of 2 (rows, variables){fix}."
        )
    for argument, column in layout.keys.items():
        if column is not None:
            raise DataError(
                f"{where} is an array without column names, so {Given(argument, column)} cannot be found; give a DataFrame."
            )
    names = unnamed(values.shape[1])
    if layout.variables is not None and len(layout.variables) == values.shape[1]:
        names = tuple(layout.variables)
    return _of_frame(pd.DataFrame(values, columns=list(names), copy=False), Layout(), where)


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


def _of_file(path: Path, layout: Layout) -> Table:
    """The table in a file, chosen by its ending."""
    if not path.exists():
        raise FileError(f"file {str(path)!r} does not exist; check the path.")
    name, where, kind = stem(path), f"file {str(path)!r}", _kind(path)
    if kind in _CSV:
        text = _Text(path, where, layout)
        return Table(name, where, text.columns(), text.frames, said=text.said)
    if kind not in (*_PARQUET, *_ARROW):
        raise FileError(
            f"file {str(path)!r} is of a kind that is not read; use {ENDINGS} (text also as .gz)."
        )
    with _needing("pyarrow", "parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    with reading(where, "Parquet" if kind in _PARQUET else "Arrow"):
        if kind in _PARQUET:
            schema, frames = pq.read_schema(path), partial(_parquet_frames, path, where)
        else:
            with pa.memory_map(str(path)) as mapped:
                schema, frames = pa.ipc.open_file(mapped).schema, partial(_arrow_frames, path)
    stored = (schema.pandas_metadata or {}).get("index_columns", [])
    index = tuple(one for one in stored if isinstance(one, str))
    is_time = len(index) == 1 and str(schema.field(index[0]).type).startswith("timestamp")
    return Table(name, where, tuple(schema.names), frames, index, index[0] if is_time else None)


def _parquet_frames(path: Path, where: str, columns: Sequence[str]) -> Frames:
    import pyarrow.parquet as pq

    # A buffered stream reads pages as they are needed; without it whole column chunks would be held.
    with pq.ParquetFile(path, buffer_size=1 << 18, pre_buffer=False) as file:
        batches = file.iter_batches(BATCH_ROWS, columns=list(columns), use_threads=False)
        while True:
            with reading(where, "Parquet"):
                batch = next(batches, None)
            if batch is None:
                return
            # Columns stay where they were read to; numbers are copied once.
            yield batch.to_pandas(ignore_metadata=True, split_blocks=True)


def _arrow_frames(path: Path, columns: Sequence[str]) -> Frames:
    import pyarrow as pa

    with pa.memory_map(str(path)) as mapped:
        file = pa.ipc.open_file(mapped)
        for batch in map(file.get_batch, range(file.num_record_batches)):
            for row in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.select(list(columns)).slice(row, BATCH_ROWS).to_pandas(ignore_metadata=True)


class _Text:
    """A text file with a header; `layout` says how it is written.

    Its columns of names are read as text, so that batches agree on their type. A word such as "None" is no empty cell in a
    column that has it among its levels.
    """

    def __init__(self, path: Path, where: str, layout: Layout) -> None:
        self.path, self.where, self.layout = path, where, layout
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

    def frames(self, columns: Sequence[str]) -> Frames:
        """Yield batches of these columns."""
        # All columns are read: pandas takes no notice of lines with more cells where it is asked for some.
        with self._reading():
            reader = pd.read_csv(self.path, chunksize=BATCH_ROWS, low_memory=False, **self._options)
        with reader:
            while True:
                with self._reading():
                    frame = next(reader, None)
                if frame is None:
                    return
                yield frame[list(columns)]


def refuse_twice(names: Sequence[str], where: str) -> None:
    """Refuse two columns of one name."""
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        refuse_values(names, where)
        raise DataError(
            f"{where} has more than one column {quoted(twice)}; give every column its own name.", code="twice"
        )


@contextmanager
def _computing(where: str) -> Iterator[None]:
    try:
        with _needing("pyarrow", "parquet"):
            yield
    except FeddbnError:
        raise
    except Exception as error:
        # Every engine has errors of its own.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise DataError(f"{where} cannot be read: {reason}.", code="engine") from None


def _computed(frames: Callable[[list[str]], Frames], where: str, columns: Sequence[str]) -> Frames:
    """Yield batches that are computed when they are asked for."""
    with _computing(where):
        found = iter(frames(list(columns)))
    while True:
        with _computing(where):
            frame = next(found, None)
        if frame is None:
            return
        yield frame


def _of_stream(stream: Any) -> Table:
    def frames(columns: list[str]) -> Frames:
        return (one.select(columns).to_pandas() for one in stream)

    names = tuple(map(str, stream.schema.names))
    return Table("recording-0", "data", names, partial(_computed, frames, "data"))


def _of_lazy(frame: nw.LazyFrame[Any]) -> Table:
    native, kind = frame.to_native(), frame.implementation

    def frames(columns: list[str]) -> Frames:
        if kind.is_duckdb():
            return _of_relation(native, columns)
        if kind.is_polars() and hasattr(native, "collect_batches"):
            found = native.select(columns).collect_batches(chunk_size=BATCH_ROWS, maintain_order=True)
        elif kind.is_ibis():
            found = native.select(columns).to_pyarrow_batches(chunk_size=BATCH_ROWS)
        else:
            found = [frame.select(columns).collect("pandas")]
        return (one.to_pandas() for one in found)

    with _computing("data"):
        names = tuple(map(str, frame.collect_schema()))
    return Table("recording-0", "data", names, partial(_computed, frames, "data"))


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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _of_relation(relation: Any, columns: Sequence[str]) -> Frames:
    """Yield the rows of a relation of DuckDB; exact decimals become the nearest numbers, which Arrow would miss."""
    kinds = dict(zip(relation.columns, map(str, relation.types), strict=True))
    exact = [name for name, kind in kinds.items() if kind.startswith(("DECIMAL", "HUGEINT", "UHUGEINT"))]
    chosen = (f"CAST({_quoted(c)} AS DOUBLE) AS {_quoted(c)}" if c in exact else _quoted(c) for c in columns)
    found = relation.project(", ".join(chosen))
    # The second is its name in earlier versions of DuckDB.
    for batch in (getattr(found, "to_arrow_reader", None) or found.fetch_record_batch)(BATCH_ROWS):
        yield batch.to_pandas()


class SqlTable:
    """The rows of a query that DuckDB answers (the extra `sql`), read in batches.

    Parameters
    ----------
    query
        One SELECT. It may name files (``FROM 'vitals.parquet'``) and tables of `database`. It is asked once; end it with
        ORDER BY unless it reads one table as it is.
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

    def __init__(
        self,
        query: str,
        database: str | PathLike[str] | None = None,
        folder: str | PathLike[str] | None = None,
    ) -> None:
        if not isinstance(query, str) or not query.strip():
            raise ParameterError(f"query={query!r} must be a SELECT, as text.")
        self.query, self.database, self.folder = query, database, folder

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

    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        with _computing("the query"):
            return tuple(self._relation().columns)

    def frames(self, columns: Sequence[str]) -> Frames:
        """Yield batches of these columns."""
        return _computed(lambda names: _of_relation(self._relation(), names), "the query", columns)
