"""The best cuts of a row of blocks, by dynamic programming over the costs of ranges.

minimise  sum of cost[a, b] over consecutive ranges of blocks a..b-1    for every number of cuts
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from feddbn.core.arrays import FloatArray

__all__ = ["Cuts", "best_partitions", "ranges_of"]

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
    origins: list[np.ndarray] = []
    found: list[tuple[Cuts, float]] = []
    for k in range(most_cuts + 1):
        if k:
            # total[a, b]: the best up to block a with k - 1 cuts, then one range up to b.
            total = best[:, None] + cost
            origins.append(np.argmin(total, axis=0))
            best = total.min(axis=0)
        if not np.isfinite(best[n]):
            # A range of all blocks may be too short only if there are no blocks.
            continue
        cuts, end = [], n
        for origin in reversed(origins):
            end = int(origin[end])
            cuts.append(end)
        found.append((tuple(reversed(cuts)), float(best[n])))
    return found
