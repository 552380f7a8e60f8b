"""A TOML file that says where data are and how they are read: `data`, and the fields of a `Layout`."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

from feddbn.data.layout import Layout
from feddbn.data.tables import SqlTable, data_files, data_folders
from feddbn.errors import ParameterError, reading

__all__ = ["described", "descriptions", "layouts", "left_out", "located"]


def _read(path: Path) -> dict[str, Any]:
    with reading(f"file {str(path)!r}", "TOML"):
        return tomllib.loads(path.read_text(encoding="utf-8"))


def descriptions(folder: Path) -> list[Path]:
    """Return the files of a folder that describe data; a study or anything else in TOML is none."""
    return [path for path in sorted(folder.glob("*.toml")) if "data" in _read(path)]


def left_out(folder: Path) -> list[str]:
    """Return the names of data files and folders of data files that none of the descriptions in a folder names."""
    named: set[Path] = set()
    for path in descriptions(folder):
        found = located(_read(path)["data"], folder, f"file {str(path)!r}")
        # A query may name several files, also by patterns.
        texts = re.findall(r"'([^']+)'", found.query) if isinstance(found, SqlTable) else [found]
        for text in texts:
            first = os.path.relpath(folder / text, folder).partition(os.sep)[0]
            named |= {*folder.glob("*" if first == "." else first)}
    return [one.name for one in (*data_files(folder), *data_folders(folder)) if one not in named]


def layouts(data: Any, layout: Layout) -> list[Layout]:
    """Return how data are read: one layout, or one for each file of a folder that describes data."""
    is_folder = isinstance(data, (str, PathLike)) and Path(data).is_dir()
    told = descriptions(Path(data)) if is_folder else [data]
    return [described(one, layout)[1] for one in told] or [layout]


def described(value: Any, layout: Layout) -> tuple[Any, Layout]:
    """Return where a file says that data are, and how they are read unless `layout` says it; anything else as it is."""
    if not isinstance(value, (str, PathLike)) or Path(value).suffix.lower() != ".toml":
        return value, layout
    path, where = Path(value), f"file {str(value)!r}"
    said = _read(path)
    data = located(said.pop("data", None), path.parent, where)
    try:
        own = Layout.of(None, said, "it")
    except ParameterError as error:
        raise ParameterError(f"{where}: {error}", code=error.code, **error.values) from None
    given = ((one.name, getattr(layout, one.name)) for one in fields(Layout))
    return data, replace(own, **{name: value for name, value in given if value not in (None, {})})


def located(data: Any, folder: Path, where: str) -> Any:
    """Return data that are named in a file of this folder: a path, or a table of a query and perhaps a database."""
    if isinstance(data, str) and data:
        return folder / data
    is_query = isinstance(data, Mapping) and isinstance(data.get("sql"), str)
    if not is_query or not {*data} <= {"sql", "database"}:
        raise ParameterError(
            f"{where} must say where its data are: data = a path, or data = {{sql = ...}}, with database = ... if need be.",
            code="no-data",
        )
    database = data.get("database")
    if database is not None and not str(database).startswith(("postgres:", "postgresql:")):
        database = folder / database
    return SqlTable(data["sql"], database, folder)
