"""Edges that are the same in all segments unless the evidence is for a difference: sparse differences by BIC.

    minimise   sum_r n_r log(RSS_r / n_r) + price (columns + variances) + 2 log(d runs) (columns that differ)

Theory of operation: the columns that a node may have are ``z_m 1[a <= segment < b]``: a variable at a lag, acting in some
consecutive segments; where weights may drift also ``z_m f_k(t)``, f_k smooth functions of time that are public and take one
value in each block. An edge that never changes is one column, one that appears or vanishes is one, one that changes its
weight is two. Noise variances have runs of segments, too (r above), and so has the level: columns of the constant. Columns
are selected with the variances fixed (weighted least squares), by adding, removing and exchanging them; then the
variances and their runs follow, until nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.changes.partitions import Cuts, ranges_of
from feddbn.core.statistics.moments import Moments

__all__ = ["NodeSteps", "SegmentGrams", "fit_node", "scaled_products"]

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
        (S, K (q + 1), K (q + 1)): first those of the columns themselves, then of the columns times each function of time.
    origin, scale
        (q,).
    n_nodes
        Number of variables that may change.
    n_functions
        K, the constant among them.
    """

    n: FloatArray
    products: FloatArray
    origin: FloatArray
    scale: FloatArray
    n_nodes: int
    n_functions: int = 1

    @property
    def width(self) -> int:
        """Number of columns ``[z, 1]``."""
        return len(self.scale) + 1

    @classmethod
    def of(cls, segments: Sequence[Moments], n_nodes: int) -> SegmentGrams:
        """Of the moments of each segment."""
        whole = segments[0]
        for one in segments[1:]:
            whole = whole.merge(one)
        scale = np.sqrt(np.maximum(np.diag(whole.scatter) / whole.n, 1e-300))
        products = np.stack([scaled_products(one, whole.mean, scale) for one in segments])
        return cls(np.array([one.n for one in segments]), products, whole.mean, scale, n_nodes)

    @classmethod
    def drifting(
        cls, blocks: Sequence[Moments], cuts: Cuts, n_nodes: int, functions: FloatArray
    ) -> SegmentGrams:
        """Of the moments of each block, with (K, B) values of functions of time, of which the first is 1."""
        whole = cls.of(blocks, n_nodes)
        ranges = ranges_of(cuts, len(blocks))
        products = np.stack(
            [
                sum(
                    np.kron(np.outer(functions[:, k], functions[:, k]), whole.products[k])
                    for k in range(a, b)
                )
                for a, b in ranges
            ]
        )
        n = np.array([whole.n[a:b].sum() for a, b in ranges])
        return cls(n, products, whole.origin, whole.scale, n_nodes, len(functions))


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
        (S, K (q + 1)) weights of the columns, the last of each q + 1 that of the constant.
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
    n_functions: int = 1

    @property
    def width(self) -> int:
        """Number of columns ``[z, 1]``."""
        return int(self.weights.shape[1]) // self.n_functions

    @property
    def drifting(self) -> set[int]:
        """The columns of ``[z, 1]`` whose weights drift."""
        return {m % self.width for m, _, _ in self.columns if m >= self.width}

    @property
    def differs(self) -> bool:
        """Whether anything of this node changes or drifts."""
        return bool(self.changes or self.drifting)

    @property
    def changes(self) -> set[int]:
        """The segments at whose beginning something of this node is different."""
        ends = {end for _, a, b in self.columns for end in (a, b)}
        return (ends | set(self.variance_cuts)) - {0, len(self.rss)}


def fit_node(
    grams: SegmentGrams,
    node: int,
    candidates: Sequence[int],
    required: Sequence[int],
    price: float,
    unchanged: tuple[int, int] | None = None,
    absent: tuple[int, int] | None = None,
    steady: int | None = None,
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
    unchanged
        (column, segment): no difference of that column at the beginning of that segment.
    absent
        (column, segment): that column does not act in that segment.
    steady
        A column that does not drift.
    """
    pool = _Pool(grams, node, candidates, required, price)
    pool.restrict(unchanged, absent, steady)
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
    ) -> None:
        self.grams, self.node, self.price = grams, node, price
        n_segments, width = len(grams.n), grams.width
        constant = width - 1
        runs = [(a, b) for a in range(n_segments) for b in range(a + 1, n_segments + 1)]
        self.columns = [(constant, a, n_segments) for a in range(n_segments)]
        self.columns += [(m, a, b) for m in candidates for a, b in runs]
        self.columns += [
            (k * width + m, 0, n_segments)
            for k in range(1, grams.n_functions)
            for m in (constant, *candidates)
        ]
        # A difference is one of many that could be: any node's, in any run of segments (as in the extended BIC).
        n_ways = len(runs) + grams.n_functions - 1
        self.further = 2.0 * float(np.log(grams.n_nodes * n_ways))
        self.whole = {(m, 0, n_segments) for m in (constant, *required)}

    def restrict(
        self, unchanged: tuple[int, int] | None, absent: tuple[int, int] | None, steady: int | None
    ) -> None:
        """Leave columns out, and settle the rest."""
        width, n_segments = self.grams.width, len(self.grams.n)
        if unchanged is not None:
            still, start = unchanged
            self.columns = [(m, a, b) for m, a, b in self.columns if m != still or start not in (a, b)]
        if absent is not None:
            lacks, place = absent
            self.columns = [(m, a, b) for m, a, b in self.columns if m % width != lacks or not a <= place < b]
        if steady is not None:
            self.columns = [(m, a, b) for m, a, b in self.columns if m < width or m % width != steady]
        is_partial = np.array([(a, b) != (0, n_segments) or m >= width for m, a, b in self.columns])
        self.costs = self.price + self.further * is_partial
        self.always = [k for k, column in enumerate(self.columns) if column in self.whole]
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
            rss = self._rss(weights)
            cuts, then = _variance_runs(rss, self.grams.n, self.price)
            if np.allclose(then, variances, rtol=1e-7, atol=0.0):
                break
            variances = then
        fit = float(self.grams.n @ np.log(then))
        score = fit + float(self.costs[chosen].sum()) + self.price * len(cuts)
        columns = tuple(sorted(self.columns[k] for k in chosen))
        return NodeSteps(weights, columns, then, cuts, rss, score, self.grams.n_functions)

    def _rss(self, weights: FloatArray) -> FloatArray:
        full = -weights
        full[:, self.node] += 1.0
        rss: FloatArray = np.einsum("sm,smk,sk->s", full, self.grams.products, full)
        return np.maximum(rss, _TINY * self.grams.products[:, self.node, self.node])

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
    best: tuple[float, tuple[int, ...], FloatArray] | None = None
    for code in range(1 << (n_segments - 1)):
        cuts = tuple(s + 1 for s in range(n_segments - 1) if code >> s & 1)
        variances = np.empty(n_segments)
        for a, b in ranges_of(cuts, n_segments):
            variances[a:b] = rss[a:b].sum() / n[a:b].sum()
        score = float(n @ np.log(variances)) + price * len(cuts)
        if best is None or score < best[0] - 1e-9:
            best = score, cuts, variances
    assert best is not None
    return best[1], best[2]
