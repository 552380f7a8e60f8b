"""Penalised parent selection for one node at a time, on a matrix of second moments.

    minimise over sets P   loss_j(RSS_j(P)) + sum_{m in P} penalty_m

with ``loss_j(RSS) = RSS / s2`` (one noise variance s2 for all nodes) or ``n log RSS`` (every node its own).

Theory of operation: for a node and a set of parents, one small inverse gives the residual sum of squares,
what it would rise by without each parent, and what it would fall by with each further column. These do not
depend on the penalty or on s2, so they are kept and looked up again during the search. Columns are scaled to
unit variance inside; nothing but rounding depends on the units.

Known weakness: forward-backward selection with exchanges is greedy; it can miss a pair of parents that only
help together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feddbn.core.lagged import FloatArray

__all__ = ["NodeFit", "Objective", "ParentRegressions", "select_parents"]

BoolArray = NDArray[np.bool_]
Parents = tuple[int, ...]

_COLLINEAR = 1e-9
_IMPROVEMENT = 1e-9
_CACHE_FLOATS = 25_000_000


@dataclass(frozen=True, slots=True)
class NodeFit:
    """Least squares of one node on one set of columns, in units of the node's total sum of squares.

    Attributes
    ----------
    rss
        Residual sum of squares; 1 without parents.
    gain
        (q,) by how much `rss` falls when a column joins; 0 for the parents, the node and collinear columns.
    loss
        (len(parents),) by how much `rss` rises when a parent leaves.
    """

    rss: float
    gain: FloatArray
    loss: FloatArray


class ParentRegressions:
    """Least-squares fits of the first d columns of z on any of its q columns, computed once each.

    Parameters
    ----------
    scatter
        (q, q) sums of squares and products about the mean.
    n
        Number of rows.
    d
        Number of nodes: columns 0..d-1 are the present moment.
    """

    def __init__(self, scatter: FloatArray, n: float, d: int) -> None:
        diagonal = np.diag(scatter).copy()
        scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        self.n = float(n)
        self.d = d
        self.q = len(scatter)
        self.total: FloatArray = diagonal[:d]
        self.correlation: FloatArray = scatter / np.outer(scale, scale)
        self._usable = diagonal > 0
        self._cache: dict[tuple[int, Parents], NodeFit] = {}
        self._max_entries = max(1000, _CACHE_FLOATS // self.q)

    @property
    def max_parents(self) -> int:
        """At most this many parents leave a residual to speak of: half of the rows' degrees of freedom."""
        return max(0, min(self.q - 1, int((self.n - 1) // 2)))

    def fit(self, node: int, parents: Parents) -> NodeFit:
        """Return the fit of `node` on `parents` (ascending)."""
        key = (node, parents)
        found = self._cache.get(key)
        if found is None:
            if len(self._cache) >= self._max_entries:
                self._cache.clear()
            found = self._cache[key] = self._compute(node, parents)
        return found

    def _compute(self, node: int, parents: Parents) -> NodeFit:
        R = self.correlation
        covariance = R[node].copy()
        variance = self._usable.astype(np.float64)
        loss = np.empty(0)
        rss = float(variance[node])
        if parents:
            index = np.array(parents)
            columns = R[index]
            inverse = np.linalg.inv(columns[:, index])
            beta = inverse @ covariance[index]
            projected = inverse @ columns
            rss = max(rss - float(covariance[index] @ beta), 1e-12)
            loss = beta * beta / np.diag(inverse)
            variance -= np.einsum("ij,ij->j", columns, projected)
            covariance -= beta @ columns
            variance[index] = 0.0
        variance[node] = 0.0
        joins = variance > _COLLINEAR
        gain = np.zeros(self.q)
        np.divide(covariance * covariance, variance, out=gain, where=joins)
        np.minimum(gain, rss * (1 - 1e-12), out=gain)
        return NodeFit(rss, gain, loss)

    def coefficients(self, node: int, parents: Iterable[int], scatter: FloatArray) -> FloatArray:
        """(q,) least-squares weights of `node` on `parents` in the units of `scatter`, zero elsewhere."""
        index = np.array(sorted(parents), dtype=int)
        weights = np.zeros(self.q)
        if len(index):
            beta = np.linalg.solve(self.correlation[np.ix_(index, index)], self.correlation[index, node])
            diagonal = np.diag(scatter)
            weights[index] = beta * np.sqrt(diagonal[node] / diagonal[index])
        return weights


@dataclass(frozen=True)
class Objective:
    """What one node's fit costs.

    Attributes
    ----------
    n
        Number of rows.
    penalty
        (q,) price of each column as a parent.
    total
        (d,) total sums of squares of the nodes.
    noise_variance
        The common noise variance, or None if every node has its own.
    """

    n: float
    penalty: FloatArray
    total: FloatArray
    noise_variance: float | None

    def data_term(self, node: int, rss: float) -> float:
        """loss_j of a residual sum of squares given in units of the node's total."""
        if self.noise_variance is None:
            return self.n * math.log(rss * self.total[node])
        return float(rss * self.total[node]) / self.noise_variance

    def add_deltas(self, node: int, fit: NodeFit) -> FloatArray:
        """(q,) change of the cost when each column joins."""
        if self.noise_variance is None:
            return np.asarray(self.n * np.log1p(-fit.gain / fit.rss) + self.penalty)
        return np.asarray(self.penalty - fit.gain * (self.total[node] / self.noise_variance))

    def add_delta(self, node: int, fit: NodeFit, column: int) -> float:
        """Change of the cost when one column joins."""
        gain = fit.gain[column]
        if self.noise_variance is None:
            return float(self.n * math.log1p(-gain / fit.rss) + self.penalty[column])
        return float(self.penalty[column] - gain * (self.total[node] / self.noise_variance))

    def drop_deltas(self, node: int, fit: NodeFit, parents: Parents) -> FloatArray:
        """(len(parents),) change of the cost when each parent leaves."""
        price = self.penalty[list(parents)]
        if self.noise_variance is None:
            return np.asarray(self.n * np.log1p(fit.loss / fit.rss) - price)
        return np.asarray(fit.loss * (self.total[node] / self.noise_variance) - price)

    def cost(self, node: int, fit: NodeFit, parents: Parents) -> float:
        """Data term plus the price of the parents."""
        return self.data_term(node, fit.rss) + float(self.penalty[list(parents)].sum())


def select_parents(
    regressions: ParentRegressions,
    objective: Objective,
    node: int,
    start: Parents,
    candidates: BoolArray,
    required: Parents = (),
    exchange: bool = False,
) -> tuple[Parents, float]:
    """Return a set of parents that no single addition, removal (or exchange) improves, and its cost.

    Parameters
    ----------
    start
        Where the search begins; columns that are neither candidates nor required leave first.
    candidates
        (q,) which columns may be parents.
    required
        Columns that always stay.
    exchange
        Also try to replace one parent by another.
    """
    parents = tuple(sorted({m for m in start if candidates[m]} | set(required)))
    fixed = set(required)
    while True:
        fit = regressions.fit(node, parents)
        best, move = -_IMPROVEMENT, -1
        if len(parents) < regressions.max_parents:
            deltas = np.where(candidates & (fit.gain > 0), objective.add_deltas(node, fit), np.inf)
            addition = int(np.argmin(deltas))
            if deltas[addition] < best:
                best, move = float(deltas[addition]), addition
        if len(parents) > len(fixed):
            for m, delta in zip(parents, objective.drop_deltas(node, fit, parents).tolist(), strict=True):
                if delta < best and m not in fixed:
                    best, move = delta, m
        if move >= 0:
            parents = _toggled(parents, move)
            continue
        if exchange:
            better = _exchanged(regressions, objective, node, parents, fit, candidates, fixed)
            if better is not None:
                parents = better
                continue
        return parents, objective.cost(node, fit, parents)


def _exchanged(
    regressions: ParentRegressions,
    objective: Objective,
    node: int,
    parents: Parents,
    fit: NodeFit,
    candidates: BoolArray,
    fixed: set[int],
) -> Parents | None:
    now = objective.cost(node, fit, parents)
    best, found = -1e-7, None
    for m in parents:
        if m in fixed:
            continue
        rest = tuple(k for k in parents if k != m)
        without = regressions.fit(node, rest)
        deltas = np.where(candidates & (without.gain > 0), objective.add_deltas(node, without), np.inf)
        deltas[m] = np.inf
        k = int(np.argmin(deltas))
        change = objective.cost(node, without, rest) + float(deltas[k]) - now
        if change < best:
            best, found = change, tuple(sorted((*rest, k)))
    return found


def _toggled(parents: Parents, column: int) -> Parents:
    if column in parents:
        return tuple(m for m in parents if m != column)
    return tuple(sorted((*parents, column)))
