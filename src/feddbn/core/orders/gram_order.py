"""An order of the variables from a Gram matrix alone, as OneShotDBN with equal variances finds it."""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.criterion import Criterion
from feddbn.core.orders.search import OrderSearch
from feddbn.core.statistics.moments import Moments

__all__ = ["order_by_variance", "order_of_gram"]

# Below this share of its variance nothing is left of a node that could explain others: rounding.
_NOTHING = 1e-10


def order_of_gram(G: FloatArray, n: float, constraints: EdgeConstraints, *, moves: bool) -> list[int]:
    """Return an order searched on the (q, q) Gram matrix of n rows; without `moves` the first one, top down.

    Like the penalised least squares that it starts, the search prefers orders that leave little unexplained.
    """
    q = len(G)
    moments = Moments(n, np.zeros(q), n * G)
    search = OrderSearch(
        moments, constraints.d, q // constraints.d - 1, constraints, Criterion().for_orders, "equal"
    )
    search.start_top_down(prefer_high=False)
    if moves:
        search.improve()
    return list(search.order)


def order_by_variance(G: FloatArray, d: int) -> list[int]:
    """Return the order of the d nodes of a (q, q) Gram matrix, lowest variance given those before it and all lags first.

    That is the first order of the search without its selection of parents: a Cholesky factor, pivoted from below. It needs
    many rows for each column, as everything before a node counts as its parent.
    """
    between = G[:d, d:]
    # Lags may depend on each other.
    left = G[:d, :d] - between @ np.linalg.pinv(G[d:, d:], hermitian=True) @ between.T
    order: list[int] = []
    is_placed = np.zeros(d, dtype=bool)
    for _ in range(d):
        node = int(np.argmin(np.where(is_placed, np.inf, np.diag(left))))
        order.append(node)
        is_placed[node] = True
        if left[node, node] > _NOTHING * G[node, node]:
            left = left - np.outer(left[:, node], left[node]) / left[node, node]
    return order
