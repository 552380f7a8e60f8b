"""Edge probabilities, within and across moments, averaged over orders of the variables and over parent sets.

Model for one node y given an order: every candidate parent is in the network with prior probability pi_W (lag
0) or pi_A (lags >= 1). With equal noise variances s2 the variables have comparable units, so weights are
independent with variance g; with free ones the k weights have a g-prior, which does not depend on units. With
T the sum of squares of y, R^2 T the explained part, X the parents and M = X'X + (s2/g) I:

    equal variances   log ML = 1/2 y'X M^-1 X'y / s2 - 1/2 log det (g/s2 M)
    free variances    log ML = -(n-1)/2 log(1 - g/(1+g) R^2) - k/2 log(1+g)

or, if that has the larger evidence (weights keep away from zero), a moment prior of order r = 1, 2 or 3: the
same times beta^2r of every weight (Johnson and Rossell 2012), which asks for more before a small weight counts.

Where rows are few, parents are far from orthogonal by chance. A g-prior then expects large weights in directions
the data say nothing about: with it 3.6 more edges of 45 were wrong at d = 15, n = 90.

Theory of operation: each node gets a table over all subsets of its most promising columns, and from it, by
one transform, the log of the summed posterior weight of all subsets of every subset. After that an order's
posterior is d look-ups (Friedman and Koller 2003; the tables as in Kuipers, Suter and Moffa 2022), and a
sampler that draws a node's place from its exact conditional distribution over all places mixes quickly. The
probability of an edge given an order is exact: ``1 - exp(Z[without the column] - Z)``. pi_W, pi_A, s2 and, with
free variances, g are fitted by EM steps that raise the marginal likelihood; with equal variances g climbs it.

Known weaknesses: columns outside a node's table have probability 0; the prior is uniform over orders, not
over networks; the memory is d 2^(table size) numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.graphs.constraints import EdgeConstraints, has_cycle
from feddbn.core.orders.fitted_prior import fit_prior
from feddbn.core.orders.order_chain import OrderChain, OrderTotals, given_order
from feddbn.core.orders.parent_tables import Hyper, NodeTable
from feddbn.core.orders.parents import ParentRegressions
from feddbn.core.orders.search import OrderResult

__all__ = [
    "CERTAIN_LINK",
    "Hyper",
    "OrderPosterior",
    "average_orders",
    "average_within_order",
    "median_graph",
    "nominees_of",
    "posterior_of",
    "sampled_orders",
]

CERTAIN_LINK = 0.9
"""A link that is as probable is in the network whichever way it points."""
_FEW_ROWS = 200
_SIZE_FOR_PRIOR = 10
"""Columns of the tables from which the prior's parameters are fitted, unless rows are few: with many rows the
columns beyond these have no weight to speak of, and the fit is most of the cost."""
_SIZE_GIVEN_THE_ORDER = 8
"""The same for many variables with equal variances, whose candidates are at most their predecessors."""


@dataclass(frozen=True)
class OrderPosterior:
    """Posterior of the edges.

    Attributes
    ----------
    probability
        ((p+1) d, d) probability of each edge, the stack ``[W; A_1; ...]``.
    precedes
        (d, d) probability that one variable comes before another in the order.
    hyper
        The fitted prior.
    n_orders
        Orders averaged over; 1 if the order was given.
    n_chains
        Chains averaged over: those that arrived where the best one is.
    """

    probability: FloatArray
    precedes: FloatArray
    hyper: Hyper
    n_orders: int
    n_chains: int = 1


def average_orders(
    regressions: ParentRegressions,
    starts: Sequence[OrderResult],
    constraints: EdgeConstraints,
    rng: np.random.Generator,
    table_size: int = 12,
    n_sweeps: int = 60,
    n_chains: int = 3,
    n_em: int = 4,
) -> OrderPosterior:
    """Return edge probabilities averaged over sampled orders.

    Parameters
    ----------
    regressions
        Fits on the moments.
    starts
        Results of searches; the first is where the chains begin, all of them nominate columns for the tables.
    table_size
        Columns in each node's table: 2^table_size numbers per node.
    n_sweeps, n_chains
        Sweeps over all nodes in each chain, a fifth of them as burn-in. Chains beyond the first begin at
        random orders.
    n_em
        Updates of the prior's parameters, each after a fifth of the sweeps.
    """
    best = starts[0]
    nominees = [nominees_of(regressions, j, starts, constraints)[:table_size] for j in range(regressions.d)]
    is_large = best.noise_variance == "free" and regressions.n < _FEW_ROWS
    size = table_size if is_large else min(_SIZE_FOR_PRIOR, table_size)

    def sampled(chain: OrderChain) -> OrderTotals:
        totals = OrderTotals(regressions)
        for sweep in range(max(n_sweeps // 5, 10)):
            chain.sweep()
            if sweep >= 5:
                totals.add(chain)
        return totals

    chain, hyper = _fitted_chain(
        sampled, regressions, nominees, constraints, best, (size, table_size), n_em, rng
    )
    return posterior_of(sampled_orders(chain, best.order, constraints, rng, n_sweeps, n_chains), hyper)


def sampled_orders(
    chain: OrderChain,
    first: Sequence[int],
    constraints: EdgeConstraints,
    rng: np.random.Generator,
    n_sweeps: int = 60,
    n_chains: int = 3,
) -> list[OrderTotals]:
    """What the orders of several chains imply, of those that arrived; the first begins at a given order."""
    runs = []
    for index in range(n_chains):
        chain.restart(
            list(first) if index == 0 else chain.feasible(rng.permutation(chain.d).tolist(), constraints)
        )
        totals = OrderTotals(chain.tables[0].regressions)
        for sweep in range(n_sweeps + n_sweeps // 5):
            chain.sweep()
            if sweep >= n_sweeps // 5:
                totals.add(chain)
        runs.append(totals)
    return _arrived(runs)


def average_within_order(
    regressions: ParentRegressions,
    found: OrderResult,
    constraints: EdgeConstraints,
    table_size: int = 11,
) -> OrderPosterior:
    """Return edge probabilities given the order of a network, averaged over parent sets only.

    What the direction of an edge rests on is not part of the average: an edge against the order has
    probability 0.
    """
    rank = np.empty(regressions.d, dtype=int)
    rank[list(found.order)] = np.arange(regressions.d)
    allowed = constraints.allowed.copy()
    allowed[: regressions.d] &= rank[:, None] < rank[None, :]
    limits = EdgeConstraints(allowed, constraints.required)
    nominees = [nominees_of(regressions, j, [found], limits)[:table_size] for j in range(regressions.d)]
    free = found.noise_variance == "free"
    size = min(_SIZE_FOR_PRIOR if free else _SIZE_GIVEN_THE_ORDER, table_size)
    # With equal variances the climb has settled the prior already.
    n_em = 6 if free else 2
    chain, hyper = _fitted_chain(
        given_order, regressions, nominees, limits, found, (size, table_size), n_em, np.random.default_rng(0)
    )
    return posterior_of([given_order(chain)], hyper)


def _fitted_chain(
    collect: Callable[[OrderChain], OrderTotals],
    regressions: ParentRegressions,
    nominees: list[list[int]],
    constraints: EdgeConstraints,
    best: OrderResult,
    sizes: tuple[int, int],
    n_em: int,
    rng: np.random.Generator,
) -> tuple[OrderChain, Hyper]:
    """A chain over tables of ``sizes[1]`` columns under the prior that fits tables of ``sizes[0]`` columns best."""
    free, order = best.noise_variance == "free", list(best.order)
    chain = OrderChain(_tables(regressions, nominees, constraints, sizes[0]), order, rng)
    hyper = fit_prior(collect, chain, regressions, best, n_em)
    tables = _tables(regressions, nominees, constraints, sizes[1])
    for table in tables:
        table.weigh(hyper, free)
    return OrderChain(tables, order, rng), hyper


def _tables(
    regressions: ParentRegressions, nominees: list[list[int]], constraints: EdgeConstraints, size: int
) -> list[NodeTable]:
    """One table per node over the first `size` of its nominees."""
    return [
        NodeTable(regressions, j, sorted(columns[:size]), constraints) for j, columns in enumerate(nominees)
    ]


def _arrived(runs: list[OrderTotals]) -> list[OrderTotals]:
    """The chains whose orders are about as probable as those of the best chain.

    With many rows the posterior is so narrow that a chain from a random order may stay in a worse mode; to
    average over it would mix in networks that the data exclude.
    """
    best = max(runs, key=lambda run: float(np.mean(run.log_sums)))
    least = float(np.mean(best.log_sums)) - 4 * float(np.std(best.log_sums)) - 3
    return [run for run in runs if float(np.mean(run.log_sums)) >= least]


def posterior_of(runs: list[OrderTotals], hyper: Hyper) -> OrderPosterior:
    """Return the average over what all orders imply."""
    count = sum(run.count for run in runs)
    edges = sum((run.edges for run in runs), np.zeros_like(runs[0].edges)) / count
    precedes = sum((run.precedes for run in runs), np.zeros_like(runs[0].precedes)) / count
    return OrderPosterior(edges, precedes, hyper, count, len(runs))


def median_graph(probability: FloatArray, required: BoolArray, *, keep_links: bool = False) -> BoolArray:
    """((p+1) d, d) the edges above one half, which minimise the expected number of wrong edges.

    With `keep_links` a link at lag 0 that is nearly certain stays, though neither of its directions is above one half.
    Should the edges at lag 0 form a cycle, the least probable ones of it stay out.
    """
    d = probability.shape[1]
    support = (probability > 0.5) | required
    if keep_links:
        within = probability[:d]
        first = (within > within.T) | ((within == within.T) & np.triu(np.ones((d, d), dtype=bool), 1))
        support[:d] |= (within + within.T > CERTAIN_LINK) & first & ~support[:d].T
    if not has_cycle(support[:d]):
        return support
    W = required[:d].copy()
    rows, columns = np.nonzero(support[:d] & ~W)
    for k in np.argsort(-probability[rows, columns], kind="stable"):
        W[rows[k], columns[k]] = True
        if has_cycle(W):
            W[rows[k], columns[k]] = False
    support[:d] = W
    return support


def nominees_of(
    regressions: ParentRegressions,
    node: int,
    starts: Sequence[OrderResult],
    constraints: EdgeConstraints,
) -> list[int]:
    """The columns for one node's table: required ones, parents in any start, then the largest gains."""
    allowed = constraints.allowed[:, node].copy()
    votes = np.zeros(regressions.q)
    for result in starts:
        for m in result.parents[node]:
            votes[m] += 1 / len(starts)
    # A column matters if it helps the node alone with the lags, or beside the parents found, in any order.
    gain = np.zeros(regressions.q)
    for result in starts:
        gain = np.maximum(gain, regressions.fit(node, result.parents[node]).gains(regressions.q))
        for m in result.parents[node]:
            rest = tuple(k for k in result.parents[node] if k != m)
            gain = np.maximum(gain, regressions.fit(node, rest).gains(regressions.q))
    rank = gain + 10 * votes + 100 * constraints.required[:, node]
    rank[~allowed] = -1
    best_first = np.argsort(-rank, kind="stable")
    return [int(m) for m in best_first[rank[best_first] >= 0].tolist()]
