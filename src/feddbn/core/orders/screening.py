"""Regressions for networks of many variables: each node looks at the columns that could be its parents, not at all.

A column stays if its correlation with the node, or its partial correlation given all other columns, is more than chance
(`_LEAST_Z2`). A parent has both in general: it belongs to the node's Markov blanket. A search that has ended asks for the
gains of all columns beside the parents found (`missed`); one that would help after all is taken up, and the search goes on.
So every column that would help a node beside its parents has been looked at; what screening can change is the way there.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from feddbn.core.arrays import FloatArray, IntArray
from feddbn.core.orders.parents import NO_RESIDUAL, NodeFit, ParentRegressions, Parents, inverse_factor
from feddbn.core.statistics.dependence import COLLINEAR

__all__ = ["MANY_NODES", "ScreenedRegressions", "regressions_of"]

MANY_NODES = 200
"""Up to this many variables every node looks at all columns."""
_LEAST_Z2 = 9.0
_MOST_COLUMNS = 250
"""Of more columns the strongest stay."""
_MOST_FITS = 100
"""Fits of a node that are remembered, however many nodes there are: at most 2 kB each."""


def regressions_of(scatter: FloatArray, n: float, d: int) -> ParentRegressions:
    """The regressions of the first d columns, screened if there are many."""
    return (ScreenedRegressions if d > MANY_NODES else ParentRegressions)(scatter, n, d)


class ScreenedRegressions(ParentRegressions):
    """Least-squares fits whose gains are those of some columns only, for each node its own."""

    is_screened = True

    def __init__(self, scatter: FloatArray, n: float, d: int) -> None:
        super().__init__(scatter, n, d)
        self._columns: list[IntArray] = _screened(self.correlation, self.n, d)
        self._places: list[dict[int, int]] = [_places(columns) for columns in self._columns]
        self._sets: dict[int, int] = {}
        self._known: list[dict[Parents, NodeFit]] = [{} for _ in range(d)]

    def columns(self, node: int) -> IntArray:
        """The columns that are looked at for a node, ascending."""
        return self._columns[node]

    def column_set(self, node: int) -> int:
        """`columns` as a set."""
        found = self._sets.get(node)
        if found is None:
            found = self._sets[node] = sum(1 << m for m in self._columns[node].tolist())
        return found

    def fit(self, node: int, parents: Parents) -> NodeFit:
        """Return the fit of `node` on `parents` (ascending)."""
        known = self._known[node]
        found = known.get(parents)
        if found is None:
            if len(known) >= _MOST_FITS:
                known.clear()
            found = known[parents] = self._compute(node, parents)
        return found

    def missed(self, node: int, parents: Parents) -> FloatArray:
        """(q,) the gains of all columns beside these parents; those that are looked at anyway have 0."""
        gain = super()._compute(node, parents).gains(self.q).copy()
        gain[self._columns[node]] = 0.0
        return gain

    def take_up(self, node: int, columns: Iterable[int]) -> None:
        """Look at further columns for a node."""
        self._columns[node] = np.union1d(self._columns[node], np.fromiter(columns, dtype=np.intp))
        self._places[node] = _places(self._columns[node])
        self._sets.pop(node, None)
        self._known[node].clear()

    def _compute(self, node: int, parents: Parents) -> NodeFit:
        places = self._places[node]
        if not places.keys() >= set(parents):
            self.take_up(node, parents)
            places = self._places[node]
        R, columns = self.correlation, self._columns[node]
        covariance = R[node, columns]
        variance = self._usable[columns]
        loss: tuple[float, ...] = ()
        rss = float(self._usable[node])
        if parents:
            index = np.array(parents)
            within = [places[m] for m in parents]
            seen = R[index[:, None], columns]
            solved = inverse_factor(seen[:, within])
            if solved is None:
                return self._without_dependent(node, parents)
            inverse, inflation = solved
            along = inverse @ R[index, node]
            beta = along @ inverse
            rss = max(rss - float(along @ along), NO_RESIDUAL)
            loss = tuple((beta * beta / inflation).tolist())
            orthogonal = inverse @ seen
            covariance -= along @ orthogonal
            orthogonal *= orthogonal
            variance -= np.add.reduce(orthogonal, axis=0)
            variance[within] = 0.0
        covariance *= covariance
        gain = np.zeros(len(columns))
        np.divide(covariance, variance, out=gain, where=variance > COLLINEAR)
        np.minimum(gain, max(rss - NO_RESIDUAL, 0.0), out=gain)
        return NodeFit(rss, gain, loss, columns)


def _screened(R: FloatArray, n: float, d: int) -> list[IntArray]:
    partial = _partial_correlations(R, n)
    found = []
    for j in range(d):
        z2 = n * np.maximum(R[j] ** 2, partial[j] ** 2)
        z2[j] = 0.0
        chosen = np.flatnonzero(z2 > _LEAST_Z2)
        if len(chosen) > _MOST_COLUMNS:
            chosen = np.sort(chosen[np.argsort(-z2[chosen], kind="stable")[:_MOST_COLUMNS]])
        found.append(chosen)
    return found


def _partial_correlations(R: FloatArray, n: float) -> FloatArray:
    """Partial correlations given all other columns, shrunk where rows are few; 0 if they cannot be had."""
    q = len(R)
    shrunk = R.copy()
    shrunk.flat[:: q + 1] += q / n if n < 4 * q else 0.0
    factor, failed = dpotrf(shrunk, lower=1, overwrite_a=1)
    if not failed:
        inverse, failed = dpotri(factor, lower=1, overwrite_c=1)
    if failed:
        return np.zeros_like(R)
    inverse = np.tril(inverse, -1) + np.tril(inverse).T
    root = np.sqrt(np.maximum(np.diag(inverse), 1e-300))
    return np.asarray(inverse / root / root[:, None])


def _places(columns: IntArray) -> dict[int, int]:
    return {m: place for place, m in enumerate(columns.tolist())}
