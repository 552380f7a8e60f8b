"""How many of the networks that resamples of the rows lead to have an edge: what would come again.

A link within a time step is in a network whichever way it is drawn there. Its direction is told only where most networks
direct it by more than the order in which it was found: a time, a v-structure and what follows from it (Verma
and Pearl 1990; Meek 1995), a limit, or a curve. Where they do not, each direction has half of the link.

Of many variables no resamples are searched: an edge of the one network counts by what it pays for itself (`Shares.of_one`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import expit

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.statistics.moments import Moments, correlations


@dataclass(frozen=True)
class Shares:
    """Shares of networks.

    Attributes
    ----------
    edges
        ((p+1) d, d) that have each edge, as drawn.
    settled
        (d, d) that have the link and direct it this way by more than an order.
    n
        Number of networks.
    """

    edges: FloatArray
    settled: FloatArray
    n: int

    @classmethod
    def of(cls, networks: Sequence[tuple[BoolArray, BoolArray]]) -> Self:
        """From the edges of networks, and which of those within a time step are settled."""
        edges = np.mean([support for support, _ in networks], axis=0)
        settled = np.mean([known for _, known in networks], axis=0)
        return cls(edges, settled, len(networks))

    @classmethod
    def of_one(cls, support: BoolArray, moments: Moments, price: float, settled: BoolArray) -> Self:
        """From one network: how probable each edge is beside the others, by what it pays for itself (BIC, Raftery 1995)."""
        d, n = support.shape[1], moments.n
        R = correlations(moments.scatter)[0]
        edges = np.zeros(support.shape)
        for j in range(d):
            parents = np.flatnonzero(support[:, j])
            if len(parents):
                inverse = np.linalg.pinv(R[np.ix_([j, *parents], [j, *parents])], hermitian=True)
                partial = inverse[0, 1:] ** 2 / (inverse[0, 0] * np.diag(inverse)[1:])
                gain = -n * np.log1p(-np.clip(partial, 0.0, 1.0 - 1e-12)) - price * np.log(n)
                edges[parents, j] = expit(gain / 2)
        return cls(edges, np.where(settled, edges[:d], 0.0), 1)

    @property
    def links(self) -> FloatArray:
        """(d, d) symmetric shares of networks with a link either way."""
        within = self.edges[: len(self.settled)]
        return np.asarray(np.minimum(within + within.T, 1.0))

    @property
    def told(self) -> BoolArray:
        """(d, d) which directions most networks settle."""
        return self.settled > 0.5

    @property
    def probability(self) -> FloatArray:
        """((p+1) d, d) of each edge; of a link that nothing directs each way has one half."""
        d, links = len(self.settled), self.links
        is_told = self.told | self.told.T
        open_to_both = (links - self.settled - self.settled.T) / 2
        found = self.edges.copy()
        found[:d] = np.where(is_told, self.settled + open_to_both, links / 2)
        return found

    def left_open(self, pairs: BoolArray) -> Shares:
        """The same with nothing settled between these pairs, (d, d) symmetric."""
        return replace(self, settled=np.where(pairs, 0.0, self.settled))

    def directed(self, source: int, target: int, share: float) -> Shares:
        """The same with a link directed by what networks do not know: this share goes this way."""
        settled, link = self.settled.copy(), self.links[source, target]
        settled[source, target], settled[target, source] = link * share, link * (1.0 - share)
        return replace(self, settled=settled)

    def weaker(self, factor: float) -> Shares:
        """The same with every share times this: what speaks against all edges."""
        return replace(self, edges=self.edges * factor, settled=self.settled * factor)
