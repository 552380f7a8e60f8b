"""Fits of one segmentation of blocks, and of the same with something left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.changes.differences import NodeSteps, SegmentGrams, fit_node, scaled_products
from feddbn.core.changes.partitions import Cuts, ranges_of
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.learn import STRONG_EVIDENCE
from feddbn.core.orders.search import Criterion
from feddbn.core.statistics.moments import Moments

__all__ = ["ChangeOptions", "Changing", "SegmentFits", "fit_lacking", "fit_steady", "fit_without", "merged"]


@dataclass(frozen=True)
class ChangeOptions:
    """How changes are looked for.

    Attributes
    ----------
    max_changes
        Most changes.
    criterion
        Price of edges, of differences between segments, and of further variances: ``c log(n)`` each.
    noise_variance
        "equal", "free" or "auto": by which noise the order of the variables is found.
    shortest
        Fewest rows of a segment.
    change_price
        What each change costs besides, in units of ``log(n)``.
    drift
        Whether weights may drift slowly.
    """

    max_changes: int = 5
    criterion: Criterion = Criterion()
    noise_variance: str = "auto"
    shortest: float = 0.0
    change_price: float = 2.0
    drift: bool = True


@dataclass(frozen=True)
class Changing:
    """Segments of blocks and what every node has in each of them.

    Attributes
    ----------
    cuts
        First blocks of the second, third, ... segment.
    order
        The variables, causes first, in all segments.
    nodes
        What each node has.
    grams
        The products of the segments that they were fitted to.
    score
        Total criterion.
    scores
        The best total for 0, 1, 2, ... changes.
    functions
        (K, B) values of the functions of time that weights may follow, in each block; None: they do not drift.
    """

    cuts: Cuts
    order: tuple[int, ...]
    nodes: tuple[NodeSteps, ...]
    grams: SegmentGrams
    score: float
    scores: tuple[float, ...] = ()

    functions: FloatArray | None = None

    def network(self, s: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(q, d) weights, (d,) intercepts and (d,) noise variances of a segment, in the units of the rows.

        Where weights drift, those of its middle.
        """
        if self.functions is None:
            return self._network(s, np.ones(1))
        a, b = ranges_of(self.cuts, self.functions.shape[1])[s]
        return self.network_at((a + b - 1) // 2)

    def network_at(self, block: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The same of a block."""
        s = sum(cut <= block for cut in self.cuts)
        return self._network(s, np.ones(1) if self.functions is None else self.functions[:, block])

    def losses(self, blocks: Sequence[Moments]) -> FloatArray:
        """(S, B) twice the negative log-likelihood of each block in each segment; weights that drift are not meant."""
        grams = self.grams
        loss = np.zeros((len(grams.n), len(blocks)))
        for b, block in enumerate(blocks):
            products = scaled_products(block, grams.origin, grams.scale)
            for j, node in enumerate(self.nodes):
                full = -node.weights.copy()
                full[:, j] += 1.0
                rss = np.einsum("sm,mk,sk->s", full, products, full)
                loss[:, b] += rss / node.variances + block.n * np.log(node.variances)
        return loss

    def _network(self, s: int, values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        grams, d = self.grams, len(self.nodes)
        C, constant, variances = np.zeros((len(grams.scale), d)), np.zeros(d), np.zeros(d)
        for j, node in enumerate(self.nodes):
            weights = values @ node.weights[s].reshape(len(values), -1)
            C[:, j] = weights[:-1] * grams.scale[j] / grams.scale
            constant[j] = weights[-1] * grams.scale[j]
            variances[j] = node.variances[s] * grams.scale[j] ** 2
        return C, grams.origin[:d] + constant - grams.origin @ C, variances


def merged(blocks: Sequence[Moments]) -> Moments:
    """The moments of several blocks together."""
    total = blocks[0]
    for one in blocks[1:]:
        total = total.merge(one)
    return total


def fit_without(
    found: Changing, node: int, column: int, segment: int, constraints: EdgeConstraints, criterion: Criterion
) -> NodeSteps:
    """What a node has if one column may not be different at the beginning of a segment."""
    return _fit_otherwise(found, node, constraints, criterion, unchanged=(column, segment))


def fit_lacking(
    found: Changing, node: int, column: int, segment: int, constraints: EdgeConstraints, criterion: Criterion
) -> NodeSteps:
    """What a node has if one column may not act in a segment."""
    return _fit_otherwise(found, node, constraints, criterion, absent=(column, segment))


def fit_steady(
    found: Changing, node: int, column: int, constraints: EdgeConstraints, criterion: Criterion
) -> NodeSteps:
    """What a node has if the weight of one column may not drift."""
    return _fit_otherwise(found, node, constraints, criterion, steady=column)


def _fit_otherwise(
    found: Changing, node: int, constraints: EdgeConstraints, criterion: Criterion, **limits: Any
) -> NodeSteps:
    earlier = frozenset(found.order[: found.order.index(node)])
    price = criterion.c * float(np.log(found.grams.n.sum()))
    return fit_node(
        found.grams, node, *candidates_of(node, earlier, len(found.nodes), constraints), price, **limits
    )


def candidates_of(
    j: int, earlier: frozenset[int], d: int, constraints: EdgeConstraints
) -> tuple[list[int], list[int]]:
    """Columns that may be parents of a node after others, and those that must be."""
    allowed, required = constraints.allowed[:, j], constraints.required[:, j]
    may = [m for m in np.flatnonzero(allowed).tolist() if m >= d or m in earlier]
    return may, np.flatnonzero(required).tolist()


class SegmentFits:
    """Fits of one segmentation in any order; what a node has depends on who comes before it alone."""

    def __init__(
        self,
        blocks: Sequence[Moments],
        d: int,
        cuts: Cuts,
        constraints: EdgeConstraints,
        options: ChangeOptions,
        functions: FloatArray | None = None,
    ) -> None:
        self.d, self.cuts, self.constraints, self.options = d, cuts, constraints, options
        self.functions = functions
        self.segments = [merged(blocks[a:b]) for a, b in ranges_of(cuts, len(blocks))]
        if functions is None:
            self.grams = SegmentGrams.of(self.segments, d)
        else:
            self.grams = SegmentGrams.drifting(blocks, cuts, d, functions)
        self._known: dict[tuple[int, frozenset[int]], NodeSteps] = {}

    def of(self, order: tuple[int, ...]) -> Changing:
        """The fit within an order."""
        log_n = float(np.log(self.grams.n.sum()))
        nodes = [self._node(j, frozenset(order[: order.index(j)]), log_n) for j in range(self.d)]
        # That there is drift at all costs as much as a change.
        n_changes = len(self.cuts) + any(node.drifting for node in nodes)
        score = sum(node.score for node in nodes) + n_changes * self.options.change_price * log_n
        return Changing(self.cuts, order, tuple(nodes), self.grams, score, functions=self.functions)

    def _node(self, j: int, earlier: frozenset[int], log_n: float) -> NodeSteps:
        if (j, earlier) not in self._known:
            given = candidates_of(j, earlier, self.d, self.constraints)
            self._known[j, earlier] = fit_node(self.grams, j, *given, self.options.criterion.c * log_n)
        return self._known[j, earlier]

    def improved(self, best: Changing, *, thorough: bool = False) -> Changing:
        """Move to neighbouring orders while the evidence for it is strong.

        Neighbours have two neighbours exchanged; if it is to be thorough, also the ends of an edge, wherever they are.
        """
        is_better = len(self.segments) > 1 or self.functions is not None
        while is_better:
            is_better = False
            moves = [_exchanged(best.order, place) for place in range(self.d - 1)]
            if thorough:
                moves += self._turned(best)
            for order in moves:
                if not self._may_be(order):
                    continue
                other = self.of(order)
                if other.score < best.score - STRONG_EVIDENCE:
                    best, is_better = other, True
                    break
        return best

    def _turned(self, found: Changing) -> list[tuple[int, ...]]:
        """Orders in which an edge to or from a node that changes would go the other way."""
        moves = []
        for j, node in enumerate(found.nodes):
            for i in sorted({m % node.width for m, _, _ in node.columns if m % node.width < self.d}):
                if node.differs or found.nodes[i].differs:
                    rest = [k for k in found.order if k != j]
                    place = rest.index(i)
                    moves.append((*rest[:place], j, *rest[place:]))
                    rest = [k for k in found.order if k != i]
                    place = rest.index(j) + 1
                    moves.append((*rest[:place], i, *rest[place:]))
        return moves

    def _may_be(self, order: tuple[int, ...]) -> bool:
        """Whether all required edges go forward in an order."""
        rank = np.argsort(order)
        causes, effects = np.nonzero(self.constraints.required[: self.d])
        return bool((rank[causes] < rank[effects]).all())


def _exchanged(order: tuple[int, ...], place: int) -> tuple[int, ...]:
    return (*order[:place], order[place + 1], order[place], *order[place + 2 :])
