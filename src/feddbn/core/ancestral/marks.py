"""A graph over a window of time steps whose edges have a mark at each end; what is said of one is said of all.

A node is ``lag * d + variable``: the variables now, then at lag 1, and so on. At an end, a tail says "is a cause of the
other (perhaps through others)", an arrowhead "is no cause of the other", a circle "not known".

Edges reach p time steps back. The window reaches 2p back: whether something before an edge's cause acts through it tells
what the cause is.

`true_marks` is the ancestral graph of a system of which only some variables are seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import BoolArray, FloatArray

NONE, CIRCLE, ARROW, TAIL = 0, 1, 2, 3
Marks = NDArray[np.str_]
"""(d, d, p+1) strings: ``marks[i, j, l]`` is the edge from variable i, l time steps ago, to j now; "" for none."""
_NEAR = {CIRCLE: "o", ARROW: "<", TAIL: "-"}
_FAR = {CIRCLE: "o", ARROW: ">", TAIL: "-"}
WORDS = frozenset(near + "-" + far for near in _NEAR.values() for far in _FAR.values())
"""All that an edge can look like."""


class WindowGraph:
    """Marks of all pairs of nodes.

    Attributes
    ----------
    d, n_lags
        Number of variables, and of lags p that an edge may have.
    n_inside
        Number of nodes from now to p time steps back.
    ends
        (N, N) with ``N = d (2p + 1)``: ``ends[a, b]`` is the mark at b of the edge between a and b, 0 if there is none.
    """

    def __init__(self, d: int, n_lags: int) -> None:
        self.d, self.n_lags, self.n_inside = d, n_lags, d * (n_lags + 1)
        self.ends = np.zeros((d * (2 * n_lags + 1),) * 2, dtype=np.int8)

    @classmethod
    def complete(cls, d: int, n_lags: int, inputs: Sequence[int] = ()) -> WindowGraph:
        """All edges, of which nothing is known but that nothing causes its past; `inputs` only act on others."""
        graph = cls(d, n_lags)
        back = np.subtract.outer(*[np.arange(len(graph.ends)) // d] * 2)
        graph.ends[:] = np.where(np.abs(back) > n_lags, NONE, np.where(back > 0, ARROW, CIRCLE))
        np.fill_diagonal(graph.ends, NONE)
        is_input = np.isin(np.arange(len(graph.ends)) % d, list(inputs))
        graph.ends[np.ix_(is_input, is_input)] = NONE
        acts = is_input[:, None] & ~is_input[None, :] & (graph.ends != NONE)
        graph.ends[acts | acts.T] = NONE
        acts &= back >= 0
        graph.ends[acts], graph.ends.T[acts] = ARROW, TAIL
        return graph

    def shifts(self, a: int, b: int) -> Iterator[tuple[int, int]]:
        """The same pair at every time step of the window."""
        first = min(a // self.d, b // self.d) * self.d
        a, b, limit = a - first, b - first, len(self.ends)
        while a < limit and b < limit:
            yield a, b
            a, b = a + self.d, b + self.d

    def now(self, a: int, b: int) -> tuple[int, int, int]:
        """The pair moved so that the later of its nodes is now, and by how many nodes it was moved."""
        first = min(a // self.d, b // self.d) * self.d
        return a - first, b - first, first

    def remove(self, a: int, b: int) -> None:
        """Take the edge away, at all time steps."""
        for x, y in self.shifts(a, b):
            self.ends[x, y] = self.ends[y, x] = NONE

    def mark(self, a: int, b: int, end: int) -> bool:
        """Put a mark at b of the edge between a and b, at all time steps, if there is a circle; say whether there was."""
        if self.ends[a, b] != CIRCLE:
            return False
        for x, y in self.shifts(a, b):
            self.ends[x, y] = end
        return True

    def pairs(self) -> list[tuple[int, int]]:
        """Edges (x, y) with y now: x in the past, or now and of a smaller number than y."""
        d = self.d
        found = np.argwhere(self.ends[:, :d] != NONE)
        return [(int(x), int(y)) for x, y in found if x >= d or x < y]

    def parents(self, node: int) -> list[int]:
        """Nodes with a tail here and an arrowhead at `node`."""
        here = (self.ends[:, node] == ARROW) & (self.ends[node] == TAIL)
        return [int(a) for a in np.flatnonzero(here)]

    def neighbours(self, node: int) -> list[int]:
        """Nodes that share an edge with `node`."""
        return [int(a) for a in np.flatnonzero(self.ends[node])]

    def words(self) -> Marks:
        """The edges as strings, ``-->``, ``<->``, ``o->``, ..."""
        d, p = self.d, self.n_lags
        words = np.full((d, d, p + 1), "", dtype="<U3")
        for x, y in np.argwhere(self.ends[: self.n_inside, :d] != NONE):
            words[x % d, y, x // d] = _NEAR[int(self.ends[y, x])] + "-" + _FAR[int(self.ends[x, y])]
        return words


class Separations:
    """Which nodes made a pair independent, by pair; and how strong and how sure each edge is.

    Attributes
    ----------
    values, p_values
        (d, d, p+1): the weakest partial correlation of each pair over all that was tried, and its p-value.
    """

    def __init__(self, graph: WindowGraph) -> None:
        self._graph = graph
        self._sets: dict[tuple[int, int], list[frozenset[int]]] = {}
        shape = (graph.d, graph.d, graph.n_lags + 1)
        self.values: FloatArray = np.full(shape, np.inf)
        self.p_values: FloatArray = np.zeros(shape)

    def keep(self, x: int, y: int, sets: Sequence[frozenset[int]]) -> None:
        """Remember that x and y (one of them now) are independent given each of some sets, the best one first."""
        self._sets[min(x, y), max(x, y)] = list(sets)

    def between(self, a: int, b: int) -> tuple[frozenset[int], int] | None:
        """What separates two nodes best, and by how many nodes the pair has to be moved to be now."""
        x, y, moved = self._graph.now(a, b)
        sets = self._sets.get((min(x, y), max(x, y)))
        return None if sets is None else (sets[0], moved)

    def share(self, a: int, b: int, node: int) -> float:
        """In how many of the sets that separate a from b `node` is; 0 if nothing separates them."""
        x, y, moved = self._graph.now(a, b)
        sets = self._sets.get((min(x, y), max(x, y)), [])
        return sum(node - moved in given for given in sets) / max(1, len(sets))

    def holds(self, a: int, b: int, node: int) -> bool:
        """Whether `node` is in most of the sets that separate a from b."""
        return self.share(a, b, node) > 0.5

    def note(self, x: int, y: int, value: float, p_value: float) -> None:
        """Keep the weakest dependence of x and y (now) that was seen."""
        d = self._graph.d
        if x >= self._graph.n_inside:
            return
        places = [(x % d, y, x // d)] + ([(y, x, 0)] if x < d else [])
        for place in places:
            if abs(value) < abs(self.values[place]):
                self.values[place], self.p_values[place] = value, p_value


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


def unrolled(W: FloatArray, A: FloatArray, n_steps: int) -> BoolArray:
    """(n n_steps, n n_steps) edges ``[from, to]`` of a network over time steps, node ``lag * n + variable``."""
    n = len(W)
    edges = np.zeros((n * n_steps,) * 2, dtype=bool)
    for to in range(n_steps):
        for lag, weights in enumerate([W, *A]):
            at = to + lag
            if at < n_steps:
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
