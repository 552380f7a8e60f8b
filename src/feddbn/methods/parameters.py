"""What the arguments of estimators may be, as rules: a wrong value gets one sentence, never somebody else's exception.

A rule is a test and the words that complete "n_lags='two' must be ...". Rules combine by ``|``::

    rules = {"n_lags": whole(0) | word("auto"), "refit": flag(), "rho1": number(above=0) | nothing()}

Every estimator has one rule for each of its arguments and checks them before a fit touches data. What concerns several
arguments together is said where they meet, in the settings of the method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from feddbn.errors import ParameterError

__all__ = [
    "RENAMED",
    "Rule",
    "a_federation",
    "edges",
    "flag",
    "function",
    "increasing",
    "is_federation",
    "lags_of_sites",
    "names_of_variables",
    "nothing",
    "number",
    "refuses_renamed",
    "share_or_count",
    "shown",
    "text",
    "whole",
    "word",
]

RENAMED = {"lambda_": "l1_penalty"}
"""Arguments that have another name now; the old one is refused with a sentence that says so."""

_LONGEST = 60
F = TypeVar("F", bound=Callable[..., None])


@dataclass(frozen=True)
class Rule:
    """A test of a value, and in words what passes it; `is_choice` if only some words pass."""

    holds: Callable[[Any], bool]
    passing: tuple[str, ...]
    is_choice: bool = False

    def __or__(self, other: Rule) -> Rule:
        return Rule(
            lambda value: self.holds(value) or other.holds(value),
            self.passing + other.passing,
            self.is_choice and other.is_choice,
        )

    def check(self, name: str, value: object) -> None:
        """Refuse a value that does not pass."""
        if self.holds(value):
            return
        *others, last = self.passing
        words = f"{', '.join(others)} or {last}" if others else last
        verb = "is not known; choose" if self.is_choice else "must be"
        raise ParameterError(f"{name}={shown(value)} {verb} {words}.")


def shown(value: object) -> str:
    """Return a value as code on one line, cut if it is long."""
    line = " ".join(repr(value).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def whole(least: int) -> Rule:
    """Whole numbers from `least`."""
    return Rule(lambda value: _is_whole(value) and value >= least, (f"a whole number of at least {least}",))


def number(
    least: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
    most: float | None = None,
    finite: bool = True,
) -> Rule:
    """Numbers between bounds; infinity only with ``finite=False``."""

    def holds(value: Any) -> bool:
        if isinstance(value, (bool, np.bool_)) or not isinstance(
            value, (int, float, np.integer, np.floating)
        ):
            return False
        return not math.isnan(value) and bool(
            (not finite or math.isfinite(value))
            and (least is None or value >= least)
            and (above is None or value > above)
            and (below is None or value < below)
            and (most is None or value <= most)
        )

    return Rule(holds, (_bounds(least, above, below, most),))


def _bounds(least: float | None, above: float | None, below: float | None, most: float | None) -> str:
    if below is not None or most is not None:
        low, high = (least if above is None else above), (most if below is None else below)
        return f"a number in {'[' if above is None else '('}{low:g}, {high:g}{']' if below is None else ')'}"
    if above == 0:
        return "a positive number"
    return f"a number above {above:g}" if above is not None else f"a number of at least {least:g}"


def word(*choices: str) -> Rule:
    """One of some words."""
    passing = tuple(repr(choice) for choice in choices)
    return Rule(lambda value: isinstance(value, str) and value in choices, passing, is_choice=True)


def text(*what: str) -> Rule:
    """Any text, said to be one of `what`."""
    return Rule(lambda value: isinstance(value, str) and bool(value), what)


def flag() -> Rule:
    """True or False."""
    return Rule(lambda value: isinstance(value, (bool, np.bool_)), ("True", "False"))


def nothing() -> Rule:
    """None."""
    return Rule(lambda value: value is None, ("None",))


def function(what: str) -> Rule:
    """Something that can be called."""
    return Rule(callable, (what,))


def increasing(least: int) -> Rule:
    """At least so many increasing numbers."""

    def holds(value: Any) -> bool:
        if not isinstance(value, (Sequence, np.ndarray)) or isinstance(value, (str, bytes)):
            return False
        items = list(value)
        known = number(-math.inf)
        return (
            len(items) >= least
            and all(known.holds(item) for item in items)
            and all(a < b for a, b in pairwise(items))
        )

    return Rule(holds, (f"at least {least} increasing numbers",))


def share_or_count() -> Rule:
    """A share of the sites, or how many of them."""
    share = number(above=0, most=1)
    return Rule(
        lambda value: value >= 1 if _is_whole(value) else share.holds(value),
        ("a share in (0, 1] (as 0.5)", "a whole number of sites (as 3)"),
    )


def edges() -> Rule:
    """Lists of edges, or None; what is in them is checked when the variables are known."""

    def holds(value: Any) -> bool:
        return value is None or (isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)))

    return Rule(holds, ("a list of edges (from, to, lag)", "None"))


def names_of_variables() -> Rule:
    """Lists of different names, or None; whether variables have them is checked when these are known."""

    def holds(value: Any) -> bool:
        if value is None:
            return True
        if not isinstance(value, (Sequence, np.ndarray)) or isinstance(value, (str, bytes)):
            return False
        return all(isinstance(name, str) for name in value) and len(set(value)) == len(value)

    return Rule(holds, ("a list of different names of variables", "None"))


def lags_of_sites() -> Rule:
    """Some sites' numbers of lags, or None."""

    def holds(value: Any) -> bool:
        return value is None or (isinstance(value, Mapping) and all(isinstance(name, str) for name in value))

    return Rule(holds, ("a mapping from the name of a site to its number of lags", "None"))


def a_federation() -> Rule:
    """Where sums are made, or None."""
    return Rule(
        lambda value: value is None or is_federation(value), ("a federation (see feddbn.runtime)", "None")
    )


def is_federation(value: object) -> bool:
    """Whether a value offers all that a federation has to (`feddbn.federation.protocol.task.Federation`)."""
    return all(hasattr(value, part) for part in ("sites", "variables", "answered_tasks", "state_of", "sum"))


def refuses_renamed(init: F) -> F:
    """Return an ``__init__`` that refuses arguments by their old names, with the new ones; its signature stays."""

    @wraps(init)
    def checked(self: Any, *args: Any, **arguments: Any) -> None:
        for name in arguments:
            if name in RENAMED:
                raise ParameterError(
                    f"{type(self).__name__} has no argument {name!r} any more; it is called {RENAMED[name]!r} now."
                )
        init(self, *args, **arguments)

    return checked  # type: ignore[return-value]


def _is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))
