"""Where a network changes and how, from the moments of consecutive blocks of rows.

1. The cost of a range of blocks is the score of the best network on its merged moments; dynamic programming over ranges
   proposes the best cuts for 0, 1, 2, ... changes (`partitions`).
2. For each number of changes every node gets the edges, levels and variances that differ between segments only where
   that pays (`differences`), within one order of the variables for all segments. In a wrong order the change of one
   node looks like changes of several, so the order with the best total is taken. Given all this, blocks are dealt out
   anew, by dynamic programming again, until the cuts stay.
3. The number of changes with the best total score is taken; each change has a price of its own, for its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.changes.differences import NodeSteps, SegmentGrams, fit_node
from feddbn.core.changes.partitions import Cuts, best_partitions, ranges_of
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.criterion import Criterion
from feddbn.core.orders.noise_choice import choose_noise
from feddbn.core.orders.orientation import STRONG_EVIDENCE
from feddbn.core.orders.search import NoiseVariance, OrderSearch
from feddbn.core.statistics.moments import Moments

__all__ = [
    "ChangeOptions",
    "Changing",
    "fit_lacking",
    "fit_without",
    "learn_changes",
    "merged",
    "range_costs",
]

_MOST_DEALS = 4
_KINDS: tuple[NoiseVariance, ...] = ("equal", "free")
_SHORT = 4
"""Segments of at most this many blocks are looked at for a block that is a mixture."""
_HOPELESS = 2
"""So many changes more without a better score end the search."""


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
    """

    max_changes: int = 5
    criterion: Criterion = Criterion()
    noise_variance: str = "auto"
    shortest: float = 0.0
    change_price: float = 2.0


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
    """

    cuts: Cuts
    order: tuple[int, ...]
    nodes: tuple[NodeSteps, ...]
    grams: SegmentGrams
    score: float
    scores: tuple[float, ...] = ()

    def network(self, s: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(q, d) weights, (d,) intercepts and (d,) noise variances of a segment, in the units of the rows."""
        grams, d = self.grams, len(self.nodes)
        C, constant, variances = np.zeros((len(grams.scale), d)), np.zeros(d), np.zeros(d)
        for j, node in enumerate(self.nodes):
            C[:, j] = node.weights[s, :-1] * grams.scale[j] / grams.scale
            constant[j] = node.weights[s, -1] * grams.scale[j]
            variances[j] = node.variances[s] * grams.scale[j] ** 2
        return C, grams.origin[:d] + constant - grams.origin @ C, variances


def merged(blocks: Sequence[Moments]) -> Moments:
    """The moments of several blocks together."""
    total = blocks[0]
    for one in blocks[1:]:
        total = total.merge(one)
    return total


def range_costs(
    blocks: Sequence[Moments], d: int, constraints: EdgeConstraints, criterion: Criterion, shortest: float
) -> FloatArray:
    """(B + 1, B + 1) score of the best network found on each range of blocks; infinite where it is too short.

    All blocks together never are. Networks are within the best order of all blocks: any order can hold any network, some
    with more edges.
    """
    n_blocks, q = len(blocks), blocks[0].q
    n_lags = q // d - 1
    cost = np.full((n_blocks + 1, n_blocks + 1), np.inf)
    whole = OrderSearch(merged(blocks), d, n_lags, constraints, criterion, "free")
    start = whole.run(0, np.random.default_rng(0))
    for a in range(n_blocks):
        total = Moments.empty(q)
        for b in range(a + 1, n_blocks + 1):
            total = total.merge(blocks[b - 1])
            if total.n >= shortest or b - a == n_blocks:
                search = OrderSearch(total, d, n_lags, constraints, criterion, "free")
                cost[a, b] = search.select_edges(start, criterion).score
    return cost


def learn_changes(
    blocks: Sequence[Moments],
    d: int,
    constraints: EdgeConstraints,
    options: ChangeOptions,
    rng: np.random.Generator,
) -> Changing:
    """Return the segments, and what differs between them."""
    # A range is charged for its edges as orders are: at the lower price.
    cost = range_costs(blocks, d, constraints, options.criterion.for_orders, options.shortest)
    best: Changing | None = None
    scores: list[float] = []
    for cuts, _ in best_partitions(cost, options.max_changes):
        found = _settled(blocks, d, cuts, constraints, options, rng)
        scores.append(found.score)
        if best is None or found.score < best.score:
            best = found
        elif len(found.cuts) >= len(best.cuts) + _HOPELESS:
            break
    assert best is not None
    used = _used(best)
    if used != best.cuts:
        # A cut that nothing differs at was only in the way.
        best = _settled(blocks, d, used, constraints, options, rng)
    best = _without_mixed(blocks, d, best, constraints, options)
    if best.cuts:
        best = _Fits(blocks, d, best.cuts, constraints, options).improved(best, thorough=True)
    return replace(best, scores=tuple(scores))


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


def _fit_otherwise(
    found: Changing, node: int, constraints: EdgeConstraints, criterion: Criterion, **limits: tuple[int, int]
) -> NodeSteps:
    earlier = frozenset(found.order[: found.order.index(node)])
    price = criterion.c * float(np.log(found.grams.n.sum()))
    return fit_node(
        found.grams, node, *_candidates(node, earlier, len(found.nodes), constraints), price, **limits
    )


def _candidates(
    j: int, earlier: frozenset[int], d: int, constraints: EdgeConstraints
) -> tuple[list[int], list[int]]:
    """Columns that may be parents of a node after others, and those that must be."""
    allowed, required = constraints.allowed[:, j], constraints.required[:, j]
    may = [m for m in np.flatnonzero(allowed).tolist() if m >= d or m in earlier]
    return may, np.flatnonzero(required).tolist()


def _used(found: Changing) -> Cuts:
    """The cuts at which something differs."""
    places = {place for node in found.nodes for place in node.changes}
    return tuple(cut for s, cut in enumerate(found.cuts, start=1) if s in places)


def _without_mixed(
    blocks: Sequence[Moments], d: int, best: Changing, constraints: EdgeConstraints, options: ChangeOptions
) -> Changing:
    """The same without short segments that are only there because a change falls into one of their blocks.

    That block is a mixture of two networks. Without it there is nothing left that speaks for such a segment.
    """
    nothing = Moments.empty(blocks[0].q)
    for first, last in pairwise(best.cuts):
        if last - first > _SHORT:
            continue
        others = [cut for cut in best.cuts if cut not in (first, last)]
        for b in range(first, last):
            rest = [nothing if k == b else block for k, block in enumerate(blocks)]
            fewer = tuple(sorted([*others, b]))
            # A segment of one block is empty without it.
            kept = (
                np.inf
                if last - first == 1
                else _Fits(rest, d, best.cuts, constraints, options).of(best.order).score
            )
            if _Fits(rest, d, fewer, constraints, options).of(best.order).score < kept:
                found = [
                    _Fits(blocks, d, tuple(sorted([*others, cut])), constraints, options).of(best.order)
                    for cut in (b, b + 1)
                ]
                merged_once = min(found, key=lambda one: one.score)
                return _without_mixed(blocks, d, merged_once, constraints, options)
    return best


def _settled(
    blocks: Sequence[Moments],
    d: int,
    cuts: Cuts,
    constraints: EdgeConstraints,
    options: ChangeOptions,
    rng: np.random.Generator,
) -> Changing:
    """The best fit with that many cuts, from these on."""
    fits = _Fits(blocks, d, cuts, constraints, options)
    preferred, *others = _orders(fits, rng)
    best = fits.of(preferred)
    other = min((fits.of(order) for order in others), key=lambda one: one.score, default=best)
    if other.score < best.score - STRONG_EVIDENCE:
        best = other
    best = fits.improved(best)
    for _ in range(_MOST_DEALS):
        dealt = _dealt(blocks, best, options.shortest) if best.cuts else best.cuts
        if dealt == best.cuts:
            break
        again = _Fits(blocks, d, dealt, constraints, options)
        moved = again.improved(again.of(best.order))
        if moved.score > best.score - 1e-6:
            break
        best = moved
    return best


class _Fits:
    """Fits of one segmentation in any order; what a node has depends on who comes before it alone."""

    def __init__(
        self,
        blocks: Sequence[Moments],
        d: int,
        cuts: Cuts,
        constraints: EdgeConstraints,
        options: ChangeOptions,
    ) -> None:
        self.d, self.cuts, self.constraints, self.options = d, cuts, constraints, options
        self.segments = [merged(blocks[a:b]) for a, b in ranges_of(cuts, len(blocks))]
        self.grams = SegmentGrams.of(self.segments, d)
        self._known: dict[tuple[int, frozenset[int]], NodeSteps] = {}

    def of(self, order: tuple[int, ...]) -> Changing:
        """The fit within an order."""
        log_n = float(np.log(self.grams.n.sum()))
        nodes = [self._node(j, frozenset(order[: order.index(j)]), log_n) for j in range(self.d)]
        score = sum(node.score for node in nodes) + len(self.cuts) * self.options.change_price * log_n
        return Changing(self.cuts, order, tuple(nodes), self.grams, score)

    def _node(self, j: int, earlier: frozenset[int], log_n: float) -> NodeSteps:
        if (j, earlier) not in self._known:
            given = _candidates(j, earlier, self.d, self.constraints)
            self._known[j, earlier] = fit_node(self.grams, j, *given, self.options.criterion.c * log_n)
        return self._known[j, earlier]

    def improved(self, best: Changing, *, thorough: bool = False) -> Changing:
        """Move to neighbouring orders while the evidence for it is strong.

        Neighbours have two neighbours exchanged; if it is to be thorough, also the ends of an edge, wherever they are.
        """
        is_better = len(self.segments) > 1
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
            for i in np.flatnonzero(node.weights[:, : self.d].any(axis=0)).tolist():
                if node.changes or found.nodes[i].changes:
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


def _orders(fits: _Fits, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Orders to try, the one that the noise of the longest segment is for first."""
    options, limits, d = fits.options, fits.constraints, fits.d
    n_lags = len(fits.grams.scale) // d - 1
    asked: Any = options.noise_variance
    longest = max(fits.segments, key=lambda one: one.n)
    searches, noise = choose_noise(longest, d, n_lags, limits, options.criterion, asked, 0, rng)
    found = [searches[noise.kind][1].order]
    if len(fits.segments) > 1:
        for one in fits.segments:
            for kind in _KINDS if asked == "auto" else (asked,):
                search = OrderSearch(one, d, n_lags, limits, options.criterion.for_orders, kind)
                found.append(search.run(0, rng).order)
    return list(dict.fromkeys(found))


def _dealt(blocks: Sequence[Moments], found: Changing, shortest: float) -> Cuts:
    """The best cuts given what every segment has."""
    grams, n_segments, n_blocks = found.grams, len(found.cuts) + 1, len(blocks)
    loss = np.zeros((n_segments, n_blocks))
    for k, block in enumerate(blocks):
        products = block.about(grams.origin) / np.outer(grams.scale, grams.scale)
        totals = block.n * (block.mean - grams.origin) / grams.scale
        whole = np.block([[products, totals[:, None]], [totals[None], np.array([[block.n]])]])
        for j, node in enumerate(found.nodes):
            full = -node.weights.copy()
            full[:, j] += 1.0
            rss = np.einsum("sm,mk,sk->s", full, whole, full)
            loss[:, k] += rss / node.variances + block.n * np.log(node.variances)
    n = np.concatenate([[0.0], np.cumsum([block.n for block in blocks])])
    sums = np.concatenate([np.zeros((n_segments, 1)), np.cumsum(loss, axis=1)], axis=1)
    too_short = (n[None, :] - n[:, None]) < max(shortest, 1e-9)
    best, origins = np.where(too_short[0], np.inf, sums[0]), []
    for s in range(1, n_segments):
        total = best[:, None] + np.where(too_short, np.inf, sums[s][None, :] - sums[s][:, None])
        origins.append(np.argmin(total, axis=0))
        best = total.min(axis=0)
    if not np.isfinite(best[n_blocks]):
        return found.cuts
    cuts, end = [], n_blocks
    for origin in reversed(origins):
        end = int(origin[end])
        cuts.append(end)
    return tuple(reversed(cuts))
