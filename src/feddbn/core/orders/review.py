"""Directions within a moment that Gaussian scores leave open, decided by the likelihoods of the variables' own kinds.

A line through 0 and 1 fits about as well both ways; a logistic or a Poisson model often does not. So for a few open edges all
directions are compared:  sum_j BIC_j(parents of j),  over those without a cycle. A node has as many models as it has sets of
open neighbours as parents; they are fitted together with all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from feddbn.core.arrays import BoolArray
from feddbn.core.graphs.constraints import has_cycle
from feddbn.core.orders.orientation import STRONG_EVIDENCE, EdgeOrientation
from feddbn.core.orders.parents import Parents

__all__ = ["MOST_OPEN", "MOST_OPEN_OF_A_NODE", "Review", "Reviewed"]

MOST_OPEN = 10
"""Open edges that are reviewed, those that Gaussian scores know least about first; there are 2^10 ways to direct them."""
MOST_OPEN_OF_A_NODE = 3
_NO_EVIDENCE = 1e-6


@dataclass(frozen=True)
class Reviewed:
    """The parents of each node after a review, and how firmly edges are directed now."""

    parents: tuple[Parents, ...]
    orientation: tuple[EdgeOrientation, ...]


class Review:
    """Open edges of a network, and the models that decide about them.

    Parameters
    ----------
    support
        ((p+1) d, d) the network.
    orientation
        How firmly its edges within a moment are directed so far.
    """

    def __init__(self, support: BoolArray, orientation: Sequence[EdgeOrientation]) -> None:
        self._support, self._orientation = support, tuple(orientation)
        self.d = support.shape[1]
        self.edges: list[tuple[int, int]] = []
        n_open = [0] * self.d
        doubtful = sorted((e for e in orientation if not e.oriented), key=lambda e: e.score_difference)
        for e in doubtful[:MOST_OPEN]:
            if max(n_open[e.source], n_open[e.target]) < MOST_OPEN_OF_A_NODE:
                self.edges.append((e.source, e.target))
                n_open[e.source] += 1
                n_open[e.target] += 1
        fixed = support.copy()
        for i, j in self.edges:
            fixed[i, j] = False
        self._fixed = fixed

    @property
    def models(self) -> list[tuple[int, Parents]]:
        """(node, parents) of every model that may be part of the answer; without open edges one for each node."""
        found: dict[tuple[int, Parents], None] = {}
        for j in range(self.d):
            mine = [edge for edge in self.edges if j in edge]
            for choice in product((False, True), repeat=len(mine)):
                others = [sum(edge) - j for edge, is_in in zip(mine, choice, strict=True) if is_in]
                found[j, self._parents(j, others)] = None
        return list(found)

    def _parents(self, node: int, others: Sequence[int]) -> Parents:
        return tuple(sorted({*np.flatnonzero(self._fixed[:, node]).tolist(), *others}))

    def decide(self, bic: Callable[[int, Parents], float]) -> Reviewed:
        """The directions with the lowest total; `bic` knows that of every model."""
        scores: list[tuple[float, tuple[bool, ...]]] = []
        for turned in product((False, True), repeat=len(self.edges)):
            W = self._directed(turned)
            if not has_cycle(W[: self.d]):
                total = sum(bic(j, self._parents_in(W, j)) for j in self._touched)
                scores.append((total, turned))
        # Ties stay as they are: nothing turned sorts first.
        best, chosen = min(scores)
        stays = scores[0]
        if stays[0] <= best + _NO_EVIDENCE:
            best, chosen = stays
        W = self._directed(chosen)
        table = []
        for e in self._orientation:
            if (e.source, e.target) not in self.edges:
                table.append(e)
                continue
            place = self.edges.index((e.source, e.target))
            others = [score for score, turned in scores if turned[place] != chosen[place]]
            difference = max(min(others, default=np.inf) - best, 0.0)
            ends = (e.target, e.source) if chosen[place] else (e.source, e.target)
            table.append(EdgeOrientation(*ends, float(difference), bool(difference >= STRONG_EVIDENCE)))
        return Reviewed(tuple(self._parents_in(W, j) for j in range(self.d)), tuple(table))

    @property
    def _touched(self) -> list[int]:
        return sorted({end for edge in self.edges for end in edge})

    def _parents_in(self, W: BoolArray, node: int) -> Parents:
        return tuple(np.flatnonzero(W[:, node]).tolist())

    def _directed(self, turned: Sequence[bool]) -> BoolArray:
        W = self._fixed.copy()
        for (i, j), is_turned in zip(self.edges, turned, strict=True):
            W[(j, i) if is_turned else (i, j)] = True
        return W
