"""Options that several commands share, and how text becomes parameters."""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from feddbn.errors import FileError, ParameterError
from feddbn.method_table import Method

__all__ = [
    "Data",
    "DayFirst",
    "Freq",
    "Jitter",
    "Json",
    "Kinds",
    "Network",
    "OfSite",
    "Params",
    "Series",
    "SiteColumn",
    "Sort",
    "Time",
    "Variables",
    "column_options",
    "complete_method",
    "either",
    "give_kinds",
    "parse_kinds",
    "parse_n_lags",
    "parse_params",
    "parse_variables",
    "reads_data",
]

_FILES = (".toml", ".json")


def parse_kinds(texts: Iterable[str] | None) -> dict[str, Any] | None:
    """Return what the options say as `feddbn.core.kinds.read_kinds` takes it; None if there are none."""
    found: dict[str, Any] = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if sign and not name.strip():
            raise ParameterError(f"--kinds {text!r} must begin with a variable, such as visits=count.")
        is_file = not sign and Path(text).suffix.lower() in _FILES
        said = _from_file(Path(text)) if is_file else {name.strip(): _kind(text, value)}
        twice = [key for key in said if key in found]
        if twice:
            raise ParameterError(f"--kinds says what {twice[0]!r} is twice; keep one of them.")
        found |= said
    return found or None


def _kind(text: str, value: str) -> Any:
    from feddbn.core.kinds import KINDS

    word, colon, levels = value.partition(":")
    word, names = word.strip(), [name.strip() for name in (levels if colon else value).split(",")]
    if colon and word in KINDS and all(names):
        return {word: int(names[0]) if len(names) == 1 and names[0].isdigit() else names}
    if not colon and value.strip() in KINDS:
        return value.strip()
    # "x1=binary,count" is meant as two kinds, not as two levels.
    if not colon and len(names) > 1 and all(names) and not set(names) & set(KINDS):
        return names
    raise ParameterError(
        f"--kinds {text!r} must look like visits=count, ward=north,south or pain=ordinal:no,some,bad, with a kind of "
        f"{', '.join(KINDS)}; or name a .toml or .json file."
    )


def _from_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text) if path.suffix.lower() == ".toml" else json.loads(text)
    except OSError as error:
        raise FileError(f"--kinds {str(path)!r} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise FileError(f"--kinds {str(path)!r} is no valid {path.suffix[1:].upper()}: {error}.") from None
    inner = values.get("kinds", values) if isinstance(values, dict) else None
    if not isinstance(inner, dict) or not inner:
        raise ParameterError(
            f'--kinds {str(path)!r} must hold kinds by variable, such as visits = "count", alone or in a table [kinds].'
        )
    return inner


def give_kinds(methods: Method | Iterable[Method], parameters: dict[str, Any], read: dict[str, Any]) -> None:
    """Move the kinds from what says how data are read to the parameters of methods; refuse methods that know none."""
    kinds = read.pop("kinds")
    if kinds is None:
        return
    for method in [methods] if isinstance(methods, Method) else methods:
        if "kinds" not in method.parameters():
            raise ParameterError(
                f"--kinds needs a method that knows kinds of variables, and {method.name} treats all as numbers on a line; "
                "use --method mixed."
            )
    if "kinds" in parameters:
        raise ParameterError("kinds is given by --kinds and by --param; keep one of them.")
    parameters["kinds"] = kinds


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
Sort = Annotated[
    bool, typer.Option("--sort", help="Put rows in the order of their times first.", rich_help_panel=_COLUMNS)
]
Jitter = Annotated[
    float | None,
    typer.Option(
        "--jitter",
        help="Share of the step by which times may be off, such as 0.1; 0.05 by default.",
        rich_help_panel=_COLUMNS,
        show_default=False,
    ),
]
DayFirst = Annotated[
    bool | None,
    typer.Option(
        "--day-first/--month-first",
        help="How dates such as 01/02/2024 are written.",
        rich_help_panel=_COLUMNS,
        show_default=False,
    ),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kinds",
        metavar="NAME=KIND",
        help="Kind of a column: visits=count, ward=north,south, pain=ordinal:no,some,bad; or a .toml or .json file. "
        "Repeat for more.",
        rich_help_panel=_COLUMNS,
        show_default=False,
    ),
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


def complete_method(incomplete: str) -> list[str]:
    """Return the methods whose names begin so, for a shell that completes them."""
    from feddbn.method_table import available_methods

    return [method.name for method in available_methods() if method.name.startswith(incomplete)]


def either(names: Iterable[str]) -> str:
    """Return "a, b or c"."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


_NAMES = ("exogenous",)


def parse_params(texts: list[str] | None) -> dict[str, Any]:
    """Return key -> value; a value that is not JSON is text (True, False and None are read as in Python).

    A list of names may be written with commas: exogenous=dose,valve.
    """
    words = {"True": True, "False": False, "None": None}
    found: dict[str, Any] = {}
    for text in texts or ():
        key, sign, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not sign or not key:
            raise ParameterError(f"--param {text!r} must look like key=value, for example -p max_rounds=500.")
        if key in found:
            raise ParameterError(f"--param gives {key!r} twice; keep one of them.")
        if key.rpartition(".")[2] in _NAMES and value not in words and not value.startswith("["):
            found[key] = parse_variables(value)
            continue
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
    site: str | None = None,
    series: str | None = None,
    time: str | None = None,
    variables: str | None = None,
    freq: str | None = None,
    sort: bool = False,
    jitter: float | None = None,
    day_first: bool | None = None,
    kinds: list[str] | None = None,
) -> dict[str, Any]:
    """Return the arguments of `feddbn.data.read_sites`."""
    return {
        "site": site,
        "series": series,
        "time": time,
        "variables": parse_variables(variables),
        "freq": _step(freq),
        "sort": sort,
        "jitter": jitter,
        "day_first": day_first,
        "kinds": parse_kinds(kinds),
    }


def _step(text: str | None) -> int | float | str | None:
    """A number, or text such as 1h."""
    for kind in (int, float):
        try:
            return kind(text)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
    return text


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say how data are read; its argument `read` gets them for `read_sites`."""
    types = (SiteColumn, Series, Time, Variables, Freq, Sort, Jitter, DayFirst, Kinds)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=one)
        for (name, default), one in zip(_defaults(column_options).items(), types, strict=True)
    ]

    @wraps(command)
    def run(**given: Any) -> None:
        read = column_options(**{one.name: given.pop(one.name) for one in options})
        command(**given, read=read)

    own = inspect.signature(command, eval_str=True)
    kept = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own.parameters.values() if p.name != "read"
    ]
    del run.__wrapped__
    run.__signature__ = own.replace(parameters=[*kept, *options])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in [*kept, *options]}
    return run


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    return {name: p.default for name, p in inspect.signature(function).parameters.items()}
