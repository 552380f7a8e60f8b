"""Distributions of all variables in many rows at once, and the moments that are drawn from them, cause before effect."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.model.laws import Law
from feddbn.model.network import Network

__all__ = ["ConditionalSteps"]

# Above it a count is no longer an exact number.
_MOST = 1e15


class ConditionalSteps:
    """How a network of variables of any kind goes on."""

    def __init__(self, dbn: Network) -> None:
        self._nodes, self._d, self._n_lags = dbn.conditionals, dbn.d, dbn.n_lags
        self.order = _causes_first(dbn.is_edge[0])

    def laws(self, rows: FloatArray) -> list[Law]:
        """The distribution of every variable in lagged rows (n, (p+1) d) ``[x_t, x_{t-1}, ..., x_{t-p}]``."""
        codes = self._codes(len(rows), lambda i, lag: rows[:, lag * self._d + i])
        return [node.law(codes(j)) for j, node in enumerate(self._nodes)]

    def codes(self, rows: FloatArray, target: int) -> FloatArray:
        """(n, w) the columns of the causes of one variable in lagged rows."""
        return self._codes(len(rows), lambda i, lag: rows[:, lag * self._d + i])(target)

    def moment(self, past: FloatArray, shocks: FloatArray, held: FloatArray) -> FloatArray:
        """(n, d) the moment after `past` (n, p, d), oldest first; `held` (d,) is NaN where a variable is free."""
        x = np.tile(held, (len(past), 1))
        codes = self._codes(len(x), lambda i, lag: past[:, self._n_lags - lag, i] if lag else x[:, i])
        with np.errstate(over="ignore"):
            for j in self.order:
                if np.isnan(held[j]):
                    x[:, j] = self._drawn(j, codes(j), shocks[:, j])
        return x

    def log_weights(self, past: FloatArray, x: FloatArray, seen: BoolArray) -> FloatArray:
        """(n,) log density of the cells `seen` (d,) of the moment x (n, d) after `past`."""
        codes = self._codes(len(x), lambda i, lag: past[:, self._n_lags - lag, i] if lag else x[:, i])
        total = np.zeros(len(x))
        for j in np.flatnonzero(seen):
            node = self._nodes[j]
            # Without noise there is no density; the value is what it is.
            if node.dispersion or node.kind.name not in ("continuous", "positive"):
                total += node.law(codes(int(j))).log_density(x[:, j])
        return total

    def _drawn(self, j: int, codes: FloatArray, z: FloatArray) -> FloatArray:
        node = self._nodes[j]
        law = node.law(codes)
        if node.kind.name != "count":
            return law.driven(z)
        is_far = ~(law.mean < _MOST)
        return law.driven(z) if not is_far.any() else np.where(is_far, np.inf, 0.0)

    def _codes(self, n: int, cell: Callable[[int, int], FloatArray]) -> Callable[[int], FloatArray]:
        """A function that gives the columns (n, w) of the causes of a variable; each cause is encoded once."""
        known: dict[tuple[int, int], FloatArray] = {}

        def code(parent: tuple[int, int]) -> FloatArray:
            if parent not in known:
                known[parent] = self._nodes[parent[0]].kind.encode(cell(*parent))
            return known[parent]

        def of(target: int) -> FloatArray:
            columns = [code(parent) for parent in self._nodes[target].parents]
            return np.concatenate([np.zeros((n, 0)), *columns], axis=1)

        return of


def _causes_first(edges: BoolArray) -> list[int]:
    """The variables in an order in which every cause within a moment comes before its effects."""
    order: list[int] = []
    left = np.arange(len(edges))
    while len(left):
        first = ~edges[np.ix_(left, left)].any(axis=0)
        order += left[first].tolist()
        left = left[~first]
    return order
