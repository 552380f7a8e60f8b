"""What is said of variables: where a table has them, in which unit, and which values are plausible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.data.plausible import PLAUSIBLE
from feddbn.data.units import conversion
from feddbn.errors import Given, ParameterError
from feddbn.settings import is_number, shown, word

__all__ = ["Change", "Limits", "Source", "changed", "read_limits", "read_sources", "read_units"]

Limits = dict[str, tuple[float, float]]
_SAID = ("name", "unit", "to", "factor", "offset", "limits")


@dataclass(frozen=True)
class Change:
    """How numbers become those of another unit: ``factor * x + offset``; units are in words, empty where nobody says."""

    unit: str = ""
    to: str = ""
    factor: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True)
class Source:
    """Where readings of a variable are, a column or a name in the column of names; and how they change."""

    name: str
    change: Change | None = None


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


def changed(
    values: FloatArray,
    changes: Sequence[Change],
    limits: Sequence[tuple[float, float]],
    which: NDArray[np.intp] | None = None,
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


def read_sources(given: Mapping[Any, Any] | None) -> tuple[dict[str, tuple[Source, ...]], Limits]:
    """Return where variables are and what is plausible, from a table of variables.

    A variable has the name of its source, several names, a table with some of name, unit, to, factor, offset and limits, or
    several such tables.
    """
    sources: dict[str, tuple[Source, ...]] = {}
    limits: dict[str, Any] = {}
    taken: dict[str, str] = {}
    for variable, said in ((str(key), said) for key, said in (given or {}).items()):
        is_list = isinstance(said, list | tuple)
        entries = said if is_list and all(isinstance(one, Mapping | Source) for one in said) else [said]
        found: list[Source] = []
        for entry in entries:
            if isinstance(entry, Source):
                found.append(entry)
                continue
            found += _sources(variable, entry if isinstance(entry, Mapping) else {"name": entry})
            own = entry.get("limits") if isinstance(entry, Mapping) else None
            if own is not None and limits.setdefault(variable, own) is not own:
                raise _wrong(variable, "has limits twice; keep one of them")
        for name in (one.name for one in found):
            if name in taken:
                raise _wrong(
                    variable, f"takes {name!r}, which {taken[name]!r} takes already; keep one of them"
                )
            taken[name] = variable
        units = {one.change.to for one in found if one.change}
        if len(units) > 1:
            raise _wrong(
                variable, f"would be in {' and in '.join(sorted(units))}; add `to`, one unit for all"
            )
        sources[variable] = tuple(found)
    return sources, read_limits(limits)


def _sources(variable: str, entry: Mapping[str, Any]) -> list[Source]:
    for key in entry:
        if key not in _SAID:
            near = get_close_matches(str(key), _SAID, n=1) or [f"one of {', '.join(_SAID)}"]
            raise _wrong(variable, f"has {key!r}, which is not known; write {near[0]} or remove it")
    names = entry.get("name", variable)
    several = names if isinstance(names, list | tuple) else [names]
    if not several or not all(isinstance(one, str | int) and not isinstance(one, bool) for one in several):
        raise _wrong(
            variable, f"has name = {shown(names)}, which must be a name, a number or a list of these"
        )
    words = [entry[key] for key in ("unit", "to") if key in entry]
    if "to" in entry and "unit" not in entry:
        raise _wrong(variable, "has `to`, the unit wanted, but no `unit`, the one it has")
    numbers = [entry.get("factor", 1.0), entry.get("offset", 0.0)] if {"factor", "offset"} & {*entry} else []
    if numbers and len(words) == 1:
        raise _wrong(
            variable,
            "has a factor or an offset, but does not say in which unit its numbers are then; add `to`",
        )
    change = _change(variable, [*words, *numbers]) if words or numbers else None
    return [Source(str(one), change) for one in several]


def _wrong(variable: str, what: str) -> ParameterError:
    return ParameterError(f"variable {variable!r} {what}.", code="mapping", argument="variables")
