"""How many of the networks that resamples of the rows lead to have an edge: what would come again.

A link within a time step is in a network whichever way it is drawn there. Its direction is told only where most networks
direct it by more than the order in which it was found: a time, a v-structure and what follows from it (Verma
and Pearl 1990; Meek 1995), a limit, or a curve. Where they do not, each direction has half of the link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray


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
