"""Which directions within a moment the second moments determine.

With free Gaussian noise variances, networks with the same adjacencies and the same unshielded colliders fit
equally well (Verma and Pearl 1990). Lagged columns precede everything, so every edge from a lag is directed
and helps to direct others: x_{t-1} -> i -> j with no edge x_{t-1} -> j says that j does not cause i.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import BoolArray
from feddbn.core.orders.screening import MANY_NODES
from feddbn.core.orders.search import OrderResult, OrderSearch

__all__ = [
    "STRONG_EVIDENCE",
    "EdgeOrientation",
    "compelled_edges",
    "edge_firmness",
    "fixed_directions",
    "settle_directions",
]

STRONG_EVIDENCE = 6.0
"""Score difference that counts as decided: odds of 20 to 1, "strong" in Kass and Raftery (1995)."""

_MAX_BETTER = 10


@dataclass(frozen=True)
class EdgeOrientation:
    """How firmly one edge within a moment is directed.

    Attributes
    ----------
    source, target
        Nodes of the edge in the chosen network.
    score_difference
        Score of the best network found with the edge's ends in the other order, minus the chosen network's
        score. 0 if an equivalent network has the edge reversed.
    oriented
        Whether the difference is strong evidence.
    """

    source: int
    target: int
    score_difference: float
    oriented: bool


def compelled_edges(support: BoolArray, fixed: BoolArray | None = None) -> BoolArray:
    """(d, d) the edges within a moment that every equivalent network directs the same way.

    Parameters
    ----------
    support
        ((p+1) d, d) the network.
    fixed
        (d, d) edges whose direction is known beforehand.
    """
    d = support.shape[1]
    W, lagged = support[:d], support[d:]
    adjacent = W | W.T
    known = np.zeros((d, d), dtype=bool) if fixed is None else fixed & W
    for j in range(d):
        parents = np.flatnonzero(W[:, j])
        for i in parents:
            from_lag = (lagged[:, j] & ~lagged[:, i]).any()
            unshielded = ~adjacent[i, parents]
            unshielded[parents == i] = False
            if from_lag or unshielded.any():
                known[i, j] = True
    changed = True
    while changed:
        changed = False
        for i, j in np.argwhere(W & ~known):
            if _meek(int(i), int(j), known, adjacent, lagged):
                known[i, j] = changed = True
    return known


def _meek(i: int, j: int, known: BoolArray, adjacent: BoolArray, lagged: BoolArray) -> bool:
    """Whether one of Meek's four rules (1995) directs i -> j."""
    if (lagged[:, i] & ~lagged[:, j]).any() or (known[:, i] & ~adjacent[:, j]).any():
        return True
    if (known[i] & known[:, j]).any():
        return True
    open_to_i = adjacent[i] & ~known[i] & ~known[:, i]
    middle = np.flatnonzero(open_to_i & known[:, j])
    if len(middle) > 1 and not (adjacent[np.ix_(middle, middle)] | np.eye(len(middle), dtype=bool)).all():
        return True
    return any(
        k != j and (known[k] & known[:, j] & adjacent[i]).any()
        for k in np.flatnonzero(open_to_i & ~adjacent[j])
    )


def settle_directions(search: OrderSearch, result: OrderResult) -> tuple[OrderResult, list[EdgeOrientation]]:
    """The network, and how firmly each edge within a moment is directed.

    Every edge is turned once. Should that lead to a better network, the questions begin anew from there.
    """
    if search.d > MANY_NODES:
        return _settle_one_by_one(search, result)
    for _ in range(_MAX_BETTER):
        table, better = _ask(search, result)
        if better is None:
            return result, table
        result = better
    search.adopt(result.support)
    return result, _ask(search, result)[0]


def _settle_one_by_one(search: OrderSearch, result: OrderResult) -> tuple[OrderResult, list[EdgeOrientation]]:
    """The same for many edges: a better network is taken at once, and only edges near what it changed are asked again."""
    d = search.d
    differences: dict[tuple[int, int], float] = {}
    for _ in range(_MAX_BETTER):
        fixed = fixed_directions(search, result.support)
        edges = [(i, j) for i, j in np.argwhere(result.support[:d]).tolist()]
        asked = [edge for edge in edges if edge not in differences]
        if not asked:
            break
        for i, j in asked:
            if not result.support[i, j]:
                continue
            score = np.inf if fixed[i, j] else search.score_reversed(result, i, j)
            differences[i, j] = max(score - result.score, 0.0)
            other = search.best_reversed(result, i, j) if score < result.score - 1e-6 else None
            if other is not None:
                changed = {k for k in range(d) if other.parents[k] != result.parents[k]}
                differences = {
                    edge: value for edge, value in differences.items() if not changed.intersection(edge)
                }
                result = other
    compelled = compelled_edges(result.support, fixed_directions(search, result.support))
    free = result.noise_variance == "free" and search.has_equivalents
    table = []
    for i, j in np.argwhere(result.support[:d]).tolist():
        difference = 0.0 if free and not compelled[i, j] else differences.get((i, j), 0.0)
        table.append(EdgeOrientation(i, j, float(difference), bool(difference >= STRONG_EVIDENCE)))
    return result, table


def edge_firmness(search: OrderSearch, result: OrderResult) -> list[EdgeOrientation]:
    """How firmly each edge of a given network is directed, by turning each once."""
    return _ask(search, result)[0]


def fixed_directions(search: OrderSearch, support: BoolArray) -> BoolArray:
    """(d, d) the edges whose reversal is forbidden."""
    return support[: search.d] & ~search.allowed[: search.d].T


def _ask(search: OrderSearch, result: OrderResult) -> tuple[list[EdgeOrientation], OrderResult | None]:
    fixed = fixed_directions(search, result.support)
    compelled = compelled_edges(result.support, fixed)
    free = result.noise_variance == "free" and search.has_equivalents
    table, better = [], result
    for i, j in np.argwhere(result.support[: search.d]).tolist():
        difference = np.inf
        if not fixed[i, j]:
            other = search.best_reversed(result, i, j)
            if other is not None:
                difference = max(other.score - result.score, 0.0)
                if other.score < better.score - 1e-6:
                    better = other
            if free and not compelled[i, j]:
                difference = 0.0
        table.append(EdgeOrientation(i, j, float(difference), bool(difference >= STRONG_EVIDENCE)))
    return table, None if better is result else better
