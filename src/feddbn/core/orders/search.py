"""The network that minimises a BIC-type score, searched over orders of the variables.

    equal variances   n d log(sum_j RSS_j / (n d)) + sum of edge penalties
    free variances    sum_j n log(RSS_j / n)       + sum of edge penalties

Rules of the file
-----------------
- The state of a search is an order and, for every node, parents among its predecessors and all lags. Its
  score is the score of an actual acyclic network at every moment.
- One move takes a node out of the order and inserts it elsewhere (`core.orders.insertion`).
- The equal-variance score is ``min over s2 of n d log s2 + sum_j RSS_j / s2 - n d``; for fixed s2 it
  decomposes over nodes. s2 and the search alternate until the network stays the same.
- Everything is deterministic given the generator, which only restarts use.

Known weaknesses: a local optimum of insertion moves need not be the best order; restarts shake the order and
keep the better score. Free-variance Gaussian networks are identified only up to equivalence (see
`core.orders.orientation`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

import numpy as np

from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.criterion import Criterion
from feddbn.core.orders.insertion import HOPELESS, Insertions
from feddbn.core.orders.ordered_network import NoiseVariance, OrderResult
from feddbn.core.orders.parent_sets import ParentSelection
from feddbn.core.orders.parents import Parents
from feddbn.core.orders.screening import MANY_NODES, ScreenedRegressions
from feddbn.core.statistics.moments import Moments

__all__ = ["Criterion", "NoiseVariance", "OrderResult", "OrderSearch", "search_order"]

_MAX_ALTERNATIONS = 12
_MAX_PASSES = 50
_MAX_WIDER = 5


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


class OrderSearch(Insertions):
    """A search in progress; `run` is what callers need."""

    has_equivalents = True
    """Whether networks with free variances have others that fit equally well (`core.orders.orientation`)."""

    _settled: tuple[ParentSelection, list[Parents | None], list[int]] | None = None
    """Under what no move helped: the selection, each node's parents and its place."""

    @cached_property
    def _complete(self) -> dict[int, tuple[Parents, tuple[float | None, ...]]]:
        """For each node the parents and the prices at which screening left out nothing that helps."""
        return {}

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
            if self.score() < best.score - 1e-9:
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

    def score_reversed(self, result: OrderResult, source: int, target: int) -> float:
        """The score of `best_reversed`; infinite if there is none."""
        if not self._turn(result, source, target):
            return np.inf
        rss = result.rss.copy()
        for j, parents in enumerate(self.parents):
            if parents is not result.parents[j]:
                rss[j] = self.rss_at(j, parents)
        score = self._score_with(rss, self.parents)
        self._restore(result)
        return score

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
