"""Which pairs of variables may act together: all, or of many variables those that a linear network has as common causes."""

from __future__ import annotations

import numpy as np

from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.criterion import Criterion
from feddbn.core.orders.search import OrderSearch
from feddbn.core.statistics.moments import Moments

__all__ = ["MOST_WITHOUT_SCREENING", "products_to_ask"]

MOST_WITHOUT_SCREENING = 40
"""Of more variables, all products would be far more columns than all curves."""


def products_to_ask(
    moments: Moments, d: int, n_lags: int, constraints: EdgeConstraints
) -> tuple[tuple[int, int, int], ...]:
    """(first, second, lag) of products of two different variables at one lag.

    Of more than `MOST_WITHOUT_SCREENING` variables only of those that are causes of one target, or one of them the target
    itself, in the best linear network: what acts only together is then missed.
    """
    lags = range(1, n_lags + 1)
    if d <= MOST_WITHOUT_SCREENING:
        return tuple((a, b, lag) for lag in lags for a in range(d) for b in range(a + 1, d))
    search = OrderSearch(moments, d, n_lags, constraints, Criterion().for_orders, "free")
    support = search.run(0, np.random.default_rng(0)).support
    pairs = set()
    for j in range(d):
        causes = sorted({int(row) % d for row in np.flatnonzero(support[:, j])} | {j})
        pairs |= {(a, b) for place, a in enumerate(causes) for b in causes[place + 1 :]}
    return tuple((a, b, lag) for lag in lags for a, b in sorted(pairs))
