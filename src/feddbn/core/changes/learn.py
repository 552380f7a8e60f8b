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
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.changes.fits import ChangeOptions, Changing, SegmentFits, merged
from feddbn.core.changes.partitions import Cuts, best_partitions
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.learn import STRONG_EVIDENCE, choose_noise
from feddbn.core.orders.search import Criterion, NoiseVariance, OrderSearch
from feddbn.core.statistics.moments import Moments

__all__ = ["learn_changes", "range_costs"]

_MOST_DEALS = 4
_KINDS: tuple[NoiseVariance, ...] = ("equal", "free")
_SHORT = 4
"""Segments of at most this many blocks are looked at for a block that is a mixture."""
_HOPELESS = 2
"""So many changes more without a better score end the search."""


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
        best = SegmentFits(blocks, d, best.cuts, constraints, options).improved(best, thorough=True)
    return replace(best, scores=tuple(scores))


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
                else SegmentFits(rest, d, best.cuts, constraints, options).of(best.order).score
            )
            if SegmentFits(rest, d, fewer, constraints, options).of(best.order).score < kept:
                found = [
                    SegmentFits(blocks, d, tuple(sorted([*others, cut])), constraints, options).of(best.order)
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
    fits = SegmentFits(blocks, d, cuts, constraints, options)
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
        again = SegmentFits(blocks, d, dealt, constraints, options)
        moved = again.improved(again.of(best.order))
        if moved.score > best.score - 1e-6:
            break
        best = moved
    return best


def _orders(fits: SegmentFits, rng: np.random.Generator) -> list[tuple[int, ...]]:
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
    n_segments, n_blocks = len(found.cuts) + 1, len(blocks)
    loss = found.losses(blocks)
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
