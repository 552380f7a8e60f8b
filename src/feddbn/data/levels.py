"""Cells of variables whose kinds are declared -> numbers: positions of levels, 1 and 0 for True and False.

A cell is looked for among the names of the levels first. Where these are no numbers, whole numbers are positions: 0 is the
first level. An empty cell stays empty, and what is neither is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind, read_kinds
from feddbn.errors import DataError

__all__ = ["declared_kinds", "level_values", "positions", "refuse_misfits", "with_levels"]

_TRUTH = {"true": 1.0, "false": 0.0}
_VALUES = {"positive": "above 0", "count": "0, 1, 2 and so on"}


def declared_kinds(kinds: Mapping[str, object] | None) -> dict[str, Kind]:
    """Kinds by variable from what a user says; whether there are such variables is not known yet."""
    names = tuple(kinds) if isinstance(kinds, Mapping) else ()
    return dict(zip(names, read_kinds(kinds, names), strict=True))


def with_levels(kinds: Mapping[str, Kind]) -> dict[str, Kind]:
    """Those of them whose cells are levels."""
    return {name: kind for name, kind in kinds.items() if kind.levels}


def level_values(column: pd.Series, kind: Kind, where: str) -> FloatArray:
    """(n,) positions of the levels in a column, NaN where a cell is empty; a cell that is no level is refused."""
    found, strange = positions(column, kind)
    if strange is not None:
        levels = ", ".join(map(repr, kind.levels))
        raise DataError(
            f"{where} has {strange!r} in column {column.name!r}, which is none of its levels {levels}; correct such cells, "
            f"or declare the level in kinds=."
        )
    return found


def positions(column: pd.Series, kind: Kind) -> tuple[FloatArray, str | None]:
    """(n,) positions of levels, NaN where a cell is empty or no level; and the first cell that is none, or None."""
    codes, cells = pd.factorize(column)
    places = np.full(len(cells) + 1, np.nan)
    strange: str | None = None
    for k, cell in enumerate(cells):
        place = _position(cell, kind)
        if place is not None:
            places[k] = place
        elif strange is None:
            strange = str(cell)
    # Empty cells have the code -1, which is the last place.
    return places[codes], strange


def _position(cell: Any, kind: Kind) -> float | None:
    """The position of the level in a cell, NaN if it is empty, None if it has no level."""
    text = str(cell).strip()
    if not text:
        return np.nan
    if text in kind.levels:
        return float(kind.levels.index(text))
    number = _TRUTH.get(text.lower(), _number(text))
    names = [_number(level) for level in kind.levels]
    if number is None:
        return None
    if None in names:
        names = [float(k) for k in range(kind.n_levels)]
    return float(names.index(number)) if number in names else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def refuse_misfits(column: FloatArray, name: str, kind: Kind, where: str) -> None:
    """Refuse a value that such a variable cannot have."""
    wrong = kind.misfits(column)
    if len(wrong):
        raise DataError(
            f"{where} has {wrong[0]:g} in column {name!r}, but a variable of kind {kind.name} is "
            f"{_VALUES.get(kind.name, 'one of its levels')}; correct such cells, or declare another kind in kinds=."
        )
