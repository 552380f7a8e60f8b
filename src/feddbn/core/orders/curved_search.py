"""The order search over tokens: edges that are straight or curved, and products of lagged variables.

    free variances    sum_j [ n log(RSS_j / n) + charge_j ]     + price of every token
    equal variances   n d log(sum_j RSS_j / (n d)) + sum_j charge_j + price of every token

The charge is the evidence's price of a token's flexibility (`core.orders.tokens`); the price is that of choosing
it: prior odds of one expected token a node, twice their logarithm.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feddbn.core.arrays import BoolArray
from feddbn.core.graphs.pruning import topological_order
from feddbn.core.orders.parent_sets import Columns
from feddbn.core.orders.parents import Objective, Parents
from feddbn.core.orders.search import OrderResult, OrderSearch
from feddbn.core.orders.tokens import ChargedFit, ChargedObjective, TokenRegressions

__all__ = ["CurvedSearch", "token_price"]


def token_price(n_tokens: int) -> float:
    """Twice the log prior odds against one of so many tokens, if a node is expected to have one."""
    return 2.0 * float(np.log(max(n_tokens - 1, 1)))


class CurvedSearch(OrderSearch):
    """A search whose parents are tokens; needs `regressions` of them."""

    regressions: TokenRegressions
    has_equivalents = False

    def _bits_within(self) -> list[Columns]:
        return [sum(1 << t for t in tokens) for tokens in self.regressions.tokens.present]

    def _columns_allowed(self) -> list[Columns]:
        edges = self.regressions.tokens.edges
        return [
            sum(1 << t for t, rows in enumerate(edges) if self.allowed[list(rows), j].all())
            for j in range(self.d)
        ]

    def _holds(self, parents: Parents, node: int) -> bool:
        bits = self._bits[node]
        return any(bits >> t & 1 for t in parents)

    def _objective_for(self, s2: float | None, n_present: int, n_lagged: int) -> Objective:
        n_tokens = self.regressions.q
        prices = np.full(n_tokens, token_price(n_tokens))
        return ChargedObjective(self.n, prices, self.regressions.total, s2)

    def _price_of(self, network: Sequence[Parents]) -> float:
        charge = sum(self._charge(j, parents) for j, parents in enumerate(network))
        return charge + token_price(self.regressions.q) * sum(map(len, network))

    def _charge(self, node: int, parents: Parents) -> float:
        fit = self.regressions.fit(node, parents)
        assert isinstance(fit, ChargedFit)
        return fit.charge

    def support_of(self, network: Sequence[Parents]) -> BoolArray:
        """((p+1) d, d) the edges of any network, whatever their shape."""
        tokens = self.regressions.tokens
        support = np.zeros((tokens.n_edges, self.d), dtype=bool)
        for j, parents in enumerate(network):
            for t in parents:
                support[list(tokens.edges[t]), j] = True
        return support

    def adopt(self, support: BoolArray) -> OrderResult:
        """Make the best network with just these edges, or fewer, the current one: each in the shape that suits it."""
        self._place_all(topological_order(support[: self.d]))
        edges = self.regressions.tokens.edges
        self._update_objective()
        self.parents = []
        for j in range(self.d):
            among = sum(1 << t for t, rows in enumerate(edges) if support[list(rows), j].all())
            self.parents.append(self.selection.select(j, (), among, exchange=True)[0])
        self._update_objective()
        return self.result()
