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
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.graphs.constraints import EdgeConstraints, has_cycle
from feddbn.core.orders.parent_tables import Hyper, NodeTable
from feddbn.core.orders.parents import ParentRegressions
from feddbn.core.orders.search import OrderResult

__all__ = ["Hyper", "OrderPosterior", "average_orders", "average_within_order", "median_graph"]

_MAX_G_RATIO = 10.0
_HIGHEST_MOMENT = 3
_FIRST_VARIANCE = 0.15
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
    nominees = [_nominees(regressions, j, starts, constraints) for j in range(regressions.d)]
    is_large = best.noise_variance == "free" and regressions.n < _FEW_ROWS
    size = table_size if is_large else min(_SIZE_FOR_PRIOR, table_size)

    def sampled(chain: _Chain) -> _Totals:
        totals = _Totals(regressions)
        for sweep in range(max(n_sweeps // 5, 10)):
            chain.sweep()
            if sweep >= 5:
                totals.add(chain)
        return totals

    chain, hyper = _fitted_chain(
        sampled, regressions, nominees, constraints, best, (size, table_size), n_em, rng
    )
    runs = []
    for index in range(n_chains):
        chain.restart(
            list(best.order)
            if index == 0
            else chain.feasible(rng.permutation(regressions.d).tolist(), constraints)
        )
        totals = _Totals(regressions)
        for sweep in range(n_sweeps + n_sweeps // 5):
            chain.sweep()
            if sweep >= n_sweeps // 5:
                totals.add(chain)
        runs.append(totals)
    return _posterior(_arrived(runs), hyper)


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
    nominees = [_nominees(regressions, j, [found], limits) for j in range(regressions.d)]
    free = found.noise_variance == "free"
    size = min(_SIZE_FOR_PRIOR if free else _SIZE_GIVEN_THE_ORDER, table_size)
    # With equal variances the climb has settled the prior already.
    n_em = 6 if free else 2
    chain, hyper = _fitted_chain(
        _given, regressions, nominees, limits, found, (size, table_size), n_em, np.random.default_rng(0)
    )
    return _posterior([_given(chain)], hyper)


def _fitted_chain(
    collect: Callable[[_Chain], _Totals],
    regressions: ParentRegressions,
    nominees: list[list[int]],
    constraints: EdgeConstraints,
    best: OrderResult,
    sizes: tuple[int, int],
    n_em: int,
    rng: np.random.Generator,
) -> tuple[_Chain, Hyper]:
    """A chain over tables of ``sizes[1]`` columns under the prior that fits tables of ``sizes[0]`` columns best."""
    free, order = best.noise_variance == "free", list(best.order)
    chain = _Chain(_tables(regressions, nominees, constraints, sizes[0]), order, rng)
    fit = _fit_g_prior if free else _fit_independent
    hyper = fit(collect, chain, regressions, best, n_em)
    tables = _tables(regressions, nominees, constraints, sizes[1])
    for table in tables:
        table.weigh(hyper, free)
    return _Chain(tables, order, rng), hyper


def _given(chain: _Chain) -> _Totals:
    """What the chain's order alone implies."""
    totals = _Totals(chain.tables[0].regressions)
    totals.add(chain)
    return totals


def _tables(
    regressions: ParentRegressions, nominees: list[list[int]], constraints: EdgeConstraints, size: int
) -> list[NodeTable]:
    """One table per node over the first `size` of its nominees."""
    return [
        NodeTable(regressions, j, sorted(columns[:size]), constraints) for j, columns in enumerate(nominees)
    ]


def _arrived(runs: list[_Totals]) -> list[_Totals]:
    """The chains whose orders are about as probable as those of the best chain.

    With many rows the posterior is so narrow that a chain from a random order may stay in a worse mode; to
    average over it would mix in networks that the data exclude.
    """
    best = max(runs, key=lambda run: float(np.mean(run.log_sums)))
    least = float(np.mean(best.log_sums)) - 4 * float(np.std(best.log_sums)) - 3
    return [run for run in runs if float(np.mean(run.log_sums)) >= least]


def _posterior(runs: list[_Totals], hyper: Hyper) -> OrderPosterior:
    count = sum(run.count for run in runs)
    edges = sum((run.edges for run in runs), np.zeros_like(runs[0].edges)) / count
    precedes = sum((run.precedes for run in runs), np.zeros_like(runs[0].precedes)) / count
    return OrderPosterior(edges, precedes, hyper, count, len(runs))


def _first_hyper(regressions: ParentRegressions, best: OrderResult, moment_order: int) -> Hyper:
    d, n = regressions.d, regressions.n
    n_lags = regressions.q // d - 1
    n_present = max(float(best.support[:d].sum()), 1.0)
    n_lagged = max(float(best.support[d:].sum()), 1.0)
    s2 = float(best.rss.sum()) / max(n * d - n_present - n_lagged, 1.0)
    # A moment prior of scale g and order r has 2r + 1 times the variance of a normal one.
    g = n / (3 * (2 * moment_order + 1))
    return Hyper(_share(n_present, d * (d - 1) / 2), _share(n_lagged, n_lags * d * d), g, s2, moment_order)


def _fit_g_prior(
    collect: Callable[[_Chain], _Totals],
    chain: _Chain,
    regressions: ParentRegressions,
    best: OrderResult,
    n_em: int,
) -> Hyper:
    """Free variances: the prior after `n_em` EM steps, at the order of the moment prior with the largest evidence."""
    fitted: dict[int, tuple[float, Hyper]] = {}

    def evidence(order: int) -> float:
        if order not in fitted:
            hyper, value = _first_hyper(regressions, best, order), -np.inf
            chain.restart(list(best.order))
            for _ in range(n_em):
                for table in chain.tables:
                    table.weigh(hyper, True)
                chain.restart(chain.order.tolist())
                totals = collect(chain)
                value = totals.evidence(hyper, True)
                hyper = _updated(hyper, totals, regressions)
            fitted[order] = (value, hyper)
        return fitted[order][0]

    order = 0 if evidence(0) >= evidence(1) else 1
    while 0 < order < _HIGHEST_MOMENT and evidence(order + 1) > evidence(order):
        order += 1
    return fitted[order][1]


def median_graph(probability: FloatArray, required: BoolArray) -> BoolArray:
    """((p+1) d, d) the edges above one half, which minimise the expected number of wrong edges.

    Should the edges at lag 0 form a cycle, the least probable ones of it stay out.
    """
    d = probability.shape[1]
    support = (probability > 0.5) | required
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


class _Chain:
    """A sampler of orders.

    `masks[k]` is the set of columns of table k that may be parents in the present order; the log of its
    summed posterior weight is entry ``start[k] + masks[k]`` of the concatenated tables.
    """

    def __init__(self, tables: list[NodeTable], order: list[int], rng: np.random.Generator) -> None:
        self.tables, self.rng, self.d = tables, rng, len(tables)
        sizes = [len(table.log_sum) for table in tables]
        self._start = np.cumsum([0, *sizes[:-1]])
        self._lag_masks = np.array([table.lag_mask for table in tables])
        # bit[m, k]: the bit that stands for node m in table k, 0 if m is not in it.
        self._bit = np.zeros((self.d, self.d), dtype=np.int64)
        for k, table in enumerate(tables):
            for m, b in table.bit_of.items():
                if m < self.d:
                    self._bit[m, k] = 1 << b
        self.restart(order)

    def restart(self, order: list[int]) -> None:
        """Continue from another order, or with tables that were weighed anew."""
        self.order = np.array(order)
        rank = np.empty(self.d, dtype=np.int64)
        rank[self.order] = np.arange(self.d)
        before = rank[:, None] < rank[None, :]
        self.masks = self._lag_masks + (self._bit * before).sum(axis=0)
        self._logs = np.concatenate([table.log_sum for table in self.tables])

    @staticmethod
    def feasible(order: list[int], constraints: EdgeConstraints) -> list[int]:
        """The order nearest to `order`, greedily, in which required parents come first."""
        waiting, result = list(order), []
        must = constraints.required[: constraints.d]
        while waiting:
            node = next(j for j in waiting if not must[waiting, j].any())
            waiting.remove(node)
            result.append(node)
        return result

    def sweep(self) -> None:
        """Draw the place of every node, in random sequence, from its conditional distribution."""
        for node, share in zip(
            self.rng.permutation(self.d).tolist(), self.rng.random(self.d).tolist(), strict=True
        ):
            self._place(node, share)

    def _place(self, node: int, share: float) -> None:
        others = self.order[self.order != node]
        bit = self._bit[node, others]
        start, without = self._start[others], self.masks[others] & ~bit
        # Going left to right, the node starts in front of everyone: all others have it as a predecessor.
        own_masks = np.empty(self.d, dtype=np.int64)
        own_masks[0] = self._lag_masks[node]
        own_masks[1:] = self._bit[others, node]
        np.cumsum(own_masks, out=own_masks)
        values = self._logs[self._start[node] + own_masks]
        values[1:] += np.cumsum(self._logs[start + without] - self._logs[start + without + bit])
        values[np.isnan(values)] = -np.inf
        values -= values.max()
        cumulated = np.cumsum(np.exp(values))
        place = min(int(np.searchsorted(cumulated, share * cumulated[-1])), self.d - 1)
        self.order = np.concatenate([others[:place], [node], others[place:]])
        without[place:] += bit[place:]
        self.masks[others] = without
        self.masks[node] = own_masks[place]


class _Totals:
    """Sums over sampled orders of exact expectations given the order."""

    def __init__(self, regressions: ParentRegressions) -> None:
        self.regressions = regressions
        d = regressions.d
        self.edges = np.zeros((regressions.q, d))
        self.precedes = np.zeros((d, d))
        self.explained = np.zeros(d)
        self.log_sums: list[float] = []
        self.count = 0

    def evidence(self, hyper: Hyper, free: bool) -> float:
        """Mean over the sampled orders of the log marginal likelihood given the order."""
        d, n = self.regressions.d, self.regressions.n
        n_lagged = (self.regressions.q - d) * d
        value = float(np.mean(self.log_sums))
        value += d * (d - 1) / 2 * np.log1p(-hyper.pi_present) + n_lagged * np.log1p(-hyper.pi_lagged)
        if not free:
            value -= (n - 1) * d / 2 * np.log(hyper.noise_variance)
            value -= float(self.regressions.total.sum()) / (2 * hyper.noise_variance)
        return float(value)

    def add(self, chain: _Chain) -> None:
        """Add what the chain's order implies."""
        self.count += 1
        total = 0.0
        for table, mask in zip(chain.tables, chain.masks.tolist(), strict=True):
            log_all = table.log_sum[mask]
            total += float(log_all)
            bits = [b for b in range(len(table.columns)) if mask >> b & 1]
            if bits:
                without = table.log_sum[[mask & ~(1 << b) for b in bits]]
                self.edges[[table.columns[b] for b in bits], table.node] += -np.expm1(
                    np.minimum(without - log_all, 0)
                )
            self.explained[table.node] += np.exp(table.log_fit[mask] - log_all)
        self.log_sums.append(total)
        position = np.empty(chain.d, dtype=int)
        position[chain.order] = np.arange(chain.d)
        self.precedes += position[:, None] < position[None, :]


def _updated(hyper: Hyper, totals: _Totals, regressions: ParentRegressions) -> Hyper:
    """One EM step with free variances: pi from expected counts, g from explained variance per edge."""
    n, shrink = regressions.n, hyper.g / (1 + hyper.g)
    hyper = _with_shares(hyper, totals)
    explained = totals.explained / totals.count
    ratio = float((n * explained / np.maximum(1 - shrink * explained, 1e-12)).sum())
    g = (ratio / max(float(totals.edges.sum()) / totals.count, 1.0) - 1) / (2 * hyper.moment_order + 1)
    return replace(hyper, g=float(np.clip(g, 1.0, _MAX_G_RATIO * n)))


def _with_shares(hyper: Hyper, totals: _Totals) -> Hyper:
    """The prior with edge probabilities from expected counts."""
    d = totals.edges.shape[1]
    n_present, n_lagged = (float(part.sum()) / totals.count for part in (totals.edges[:d], totals.edges[d:]))
    return replace(
        hyper,
        pi_present=_share(n_present, d * (d - 1) / 2),
        pi_lagged=_share(n_lagged, (len(totals.edges) - d) * d),
    )


def _fit_independent(
    collect: Callable[[_Chain], _Totals],
    chain: _Chain,
    regressions: ParentRegressions,
    best: OrderResult,
    n_em: int,
) -> Hyper:
    """Equal variances: the prior with the largest evidence given the best order, then `n_em` EM steps over orders.

    The variance of the weights climbs by factors of two; a moment of higher order starts from the one before.
    """
    order = list(best.order)

    def stepped(hyper: Hyper, collect: Callable[[_Chain], _Totals]) -> tuple[float, Hyper]:
        """The evidence of a prior, and the prior with the edge probabilities and the noise that it finds."""
        for table in chain.tables:
            table.weigh(hyper, False)
        chain.restart(order)
        totals = collect(chain)
        residual = regressions.total * (1 - totals.explained / totals.count)
        s2 = float(residual.sum()) / ((regressions.n - 1) * regressions.d)
        return totals.evidence(hyper, False), replace(_with_shares(hyper, totals), noise_variance=s2)

    def climbed(hyper: Hyper) -> tuple[float, Hyper]:
        here = stepped(hyper, _given)
        for factor in (2.0, 0.5):
            there = stepped(replace(here[1], g=here[1].g * factor), _given)
            climbs = there[0] > here[0]
            while there[0] > here[0]:
                here, there = there, stepped(replace(there[1], g=there[1].g * factor), _given)
            if climbs:
                break
        return here

    start = replace(_first_hyper(regressions, best, 0), g=_FIRST_VARIANCE)
    found = climbed(start)
    for moment_order in range(1, _HIGHEST_MOMENT + 1):
        narrower = (2 * moment_order - 1) / (2 * moment_order + 1)
        higher = climbed(replace(found[1], moment_order=moment_order, g=found[1].g * narrower))
        if higher[0] <= found[0]:
            break
        found = higher
    hyper = found[1]
    for _ in range(n_em):
        _, hyper = stepped(hyper, collect)
    return hyper


def _nominees(
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
        gain = np.maximum(gain, regressions.fit(node, result.parents[node]).gain)
        for m in result.parents[node]:
            rest = tuple(k for k in result.parents[node] if k != m)
            gain = np.maximum(gain, regressions.fit(node, rest).gain)
    rank = gain + 10 * votes + 100 * constraints.required[:, node]
    rank[~allowed] = -1
    return [int(m) for m in np.argsort(-rank, kind="stable") if rank[m] >= 0]


def _share(count: float, possible: float) -> float:
    return float(np.clip((count + 0.5) / (possible + 1.0), 1e-4, 0.95))
