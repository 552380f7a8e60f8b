"""Weights that drift slowly instead of changing at once, from the same moments of blocks.

    w(t) = w_0 + sum_k w_k f_k(t),    f_k ramps up and down, a parabola and a cubic of time, one value in each block

A column ``z f_k`` is constant times z within a block, so its products are sums over blocks of what is known already: drift
needs no further sum. Columns of drift compete with those of steps in one regression per variable; with drift, cuts that it
explains are taken back one by one while that pays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.changes.fits import ChangeOptions, Changing, SegmentFits
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.statistics.moments import Moments

__all__ = ["learn_drift", "time_functions"]

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
        return SegmentFits(blocks, d, cuts, constraints, options, functions)

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
