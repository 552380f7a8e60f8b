"""Edge probabilities, contemporaneous and lagged, averaged over orders of the variables and over parent sets.

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

Columns without a place in their node's table: where more parents were found than it holds, required edges and the
strongest lagged parents (given an order, the strongest of all) are in every subset and take no place. An edge of theirs,
and of any other column outside, has its odds beside the parents of the best network, times the share of orders that allow
it. Where contemporaneous parents alone are too many, orders are not averaged.

Known weaknesses: outside a table only single columns are weighed; the prior is uniform over orders, not over networks; the
memory is d 2^(table size) numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.constraints import EdgeConstraints, causes_first, has_cycle, strongest_acyclic
from feddbn.core.orders.parents import Criterion, ParentRegressions, Parents
from feddbn.core.orders.search import OrderResult
from feddbn.core.statistics.moments import COLLINEAR

_LINEAR_RANGE = 650.0
_FACTORS_PER_LOG = 5
_EVEN_MOMENTS: dict[int, Callable[[FloatArray], FloatArray]] = {
    1: lambda x: 1 + x,
    2: lambda x: 1 + x * (2 + x / 3),
    3: lambda x: 1 + x * (3 + x * (1 + x / 15)),
}
"""E[beta^2r] of a normal with mean^2 / variance = x, in units of the same with mean 0."""


@dataclass(frozen=True)
class Hyper:
    """Parameters of the prior.

    Attributes
    ----------
    pi_present, pi_lagged
        Probability of an edge at lag 0, at lags >= 1.
    g
        Equal variances: variance of a weight. Free variances: variance of the weights over that of their estimates.
        Of the normal factor, if there is a moment.
    noise_variance
        The common one; not used with free variances.
    moment_order
        Order of the moment prior (0: normal).
    """

    pi_present: float
    pi_lagged: float
    g: float
    noise_variance: float
    moment_order: int = 0


class NodeTable:
    """All subsets of one node's nominated parents; bit b of a subset stands for columns[b].

    `node_bits` are the bits of each variable of the same time step, `edge_bits` those of each possible edge. `price` (k,) is
    what each parent costs where prices are all of the prior; None: the prior is that of `Hyper`. Parents that are `always`
    there have no bit.
    """

    def __init__(
        self,
        regressions: ParentRegressions,
        node: int,
        columns: list[int],
        limits: EdgeConstraints,
        price: FloatArray | None = None,
        always: Parents = (),
    ) -> None:
        self.node, self.columns, self.price, self.always = node, columns, price, always
        self.regressions, d = regressions, regressions.d
        masks = np.arange(2 ** len(columns))
        edges = [_edges_of(regressions, m) for m in columns]
        self.rows_always = sorted({row for m in always for row in _edges_of(regressions, m)})
        self.n_present = np.full(len(masks), float(sum(m < d for m in always)))
        self.n_all = np.full(len(masks), float(len(always)))
        self.possible = np.ones(len(masks), dtype=bool)
        for b, m in enumerate(columns):
            has = (masks >> b) & 1
            self.n_all += has
            self.n_present += has * (edges[b][0] < d)
            if limits.required[m, node]:
                self.possible &= has == 1
        of_edge: dict[int, int] = {}
        for b, rows in enumerate(edges):
            for row in rows:
                of_edge[row] = of_edge.get(row, 0) | 1 << b
        self.node_bits = {row: bits for row, bits in of_edge.items() if row < d}
        self.edge_bits = [(row, bits) for row, bits in of_edge.items() if row not in self.rows_always]
        self.lag_mask = sum(1 << b for b, rows in enumerate(edges) if rows[0] >= d)
        self.log_sum: FloatArray = np.zeros(len(masks))
        self.log_fit: FloatArray = np.zeros(len(masks))
        self._plain: FloatArray | None = None

    def weigh(self, hyper: Hyper, free: bool) -> None:
        """Recompute the summed weights for a prior."""
        if self.price is not None:
            weight = self._priced(self.price, hyper, free)
            weight[~self.possible] = -np.inf
            self.log_sum = subset_sums(weight)
            # What is explained is only asked for where a prior is fitted.
            self.log_fit = np.full_like(self.log_sum, -np.inf)
            return
        explained, weight = self._free(hyper) if free else self._equal(hyper)
        weight += self.n_present * _logit(hyper.pi_present)
        weight += (self.n_all - self.n_present) * _logit(hyper.pi_lagged)
        weight[~self.possible] = -np.inf
        self.log_fit = subset_sums(weight + np.log(np.maximum(explained, 1e-12)))
        self.log_sum = subset_sums(weight)

    @property
    def _all(self) -> list[int]:
        return [*self.always, *self.columns]

    def _priced(self, price: FloatArray, hyper: Hyper, free: bool) -> FloatArray:
        """Log weights of all subsets by what they cost; `hyper` gives the noise variance, if it is common."""
        known = self.regressions
        rss, charge = known.subset_fits(self.node, self._all, always=len(self.always))
        size = known.total[self.node] / (2 * hyper.noise_variance)
        fit = -(known.n - 1) / 2 * np.log(rss) if free else -size * rss
        masks = np.arange(len(rss))
        total = sum(((masks >> b & 1) * one for b, one in enumerate(price)), np.zeros(len(masks)))
        return np.asarray(fit - charge / 2 - total / 2)

    def _equal(self, hyper: Hyper) -> tuple[FloatArray, FloatArray]:
        """Explained shares, shrunk, and log marginal likelihoods of all subsets; independent weights."""
        known, s2 = self.regressions, hyper.noise_variance
        ridge = s2 / (hyper.g * np.maximum(known.column_total[self._all], 1e-300))
        n_always = len(self.always)
        rss, log_det = known.subset_fits(self.node, self._all, ridge, n_always)
        explained = 1.0 - rss
        signal = explained * (known.total[self.node] / s2)
        weight = 0.5 * (signal - log_det + float(np.log(ridge[:n_always]).sum()))
        order = hyper.moment_order
        for b, log_ridge in enumerate(np.log(ridge[n_always:]).tolist()):
            halves = (-1, 2, 1 << b)
            with_it, det = weight.reshape(halves)[:, 1], log_det.reshape(halves)
            # A weight's posterior variance is its prior one times exp(log_ridge) det(without) / det(with).
            with_it += 0.5 * log_ridge + order * (log_ridge + det[:, 0] - det[:, 1])
        return explained, weight + self._log_moments(order, signal, 1.0)

    def _free(self, hyper: Hyper) -> tuple[FloatArray, FloatArray]:
        """The same with a g-prior, which does not know the units; explained shares are those of least squares."""
        n, shrink = self.regressions.n, hyper.g / (1 + hyper.g)
        if self._plain is None:
            self._plain = 1.0 - self.regressions.subset_fits(self.node, self._all, always=len(self.always))[0]
        explained = self._plain
        weight = -(n - 1) / 2 * np.log1p(-shrink * np.minimum(explained, 1 - 1e-12))
        weight -= 0.5 * self.n_all * np.log1p(hyper.g)
        weight += (self.n_all - len(self.always)) * (hyper.moment_order * np.log(shrink / hyper.g))
        scale = shrink * n / np.maximum(1 - explained, 1e-9)
        return explained, weight + self._log_moments(hyper.moment_order, explained, scale)

    def _log_moments(self, order: int, fit: FloatArray, scale: FloatArray | float) -> FloatArray | float:
        """(2^k,) log of the product of E[beta^2r] / E[beta^2r with mean 0] over a subset's weights.

        A weight's squared mean over its variance is what it adds to `fit`, times the subset's `scale`.
        """
        if not order:
            return 0.0
        moment, scales = _EVEN_MOMENTS[order], np.broadcast_to(scale, fit.shape)
        logs, product = np.zeros(len(fit)), np.ones(len(fit))
        for b in range(len(self.columns)):
            halves = (-1, 2, 1 << b)
            rise = np.maximum(fit.reshape(halves)[:, 1] - fit.reshape(halves)[:, 0], 0.0)
            product.reshape(halves)[:, 1] *= moment(rise * scales.reshape(halves)[:, 1])
            if b % _FACTORS_PER_LOG == _FACTORS_PER_LOG - 1:
                logs += np.log(product)
                product[:] = 1.0
        return np.asarray(logs + np.log(product))


def _edges_of(regressions: ParentRegressions, m: int) -> tuple[int, ...]:
    """The edges, as rows of the stack ``[W; A_1; ...]``, that a possible parent is part of."""
    return (m,) if regressions.edges is None else regressions.edges[m]


def subset_sums(log_weight: FloatArray) -> FloatArray:
    """(2^k,) log of the sum of exp(log_weight) over the subsets of every subset."""
    top = float(log_weight.max())
    finite = log_weight[np.isfinite(log_weight)]
    if top - float(finite.min(initial=top)) < _LINEAR_RANGE:
        # Within the range of a double the sums can be taken as they are, ten times faster.
        with np.errstate(divide="ignore"):
            return np.asarray(top + np.log(_accumulated(np.exp(log_weight - top), np.add)))
    return _accumulated(log_weight, np.logaddexp)


def _accumulated(values: FloatArray, add: np.ufunc) -> FloatArray:
    """(2^k,) the values added up over the subsets of every subset.

    The low bits are added on the transpose of a square array: steps of one number would cost several times
    as much as steps of a row.
    """
    k = len(values).bit_length() - 1
    low = k // 2
    total = values.reshape(1 << (k - low), 1 << low)
    for n_bits in (k - low, low):
        total = np.array(total, order="C")
        for b in range(n_bits):
            view = total.reshape(-1, 2, 1 << b, total.shape[1])
            add(view[:, 0], view[:, 1], out=view[:, 1])
        total = total.T
    return np.ascontiguousarray(total).reshape(-1)


def _logit(probability: float) -> float:
    return float(np.log(probability) - np.log1p(-probability))


class OrderChain:
    """A sampler of orders.

    `masks[k]` is the set of columns of table k that may be parents in the present order; the log of its
    summed posterior weight is entry ``start[k] + masks[k]`` of the concatenated tables.
    """

    def __init__(self, tables: Sequence[NodeTable], order: list[int], rng: np.random.Generator) -> None:
        self.tables, self.rng, self.d = tables, rng, len(tables)
        sizes = [len(table.log_sum) for table in tables]
        self._start = np.cumsum([0, *sizes[:-1]])
        self._lag_masks = np.array([table.lag_mask for table in tables])
        # bit[m, k]: the bits that stand for node m in table k, 0 if m is not in it.
        self._bit = np.zeros((self.d, self.d), dtype=np.int64)
        for k, table in enumerate(tables):
            for m, bits in table.node_bits.items():
                self._bit[m, k] = bits
        self._must = np.zeros((self.d, self.d), dtype=bool)
        for k, table in enumerate(tables):
            self._must[[row for row in table.rows_always if row < self.d], k] = True
        self.restart(order)

    def restart(self, order: list[int]) -> None:
        """Continue from another order, or with tables that were weighed anew."""
        self.order = np.array(order)
        rank = np.empty(self.d, dtype=np.int64)
        rank[self.order] = np.arange(self.d)
        before = rank[:, None] < rank[None, :]
        self.masks = self._lag_masks + (self._bit * before).sum(axis=0)
        self._logs = np.concatenate([table.log_sum for table in self.tables])

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
        before, after = np.flatnonzero(self._must[others, node]), np.flatnonzero(self._must[node, others])
        values[: before.max(initial=-1) + 1] = -np.inf
        values[after.min(initial=self.d) + 1 :] = -np.inf
        values -= values.max()
        cumulated = np.cumsum(np.exp(values))
        place = min(int(np.searchsorted(cumulated, share * cumulated[-1])), self.d - 1)
        self.order = np.concatenate([others[:place], [node], others[place:]])
        without[place:] += bit[place:]
        self.masks[others] = without
        self.masks[node] = own_masks[place]


class OrderTotals:
    """Sums over sampled orders of exact expectations given the order."""

    def __init__(self, regressions: ParentRegressions) -> None:
        self.regressions = regressions
        d = regressions.d
        self.edges = np.zeros((regressions.n_edges, d))
        self.before = np.zeros((d, d))
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

    def add(self, chain: OrderChain) -> None:
        """Add what the chain's order implies."""
        self.count += 1
        total = 0.0
        rank = np.argsort(chain.order)
        self.before += rank[:, None] < rank
        for table, mask in zip(chain.tables, chain.masks.tolist(), strict=True):
            log_all = table.log_sum[mask]
            total += float(log_all)
            found = [(edge, bits) for edge, bits in table.edge_bits if mask & bits]
            if found:
                without = table.log_sum[[mask & ~bits for _, bits in found]]
                self.edges[[edge for edge, _ in found], table.node] += -np.expm1(
                    np.minimum(without - log_all, 0)
                )
            self.edges[table.rows_always, table.node] += 1.0
            self.explained[table.node] += np.exp(table.log_fit[mask] - log_all)
        self.log_sums.append(total)


def given_order(chain: OrderChain) -> OrderTotals:
    """What the chain's order alone implies."""
    totals = OrderTotals(chain.tables[0].regressions)
    totals.add(chain)
    return totals


_MAX_G_RATIO = 10.0
_HIGHEST_MOMENT = 3
_FIRST_VARIANCE = 0.15
_MOST_STEPS = 60
_MOST_OF_RATIO = 100.0
"""Weights ten times as large as one variable alone could explain another by: room for parents that partly cancel."""
_NO_RESIDUAL = 1e-12


def _fit_g_prior(
    collect: Callable[[OrderChain], OrderTotals],
    chain: OrderChain,
    regressions: ParentRegressions,
    best: OrderResult,
    n_em: int,
) -> Hyper:
    """Free variances: the prior after `n_em` EM steps, at the order of the moment prior with the largest evidence.

    `collect` turns the chain into sums over orders: sampled ones, or the given one alone.
    """
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


def _fit_independent(
    collect: Callable[[OrderChain], OrderTotals],
    chain: OrderChain,
    regressions: ParentRegressions,
    best: OrderResult,
    n_em: int,
) -> Hyper:
    """Equal variances: the prior with the largest evidence given the best order, then `n_em` EM steps over orders.

    The variance of the weights climbs by factors of two; a moment of higher order starts from the one before. It
    is bounded by the ratio of the variables' variances, because a parent cannot explain more than a variable varies.
    Where less than one edge is expected there are no weights to learn their size from, and evidence rises with
    whatever excludes edges, up to variances of 1e20 on white noise: it is not followed then.
    """
    order = list(best.order)
    varying = regressions.column_total[regressions.column_total > 0]
    largest = _MOST_OF_RATIO * float(regressions.total.max() / varying.min())

    def stepped(hyper: Hyper, collect: Callable[[OrderChain], OrderTotals]) -> tuple[float, Hyper, bool]:
        """The evidence of a prior, the prior with the shares of edges and the noise it finds, whether it expects an edge."""
        for table in chain.tables:
            table.weigh(hyper, False)
        chain.restart(order)
        totals = collect(chain)
        residual = regressions.total * np.maximum(1 - totals.explained / totals.count, _NO_RESIDUAL)
        s2 = float(residual.sum()) / ((regressions.n - 1) * regressions.d)
        fitted = replace(_with_shares(hyper, totals), noise_variance=s2)
        return totals.evidence(hyper, False), fitted, float(totals.edges.sum()) >= totals.count

    def climbed(hyper: Hyper) -> tuple[float, Hyper, bool]:
        here = stepped(hyper, given_order)
        for factor in (2.0, 0.5):
            there = stepped(replace(here[1], g=here[1].g * factor), given_order)
            climbs = there[0] > here[0]
            for _ in range(_MOST_STEPS):
                is_learned = factor < 1 or (there[2] and there[1].g <= largest)
                if there[0] <= here[0] or not is_learned:
                    break
                here, there = there, stepped(replace(there[1], g=there[1].g * factor), given_order)
            if climbs:
                break
        return here

    start = replace(_first_hyper(regressions, best, 0), g=_FIRST_VARIANCE)
    found = climbed(start)
    for moment_order in range(1, _HIGHEST_MOMENT + 1):
        narrower = (2 * moment_order - 1) / (2 * moment_order + 1)
        higher = climbed(replace(found[1], moment_order=moment_order, g=found[1].g * narrower))
        if higher[0] <= found[0] or not higher[2]:
            break
        found = higher
    hyper = found[1]
    for _ in range(n_em):
        _, hyper, _ = stepped(hyper, collect)
    return hyper


def _first_hyper(regressions: ParentRegressions, best: OrderResult, moment_order: int) -> Hyper:
    d, n = regressions.d, regressions.n
    n_lags = regressions.q // d - 1
    n_present = max(float(best.support[:d].sum()), 1.0)
    n_lagged = max(float(best.support[d:].sum()), 1.0)
    s2 = float(best.rss.sum()) / max(n * d - n_present - n_lagged, 1.0)
    # A moment prior of scale g and order r has 2r + 1 times the variance of a normal one.
    g = n / (3 * (2 * moment_order + 1))
    return Hyper(_share(n_present, d * (d - 1) / 2), _share(n_lagged, n_lags * d * d), g, s2, moment_order)


def _updated(hyper: Hyper, totals: OrderTotals, regressions: ParentRegressions) -> Hyper:
    """One EM step with free variances: pi from expected counts, g from explained variance per edge."""
    n, shrink = regressions.n, hyper.g / (1 + hyper.g)
    hyper = _with_shares(hyper, totals)
    explained = totals.explained / totals.count
    ratio = float((n * explained / np.maximum(1 - shrink * explained, 1e-12)).sum())
    g = (ratio / max(float(totals.edges.sum()) / totals.count, 1.0) - 1) / (2 * hyper.moment_order + 1)
    return replace(hyper, g=float(np.clip(g, 1.0, _MAX_G_RATIO * n)))


def _with_shares(hyper: Hyper, totals: OrderTotals) -> Hyper:
    """The prior with edge probabilities from expected counts."""
    d = totals.edges.shape[1]
    n_present, n_lagged = (float(part.sum()) / totals.count for part in (totals.edges[:d], totals.edges[d:]))
    return replace(
        hyper,
        pi_present=_share(n_present, d * (d - 1) / 2),
        pi_lagged=_share(n_lagged, (len(totals.edges) - d) * d),
    )


def _share(count: float, possible: float) -> float:
    return float(np.clip((count + 0.5) / (possible + 1.0), 1e-4, 0.95))


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
    hyper
        The fitted prior.
    n_orders
        Orders averaged over; 1 if the order was given.
    """

    probability: FloatArray
    hyper: Hyper
    n_orders: int


def average_orders(
    regressions: ParentRegressions,
    starts: Sequence[OrderResult],
    constraints: EdgeConstraints,
    rng: np.random.Generator,
    table_size: int = 12,
    n_sweeps: int = 60,
    n_chains: int = 3,
    n_em: int = 4,
    prior: Hyper | None = None,
) -> OrderPosterior | None:
    """Return edge probabilities averaged over sampled orders; None if tables cannot hold the parents found.

    Parameters
    ----------
    regressions
        Fits on the moments.
    starts
        Results of searches; the first is where the chains begin, all of them nominate columns for the tables. What finds
        no place there is weighed beside the parents of the last.
    table_size
        Columns in each node's table: 2^table_size numbers per node.
    n_sweeps, n_chains
        Sweeps over all nodes in each chain, a fifth of them as burn-in. Chains beyond the first begin at
        random orders.
    n_em
        Updates of the prior's parameters, each after a fifth of the sweeps.
    prior
        Taken as it is; None: one is fitted.
    """
    best = starts[0]
    nominees = [Nominees.of(regressions, j, starts, constraints, table_size) for j in range(regressions.d)]
    if not all(one.fits for one in nominees):
        return None
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
        sampled, regressions, nominees, constraints, best, (size, table_size), n_em, rng, prior
    )
    runs = sampled_orders(chain, best.order, constraints, rng, n_sweeps, n_chains)
    return posterior_of(runs, hyper, chain, starts[-1], constraints)


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
        order = list(first)
        if index:
            order = causes_first(rng.permutation(chain.d).tolist(), constraints.required[: chain.d])
        chain.restart(order)
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
    prior: Hyper | None = None,
) -> OrderPosterior:
    """Return edge probabilities given the order of a network, averaged over parent sets only.

    What the direction of an edge rests on is not part of the average: an edge against the order has
    probability 0.
    """
    limits = constraints.within_order(found.order)
    nominees = [
        Nominees.of(regressions, j, [found], limits, table_size, is_given=True) for j in range(regressions.d)
    ]
    free = found.noise_variance == "free"
    size = min(_SIZE_FOR_PRIOR if free else _SIZE_GIVEN_THE_ORDER, table_size)
    # With equal variances the climb has settled the prior already.
    n_em = 6 if free else 2
    rng = np.random.default_rng(0)
    chain, hyper = _fitted_chain(
        given_order, regressions, nominees, limits, found, (size, table_size), n_em, rng, prior
    )
    return posterior_of([given_order(chain)], hyper, chain, found, limits)


TABLE_SIZE = 11
"""Parents in a node's table where prices are all of the prior."""


def average_priced(
    regressions: ParentRegressions,
    criterion: Criterion,
    found: OrderResult,
    constraints: EdgeConstraints,
    rng: np.random.Generator,
    over_orders: bool,
    n_sweeps: int = 60,
    n_chains: int = 3,
) -> OrderPosterior:
    """Return edge probabilities where prices are all of the prior, over orders or given that of the network found."""
    d, q = regressions.d, regressions.q
    given = constraints if over_orders else constraints.within_order(found.order)
    limits = regressions.limits(given)
    n_present = int(found.support[:d].sum())
    prices = regressions.prices(criterion, n_present, int(found.support.sum()) - n_present)
    hyper = Hyper(1 / q, 1 / q, 1.0, max(float(found.rss.sum()) / (regressions.n * d), 1e-300))
    tables = []
    for j in range(d):
        nominees = Nominees.of(regressions, j, [found], limits, TABLE_SIZE, is_given=not over_orders)
        if not nominees.fits:
            return average_priced(regressions, criterion, found, constraints, rng, False)
        columns = sorted(nominees.columns)
        own = prices if prices.ndim == 1 else prices[:, j]
        tables.append(NodeTable(regressions, j, columns, limits, own[columns], nominees.always))
        tables[-1].weigh(hyper, found.noise_variance == "free")
    chain = OrderChain(tables, list(found.order), rng)
    runs = [given_order(chain)]
    if over_orders:
        runs = sampled_orders(chain, found.order, constraints, rng, n_sweeps, n_chains)
    return posterior_of(runs, hyper, chain, found, limits, prices)


def _fitted_chain(
    collect: Callable[[OrderChain], OrderTotals],
    regressions: ParentRegressions,
    nominees: list[Nominees],
    constraints: EdgeConstraints,
    best: OrderResult,
    sizes: tuple[int, int],
    n_em: int,
    rng: np.random.Generator,
    prior: Hyper | None = None,
) -> tuple[OrderChain, Hyper]:
    """A chain over tables of ``sizes[1]`` columns under a prior: given, or what fits tables of ``sizes[0]`` columns best."""
    free, order = best.noise_variance == "free", list(best.order)
    if prior is None:
        chain = OrderChain(_tables(regressions, nominees, constraints, sizes[0]), order, rng)
        hyper = (_fit_g_prior if free else _fit_independent)(collect, chain, regressions, best, n_em)
    else:
        hyper = prior
    tables = _tables(regressions, nominees, constraints, sizes[1])
    for table in tables:
        table.weigh(hyper, free)
    return OrderChain(tables, order, rng), hyper


def _tables(
    regressions: ParentRegressions, nominees: list[Nominees], constraints: EdgeConstraints, size: int
) -> list[NodeTable]:
    """One table per node over the first `size` of its nominees."""
    return [
        NodeTable(regressions, j, sorted(one.columns[:size]), constraints, always=one.always)
        for j, one in enumerate(nominees)
    ]


def _arrived(runs: list[OrderTotals]) -> list[OrderTotals]:
    """The chains whose orders are about as probable as those of the best chain.

    With many rows the posterior is so narrow that a chain from a random order may stay in a worse mode; to
    average over it would mix in networks that the data exclude.
    """
    best = max(runs, key=lambda run: float(np.mean(run.log_sums)))
    least = float(np.mean(best.log_sums)) - 4 * float(np.std(best.log_sums)) - 3
    return [run for run in runs if float(np.mean(run.log_sums)) >= least]


def posterior_of(
    runs: list[OrderTotals],
    hyper: Hyper,
    chain: OrderChain,
    best: OrderResult,
    limits: EdgeConstraints,
    prices: FloatArray | None = None,
) -> OrderPosterior:
    """Return the average over what all orders imply, and of columns outside their node's table what they add to `best`."""
    count = sum(run.count for run in runs)
    edges = sum((run.edges for run in runs), np.zeros_like(runs[0].edges)) / count
    before = sum((run.before for run in runs), np.zeros_like(runs[0].before)) / count
    regressions, d = runs[0].regressions, len(before)
    for table in chain.tables:
        j, parents = table.node, best.parents[table.node]
        inside = {*table.columns, *(m for m in table.always if limits.required[m, j])}
        outside = [m for m in np.flatnonzero(limits.allowed[:, j]).tolist() if m not in inside]
        own = prices if prices is None or prices.ndim == 1 else prices[:, j]
        weigh = _Beside(regressions, j, hyper, best.noise_variance == "free", own)
        others = [m for m in outside if m not in parents]
        odds = dict(zip(others, weigh.odds(parents, others), strict=True))
        for m in set(outside) - odds.keys():
            odds[m] = weigh.odds(tuple(k for k in parents if k != m), [m])[0]
        edges[
            [row for m in set(outside).intersection(table.always) for row in _edges_of(regressions, m)], j
        ] = 0.0
        for m, value in odds.items():
            for row in _edges_of(regressions, m):
                share = float(expit(value)) * (before[row, j] if row < d else 1.0)
                edges[row, j] = max(edges[row, j], share)
    return OrderPosterior(edges, hyper, count)


@dataclass(frozen=True)
class _Beside:
    """What single columns add for one node beside parents that are given."""

    regressions: ParentRegressions
    node: int
    hyper: Hyper
    free: bool
    prices: FloatArray | None

    def odds(self, parents: Parents, columns: list[int]) -> FloatArray:
        """(k,) log posterior odds of each of the columns, as `NodeTable` has them for subsets that differ by it."""
        if not columns:
            return np.zeros(0)
        if self.prices is not None:
            return self._priced(parents, columns, self.prices)
        known, hyper, order = self.regressions, self.hyper, self.hyper.moment_order
        R, F, n = known.correlation, list(parents), known.n
        s2, ridge = hyper.noise_variance, np.zeros(known.q)
        if not self.free:
            ridge = s2 / (hyper.g * np.maximum(known.column_total, 1e-300))
        M, along = R[np.ix_(F, F)] + np.diag(ridge[F]), R[np.ix_(F, [*columns, self.node])]
        B = np.linalg.lstsq(M, along, rcond=None)[0]
        left, ridge = 1.0 - (along * B).sum(axis=0), ridge[columns]
        rss, left = max(float(left[-1]), 1e-12), left[:-1]
        covariance = R[self.node, columns] - R[self.node, F] @ B[:, :-1]
        pi = np.array([hyper.pi_lagged, hyper.pi_present])
        gain = np.where(left > COLLINEAR, covariance**2 / np.maximum(left + ridge, COLLINEAR), 0.0)
        gain = np.minimum(gain, rss - 1e-12)
        if self.free:
            shrink = hyper.g / (1 + hyper.g)
            then, now = (np.log1p(-shrink * (1.0 - one)) for one in (rss - gain, rss))
            odds = -(n - 1) / 2 * (then - now) - 0.5 * np.log1p(hyper.g) + order * np.log(shrink / hyper.g)
            scale = shrink * n / np.maximum(rss - gain, 1e-9)
        else:
            scale = np.full(len(columns), known.total[self.node] / s2)
            odds = 0.5 * scale * gain + (0.5 + order) * np.log(ridge / (np.maximum(left, 0.0) + ridge))
        if order:
            odds = odds + np.log(_EVEN_MOMENTS[order](gain * scale))
        prior = np.log(pi) - np.log1p(-pi)
        return np.asarray(odds + prior[(np.array(columns) < known.d).astype(int)])

    def _priced(self, parents: Parents, columns: list[int], prices: FloatArray) -> FloatArray:
        known = self.regressions
        fit = known.fit(self.node, parents)
        gain = fit.gains(known.q)[columns]
        cost = prices[columns] if fit.charge is None else prices[columns] + fit.charge.more[columns]
        if self.free:
            return np.asarray(-(known.n - 1) / 2 * np.log1p(-gain / fit.rss) - cost / 2)
        return np.asarray(known.total[self.node] / (2 * self.hyper.noise_variance) * gain - cost / 2)


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
    support[:d] = strongest_acyclic(np.where(support[:d], probability[:d], -1.0), required[:d])
    return support


@dataclass(frozen=True)
class Nominees:
    """Which columns one node's table is of.

    Attributes
    ----------
    columns
        Those that have a place, the most promising first.
    always
        Parents that are in every subset, so that the others find a place.
    fits
        Whether all parents that every search found are among these.
    """

    columns: list[int]
    always: Parents
    fits: bool

    @classmethod
    def of(
        cls,
        regressions: ParentRegressions,
        node: int,
        starts: Sequence[OrderResult],
        limits: EdgeConstraints,
        size: int,
        *,
        is_given: bool = False,
    ) -> Nominees:
        """At most `size` columns; of more parents the strongest are always there: lagged ones, or given an order any."""
        ranked = nominees_of(regressions, node, starts, limits)
        required = {m for m in ranked if limits.required[m, node]}
        found = required.union(*(one.parents[node] for one in starts))
        if len(found) <= size:
            return cls(ranked[:size], (), True)
        parents = starts[-1].parents[node]
        loss = dict(zip(parents, regressions.fit(node, parents).loss, strict=True))
        lagged = {m for m in loss if is_given or _edges_of(regressions, m)[0] >= regressions.d}
        common = lagged.intersection(*(one.parents[node] for one in starts)) - required
        n_free = len(found - required) - size // 2
        always = required.union(sorted(common, key=lambda m: (-loss[m], m))[: max(n_free, 0)])
        columns = [m for m in ranked if m not in always][:size]
        sure = set.intersection(*(set(one.parents[node]) for one in starts))
        return cls(columns, tuple(sorted(always)), sure <= always.union(columns))


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
