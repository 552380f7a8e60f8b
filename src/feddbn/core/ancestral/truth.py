"""The true ancestral graph of a system of which only some variables are seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from feddbn.core.ancestral.marks import ARROW, TAIL, Marks, WindowGraph
from feddbn.core.arrays import FloatArray

__all__ = ["true_marks", "unrolled"]

BoolArray = NDArray[np.bool_]


def true_marks(
    W: FloatArray, A: FloatArray, seen: Sequence[int], n_lags: int, depth: int | None = None
) -> Marks:
    """Return the maximal ancestral graph of the seen variables over a window of ``n_lags + 1`` moments.

    Two nodes share an edge if nothing that is seen within the window makes them independent; which is so if the seen
    causes of the two do not. An end has a tail if it is a cause of the other end, directly or through others, seen or not;
    else an arrowhead. Edges are those whose later end is now; what was before the window counts as not seen.

    Parameters
    ----------
    W, A
        (n, n) and (P, n, n) weights ``[from, to]`` of the whole system.
    seen
        The variables that are seen, in the order of the result.
    n_lags
        Lags of the window, which may be more or fewer than P.
    depth
        Moments before the window that are looked at. By default as many as all variables and lags together, twice over.
    """
    n, seen = len(W), list(seen)
    longest = max(n_lags, len(A))
    depth = 2 * n * max(1, len(A)) if depth is None else depth
    edges = unrolled(W, A, longest + 1 + depth)
    causes = _ancestors(edges)
    window = np.array([lag * n + v for lag in range(n_lags + 1) for v in seen])
    parents, children = _lists(edges.T), _lists(edges)
    graph = WindowGraph(len(seen), n_lags)
    d = len(seen)
    for x in range(len(window)):
        for y in range(min(x, d)):
            a, b = int(window[x]), int(window[y])
            above = causes[:, a] | causes[:, b]
            given = np.zeros(len(edges), dtype=bool)
            given[window[above[window]]] = True
            given[[a, b]] = False
            if not _is_separated(parents, children, a, b, given, above):
                for u, v in graph.shifts(x, y):
                    graph.ends[v, u] = TAIL if causes[a, b] else ARROW
                    graph.ends[u, v] = TAIL if causes[b, a] else ARROW
    return graph.words()


def unrolled(W: FloatArray, A: FloatArray, n_moments: int) -> BoolArray:
    """(n n_moments, n n_moments) edges ``[from, to]`` of a network over moments, node ``lag * n + variable``."""
    n = len(W)
    edges = np.zeros((n * n_moments,) * 2, dtype=bool)
    for to in range(n_moments):
        for lag, weights in enumerate([W, *A]):
            at = to + lag
            if at < n_moments:
                edges[at * n : (at + 1) * n, to * n : (to + 1) * n] = np.asarray(weights) != 0
    return edges


def _is_separated(
    parents: list[list[int]], children: list[list[int]], a: int, b: int, given: BoolArray, above: BoolArray
) -> bool:
    """Whether nothing flows between a and b (d-separation) given nodes that are all among `above`, the causes of a and b.

    Nodes are visited once against the arrows and once along them. A collider lets through if it is above: either it or
    what follows from it is given, or an open path leads from it to a or b.
    """
    visited = np.zeros((len(parents), 2), dtype=bool)
    stack = [(a, 0)]
    while stack:
        node, along = stack.pop()
        if visited[node, along]:
            continue
        visited[node, along] = True
        if node == b:
            return False
        if not given[node]:
            stack += [(down, 1) for down in children[node]]
        if above[node] if along else not given[node]:
            stack += [(up, 0) for up in parents[node]]
    return True


def _ancestors(edges: BoolArray) -> BoolArray:
    """``[a, b]``: whether a is b or one of its causes."""
    reach = edges | np.eye(len(edges), dtype=bool)
    for _ in range(int(np.ceil(np.log2(max(2, len(edges)))))):
        further = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0
        if (further == reach).all():
            break
        reach = further
    return np.asarray(reach)


def _lists(edges: BoolArray) -> list[list[int]]:
    return [np.flatnonzero(row).tolist() for row in edges]
