"""Sites that change at times of their own: common networks one after the other, and cuts that are each site's.

Every site goes through the same regimes in the same order, some perhaps only through the first or the last of them. In turn

    regimes    what all sites sum up in the same regime are the moments of a segment (`fits`)
    cuts       given the networks of the regimes every site deals out its own blocks, by dynamic programming

until the cuts stay. The first cuts are those that each site's own blocks propose, and for all sites those in equal parts. The
number of regimes with the best total score is taken; each has a price, and each site's cut that of its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.changes.fits import ChangeOptions, Changing, SegmentFits, merged
from feddbn.core.changes.learn import range_costs
from feddbn.core.changes.partitions import Cuts, best_partitions, ranges_of
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.search import OrderSearch
from feddbn.core.statistics.moments import Moments

__all__ = ["Regimes", "learn_regimes"]

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
    d: int,
    constraints: EdgeConstraints,
    options: ChangeOptions,
    rng: np.random.Generator,
) -> Regimes:
    """Return the regimes, and every site's cuts."""
    q = next(iter(sites.values()))[0].q
    whole = merged([block for blocks in sites.values() for block in blocks])
    search = OrderSearch(whole, d, q // d - 1, constraints, options.criterion.for_orders, "free")
    order = search.run(0, rng).order
    own = {name: dict(_proposals(blocks, d, constraints, options)) for name, blocks in sites.items()}
    best: Regimes | None = None
    for n_cuts in range(options.max_changes + 1):
        starts = [{name: _even(len(blocks), n_cuts) for name, blocks in sites.items()}]
        starts.append({name: own[name].get(n_cuts, starts[0][name]) for name in sites})
        found = [
            one
            for cuts in starts
            if (one := _settled(sites, d, cuts, order, constraints, options)) is not None
        ]
        if best is not None and (not found or min(one.score for one in found) >= best.score):
            break
        best = min(found, key=lambda one: one.score)
    assert best is not None
    return best


def _proposals(
    blocks: Sequence[Moments], d: int, constraints: EdgeConstraints, options: ChangeOptions
) -> list[tuple[int, Cuts]]:
    """What one site's own blocks propose for each number of cuts."""
    n, filled = sum(block.n for block in blocks), sum(block.n > 0 for block in blocks)
    if n == 0:
        return []
    shortest = max(2.0 * blocks[0].q, 2.0 * n / filled)
    cost = range_costs(blocks, d, constraints, options.criterion.for_orders, shortest)
    return [(len(cuts), cuts) for cuts, _ in best_partitions(cost, options.max_changes)]


def _even(n_blocks: int, n_cuts: int) -> Cuts:
    return tuple(round(n_blocks * (k + 1) / (n_cuts + 1)) for k in range(n_cuts))


def _settled(
    sites: SiteBlocks,
    d: int,
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
        fits = SegmentFits(moments, d, tuple(range(1, len(moments))), constraints, options)
        changing = fits.improved(fits.of(order))
        order = changing.order
        score = changing.score + _price(sites, cuts)
        if best is not None and score >= best.score - 1e-6:
            break
        best = Regimes(changing, moments, cuts, score)
        cuts = {name: _dealt(blocks, changing) for name, blocks in sites.items()}
    if best is not None and len(best.moments) > 1:
        fits = SegmentFits(best.moments, d, best.changing.cuts, constraints, options)
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


def _dealt(blocks: Sequence[Moments], found: Changing) -> Cuts:
    """A site's best cuts given the networks of the regimes; any regime may be left out."""
    loss = found.losses(blocks)
    n_regimes, n = loss.shape
    sums = np.concatenate([np.zeros((n_regimes, 1)), np.cumsum(loss, axis=1)], axis=1)
    best, origins = sums[0], []
    for r in range(1, n_regimes):
        # The regime begins with block a and the blocks up to b are dealt out; a = b leaves it empty.
        total = np.where(
            np.arange(n + 1)[:, None] <= np.arange(n + 1),
            best[:, None] + sums[r][None, :] - sums[r][:, None],
            np.inf,
        )
        origins.append(np.argmin(total, axis=0))
        best = total.min(axis=0)
    cuts, end = [], n
    for origin in reversed(origins):
        end = int(origin[end])
        cuts.append(end)
    return tuple(reversed(cuts))
