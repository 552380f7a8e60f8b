"""What a node's regression on a set of parents leaves, and what that costs, on a matrix of second moments.

    cost_j(P) = loss_j(RSS_j(P)) + sum_{m in P} penalty_m

with ``loss_j(RSS) = RSS / s2`` (one noise variance s2 for all nodes) or ``n log RSS`` (every node its own).

Theory of operation: for a node and a set of parents, one small triangular inverse gives the residual sum of squares,
what it would rise by without each parent, and what it would fall by with each further column. These do not
depend on the penalty or on s2, so they are kept and looked up again during the search. Columns are scaled to
unit variance inside; nothing but rounding depends on the units. A parent that follows from those before it adds
nothing: what algebra on a singular matrix would promise is rounding.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from feddbn.core.arrays import FloatArray, IntArray
from feddbn.core.statistics.dependence import COLLINEAR, independent
from feddbn.core.statistics.scaling import correlations

__all__ = ["NO_RESIDUAL", "NodeFit", "Objective", "ParentRegressions", "Parents", "inverse_factor"]

Parents = tuple[int, ...]

NO_RESIDUAL = 1e-12
"""Smallest residual sum of squares in units of the total; what is below is rounding."""
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
        By how much `rss` rises when each parent leaves.
    columns
        The columns that `gain` is of; None: all.
    """

    rss: float
    gain: FloatArray
    loss: tuple[float, ...]
    columns: IntArray | None = None

    def gains(self, q: int) -> FloatArray:
        """(q,) the gains of all columns; 0 for those that were not looked at."""
        if self.columns is None:
            return self.gain
        every = np.zeros(q)
        every[self.columns] = self.gain
        return every


def inverse_factor(within: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Return the inverse of the Cholesky factor of parents' correlations, and their variances' inflation; None: collinear."""
    # Python's overhead per call is most of the cost of a fit: LAPACK is called without wrappers.
    factor, failed = dpotrf(within, lower=1, clean=1)
    if failed:
        return None
    inverse, _ = dtrtri(factor, lower=1)
    inflation = (inverse * inverse).sum(axis=0)
    return None if inflation.max() > 1 / COLLINEAR else (inverse, inflation)


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

    is_screened: ClassVar[bool] = False
    """Whether a node looks at some columns only, its `column_set`."""

    def __init__(self, scatter: FloatArray, n: float, d: int) -> None:
        diagonal = np.diag(scatter).copy()
        self.n = float(n)
        self.d = d
        self.q = len(scatter)
        self.column_total: FloatArray = diagonal
        self.correlation: FloatArray = correlations(scatter)[0]
        self._usable = (diagonal > 0).astype(np.float64)
        self._cache: dict[tuple[int, Parents], NodeFit] = {}
        self._max_entries = max(1000, _CACHE_FLOATS // self.q)

    def scaled(self, factors: FloatArray) -> ParentRegressions:
        """The same after the first d columns, now and at every lag, are divided by `factors` (d,).

        Fits are in units of a node's total, so both share what is known.
        """
        other = copy.copy(self)
        other.column_total = self.column_total / np.tile(factors**2, self.q // self.d)
        return other

    @property
    def total(self) -> FloatArray:
        """(d,) sums of squares of the nodes."""
        return self.column_total[: self.d]

    @property
    def n_edges(self) -> int:
        """Possible causes of a node: rows of the stack ``[W; A_1; ...]``."""
        return self.q

    def column_set(self, node: int) -> int:
        """The columns that are looked at for a node, as a set (`core.orders.parent_sets.Columns`)."""
        return (1 << self.q) - 1

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
        variance = self._usable.copy()
        loss: tuple[float, ...] = ()
        rss = float(variance[node])
        if parents:
            index = np.array(parents)
            columns = R[index]
            solved = inverse_factor(columns[:, index])
            if solved is None:
                return self._without_dependent(node, parents)
            inverse, inflation = solved
            orthogonal = inverse @ columns
            along = orthogonal[:, node]
            beta = along @ inverse
            rss = max(rss - float(along @ along), NO_RESIDUAL)
            loss = tuple((beta * beta / inflation).tolist())
            covariance -= along @ orthogonal
            orthogonal *= orthogonal
            variance -= orthogonal.sum(axis=0)
            variance[index] = 0.0
        variance[node] = 0.0
        covariance *= covariance
        gain = np.zeros(self.q)
        np.divide(covariance, variance, out=gain, where=variance > COLLINEAR)
        np.minimum(gain, max(rss - NO_RESIDUAL, 0.0), out=gain)
        return NodeFit(rss, gain, loss)

    def _without_dependent(self, node: int, parents: Parents) -> NodeFit:
        """The fit on those parents that do not follow from the ones before; without the others nothing is lost."""
        index = np.array(parents)
        kept = [parents[k] for k in independent(self.correlation[np.ix_(index, index)])]
        if len(kept) == len(parents):
            # Independent one by one, yet too close to dependent together: the last one adds the least.
            kept.pop()
        fit = self.fit(node, tuple(kept))
        lost = dict(zip(kept, fit.loss, strict=True))
        gain = fit.gain.copy()
        gain[index if fit.columns is None else np.searchsorted(fit.columns, index)] = 0.0
        return NodeFit(fit.rss, gain, tuple(lost.get(m, 0.0) for m in parents), fit.columns)


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
        """Change of the cost when each column joins: all q, or those of the fit."""
        penalty = self.penalty if fit.columns is None else self.penalty[fit.columns]
        if self.noise_variance is None:
            return np.asarray(self.n * np.log1p(fit.gain * (-1 / fit.rss)) + penalty)
        return np.asarray(penalty - fit.gain * (self.total[node] / self.noise_variance))

    def drop_deltas(self, node: int, fit: NodeFit, parents: Parents) -> list[float]:
        """Change of the cost when each parent leaves."""
        prices = self.prices(parents)
        if self.noise_variance is None:
            return [
                self.n * math.log1p(loss / fit.rss) - price
                for loss, price in zip(fit.loss, prices, strict=True)
            ]
        scale = float(self.total[node]) / self.noise_variance
        return [scale * loss - price for loss, price in zip(fit.loss, prices, strict=True)]

    def prices(self, parents: Parents) -> list[float]:
        """The price of each parent."""
        price = self._price
        return [price[m] for m in parents]

    @cached_property
    def _price(self) -> list[float]:
        """`penalty` as numbers that are read one by one."""
        return [float(one) for one in self.penalty.tolist()]

    def cost(self, node: int, fit: NodeFit, parents: Parents) -> float:
        """Data term plus the price of the parents."""
        return self.data_term(node, fit.rss) + sum(self.prices(parents))
