"""Edge probabilities over orders where edges may be straight or curved: tables over subsets of tokens.

The evidence of a set of tokens is that of `core.orders.tokens`; every token is in the network with the prior odds of
`curved_search.token_price`. The probability of an edge is that of any of its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.average import OrderPosterior, nominees_of, posterior_of, sampled_orders
from feddbn.core.orders.curved_search import CurvedSearch, token_price
from feddbn.core.orders.order_chain import OrderChain, given_order
from feddbn.core.orders.parent_tables import Hyper, NodeTable, subset_sums
from feddbn.core.orders.search import OrderResult
from feddbn.core.orders.tokens import TokenRegressions

__all__ = [
    "TABLE_SIZE",
    "TokenTable",
    "average_tokens",
    "posterior_from_tables",
    "token_limits",
    "token_subset_fits",
]

TABLE_SIZE = 11
"""Tokens, or variables at lags, in a node's table."""


class TokenTable(NodeTable):
    """All subsets of one node's nominated tokens; bit b of a subset stands for columns[b]."""

    regressions: TokenRegressions

    def __init__(
        self, regressions: TokenRegressions, node: int, columns: list[int], constraints: EdgeConstraints
    ) -> None:
        super().__init__(regressions, node, columns, constraints)
        edges, d = regressions.tokens.edges, regressions.d
        of_edge: dict[int, int] = {}
        self.lag_mask = 0
        for b, t in enumerate(columns):
            for row in edges[t]:
                of_edge[row] = of_edge.get(row, 0) | 1 << b
            if edges[t][0] >= d:
                self.lag_mask |= 1 << b
        self.edge_bits = list(of_edge.items())
        self.node_bits = {row: bits for row, bits in of_edge.items() if row < d}

    def weigh(self, hyper: Hyper, free: bool) -> None:
        """Recompute the summed weights; `hyper` gives the noise variance, if it is common, and the prior odds."""
        known = self.regressions
        rss, charge = token_subset_fits(known, self.columns, self.node)
        size = known.total[self.node] / (2 * hyper.noise_variance)
        fit = -(known.n - 1) / 2 * np.log(rss) if free else -size * rss
        weight = np.asarray(fit - charge / 2 - self.n_all * token_price(known.q) / 2)
        weight[~self.possible] = -np.inf
        self.log_sum = subset_sums(weight)
        # What is explained is only asked for where a prior is fitted.
        self.log_fit = np.full_like(self.log_sum, -np.inf)


def token_subset_fits(
    regressions: TokenRegressions, tokens: list[int], node: int
) -> tuple[FloatArray, FloatArray]:
    """(2^k,) residual sums of squares of `node` on every subset of `tokens`, and the subsets' charges; by sweeps."""
    groups = [regressions.tokens.columns[t] for t in tokens]
    index = [*(c for group in groups for c in group), node]
    start = regressions.correlation[np.ix_(index, index)].copy()
    ridge = regressions.ridge[index[:-1]]
    start.flat[: -1 : len(index) + 1] += ridge
    rest, charge, first = start[None], np.zeros(1), 0
    for group in groups:
        width = len(group)
        swept, more = rest, np.zeros(len(rest))
        for _ in range(width):
            pivot, row, tail = swept[:, 0, 0], swept[:, 0, 1:], swept[:, 1:, 1:]
            more = more + np.log(np.maximum(pivot, 1e-300))
            swept = tail - row[:, :, None] * row[:, None, :] / pivot[:, None, None]
        more -= float(np.log(ridge[first : first + width]).sum())
        charge = np.concatenate([charge, charge + more])
        rest = np.concatenate([rest[:, width:, width:], swept])
        first += width
    return np.clip(rest[:, 0, 0], 1e-12, 1.0), charge


def token_limits(search: CurvedSearch, constraints: EdgeConstraints) -> EdgeConstraints:
    """The constraints by token; a required edge is required as a straight line."""
    edges = search.regressions.tokens.edges
    allowed = np.array([constraints.allowed[list(rows)].all(axis=0) for rows in edges])
    required = np.zeros_like(allowed)
    required[: len(constraints.required)] = constraints.required
    return EdgeConstraints(allowed, required)


def average_tokens(
    search: CurvedSearch,
    found: OrderResult,
    constraints: EdgeConstraints,
    rng: np.random.Generator,
    over_orders: bool,
) -> OrderPosterior:
    """Return edge probabilities, over orders or given that of the network found."""
    regressions, d = search.regressions, search.d
    limits = token_limits(search, constraints)
    if not over_orders:
        rank = np.empty(d, dtype=int)
        rank[list(found.order)] = np.arange(d)
        allowed = limits.allowed.copy()
        for j, tokens in enumerate(regressions.tokens.present):
            allowed[tokens] &= rank[j] < rank[None, :]
        limits = replace(limits, allowed=allowed)
    tables: list[NodeTable] = []
    s2 = max(float(found.rss.sum()) / (search.n * d), 1e-300)
    hyper = Hyper(1 / regressions.q, 1 / regressions.q, 1.0, s2)
    for j in range(d):
        chosen = nominees_of(regressions, j, [found], limits)[:TABLE_SIZE]
        table = TokenTable(regressions, j, sorted(chosen), limits)
        table.weigh(hyper, found.noise_variance == "free")
        tables.append(table)
    return posterior_from_tables(tables, found, constraints, rng, hyper, over_orders)


def posterior_from_tables(
    tables: Sequence[NodeTable],
    found: OrderResult,
    constraints: EdgeConstraints,
    rng: np.random.Generator,
    hyper: Hyper,
    over_orders: bool,
) -> OrderPosterior:
    """Return edge probabilities from weighed tables, over orders or given that of a network."""
    chain = OrderChain(list(tables), list(found.order), rng)
    if not over_orders:
        return posterior_of([given_order(chain)], hyper)
    return posterior_of(sampled_orders(chain, found.order, constraints, rng), hyper)
