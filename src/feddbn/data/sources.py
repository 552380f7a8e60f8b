"""What is said of variables: where a table has them, in which unit, and which values are plausible."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.errors import Given, ParameterError
from feddbn.settings import is_number, shown, word

__all__ = [
    "PLAUSIBLE",
    "Change",
    "Limits",
    "changed",
    "conversion",
    "read_limits",
    "read_units",
    "read_variables",
]

Limits = dict[str, tuple[float, float]]


def _stored(table: str) -> dict[str, Any]:
    return tomllib.loads(files("feddbn.data").joinpath(table).read_text(encoding="utf-8"))


PLAUSIBLE: Mapping[str, Mapping[str, tuple[float, float]]] = _stored("plausible.toml")
"""Word -> variable -> lowest and highest plausible value: tables of limits that are ready for use.

Examples
--------
>>> from feddbn.data import PLAUSIBLE
>>> PLAUSIBLE["adult-icu"]["heart_rate"]
[0, 300]
"""
_UNITS = {
    name: (quantity, *(size if isinstance(size, list) else (size, 0.0)))
    for quantity, units in _stored("units.toml").items()
    for names, size in units.items()
    for name in names.split()
}
"""Unit -> its quantity, how many of the first unit of that it is, and how many of it lie below its zero."""
_SAID = ("name", "unit", "to", "factor", "offset", "limits")


@dataclass(frozen=True)
class Change:
    """How numbers become those of another unit: ``factor * x + offset``; units are in words, empty where nobody says."""

    unit: str = ""
    to: str = ""
    factor: float = 1.0
    offset: float = 0.0


def read_limits(given: Any) -> Limits:
    """Variable -> lowest and highest plausible value; a word names a table that is ready for use."""
    if isinstance(given, str):
        word(*PLAUSIBLE).check("limits", given)
        given = PLAUSIBLE[given]
    found = {} if given is None else given
    if not isinstance(found, Mapping) or not all(map(_are_limits, found.values())):
        raise ParameterError(
            f"{Given('limits', shown(given))} must have a lowest and a higher value for variables, such as "
            "{'pulse': (10, 300)}.",
            argument="limits",
        )
    return {str(name): (float(low), float(high)) for name, (low, high) in found.items()}


def _are_limits(pair: Any) -> bool:
    are_two = isinstance(pair, Sequence) and len(pair) == 2 and all(is_number(x, finite=False) for x in pair)
    return are_two and bool(pair[0] < pair[1])


def read_units(given: Any) -> dict[str, Change]:
    """Variable -> its unit, and how its numbers change."""
    if isinstance(given, Mapping | None):
        return {str(name): _change(name, said) for name, said in (given or {}).items()}
    raise ParameterError(
        f"{Given('units', shown(given))} must have units by variable, such as {{'temp': ('F', 'C')}}.",
        argument="units",
    )


def _change(variable: object, said: Any) -> Change:
    """A unit, two of them, two with a factor and perhaps an offset, or only these."""
    if isinstance(said, Change):
        return said
    parts = list(said) if isinstance(said, Sequence) and not isinstance(said, str) else [said]
    words = [one for one in parts[:2] if isinstance(one, str) and one.strip()]
    numbers = parts[len(words) :]
    is_known = len(numbers) <= 2 and all(map(is_number, numbers)) and (not numbers or numbers[0] != 0)
    if not parts or not is_known or (numbers and len(words) == 1):
        raise ParameterError(
            f"{Given('units', shown({variable: said}))} must be a unit, two of them, such as ('F', 'C'), or a factor and an "
            "offset, alone or after two units.",
            argument="units",
        )
    unit, to = (words[0], words[-1]) if words else ("", "")
    factor, offset = [*map(float, numbers), 0.0][:2] if numbers else conversion(unit, to)
    return Change(unit, to, factor, offset)


def conversion(have: str, want: str) -> tuple[float, float]:
    """Return the factor and the offset by which a number in one unit becomes one in another: ``factor * x + offset``.

    Examples
    --------
    >>> from feddbn.data.sources import conversion
    >>> conversion("kg", "g")
    (1000.0, 0.0)
    """
    if have.strip() == want.strip():
        return 1.0, 0.0
    (measures, a, zero_a), (wanted, b, zero_b) = _unit(have), _unit(want)
    if measures != wanted:
        raise ParameterError(
            f"unit {have!r} is a {measures} and {want!r} a {wanted}; name two of one kind, or say how a number changes, with "
            "factor and offset.",
            code="other-quantity",
            units=(have, want),
        )
    return a / b, zero_a * a / b - zero_b


def _unit(name: str) -> tuple[str, float, float]:
    # There are two letters for micro, and both look like u with a tail.
    plain = name.strip().replace("\u00b5", "u").replace("\u03bc", "u")
    if plain not in _UNITS:
        # Small and capital letters differ in size (mW, MW), so another spelling is only proposed.
        near = [one for one in _UNITS if one.lower() == plain.lower()] or get_close_matches(
            plain, _UNITS, n=1
        )
        hint = f"did you mean {near[0]!r}? Otherwise say" if near else "say"
        said = f"unit {name!r} is not known; {hint} how a number changes, with factor and offset."
        raise ParameterError(said, code="unknown-unit", unit=name)
    return _UNITS[plain]


def changed(
    values: FloatArray,
    changes: Sequence[Change],
    limits: Sequence[tuple[float, float]],
    which: NDArray[np.integer] | None = None,
) -> FloatArray:
    """Values in the units that are wanted, NaN beyond limits: a change and limits for each column, or `which` for each."""
    factor, offset = np.array([(one.factor, one.offset) for one in changes]).T
    low, high = np.array(limits).T
    is_same = (factor == 1) & (offset == 0)
    if is_same.all() and np.isinf(low).all() and np.isinf(high).all():
        return values
    each = slice(None) if which is None else which
    # What keeps its unit keeps its bits.
    values = np.where(is_same[each], values, factor[each] * values + offset[each])
    return np.where((values < low[each]) | (values > high[each]), np.nan, values)


def read_variables(
    given: Mapping[Any, Any],
) -> tuple[dict[str, tuple[str, ...]], dict[str, Any], dict[str, Any]]:
    """Return where variables are, their units and their limits, from a table of variables.

    A variable has the name of its source, several names, or a table with some of name, unit, to, factor, offset and limits.
    """
    sources: dict[str, tuple[str, ...]] = {}
    units: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    for variable, said in ((str(key), said) for key, said in given.items()):
        entry = said if isinstance(said, Mapping) else {"name": said}
        for key in entry:
            if key not in _SAID:
                near = get_close_matches(str(key), _SAID, n=1) or [f"one of {', '.join(_SAID)}"]
                raise _wrong(variable, f"has {key!r}, which is not known; write {near[0]} or remove it")
        names = entry.get("name", variable)
        several = names if isinstance(names, list | tuple) else [names]
        if not several or not all(
            isinstance(one, str | int) and not isinstance(one, bool) for one in several
        ):
            raise _wrong(
                variable, f"has name = {shown(names)}, which must be a name, a number or a list of these"
            )
        sources[variable] = tuple(map(str, several))
        words = [entry[key] for key in ("unit", "to") if key in entry]
        numbers = (
            [entry.get("factor", 1.0), entry.get("offset", 0.0)] if {"factor", "offset"} & {*entry} else []
        )
        if len(words) == 1 and (numbers or "to" in entry):
            raise _wrong(
                variable,
                "says one unit of a change; write `unit`, which numbers have, and `to`, the one wanted",
            )
        units |= {variable: [*words, *numbers]} if words or numbers else {}
        limits |= {variable: entry["limits"]} if "limits" in entry else {}
    every = [name for names in sources.values() for name in names]
    for variable, names in sources.items():
        twice = [name for name in names if every.count(name) > 1]
        if twice:
            raise _wrong(variable, f"takes {twice[0]!r}, which is taken twice; keep one of them")
    return sources, units, limits


def _wrong(variable: str, what: str) -> ParameterError:
    return ParameterError(f"variable {variable!r} {what}.", code="mapping", argument="variables")
