"""From the moments of coded columns to a network of variables of any kind.

A node with columns Y costs  n log det (Y'Y - Y'X (X'X)^-1 X'Y)  given the columns X of its parents: the score of a
Gaussian with a free covariance (Andrews, Ramsey, Cooper 2019 use it for indicators of levels). One column is the usual
``n log RSS``. What `NodeFit` calls `rss` is the determinant in units of that without parents, so that searches over
orders run as ever: a possible parent is a variable at a lag, whatever its number of columns.

The score:

    sum_j n log det_j + sum over edges of  (columns of source * columns of target) * c log(n) + 2 log(number of such networks)

The first part of the price is that of BIC, the second that of the extended BIC (Chen and Chen 2008): with many variables
to choose from, one of them fits by chance, and that counts for more the fewer edges there are.

Review: contemporaneous directions that Gaussian scores leave open are decided by the likelihoods of the variables' own
kinds. A line through 0 and 1 fits about as well both ways; a logistic or a Poisson model often does not. So for a few
open edges all directions are compared:  sum_j BIC_j(parents of j),  over those without a cycle. A node has as many models
as it has sets of open neighbours as parents; they are fitted together with all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.graphs.constraints import EdgeConstraints, has_cycle
from feddbn.core.orders.average import Hyper, NodeTable, OrderPosterior, nominees_of, subset_sums
from feddbn.core.orders.curved import TABLE_SIZE, posterior_from_tables
from feddbn.core.orders.learn import STRONG_EVIDENCE, EdgeOrientation, firmness_of, settle_directions
from feddbn.core.orders.parents import NodeFit, Objective, ParentRegressions, Parents
from feddbn.core.orders.search import Criterion, OrderResult, OrderSearch
from feddbn.core.statistics.moments import COLLINEAR, Moments, independent

_NO_RESIDUAL = 1e-12


class GroupRegressions(ParentRegressions):
    """Fits of variables of the same time step on variables at any lag, computed once each.

    Parameters
    ----------
    scatter
        Sums of squares and products of all columns about their means.
    n
        Number of rows.
    d
        Number of variables.
    columns
        The columns of each variable at each lag: all variables of the same time step, then at lag 1, ...
    """

    def __init__(self, scatter: FloatArray, n: float, d: int, columns: Sequence[Sequence[int]]) -> None:
        super().__init__(scatter, n, d)
        self.columns = tuple(tuple(group) for group in columns)
        self.widths = np.array([len(group) for group in self.columns])
        self.q = len(self.columns)
        # In these units n log(total / n) is 0, and a score is the sum of log determinants relative to no parents.
        self.column_total = np.full(self.q, self.n)
        varies = np.diag(scatter) > 0
        self._blocked = np.array([not varies[list(group)].all() for group in self.columns])
        self._alike: list[tuple[IntArray, IntArray]] = []
        for width in np.unique(self.widths).tolist():
            alike = np.flatnonzero(self.widths == width)
            self._alike.append((alike, np.array([self.columns[m] for m in alike])))
        self._own = [np.array(self.columns[j]) for j in range(d)]
        self._log_total = [_log_det(self.correlation[np.ix_(own, own)]) for own in self._own]

    @property
    def max_parents(self) -> int:
        """At most this many parents leave a residual to speak of: half of the rows' degrees of freedom."""
        return max(0, min(self.q - 1, int((self.n - 1) // (2 * int(self.widths.max())))))

    def _compute(self, node: int, parents: Parents) -> NodeFit:
        own, left = self._own[node], self.correlation
        if self._blocked[node]:
            return NodeFit(1.0, np.zeros(self.q), (0.0,) * len(parents))
        loss: tuple[float, ...] = ()
        if parents:
            index = np.array([c for m in parents for c in self.columns[m]])
            factor, failed = dpotrf(left[np.ix_(index, index)], lower=1, clean=1)
            inverse = np.zeros((0, 0)) if failed else dtrtri(factor, lower=1)[0]
            if failed or (inverse * inverse).sum(axis=0).max() > 1 / COLLINEAR:
                return self._without_dependent(node, parents)
            along = inverse @ self.correlation[index]
            left = self.correlation - along.T @ along
            loss = self._losses(node, parents, inverse, along[:, own], left[np.ix_(own, own)])
        rest = left[np.ix_(own, own)]
        rss = max(float(np.exp(_log_det(rest) - self._log_total[node])), _NO_RESIDUAL)
        gain = self._gains(own, left, rss)
        gain[node] = 0.0
        gain[list(parents)] = 0.0
        gain[self._blocked] = 0.0
        np.clip(gain, 0.0, max(rss - _NO_RESIDUAL, 0.0), out=gain)
        return NodeFit(rss, gain, loss)

    def _gains(self, own: IntArray, left: FloatArray, rss: float) -> FloatArray:
        """By how much the determinant falls when each variable joins: all of one width at once."""
        gain, w = np.zeros(self.q), len(own)
        for alike, groups in self._alike:
            both = np.concatenate([np.broadcast_to(own, (len(alike), w)), groups], axis=1)
            joint = left[both[:, :, None], both[:, None, :]]
            alone = joint[:, w:, w:]
            variance = np.diagonal(alone, axis1=1, axis2=2)
            is_new = np.asarray((variance > COLLINEAR).all(axis=1))
            if w == groups.shape[1] == 1:
                share = joint[:, 0, 1] ** 2 / np.maximum(joint[:, 0, 0] * joint[:, 1, 1], 1e-300)
            else:
                safe = np.where(is_new[:, None, None], joint, np.eye(joint.shape[1]))
                dets = (_log_det(safe), _log_det(safe[:, :w, :w]), _log_det(safe[:, w:, w:]))
                is_new &= dets[2] > np.log(COLLINEAR) * groups.shape[1]
                share = -np.expm1(np.clip(dets[0] - dets[1] - dets[2], -700.0, 0.0))
            gain[alike] = np.where(is_new, rss * share, 0.0)
        return gain

    def _losses(
        self, node: int, parents: Parents, inverse: FloatArray, own: FloatArray, rest: FloatArray
    ) -> tuple[float, ...]:
        """By how much the determinant rises when each parent leaves.

        With K = (X'X)^-1 and B = K X'Y, leaving out the columns S adds ``B_S' (K_SS)^-1 B_S`` to the residual products.
        """
        B, now = inverse.T @ own, _log_det(rest)
        found, start = [], 0
        for m in parents:
            stop = start + len(self.columns[m])
            part = inverse[:, start:stop]
            more = B[start:stop].T @ np.linalg.solve(part.T @ part, B[start:stop])
            rise = np.expm1(max(float(_log_det(rest + more) - now), 0.0))
            found.append(float(np.exp(now - self._log_total[node]) * rise))
            start = stop
        return tuple(found)

    def _without_dependent(self, node: int, parents: Parents) -> NodeFit:
        """The fit without the parents that follow from the ones before; without these nothing is lost."""
        kept: list[int] = []
        for m in parents:
            index = np.array([c for k in (*kept, m) for c in self.columns[k]])
            if len(independent(self.correlation[np.ix_(index, index)])) == len(index):
                kept.append(m)
        if len(kept) == len(parents):
            kept.pop()
        fit = self.fit(node, tuple(kept))
        lost = dict(zip(kept, fit.loss, strict=True))
        gain = fit.gain.copy()
        gain[list(parents)] = 0.0
        return NodeFit(fit.rss, gain, tuple(lost.get(m, 0.0) for m in parents))


def _log_det(matrices: FloatArray) -> FloatArray:
    """Log determinants; what is not positive is rounding."""
    sign, size = np.linalg.slogdet(matrices)
    return np.asarray(np.where(sign > 0, size, np.log(_NO_RESIDUAL)))


def group_subset_fits(regressions: GroupRegressions, parents: Sequence[int], node: int) -> FloatArray:
    """(2^k,) determinants of `node` on every subset of `parents`, in units of that without any; by sweeps."""
    groups = [regressions.columns[m] for m in parents]
    own = list(regressions.columns[node])
    index = [*(c for group in groups for c in group), *own]
    rest = regressions.correlation[np.ix_(index, index)][None]
    for group in groups:
        swept = rest
        for _ in group:
            pivot, row, tail = swept[:, 0, 0], swept[:, 0, 1:], swept[:, 1:, 1:]
            safe = np.where(pivot > COLLINEAR, pivot, np.inf)
            swept = tail - row[:, :, None] * row[:, None, :] / safe[:, None, None]
        rest = np.concatenate([rest[:, len(group) :, len(group) :], swept])
    return np.clip(np.exp(_log_det(rest) - _log_det(rest[:1])), _NO_RESIDUAL, 1.0)


@dataclass(frozen=True)
class GroupObjective(Objective):
    """What a node's fit costs where prices depend on the columns of both ends.

    Attributes
    ----------
    price
        (q, d) of each variable at a lag as a parent of each node.
    """

    price: FloatArray

    def add_deltas(self, node: int, fit: NodeFit) -> FloatArray:
        """(q,) change of the cost when each variable joins."""
        return np.asarray(self.n * np.log1p(fit.gain * (-1 / fit.rss)) + self.price[:, node])

    def drop_deltas(self, node: int, fit: NodeFit, parents: Parents) -> list[float]:
        """Change of the cost when each parent leaves."""
        return [
            self.n * float(np.log1p(loss / fit.rss)) - float(self.price[m, node])
            for loss, m in zip(fit.loss, parents, strict=True)
        ]

    def cost(self, node: int, fit: NodeFit, parents: Parents) -> float:
        """Data term plus the price of the parents."""
        return self.data_term(node, fit.rss) + float(self.price[list(parents), node].sum())


MOST_NODES_TO_AVERAGE = 40
_ODDS, _NETWORKS = Criterion(1.0, 1.0), Criterion(0.0, 1.0)


def edge_prices(regressions: GroupRegressions, c: float, n_present: int, n_lagged: int) -> FloatArray:
    """(q, d) the price of each possible edge in a network that has so many within a time step and across."""
    known = regressions
    odds = _ODDS.marginal(known.n, known.d, known.q // known.d - 1, n_present, n_lagged) - np.log(known.n)
    return np.asarray(c * np.log(known.n) * _n_columns(known) + odds[:, None])


def _n_columns(regressions: GroupRegressions) -> FloatArray:
    return np.outer(regressions.widths, regressions.widths[: regressions.d])


class GroupSearch(OrderSearch):
    """A search whose variables have one or several columns; needs `regressions` of them."""

    regressions: GroupRegressions

    def _objective_for(self, s2: float | None, n_present: int, n_lagged: int) -> Objective:
        price = edge_prices(self.regressions, self.criterion.c, n_present, n_lagged)
        return GroupObjective(self.n, price[:, 0], self.regressions.total, None, price)

    def _price_of(self, network: Sequence[Parents]) -> float:
        each = self.criterion.c * np.log(self.n) * _n_columns(self.regressions)
        total = sum(each[list(parents), j].sum() for j, parents in enumerate(network))
        n_networks = _NETWORKS.total(self.n, self.d, self.n_lags, *self._n_edges_of(network))
        return float(total) + n_networks


class GroupTable(NodeTable):
    """All sets of one node's nominated parents, at the prices of the search."""

    regressions: GroupRegressions
    price: FloatArray

    def weigh(self, hyper: Hyper, free: bool) -> None:
        """Recompute the summed weights; the prior is that of the prices."""
        known = self.regressions
        rss = group_subset_fits(known, self.columns, self.node)
        price = self.price[self.columns, self.node]
        masks = np.arange(2 ** len(self.columns))
        total = sum(((masks >> b & 1) * price[b] for b in range(len(price))), np.zeros(len(masks)))
        weight = np.asarray(-0.5 * (known.n - 1) * np.log(rss) - 0.5 * total)
        weight[~self.possible] = -np.inf
        self.log_sum = subset_sums(weight)
        # What is explained is only asked for where a prior is fitted.
        self.log_fit = np.full_like(self.log_sum, -np.inf)


@dataclass(frozen=True)
class GroupLearned:
    """A learned network.

    Attributes
    ----------
    network
        Order, parents and support.
    orientation
        How firmly each contemporaneous edge is directed by Gaussian scores.
    posterior
        Edge probabilities.
    search
        The search that found it, which answers questions about neighbouring networks.
    """

    network: OrderResult
    orientation: tuple[EdgeOrientation, ...]
    posterior: OrderPosterior
    search: GroupSearch


def learn_groups(
    moments: Moments,
    columns: Sequence[Sequence[int]],
    constraints: EdgeConstraints,
    rng: np.random.Generator,
    c: float = 1.0,
    n_restarts: int = 2,
) -> GroupLearned:
    """Return the network of moments whose columns belong to variables at lags as `columns` says."""
    d = constraints.d
    regressions = GroupRegressions(moments.scatter, moments.n, d, columns)
    search = GroupSearch(moments, constraints, Criterion(c), "free", regressions)
    found, asked = settle_directions(search, search.run(n_restarts, rng))
    support = found.support
    price = edge_prices(regressions, c, int(support[:d].sum()), int(support[d:].sum()))
    tables: list[NodeTable] = []
    hyper = Hyper(1 / regressions.q, 1 / regressions.q, 1.0, 1.0)
    for j in range(d):
        chosen = nominees_of(regressions, j, [found], constraints)[:TABLE_SIZE]
        table = GroupTable(regressions, j, sorted(chosen), constraints)
        table.price = price
        table.weigh(hyper, True)
        tables.append(table)
    posterior = posterior_from_tables(tables, found, constraints, rng, hyper, d <= MOST_NODES_TO_AVERAGE)
    return GroupLearned(found, tuple(firmness_of(found.support, asked)), posterior, search)


MOST_OPEN = 10
"""Open edges that are reviewed, those that Gaussian scores know least about first; there are 2^10 ways to direct them."""
MOST_OPEN_OF_A_NODE = 3
_NO_EVIDENCE = 1e-6


@dataclass(frozen=True)
class Reviewed:
    """The parents of each node after a review, and how firmly edges are directed now."""

    parents: tuple[Parents, ...]
    orientation: tuple[EdgeOrientation, ...]


class Review:
    """Open edges of a network, and the models that decide about them.

    Parameters
    ----------
    support
        ((p+1) d, d) the network.
    orientation
        How firmly its contemporaneous edges are directed so far.
    """

    def __init__(self, support: BoolArray, orientation: Sequence[EdgeOrientation]) -> None:
        self._orientation = tuple(orientation)
        self.d = support.shape[1]
        self.edges: list[tuple[int, int]] = []
        n_open = [0] * self.d
        doubtful = sorted((e for e in orientation if not e.oriented), key=lambda e: e.score_difference)
        for e in doubtful[:MOST_OPEN]:
            if max(n_open[e.source], n_open[e.target]) < MOST_OPEN_OF_A_NODE:
                self.edges.append((e.source, e.target))
                n_open[e.source] += 1
                n_open[e.target] += 1
        fixed = support.copy()
        for i, j in self.edges:
            fixed[i, j] = False
        self._fixed = fixed

    @property
    def models(self) -> list[tuple[int, Parents]]:
        """(node, parents) of every model that may be part of the answer; without open edges one for each node."""
        found: dict[tuple[int, Parents], None] = {}
        for j in range(self.d):
            mine = [edge for edge in self.edges if j in edge]
            for choice in product((False, True), repeat=len(mine)):
                others = [sum(edge) - j for edge, is_in in zip(mine, choice, strict=True) if is_in]
                found[j, self._parents(j, others)] = None
        return list(found)

    def _parents(self, node: int, others: Sequence[int]) -> Parents:
        return tuple(sorted({*np.flatnonzero(self._fixed[:, node]).tolist(), *others}))

    def decide(self, bic: Callable[[int, Parents], float]) -> Reviewed:
        """The directions with the lowest total; `bic` knows that of every model."""
        scores: list[tuple[float, tuple[bool, ...]]] = []
        touched = sorted({end for edge in self.edges for end in edge})
        for turned in product((False, True), repeat=len(self.edges)):
            W = self._directed(turned)
            if not has_cycle(W[: self.d]):
                total = sum(bic(j, self._parents_in(W, j)) for j in touched)
                scores.append((total, turned))
        # Ties stay as they are: nothing turned sorts first.
        best, chosen = min(scores)
        stays = scores[0]
        if stays[0] <= best + _NO_EVIDENCE:
            best, chosen = stays
        W = self._directed(chosen)
        table = []
        for e in self._orientation:
            if (e.source, e.target) not in self.edges:
                table.append(e)
                continue
            place = self.edges.index((e.source, e.target))
            others = [score for score, turned in scores if turned[place] != chosen[place]]
            difference = max(min(others, default=np.inf) - best, 0.0)
            ends = (e.target, e.source) if chosen[place] else (e.source, e.target)
            table.append(EdgeOrientation(*ends, float(difference), bool(difference >= STRONG_EVIDENCE)))
        return Reviewed(tuple(self._parents_in(W, j) for j in range(self.d)), tuple(table))

    def _parents_in(self, W: BoolArray, node: int) -> Parents:
        return tuple(np.flatnonzero(W[:, node]).tolist())

    def _directed(self, turned: Sequence[bool]) -> BoolArray:
        W = self._fixed.copy()
        for (i, j), is_turned in zip(self.edges, turned, strict=True):
            W[(j, i) if is_turned else (i, j)] = True
        return W
