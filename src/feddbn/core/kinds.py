"""Kinds of variables: what their values are, and by which columns they stand as causes and as targets of one sum.

continuous    any number                       x
positive      above 0                          log x
count         0, 1, 2, ...                     log(1 + x)
binary        0 or 1                           x
ordinal       position of a level, 0 to L-1    x
categorical   position of a level, 0 to L-1    indicators of levels 1 to L-1; the first level is the reference

An empty cell is empty in every column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError

__all__ = ["CONTINUOUS", "KINDS", "Kind", "encode_columns", "read_kinds"]

KINDS = ("continuous", "positive", "count", "binary", "ordinal", "categorical")
_WITH_LEVELS = ("binary", "ordinal", "categorical")
_FEWEST_LEVELS = 2
_MOST_LEVELS = 50


@dataclass(frozen=True)
class Kind:
    """What the values of one variable are.

    Attributes
    ----------
    name
        One of `KINDS`.
    levels
        Names of the levels of an ordinal (lowest first) or categorical variable; "0" and "1" for a binary one if not said.
        A value in a recording is the position of its level: 0, 1, 2, ...
    recorded
        Where levels were put together: the levels as recordings have them, in their order, each with the position of the
        level that it counts as; empty if recordings have `levels`.
    """

    name: str = "continuous"
    levels: tuple[str, ...] = ()
    recorded: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if self.name not in KINDS:
            raise ParameterError(f"kind {self.name!r} is not known; choose one of {', '.join(KINDS)}.")
        levels = tuple(str(level) for level in self.levels)
        self._check_recorded(levels)
        if self.name not in _WITH_LEVELS:
            if levels:
                raise ParameterError(f"levels={list(levels)} have no meaning for a {self.name} variable.")
            return
        if self.name == "binary":
            levels = levels or ("0", "1")
            if len(levels) != 2:
                raise ParameterError(f"levels={list(levels)} of a binary variable must be two.")
        if not _FEWEST_LEVELS <= len(levels) <= _MOST_LEVELS or len(set(levels)) < len(levels):
            raise ParameterError(
                f"levels={list(levels)} must be {_FEWEST_LEVELS} to {_MOST_LEVELS} different names for kind {self.name!r}."
            )
        object.__setattr__(self, "levels", levels)

    def _check_recorded(self, levels: tuple[str, ...]) -> None:
        recorded = tuple((str(name), int(place)) for name, place in self.recorded)
        names, places = {name for name, _ in recorded}, {place for _, place in recorded}
        if recorded and (len(names) < len(recorded) or places != set(range(len(levels)))):
            raise ParameterError(
                f"recorded={list(recorded)} must name different levels, and each of {len(levels)} levels must stand for one."
            )
        object.__setattr__(self, "recorded", recorded)

    @property
    def as_recorded(self) -> Kind:
        """The kind that recordings have: the same, unless levels were put together."""
        return Kind(self.name, tuple(name for name, _ in self.recorded)) if self.recorded else self

    def counted(self, values: FloatArray) -> FloatArray:
        """Positions of levels from values of recordings; empty cells stay empty."""
        x: FloatArray = np.asarray(values, dtype=np.float64)
        if not self.recorded:
            return x
        places = np.array([place for _, place in self.recorded], dtype=np.float64)
        known = ~np.isnan(x)
        return np.where(known, places[np.where(known, x, 0.0).astype(np.intp)], np.nan)

    def shown(self, values: FloatArray) -> FloatArray:
        """Values of recordings from positions of levels: the first that counts as each."""
        x: FloatArray = np.asarray(values, dtype=np.float64)
        if not self.recorded:
            return x
        places = [place for _, place in self.recorded]
        first = np.array([places.index(k) for k in range(self.n_levels)], dtype=np.float64)
        return np.asarray(first[x.astype(np.intp)])

    def position(self, name: object) -> int | None:
        """Position of a level by its name, also that of one that it stands for; None if there is none."""
        if isinstance(name, str):
            if name in self.levels:
                return self.levels.index(name)
            return dict(self.recorded).get(name)
        return None

    @property
    def n_levels(self) -> int:
        """How many levels it has; 0 if it has none."""
        return len(self.levels)

    @property
    def width(self) -> int:
        """How many columns it stands for."""
        return self.n_levels - 1 if self.name == "categorical" else 1

    def encode(self, values: FloatArray) -> FloatArray:
        """(..., width) the columns of values (...); an empty cell stays empty in all of them."""
        x: FloatArray = np.asarray(values, dtype=np.float64)
        if self.name == "categorical":
            columns: FloatArray = np.where(x[..., None] == np.arange(1, self.n_levels), 1.0, 0.0)
            columns[np.isnan(x)] = np.nan
            return columns
        if self.name == "positive":
            x = np.log(x)
        elif self.name == "count":
            x = np.log1p(x)
        return np.asarray(x[..., None])

    def misfits(self, values: FloatArray) -> FloatArray:
        """The values that such a variable cannot have, in their order; empty cells are none."""
        x = np.asarray(values, dtype=np.float64).ravel()
        x = x[~np.isnan(x)]
        if self.name == "continuous":
            return x[:0]
        if self.name == "positive":
            return x[~(x > 0)]
        most = self.n_levels - 1 if self.levels else np.inf
        return np.asarray(x[~((x >= 0) & (x <= most) & (x == np.floor(x)))])


CONTINUOUS = Kind()


def encode_columns(values: FloatArray, kinds: Sequence[Kind]) -> FloatArray:
    """(n, sum of widths) the columns of consecutive values (n, d), variable after variable."""
    return np.concatenate([kind.encode(values[:, j]) for j, kind in enumerate(kinds)], axis=1)


def read_kinds(kinds: Mapping[str, object] | None, variables: Sequence[str]) -> tuple[Kind, ...]:
    """The kind of each variable, from what a user or a study says; who is not named is continuous.

    ``{"visits": "count", "alarm": "binary", "ward": ["north", "south", "west"], "pain": {"ordinal": ["no", "bad"]}}``:
    a list has the levels of a categorical variable, a number in place of levels means 0, 1, 2, ...
    """
    if kinds is None:
        kinds = {}
    if not isinstance(kinds, Mapping):
        raise ParameterError(
            f"kinds={kinds!r} must name kinds by variable, for example {{'visits': 'count'}}."
        )
    unknown = [name for name in kinds if name not in variables]
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
        levels = tuple(map(str, range(levels)))
    if not isinstance(said, str) or not isinstance(levels, (list, tuple)):
        raise ParameterError(
            f"kinds[{variable!r}]={said!r} must be one of {', '.join(KINDS)}, a list of levels, or {{'ordinal': [levels]}}."
        )
    try:
        return Kind(said, tuple(levels))
    except ParameterError as error:
        raise ParameterError(f"kinds[{variable!r}]: {error}") from None
