"""Variables that are computed from others: ``{"map": "(sbp + 2 dbp) / 3"}``.

A formula has numbers, names, ``+ - * /``, parentheses, ``log`` and ``exp``. A number, or what is in parentheses, before a
name multiplies it, from left to right, as ``*`` does. A name that is not letters, digits and underscores stands in backticks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import SiteData
from feddbn.errors import ParameterError
from feddbn.findings import Finding

__all__ = ["Formula", "defined", "far_definitions", "read_definitions", "without_defined"]

_PART = re.compile(r"\s*(?:((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|`([^`]+)`|([^\W\d]\w*)|([-+*/()]))")
_MOST_OPEN = 50
_LEAST_EXPLAINED = 0.5
_FUNCTIONS = {"log": np.log, "exp": np.exp}
Values = Mapping[str, FloatArray]
_Node = tuple[Callable[[Values], Any], float]
"""What a part of a formula is of values, and its degree in them; infinite if it is no polynomial of degree 1."""


@dataclass(frozen=True)
class Formula:
    """A formula that was read: call it with values of its `names`. `is_affine`: a weighted sum and a constant."""

    text: str
    names: tuple[str, ...]
    is_affine: bool
    _value: Callable[[Values], Any] = field(repr=False, compare=False)

    def __call__(self, values: Values) -> FloatArray:
        """The formula of arrays of one shape; NaN or infinite where it has no value."""
        with np.errstate(all="ignore"):
            return np.asarray(self._value(values), dtype=np.float64)


class _Reader:
    """Recursive descent over the parts of one formula."""

    def __init__(self, name: str, text: str) -> None:
        self.what, self.names, at = f"definitions: {name} = {text!r}", dict[str, None](), 0
        self.parts: list[tuple[str, str]] = []
        self.before, self.n_open = "", 0
        while text[at:].strip():
            found = _PART.match(text, at)
            if found is None:
                raise self.wrong(f"has {text[at:].strip()[0]!r}, which belongs into no formula")
            number, quoted, plain, sign = found.groups()
            kind = "number" if number else "sign" if sign else "function" if plain in _FUNCTIONS else "name"
            self.parts.append((kind, number or quoted or plain or sign))
            at = found.end()

    def wrong(self, why: str) -> ParameterError:
        return ParameterError(
            f'{self.what} {why}; write it like "(sbp + 2 dbp) / 3".', argument="definitions"
        )

    def read(self) -> _Node:
        node = self.sum()
        if self.parts:
            raise self.wrong(f"has {self.parts[0][1]!r} where an operator or the end should be")
        if not self.names:
            raise self.wrong("names no variable")
        return node

    def takes(self, *signs: str) -> str:
        """The next part if it is one of these signs, which is then read; else nothing."""
        if self.parts and self.parts[0][0] == "sign" and self.parts[0][1] in signs:
            return self.parts.pop(0)[1]
        return ""

    def sum(self) -> _Node:
        (left, degree) = self.product()
        while sign := self.takes("+", "-"):
            right, other = self.product()
            apply, degree = (np.add if sign == "+" else np.subtract), max(degree, other)
            left = _both(apply, left, right)
        return left, degree

    def product(self) -> _Node:
        left, degree = self.factor()
        while self.parts:
            sign = self.takes("*", "/")
            kind, text = self.parts[0] if self.parts else ("", "")
            if not sign and not (kind in ("name", "function") or text == "("):
                break
            if not sign and self.before == "name":
                raise self.wrong(f"has {text!r} after a name; put an operator between them")
            right, other = self.factor()
            is_simple = not other if sign == "/" else not (degree and other)
            degree = degree + other if is_simple else np.inf
            left = _both(np.divide if sign == "/" else np.multiply, left, right)
        return left, degree

    def factor(self) -> _Node:
        self.n_open += 1
        if self.n_open > _MOST_OPEN:
            raise self.wrong("is nested too deeply")
        node = self.one()
        self.n_open -= 1
        return node

    def one(self) -> _Node:
        if sign := self.takes("+", "-"):
            inner, degree = self.factor()
            return (inner, degree) if sign == "+" else (lambda values: -inner(values), degree)
        if not self.parts:
            raise self.wrong("ends too early")
        kind, text = self.parts.pop(0)
        self.before = kind
        if kind == "number":
            return (lambda values: float(text)), 0.0
        if kind == "name":
            self.names[text] = None
            return (lambda values: values[text]), 1.0
        if kind == "sign" and text != "(":
            raise self.wrong(f"has {text!r} where a number or a name should be")
        if kind == "function" and not self.takes("("):
            raise self.wrong(f"needs parentheses after {text}")
        inner, degree = self.sum()
        if not self.takes(")"):
            raise self.wrong("lacks a closing parenthesis")
        self.before = "sign"
        if kind == "sign":
            return inner, degree
        function = _FUNCTIONS[text]
        return (lambda values: function(inner(values))), np.inf if degree else 0.0


def _both(
    apply: Any, left: Callable[[Values], Any], right: Callable[[Values], Any]
) -> Callable[[Values], Any]:
    return lambda values: apply(left(values), right(values))


def read_definitions(given: object) -> dict[str, Formula]:
    """Return name -> formula, each after those it uses; anything but names and formulas that end in others is refused."""
    if given is not None and not isinstance(given, Mapping):
        raise ParameterError(
            f'definitions={given!r} must be formulas by the names of variables, like {{"map": "(sbp + 2 dbp) / 3"}}.',
            argument="definitions",
        )
    found = {}
    for name, text in dict(given or {}).items():
        if not isinstance(name, str) or not isinstance(text, str) or not text.strip():
            raise ParameterError(
                f'definitions: {name!r} = {text!r} must be a name and a formula, like "(sbp + 2 dbp) / 3".',
                argument="definitions",
            )
        reader = _Reader(name, text)
        value, degree = reader.read()
        found[name] = Formula(text, tuple(reader.names), degree <= 1, value)
    ordered: dict[str, Formula] = {}
    while len(ordered) < len(found):
        ready = [
            k for k, one in found.items() if k not in ordered and not {*one.names} & {*found} - {*ordered}
        ]
        if not ready:
            loop = ", ".join(name for name in found if name not in ordered)
            raise ParameterError(
                f"definitions: {loop} cannot be computed, as what defines them goes in a circle; leave one out.",
                argument="definitions",
            )
        for name in ready:
            is_affine = all(ordered[other].is_affine for other in found[name].names if other in ordered)
            ordered[name] = replace(found[name], is_affine=found[name].is_affine and is_affine)
    return ordered


def defined(formulas: Mapping[str, Formula], values: Values) -> dict[str, FloatArray]:
    """What formulas, in the order of `read_definitions`, make of values by name."""
    found = dict(values)
    for name, formula in formulas.items():
        found[name] = formula(found) + np.zeros_like(next(iter(values.values())))
    return {name: found[name] for name in formulas}


def without_defined(given: object, variables: Sequence[str]) -> tuple[str, ...]:
    """The variables that are left to learn; a definition of, or by, something that is no variable is refused."""
    formulas = read_definitions(given)
    for name, formula in formulas.items():
        for other in (name, *formula.names):
            if other not in variables:
                raise ParameterError(
                    f"definitions contains {other!r}, which is not a variable; the variables are "
                    f"{', '.join(variables[:10])}.",
                    argument="definitions",
                )
    return tuple(name for name in variables if name not in formulas)


def far_definitions(sites: Iterable[SiteData], given: Mapping[str, str] | None) -> Iterator[Finding]:
    """The definitions that are far from what was recorded: these leave more of a variable than they explain."""
    formulas = read_definitions(given)
    sums = {name: np.zeros(4) for name in formulas}
    for site in sites if formulas else ():
        for recording in site.recordings():
            for block in recording.blocks():
                values = dict(zip(site.variables, block.values.T, strict=True))
                for name, made in defined(formulas, values).items() if {*formulas} <= {*values} else ():
                    y = values[name]
                    there = np.isfinite(made) & np.isfinite(y)
                    y, rest = y[there], (y - made)[there]
                    sums[name] += (len(y), y.sum(), y @ y, rest @ rest)
    for name, (n, total, squares, left) in sums.items():
        spread = squares - total**2 / max(n, 1)
        if n > 1 and spread > 0 and left > (1 - _LEAST_EXPLAINED) * spread:
            values = {"formula": formulas[name].text, "explained": float(1 - left / spread)}
            yield Finding("definition-far", "warning", values, (name,))
