"""A network within an order of its variables: its score, its result, and what its nodes may have as parents.

    equal variances   n d log(sum_j RSS_j / (n d)) + sum of edge penalties
    free variances    sum_j n log(RSS_j / n)       + sum of edge penalties

`core.orders.search` moves it to better orders.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, compress, count
from operator import ne
from typing import Literal

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.graphs.pruning import topological_order
from feddbn.core.orders.criterion import Criterion
from feddbn.core.orders.neighbours import Neighbours
from feddbn.core.orders.parent_sets import Columns, Moves, ParentSelection, columns_of
from feddbn.core.orders.parents import Objective, ParentRegressions, Parents
from feddbn.core.orders.screening import MANY_NODES, regressions_of
from feddbn.core.statistics.moments import Moments

__all__ = ["NoiseVariance", "OrderResult", "OrderedNetwork"]

NoiseVariance = Literal["equal", "free"]

_MOST_OBJECTIVES = 4
_SAME_VARIANCE = 1e-3


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


class OrderedNetwork:
    """An order and, for every node, parents among its predecessors and all lags, under one objective."""

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
        self.moments, self.limits = moments, constraints
        self.regressions = regressions or regressions_of(moments.scatter, moments.n, d)
        self.criterion = criterion
        self.noise_variance: NoiseVariance = noise_variance
        self.allowed: BoolArray = constraints.allowed
        required = constraints.required
        self.required: tuple[Parents, ...] = tuple(
            tuple(np.flatnonzero(required[:, j]).tolist()) for j in range(d)
        )
        self._may_have = self._columns_allowed()
        self._require([columns_of(required[:d, j]) for j in range(d)])
        self._bits = self._bits_within()
        self._neighbours = Neighbours(self._bits, self._may_have)
        self._lags: Columns = (1 << self.regressions.q) - 1 - sum(self._bits)
        self._restored: tuple[OrderResult, Objective] | None = None
        self._selections: dict[tuple[float | None, ...], ParentSelection] = {}
        self.order: list[int] = []
        self._placed: list[int] = []
        self._before: list[Columns] = [0] * d
        self._rank = [0] * d
        self._moved: set[int] = set()
        self.parents: list[Parents] = [()] * d
        self._use(self._objective_for(None, 2 * d, d * min(n_lags, 1)))

    def _bits_within(self) -> list[Columns]:
        """For each variable its columns within a moment: they may be parents of what comes later in the order."""
        return [1 << j for j in range(self.d)]

    def _columns_allowed(self) -> list[Columns]:
        """For each node the columns that constraints let it have."""
        return [columns_of(self.allowed[:, j]) for j in range(self.d)]

    def adopt(self, support: BoolArray) -> OrderResult:
        """Make a given acyclic network the current one."""
        self._place_all(topological_order(support[: self.d]))
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

    def rss_at(self, node: int, parents: Parents) -> float:
        """The same of one node."""
        return max(float(self.regressions.fit(node, parents).rss * self.regressions.total[node]), 1e-300)

    def n_edges(self) -> tuple[int, int]:
        """Edges at lag 0, edges at lags >= 1."""
        return self._n_edges_of(self.parents)

    def _n_edges_of(self, network: Sequence[Parents]) -> tuple[int, int]:
        # Parents are ascending.
        present = sum(bisect_left(parents, self.d) for parents in network)
        return present, sum(map(len, network)) - present

    def score(self) -> float:
        """The criterion of the current network."""
        return self.score_of(self.parents)

    def score_of(self, network: Sequence[Parents]) -> float:
        """The criterion of any network."""
        return self._score_with(self.rss_of(network), network)

    def _score_with(self, rss: FloatArray, network: Sequence[Parents]) -> float:
        if self.noise_variance == "equal":
            fit = self.n * self.d * np.log(rss.sum() / (self.n * self.d))
        else:
            fit = self.n * np.log(rss / self.n).sum()
        return float(fit) + self._price_of(network)

    def _price_of(self, network: Sequence[Parents]) -> float:
        """What the edges of any network cost."""
        return self.criterion.total(self.n, self.d, self.n_lags, *self._n_edges_of(network))

    def result(self) -> OrderResult:
        """The current network."""
        support, rss = self.support_of(self.parents), self.rss()
        score = self._score_with(rss, self.parents)
        return OrderResult(tuple(self.order), tuple(self.parents), rss, score, self.noise_variance, support)

    def support_of(self, network: Sequence[Parents]) -> BoolArray:
        """((p+1) d, d) the edges of any network."""
        support = np.zeros(((self.n_lags + 1) * self.d, self.d), dtype=bool)
        rows = np.fromiter(chain.from_iterable(network), dtype=np.intp)
        support[rows, np.repeat(np.arange(self.d), [len(parents) for parents in network])] = True
        return support

    def _holds(self, parents: Parents, node: int) -> bool:
        """Whether a node's column within the moment is among some parents."""
        return node in parents

    def _objective_for(self, s2: float | None, n_present: int, n_lagged: int) -> Objective:
        prices = self.criterion.marginal(self.n, self.d, self.n_lags, n_present, n_lagged)
        return Objective(self.n, prices, self.regressions.total, s2)

    def _update_objective(self) -> None:
        s2 = None
        if self.noise_variance == "equal":
            s2 = max(float(self.rss().sum()) / (self.n * self.d), 1e-300)
            if self.d > MANY_NODES:
                # What was selected under a variance that differs by less than this is worth keeping.
                s2 = float(np.exp(np.round(np.log(s2) / _SAME_VARIANCE) * _SAME_VARIANCE))
        self._use(self._objective_for(s2, *self.n_edges()))

    def _use(self, objective: Objective) -> None:
        """Change the objective; what was selected under one of the last few is remembered."""
        key = self._key = (objective.noise_variance, *objective.penalty[[0, -1]].tolist())
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
