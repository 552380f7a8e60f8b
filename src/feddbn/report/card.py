"""What a notebook shows of one thing, as data: a headline, points, a picture, tables; and its HTML.

Everything is escaped by the template. A card has no scripts and asks for nothing from outside, so it is the same in every
notebook, stays readable in a stored one, and cannot do anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pandas.api.types import is_bool_dtype, is_float_dtype, is_numeric_dtype

from feddbn.report.verdict import Verdict

__all__ = ["Card", "Point", "Table", "point_of", "shown_number", "table_of"]

# Readable on light and on dark pages; the mark before a sentence says the same.
_COLOURS = {
    "good": "#2a9d6f",
    "note": "#808080",
    "unknown": "#808080",
    "caution": "#c98500",
    "warning": "#c98500",
    "bad": "#dd5a50",
    "error": "#dd5a50",
}
_MARKS = {
    "good": "✓",
    "note": "i",
    "unknown": "?",
    "caution": "!",
    "warning": "!",
    "bad": "✗",
    "error": "✗",
}


@dataclass(frozen=True)
class Point:
    """One line of a list: how good it is (a level of a `Verdict` or a severity), a question, the answer, and more."""

    text: str
    level: str = ""
    head: str = ""
    more: str = ""


@dataclass(frozen=True)
class Table:
    """Cells as text; `more` says what is left out, and a `closed` one opens by a click."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | Markup, ...], ...]
    numeric: tuple[bool, ...]
    title: str = ""
    more: str = ""
    closed: bool = False


@dataclass(frozen=True)
class Card:
    """What is shown, from top to bottom."""

    title: str
    says: str = ""
    points: Sequence[Point] = ()
    picture: Markup | str = ""
    legend: str = ""
    tables: Sequence[Table] = ()
    warnings: Sequence[str] = field(default_factory=tuple)

    def html(self) -> str:
        """The card as one ``<div>``."""
        return str(_template().render(card=self, colours=_COLOURS, marks=_MARKS))


def point_of(verdict: Verdict) -> Point:
    """A verdict as a line: question, answer, evidence and advice."""
    more = " ".join(filter(None, [verdict.detail, verdict.advice]))
    return Point(verdict.answer, verdict.level, verdict.question, "" if verdict.level == "good" else more)


def table_of(
    frame: pd.DataFrame,
    at_most: int,
    *,
    title: str = "",
    all_of_it: str = "",
    closed: bool = False,
    bar: str = "",
) -> Table:
    """The first rows of a frame; `all_of_it` is what to write for all of them.

    The column `bar`, whose numbers lie between 0 and 1, is drawn in front of the others as well.
    """
    shown = frame.head(at_most)
    numeric = tuple(bool(is_numeric_dtype(dtype)) and not is_bool_dtype(dtype) for dtype in frame.dtypes)
    columns = [_cells(shown[name]) for name in frame.columns]
    heads = [str(name) for name in frame.columns]
    if bar:
        columns.insert(0, [_bar(float(share)) for share in shown[bar]])
        heads, numeric = ["", *heads], (False, *numeric)
    rows = tuple(zip(*columns, strict=True))
    left = len(frame) - len(shown)
    more = f"and {left:,} more{f': {all_of_it}' if all_of_it else ''}" if left else ""
    return Table(tuple(heads), rows, numeric, title, more, closed)


def shown_number(value: float) -> str:
    """A number as people read it: three decimals, or three digits where units make it large or tiny."""
    number = float(value)
    if not np.isfinite(number):
        return "–"
    return f"{number:.3f}" if number == 0 or 0.001 <= abs(number) < 1000 else f"{number:.3g}"


def _cells(column: pd.Series) -> list[str | Markup]:
    """The cells of a column; numbers of one column look alike."""
    if is_bool_dtype(column):
        return ["yes" if value else "no" for value in column]
    if not is_numeric_dtype(column):
        return ["–" if value is None or value is pd.NaT else str(value) for value in column]
    numbers = column.to_numpy(dtype=float)
    if is_float_dtype(column) and not np.any(np.abs(numbers) > 1):
        return [shown_number(value) for value in numbers]
    is_whole = bool(np.all(np.isnan(numbers) | (numbers == np.round(numbers))))
    return [
        ("–" if np.isnan(value) else f"{value:,.0f}") if is_whole else shown_number(value)
        for value in numbers
    ]


def _bar(share: float) -> Markup:
    """A share as a bar of 60 pixels."""
    form = (
        '<svg width="60" height="9" role="img" aria-label="{}"><rect width="60" height="9" fill="currentColor" '
        'opacity=".15"/><rect width="{:.0f}" height="9" fill="#4393c3"/></svg>'
    )
    return Markup(form).format(shown_number(share), 60 * min(max(share, 0.0), 1.0))


@cache
def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("feddbn.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("card.html")
