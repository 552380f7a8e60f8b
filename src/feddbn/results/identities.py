"""Variables that are nearly computed from others of the same row: weighted means, sums and differences, copies.

A strong effect explains as much as arithmetic does. What tells arithmetic is that its weights are those of a formula (one;
all plus or minus one; positive, and together one, of columns that vary alike), that nothing else adds to it, neither other
variables nor what was before, and, where the values are far from zero, that levels follow the same formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.moments import Moments, correlations, independent
from feddbn.findings import Finding

OF_MEAN, OF_SUM, OF_COPY, OF_MULTIPLE = 0.9, 0.95, 0.99, 0.9999
"""R^2 from which on a weighted mean, a sum or difference, a copy, and a multiple by any factor are taken for one."""
TOLERANCE = 0.06
"""How far weights may be from those of a formula."""
_LOOSE = 0.8, 0.1
"""R^2 and tolerance where levels, which are this many standard deviations from zero, follow the formula, too."""
_FAR_FROM_ZERO = 2.0
_MOST_ADDED = 0.3
"""Share of what a formula leaves that all other columns may explain."""
_LEAST_PART = 0.3
"""Share of what the others leave that each member must explain."""
_MOST_UNLIKE = 2.0
"""Ratio of the standard deviations of what is averaged."""
_CANDIDATES, _MOST_MEMBERS = 6, 3
_FEWEST_ROWS = 50


@dataclass(frozen=True)
class Identity:
    """A variable that is nearly a formula of others, with its fitted weights in the units of the data and R^2."""

    column: int
    others: tuple[int, ...]
    weights: tuple[float, ...]
    explained: float

    @property
    def members(self) -> tuple[int, ...]:
        """The variable and those it follows from."""
        return self.column, *self.others

    def finding(self, variables: Sequence[str]) -> Finding:
        """Say so."""
        name, others = variables[self.column], [variables[j] for j in self.others]
        formula = " + ".join(f"{w:.3g} {_quoted(x)}" for w, x in zip(self.weights, others, strict=True))
        values = {"others": others, "weights": list(self.weights), "explained": self.explained}
        cure = {"prepare.definitions": {name: formula.replace("+ -", "- ")}}
        return Finding("near-identity", "warning", values, (name, *others), cure)


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"


def near_identities(moments: Moments, d: int, inputs: Sequence[int] = ()) -> list[Identity]:
    """The variables (the first d columns, no inputs) that are nearly formulas of others; no member is in two of them."""
    R, root = correlations(moments.scatter)
    kept = independent(R)
    now = [j for j in kept if j < d]
    n = moments.n - len(kept)
    if n < _FEWEST_ROWS or len(now) < 2:
        return []
    left_by_all = dict(zip(kept, 1.0 / np.diag(np.linalg.inv(R[np.ix_(kept, kept)])), strict=True))
    P = np.linalg.inv(R[np.ix_(now, now)])
    found = []
    for k, j in enumerate(now):
        if j in inputs or 1.0 / P[k, k] > 1.0 - _LOOSE[0]:
            continue
        # What a member adds to all others of the row, largest first.
        adds = np.delete(P[k] ** 2 / np.diag(P), k)
        near = np.delete(now, k)[np.argsort(-adds, kind="stable")[:_CANDIDATES]].tolist()
        for size in range(1, _MOST_MEMBERS + 1):
            for others in combinations(sorted(near), size):
                one = _fitted(R, root, moments, j, others, left_by_all[j])
                found += [] if one is None else [one]
    chosen: list[Identity] = []
    for one in sorted(found, key=lambda one: (-one.explained, len(one.others), one.column)):
        if not any(set(one.members) & set(other.members) for other in chosen):
            chosen.append(one)
    return sorted(chosen, key=lambda one: one.column)


def _fitted(
    R: FloatArray, root: FloatArray, moments: Moments, column: int, others: tuple[int, ...], least: float
) -> Identity | None:
    """The variable as a formula of others; None if it is none."""
    which = list(others)
    inverse = np.linalg.inv(R[np.ix_(which, which)])
    beta = inverse @ R[which, column]
    left = 1.0 - float(beta @ R[which, column])
    parts = beta**2 / np.diag(inverse)
    if left > 1.0 - _LOOSE[0] or least < (1.0 - _MOST_ADDED) * left:
        return None
    if (parts < _LEAST_PART * (parts + left)).any():
        return None
    weights = beta * root[column] / root[which]
    sd, level = root[column] / np.sqrt(moments.n), float(moments.mean[column])
    by_levels = float(weights @ moments.mean[which])
    least_explained, tolerance = 0.0, TOLERANCE
    if abs(level) > _FAR_FROM_ZERO * sd and abs(level - by_levels) < _LOOSE[1] * abs(level):
        least_explained, tolerance = _LOOSE
    are_ones = bool((np.abs(np.abs(weights) - 1.0) < tolerance).all() and (weights > 0).any())
    spreads = root[[column, *which]]
    is_mean = bool((weights > 0).all()) and abs(float(weights.sum()) - 1.0) < tolerance
    is_mean = is_mean and len(which) > 1 and float(spreads.max() / spreads.min()) < _MOST_UNLIKE
    kinds = {
        OF_MEAN: is_mean,
        OF_SUM: are_ones and len(which) > 1,
        OF_COPY: are_ones,
        OF_MULTIPLE: len(which) == 1,
    }
    needed = min((limit for limit, is_one in kinds.items() if is_one), default=np.inf)
    if needed < OF_MULTIPLE:
        needed = least_explained or needed
    if 1.0 - left < needed:
        return None
    return Identity(column, others, tuple(weights.tolist()), 1.0 - left)
