"""Which edges of a network hidden common causes could stand for, from the moments it was learned from.

The networks with hidden causes of `core.orders.hidden_causes` are searched for from several beginnings. If the best of them
describes the rows about as well as the network without, or better, the edges that it does not need are in doubt.

Where all noises have one variance nothing is left for a hidden cause to explain, and no edge is in doubt: it would have made
some of them larger.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import BoolArray
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.criterion import Criterion
from feddbn.core.orders.hidden_causes import (
    CLEAR_GAIN,
    FEWEST_VARIABLES,
    MOST_VARIABLES,
    HiddenCauses,
    find_hidden_causes,
)
from feddbn.core.orders.learn import refit
from feddbn.core.orders.noise_choice import bartlett, price_of_free
from feddbn.core.statistics.moments import Moments

__all__ = ["HiddenDoubts", "doubtful_edges", "may_be_looked_for", "noises_differ"]

_BEGINNINGS = 3
"""One search in four ends in a worse network (arena, seeds 100 to 119: 91 % of the spurious edges and 2 % of the true ones
are in doubt after three searches, 68 % and 1 % after one that had to be clear)."""
_HOPELESS = 3 * CLEAR_GAIN
"""A first search that ends so much worse than the network without hidden causes is not repeated."""


@dataclass(frozen=True)
class HiddenDoubts:
    """What hidden causes could stand for.

    Attributes
    ----------
    in_doubt
        (q, d) edges that a network with hidden causes does not need.
    effects
        For each hidden cause the variables on which it would act.
    gain
        By how much that network scores better (negative: worse) than the best without hidden causes.
    """

    in_doubt: BoolArray
    effects: tuple[tuple[int, ...], ...] = ()
    gain: float = -np.inf


def doubtful_edges(
    moments: Moments,
    support: BoolArray,
    constraints: EdgeConstraints,
    criterion: Criterion,
    rng: np.random.Generator,
) -> HiddenDoubts:
    """Return the edges of `support` (q, d) that could be hidden causes' doing.

    Nothing is looked for among fewer than 4 or more than 20 variables (`hidden_causes`).
    """
    d = support.shape[1]
    n_lags = len(support) // d - 1
    best: HiddenCauses | None = None
    for _ in range(_BEGINNINGS):
        one = find_hidden_causes(moments, d, n_lags, constraints, criterion, rng, -_HOPELESS)
        if one is None and best is None:
            break
        if one is not None and (best is None or one.gain > best.gain):
            best = one
    if best is None or best.gain < -CLEAR_GAIN:
        return HiddenDoubts(np.zeros_like(support))
    return HiddenDoubts(support & ~best.network.support, tuple(sorted(best.effects)), best.gain)


def may_be_looked_for(d: int) -> bool:
    """Whether hidden causes are looked for among so many variables."""
    return FEWEST_VARIABLES <= d <= MOST_VARIABLES


def noises_differ(moments: Moments, support: BoolArray) -> bool:
    """Whether the noises of a network clearly have different variances, as hidden causes make them."""
    variances = np.maximum(refit(moments, support)[2], 1e-300)
    unequal = bartlett(variances * moments.n, support.sum(axis=0).tolist(), moments.n)
    return unequal > price_of_free(support.shape[1], moments.n)
