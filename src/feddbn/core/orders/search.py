"""The network that minimises a BIC-type score, searched over orders of the variables.

    equal variances   n d log(sum_j RSS_j / (n d)) + sum of edge penalties
    free variances    sum_j n log(RSS_j / n)       + sum of edge penalties

Rules of the file
-----------------
- The state of a search is an order and, for every node, parents among its predecessors and all lags. Its
  score is the score of an actual acyclic network at any time.
- One move takes a node out of the order and inserts it elsewhere. While it travels, only its own parents and those of the
  node it passes can change, so the cost of all its insertions is found in one pass over the order; a node that would neither
  lose a parent nor gain a useful one is passed without any algebra (`Neighbours`).
- The equal-variance score is ``min over s2 of n d log s2 + sum_j RSS_j / s2 - n d``; for fixed s2 it
  decomposes over nodes. s2 and the search alternate until the network stays the same.
- Everything is deterministic given the generator, which only restarts use.

Known weaknesses: a local optimum of insertion moves need not be the best order; restarts shake the order and
keep the better score. Free-variance Gaussian networks are identified only up to equivalence (see
`core.orders.learn`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress, count
from operator import ne
from typing import Literal

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.constraints import EdgeConstraints, causes_first, topological_order
from feddbn.core.orders.parents import (
    MANY_NODES,
    Columns,
    Criterion,
    Moves,
    Objective,
    ParentRegressions,
    Parents,
    ParentSelection,
    ScreenedRegressions,
    columns_of,
    regressions_of,
)
from feddbn.core.statistics.moments import Moments


class Neighbours:
    """For each node, who has it as a parent and who could use it as one, kept up to date.

    Parameters
    ----------
    bits
        For each variable its contemporaneous columns.
    may_have
        For each node the columns that it may have as parents.

    Attributes
    ----------
    children
        For each node those that have it as a parent.
    wanted_by
        For each node those whose cost would fall with it as a further parent.
    """

    def __init__(self, bits: Sequence[Columns], may_have: Sequence[Columns]) -> None:
        d = len(bits)
        self._owner = {m: node for node, columns in enumerate(bits) for m in _members(columns)}
        self._within = [may & sum(bits) for may in may_have]
        self._selection: ParentSelection | None = None
        self._parents: list[Parents | None] = [None] * d
        self._holds: list[set[int]] = [set() for _ in range(d)]
        self._wants: list[set[int]] = [set() for _ in range(d)]
        self.children: list[set[int]] = [set() for _ in range(d)]
        self.wanted_by: list[set[int]] = [set() for _ in range(d)]

    def update(self, selection: ParentSelection, parents: Sequence[Parents]) -> None:
        """Make it those of a network; only what changed since the last time is looked at."""
        if selection is not self._selection:
            changed: Sequence[int] = range(len(parents))
        elif parents == self._parents:
            return
        else:
            changed = [
                j for j, pair in enumerate(zip(parents, self._parents, strict=True)) if pair[0] is not pair[1]
            ]
        self._selection, self._parents = selection, list(parents)
        for j in changed:
            _replace(j, self._holds, self.held(parents[j]), self.children)
            _replace(j, self._wants, self.usable(j, selection.moves(j, parents[j]).useful), self.wanted_by)

    def forget(self, node: int) -> None:
        """Look at a node again though its parents stay, as it looks at other columns."""
        self._parents[node] = None

    def around(self, node: int) -> set[int]:
        """Those that a node has, could use, is had or could be used by."""
        return self._holds[node] | self._wants[node] | self.children[node] | self.wanted_by[node]

    def held(self, parents: Parents) -> set[int]:
        """The variables that some contemporaneous parents belong to."""
        return {self._owner[m] for m in parents if m in self._owner}

    def usable(self, node: int, useful: Columns) -> set[int]:
        """The variables among some columns that a node may have as parents."""
        return {self._owner[m] for m in _members(useful & self._within[node])}


def _replace(node: int, known: list[set[int]], now: set[int], inverse: list[set[int]]) -> None:
    for other in known[node] - now:
        inverse[other].discard(node)
    for other in now - known[node]:
        inverse[other].add(node)
    known[node] = now


def _members(columns: Columns) -> list[int]:
    found = []
    while columns:
        lowest = columns & -columns
        found.append(lowest.bit_length() - 1)
        columns ^= lowest
    return found


NoiseVariance = Literal["equal", "free"]

_MOST_OBJECTIVES = 4
_SAME_VARIANCE = 1e-3
_MAX_ALTERNATIONS = 12
_MAX_PASSES = 50
_MAX_WIDER = 5


@dataclass(frozen=True)
class OrderResult:
    """The best network found.

    Attributes
    ----------
    order
        (d,) the nodes, causes first.
    parents
        For each node the columns of z that are its parents, ascending.
    rss
        (d,) residual sums of squares, in the units of the moments.
    score
        Its criterion: lower is better; comparable between equal and free variances on the same moments.
    noise_variance
        "equal" or "free".
    support
        ((p+1) d, d) True where there is an edge, the stack ``[W; A_1; ...]``.
    """

    order: tuple[int, ...]
    parents: tuple[Parents, ...]
    rss: FloatArray
    score: float
    noise_variance: NoiseVariance
    support: BoolArray


HOPELESS = 100.0
"""Score difference after an exchange from which moves of the nodes around never led back to what would count
as undecided (d = 50, n = 1000, equal and free variances: 143 of 428 exchanges)."""


class OrderSearch:
    """A search in progress: an order and, for every node, parents among its predecessors and all lags."""

    def __init__(
        self,
        moments: Moments,
        constraints: EdgeConstraints,
        criterion: Criterion,
        noise_variance: NoiseVariance,
        regressions: ParentRegressions | None = None,
    ) -> None:
        d, n_lags = constraints.d, constraints.n_lags
        self.d, self.n_lags, self.n = d, n_lags, float(moments.n)
        self.moments, self.limits = moments, constraints
        self.regressions = regressions or regressions_of(moments.scatter, moments.n, d)
        self.criterion = criterion
        self.noise_variance: NoiseVariance = noise_variance
        self.allowed: BoolArray = constraints.allowed
        limits = self.regressions.limits(constraints)
        self.required: tuple[Parents, ...] = tuple(
            tuple(np.flatnonzero(limits.required[:, j]).tolist()) for j in range(d)
        )
        self._may_have = [columns_of(limits.allowed[:, j]) for j in range(d)]
        self._require([columns_of(constraints.required[:d, j]) for j in range(d)])
        self._bits = self.regressions.present
        self._neighbours = Neighbours(self._bits, self._may_have)
        self._lags: Columns = (1 << self.regressions.q) - 1 - sum(self._bits)
        self._restored: tuple[OrderResult, Objective] | None = None
        self._selections: dict[tuple[float | None, ...], ParentSelection] = {}
        self.order: list[int] = []
        self._placed: list[int] = []
        self._before: list[Columns] = [0] * d
        self._rank = [0] * d
        self._moved: set[int] = set()
        # Under what no move helped: the selection, each node's parents and its place.
        self._settled: tuple[ParentSelection, list[Parents | None], list[int]] | None = None
        # For each node the parents and the prices at which screening left out nothing that helps.
        self._complete: dict[int, tuple[Parents, tuple[float | None, ...]]] = {}
        self.parents: list[Parents] = [()] * d
        self._use(self._objective_for(None, 2 * d, d * min(n_lags, 1)))

    def adopt(self, support: BoolArray) -> OrderResult:
        """Make a given acyclic network the current one; where edges have several shapes, each in the one that suits it."""
        self._place_all(topological_order(support[: self.d]))
        edges = self.regressions.edges
        if edges is None:
            self.parents = [tuple(np.flatnonzero(support[:, j]).tolist()) for j in range(self.d)]
        else:
            self._update_objective()
            self.parents = []
            for j in range(self.d):
                among = sum(1 << m for m, rows in enumerate(edges) if support[list(rows), j].all())
                self.parents.append(self.selection.select(j, (), among, exchange=True)[0])
        self._update_objective()
        return self.result()

    def rss_of(self, network: Sequence[Parents]) -> FloatArray:
        """(d,) residual sums of squares of any network, given by its nodes' parents, in the units of the moments."""
        fits = [self.regressions.fit(j, parents).rss for j, parents in enumerate(network)]
        return np.maximum(np.array(fits) * self.regressions.total, 1e-300)

    def score_of(self, network: Sequence[Parents]) -> float:
        """The criterion of any network."""
        return self._score_with(self.rss_of(network), network)

    def _score_with(self, rss: FloatArray, network: Sequence[Parents]) -> float:
        if self.noise_variance == "equal":
            fit = self.n * self.d * np.log(rss.sum() / (self.n * self.d))
        else:
            fit = self.n * np.log(rss / self.n).sum()
        return float(fit) + self.regressions.price_of(self.criterion, network)

    def result(self) -> OrderResult:
        """The current network."""
        support, rss = self.regressions.support_of(self.parents), self.rss_of(self.parents)
        score = self._score_with(rss, self.parents)
        return OrderResult(tuple(self.order), tuple(self.parents), rss, score, self.noise_variance, support)

    def _objective_for(self, s2: float | None, n_present: int, n_lagged: int) -> Objective:
        prices = self.regressions.prices(self.criterion, n_present, n_lagged)
        return Objective(self.n, prices, self.regressions.total, s2)

    def _update_objective(self) -> None:
        s2 = None
        if self.noise_variance == "equal":
            s2 = max(float(self.rss_of(self.parents).sum()) / (self.n * self.d), 1e-300)
            if self.d > MANY_NODES:
                # What was selected under a variance that differs by less than this is worth keeping.
                s2 = float(np.exp(np.round(np.log(s2) / _SAME_VARIANCE) * _SAME_VARIANCE))
        self._use(self._objective_for(s2, *self.regressions.count(self.parents)))

    def _use(self, objective: Objective) -> None:
        """Change the objective; what was selected under one of the last few is remembered."""
        key = self._key = (objective.noise_variance, *objective.penalty.ravel()[[0, -1]].tolist())
        known = self._selections.pop(key, None)
        self._selections[key] = self.selection = known or ParentSelection(
            self.regressions, objective, self.required
        )
        while len(self._selections) > (_MOST_OBJECTIVES if self.d <= MANY_NODES else 2):
            del self._selections[next(iter(self._selections))]

    def _forget(self, nodes: Iterable[int]) -> None:
        """Select the parents of some nodes anew, as they look at more columns."""
        for node in nodes:
            for selection in self._selections.values():
                selection.forget(node)
            self._neighbours.forget(node)

    def _place_all(self, order: Sequence[int]) -> None:
        """Change the order."""
        self.order = list(order)
        # What comes in front of the first change and behind the last one stays as it is.
        first = next(compress(count(), map(ne, self._placed, self.order)), len(self._placed))
        last = next(compress(count(), map(ne, reversed(self._placed), reversed(self.order))), 0)
        before: Columns = 0
        if first:
            before = self._before[self.order[first - 1]] | self._bits[self.order[first - 1]]
        for place in range(first, len(self.order) - last):
            node = self.order[place]
            self._before[node] = before
            self._rank[node] = place
            before |= self._bits[node]
        self._placed = list(self.order)

    def _require(self, must_follow: list[Columns]) -> None:
        """For each node the variables that must come before it."""
        self._must_follow = must_follow
        self._bound = [j for j, must in enumerate(must_follow) if must]

    def _candidates(self, node: int) -> Columns:
        """The columns that may be parents of `node` in the present order."""
        return self._may_have[node] & (self._before[node] | self._lags)

    def _moves(self, node: int) -> Moves:
        return self.selection.moves(node, self.parents[node])

    def _restore(self, result: OrderResult) -> None:
        self._place_all(result.order)
        self.parents = list(result.parents)
        if self._restored is not None and self._restored[0] is result:
            self._use(self._restored[1])
            return
        self._update_objective()
        self._restored = result, self.selection.objective

    def _insert_best(self, node: int) -> bool:
        """Move `node` to its best place; whether that improved the cost."""
        here = self.order.index(node)
        best: tuple[float, int, dict[int, Parents]] = (-1e-7, here, {})
        for step in (-1, 1):
            found = self._scan(node, here, step)
            if found[0] < best[0]:
                best = found
        _, place, changes = best
        if place == here:
            return False
        self._apply(node, here, place, changes)
        return True

    def _scan(
        self, node: int, here: int, step: int, past: int | None = None
    ) -> tuple[float, int, dict[int, Parents]]:
        """Cost change, place and new parents of the best insertion of `node` to the left or to the right.

        With `past`, only places that far or farther count, and the change may be for the worse.
        """
        select, rank, order = self.selection.select, self._rank, self.order
        self._neighbours.update(self.selection, self.parents)
        near = self._neighbours
        own = self.parents[node]
        own_start = own_cost = self._moves(node).cost
        others = 0.0
        changes: dict[int, Parents] = {}
        best: tuple[float, int, dict[int, Parents]] = (0.0 if past is None else np.inf, here, {})
        # What would gain this node as a candidate and could use it, or would lose it and has it as a parent.
        met = near.wanted_by[node] if step < 0 else near.children[node]
        end = self._farthest(node, step)
        touched = {rank[j] for j in met}
        stops = touched if past is None else touched | {past}
        waiting = sorted(
            (place for place in stops if 0 < (place - here) * step <= (end - here) * step), key=step.__mul__
        )
        own_places = self._own_places(node, own, step)
        # A node of many does not travel on where exchanges are hopeless.
        barrier = (
            HOPELESS * (max(1.0, self.n / 1000) if past is None else 1.0) if self.d > MANY_NODES else np.inf
        )
        place, at = here, 0
        while True:
            ahead = [other for other in own_places if 0 < (other - place) * step <= (end - place) * step]
            following = min(ahead, key=step.__mul__, default=None)
            while at < len(waiting) and (waiting[at] - place) * step <= 0:
                at += 1
            if at < len(waiting) and (following is None or (waiting[at] - following) * step < 0):
                following = waiting[at]
            if following is None:
                return best
            place = following
            passed = order[place]
            if place in own_places:
                before = self._before[passed] | (self._bits[passed] if step > 0 else 0)
                candidates = self._may_have[node] & ((before & ~self._bits[node]) | self._lags)
                own, own_cost = select(node, own, candidates)
                own_places = self._own_places(node, own, step)
            if place in touched:
                # The passed node gains or loses this one as a candidate.
                other = self._candidates(passed) ^ (self._may_have[passed] & self._bits[node])
                parents, cost = select(passed, self.parents[passed], other)
                others += cost - self._moves(passed).cost
                changes[passed] = parents
            if past is not None and (place - past) * step < 0:
                continue
            total = own_cost - own_start + others
            if total < best[0] - 1e-9:
                best = (total, place, {**changes, node: own})
            elif total > best[0] + barrier:
                return best

    def _own_places(self, node: int, parents: Parents, step: int) -> set[int]:
        """Where a node with these parents would lose one of them (to the left), or meet one that it could use."""
        if step < 0:
            met = self._neighbours.held(parents)
        else:
            met = self._neighbours.usable(node, self.selection.moves(node, parents).useful)
        return {self._rank[j] for j in met}

    def _farthest(self, node: int, step: int) -> int:
        """The last place that a node may have to the left or to the right: required edges keep their direction."""
        if step < 0:
            must = self._must_follow[node]
            return 1 + max((self._rank[j] for j in range(self.d) if must >> j & 1), default=-1) if must else 0
        after = [self._rank[j] for j in self._bound if self._must_follow[j] >> node & 1]
        return min(after, default=self.d) - 1

    def _apply(self, node: int, here: int, place: int, changes: dict[int, Parents]) -> None:
        self.order.pop(here)
        self.order.insert(place, node)
        self._place_all(self.order)
        for j, parents in changes.items():
            self.parents[j] = parents
        self._moved.update((node, *changes))

    def run(self, n_restarts: int, rng: np.random.Generator) -> OrderResult:
        """Search from the natural starts, then shake the best `n_restarts` times."""
        best: OrderResult | None = None
        for prefer_high in (False,) if self.noise_variance == "equal" else (False, True):
            self.start_top_down(prefer_high)
            self.improve()
            if best is None or self.score_of(self.parents) < best.score - 1e-9:
                best = self.result()
        assert best is not None
        for _ in range(n_restarts):
            found = self.run_shaken(best, rng)
            if found.score < best.score - 1e-9:
                best = found
        self._restore(best)
        return best

    def run_shaken(self, start: OrderResult, rng: np.random.Generator) -> OrderResult:
        """Move some nodes of a network's order at random and search again.

        The search begins with the noise variance of the network, which is nearer to its end than that of the
        shaken one, and for which most selections are known.
        """
        self._restore(start)
        self._shake(rng)
        self.improve(self.selection)
        return self.result()

    def run_from(self, start: OrderResult) -> OrderResult:
        """Search from a given network, which may have been found with other noise variances."""
        self._restore(start)
        self.improve()
        return self.result()

    def moved_once(self, start: OrderResult) -> OrderResult:
        """Move nodes of a given network to their best places, once: where a search from there would begin.

        They are all nodes, or of many 100 to 200 (`MANY_NODES`) spread evenly over the order.
        """
        self._restore(start)
        self._moved.clear()
        nodes = start.order[:: -(-self.d // MANY_NODES)]
        for node in nodes:
            self._insert_best(node)
        self._reselect(self._moved.union(nodes))
        return self.result()

    def like(
        self, criterion: Criterion | None = None, noise_variance: NoiseVariance | None = None
    ) -> OrderSearch:
        """A search on the same fits with other prices, or another noise."""
        kind = noise_variance or self.noise_variance
        return type(self)(self.moments, self.limits, criterion or self.criterion, kind, self.regressions)

    def select_edges(self, found: OrderResult, criterion: Criterion) -> OrderResult:
        """The network within the order found whose edges are selected, and scored, by another criterion."""
        other = self.like(criterion)
        other._place_all(found.order)
        other.parents = list(found.parents)
        for _ in range(_MAX_ALTERNATIONS):
            before = list(other.parents)
            other._update_objective()
            other._reselect()
            if other.parents == before:
                break
        return other.result()

    def start_top_down(self, prefer_high: bool) -> None:
        """Place one node after another, lowest conditional variance given those placed and the lags first.

        With free variances the conditional variance is taken relative to the node's own, lowest or highest
        first.
        """
        d = self.d
        self._use(self._objective_for(None, 2 * d, d * min(self.n_lags, 1)))
        select = ParentSelection(self.regressions, self.selection.objective, [()] * d).select
        waiting, left, known = list(range(d)), (1 << d) - 1, self._lags
        chosen = [select(j, (), self._may_have[j] & known)[0] for j in range(d)]
        useful = [self.selection.moves(j, chosen[j]).useful & self._may_have[j] for j in range(d)]
        weight = (
            self.regressions.total
            if self.noise_variance == "equal"
            else np.full(d, -1.0 if prefer_high else 1.0)
        )
        variance = [float(weight[j] * self.regressions.fit(j, chosen[j]).rss) for j in range(d)]
        order = []
        while waiting:
            ready = [j for j in waiting if not self._must_follow[j] & left]
            following = min(ready, key=lambda j: (variance[j], j))
            waiting.remove(following)
            left ^= 1 << following
            order.append(following)
            known |= self._bits[following]
            for j in [j for j in waiting if useful[j] & self._bits[following]]:
                chosen[j] = select(j, chosen[j], self._may_have[j] & known)[0]
                useful[j] = self.selection.moves(j, chosen[j]).useful & self._may_have[j]
                variance[j] = float(weight[j] * self.regressions.fit(j, chosen[j]).rss)
        self._place_all(order)
        self.parents = [self.selection.select(j, chosen[j], self._candidates(j))[0] for j in range(d)]

    def _shake(self, rng: np.random.Generator) -> None:
        for _ in range(max(2, min(self.d, MANY_NODES) // 5)):
            node = int(rng.integers(self.d))
            self.order.remove(node)
            self.order.insert(int(rng.integers(self.d)), node)
        self._place_all(causes_first(self.order, self.limits.required[: self.d]))
        self.parents = [
            self.selection.select(j, self.parents[j], self._candidates(j))[0] for j in range(self.d)
        ]

    def improve(self, selection: ParentSelection | None = None) -> None:
        """Alternate noise variance and prices with insertion moves until the network stays the same.

        A `selection` gives the noise variance and prices to begin with.
        """
        self._improve(selection)
        for _ in range(_MAX_WIDER):
            if not self._take_up_missed():
                break
            self._improve()

    def _take_up_missed(self) -> bool:
        """Look at columns that screening left out and that would lower the cost now; whether there are any."""
        known = self.regressions
        if not isinstance(known, ScreenedRegressions):
            return False
        missed = []
        for j, parents in enumerate(self.parents):
            if self._complete.get(j) == (parents, self._key):
                continue
            whole = replace(known.fit(j, parents), gain=known.missed(j, parents), columns=None)
            lower = np.flatnonzero(self.selection.objective.add_deltas(j, whole) < -1e-9)
            # Also what comes later in the order: it may have come there because it was not looked at.
            columns = [m for m in lower.tolist() if self._may_have[j] >> m & 1]
            if columns:
                known.take_up(j, columns)
                missed.append(j)
            else:
                self._complete[j] = parents, self._key
        self._forget(missed)
        if self._settled is not None:
            for j in missed:
                self._settled[1][j] = None
        return bool(missed)

    def _improve(self, selection: ParentSelection | None = None) -> None:
        best = self.result()
        for _ in range(_MAX_ALTERNATIONS):
            if selection is None:
                self._update_objective()
            before = list(self.parents)
            nodes = self._unsettled()
            for _ in range(_MAX_PASSES):
                self._moved.clear()
                moved = [self._insert_best(node) for node in nodes]
                if not any(moved):
                    self._settled = self.selection, list(self.parents), list(self._rank)
                    break
                nodes = self._worth_another_look()
            self._reselect()
            if self.score_of(self.parents) < best.score - 1e-9:
                best = self.result()
            if selection is None and self.parents == before:
                break
            selection = None
        self._restore(best)

    def _unsettled(self) -> list[int]:
        """The nodes of a first pass: of many variables those that changed since no move helped under this objective.

        A node has changed if its parents or those of a node around it are others, or if one of these is on its other side.
        """
        if self._settled is None or self._settled[0] is not self.selection or self.d <= MANY_NODES:
            return list(self.order)
        _, parents, ranks = self._settled
        self._neighbours.update(self.selection, self.parents)
        around = self._neighbours.around
        changed = {j for j in self.order if self.parents[j] != parents[j]}
        near = changed.union(*map(around, changed))
        rank = self._rank
        return [
            j
            for j in self.order
            if j in near or any((rank[k] < rank[j]) != (ranks[k] < ranks[j]) for k in around(j))
        ]

    def _worth_another_look(self) -> list[int]:
        """The nodes of the next pass: of many variables those near what the last one changed."""
        if self.d <= MANY_NODES:
            return list(self.order)
        self._neighbours.update(self.selection, self.parents)
        near = self._moved.union(*(self._neighbours.around(j) for j in self._moved))
        return [node for node in self.order if node in near]

    def _reselect(self, nodes: Iterable[int] | None = None) -> None:
        """Select the parents of all nodes, or some, afresh and by exchange from the present ones; keep the cheaper."""
        for j in range(self.d) if nodes is None else sorted(nodes):
            candidates = self._candidates(j)
            kept = self.selection.select(j, self.parents[j], candidates, exchange=True)
            fresh = self.selection.select(j, (), candidates, exchange=True)
            self.parents[j] = kept[0] if kept[1] <= fresh[1] + 1e-9 else fresh[0]

    def best_reversed(self, result: OrderResult, source: int, target: int) -> OrderResult | None:
        """The best network found in which `target` precedes `source`; None if that is not allowed.

        The cheaper way of exchanging the two is taken; then, unless that is hopelessly worse, the nodes around
        them move once more under that condition.
        """
        if not self._turn(result, source, target):
            return None
        turned = self.result()
        self._restore(result)
        return turned

    def _turn(self, result: OrderResult, source: int, target: int) -> bool:
        self._restore(result)
        rank = self._rank
        ways = [(target, -1, source), (source, 1, target)]
        found = [(self._scan(node, rank[node], step, rank[other]), node) for node, step, other in ways]
        (change, place, changes), node = min(found, key=lambda way: way[0][0])
        if not np.isfinite(change):
            return False
        self._apply(node, rank[node], place, changes)
        before = self._must_follow
        after = list(before)
        after[source] |= 1 << target
        self._require(after)
        around = {source, target} if change < HOPELESS else set()
        for j in tuple(around):
            around.update(np.flatnonzero(result.support[: self.d, j]).tolist())
            around.update(np.flatnonzero(result.support[j]).tolist())
        for j in sorted(around):
            self._insert_best(j)
        self._require(before)
        return True


def search_order(
    moments: Moments,
    constraints: EdgeConstraints,
    criterion: Criterion | None = None,
    noise_variance: NoiseVariance = "equal",
    n_restarts: int = 0,
    rng: np.random.Generator | None = None,
) -> OrderResult:
    """Return the best network found on moments of lagged rows, its edges selected at their full price."""
    prices = criterion or Criterion()
    search = OrderSearch(moments, constraints, prices.for_orders, noise_variance)
    found = search.run(n_restarts, np.random.default_rng(0) if rng is None else rng)
    return search.select_edges(found, prices)


def evident_support(moments: Moments, support: BoolArray, constraints: EdgeConstraints) -> BoolArray:
    """((p+1) d, d) support of the best network that moves over orders reach from an acyclic `support`.

    Penalties and thresholds leave weak effects out, and a turned edge leaves others open: residuals of such a network go
    along with each other although the noise is as it should be. So effects are added, left out and turned by BIC, with free
    noise variances, as long as that is cheaper.
    """
    prices = Criterion()
    search = OrderSearch(moments, constraints, prices.for_orders, "free")
    found = search.run_from(search.adopt(support))
    return search.select_edges(found, prices).support


# Below this share of its variance nothing is left of a node that could explain others: rounding.
_NOTHING = 1e-10


def order_of_gram(G: FloatArray, n: float, constraints: EdgeConstraints, *, moves: bool) -> list[int]:
    """Return an order searched on the (q, q) Gram matrix of n rows; without `moves` the first one, top down.

    Like the penalised least squares that it starts, the search prefers orders that leave little unexplained.
    """
    q = len(G)
    moments = Moments(n, np.zeros(q), n * G)
    search = OrderSearch(moments, constraints, Criterion().for_orders, "equal")
    search.start_top_down(prefer_high=False)
    if moves:
        search.improve()
    return list(search.order)


def order_by_variance(G: FloatArray, d: int) -> list[int]:
    """Return the order of the d nodes of a (q, q) Gram matrix, lowest variance given those before it and all lags first.

    That is the first order of the search without its selection of parents: a Cholesky factor, pivoted from below. It needs
    many rows for each column, as everything before a node counts as its parent.
    """
    between = G[:d, d:]
    # Lags may depend on each other.
    left = G[:d, :d] - between @ np.linalg.pinv(G[d:, d:], hermitian=True) @ between.T
    order: list[int] = []
    is_placed = np.zeros(d, dtype=bool)
    for _ in range(d):
        node = int(np.argmin(np.where(is_placed, np.inf, np.diag(left))))
        order.append(node)
        is_placed[node] = True
        if left[node, node] > _NOTHING * G[node, node]:
            left = left - np.outer(left[:, node], left[node]) / left[node, node]
    return order


MOST_WITHOUT_SCREENING = 40
"""Of more variables, all products would be far more columns than all curves."""


def products_to_ask(moments: Moments, constraints: EdgeConstraints) -> tuple[tuple[int, int, int], ...]:
    """(first, second, lag) of products of two different variables at one lag.

    Of more than `MOST_WITHOUT_SCREENING` variables only of those that are causes of one target, or one of them the target
    itself, in the best linear network: what acts only together is then missed.
    """
    d, lags = constraints.d, range(1, constraints.n_lags + 1)
    if d <= MOST_WITHOUT_SCREENING:
        return tuple((a, b, lag) for lag in lags for a in range(d) for b in range(a + 1, d))
    search = OrderSearch(moments, constraints, Criterion().for_orders, "free")
    support = search.run(0, np.random.default_rng(0)).support
    pairs = set()
    for j in range(d):
        causes = sorted({int(row) % d for row in np.flatnonzero(support[:, j])} | {j})
        pairs |= {(a, b) for place, a in enumerate(causes) for b in causes[place + 1 :]}
    return tuple((a, b, lag) for lag in lags for a, b in sorted(pairs))
