"""Options that several commands share, and how text becomes parameters and kinds of variables."""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.errors import ParameterError, reading
from feddbn.method_table import Method

if TYPE_CHECKING:
    from feddbn.data.layout import Layout

__all__ = [
    "LINE",
    "AnswerFile",
    "Data",
    "Json",
    "Network",
    "OfSite",
    "Params",
    "QuestionFile",
    "Reading",
    "complete_method",
    "either",
    "given_parameters",
    "parse_kinds",
    "parse_n_lags",
    "parse_params",
    "parse_variables",
    "reads_data",
]

_FILES = (".toml", ".json")
LINE = "feddbn.line"
"""Where a context keeps the words that were typed after `feddbn`."""


def parse_kinds(texts: Iterable[str] | None) -> dict[str, Any] | None:
    """Return what the options say as `feddbn.data.kinds.read_kinds` takes it; None if there are none."""
    found: dict[str, Any] = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if sign and not name.strip():
            raise ParameterError(f"--kinds {text!r} must begin with a variable, such as visits=count.")
        is_file = not sign and Path(text).suffix.lower() in _FILES
        said = _from_file(Path(text)) if is_file else {name.strip(): _kind(text, value)}
        twice = [key for key in said if key in found]
        if twice:
            raise ParameterError(f"--kinds gives the kind of {twice[0]!r} twice; keep one of them.")
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
    with reading(f"--kinds {str(path)!r}", path.suffix[1:].upper()):
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text) if path.suffix.lower() == ".toml" else json.loads(text)
    inner = values.get("kinds", values) if isinstance(values, dict) else None
    if not isinstance(inner, dict) or not inner:
        raise ParameterError(
            f'--kinds {str(path)!r} must hold kinds by variable, such as visits = "count", alone or in a table [kinds].'
        )
    return inner


Data = Annotated[
    Any,
    typer.Argument(
        help="A directory with one CSV, Parquet or Arrow file (or folder of recordings) per site; one file; a TOML file that "
        "describes where and how to read data (or a directory of them); or a query (--sql).",
        show_default=False,
        parser=str,
        metavar="DATA",
    ),
]
Network = Annotated[Path, typer.Argument(help="A result or a stored network.", show_default=False)]
OfSite = Annotated[
    str | None,
    typer.Option("--of", metavar="SITE", help="Use the network of this site instead of the shared one."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
QuestionFile = Annotated[Path, typer.Argument(help="A question file, as the lead wrote it.")]
AnswerFile = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="File or folder for the answer; by default the folder of the question."),
]
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


def parse_params(texts: list[str] | None) -> dict[str, Any]:
    """Return key -> value; a value that is not JSON is text (True, False and None are read as in Python).

    A list of names may be written with commas: prepare.exogenous=dose,valve.
    """
    words = {"True": True, "False": False, "None": None}
    found: dict[str, Any] = {}
    for text in texts or ():
        key, sign, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not sign or not key:
            raise ParameterError(f"--param {text!r} must look like key=value, for example -p n_lags=2.")
        if key in found:
            raise ParameterError(f"--param gives {key!r} twice; keep one of them.")
        if value in words:
            found[key] = words[value]
        elif key.endswith("exogenous") and not value.startswith("["):
            found[key] = parse_variables(value)
        else:
            found[key] = _json_or_text(value)
    return found


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


@dataclass(frozen=True)
class Reading:
    """How data are read: a layout without kinds, and kinds as they were written, since methods take them, too."""

    layout: Layout
    kinds: dict[str, Any] | None = None

    def with_kinds(self, kinds: Any = None) -> Layout:
        """The layout with these kinds, or those that were written."""
        return replace(self.layout, kinds=self.kinds if kinds is None else kinds)

    def for_rows_of(self, variables: Sequence[str]) -> Layout:
        """The layout of new rows for a result with these variables; what does not go with it is refused."""
        if self.kinds is not None:
            raise ParameterError(
                "--kinds has no effect here: methods that can be updated treat all variables as numbers; leave it out."
            )
        if self.layout.variables is not None and list(self.layout.variables) != list(variables):
            raise ParameterError(
                f"--variables must be those of the result ({', '.join(variables)}); leave it out."
            )
        return replace(self.layout, variables=None)


def given_parameters(
    methods: Iterable[Method], read: Reading, param: list[str] | None, **own: Any
) -> dict[str, Any]:
    """Return the parameters of methods: those of --param, and of options of their own that were given.

    Kinds are taken from what says how data are read; methods that know none are refused.
    """
    own["kinds"] = read.kinds
    for method in methods if read.kinds is not None else ():
        if "kinds" not in method.parameters():
            raise ParameterError(
                f"--kinds needs a method that uses kinds of variables, and {method.name} treats all as numbers; "
                "use --method mixed."
            )
    chosen = {name: value for name, value in own.items() if value is not None}
    others = parse_params(param)
    twice = sorted(set(chosen) & set(others))
    if twice:
        raise ParameterError(
            f"{twice[0]} is given by --{twice[0].replace('_', '-')} and by --param; keep one of them."
        )
    return chosen | others


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


_READING: dict[str, tuple[Any, str, str]] = {
    "site": (str | None, "--site", "Column that names the site, if one file holds all sites."),
    "series": (str | None, "--series", "Column that names the recording."),
    "time": (str | None, "--time", "Column with the time."),
    "variables": (str | None, "--variables", "Columns (or names) to use as variables, separated by commas."),
    "names": (
        str | None,
        "--names",
        "Column that names the variable, if every row holds one reading.",
    ),
    "values": (str | None, "--values", "Column with the value of each reading; goes with --names."),
    "freq": (
        str | None,
        "--freq",
        'Time step between rows, such as 1 or "1h".',
    ),
    "irregular": (
        str | None,
        "--irregular",
        "For rows at uneven times: refuse, or average (within a step --freq).",
    ),
    "limits": (
        list[str] | None,
        "--limits",
        "Plausible values of a column, such as pulse=10,300; others become empty. Or adult-icu. Repeat for more.",
    ),
    "units": (
        list[str] | None,
        "--units",
        "Unit of a column and the unit wanted: temp=F,C; or a factor: dose=0.001. Repeat for more.",
    ),
    "sort": (bool | None, "--sort", "Sort the rows by time first."),
    "jitter": (
        float | None,
        "--jitter",
        "Allowed error of times, as a share of the step, such as 0.1; 0.05 by default.",
    ),
    "day_first": (bool | None, "--day-first/--month-first", "How dates such as 01/02/2024 are written."),
    "kinds": (
        list[str] | None,
        "--kinds",
        "Kind of a column: visits=count, ward=north,south, pain=ordinal:no,some,bad; or a .toml or .json file. Repeat for "
        "more.",
    ),
    "separator": (str | None, "--separator", "Column separator of a text file, such as ;."),
    "decimal": (str | None, "--decimal", "Decimal sign of a text file: . or ,."),
    "encoding": (str | None, "--encoding", "Character encoding of a text file, such as latin-1."),
    "sql": (bool, "--sql", "DATA is a SELECT query, not a path; DuckDB runs it."),
    "database": (
        str | None,
        "--database",
        "Database for --sql, as DuckDB attaches it: its own file, or of SQLite, or postgres:dbname=...",
    ),
}
"""Fields of `feddbn.Layout` that are options: their type, how they are written, what they are for."""


_METAVARS = {"kinds": "NAME=KIND", "limits": "NAME=LOW,HIGH", "units": "NAME=UNIT,UNIT"}
_ALWAYS = ("separator", "decimal", "encoding", "sql", "database")


def _opened(text: str, is_query: bool, database: str | None) -> Any:
    """The rows that an argument names: a path, or a query."""
    if is_query:
        from feddbn.data import SqlTable

        return SqlTable(text, database)
    if database is not None:
        raise ParameterError("--database goes with --sql and a SELECT in place of the path; add --sql.")
    return Path(text)


def reads_data(*fields: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that say how data are read, all or these; its argument `read` gets them."""
    options = []
    for name in (*fields, *_ALWAYS) if fields else _READING:
        kind, flag, about = _READING[name]
        shown: dict[str, Any] = {"metavar": _METAVARS[name]} if name in _METAVARS else {}
        option = typer.Option(
            flag, help=about, rich_help_panel="Columns of the data", show_default=False, **shown
        )
        default = False if kind is bool else None
        annotation: Any = Annotated[kind, option]
        options.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        )

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            from feddbn.data.layout import Layout

            read = {one.name: given.pop(one.name) for one in options}
            source = "history" if "history" in given else "data"
            named, how = given[source], (read.pop("sql"), read.pop("database"))
            is_one = isinstance(named, str)
            given[source] = _opened(named, *how) if is_one else [_opened(one, *how) for one in named or ()]
            kinds = parse_kinds(read.pop("kinds", None))
            for name, parsed in _PARSED.items():
                read[name] = parsed(read.get(name))
            command(**given, read=Reading(Layout(**read), kinds))

        own = inspect.signature(command, eval_str=True).parameters.values()
        kept = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own if one.name != "read"]
        made: Any = run
        del made.__wrapped__
        made.__signature__ = inspect.Signature([*kept, *options])
        made.__annotations__ = {one.name: one.annotation for one in [*kept, *options]}
        return run

    return decorate


def _pairs(option: str, looks: str) -> Callable[[list[str] | None], Any]:
    """How texts such as pulse=10,300 become values by name; one word alone stays what it is."""

    def parsed(texts: list[str] | None) -> Any:
        if not texts:
            return None
        if len(texts) == 1 and "=" not in texts[0]:
            return texts[0]
        found: dict[str, Any] = {}
        for text in texts:
            name, sign, value = text.partition("=")
            if not sign or not name.strip() or not value.strip() or name.strip() in found:
                raise ParameterError(f"--{option} {text!r} must look like {looks}, once for each name.")
            parts = [_number_or_text(one.strip()) for one in value.split(",")]
            found[name.strip()] = parts[0] if len(parts) == 1 else tuple(parts)
        return found

    return parsed


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


_PARSED: dict[str, Callable[[Any], Any]] = {
    "variables": parse_variables,
    "limits": _pairs("limits", "pulse=10,300"),
    "units": _pairs("units", "temp=F,C"),
}
