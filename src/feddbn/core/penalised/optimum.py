"""The best order of the variables for the penalised problem: what an order costs, moves to better ones, and a proof.

**What a node costs** after some others is the value of its lasso, from a Gram matrix, computed once (`LassoScores`):

    f_j(U) = w_j min_c  1/2 (e_j - c)'H(e_j - c) + sum(penalty_j o |c|)      c zero outside the lags and the nodes in U
    or       w_j min_c  1/2 c'Hc - b_j'c + const_j + sum(penalty_j o |c|)    where something else pulls at the weights, too

For a given order the paper's problem is the sum of these over the nodes, U being the nodes before j. A set is a whole
number whose bits are its members.

Theory of operation: if the lasso with more candidates, T, uses only members of U, it is also the lasso with U. So a value
is looked up from all candidates downwards, leaving out what U lacks, and most sets need no lasso of their own.

**Moves** (`improved`) take a node out of the order and put it where the sum of the lassos is lowest: only the lassos of the
node and of those it passes change. The search ends when no move helps, or when its budget of lassos is spent.

Most moves are ruled out without a lasso. At the weights of an order,

    a node j gains, if v may come before it, at most   (|gradient of v| - penalty)^2 / (2 s_v),   nothing if that is negative;
    a node j that uses v with weight x loses, without it, at least   s_v x^2 / 2,                 nothing if x = 0

(times w_j), where s_v = 1 / (H^-1)_vv is the least curvature that is left along v once all others may answer. Nor does
a node gain more than what all others as predecessors would give it. Places where even these bounds show no gain are not
looked at.

**The proof** (`best_order`) is dynamic programming over sets of predecessors, best sets first, with lower bounds:

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.constraints import causes_first
from feddbn.core.penalised.lasso import followed_weights, lasso_weights, pivoted, prices
from feddbn.shown import Shown

# Fewer lassos are quicker one by one.
_FEW = 24


def set_of(nodes: Iterable[int]) -> int:
    """Return the set of these nodes."""
    found = 0
    for node in nodes:
        found |= 1 << int(node)
    return found


def members(nodes: int) -> list[int]:
    """Return the nodes of a set, ascending."""
    return [i for i in range(nodes.bit_length()) if nodes >> i & 1]


@dataclass(frozen=True, slots=True)
class _Solved:
    """A lasso's value, which nodes it uses, and the weights that are not zero: where, and how much."""

    value: float
    used: int
    at: IntArray
    x: FloatArray


class LassoScores:
    """Values of the lassos of d nodes.

    Parameters
    ----------
    H
        (q, q) positive definite; the first d columns are the nodes.
    penalty, allowed
        (q, d) penalties, and which edges may be.
    required
        (q, d) edges that must be: their sources come first.
    weight
        (d,) what a node's lasso counts; None: 1. With the squared units of the nodes, every lasso is solved in its own.
    linear, constant
        (q, d) b and (d,) const of the second form above; None: those of the first, the columns of H and half its diagonal.
    start
        (q, d) weights from which a node's first lasso is searched; None: zero.

    Attributes
    ----------
    n_solved
        Lassos solved so far: what a search has cost, whatever the machine.
    """

    def __init__(
        self,
        H: FloatArray,
        penalty: FloatArray,
        allowed: BoolArray,
        required: BoolArray | None = None,
        weight: FloatArray | None = None,
        linear: FloatArray | None = None,
        constant: FloatArray | None = None,
        start: FloatArray | None = None,
    ) -> None:
        self.q, self.d = penalty.shape
        self._H, self._penalty = H, np.ascontiguousarray(penalty.T)
        self._weight = np.ones(self.d) if weight is None else weight
        self._linear = H[: self.d] if linear is None else np.ascontiguousarray(linear.T)
        self._constant = 0.5 * np.diag(H)[: self.d] if constant is None else constant
        self._start = np.zeros((self.d, self.q)) if start is None else np.ascontiguousarray(start.T)
        self._allowed = np.ascontiguousarray(allowed.T)
        self._price = prices(self._linear, self._penalty, self._allowed)
        self._bits = [1 << i for i in range(self.d)]
        self.all = (1 << self.d) - 1
        self.may_have = [set_of(np.flatnonzero(column[: self.d])) for column in self._allowed]
        self.must = np.zeros((self.d, self.d), dtype=bool) if required is None else required[: self.d]
        self.must_follow = [set_of(np.flatnonzero(column)) for column in self.must.T]
        self.n_solved = 0
        self._solved: list[dict[int, _Solved]] = [{} for _ in range(self.d)]
        self.solve_together([(j, self.all, math.inf) for j in range(self.d)])
        self.lowest = [self.value(j, self.all) for j in range(self.d)]

    def is_content(self, node: int, before: int) -> bool:
        """Whether a node with these predecessors has all that it would ever use."""
        top = self._solved[node][self.may_have[node]]
        return not (top.used | self.must_follow[node]) & ~before

    def uses(self, node: int) -> int:
        """Return what a node uses if all others come before it."""
        return self._solved[node][self.may_have[node]].used

    def value(self, node: int, before: int, enough: float = math.inf) -> float:
        """Return f_j(U); infinity if it is found to be at least `enough`, which may take no further lasso."""
        while True:
            found, T, near = self._known_about(node, before, enough)
            if found is not None:
                return found
            self._solve_one(node, T, near)

    def learn(self, before: Sequence[int], C: FloatArray) -> None:
        """Take note of the lassos of all nodes, (q, d), each after its set, that were solved elsewhere."""
        self._keep([(j, U & self.may_have[j]) for j, U in enumerate(before)], C.T)

    def bounds(
        self, nodes: Sequence[int], before: Sequence[int]
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return (n,) the values of some nodes after some sets, and two (n, d) bounds (`moves` says which).

        At most what each would gain by one more predecessor; at least what it would lose without one that it uses.
        """
        value, C, at = np.zeros(len(nodes)), np.zeros((len(nodes), self.q)), list(nodes)
        may = self._allowed[at, : self.d]
        self.solve_together([(j, U, math.inf) for j, U in zip(nodes, before, strict=True)])
        for k, (node, U) in enumerate(zip(nodes, before, strict=True)):
            value[k] = self.value(node, U)
            one = self._found(node, U)
            C[k, one.at] = one.x
            may[k, members(U & self.may_have[node])] = False
        left = np.abs(self._linear[at] - C @ self._H)[:, : self.d] - self._penalty[at, : self.d]
        left -= 1e-12 * (1.0 + np.abs(self._linear[at]).max(axis=1, initial=0.0))[:, None]
        weight = self._weight[at, None]
        gain = weight * np.where(may, np.maximum(left, 0.0), 0.0) ** 2 / (2.0 * self._stiffness)
        return value, gain, weight * self._stiffness * C[:, : self.d] ** 2 / 2.0

    @cached_property
    def _stiffness(self) -> FloatArray:
        """(d,) the least curvature along a node's weight, whatever the others answer."""
        return 1.0 / np.diag(np.linalg.inv(self._H))[: self.d]

    def _found(self, node: int, before: int) -> _Solved:
        known, T = self._solved[node], self.may_have[node]
        exactly = known.get(T & before)
        if exactly is not None:
            return exactly
        while missing := known[T].used & ~before:
            T &= ~missing
        return known[T]

    def solve_together(self, asked: Sequence[tuple[int, int, float]]) -> None:
        """Solve what `value` needs for some (node, before, enough), many lassos at a time: quicker than one by one."""
        waiting = asked
        while waiting:
            still, new = [], {}
            for one in waiting:
                found, T, near = self._known_about(*one)
                if found is None:
                    still.append(one)
                    new[one[0], T] = near
            if len(new) < _FEW:
                return
            self._solve_many(new)
            waiting = still

    def _known_about(self, node: int, before: int, enough: float) -> tuple[float | None, int, _Solved | None]:
        """Return the value if it is known; else the candidates to solve for next, and a lasso near to that."""
        known, T, near = self._solved[node], self.may_have[node], None
        exactly = known.get(T & before)
        if exactly is not None:
            return (math.inf if exactly.value >= enough else exactly.value), T, near
        while True:
            one = known.get(T)
            if one is None:
                return None, T, near
            if one.value >= enough:
                return math.inf, T, near
            missing = one.used & ~before
            if not missing:
                return one.value, T, near
            T, near = T & ~missing, one

    def _nearest(self, node: int, T: int, near: _Solved | None) -> _Solved | None:
        """Return the lasso to search from: of those with one candidate more or less, that of the nearest value."""
        if near is None or (near.used & ~T).bit_count() <= 1:
            return near
        known, found, least = self._solved[node], near, math.inf
        for bit in self._bits:
            one = known.get(T ^ bit)
            if one is not None and abs(one.value - near.value) < least:
                found, least = one, abs(one.value - near.value)
        return found

    def _solve_one(self, node: int, T: int, near: _Solved | None) -> None:
        price, b, penalty = self._price[node].copy(), self._linear[node], self._penalty[node]
        price[members(self.may_have[node] & ~T)] = np.inf
        start, near = np.zeros(self.q), self._nearest(node, T, near)
        if near is None:
            start[:] = self._start[node]
        else:
            start[near.at] = near.x
        start[price == np.inf] = 0.0
        at, x = lasso_weights(self._H, b, penalty, price, start)
        # At the minimum the gradient of a weight is its penalty.
        fit = self._constant[node] - 0.5 * float(x @ (b[at] - penalty[at] * np.sign(x)))
        self.n_solved += 1
        self._solved[node][T] = _Solved(self._weight[node] * fit, set_of(at[at < self.d].tolist()), at, x)

    def _solve_many(self, new: dict[tuple[int, int], _Solved | None]) -> None:
        nodes = np.array([node for node, _ in new])
        allowed = self._allowed[nodes]
        n_bytes = (self.d + 7) // 8
        bits = np.frombuffer(b"".join(T.to_bytes(n_bytes, "little") for _, T in new), dtype=np.uint8)
        sets = np.unpackbits(bits.reshape(-1, n_bytes), axis=1, count=self.d, bitorder="little")
        allowed[:, : self.d] &= sets.astype(bool)
        c = self._start[nodes]
        for row, ((node, T), last) in zip(c, new.items(), strict=True):
            near = self._nearest(node, T, last)
            if near is not None:
                row[:] = 0.0
                row[near.at] = near.x
        c *= allowed
        here = np.zeros(len(new), dtype=np.intp)
        B, penalty = self._linear[nodes], self._penalty[nodes]
        for k in pivoted(self._H[None], here, B, penalty, allowed, c).tolist():
            price = np.where(allowed[k], self._price[nodes[k]], np.inf)
            at, x = followed_weights(self._H, B[k], penalty[k], price, c[k])
            c[k] = 0.0
            c[k, at] = x
        self._keep(list(new), c)

    def _keep(self, solved: list[tuple[int, int]], c: FloatArray) -> None:
        """Remember the solutions c (n, q) of the lassos of some nodes with some candidates."""
        nodes = np.array([node for node, _ in solved])
        slope = 0.5 * (c @ self._H) - self._linear[nodes]
        fit = self._constant[nodes] + np.einsum("ni,ni->n", c, slope)
        values = self._weight[nodes] * (fit + np.einsum("ni,ni->n", self._penalty[nodes], np.abs(c)))
        used = np.packbits(c[:, : self.d] != 0, axis=1, bitorder="little")
        self.n_solved += len(solved)
        for (node, T), value, bits, row in zip(solved, values.tolist(), used, c, strict=True):
            at = row.nonzero()[0]
            self._solved[node][T] = _Solved(value, int.from_bytes(bits.tobytes(), "little"), at, row[at])


_BETTER = 1e-9


def order_value(scores: LassoScores, order: Sequence[int]) -> float:
    """Return the sum of the lassos within an order."""
    total, before = 0.0, 0
    for node in order:
        total += scores.value(node, before)
        before |= 1 << node
    return total


def improved(
    scores: LassoScores, start: Sequence[int], budget: int, better: float = _BETTER
) -> tuple[list[int], float]:
    """Return the order that moves of single nodes lead to, and its value; no more than about `budget` lassos are solved.

    A move must lower the value by the share `better` of it.
    """
    now = _Now(scores, causes_first(start, scores.must))
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

    def reached(self, objective: float) -> Certificate:
        """The certificate of what a fit has reached within the order, which should be the same up to rounding.

        If it is not, the bound is not known either: no objective is below zero.
        """
        if abs(objective - self.objective) > _SAME * abs(objective):
            return Certificate(objective, 0.0)
        return Certificate(objective, objective if self.is_exact else min(self.lower_bound, objective))

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
            return "unknown: the data are too nearly singular for a bound"
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
    firsts = {tuple(causes_first(start, scores.must)): None for start in starts}
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
    order = causes_first(start, scores.must)
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
