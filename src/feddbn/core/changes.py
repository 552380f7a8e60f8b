"""Where a network changes and how, from the moments of consecutive blocks of rows.

1. The cost of a range of blocks is the score of the best network on its merged moments; dynamic programming over ranges
   proposes the best cuts for 0, 1, 2, ... changes.
2. For each number of changes every node gets the edges, levels and variances that differ between segments only where
   that pays, within one order of the variables for all segments. In a wrong order the change of one
   node looks like changes of several, so the order with the best total is taken. Given all this, blocks are dealt out
   anew, by dynamic programming again, until the cuts stay.
3. The number of changes with the best total score is taken; each change has a price of its own, for its place.

Two steps underneath:

    cuts     minimise  sum of cost[a, b] over consecutive ranges of blocks a..b-1    for every number of cuts
    fits     minimise  sum_r n_r log(RSS_r / n_r) + price (columns + variances) + 2 log(d runs) (columns that differ)

Edges are the same in all segments unless the evidence is for a difference: sparse differences by BIC.

Theory of operation: the columns that a node may have are ``z_m 1[a <= segment < b]``: a variable at a lag, acting in some
consecutive segments. An edge that never changes is one column, one that appears or vanishes is one, one that changes its
weight is two. Noise variances have runs of segments, too (r above), and so has the level: columns of the constant.
Columns are selected with the variances fixed (weighted least squares), by adding, removing and exchanging them; then the
variances and their runs follow, until nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray, IntArray
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.orders.learn import STRONG_EVIDENCE, choose_noise
from feddbn.core.orders.parents import Criterion
from feddbn.core.orders.search import NoiseVariance, OrderSearch
from feddbn.core.statistics.moments import Moments

Cuts = tuple[int, ...]
"""First blocks of the second, third, ... range."""


def ranges_of(cuts: Cuts, n_blocks: int) -> list[tuple[int, int]]:
    """First block and the block after the last, of every range."""
    edges = (0, *cuts, n_blocks)
    return list(pairwise(edges))


def best_partitions(cost: FloatArray, most_cuts: int) -> list[tuple[Cuts, float]]:
    """For 0, 1, ... cuts the best ones and their total cost, as long as there are any.

    Parameters
    ----------
    cost
        (B + 1, B + 1), ``cost[a, b]`` of the blocks a..b-1; infinite where a range may not be.
    most_cuts
        Largest number of cuts.
    """
    n = len(cost) - 1
    best = cost[0].copy()
    origins: list[IntArray] = []
    found: list[tuple[Cuts, float]] = []
    for k in range(min(most_cuts, max(n - 1, 0)) + 1):
        if k:
            # total[a, b]: the best up to block a with k - 1 cuts, then one range up to b.
            total = best[:, None] + cost
            origins.append(np.argmin(total, axis=0))
            best = total.min(axis=0)
        if not np.isfinite(best[n]):
            # A range of all blocks may be too short only if there are no blocks.
            continue
        found.append((traced_back(origins, n), float(best[n])))
    return found


def traced_back(origins: Sequence[IntArray], end: int) -> Cuts:
    """The cuts of the best way to block `end`; of each range, where it began for each end."""
    cuts: list[int] = []
    for origin in reversed(origins):
        end = int(origin[end])
        cuts.append(end)
    return tuple(reversed(cuts))


def merged(blocks: Sequence[Moments]) -> Moments:
    """The moments of several blocks together."""
    return reduce(Moments.merge, blocks)


_MOST_TURNS = 8
_MOST_MOVES = 200
_TINY = 1e-9
_COLLINEAR = 1e-8


@dataclass(frozen=True)
class SegmentGrams:
    """Products of the columns ``[z, 1]`` in each segment, z about one origin and in one scale for all segments.

    Attributes
    ----------
    n
        (S,) rows.
    products
        (S, q + 1, q + 1).
    origin, scale
        (q,).
    n_nodes
        Number of variables that may change.
    """

    n: FloatArray
    products: FloatArray
    origin: FloatArray
    scale: FloatArray
    n_nodes: int

    @classmethod
    def of(cls, segments: Sequence[Moments], n_nodes: int) -> SegmentGrams:
        """Of the moments of each segment."""
        whole = merged(segments)
        scale = np.sqrt(np.maximum(np.diag(whole.scatter) / whole.n, 1e-300))
        products = np.stack([scaled_products(one, whole.mean, scale) for one in segments])
        return cls(np.array([one.n for one in segments]), products, whole.mean, scale, n_nodes)


def scaled_products(moments: Moments, origin: FloatArray, scale: FloatArray) -> FloatArray:
    """(q + 1, q + 1) products of ``[z, 1]``, z about an origin and in a scale."""
    q = moments.q
    products = np.empty((q + 1, q + 1))
    products[:-1, :-1] = moments.about(origin) / np.outer(scale, scale)
    products[:-1, -1] = products[-1, :-1] = moments.n * (moments.mean - origin) / scale
    products[-1, -1] = moments.n
    return products


@dataclass(frozen=True)
class NodeSteps:
    """What a node has in each segment, in scaled units.

    Attributes
    ----------
    weights
        (S, q + 1) weights of the columns, the last one that of the constant.
    columns
        (m, a, b): which columns act in the segments a..b-1.
    variances
        (S,) noise variances; equal over runs of segments.
    variance_cuts
        Where they change.
    rss
        (S,) residual sums of squares.
    score
        The criterion above.
    """

    weights: FloatArray
    columns: tuple[tuple[int, int, int], ...]
    variances: FloatArray
    variance_cuts: tuple[int, ...]
    rss: FloatArray
    score: float

    @property
    def changes(self) -> set[int]:
        """The segments at whose beginning something of this node is different."""
        ends = {end for _, a, b in self.columns for end in (a, b)}
        return (ends | set(self.variance_cuts)) - {0, len(self.rss)}


@dataclass(frozen=True)
class Limits:
    """What a node may not have.

    Attributes
    ----------
    unchanged
        (column, segment): no difference of that column at the beginning of that segment.
    absent
        (column, segment): that column does not act in that segment.
    """

    unchanged: tuple[int, int] | None = None
    absent: tuple[int, int] | None = None

    def allow(self, column: tuple[int, int, int]) -> bool:
        """Whether a column (m, a, b) may act in the segments a..b-1."""
        m, a, b = column
        if self.unchanged is not None and m == self.unchanged[0] and self.unchanged[1] in (a, b):
            return False
        return self.absent is None or m != self.absent[0] or not a <= self.absent[1] < b


def fit_node(
    grams: SegmentGrams,
    node: int,
    candidates: Sequence[int],
    required: Sequence[int],
    price: float,
    limits: Limits | None = None,
) -> NodeSteps:
    """Return the best steps of one node that are found.

    Parameters
    ----------
    candidates
        Columns of z that may be its parents.
    required
        Those of them that are parents in every segment.
    price
        Of every column and every further variance; a column that acts in some segments only costs more.
    """
    pool = _Pool(grams, node, candidates, required, price, limits or Limits())
    variances = np.full(len(grams.n), grams.products[:, node, node].sum() / grams.n.sum())
    chosen = list(pool.always)
    best: NodeSteps | None = None
    for _ in range(_MOST_TURNS):
        chosen = pool.select(variances, chosen)
        found = pool.steps(variances, chosen)
        if best is not None and found.score > best.score - 1e-6:
            break
        best, variances = found, found.variances
    assert best is not None
    return best


class _Pool:
    """The columns a node may have."""

    def __init__(
        self,
        grams: SegmentGrams,
        node: int,
        candidates: Sequence[int],
        required: Sequence[int],
        price: float,
        limits: Limits,
    ) -> None:
        self.grams, self.node, self.price = grams, node, price
        n_segments, constant = len(grams.n), len(grams.scale)
        runs = [(a, b) for a in range(n_segments) for b in range(a + 1, n_segments + 1)]
        columns = [(constant, a, n_segments) for a in range(n_segments)]
        columns += [(m, a, b) for m in candidates for a, b in runs]
        self.columns = [column for column in columns if limits.allow(column)]
        # A difference is one of many that could be: any node's, in any run of segments (as in the extended BIC).
        further = 2.0 * float(np.log(grams.n_nodes * len(runs)))
        is_partial = np.array([(a, b) != (0, n_segments) for _, a, b in self.columns])
        self.costs = price + further * is_partial
        whole = {(m, 0, n_segments) for m in (constant, *required)}
        self.always = [k for k, column in enumerate(self.columns) if column in whole]
        self.m = np.array([m for m, _, _ in self.columns])
        self.acts = np.array(
            [[a <= s < b for s in range(n_segments)] for _, a, b in self.columns], dtype=float
        )

    def select(self, variances: FloatArray, chosen: list[int]) -> list[int]:
        """Add, remove and exchange columns while that pays."""
        normal, right = self._normal(variances)
        kept = set(self.always)
        chosen = list(chosen)

        def worth(some: list[int]) -> float:
            return _fit(normal, right, some) - float(self.costs[some].sum())

        value = worth(chosen)
        for _ in range(_MOST_MOVES):
            moves: list[tuple[float, list[int]]] = []
            gain, column = _best_addition(normal, right, chosen, self.costs)
            if column >= 0:
                moves.append((value + gain, [*chosen, column]))
            for k in chosen:
                if k in kept:
                    continue
                rest = [other for other in chosen if other != k]
                without = worth(rest)
                moves.append((without, rest))
                gain, column = _best_addition(normal, right, rest, self.costs)
                if column >= 0:
                    moves.append((without + gain, [*rest, column]))
            moves += [(worth(some), some) for some in self._joined(chosen, kept)]
            best, then = max(moves, key=lambda move: move[0], default=(-np.inf, chosen))
            if best <= value + 1e-7:
                break
            value, chosen = best, then
        return chosen

    def _joined(self, chosen: list[int], kept: set[int]) -> list[list[int]]:
        """Two columns of one variable replaced by another one of it."""
        found = []
        for place, k in enumerate(chosen):
            for other in chosen[place + 1 :]:
                if self.m[k] != self.m[other] or k in kept or other in kept:
                    continue
                rest = [one for one in chosen if one not in (k, other)]
                found += [[*rest, column] for column in np.flatnonzero(self.m == self.m[k]).tolist()]
        return found

    def steps(self, variances: FloatArray, chosen: list[int]) -> NodeSteps:
        """What these columns give, with variances that fit them."""
        for _ in range(20):
            normal, right = self._normal(variances, chosen)
            solved = np.linalg.lstsq(normal, right, rcond=None)[0]
            weights = np.zeros((len(self.grams.n), self.grams.products.shape[1]))
            for k, value in zip(chosen, solved, strict=True):
                weights[:, self.m[k]] += self.acts[k] * value
            full = -weights
            full[:, self.node] += 1.0
            rss = np.einsum("sm,smk,sk->s", full, self.grams.products, full)
            rss = np.maximum(rss, _TINY * self.grams.products[:, self.node, self.node])
            cuts, then = _variance_runs(rss, self.grams.n, self.price)
            if np.allclose(then, variances, rtol=1e-7, atol=0.0):
                break
            variances = then
        fit = float(self.grams.n @ np.log(then))
        score = fit + float(self.costs[chosen].sum()) + self.price * len(cuts)
        columns = tuple(sorted(self.columns[k] for k in chosen))
        return NodeSteps(weights, columns, then, cuts, rss, score)

    def _normal(
        self, variances: FloatArray, chosen: Sequence[int] | None = None
    ) -> tuple[FloatArray, FloatArray]:
        m, acts = (self.m, self.acts) if chosen is None else (self.m[chosen], self.acts[chosen])
        normal, right = np.zeros((len(m), len(m))), np.zeros(len(m))
        for s, variance in enumerate(variances):
            on = np.flatnonzero(acts[:, s])
            here = m[on]
            normal[np.ix_(on, on)] += self.grams.products[s][np.ix_(here, here)] / variance
            right[on] += self.grams.products[s][here, self.node] / variance
        return normal, right


def _fit(normal: FloatArray, right: FloatArray, chosen: list[int]) -> float:
    """What the chosen columns explain."""
    if not chosen:
        return 0.0
    part = normal[np.ix_(chosen, chosen)]
    return float(right[chosen] @ np.linalg.lstsq(part, right[chosen], rcond=None)[0])


def _best_addition(
    normal: FloatArray, right: FloatArray, chosen: list[int], costs: FloatArray
) -> tuple[float, int]:
    """What the best further column explains beyond its cost, and which it is; -1 if there is none."""
    total = np.diag(normal)
    if chosen:
        inside = normal[chosen]
        solved = np.linalg.lstsq(inside[:, chosen], np.column_stack([inside, right[chosen]]), rcond=None)[0]
        spread = total - np.einsum("km,km->m", inside, solved[:, :-1])
        left = right - inside.T @ solved[:, -1]
    else:
        spread, left = total, right
    free = spread > _COLLINEAR * np.maximum(total, 1e-300)
    free[chosen] = False
    if not free.any():
        return 0.0, -1
    gains = np.where(free, left * left / np.where(free, spread, 1.0) - costs, -np.inf)
    best = int(np.argmax(gains))
    return float(gains[best]), best


def _variance_runs(rss: FloatArray, n: FloatArray, price: float) -> tuple[tuple[int, ...], FloatArray]:
    """Where variances change, and the variance of each segment."""
    n_segments = len(n)
    cost = np.full((n_segments + 1, n_segments + 1), np.inf)
    for a in range(n_segments):
        rows = np.cumsum(n[a:])
        cost[a, a + 1 :] = rows * np.log(np.cumsum(rss[a:]) / rows)
    # The first of equally good ones has the fewest changes.
    partitions = best_partitions(cost, n_segments - 1)
    scores = [total + price * len(cuts) for cuts, total in partitions]
    cuts = partitions[int(np.argmin(np.round(scores, 9)))][0]
    variances = np.empty(n_segments)
    for a, b in ranges_of(cuts, n_segments):
        variances[a:b] = rss[a:b].sum() / n[a:b].sum()
    return cuts, variances


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

    def losses(self, blocks: Sequence[Moments]) -> FloatArray:
        """(S, B) twice the negative log-likelihood of each block in each segment."""
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

    def loss_under(
        self, node: int, limits: Limits, constraints: EdgeConstraints, criterion: Criterion
    ) -> float:
        """By how much the score of a node is worse if something may not be."""
        earlier = frozenset(self.order[: self.order.index(node)])
        price = criterion.c * float(np.log(self.grams.n.sum()))
        given = candidates_of(node, earlier, len(self.nodes), constraints)
        return fit_node(self.grams, node, *given, price, limits).score - self.nodes[node].score


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
        self, blocks: Sequence[Moments], cuts: Cuts, constraints: EdgeConstraints, learner: CutLearner
    ) -> None:
        d = constraints.d
        self.d, self.cuts, self.constraints, self.learner = d, cuts, constraints, learner
        self.segments = [merged(blocks[a:b]) for a, b in ranges_of(cuts, len(blocks))]
        self.grams = SegmentGrams.of(self.segments, d)
        self._known: dict[tuple[int, frozenset[int]], NodeSteps] = {}

    def of(self, order: tuple[int, ...]) -> Changing:
        """The fit within an order."""
        log_n = float(np.log(self.grams.n.sum()))
        nodes = [self._node(j, frozenset(order[: order.index(j)]), log_n) for j in range(self.d)]
        score = sum(node.score for node in nodes) + len(self.cuts) * self.learner.change_price * log_n
        return Changing(self.cuts, order, tuple(nodes), self.grams, score)

    def _node(self, j: int, earlier: frozenset[int], log_n: float) -> NodeSteps:
        if (j, earlier) not in self._known:
            given = candidates_of(j, earlier, self.d, self.constraints)
            self._known[j, earlier] = fit_node(self.grams, j, *given, self.learner.criterion.c * log_n)
        return self._known[j, earlier]

    def improved(self, best: Changing, *, thorough: bool = False) -> Changing:
        """Move to neighbouring orders while the evidence for it is strong.

        Neighbours have two neighbours exchanged; if it is to be thorough, also the ends of an edge, wherever they are.
        """
        is_better = len(self.segments) > 1
        while is_better:
            is_better = False
            now = best.order
            moves = [(*now[:k], now[k + 1], now[k], *now[k + 2 :]) for k in range(self.d - 1)]
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
            for i in sorted({m for m, _, _ in node.columns if m < self.d}):
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


_MOST_DEALS = 4
_KINDS: tuple[NoiseVariance, ...] = ("equal", "free")
_SHORT = 4
"""Segments of at most this many blocks are looked at for a block that is a mixture."""
_HOPELESS = 2
"""So many changes more without a better score end the search."""


def range_costs(
    blocks: Sequence[Moments], constraints: EdgeConstraints, criterion: Criterion, shortest: float
) -> FloatArray:
    """(B + 1, B + 1) score of the best network found on each range of blocks; infinite where it is too short.

    All blocks together never are. Networks are within the best order of all blocks: any order can hold any network, some
    with more edges.
    """
    n_blocks, q = len(blocks), blocks[0].q
    cost = np.full((n_blocks + 1, n_blocks + 1), np.inf)
    whole = OrderSearch(merged(blocks), constraints, criterion, "free")
    start = whole.run(0, np.random.default_rng(0))
    for a in range(n_blocks):
        total = Moments.empty(q)
        for b in range(a + 1, n_blocks + 1):
            total = total.merge(blocks[b - 1])
            if total.n >= shortest or b - a == n_blocks:
                search = OrderSearch(total, constraints, criterion, "free")
                cost[a, b] = search.select_edges(start, criterion).score
    return cost


@dataclass(frozen=True)
class CutLearner:
    """Where and how a network changes: how changes are looked for.

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

    def learn(self, gram: Sequence[Moments], limits: EdgeConstraints, rng: np.random.Generator) -> Changing:
        """Return the segments of consecutive blocks of time, and what differs between them."""
        return _CutSearch(self, gram, limits).run(rng)


class _CutSearch:
    """A search for changes in some blocks."""

    def __init__(self, learner: CutLearner, blocks: Sequence[Moments], limits: EdgeConstraints) -> None:
        self.learner, self.blocks, self.limits = learner, blocks, limits

    def fits(self, cuts: Cuts, blocks: Sequence[Moments] | None = None) -> SegmentFits:
        """Fits of one segmentation, of all blocks or of others in their place."""
        given = self.blocks if blocks is None else blocks
        return SegmentFits(given, cuts, self.limits, self.learner)

    def run(self, rng: np.random.Generator) -> Changing:
        """The best cuts, and what differs between them."""
        learner = self.learner
        # A range is charged for its edges as orders are: at the lower price.
        cost = range_costs(self.blocks, self.limits, learner.criterion.for_orders, learner.shortest)
        best: Changing | None = None
        scores: list[float] = []
        for cuts, _ in best_partitions(cost, learner.max_changes):
            found = self._settled(cuts, rng)
            scores.append(found.score)
            if best is None or found.score < best.score:
                best = found
            elif len(found.cuts) >= len(best.cuts) + _HOPELESS:
                break
        assert best is not None
        used = _used(best)
        if used != best.cuts:
            # A cut that nothing differs at was only in the way.
            best = self._settled(used, rng)
        best = self._without_mixed(best)
        if best.cuts:
            best = self.fits(best.cuts).improved(best, thorough=True)
        return replace(best, scores=tuple(scores))

    def _without_mixed(self, best: Changing) -> Changing:
        """The same without short segments that are only there because a change falls into one of their blocks.

        That block is a mixture of two networks. Without it there is nothing left that speaks for such a segment.
        """
        nothing, order = Moments.empty(self.blocks[0].q), best.order
        for first, last in pairwise(best.cuts):
            if last - first > _SHORT:
                continue
            others = [cut for cut in best.cuts if cut not in (first, last)]
            for b in range(first, last):
                rest = [nothing if k == b else block for k, block in enumerate(self.blocks)]
                fewer = tuple(sorted([*others, b]))
                # A segment of one block is empty without it.
                kept = np.inf if last - first == 1 else self.fits(best.cuts, rest).of(order).score
                if self.fits(fewer, rest).of(order).score < kept:
                    found = [self.fits(tuple(sorted([*others, cut]))).of(order) for cut in (b, b + 1)]
                    return self._without_mixed(min(found, key=lambda one: one.score))
        return best

    def _settled(self, cuts: Cuts, rng: np.random.Generator) -> Changing:
        """The best fit with that many cuts, from these on."""
        fits = self.fits(cuts)
        preferred, *others = _orders(fits, rng)
        best = fits.of(preferred)
        other = min((fits.of(order) for order in others), key=lambda one: one.score, default=best)
        if other.score < best.score - STRONG_EVIDENCE:
            best = other
        best = fits.improved(best)
        for _ in range(_MOST_DEALS):
            dealt = _dealt(self.blocks, best, self.learner.shortest) if best.cuts else best.cuts
            if dealt == best.cuts:
                break
            again = self.fits(dealt)
            moved = again.improved(again.of(best.order))
            if moved.score > best.score - 1e-6:
                break
            best = moved
        return best


def _used(found: Changing) -> Cuts:
    """The cuts at which something differs."""
    places = {place for node in found.nodes for place in node.changes}
    return tuple(cut for s, cut in enumerate(found.cuts, start=1) if s in places)


def _orders(fits: SegmentFits, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Orders to try, the one that the noise of the longest segment is for first."""
    learner, limits = fits.learner, fits.constraints
    asked: Any = learner.noise_variance
    longest = max(fits.segments, key=lambda one: one.n)
    searches, noise = choose_noise(longest, limits, learner.criterion, asked, 0, rng)
    found = [searches[noise.kind][1].order]
    if len(fits.segments) > 1:
        for one in fits.segments:
            for kind in _KINDS if asked == "auto" else (asked,):
                search = OrderSearch(one, limits, learner.criterion.for_orders, kind)
                found.append(search.run(0, rng).order)
    return list(dict.fromkeys(found))


def _dealt(blocks: Sequence[Moments], found: Changing, shortest: float) -> Cuts:
    """The best cuts given what every segment has."""
    loss = found.losses(blocks)
    # What the first 0, 1, ... blocks would cost in each segment.
    sums = np.concatenate([np.zeros((len(loss), 1)), np.cumsum(loss, axis=1)], axis=1)
    n = np.concatenate([[0.0], np.cumsum([block.n for block in blocks])])
    too_short = (n[None, :] - n[:, None]) < max(shortest, 1e-9)
    best, origins = np.where(too_short[0], np.inf, sums[0]), []
    for of_segment in sums[1:]:
        total = best[:, None] + np.where(too_short, np.inf, of_segment[None, :] - of_segment[:, None])
        origins.append(np.argmin(total, axis=0))
        best = total.min(axis=0)
    return traced_back(origins, len(best) - 1) if np.isfinite(best[-1]) else found.cuts
