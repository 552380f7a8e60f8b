"""Kinds of variables as people say them, and values that a kind cannot have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import CONTINUOUS, KINDS, MOST_LEVELS, Kind
from feddbn.errors import DataError, Given, ParameterError

__all__ = ["read_kinds", "refuse_misfits"]

_VALUES = {"positive": "above 0", "count": "0, 1, 2 and so on"}


def read_kinds(kinds: Mapping[str, object] | None, variables: Sequence[str]) -> tuple[Kind, ...]:
    """The kind of each variable, from what a user or a study says; who is not named is continuous.

    ``{"visits": "count", "alarm": "binary", "ward": ["north", "south", "west"], "pain": {"ordinal": ["no", "bad"]}}``:
    a list has the levels of a categorical variable, a number in place of levels means 0, 1, 2, ...
    """
    if kinds is None:
        kinds = {}
    if not isinstance(kinds, Mapping):
        raise ParameterError(
            f"{Given('kinds', kinds)} must name kinds by variable, for example {{'visits': 'count'}}."
        )
    known = frozenset(variables)
    unknown = [name for name in kinds if name not in known]
    if unknown:
        raise ParameterError(f"kinds names {unknown[0]!r}, but the variables are {', '.join(variables)}.")
    return tuple(_read_kind(name, kinds[name]) if name in kinds else CONTINUOUS for name in variables)


def _read_kind(variable: str, said: object) -> Kind:
    levels: object = ()
    if isinstance(said, Kind):
        return said
    if isinstance(said, Mapping) and len(said) == 1:
        ((said, levels),) = said.items()
    elif isinstance(said, (list, tuple)):
        said, levels = "categorical", said
    if isinstance(levels, int) and not isinstance(levels, bool):
        levels = tuple(map(str, range(min(levels, MOST_LEVELS + 1))))
    if not isinstance(said, str) or not isinstance(levels, (list, tuple)):
        raise ParameterError(
            f"kinds[{variable!r}]={said!r} must be one of {', '.join(KINDS)}, a list of levels, or {{'ordinal': [levels]}}."
        )
    try:
        return Kind(said, tuple(levels))
    except ParameterError as error:
        raise ParameterError(f"kinds[{variable!r}]: {error}") from None


def refuse_misfits(column: FloatArray, name: str, kind: Kind, where: str) -> None:
    """Refuse a value that such a variable cannot have."""
    wrong = kind.misfits(column)
    if len(wrong):
        raise DataError(
            f"{where} has {wrong[0]:g} in column {name!r}, but a variable of kind {kind.name} is "
            f"{_VALUES.get(kind.name, 'one of its levels')}; correct such cells, or declare another kind in {Given('kinds')}."
        )
