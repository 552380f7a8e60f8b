"""Kinds of variables: what their values are, and by which columns they stand as causes and as targets of one sum.

continuous    any number                       x positive      above 0                          log x count         0, 1,
2, ...                     log(1 + x) binary        0 or 1                           x ordinal       position of a level,
0 to L-1    x categorical   position of a level, 0 to L-1    indicators of levels 1 to L-1; the first level is the
reference

An empty cell is empty in every column.

A coding says how values become columns, as a short text that travels with a design:

    "count"                    the kind alone, where it has no levels
    "categorical:0,1,1,2"      for each declared level the level that it counts as: levels 1 and 2 are one

Rare levels are put together before anything is learned (`merged_levels`), so a coding has a kind of fewer levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import DataError, ParameterError

KINDS = ("continuous", "positive", "count", "binary", "ordinal", "categorical")
_WITH_LEVELS = ("binary", "ordinal", "categorical")
_TRUTH = {"true": 1.0, "false": 0.0}
_FEWEST_LEVELS = 2
MOST_LEVELS = 50


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
        if not _FEWEST_LEVELS <= len(levels) <= MOST_LEVELS or len(set(levels)) < len(levels):
            raise ParameterError(
                f"levels={list(levels)} must be {_FEWEST_LEVELS} to {MOST_LEVELS} different names for kind {self.name!r}."
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
    def is_by_level(self) -> bool:
        """Whether every level is told by itself: a mean, or the probability of 1, is told of the others."""
        return self.name in ("ordinal", "categorical")

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

    def position_in(self, cell: str) -> float | None:
        """The position of the level that a cell names, NaN if the cell is empty, None if it names no level."""
        text = cell.strip()
        if not text:
            return np.nan
        if text in self.levels:
            return float(self.levels.index(text))
        number = _TRUTH.get(text.lower(), _number(text))
        names = [_number(level) for level in self.levels]
        if number is None:
            return None
        if None in names:
            names = [float(k) for k in range(self.n_levels)]
        return float(names.index(number)) if number in names else None

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


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


CONTINUOUS = Kind()


_LONGEST = 500


@dataclass(frozen=True)
class Coding:
    """A kind by name and, if it has levels, which of them count as one.

    Attributes
    ----------
    name
        Of the kind.
    groups
        For each declared level the position of the level it counts as; empty for kinds without levels.
    """

    name: str
    groups: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        groups = self.groups
        if sorted(set(groups)) != list(range(len(set(groups)))):
            raise ParameterError(f"levels {groups} must be numbered 0, 1, 2, ... without gaps.")
        if self.name == "ordinal" and list(groups) != sorted(groups):
            raise ParameterError(f"levels {groups} of an ordinal variable must keep their order.")
        # Refuses what is no kind.
        _ = self.kind

    @cached_property
    def kind(self) -> Kind:
        """The kind of its columns; levels that count as one are one."""
        return Kind(self.name, tuple(str(k) for k in sorted(set(self.groups))))

    @property
    def text(self) -> str:
        """What travels."""
        return f"{self.name}:{','.join(map(str, self.groups))}" if self.groups else self.name

    @property
    def width(self) -> int:
        """How many columns it has."""
        return self.kind.width

    def values(self, values: FloatArray, variable: str) -> FloatArray:
        """The values (n,) with levels as they count; one that cannot be is refused with the variable's name."""
        declared = Kind(self.name, tuple(map(str, range(len(self.groups)))))
        wrong = declared.misfits(values)
        if len(wrong):
            what = f"a level from 0 to {len(self.groups) - 1}" if self.groups else f"a {self.name} value"
            raise DataError(
                f"variable {variable!r} has the value {wrong[0]:g}, which is not {what}; correct the data, or declare "
                "another kind."
            )
        if not self.groups or self.groups == tuple(range(len(self.groups))):
            return values
        is_empty = np.isnan(values)
        found: FloatArray = np.array(self.groups, dtype=np.float64)[
            np.where(is_empty, 0, values).astype(np.int64)
        ]
        return np.where(is_empty, np.nan, found)

    def encode(self, values: FloatArray, variable: str) -> FloatArray:
        """(n, width) the columns of values (n,)."""
        return self.kind.encode(self.values(values, variable))


def coding_of(kind: Kind) -> Coding:
    """Every level as it is declared."""
    return Coding(kind.name, tuple(range(kind.n_levels)))


def read_coding(text: object) -> Coding:
    """Inverse of `Coding.text`; anything else is refused."""
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise ParameterError(f"kind {str(text)[:60]!r} must be a short text such as 'count'.")
    name, _, levels = text.partition(":")
    try:
        groups = tuple(int(level) for level in levels.split(",")) if levels else ()
    except ValueError:
        raise ParameterError(
            f"kind {text!r} must be a name, or one with levels such as 'categorical:0,1,2'."
        ) from None
    found = Coding(name, groups)
    if found.text != text:
        raise ParameterError(f"kind {text!r} must be written {found.text!r}.")
    return found


def merged_kind(kind: Kind, coding: Coding) -> Kind:
    """The kind whose levels are those that count, each named after all that it stands for: "a, b".

    Recordings still hold positions of the levels as declared; the kind knows which they were.
    """
    if not coding.groups:
        return kind
    names: list[list[str]] = [[] for _ in range(coding.kind.n_levels)]
    for level, group in zip(kind.levels, coding.groups, strict=True):
        names[group].append(level)
    recorded = (
        tuple(zip(kind.levels, coding.groups, strict=True)) if coding.kind.n_levels < kind.n_levels else ()
    )
    return Kind(kind.name, tuple(", ".join(name) for name in names), recorded)


def merged_levels(kind: Kind, counts: Sequence[float], fewest: float) -> Coding:
    """Put rare levels together: those of which fewer than `fewest` rows are known.

    Rare levels of a categorical variable become one; where that is still rare, they count as the most frequent level.
    A rare level of an ordinal variable counts as its rarer neighbour. At least two levels stay.
    """
    n_levels = kind.n_levels
    if kind.name == "ordinal":
        return Coding(kind.name, _merged_neighbours(list(counts), fewest))
    if kind.name != "categorical":
        return coding_of(kind)
    known = np.asarray(counts, dtype=np.float64)
    rare = known < fewest
    if not rare.any():
        return coding_of(kind)
    order = np.argsort(-known, kind="stable")
    rare[order[0]] = False
    # Of the rows of rare levels only whole units are known, so together they may still be few.
    joins_most = known[rare].sum() < fewest
    if joins_most and (~rare).sum() == 1:
        rare[order[1]], joins_most = False, rare.sum() > 1
    if not rare.any():
        return coding_of(kind)
    keeper = int(order[0]) if joins_most else int(np.flatnonzero(rare)[0])
    stands_for = [keeper if rare[k] else k for k in range(n_levels)]
    heads = sorted(set(stands_for))
    return Coding(kind.name, tuple(heads.index(k) for k in stands_for))


def _merged_neighbours(counts: list[float], fewest: float) -> tuple[int, ...]:
    groups = [[k] for k in range(len(counts))]
    while len(groups) > 2 and min(counts) < fewest:
        k = int(np.argmin(counts))
        beside = [b for b in (k - 1, k + 1) if 0 <= b < len(groups)]
        other = min(beside, key=lambda b: counts[b])
        first, second = min(k, other), max(k, other)
        groups[first] += groups.pop(second)
        counts[first] += counts.pop(second)
    return tuple(place for place, group in enumerate(groups) for _ in group)
