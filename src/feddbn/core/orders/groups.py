"""Regressions of nodes that have several columns on variables that have several columns.

A node with columns Y costs  n log det (Y'Y - Y'X (X'X)^-1 X'Y)  given the columns X of its parents: the score of a Gaussian
with a free covariance (Andrews, Ramsey, Cooper 2019 use it for indicators of levels). One column is the usual ``n log RSS``.
What `NodeFit` calls `rss` is the determinant in units of that without parents, so that searches over orders run as ever:
a possible parent is a variable at a lag, whatever its number of columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from feddbn.core.arrays import FloatArray, IntArray
from feddbn.core.orders.parents import NodeFit, Objective, ParentRegressions, Parents
from feddbn.core.statistics.dependence import COLLINEAR, independent

__all__ = ["GroupObjective", "GroupRegressions", "group_subset_fits"]

_NO_RESIDUAL = 1e-12


class GroupRegressions(ParentRegressions):
    """Fits of variables within the moment on variables at any lag, computed once each.

    Parameters
    ----------
    scatter
        Sums of squares and products of all columns about their means.
    n
        Number of rows.
    d
        Number of variables.
    columns
        The columns of each variable at each lag: all variables within the moment, then at lag 1, ...
    """

    def __init__(self, scatter: FloatArray, n: float, d: int, columns: Sequence[Sequence[int]]) -> None:
        super().__init__(scatter, n, d)
        self.columns = tuple(tuple(group) for group in columns)
        self.widths = np.array([len(group) for group in self.columns])
        self.q = len(self.columns)
        # In these units n log(total / n) is 0, and a score is the sum of log determinants relative to no parents.
        self.column_total = np.full(self.q, self.n)
        varies = np.diag(scatter) > 0
        self._blocked = np.array([not varies[list(group)].all() for group in self.columns])
        self._alike: list[tuple[IntArray, IntArray]] = []
        for width in np.unique(self.widths).tolist():
            alike = np.flatnonzero(self.widths == width)
            self._alike.append((alike, np.array([self.columns[m] for m in alike])))
        self._own = [np.array(self.columns[j]) for j in range(d)]
        self._log_total = [_log_det(self.correlation[np.ix_(own, own)]) for own in self._own]

    @property
    def max_parents(self) -> int:
        """At most this many parents leave a residual to speak of: half of the rows' degrees of freedom."""
        return max(0, min(self.q - 1, int((self.n - 1) // (2 * int(self.widths.max())))))

    def _compute(self, node: int, parents: Parents) -> NodeFit:
        own, left = self._own[node], self.correlation
        if self._blocked[node]:
            return NodeFit(1.0, np.zeros(self.q), (0.0,) * len(parents))
        loss: tuple[float, ...] = ()
        if parents:
            index = np.array([c for m in parents for c in self.columns[m]])
            factor, failed = dpotrf(left[np.ix_(index, index)], lower=1, clean=1)
            inverse = np.zeros((0, 0)) if failed else dtrtri(factor, lower=1)[0]
            if failed or (inverse * inverse).sum(axis=0).max() > 1 / COLLINEAR:
                return self._without_dependent(node, parents)
            along = inverse @ self.correlation[index]
            left = self.correlation - along.T @ along
            loss = self._losses(node, parents, inverse, along[:, own], left[np.ix_(own, own)])
        rest = left[np.ix_(own, own)]
        rss = max(float(np.exp(_log_det(rest) - self._log_total[node])), _NO_RESIDUAL)
        gain = self._gains(own, left, rss)
        gain[node] = 0.0
        gain[list(parents)] = 0.0
        gain[self._blocked] = 0.0
        np.clip(gain, 0.0, max(rss - _NO_RESIDUAL, 0.0), out=gain)
        return NodeFit(rss, gain, loss)

    def _gains(self, own: IntArray, left: FloatArray, rss: float) -> FloatArray:
        """By how much the determinant falls when each variable joins: all of one width at once."""
        gain, w = np.zeros(self.q), len(own)
        for alike, groups in self._alike:
            both = np.concatenate([np.broadcast_to(own, (len(alike), w)), groups], axis=1)
            joint = left[both[:, :, None], both[:, None, :]]
            alone = joint[:, w:, w:]
            variance = np.diagonal(alone, axis1=1, axis2=2)
            is_new = np.asarray((variance > COLLINEAR).all(axis=1))
            if w == groups.shape[1] == 1:
                share = joint[:, 0, 1] ** 2 / np.maximum(joint[:, 0, 0] * joint[:, 1, 1], 1e-300)
            else:
                safe = np.where(is_new[:, None, None], joint, np.eye(joint.shape[1]))
                dets = (_log_det(safe), _log_det(safe[:, :w, :w]), _log_det(safe[:, w:, w:]))
                is_new &= dets[2] > np.log(COLLINEAR) * groups.shape[1]
                share = -np.expm1(np.clip(dets[0] - dets[1] - dets[2], -700.0, 0.0))
            gain[alike] = np.where(is_new, rss * share, 0.0)
        return gain

    def _losses(
        self, node: int, parents: Parents, inverse: FloatArray, own: FloatArray, rest: FloatArray
    ) -> tuple[float, ...]:
        """By how much the determinant rises when each parent leaves.

        With K = (X'X)^-1 and B = K X'Y, leaving out the columns S adds ``B_S' (K_SS)^-1 B_S`` to the residual products.
        """
        B, now = inverse.T @ own, _log_det(rest)
        found, start = [], 0
        for m in parents:
            stop = start + len(self.columns[m])
            part = inverse[:, start:stop]
            more = B[start:stop].T @ np.linalg.solve(part.T @ part, B[start:stop])
            rise = np.expm1(max(float(_log_det(rest + more) - now), 0.0))
            found.append(float(np.exp(now - self._log_total[node]) * rise))
            start = stop
        return tuple(found)

    def _without_dependent(self, node: int, parents: Parents) -> NodeFit:
        """The fit without the parents that follow from the ones before; without these nothing is lost."""
        kept: list[int] = []
        for m in parents:
            index = np.array([c for k in (*kept, m) for c in self.columns[k]])
            if len(independent(self.correlation[np.ix_(index, index)])) == len(index):
                kept.append(m)
        if len(kept) == len(parents):
            kept.pop()
        fit = self.fit(node, tuple(kept))
        lost = dict(zip(kept, fit.loss, strict=True))
        gain = fit.gain.copy()
        gain[list(parents)] = 0.0
        return NodeFit(fit.rss, gain, tuple(lost.get(m, 0.0) for m in parents))


def _log_det(matrices: FloatArray) -> FloatArray:
    """Log determinants; what is not positive is rounding."""
    sign, size = np.linalg.slogdet(matrices)
    return np.asarray(np.where(sign > 0, size, np.log(_NO_RESIDUAL)))


def group_subset_fits(regressions: GroupRegressions, parents: Sequence[int], node: int) -> FloatArray:
    """(2^k,) determinants of `node` on every subset of `parents`, in units of that without any; by sweeps."""
    groups = [regressions.columns[m] for m in parents]
    own = list(regressions.columns[node])
    index = [*(c for group in groups for c in group), *own]
    rest = regressions.correlation[np.ix_(index, index)][None]
    for group in groups:
        swept = rest
        for _ in group:
            pivot, row, tail = swept[:, 0, 0], swept[:, 0, 1:], swept[:, 1:, 1:]
            safe = np.where(pivot > COLLINEAR, pivot, np.inf)
            swept = tail - row[:, :, None] * row[:, None, :] / safe[:, None, None]
        rest = np.concatenate([rest[:, len(group) :, len(group) :], swept])
    return np.clip(np.exp(_log_det(rest) - _log_det(rest[:1])), _NO_RESIDUAL, 1.0)


@dataclass(frozen=True)
class GroupObjective(Objective):
    """What a node's fit costs where prices depend on the columns of both ends.

    Attributes
    ----------
    price
        (q, d) of each variable at a lag as a parent of each node.
    """

    price: FloatArray

    def add_deltas(self, node: int, fit: NodeFit) -> FloatArray:
        """(q,) change of the cost when each variable joins."""
        return np.asarray(self.n * np.log1p(fit.gain * (-1 / fit.rss)) + self.price[:, node])

    def drop_deltas(self, node: int, fit: NodeFit, parents: Parents) -> list[float]:
        """Change of the cost when each parent leaves."""
        return [
            self.n * float(np.log1p(loss / fit.rss)) - float(self.price[m, node])
            for loss, m in zip(fit.loss, parents, strict=True)
        ]

    def cost(self, node: int, fit: NodeFit, parents: Parents) -> float:
        """Data term plus the price of the parents."""
        return self.data_term(node, fit.rss) + float(self.price[list(parents), node].sum())
