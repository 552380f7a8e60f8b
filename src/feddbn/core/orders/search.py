"""The network that minimises a BIC-type score, searched over orders of the variables.

    equal variances   n d log(sum_j RSS_j / (n d)) + sum of edge penalties
    free variances    sum_j n log(RSS_j / n)       + sum of edge penalties

Rules of the file
-----------------
- The state of a search is an order and, for every node, parents among its predecessors and all lags. Its
  score is the score of an actual acyclic network at every moment.
- One move takes a node out of the order and inserts it elsewhere. While it travels, only its own parents and
  those of the node it passes can change, so the cost of all its insertions is found in one pass over the
  order; a node that would neither lose a parent nor gain a useful one is passed without any algebra.
- The equal-variance score is ``min over s2 of n d log s2 + sum_j RSS_j / s2 - n d``; for fixed s2 it
  decomposes over nodes. s2 and the search alternate until the network stays the same.
- Everything is deterministic given the generator, which only restarts use.

Known weaknesses: a local optimum of insertion moves need not be the best order; restarts shake the order and
keep the better score. Free-variance Gaussian networks are identified only up to equivalence (see
`core.orders.orientation`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.criterion import Criterion
from feddbn.core.orders.ordered_network import NoiseVariance, OrderedNetwork, OrderResult
from feddbn.core.orders.parent_sets import ParentSelection
from feddbn.core.orders.parents import Parents
from feddbn.core.orders.screening import MANY_NODES, ScreenedRegressions
from feddbn.core.statistics.moments import Moments

__all__ = ["Criterion", "NoiseVariance", "OrderResult", "OrderSearch", "search_order"]

_MAX_ALTERNATIONS = 12
_MAX_PASSES = 50
_MAX_WIDER = 5
_HOPELESS = 100.0
"""Score difference after an exchange from which moves of the nodes around never led back to what would count
as undecided (d = 50, n = 1000, equal and free variances: 143 of 428 exchanges)."""


def search_order(
    moments: Moments,
    d: int,
    n_lags: int,
    constraints: EdgeConstraints | None = None,
    criterion: Criterion | None = None,
    noise_variance: NoiseVariance = "equal",
    n_restarts: int = 0,
    rng: np.random.Generator | None = None,
) -> OrderResult:
    """Return the best network found by insertion moves over orders.

    Parameters
    ----------
    moments
        Of the lagged rows ``z_t``, q = (n_lags + 1) d.
    constraints
        Forbidden and required edges.
    criterion
        Price of edges.
    noise_variance
        "equal" reads the order off the scales; "free" does not depend on the units.
    n_restarts
        How often to shake the best order and search again.
    rng
        Only for restarts.
    """
    limits = EdgeConstraints.none(d, n_lags) if constraints is None else constraints
    prices = criterion or Criterion()
    search = OrderSearch(moments, d, n_lags, limits, prices.for_orders, noise_variance)
    found = search.run(n_restarts, np.random.default_rng(0) if rng is None else rng)
    return search.select_edges(found, prices)


class OrderSearch(OrderedNetwork):
    """A search in progress; `run` is what callers need."""

    has_equivalents = True
    """Whether networks with free variances have others that fit equally well (`core.orders.orientation`)."""

    @property
    def _barrier(self) -> float:
        """Above what change of the cost a node of many does not travel on: one by which exchanges are hopeless."""
        return _HOPELESS * max(1.0, self.n / 1000) if self.d > MANY_NODES else np.inf

    def run(self, n_restarts: int, rng: np.random.Generator) -> OrderResult:
        """Search from the natural starts, then shake the best `n_restarts` times."""
        best: OrderResult | None = None
        for prefer_high in (False,) if self.noise_variance == "equal" else (False, True):
            self.start_top_down(prefer_high)
            self.improve()
            if best is None or self.score() < best.score - 1e-9:
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
        """Move every node of a given network to its best place, once: where a search from there would begin."""
        self._restore(start)
        for node in start.order:
            self._insert_best(node)
        self._reselect()
        return self.result()

    def select_edges(self, found: OrderResult, criterion: Criterion) -> OrderResult:
        """The network within the order found whose edges are selected, and scored, by another criterion."""
        other = type(self)(
            self.moments, self.d, self.n_lags, self.limits, criterion, self.noise_variance, self.regressions
        )
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
        candidates = [self._may_have[j] & self._lags for j in range(d)]
        waiting, left = list(range(d)), (1 << d) - 1
        chosen = [select(j, (), candidates[j])[0] for j in range(d)]
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
            for j in waiting:
                more = self._may_have[j] & self._bits[following]
                if more:
                    candidates[j] |= more
                    if self.selection.moves(j, chosen[j]).useful & more:
                        chosen[j] = select(j, chosen[j], candidates[j])[0]
                        variance[j] = float(weight[j] * self.regressions.fit(j, chosen[j]).rss)
        self._place_all(order)
        self.parents = [self.selection.select(j, chosen[j], self._candidates(j))[0] for j in range(d)]

    def _shake(self, rng: np.random.Generator) -> None:
        for _ in range(max(2, min(self.d, MANY_NODES) // 5)):
            node = int(rng.integers(self.d))
            self.order.remove(node)
            self.order.insert(int(rng.integers(self.d)), node)
        self._place_all(self._repaired())
        self.parents = [
            self.selection.select(j, self.parents[j], self._candidates(j))[0] for j in range(self.d)
        ]

    def _repaired(self) -> list[int]:
        """The order with required parents moved in front."""
        waiting, left, repaired = list(self.order), (1 << self.d) - 1, []
        while waiting:
            node = next(j for j in waiting if not self._must_follow[j] & left)
            waiting.remove(node)
            left ^= 1 << node
            repaired.append(node)
        return repaired

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
        known, missed = self.regressions, False
        if not isinstance(known, ScreenedRegressions):
            return False
        for j, parents in enumerate(self.parents):
            whole = replace(known.fit(j, parents), gain=known.missed(j, parents), columns=None)
            lower = np.flatnonzero(self.selection.objective.add_deltas(j, whole) < -1e-9)
            # Also what comes later in the order: it may have come there because it was not looked at.
            columns = [m for m in lower.tolist() if self._may_have[j] >> m & 1]
            if columns:
                known.take_up(j, columns)
                missed = True
        if missed:
            self._forget()
        return missed

    def _improve(self, selection: ParentSelection | None = None) -> None:
        best = self.result()
        for _ in range(_MAX_ALTERNATIONS):
            if selection is None:
                self._update_objective()
            before = list(self.parents)
            nodes = list(self.order)
            for _ in range(_MAX_PASSES):
                self._moved.clear()
                moved = [self._insert_best(node) for node in nodes]
                if not any(moved):
                    break
                nodes = self._worth_another_look()
            self._reselect()
            if self.score() < best.score - 1e-9:
                best = self.result()
            if selection is None and self.parents == before:
                break
            selection = None
        self._restore(best)

    def _worth_another_look(self) -> list[int]:
        """The nodes of the next pass: of many variables those near what the last one changed."""
        if self.d <= MANY_NODES:
            return list(self.order)
        self._neighbours.update(self.selection, self.parents)
        near = self._moved.union(*(self._neighbours.around(j) for j in self._moved))
        return [node for node in self.order if node in near]

    def _reselect(self) -> None:
        """Select every node's parents afresh and by exchange from the present ones; keep the cheaper."""
        for j in range(self.d):
            candidates = self._candidates(j)
            kept = self.selection.select(j, self.parents[j], candidates, exchange=True)
            fresh = self.selection.select(j, (), candidates, exchange=True)
            self.parents[j] = kept[0] if kept[1] <= fresh[1] + 1e-9 else fresh[0]

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
            elif total > best[0] + self._barrier:
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

    def best_reversed(self, result: OrderResult, source: int, target: int) -> OrderResult | None:
        """The best network found in which `target` precedes `source`; None if that is not allowed.

        The cheaper way of exchanging the two is taken; then, unless that is hopelessly worse, the nodes around
        them move once more under that condition.
        """
        self._restore(result)
        rank = {node: place for place, node in enumerate(result.order)}
        ways = [(target, -1, source), (source, 1, target)]
        found = [(self._scan(node, rank[node], step, rank[other]), node) for node, step, other in ways]
        (change, place, changes), node = min(found, key=lambda way: way[0][0])
        if not np.isfinite(change):
            return None
        self._apply(node, rank[node], place, changes)
        before = self._must_follow
        after = list(before)
        after[source] |= 1 << target
        self._require(after)
        around = {source, target} if change < _HOPELESS else set()
        for j in tuple(around):
            around.update(np.flatnonzero(result.support[: self.d, j]).tolist())
            around.update(np.flatnonzero(result.support[j]).tolist())
        for j in sorted(around):
            self._insert_best(j)
        self._require(before)
        turned = self.result()
        self._restore(result)
        return turned

    def _apply(self, node: int, here: int, place: int, changes: dict[int, Parents]) -> None:
        self.order.pop(here)
        self.order.insert(place, node)
        self._place_all(self.order)
        for j, parents in changes.items():
            self.parents[j] = parents
        self._moved.update((node, *changes))
