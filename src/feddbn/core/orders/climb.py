"""Networks of many resamples, searched together from one network: at every step each makes its best move.

Moves add, drop or turn one edge. For every resample and node there is the matrix of correlations with its parents swept out
(Goodnight 1979), A. If column k joins or leaves the parents of node j, its residual sum of squares changes by

    - A_kj^2 / A_kk

where A_kk is positive for what is no parent and negative for what is one. So all moves of all networks cost one formula,
and a move one sweep; sweeping twice undoes it.

They begin at networks of some resamples, as one network to begin with would be found again more often than other rows
would find it, and their first moves are drawn: with a temperature T that falls to zero, twice T times a Gumbel variable is
taken off what each move costs. What is found is near the best network, and may be any of those that are equivalent to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.orders.parents import NO_RESIDUAL, Criterion
from feddbn.core.statistics.moments import COLLINEAR, Moments, correlations

_HOTTEST, _DRAWN = 10.0, 100
"""The temperature of the first move, and how many moves are drawn; then each is the best one, as long as it helps."""
_MOST_MOVES = 1000
_IMPROVEMENT = 1e-6
_NUMBERS = 1 << 22
"""Numbers of all matrices that are held at once: about 32 megabytes, or those of one resample."""


def climbed(
    resamples: Sequence[Moments],
    starts: Sequence[BoolArray],
    limits: EdgeConstraints,
    criterion: Criterion,
    is_equal: bool,
    rng: np.random.Generator,
) -> list[BoolArray]:
    """((p+1) d, d) edges of a network of each resample; all have as many rows, and begin at `starts` in turn.

    With `is_equal` all noises have one variance.
    """
    q, d = starts[0].shape
    together, found = max(1, _NUMBERS // (d * q * q)), list[BoolArray]()
    for first in range(0, len(resamples), together):
        some = resamples[first : first + together]
        begins = np.stack([starts[k % len(starts)] for k in range(first, first + len(some))])
        networks = _Networks(some, begins | limits.required, limits, is_equal)
        networks.climb(criterion.for_orders, rng)
        # As in other searches edges are selected at their full price.
        networks.climb(criterion)
        found += list(networks.on | limits.required)
    return found


class _Networks:
    """Networks in the making: `on` (B, q, d) are their edges."""

    def __init__(
        self, resamples: Sequence[Moments], begins: BoolArray, limits: EdgeConstraints, is_equal: bool
    ) -> None:
        (B, q, d), scatter = begins.shape, np.stack([one.scatter for one in resamples])
        self.n, self.is_equal, self.limits = float(resamples[0].n), is_equal, limits
        self.total = np.diagonal(scatter, axis1=1, axis2=2)[:, :d]
        self.most = max(0, min(q - 1, int((self.n - 1) // 2)))
        self.swept = np.repeat(np.stack([correlations(one)[0] for one in scatter])[:, None], d, axis=1)
        self.on = np.zeros((B, q, d), dtype=bool)
        # What it changes that a column joins or leaves, what is left of each node, and what does not follow from parents.
        self.change, self.left = np.zeros((B, q, d)), np.ones((B, d))
        self.free = np.ones((B, q, d), dtype=bool)
        every = np.arange(B)
        for j in range(d):
            self._look(every, np.full(B, j))
        for k, j in np.argwhere(begins.any(axis=0)).tolist():
            b = np.flatnonzero(begins[:, k, j] & self.free[:, k, j])
            self._toggle(b, np.full(len(b), k), np.full(len(b), j))

    def _look(self, b: IntArray, j: IntArray) -> None:
        A = self.swept[b, j]
        pivot, place = np.diagonal(A, axis1=1, axis2=2), np.arange(len(b))
        free = self.free[b, :, j] = np.abs(pivot) > COLLINEAR
        self.change[b, :, j] = np.where(free, -(A[place, :, j] ** 2) / np.where(free, pivot, 1.0), 0.0)
        self.left[b, j] = np.maximum(pivot[place, j], NO_RESIDUAL)

    def _toggle(self, b: IntArray, k: IntArray, j: IntArray) -> None:
        """Column k[i] joins or leaves the parents of node j[i] in network b[i]."""
        A, place = self.swept[b, j], np.arange(len(b))
        pivot, row = A[place, k, k][:, None], A[place, k].copy()
        A -= row[:, :, None] * (row / pivot)[:, None, :]
        A[place, k] = A[place, :, k] = row / np.abs(pivot)
        A[place, k, k] = -1.0 / pivot[:, 0]
        self.swept[b, j] = A
        self.on[b, k, j] ^= True
        self._look(b, j)

    def climb(self, criterion: Criterion, rng: np.random.Generator | None = None) -> None:
        """Make the best moves until none helps; with `rng` edges may be turned, and the first moves are drawn."""
        B, q, d = self.on.shape
        every = np.arange(B)
        for move in range(_MOST_MOVES):
            heat = 0.0 if rng is None else 2 * _HOTTEST * max(1.0 - move / _DRAWN, 0.0)
            costs = self._costs(criterion, turns=rng is not None)
            if heat and rng is not None:
                costs += heat * np.log(rng.standard_exponential(costs.shape))
            best = costs.reshape(B, -1).argmin(axis=1)
            cost = costs.reshape(B, -1)[every, best]
            moving = np.flatnonzero(cost < (np.inf if heat else -_IMPROVEMENT))
            if not len(moving):
                return
            k, j = np.divmod(best[moving], d)
            is_turn = k >= q
            k -= q * is_turn
            self._toggle(moving, k, j)
            if is_turn.any():
                self._toggle(moving[is_turn], j[is_turn], k[is_turn])

    def _costs(self, criterion: Criterion, turns: bool) -> FloatArray:
        """(B, q or q + d, d) what it costs to add or drop each edge, and then to turn it; infinite: that is not allowed."""
        _, q, d = self.on.shape
        used = self.on[:, :d].sum(axis=(1, 2)), self.on[:, d:].sum(axis=(1, 2))
        prices = criterion.marginal(self.n, d, q // d - 1, *used)[:, :, None]
        allowed, required = self.limits.allowed, self.limits.required
        W = self.on[:, :d]
        reach = _reach(W)
        # Nothing is added that closes a cycle.
        may_join = allowed & self.free & (self.on.sum(axis=1) < self.most)[:, None, :]
        adds = may_join.copy()
        adds[:, :d] &= ~(reach | np.eye(d, dtype=bool)).transpose(0, 2, 1)
        change = self.change
        if self.is_equal:
            rss = self.total * self.left
            change = change * (self.total / rss.sum(axis=1, keepdims=True))[:, None, :]
            costs = self._of(change, self.n * d)
        else:
            costs = self._of(change / self.left[:, None, :], self.n)
        toggles = np.where(
            np.where(self.on, ~required, adds), costs + np.where(self.on, -prices, prices), np.inf
        )
        if not turns:
            return toggles
        around = (W.astype(np.float32) @ reach.astype(np.float32)) > 0
        may_turn = (
            W & ~around & (allowed[:d].T & ~required[:d]) & (self.on.sum(axis=1) < self.most)[:, :, None]
        )
        both = change[:, :d] + change[:, :d].transpose(0, 2, 1)
        turned = (
            self._of(both, self.n * d) if self.is_equal else costs[:, :d] + costs[:, :d].transpose(0, 2, 1)
        )
        return np.concatenate([toggles, np.where(may_turn, turned, np.inf)], axis=1)

    @staticmethod
    def _of(share: FloatArray, n: float) -> FloatArray:
        """What it costs that residual squares change by this share."""
        return np.asarray(n * np.log1p(np.maximum(share, NO_RESIDUAL - 1.0)))


def _reach(W: BoolArray) -> BoolArray:
    """(B, d, d) whether there is a path from one to the other, of at least one edge."""
    found = W.astype(np.float32)
    while True:
        more = np.minimum(found + found @ found, 1.0)
        if np.array_equal(more, found):
            return np.asarray(found > 0)
        found = more
