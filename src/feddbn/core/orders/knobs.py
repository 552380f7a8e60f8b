"""Variables that somebody sets at random: settings, doses, schedules. They act on others, and nothing acts on them.

Theory of operation. A variable that a random choice has set is *calm*: nothing in the past tells about it. Several such are
independent of each other, in their squares, too. Whatever they act on without delay is calm as well if it has no memory of
its own, but depends on them. So of the graph of dependences among calm variables the set ones are a largest independent set;
a variable that is in *every* largest one cannot be exchanged for one that it acts on. At least three are needed, so that
independence is more than an accident.

One that could be exchanged is not named, but some edges into it can be ruled out. Where a setting b goes along with c and not
with a, c does not act on a: through c, b would go along with a, too, and by how much is known from both correlations.

A calm variable may be what a variable with memory acts on, if the memory is too short to show through. So one that goes along
with such a variable, and would not show its memory for sure, is not taken for a setting.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.statistics.moments import Moments, correlations

FEWEST = 3
"""Settings that must be there."""
_LEVEL = 0.05
_SMALL = 0.1
"""A correlation that has to show if there is one: with few rows everything is calm."""
_NEAR, _SURE = 3.0, 2.0
_MOST_STEPS = 20_000


@dataclass(frozen=True)
class Knobs:
    """What is known of variables that somebody sets.

    Attributes
    ----------
    named
        Those that are settings for sure, ascending: nothing acts on them.
    ruled_out
        (d, d) further edges within a row, [from, to], that cannot be.
    """

    named: tuple[int, ...]
    ruled_out: BoolArray

    def limits(self, constraints: EdgeConstraints) -> EdgeConstraints:
        """The constraints, narrowed by what is known."""
        allowed = constraints.without_causes_of(self.named).allowed.copy()
        allowed[: constraints.d] &= ~self.ruled_out
        return EdgeConstraints(allowed | constraints.required, constraints.required)


def critical(n_tests: int) -> float:
    """The size of a normal variable that is passed by chance in one of so many with a probability of .05 (Bonferroni)."""
    return float(norm.isf(_LEVEL / 2 / max(n_tests, 1)))


def calm_variables(moments: Moments, d: int) -> list[int]:
    """The variables that do not go along with anything before their row, by moments of lagged rows that count as evidence."""
    root, least = np.sqrt(moments.n), critical(d * (moments.q - d))
    if moments.q == d or least > _SMALL * root:
        return []
    z = root * np.abs(correlations(moments.scatter)[0])
    return [int(j) for j in np.flatnonzero(z[:d, d:].max(axis=1) < least)]


def knobs_among(calm: Collection[int], lagged: Moments, squares: Moments, d: int) -> Knobs | None:
    """What is known of the calm variables that are settings; None where they are fewer than three, or cannot be told.

    Parameters
    ----------
    calm
        From `calm_variables`.
    lagged
        Moments of lagged rows.
    squares
        Moments of the variables of a row and then of their squares, counted as evidence.
    """
    candidates = [j for j in sorted(calm) if not _would_hide(j, lagged, d)]
    if len(candidates) <= FEWEST:
        return None
    root = float(np.sqrt(squares.n))
    z = root * np.abs(correlations(squares.scatter)[0])
    both = np.maximum.reduce([z[:d, :d], z[:d, d:], z[d:, :d], z[d:, d:]])
    least = critical(2 * len(candidates) * (len(candidates) - 1))
    near = {i: {j for j in candidates if j != i and both[i, j] > least} for i in candidates}
    # Who goes along with nobody may be anything.
    nodes = {i for i in near if near[i]}
    budget = [_MOST_STEPS]
    size = _largest(near, nodes, budget)
    found = [i for i in sorted(nodes) if _largest(near, nodes - {i}, budget) < size]
    possible = [i for i in sorted(nodes) if 1 + _largest(near, nodes - near[i] - {i}, budget) == size]
    if size < FEWEST or budget[0] <= 0:
        return None
    ruled_out = _ruled_out(possible, near, z[:d, :d], root, least)
    return Knobs(tuple(found) if len(found) >= FEWEST else (), ruled_out)


def _ruled_out(
    possible: list[int], near: Mapping[int, set[int]], z: FloatArray, root: float, least: float
) -> BoolArray:
    """(d, d) the edges c -> a into a possible setting that another one speaks against; none if it is so both ways."""
    out = np.zeros(z.shape, dtype=bool)
    for a in possible:
        for c in near[a]:
            others = [b for b in possible if b in near[c] and b not in near[a]]
            out[c, a] = any(z[b, c] * z[c, a] / root > least + _SURE for b in others)
    return np.asarray(out & ~out.T)


def _would_hide(j: int, lagged: Moments, d: int) -> bool:
    """Whether this could be an effect of a variable with memory without showing that memory."""
    R = correlations(lagged.scatter)[0]
    least, root = critical(d * (lagged.q - d)), float(np.sqrt(lagged.n))
    for k in range(d):
        memory = float(np.abs(R[k, d:]).max())
        if k == j or root * memory < least or root * abs(R[j, k]) <= _NEAR:
            continue
        if root * abs(float(R[j, k])) * memory < least + _SURE:
            return True
    return False


def _largest(near: Mapping[int, set[int]], nodes: set[int], budget: list[int]) -> int:
    """The size of a largest set of nodes without neighbours among them; `budget` counts steps down."""
    if not nodes or budget[0] <= 0:
        return 0
    budget[0] -= 1
    degree = {i: len(near[i] & nodes) for i in nodes}
    least = min(sorted(nodes), key=lambda i: degree[i])
    if degree[least] <= 1:
        return 1 + _largest(near, nodes - near[least] - {least}, budget)
    most = max(sorted(nodes), key=lambda i: degree[i])
    return max(
        1 + _largest(near, nodes - near[most] - {most}, budget), _largest(near, nodes - {most}, budget)
    )
