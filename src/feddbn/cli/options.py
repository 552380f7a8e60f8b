"""Options that several commands share, and how text becomes parameters."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from feddbn.errors import ParameterError

__all__ = [
    "Data",
    "Freq",
    "Json",
    "Network",
    "OfSite",
    "Params",
    "Series",
    "SiteColumn",
    "Time",
    "Variables",
    "column_options",
    "either",
    "parse_n_lags",
    "parse_params",
    "parse_variables",
]

_COLUMNS = "Columns of the data"
Data = Annotated[
    Path,
    typer.Argument(
        help="A directory with one CSV or Parquet file (or folder of recordings) per site, or one file.",
        show_default=False,
    ),
]
SiteColumn = Annotated[
    str | None,
    typer.Option(
        "--site", help="Column that names the site, if all are in one file.", rich_help_panel=_COLUMNS
    ),
]
Series = Annotated[
    str | None, typer.Option("--series", help="Column that names the recording.", rich_help_panel=_COLUMNS)
]
Time = Annotated[str | None, typer.Option("--time", help="Column with the time.", rich_help_panel=_COLUMNS)]
Variables = Annotated[
    str | None,
    typer.Option("--variables", help="Columns to use, separated by commas.", rich_help_panel=_COLUMNS),
]
Freq = Annotated[
    str | None,
    typer.Option("--freq", help='Step from row to row, such as 1 or "1h".', rich_help_panel=_COLUMNS),
]
Network = Annotated[Path, typer.Argument(help="A result or a stored network.", show_default=False)]
OfSite = Annotated[
    str | None,
    typer.Option("--of", metavar="SITE", help="The network of this site instead of the shared one."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Params = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        "-p",
        metavar="KEY=VALUE",
        help="Any other parameter of the method; the value is JSON or text. Repeat for more.",
    ),
]


def either(names: Iterable[str]) -> str:
    """Return "a, b or c"."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def parse_params(texts: list[str] | None) -> dict[str, Any]:
    """Return key -> value; a value that is not JSON is text (True, False and None are read as in Python)."""
    words = {"True": True, "False": False, "None": None}
    found: dict[str, Any] = {}
    for text in texts or ():
        key, sign, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not sign or not key:
            raise ParameterError(f"--param {text!r} must look like key=value, for example -p max_rounds=500.")
        if key in found:
            raise ParameterError(f"--param gives {key!r} twice; keep one of them.")
        if value in words:
            found[key] = words[value]
            continue
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


def parse_n_lags(text: str | None) -> int | str | None:
    """Return the number of lags, "auto", or None if it was not given."""
    if text is None or text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise ParameterError(f"n_lags={text!r} must be a whole number of at least 0, or auto.") from None


def parse_variables(text: str | None) -> list[str] | None:
    """Return the names between the commas."""
    return None if text is None else [name.strip() for name in text.split(",")]


def column_options(
    site: str | None, series: str | None, time: str | None, variables: str | None, freq: str | None
) -> dict[str, Any]:
    """Return the arguments of `feddbn.data.read_sites`."""
    step: int | str | None = int(freq) if freq is not None and freq.isdigit() else freq
    return {
        "site": site,
        "series": series,
        "time": time,
        "variables": parse_variables(variables),
        "freq": step,
    }
