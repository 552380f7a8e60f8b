"""How the values of a variable of some kind become columns, as a short text that travels with a design.

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
from feddbn.core.kinds import Kind
from feddbn.errors import DataError, ParameterError

__all__ = ["Coding", "coding_of", "merged_kind", "merged_levels", "read_coding"]

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
