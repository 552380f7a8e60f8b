"""An order of the variables from a Gram matrix alone, as OneShotDBN with equal variances finds it."""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.criterion import Criterion
from feddbn.core.orders.search import OrderSearch
from feddbn.core.statistics.moments import Moments

__all__ = ["order_of_gram"]


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
