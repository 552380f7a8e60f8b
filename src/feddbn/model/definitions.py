"""Variables that are computed from others: ``{"map": "(sbp + 2 dbp) / 3"}``.

A formula has numbers, names, ``+ - * /``, parentheses, ``log`` and ``exp``. A number, or what is in parentheses, before a
name multiplies it, from left to right, as ``*`` does. A name that is not letters, digits and underscores stands in backticks.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import SiteData
from feddbn.errors import ParameterError
from feddbn.findings import Finding

__all__ = ["Formula", "defined", "far_definitions", "read_definitions", "without_defined"]

_PART = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|`([^`]+)`|([^\W\d]\w*)|([-+*/()])|(\S)")
_MOST_PARTS = 200
_LEAST_EXPLAINED = 0.5
_FUNCTIONS = {"log": np.log, "exp": np.exp}
_OPERATORS: Mapping[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: np.divide,
}
Values = Mapping[str, FloatArray]


@dataclass(frozen=True)
class Formula:
    """A formula that was read: call it with values of its `names`."""

    text: str
    names: tuple[str, ...]
    _node: ast.expr = field(repr=False, compare=False)

    def __call__(self, values: Values) -> FloatArray:
        """The formula of arrays of one shape; NaN or infinite where it has no value."""
        with np.errstate(all="ignore"):
            return np.asarray(_value(self._node, [values[name] for name in self.names]), dtype=np.float64)


def _value(node: ast.expr, values: Sequence[FloatArray]) -> Any:
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_value(node.left, values), _value(node.right, values))
    if isinstance(node, ast.UnaryOp):
        inner = _value(node.operand, values)
        return -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.Call):
        return _FUNCTIONS[node.func.id](_value(node.args[0], values))  # type: ignore[attr-defined]
    return values[int(node.id[1:])] if isinstance(node, ast.Name) else float(node.value)  # type: ignore[attr-defined]


def _is_allowed(node: ast.expr) -> bool:
    """Whether an expression has nothing but what formulas have."""
    if isinstance(node, ast.BinOp):
        return type(node.op) in _OPERATORS and _is_allowed(node.left) and _is_allowed(node.right)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, (ast.UAdd, ast.USub)) and _is_allowed(node.operand)
    if isinstance(node, ast.Call):
        is_known = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
        return is_known and len(node.args) == 1 and not node.keywords and _is_allowed(node.args[0])
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id not in _FUNCTIONS)


def _read(name: str, text: str) -> Formula:
    names, parts, before = dict[str, int](), list[str](), ""
    for number, quoted, plain, sign, other in _PART.findall(text):
        part = number or sign or (plain if plain in _FUNCTIONS else "") or other
        if quoted or (plain and not part):
            part = f"v{names.setdefault(quoted or plain, len(names))}"
        if before and (before == ")" or before[0] in ".0123456789") and (part == "(" or part[0].isalpha()):
            parts.append("*")
        parts.append(part)
        before = part
    try:
        node = ast.parse(" ".join(parts), mode="eval").body
        if len(parts) > _MOST_PARTS or not names or not _is_allowed(node):
            raise ValueError
        return Formula(text, tuple(names), node)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ParameterError(
            f"definitions: {name} = {text[:100]!r} is no formula of numbers, names, + - * /, parentheses, log, exp; "
            'write it like "(sbp + 2 dbp) / 3".',
            argument="definitions",
        ) from None


def read_definitions(given: object) -> dict[str, Formula]:
    """Return name -> formula, each after those it uses; anything but names and formulas that end in others is refused."""
    if given is not None and not isinstance(given, Mapping):
        raise ParameterError(
            f'definitions={given!r} must be formulas by the names of variables, like {{"map": "(sbp + 2 dbp) / 3"}}.',
            argument="definitions",
        )
    found = dict[str, Formula]()
    for name, text in dict(given or {}).items():
        if not isinstance(name, str) or not isinstance(text, str) or not text.strip():
            raise ParameterError(
                f'definitions: {name!r} = {text!r} must be a name and a formula, like "(sbp + 2 dbp) / 3".',
                argument="definitions",
            )
        found[name] = _read(name, text)
    try:
        order = TopologicalSorter(
            {name: {*one.names} & {*found} for name, one in found.items()}
        ).static_order()
        return {name: found[name] for name in order}
    except CycleError as error:
        raise ParameterError(
            f"definitions: {', '.join(error.args[1])} cannot be computed, as what defines them goes in a circle; leave one "
            "out.",
            argument="definitions",
        ) from None


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
