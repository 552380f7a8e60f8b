"""What a notebook shows as a picture and a table instead of one line of text, and sentences as HTML.

How things look is decided far above, in `feddbn.report.notebook`. Nothing is imported from there: `feddbn` itself, which lies
above everything, gives the function that draws (`drawn_by`), and a program that shows nothing never loads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["Shown", "ShownEstimator", "drawn_by", "with_code"]

_DRAWERS: list[Callable[[object], str]] = []


def drawn_by(drawer: Callable[[object], str]) -> None:
    """Have everything that is shown drawn by a function that gives HTML."""
    _DRAWERS[:] = [drawer]


class Shown:
    """Base of everything that a notebook shows as HTML."""

    def _repr_html_(self) -> str:
        return _DRAWERS[0](self)


class ShownEstimator(Shown):
    """An estimator: what it learned is shown, instead of scikit-learn's diagram of its arguments."""

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def with_code(sentence: str) -> Markup:
    """A sentence as HTML: what stands between backticks is code; everything is escaped."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(sentence))))
