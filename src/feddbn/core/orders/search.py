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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.criterion import Criterion
from feddbn.core.orders.parent_sets import Columns, Moves, ParentSelection, columns_of
from feddbn.core.orders.parents import Objective, ParentRegressions, Parents
from feddbn.core.statistics.moments import Moments

__all__ = ["Criterion", "OrderResult", "search_order"]

NoiseVariance = Literal["equal", "free"]

_MAX_ALTERNATIONS = 12
_MAX_PASSES = 50
_MOST_OBJECTIVES = 4
_HOPELESS = 100.0
"""Score difference after an exchange from which moves of the nodes around never led back to what would count
as undecided (d = 50, n = 1000, equal and free variances: 143 of 428 exchanges)."""


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


class OrderSearch:
    """A search in progress; `run` is what callers need."""

    def __init__(
        self,
        moments: Moments,
        d: int,
        n_lags: int,
        constraints: EdgeConstraints,
        criterion: Criterion,
        noise_variance: NoiseVariance,
        regressions: ParentRegressions | None = None,
    ) -> None:
        self.d, self.n_lags, self.n = d, n_lags, float(moments.n)
        self._moments, self._limits = moments, constraints
        self.regressions = regressions or ParentRegressions(moments.scatter, moments.n, d)
        self.criterion = criterion
        self.noise_variance: NoiseVariance = noise_variance
        self.allowed: BoolArray = constraints.allowed
        required = constraints.required
        self.required: tuple[Parents, ...] = tuple(
            tuple(np.flatnonzero(required[:, j]).tolist()) for j in range(d)
        )
        self._may_have = [columns_of(self.allowed[:, j]) for j in range(d)]
        self._must_follow = [columns_of(required[:d, j]) for j in range(d)]
        self._lags: Columns = (1 << len(required)) - (1 << d)
        self._selections: dict[tuple[float | None, ...], ParentSelection] = {}
        self.order: list[int] = []
        self._before: list[Columns] = [0] * d
        self.parents: list[Parents] = [()] * d
        self._use(self._objective_for(None, 2 * d, d * min(n_lags, 1)))

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

    def select_edges(self, found: OrderResult, criterion: Criterion) -> OrderResult:
        """The network within the order found whose edges are selected, and scored, by another criterion."""
        other = OrderSearch(
            self._moments, self.d, self.n_lags, self._limits, criterion, self.noise_variance, self.regressions
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

    def adopt(self, support: BoolArray) -> OrderResult:
        """Make a given acyclic network the current one."""
        waiting, order = list(range(self.d)), []
        while waiting:
            node = next(j for j in waiting if not support[waiting, j].any())
            waiting.remove(node)
            order.append(node)
        self._place_all(order)
        self.parents = [tuple(np.flatnonzero(support[:, j]).tolist()) for j in range(self.d)]
        self._update_objective()
        return self.result()

    def rss(self) -> FloatArray:
        """(d,) residual sums of squares in the units of the moments."""
        return self.rss_of(self.parents)

    def rss_of(self, network: Sequence[Parents]) -> FloatArray:
        """(d,) the same of any network, given by its nodes' parents."""
        fits = [self.regressions.fit(j, parents).rss for j, parents in enumerate(network)]
        return np.maximum(np.array(fits) * self.regressions.total, 1e-300)

    def n_edges(self) -> tuple[int, int]:
        """Edges at lag 0, edges at lags >= 1."""
        return self._n_edges_of(self.parents)

    def _n_edges_of(self, network: Sequence[Parents]) -> tuple[int, int]:
        present = sum(sum(m < self.d for m in parents) for parents in network)
        return present, sum(len(parents) for parents in network) - present

    def score(self) -> float:
        """The criterion of the current network."""
        return self.score_of(self.parents)

    def score_of(self, network: Sequence[Parents]) -> float:
        """The criterion of any network."""
        rss = self.rss_of(network)
        if self.noise_variance == "equal":
            fit = self.n * self.d * np.log(rss.sum() / (self.n * self.d))
        else:
            fit = self.n * np.log(rss / self.n).sum()
        return float(fit) + self.criterion.total(self.n, self.d, self.n_lags, *self._n_edges_of(network))

    def result(self) -> OrderResult:
        """The current network."""
        support = np.zeros(((self.n_lags + 1) * self.d, self.d), dtype=bool)
        for j, parents in enumerate(self.parents):
            support[list(parents), j] = True
        return OrderResult(
            tuple(self.order), tuple(self.parents), self.rss(), self.score(), self.noise_variance, support
        )

    def _objective_for(self, s2: float | None, n_present: int, n_lagged: int) -> Objective:
        prices = self.criterion.marginal(self.n, self.d, self.n_lags, n_present, n_lagged)
        return Objective(self.n, prices, self.regressions.total, s2)

    def _update_objective(self) -> None:
        s2 = None
        if self.noise_variance == "equal":
            s2 = max(float(self.rss().sum()) / (self.n * self.d), 1e-300)
        self._use(self._objective_for(s2, *self.n_edges()))

    def _use(self, objective: Objective) -> None:
        """Change the objective; what was selected under one of the last few is remembered."""
        key = (objective.noise_variance, *objective.penalty[[0, -1]].tolist())
        known = self._selections.pop(key, None)
        self._selections[key] = self.selection = known or ParentSelection(
            self.regressions, objective, self.required
        )
        while len(self._selections) > _MOST_OBJECTIVES:
            del self._selections[next(iter(self._selections))]

    def _place_all(self, order: Sequence[int]) -> None:
        """Change the order."""
        self.order = list(order)
        before: Columns = 0
        for node in self.order:
            self._before[node] = before
            before |= 1 << node

    def _candidates(self, node: int) -> Columns:
        """The columns that may be parents of `node` in the present order."""
        return self._may_have[node] & (self._before[node] | self._lags)

    def _moves(self, node: int) -> Moves:
        return self.selection.moves(node, self.parents[node])

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
                if self._may_have[j] >> following & 1:
                    candidates[j] |= 1 << following
                    if self.selection.moves(j, chosen[j]).useful >> following & 1:
                        chosen[j] = select(j, chosen[j], candidates[j])[0]
                        variance[j] = float(weight[j] * self.regressions.fit(j, chosen[j]).rss)
        self._place_all(order)
        self.parents = [self.selection.select(j, chosen[j], self._candidates(j))[0] for j in range(d)]

    def _shake(self, rng: np.random.Generator) -> None:
        for _ in range(max(2, self.d // 5)):
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

    def _restore(self, result: OrderResult) -> None:
        self._place_all(result.order)
        self.parents = list(result.parents)
        self._update_objective()

    def improve(self, selection: ParentSelection | None = None) -> None:
        """Alternate noise variance and prices with insertion moves until the network stays the same.

        A `selection` gives the noise variance and prices to begin with.
        """
        best = self.result()
        for _ in range(_MAX_ALTERNATIONS):
            if selection is None:
                self._update_objective()
            before = list(self.parents)
            for _ in range(_MAX_PASSES):
                moved = [self._insert_best(node) for node in list(self.order)]
                if not any(moved):
                    break
            self._reselect()
            if self.score() < best.score - 1e-9:
                best = self.result()
            if selection is None and self.parents == before:
                break
            selection = None
        self._restore(best)

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
        select, order = self.selection.select, self.order
        own = self.parents[node]
        own_start = own_cost = self._moves(node).cost
        useful = self._moves(node).useful & self._may_have[node]
        candidates = self._candidates(node)
        others = 0.0
        changes: dict[int, Parents] = {}
        best: tuple[float, int, dict[int, Parents]] = (0.0 if past is None else np.inf, here, {})
        for place in range(here + step, self.d if step > 0 else -1, step):
            passed = order[place]
            if step < 0:
                if self._must_follow[node] >> passed & 1:
                    break
                candidates &= ~(1 << passed)
                touches_own = passed in own
                touches = self._moves(passed).useful & self._may_have[passed] & (1 << node)
            else:
                if self._must_follow[passed] >> node & 1:
                    break
                candidates |= self._may_have[node] & (1 << passed)
                touches_own = bool(useful >> passed & 1)
                touches = node in self.parents[passed]
            if touches_own:
                own, own_cost = select(node, own, candidates)
                useful = self.selection.moves(node, own).useful & self._may_have[node]
            if touches:
                # The passed node gains or loses this one as a candidate.
                parents, cost = select(passed, self.parents[passed], self._candidates(passed) ^ (1 << node))
                others += cost - self._moves(passed).cost
                changes[passed] = parents
            if past is not None and (place - past) * step < 0:
                continue
            total = own_cost - own_start + others
            if total < best[0] - 1e-9:
                best = (total, place, {**changes, node: own})
        return best

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
        self._must_follow = list(before)
        self._must_follow[source] |= 1 << target
        around = {source, target} if change < _HOPELESS else set()
        for j in tuple(around):
            around.update(m for m in result.parents[j] if m < self.d)
            around.update(np.flatnonzero(result.support[j]).tolist())
        for j in sorted(around):
            self._insert_best(j)
        self._must_follow = before
        turned = self.result()
        self._restore(result)
        return turned

    def _apply(self, node: int, here: int, place: int, changes: dict[int, Parents]) -> None:
        self.order.pop(here)
        self.order.insert(place, node)
        self._place_all(self.order)
        for j, parents in changes.items():
            self.parents[j] = parents
