"""The best order, proven: dynamic programming over sets of predecessors, best sets first, with lower bounds.

    F(U + j) = min over j of F(U) + f_j(U)            F(V) is the global minimum of the paper's problem

A set U that is begun with costs at least ``F(U) + B(U)``, and is left out where that is no less than an order already known.
B adds up bounds of groups of nodes: within a group X every order is tried, as if all nodes outside came first,

    D(Y) = min over j in Y of f_j(V - Y) + D(Y - j),    B(U) = sum over groups of D(X - U)

which is a lower bound, since fewer predecessors never cost less. Where a node already has all that it would ever use, it
may come next at once: it costs the least it can, and others can only gain by having it before them.

The lowest ``F + B`` of the sets that are still open is a lower bound at any time, so work that stops at its budget
still says how far from the optimum the best order known can be.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from feddbn.core.optimum.moves import improved, order_value, within_must
from feddbn.core.optimum.scores import LassoScores, members
from feddbn.shown import Shown

__all__ = ["BestOrder", "Certificate", "PersonalCertificate", "best_order", "groups_of", "order_as_it_is"]

# What is left out could not have been better by more than this share of the objective.
_SLACK = 1e-9
_SAME = 1e-6
# With more nodes a budget below the large one only improves the bound a little.
_PROVABLE = 16
_LARGE = 100_000
# Sets are looked at together until so many nodes can come next: lassos of many are quicker, but sets that look worse than
# others are looked at sooner, which a small budget pays for with its bound.
_STEPS, _MOST_STEPS, _BATCHES = 128, 512, 10


@dataclass(frozen=True)
class Certificate(Shown):
    """How far a penalised objective can be above the global minimum.

    Attributes
    ----------
    objective
        Of the best order known.
    lower_bound
        No acyclic network has a lower objective.
    """

    objective: float
    lower_bound: float

    @classmethod
    def nothing_known(cls, objective: float) -> Certificate:
        """What can be said where the data have not been seen well enough: no objective is below zero."""
        return cls(objective, 0.0)

    def reached(self, objective: float, has_converged: bool) -> Certificate:
        """The certificate of what a fit has reached within the order, which should be the same up to rounding.

        If it is not, the matrix that was searched on is not known well enough, and neither is the bound.
        """
        if has_converged and abs(objective - self.objective) > _SAME * abs(objective):
            return Certificate.nothing_known(objective)
        if self.is_exact:
            return (
                Certificate(objective, objective) if has_converged else Certificate.nothing_known(objective)
            )
        return Certificate(objective, min(self.lower_bound, objective))

    @property
    def gap(self) -> float:
        """By which share of the lower bound the objective can be above the minimum; 0 if it is the minimum."""
        above = max(self.objective - self.lower_bound, 0.0)
        return above / self.lower_bound if self.lower_bound > 0 else (float("inf") if above else 0.0)

    @property
    def is_exact(self) -> bool:
        """Whether the objective is the global minimum."""
        return self.lower_bound >= self.objective

    def __str__(self) -> str:
        if self.is_exact:
            return "exact"
        if not self.lower_bound > 0:
            return "unknown: sums of gradients have not shown enough of the data"
        return f"at most {100 * self.gap:.3g} % above the global minimum"


@dataclass(frozen=True)
class PersonalCertificate:
    """How far the objectives of sites with networks of their own can be above their minima, the common weights given.

    Attributes
    ----------
    sites
        Site name -> its certificate.
    """

    sites: Mapping[str, Certificate]

    @classmethod
    def of(cls, numbers: Mapping[str, tuple[float, float]]) -> PersonalCertificate:
        """From each site's objective and lower bound; what differs by the tolerance of rounds does not differ."""
        return cls(
            {
                name: Certificate(objective, objective if bound >= (1.0 - _SAME) * objective else bound)
                for name, (objective, bound) in numbers.items()
            }
        )

    @property
    def n_exact(self) -> int:
        """How many sites have the network with their lowest objective."""
        return sum(one.is_exact for one in self.sites.values())

    @property
    def gap(self) -> float:
        """The largest of the sites' gaps."""
        return max((one.gap for one in self.sites.values()), default=0.0)

    def __str__(self) -> str:
        said = f"exact in {self.n_exact} of {len(self.sites)} sites"
        return (
            said
            if self.gap == 0
            else f"{said}, at most {100 * self.gap:.3g} % above the minimum in the others"
        )


@dataclass(frozen=True)
class BestOrder:
    """The best order known and what is known about it."""

    order: tuple[int, ...]
    certificate: Certificate


def best_order(scores: LassoScores, starts: Sequence[Sequence[int]], budget: int) -> BestOrder:
    """Return the best order found by moves from some starts, then by dynamic programming, with its certificate.

    `budget` is how many lassos may be solved: work, not time, so that every machine finds the same order.
    """
    limit = scores.n_solved + budget
    for_moves = scores.n_solved + budget // 2
    firsts = {tuple(within_must(scores, start)): None for start in starts}
    by_value = sorted(firsts, key=lambda start: order_value(scores, start))
    found = [improved(scores, start, max(for_moves - scores.n_solved, 0)) for start in by_value]
    order, value = min(found, key=lambda one: one[1])
    left = max(limit - scores.n_solved, budget // 4)
    if scores.d > _PROVABLE and budget < _LARGE:
        left //= 4
    bound = _Bound(scores, groups_of(scores, _largest_group(scores.d, left)))
    lower, better = _search(scores, bound, value, left)
    if better is not None:
        order, value = better
    return BestOrder(tuple(order), Certificate(value, min(lower, value)))


def order_as_it_is(scores: LassoScores, start: Sequence[int]) -> BestOrder:
    """Return an order without any move, with its certificate: no node costs less than with all others before it."""
    order = within_must(scores, start)
    before, asked = 0, []
    for node in order:
        asked.append((node, before, math.inf))
        before |= 1 << node
    scores.solve_together(asked)
    value = order_value(scores, order)
    return BestOrder(tuple(order), Certificate(value, min(sum(scores.lowest), value)))


def _largest_group(d: int, budget: int) -> int:
    """Half of the nodes, which was quickest for 8 to 15, but no more than a share of the budget can try the orders of."""
    largest = min(max(2, (d + 1) // 2), 10)
    while largest > 2 and d * 2 ** (largest - 1) > budget:
        largest -= 1
    return largest


def groups_of(scores: LassoScores, largest: int) -> list[int]:
    """Return disjoint sets of at most `largest` nodes that want each other as predecessors.

    Two nodes are in conflict if both use the other; which costs at least the smaller of their two losses.
    """
    d = scores.d
    pairs = [
        (a, b) for b in range(d) for a in range(b) if scores.uses(a) >> b & 1 and scores.uses(b) >> a & 1
    ]
    strength = {}
    for a, b in pairs:
        loses_b = scores.value(a, scores.all & ~(1 << b)) - scores.lowest[a]
        loses_a = scores.value(b, scores.all & ~(1 << a)) - scores.lowest[b]
        strength[a, b] = min(loses_b, loses_a)
    groups = {j: 1 << j for j in range(d)}
    for a, b in sorted(pairs, key=lambda pair: (-strength[pair], pair)):
        joined = groups[a] | groups[b]
        if groups[a] != groups[b] and joined.bit_count() <= largest:
            for node in members(joined):
                groups[node] = joined
    return list(dict.fromkeys(groups.values()))


class _Bound:
    """Lower bounds of what the nodes outside a set cost."""

    def __init__(self, scores: LassoScores, groups: Sequence[int]) -> None:
        self._scores = scores
        self._known: dict[int, float] = {0: 0.0}
        self.group = {node: group for group in groups for node in members(group)}
        for group in groups:
            self._fill(group)
        self.first = sum(self._known[group] for group in groups)

    def rise(self, node: int, before: int) -> float:
        """Return what the bound loses when a node joins the set `before`."""
        left = self.group[node] & ~before
        return self._known[left] - self._known[left & ~(1 << node)]

    def _fill(self, group: int) -> None:
        scores, nodes = self._scores, members(group)
        subsets = [0]
        for node in nodes:
            subsets += [subset | 1 << node for subset in subsets]
        subsets = sorted(subsets[1:], key=int.bit_count)
        scores.solve_together([(j, scores.all & ~Y, math.inf) for Y in subsets for j in members(Y)])
        for Y in subsets:
            outside = scores.all & ~Y
            self._known[Y] = min(scores.value(j, outside) + self._known[Y & ~(1 << j)] for j in members(Y))


def _search(
    scores: LassoScores, bound: _Bound, upper: float, budget: int
) -> tuple[float, tuple[list[int], float] | None]:
    """Return a lower bound and, if there is one, an order with a value below `upper`."""
    limit, worth = scores.n_solved + budget, upper - _SLACK * abs(upper)
    reached: dict[int, tuple[float, int, int]] = {0: (0.0, 0, -1)}
    waiting = [(bound.first, 0, 0, bound.first)]
    better, most = None, max(_STEPS, min(_MOST_STEPS, budget // _BATCHES))
    while waiting and waiting[0][0] < worth:
        if scores.n_solved >= limit:
            return waiting[0][0], better
        # All sets that look better than the best order known must be looked at; some at a time is quicker.
        steps: list[tuple[int, int, float]] = []
        while waiting and len(steps) < most and waiting[0][0] < worth:
            least, _, U, ahead = heapq.heappop(waiting)
            if least <= reached[U][0] + ahead:
                steps += [(j, U, ahead - bound.rise(j, U)) for j in _next_nodes(scores, U)]
        scores.solve_together([(j, U, worth - reached[U][0] - rest) for j, U, rest in steps])
        for j, U, rest in steps:
            cost, new = reached[U][0], U | 1 << j
            after = cost + scores.value(j, U, worth - cost - rest)
            if after + rest >= worth or (new in reached and reached[new][0] <= after):
                continue
            reached[new] = (after, U, j)
            if new == scores.all:
                better, worth = (_order_to(reached), after), after - _SLACK * abs(after)
            else:
                heapq.heappush(waiting, (after + rest, -new.bit_count(), new, rest))
    return upper if better is None else better[1], better


def _next_nodes(scores: LassoScores, U: int) -> list[int]:
    """Return the nodes that may come next after a set: one alone if it has all that it would ever use."""
    ready = [j for j in members(scores.all & ~U) if not scores.must_follow[j] & ~U]
    content = next((j for j in ready if scores.is_content(j, U)), None)
    return ready if content is None else [content]


def _order_to(reached: dict[int, tuple[float, int, int]]) -> list[int]:
    order, U = [], max(reached)
    while U:
        _, U, node = reached[U]
        order.append(node)
    return order[::-1]
