"""Better orders by moving one node at a time, from a given order.

A move takes a node out of the order and puts it where the sum of the lassos is lowest, all places considered: only the
lassos of the node and of those it passes change. The search ends when no move helps, or when its budget of lassos is spent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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


def improved(scores: LassoScores, start: Sequence[int], budget: int) -> tuple[list[int], float]:
    """Return the order that moves of single nodes lead to, and its value; no more than about `budget` lassos are solved."""
    order = within_must(scores, start)
    value = order_value(scores, order)
    limit, unmoved, turn = scores.n_solved + budget, 0, 0
    while unmoved < scores.d and scores.n_solved < limit:
        found, gain = _best_place(scores, order, turn % scores.d)
        if gain < -_BETTER * max(abs(value), 1e-300):
            order, value, unmoved = found, value + gain, 0
        unmoved, turn = unmoved + 1, turn + 1
    return order, order_value(scores, order)


def _best_place(scores: LassoScores, order: list[int], node: int) -> tuple[list[int], float]:
    """Return the order with the node in its best place, and by how much the value changes."""
    here = order.index(node)
    rest = order[:here] + order[here + 1 :]
    bit, before = 1 << node, [0]
    for other in rest:
        before.append(before[-1] | 1 << other)
    first, last = 0, len(rest)
    for place, other in enumerate(rest):
        if scores.must_follow[node] >> other & 1:
            first = place + 1
        if scores.must_follow[other] & bit:
            last = min(last, place)
    passes = range(first, last)
    scores.solve_together(
        [(node, before[place], math.inf) for place in range(first, last + 1)]
        + [(rest[place], before[place], math.inf) for place in passes]
        + [(rest[place], before[place] | bit, math.inf) for place in passes]
    )
    # Put in front of all; then every node that it passes no longer has it as a predecessor.
    totals, passed = [], 0.0
    for place in range(first, last + 1):
        totals.append(scores.value(node, before[place]) + passed)
        if place < last:
            other = rest[place]
            passed += scores.value(other, before[place]) - scores.value(other, before[place] | bit)
    best = min(range(len(totals)), key=totals.__getitem__)
    place = first + best
    return [*rest[:place], node, *rest[place:]], totals[best] - totals[here - first]
