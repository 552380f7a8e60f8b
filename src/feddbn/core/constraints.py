"""Which edges may, and which must, be in the network; and from weights to a graph: thresholds, cycles and orders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.errors import ParameterError
from feddbn.settings import whole

Edge = tuple[str | int, str | int, int]


@dataclass(frozen=True)
class EdgeConstraints:
    """Masks over the stack ``C = [W; A_1; ...; A_p]``.

    Attributes
    ----------
    allowed
        ((p+1) d, d): False where a weight must be zero (the diagonal of W always is).
    required
        ((p+1) d, d): True where an edge must be present: it carries no penalty and survives every threshold.
    """

    allowed: BoolArray
    required: BoolArray

    @property
    def d(self) -> int:
        """Number of variables."""
        return int(self.allowed.shape[1])

    @property
    def n_lags(self) -> int:
        """Number of lags."""
        return int(self.allowed.shape[0]) // self.d - 1

    @property
    def inputs(self) -> tuple[int, ...]:
        """Positions of variables that nothing may act on, if there are others."""
        found = tuple(np.flatnonzero(~self.allowed.any(axis=0)).tolist())
        return found if len(found) < self.d else ()

    @property
    def is_free(self) -> bool:
        """Whether nothing is required, and nothing but self-loops within a slice is forbidden."""
        free = EdgeConstraints.none(self.d, self.n_lags)
        return not self.required.any() and np.array_equal(self.allowed, free.allowed)

    def without_causes_of(self, nodes: Sequence[int]) -> EdgeConstraints:
        """The same where nothing acts on these nodes, but for edges that are required."""
        allowed = self.allowed.copy()
        allowed[:, list(nodes)] = False
        return EdgeConstraints(allowed | self.required, self.required)

    @classmethod
    def none(cls, d: int, n_lags: int) -> EdgeConstraints:
        """Everything allowed except self-loops within a slice."""
        allowed = np.ones(((n_lags + 1) * d, d), dtype=bool)
        allowed[:d][np.diag_indices(d)] = False
        return cls(allowed, np.zeros_like(allowed))

    @classmethod
    def from_edges(
        cls,
        variables: Sequence[str],
        n_lags: int,
        forbidden: Iterable[Edge] | None = None,
        required: Iterable[Edge] | None = None,
    ) -> EdgeConstraints:
        """Masks from lists of ``(from, to, lag)``; names or positions; ``"*"`` stands for every variable."""
        d = len(variables)
        base = cls.none(d, n_lags)
        allowed, must = base.allowed.copy(), base.required.copy()
        for edge in forbidden or ():
            rows, columns = _positions(edge, variables, n_lags, "forbidden_edges")
            allowed[np.ix_(rows, columns)] = False
        for edge in required or ():
            rows, columns = _positions(edge, variables, n_lags, "required_edges")
            if not allowed[np.ix_(rows, columns)].all():
                raise ParameterError(
                    f"required_edges contains {edge!r}, which is forbidden or a self-loop at lag 0; "
                    "remove it from one list."
                )
            must[np.ix_(rows, columns)] = True
        if has_cycle(must[:d]):
            raise ParameterError(
                "required_edges at lag 0 form a cycle; a network within one moment must be acyclic."
            )
        return cls(allowed, must)

    def up_to(self, n_lags: int) -> EdgeConstraints:
        """The same constraints of the first lags only."""
        n = (n_lags + 1) * self.d
        return EdgeConstraints(self.allowed[:n], self.required[:n])

    def within_order(self, order: Sequence[int]) -> EdgeConstraints:
        """The same constraints with W restricted to edges from earlier to later in `order`."""
        position = np.empty(self.d, dtype=int)
        position[np.asarray(order)] = np.arange(self.d)
        allowed = self.allowed.copy()
        allowed[: self.d] &= position[:, None] < position[None, :]
        return EdgeConstraints(allowed, self.required & allowed)


def has_cycle(adjacency: BoolArray) -> bool:
    """Whether a directed graph, ``adjacency[from, to]``, has a cycle (repeated removal of sources)."""
    remaining = adjacency.copy()
    alive = np.ones(len(adjacency), dtype=bool)
    while alive.any():
        sources = alive & ~remaining.any(axis=0)
        if not sources.any():
            return True
        remaining[sources] = False
        alive &= ~sources
    return False


def strongest_acyclic(strength: FloatArray, required: BoolArray) -> BoolArray:
    """(d, d) edges taken from the strongest down, each unless it closes a cycle; required ones first, negative ones never.

    The set of reachable pairs is kept up to date, so that one pass is enough.
    """
    d = len(strength)
    strength = np.where(required, np.inf, strength)
    # reaches[i, j]: there is a path from i to j, or i is j.
    reaches, edges = np.eye(d, dtype=bool), np.zeros((d, d), dtype=bool)
    for flat in np.argsort(-strength, axis=None, kind="stable").tolist():
        i, j = divmod(flat, d)
        if strength[i, j] < 0.0:
            break
        if not reaches[j, i]:
            edges[i, j] = True
            if not reaches[i, j]:
                reaches |= np.outer(reaches[:, i], reaches[j])
    return edges


def causes_first(order: Sequence[int], must: BoolArray) -> list[int]:
    """Return the order nearest to `order`, greedily, in which the causes of edges that must be, (d, d), come first."""
    waiting, found = list(order), []
    if not must.any():
        return waiting
    while waiting:
        node = next(j for j in waiting if not must[waiting, j].any())
        waiting.remove(node)
        found.append(node)
    return found


def _positions(
    edge: Edge, variables: Sequence[str], n_lags: int, argument: str
) -> tuple[list[int], list[int]]:
    try:
        source, target, lag = edge
    except (TypeError, ValueError):
        raise ParameterError(f"{argument} contains {edge!r}; write each edge as (from, to, lag).") from None
    if not whole(0, n_lags).holds(lag):
        raise ParameterError(
            f"{argument} contains {edge!r}, whose lag {lag!r} is not between 0 and n_lags={n_lags}."
        )
    d = len(variables)
    rows = [int(lag) * d + i for i in _variable(source, variables, edge, argument)]
    return rows, _variable(target, variables, edge, argument)


def _variable(value: str | int, variables: Sequence[str], edge: Edge, argument: str) -> list[int]:
    if value == "*" and "*" not in variables:
        return list(range(len(variables)))
    if isinstance(value, str) and value in variables:
        return [list(variables).index(value)]
    if whole(0, len(variables) - 1).holds(value):
        return [int(value)]
    raise ParameterError(
        f"{argument} contains {edge!r}, but {value!r} is not a variable; the variables are {', '.join(variables[:10])}."
    )


DroppedEdge = tuple[int, int, float]
# A refit of everything L1 let through follows the noise when rows are few. Edges whose penalised weight is at least this
# share of their threshold are refitted: chosen on simulated seeds 50-55 (d = 10, 20; n = 50 to 512).
CANDIDATE_SHARE = 0.75


def topological_order(adjacency: BoolArray) -> list[int]:
    """Return nodes so that every edge points forward; ties go to the smaller index. The graph must be acyclic."""
    n_parents = adjacency.sum(axis=0)
    order: list[int] = []
    ready = [int(i) for i in np.flatnonzero(n_parents == 0)]
    n_parents = n_parents.astype(int)
    while ready:
        node = ready.pop(0)
        order.append(node)
        for child in np.flatnonzero(adjacency[node]):
            n_parents[child] -= 1
            if n_parents[child] == 0:
                ready.append(int(child))
        ready.sort()
    if len(order) < len(adjacency):
        raise ValueError("topological_order needs an acyclic graph")
    return order


def break_cycles(W: FloatArray, required: BoolArray | None = None) -> tuple[FloatArray, list[DroppedEdge]]:
    """Return W without its weakest edges on cycles, and those edges as (from, to, weight).

    The weakest edge that lies on a cycle goes first; required edges never go. So an edge goes exactly if it closes a
    cycle of edges that are all at least as strong as itself, or required: one pass from the strongest down, with the
    set of reachable pairs kept up to date, finds them all.
    """
    W = W.copy()
    d = len(W)
    keep = np.zeros(W.shape, dtype=bool) if required is None else required
    reach = np.eye(d, dtype=bool)
    dropped: list[DroppedEdge] = []
    rows, columns = np.nonzero(W)
    strength = np.where(keep[rows, columns], np.inf, np.abs(W[rows, columns]))
    # Among equals the last in reading order is taken first, so that the first is the first to go.
    for edge in np.argsort(strength, kind="stable")[::-1]:
        i, j = int(rows[edge]), int(columns[edge])
        if reach[j, i] and not keep[i, j]:
            dropped.append((i, j, float(W[i, j])))
        if not reach[i, j]:
            reach |= np.outer(reach[:, i], reach[j])
    dropped.reverse()
    for i, j, _ in dropped:
        W[i, j] = 0.0
    return W, dropped


def threshold(C: FloatArray, required: BoolArray, w_threshold: float, a_threshold: float) -> FloatArray:
    """Return C without weights smaller than their threshold; required edges stay."""
    d = C.shape[1]
    limit = np.full(C.shape, a_threshold)
    limit[:d] = w_threshold
    return np.where((np.abs(C) >= limit) | required, C, 0.0)
