"""Where a network changes and how, from the moments of consecutive blocks of rows.

1. The cost of a range of blocks is the score of the best network on its merged moments; dynamic programming over ranges
   proposes the best cuts for 0, 1, 2, ... changes.
2. For each number of changes every node gets the edges, levels and variances that differ between segments only where
   that pays, within one order of the variables for all segments. In a wrong order the change of one
   node looks like changes of several, so the order with the best total is taken. Given all this, blocks are dealt out
   anew, by dynamic programming again, until the cuts stay.
3. The number of changes with the best total score is taken; each change has a price of its own, for its place.

Sites that change at times of their own (`learn_regimes`): every site goes through the same regimes in the same order,
some perhaps only through the first or the last of them. In turn

    regimes    what all sites sum up in the same regime are the moments of a segment
    cuts       given the networks of the regimes every site deals out its own blocks, by dynamic programming

until the cuts stay. The first cuts are those that each site's own blocks propose, and for all sites those in equal parts.
The number of regimes with the best total score is taken; each has a price, and each site's cut that of its place.

Drift: weights that change slowly, from the same moments of blocks:

    w(t) = w_0 + sum_k w_k f_k(t),    f_k ramps up and down, a parabola and a cubic of time, one value in each block

A column ``z f_k`` is constant times z within a block, so its products are sums over blocks of what is known already:
drift needs no further sum. Columns of drift compete with those of steps in one regression per variable; with drift, cuts
that it explains are taken back one by one while that pays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.changes.fits import (
    ChangeOptions,
    Changing,
    Cuts,
    SegmentFits,
    best_partitions,
    merged,
    ranges_of,
    traced_back,
)
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.learn import STRONG_EVIDENCE, choose_noise
from feddbn.core.orders.parents import Criterion
from feddbn.core.orders.search import NoiseVariance, OrderSearch
from feddbn.core.statistics.moments import Moments

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


def learn_changes(
    blocks: Sequence[Moments],
    constraints: EdgeConstraints,
    options: ChangeOptions,
    rng: np.random.Generator,
) -> Changing:
    """Return the segments, and what differs between them."""
    # A range is charged for its edges as orders are: at the lower price.
    cost = range_costs(blocks, constraints, options.criterion.for_orders, options.shortest)
    best: Changing | None = None
    scores: list[float] = []
    for cuts, _ in best_partitions(cost, options.max_changes):
        found = _settled(blocks, cuts, constraints, options, rng)
        scores.append(found.score)
        if best is None or found.score < best.score:
            best = found
        elif len(found.cuts) >= len(best.cuts) + _HOPELESS:
            break
    assert best is not None
    used = _used(best)
    if used != best.cuts:
        # A cut that nothing differs at was only in the way.
        best = _settled(blocks, used, constraints, options, rng)
    best = _without_mixed(blocks, best, constraints, options)
    if best.cuts:
        best = SegmentFits(blocks, best.cuts, constraints, options).improved(best, thorough=True)
    return replace(best, scores=tuple(scores))


def _used(found: Changing) -> Cuts:
    """The cuts at which something differs."""
    places = {place for node in found.nodes for place in node.changes}
    return tuple(cut for s, cut in enumerate(found.cuts, start=1) if s in places)


def _without_mixed(
    blocks: Sequence[Moments], best: Changing, constraints: EdgeConstraints, options: ChangeOptions
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
                else SegmentFits(rest, best.cuts, constraints, options).of(best.order).score
            )
            if SegmentFits(rest, fewer, constraints, options).of(best.order).score < kept:
                found = [
                    SegmentFits(blocks, tuple(sorted([*others, cut])), constraints, options).of(best.order)
                    for cut in (b, b + 1)
                ]
                merged_once = min(found, key=lambda one: one.score)
                return _without_mixed(blocks, merged_once, constraints, options)
    return best


def _settled(
    blocks: Sequence[Moments],
    cuts: Cuts,
    constraints: EdgeConstraints,
    options: ChangeOptions,
    rng: np.random.Generator,
) -> Changing:
    """The best fit with that many cuts, from these on."""
    fits = SegmentFits(blocks, cuts, constraints, options)
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
        again = SegmentFits(blocks, dealt, constraints, options)
        moved = again.improved(again.of(best.order))
        if moved.score > best.score - 1e-6:
            break
        best = moved
    return best


def _orders(fits: SegmentFits, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Orders to try, the one that the noise of the longest segment is for first."""
    options, limits = fits.options, fits.constraints
    asked: Any = options.noise_variance
    longest = max(fits.segments, key=lambda one: one.n)
    searches, noise = choose_noise(longest, limits, options.criterion, asked, 0, rng)
    found = [searches[noise.kind][1].order]
    if len(fits.segments) > 1:
        for one in fits.segments:
            for kind in _KINDS if asked == "auto" else (asked,):
                search = OrderSearch(one, limits, options.criterion.for_orders, kind)
                found.append(search.run(0, rng).order)
    return list(dict.fromkeys(found))


def _dealt(blocks: Sequence[Moments], found: Changing, shortest: float) -> Cuts:
    """The best cuts given what every segment has."""
    sums = _summed_losses(blocks, found)
    n = np.concatenate([[0.0], np.cumsum([block.n for block in blocks])])
    too_short = (n[None, :] - n[:, None]) < max(shortest, 1e-9)

    def reached(s: int, best: FloatArray) -> FloatArray:
        between = np.where(too_short, np.inf, sums[s][None, :] - sums[s][:, None])
        return np.asarray(best[:, None] + between)

    cuts = _traced(np.where(too_short[0], np.inf, sums[0]), len(sums), reached)
    return found.cuts if cuts is None else cuts


def _summed_losses(blocks: Sequence[Moments], found: Changing) -> FloatArray:
    """(segments, B + 1) what the first 0, 1, ... blocks would cost in each segment."""
    loss = found.losses(blocks)
    return np.concatenate([np.zeros((len(loss), 1)), np.cumsum(loss, axis=1)], axis=1)


def _traced(
    best: FloatArray, n_segments: int, reached: Callable[[int, FloatArray], FloatArray]
) -> Cuts | None:
    """The cuts of the cheapest way through all segments; None if there is none.

    `best` is what the first segment costs up to each block; `reached` what the s-th costs from each block to each.
    """
    origins = []
    for s in range(1, n_segments):
        total = reached(s, best)
        origins.append(np.argmin(total, axis=0))
        best = total.min(axis=0)
    if not np.isfinite(best[-1]):
        return None
    return traced_back(origins, len(best) - 1)


SiteBlocks = Mapping[str, Sequence[Moments]]
_MOST_ROUNDS = 12


@dataclass(frozen=True)
class Regimes:
    """Networks that sites go through.

    Attributes
    ----------
    changing
        One segment for each regime.
    moments
        Of all rows in each regime.
    cuts
        Site -> first blocks of the second, third, ... regime; where two are the same, or one is 0 or the number of blocks,
        the site does not go through a regime.
    score
        Total criterion.
    """

    changing: Changing
    moments: tuple[Moments, ...]
    cuts: Mapping[str, Cuts]
    score: float


def learn_regimes(
    sites: SiteBlocks,
    constraints: EdgeConstraints,
    options: ChangeOptions,
    rng: np.random.Generator,
) -> Regimes:
    """Return the regimes, and every site's cuts."""
    whole = merged([block for blocks in sites.values() for block in blocks])
    search = OrderSearch(whole, constraints, options.criterion.for_orders, "free")
    order = search.run(0, rng).order
    own = {name: dict(_proposals(blocks, constraints, options)) for name, blocks in sites.items()}
    best: Regimes | None = None
    for n_cuts in range(options.max_changes + 1):
        even: dict[str, Cuts] = {
            name: tuple(round(len(blocks) * (k + 1) / (n_cuts + 1)) for k in range(n_cuts))
            for name, blocks in sites.items()
        }
        starts = [even, {name: own[name].get(n_cuts, even[name]) for name in sites}]
        found = [
            one
            for cuts in starts
            if (one := _settled_regimes(sites, cuts, order, constraints, options)) is not None
        ]
        if best is not None and (not found or min(one.score for one in found) >= best.score):
            break
        best = min(found, key=lambda one: one.score)
    assert best is not None
    return best


def _proposals(
    blocks: Sequence[Moments], constraints: EdgeConstraints, options: ChangeOptions
) -> list[tuple[int, Cuts]]:
    """What one site's own blocks propose for each number of cuts."""
    n, filled = sum(block.n for block in blocks), sum(block.n > 0 for block in blocks)
    if n == 0:
        return []
    shortest = max(2.0 * blocks[0].q, 2.0 * n / filled)
    cost = range_costs(blocks, constraints, options.criterion.for_orders, shortest)
    return [(len(cuts), cuts) for cuts, _ in best_partitions(cost, options.max_changes)]


def _settled_regimes(
    sites: SiteBlocks,
    cuts: Mapping[str, Cuts],
    order: tuple[int, ...],
    constraints: EdgeConstraints,
    options: ChangeOptions,
) -> Regimes | None:
    """The best regimes and cuts from these on; None if a regime is left with too few rows."""
    best: Regimes | None = None
    for _ in range(_MOST_ROUNDS):
        moments = _summed(sites, cuts)
        if min(one.n for one in moments) < options.shortest and len(moments) > 1:
            break
        fits = SegmentFits(moments, tuple(range(1, len(moments))), constraints, options)
        changing = fits.improved(fits.of(order))
        order = changing.order
        score = changing.score + _price(sites, cuts)
        if best is not None and score >= best.score - 1e-6:
            break
        best = Regimes(changing, moments, cuts, score)
        cuts = {name: _dealt_regimes(blocks, changing) for name, blocks in sites.items()}
    if best is not None and len(best.moments) > 1:
        fits = SegmentFits(best.moments, best.changing.cuts, constraints, options)
        changing = fits.improved(best.changing, thorough=True)
        best = replace(best, changing=changing, score=changing.score + _price(sites, best.cuts))
    return best


def _price(sites: SiteBlocks, cuts: Mapping[str, Cuts]) -> float:
    """Of the places of all cuts."""
    return sum(2.0 * len(cuts[name]) * float(np.log(len(blocks) + 1)) for name, blocks in sites.items())


def _summed(sites: SiteBlocks, cuts: Mapping[str, Cuts]) -> tuple[Moments, ...]:
    """The moments of each regime over all sites."""
    q = next(iter(sites.values()))[0].q
    n_regimes = len(next(iter(cuts.values()))) + 1
    total = [Moments.empty(q)] * n_regimes
    for name, blocks in sites.items():
        for r, (a, b) in enumerate(ranges_of(cuts[name], len(blocks))):
            total[r] = merged([total[r], *blocks[a:b]])
    return tuple(total)


def _dealt_regimes(blocks: Sequence[Moments], found: Changing) -> Cuts:
    """A site's best cuts given the networks of the regimes; any regime may be left out."""
    sums = _summed_losses(blocks, found)
    places = np.arange(sums.shape[1])

    def reached(r: int, best: FloatArray) -> FloatArray:
        # The regime begins with block a and the blocks up to b are dealt out; a = b leaves it empty.
        return np.where(
            places[:, None] <= places, best[:, None] + sums[r][None, :] - sums[r][:, None], np.inf
        )

    cuts = _traced(sums[0], len(sums), reached)
    assert cuts is not None
    return cuts


_FEWEST_BLOCKS = 8
"""With fewer blocks slow courses and steps are the same."""


def time_functions(rows: Sequence[float]) -> FloatArray:
    """(5, B) values in each block: 1, a ramp from 0 to 1, one from 1 to 0, and a parabola and a cubic with mean square 1.

    An edge that appears or vanishes little by little is one ramp, as one that does so at once is one step. The parabola has
    no part in a line over the `rows` of the blocks, the cubic none in a parabola.
    """
    n = np.asarray(rows, dtype=np.float64)
    times = np.linspace(-1.0, 1.0, len(n))
    powers, root = times[:, None] ** np.arange(4), np.sqrt(n / n.sum())[:, None]
    # Gram-Schmidt with the rows as weights; blocks without any get values, too.
    basis, _ = np.linalg.qr(root * powers)
    bent = powers @ np.linalg.lstsq(root * powers, basis, rcond=None)[0][:, 2:]
    return np.stack([np.ones(len(n)), (1 + times) / 2, (1 - times) / 2, *(bent * np.sign(bent[-1])).T])


def learn_drift(
    blocks: Sequence[Moments],
    d: int,
    found: Changing,
    constraints: EdgeConstraints,
    options: ChangeOptions,
) -> Changing | None:
    """Return a better explanation with weights that drift, and as few cuts as that needs; None if there is none."""
    counts = [block.n for block in blocks]
    if sum(n > 0 for n in counts) < _FEWEST_BLOCKS:
        return None
    functions = time_functions(counts)

    def fits(cuts: tuple[int, ...]) -> SegmentFits:
        return SegmentFits(blocks, cuts, constraints, options, functions)

    best = fits(found.cuts).of(found.order)
    while best.cuts:
        fewer = [tuple(cut for cut in best.cuts if cut != gone) for gone in best.cuts]
        # Of two steps that stand for one slow course, each may need the other.
        tried = [fits(cuts).of(best.order) for cuts in dict.fromkeys([*fewer, ()])]
        other = min(tried, key=lambda one: one.score)
        if other.score >= best.score:
            break
        best = other
    if not any(node.drifting for node in best.nodes):
        return None
    best = fits(best.cuts).improved(best, thorough=True)
    is_drift = any(node.drifting for node in best.nodes)
    return best if is_drift and best.score < found.score else None
