"""Better orders by moving one node at a time, from a given order.

A move takes a node out of the order and puts it where the sum of the lassos is lowest: only the lassos of the node and of
those it passes change. The search ends when no move helps, or when its budget of lassos is spent.

Theory of operation: most moves are ruled out without a lasso. At the weights of an order,

    a node j gains, if v may come before it, at most   (|gradient of v| - penalty)^2 / (2 s_v),   nothing if that is negative;
    a node j that uses v with weight x loses, without it, at least   s_v x^2 / 2,                 nothing if x = 0

(times w_j), where s_v = 1 / (H^-1)_vv is the least curvature that is left along v once all others may answer. Nor does
a node gain more than what all others as predecessors would give it. Places where even these bounds show no gain are not
looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile

import numpy as np

from feddbn.core.optimum.scores import LassoScores

__all__ = ["improved", "order_value", "within_must"]

_BETTER = 1e-9


def order_value(scores: LassoScores, order: Sequence[int]) -> float:
    """Return the sum of the lassos within an order."""
    total, before = 0.0, 0
    for node in order:
        total += scores.value(node, before)
        before |= 1 << node
    return total


def within_must(scores: LassoScores, order: Sequence[int]) -> list[int]:
    """Return the order with sources of required edges moved in front of their targets."""
    waiting, before, found = list(order), 0, []
    while waiting:
        node = next(j for j in waiting if not scores.must_follow[j] & ~before)
        waiting.remove(node)
        before |= 1 << node
        found.append(node)
    return found


def improved(
    scores: LassoScores, start: Sequence[int], budget: int, better: float = _BETTER
) -> tuple[list[int], float]:
    """Return the order that moves of single nodes lead to, and its value; no more than about `budget` lassos are solved.

    A move must lower the value by the share `better` of it.
    """
    now = _Now(scores, within_must(scores, start))
    limit, unmoved, node = scores.n_solved + budget, 0, 0
    while unmoved < scores.d and scores.n_solved < limit:
        place = now.best_place(node, better * max(abs(now.total), 1e-300))
        unmoved = unmoved + 1 if place is None else 1
        if place is not None:
            now.move(node, place)
        node = (node + 1) % scores.d
    return now.order, now.total


class _Now:
    """The order so far, what its nodes cost, and bounds of what they would gain or lose.

    Attributes
    ----------
    before
        Sets of predecessors, by node.
    value
        (d,) cost of each node.
    gain, loss
        (d, d) at most, and at least, what column j gains by row i before it, and loses without it.
    """

    def __init__(self, scores: LassoScores, order: list[int]) -> None:
        d = scores.d
        self.scores, self.order = scores, order
        self.before, self.value = [-1] * d, np.zeros(d)
        self.gain, self.loss = np.zeros((d, d)), np.zeros((d, d))
        self.lowest = np.array(scores.lowest)
        self._look()

    @property
    def total(self) -> float:
        """What the order costs."""
        return float(self.value.sum())

    def move(self, node: int, place: int) -> None:
        """Put a node into a place among the others."""
        rest = [other for other in self.order if other != node]
        self.order = [*rest[:place], node, *rest[place:]]
        self._look()

    def _look(self) -> None:
        changed, passed = [], 0
        for node in self.order:
            if self.before[node] != passed:
                self.before[node] = passed
                changed.append(node)
            passed |= 1 << node
        value, gain, loss = self.scores.bounds(changed, [self.before[node] for node in changed])
        self.value[changed], self.loss[:, changed] = value, loss.T
        # No node gains more than all others as predecessors would give it.
        self.gain[:, changed] = np.minimum(gain, np.maximum(value - self.lowest[changed], 0.0)[:, None]).T

    def best_place(self, node: int, enough: float) -> int | None:
        """Return the node's best place among the others, if that lowers the value by more than `enough`."""
        here, must = self.order.index(node), self.scores.must_follow
        # A node does not pass what it must follow, nor what must follow it.
        ups = list(takewhile(lambda other: not must[node] >> other & 1, reversed(self.order[:here])))
        downs = list(takewhile(lambda other: not must[other] >> node & 1, self.order[here + 1 :]))
        passed, best = self._up(node, ups, -enough)
        place = here - passed
        passed, best = self._down(node, downs, best)
        if passed:
            place = here + passed
        return None if place == here else place

    def _up(self, node: int, others: list[int], best: float) -> tuple[int, float]:
        """Return how many of the others before it a node should pass, and by how much that changes the value."""
        gains, loses = self.gain[node, others], np.maximum.accumulate(self.loss[others, node])
        hoped = loses - np.cumsum(gains)
        promising = np.flatnonzero(hoped < best)
        if not len(promising):
            return 0, best
        others = others[: int(promising[-1]) + 1]
        # What is hoped for from here on, at the best place still ahead.
        ahead = (
            np.minimum.accumulate(hoped[: len(others)][::-1])[::-1]
            + np.cumsum(gains)[: len(others)]
            - gains[: len(others)]
        )
        bit, value, scores = 1 << node, self.value, self.scores
        scores.solve_together(
            [(j, self.before[j] | bit, math.inf) for j, gain in zip(others, gains, strict=False) if gain > 0]
        )
        so_far, without, found = 0.0, self.before[node], 0
        for count, other in enumerate(others, 1):
            if so_far + ahead[count - 1] >= best:
                break
            without &= ~(1 << other)
            if gains[count - 1] > 0:
                so_far += scores.value(other, self.before[other] | bit) - value[other]
            if so_far + loses[count - 1] < best:
                uses = loses[count - 1] > 0
                change = so_far + (scores.value(node, without) - value[node] if uses else 0.0)
                if change < best:
                    found, best = count, float(change)
        return found, best

    def _down(self, node: int, others: list[int], best: float) -> tuple[int, float]:
        """Return how many of the others after it a node should pass, and by how much that changes the value."""
        gains, loses = np.maximum.accumulate(self.gain[others, node]) > 0, self.loss[node, others]
        slack = max(float(self.value[node] - self.lowest[node]), 0.0)
        promising = np.flatnonzero(np.cumsum(loses) - slack * gains < best)
        if not len(promising):
            return 0, best
        others = others[: int(promising[-1]) + 1]
        bit, value, scores = 1 << node, self.value, self.scores
        scores.solve_together(
            [(j, self.before[j] & ~bit, math.inf) for j, loss in zip(others, loses, strict=False) if loss > 0]
        )
        so_far, having, found = 0.0, self.before[node], 0
        for count, other in enumerate(others, 1):
            having |= 1 << other
            if loses[count - 1] > 0:
                so_far += scores.value(other, self.before[other] & ~bit) - value[other]
            if so_far - slack >= best:
                break
            if gains[count - 1]:
                change = so_far + scores.value(node, having) - value[node]
                if change < best:
                    found, best = count, float(change)
        return found, best
