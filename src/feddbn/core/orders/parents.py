"""What a node's regression on a set of parents leaves, and what that costs, on a matrix of second moments.

    cost_j(P) = loss_j(RSS_j(P)) + sum_{m in P} penalty_m

with ``loss_j(RSS) = RSS / s2`` (one noise variance s2 for all nodes) or ``n log RSS`` (every node its own).

A possible parent is one column, or a group of columns that come and go together (`core.orders.groups`).

Theory of operation: for a node and a set of parents, one small triangular inverse gives the residual sum of squares,
what it would rise by without each parent, and what it would fall by with each further column. These do not
depend on the penalty or on s2, so they are kept and looked up again during the search. Columns are scaled to
unit variance inside; nothing but rounding depends on the units. A parent that follows from those before it adds
nothing: what algebra on a singular matrix would promise is rounding.

Screening: of many variables each node looks at the columns that could be its parents, not at all. A column stays if its
correlation with the node, or its partial correlation given all other columns, is more than chance (`_LEAST_Z2`). A parent
has both in general: it belongs to the node's Markov blanket. A search that has ended asks for the gains of all columns
beside the parents found (`missed`); one that would help after all is taken up, and the search goes on. So every column
that would help a node beside its parents has been looked at; what screening can change is the way there.

Forward-backward selection among the columns a node may have: what can be gained by one column more or less depends on the
node, its parents and the objective, not on which columns are candidates. So the few useful moves of every set are listed
once, best first, and a selection among any candidates is a walk along these lists: while orders are searched, nearly all
selections need no algebra. Sets of columns are integers, bit m for column m.

A move is made only if the cost really falls: near-collinear columns promise what rounding cannot keep. So no set
comes twice and every selection ends.

Known weakness: forward-backward selection with exchanges is greedy; it can miss a pair of parents that only
help together.
"""

from __future__ import annotations

import copy
import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg.lapack import dpotrf, dpotri, dtrtri
from scipy.special import gammaln

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.statistics.moments import COLLINEAR, correlations, independent

Parents = tuple[int, ...]
Columns = int
"""A set of columns: bit m is set if column m belongs to it."""

NO_RESIDUAL = 1e-12
"""Smallest residual sum of squares in units of the total; what is below is rounding."""
_CACHE_FLOATS = 25_000_000
_NOTHING = 1e-300


class Charge(NamedTuple):
    """What the flexibility of a node's parents costs: now, what each further one adds, and what each of them saves."""

    now: float
    more: FloatArray
    less: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class NodeFit:
    """Least squares of one node on one set of columns, in units of the node's total sum of squares.

    Attributes
    ----------
    rss
        Residual sum of squares; 1 without parents.
    gain
        (q,) by how much `rss` falls when a column joins; 0 for the parents, the node and collinear columns.
    loss
        By how much `rss` rises when each parent leaves.
    columns
        The columns that `gain` is of; None: all.
    charge
        What its flexibility costs, where parents have a prior of their own; None: nothing.
    """

    rss: float
    gain: FloatArray
    loss: tuple[float, ...]
    columns: IntArray | None = None
    charge: Charge | None = None

    def gains(self, q: int) -> FloatArray:
        """(q,) the gains of all columns; 0 for those that were not looked at."""
        if self.columns is None:
            return self.gain
        every = np.zeros(q)
        every[self.columns] = self.gain
        return every


def inverse_factor(within: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Return the inverse of the Cholesky factor of parents' correlations, and their variances' inflation; None: collinear."""
    # Python's overhead per call is most of the cost of a fit: LAPACK is called without wrappers.
    factor, failed = dpotrf(within, lower=1, clean=1)
    if failed:
        return None
    inverse, _ = dtrtri(factor, lower=1)
    inflation = (inverse * inverse).sum(axis=0)
    return None if inflation.max() > 1 / COLLINEAR else (inverse, inflation)


class ParentRegressions:
    """Least-squares fits of the first d columns of z on any of its q columns, computed once each.

    Parameters
    ----------
    scatter
        (q, q) sums of squares and products about the mean.
    n
        Number of rows.
    d
        Number of nodes: columns 0..d-1 are the present time step.
    """

    is_screened: ClassVar[bool] = False
    """Whether a node looks at some columns only, its `column_set`."""
    has_equivalents: ClassVar[bool] = True
    """Whether networks with free variances have others that fit equally well (`core.orders.learn`)."""
    is_priced: ClassVar[bool] = False
    """Whether prices are all of the prior, so that an average has none to fit."""
    edges: tuple[tuple[int, ...], ...] | None = None
    """For each possible parent the rows of the stack ``[W; A_1; ...]`` of the edges it is part of; None: the one of its
    own number."""

    def __init__(self, scatter: FloatArray, n: float, d: int) -> None:
        diagonal = np.diag(scatter).copy()
        self.n = float(n)
        self.d = d
        self.q = len(scatter)
        self.column_total: FloatArray = diagonal
        self.correlation: FloatArray = correlations(scatter)[0]
        self._usable = (diagonal > 0).astype(np.float64)
        self._known: list[dict[Parents, NodeFit]] = [{} for _ in range(d)]
        self._most_known = max(100, _CACHE_FLOATS // (self.q * max(d, 1)))

    def scaled(self, factors: FloatArray) -> ParentRegressions:
        """The same after the first d columns, now and at every lag, are divided by `factors` (d,).

        Fits are in units of a node's total, so both share what is known.
        """
        other = copy.copy(self)
        other.column_total = self.column_total / np.tile(factors**2, self.q // self.d)
        return other

    @property
    def total(self) -> FloatArray:
        """(d,) sums of squares of the nodes."""
        return self.column_total[: self.d]

    @property
    def n_edges(self) -> int:
        """Possible causes of a node: rows of the stack ``[W; A_1; ...]``."""
        return self.q

    @property
    def n_lags(self) -> int:
        """Number of lags."""
        return self.n_edges // self.d - 1

    @property
    def present(self) -> list[Columns]:
        """For each variable its contemporaneous columns: they may be parents of what comes later in the order."""
        return [1 << j for j in range(self.d)]

    def limits(self, constraints: EdgeConstraints) -> EdgeConstraints:
        """The constraints by possible parent."""
        return constraints

    def support_of(self, network: Sequence[Parents]) -> BoolArray:
        """((p+1) d, d) the edges of any network."""
        support = np.zeros((self.n_edges, self.d), dtype=bool)
        rows = np.fromiter(chain.from_iterable(network), dtype=np.intp)
        support[rows, np.repeat(np.arange(self.d), [len(parents) for parents in network])] = True
        return support

    def prices(self, criterion: Criterion, n_present: int, n_lagged: int) -> FloatArray:
        """(q,), or (q, d) where they differ by node: the price of one parent more in a network with so many edges."""
        return criterion.marginal(self.n, self.d, self.n_lags, n_present, n_lagged)

    def price_of(self, criterion: Criterion, network: Sequence[Parents]) -> float:
        """What the edges of any network cost."""
        return criterion.total(self.n, self.d, self.n_lags, *self.count(network))

    def count(self, network: Sequence[Parents]) -> tuple[int, int]:
        """How many parents of a network are contemporaneous, and how many lagged."""
        # Parents are ascending.
        present = sum(bisect_left(parents, self.d) for parents in network)
        return present, sum(map(len, network)) - present

    def column_set(self, node: int) -> int:
        """The columns that are looked at for a node, as a set."""
        return (1 << self.q) - 1

    @property
    def max_parents(self) -> int:
        """At most this many parents leave a residual to speak of: half of the rows' degrees of freedom."""
        return max(0, min(self.q - 1, int((self.n - 1) // 2)))

    def fit(self, node: int, parents: Parents) -> NodeFit:
        """Return the fit of `node` on `parents` (ascending)."""
        known = self._known[node]
        found = known.get(parents)
        if found is None:
            if len(known) >= self._most_known:
                known.clear()
            found = known[parents] = self._compute(node, parents)
        return found

    def _compute(self, node: int, parents: Parents, columns: IntArray | None = None) -> NodeFit:
        """The fit, with the gains of all columns, or of some (ascending, the parents among them)."""
        R = self.correlation
        covariance = R[node].copy() if columns is None else R[node, columns]
        variance = self._usable.copy() if columns is None else self._usable[columns]
        loss: tuple[float, ...] = ()
        rss = 1.0
        if parents:
            index = np.array(parents)
            within = index if columns is None else np.searchsorted(columns, index)
            seen = R[index] if columns is None else R[index[:, None], columns]
            solved = inverse_factor(seen[:, within])
            if solved is None:
                return self._without_dependent(node, parents)
            inverse, inflation = solved
            orthogonal = inverse @ seen
            along = orthogonal[:, node] if columns is None else inverse @ R[index, node]
            beta = along @ inverse
            rss = max(rss - float(along @ along), NO_RESIDUAL)
            loss = tuple((beta * beta / inflation).tolist())
            covariance -= along @ orthogonal
            orthogonal *= orthogonal
            variance -= np.add.reduce(orthogonal, axis=0)
            variance[within] = 0.0
        if columns is None:
            variance[node] = 0.0
        covariance *= covariance
        gain = np.zeros(len(variance))
        np.divide(covariance, variance, out=gain, where=variance > COLLINEAR)
        np.minimum(gain, max(rss - NO_RESIDUAL, 0.0), out=gain)
        return NodeFit(rss, gain, loss, columns)

    def _without_dependent(self, node: int, parents: Parents) -> NodeFit:
        """The fit on those parents that do not follow from the ones before; without the others nothing is lost."""
        kept = self._independent(parents)
        if len(kept) == len(parents):
            # Independent one by one, yet too close to dependent together: the last one adds the least.
            kept.pop()
        fit = self.fit(node, tuple(kept))
        lost, gain, index = dict(zip(kept, fit.loss, strict=True)), fit.gain.copy(), list(parents)
        gain[index if fit.columns is None else np.searchsorted(fit.columns, index)] = 0.0
        return NodeFit(fit.rss, gain, tuple(lost.get(m, 0.0) for m in parents), fit.columns)

    def _independent(self, parents: Parents) -> list[int]:
        """The parents that do not follow from the ones before."""
        index = list(parents)
        return [parents[k] for k in independent(self.correlation[np.ix_(index, index)])]


@dataclass(frozen=True)
class Criterion:
    """The price of edges.

    ``c log(n) |edges| + 2 gamma (log binom(N_W, |W|) + log binom(N_A, |A|))``, N_W = d(d-1)/2, N_A = p d^2.
    gamma = 0 is BIC (c = 1) and its stricter relatives, gamma > 0 the extended BIC of Chen and Chen (2008),
    which charges for the number of networks of that size and so adapts to how dense the network is.

    Orders are compared at the lower price `order_c`, and only then edges selected at c: a high price makes an
    order look better than the true one just because it can do with fewer edges. (Simulated networks of 10
    variables, 30 seeds, wrong edges of W: 200 rows 3.3 with c = 2 throughout, 1.8 with order_c = 1.2; 256
    rows 1.0 and 0.8.)
    """

    c: float = 2.0
    gamma: float = 0.0
    order_c: float | None = None

    @property
    def for_orders(self) -> Criterion:
        """The criterion that compares orders: `order_c`, by default 0.6 c where gamma is 0."""
        c = self.order_c if self.order_c is not None else (0.6 * self.c if self.gamma == 0 else self.c)
        return Criterion(c, self.gamma, c)

    def total(self, n: float, d: int, n_lags: int, n_present: int, n_lagged: int) -> float:
        """Price of a network with that many edges at lag 0 and at lags >= 1."""
        price = self.c * np.log(n) * (n_present + n_lagged)
        if self.gamma:
            price += 2 * self.gamma * _log_binomial(d * (d - 1) / 2, n_present)
            price += 2 * self.gamma * _log_binomial(n_lags * d * d, n_lagged)
        return float(price)

    def marginal(
        self, n: float, d: int, n_lags: int, n_present: ArrayLike, n_lagged: ArrayLike
    ) -> FloatArray:
        """(..., (p+1) d) price of one edge more or less at that size, or at each of these; never below AIC's 2."""
        base = self.c * np.log(n)
        prices = []
        for possible, used in ((d * (d - 1) / 2, n_present), (n_lags * d * d, n_lagged)):
            odds = (possible - np.asarray(used) + 0.5) / (np.asarray(used) + 0.5)
            prices.append(np.maximum(base + 2 * self.gamma * np.log(np.maximum(odds, 1e-12)), 2.0))
        return np.repeat(np.stack(prices, axis=-1), [d, n_lags * d], axis=-1)


def _log_binomial(total: float, chosen: float) -> float:
    return float(gammaln(total + 1) - gammaln(chosen + 1) - gammaln(total - chosen + 1))


@dataclass(frozen=True)
class Objective:
    """What one node's fit costs.

    Attributes
    ----------
    n
        Number of rows.
    penalty
        (q,) price of each column as a parent, or (q, d) where it differs by node.
    total
        (d,) total sums of squares of the nodes.
    noise_variance
        The common noise variance, or None if every node has its own.
    """

    n: float
    penalty: FloatArray
    total: FloatArray
    noise_variance: float | None

    def data_term(self, node: int, rss: float) -> float:
        """loss_j of a residual sum of squares given in units of the node's total."""
        if self.noise_variance is None:
            # What is constant in a resample of the rows has no variance to explain.
            return self.n * math.log(max(rss * self.total[node], _NOTHING))
        return float(rss * self.total[node]) / self.noise_variance

    def add_deltas(self, node: int, fit: NodeFit) -> FloatArray:
        """Change of the cost when each column joins: all q, or those of the fit."""
        penalty = self.penalty if self.penalty.ndim == 1 else self.penalty[:, node]
        if fit.columns is not None:
            penalty = penalty[fit.columns]
        if self.noise_variance is None:
            deltas = self.n * np.log1p(fit.gain * (-1 / fit.rss)) + penalty
        else:
            deltas = penalty - fit.gain * (self.total[node] / self.noise_variance)
        return np.asarray(deltas if fit.charge is None else deltas + fit.charge.more)

    def drop_deltas(self, node: int, fit: NodeFit, parents: Parents) -> list[float]:
        """Change of the cost when each parent leaves."""
        prices = self.prices(node, parents)
        if self.noise_variance is None:
            deltas = [
                self.n * math.log1p(loss / fit.rss) - price
                for loss, price in zip(fit.loss, prices, strict=True)
            ]
        else:
            scale = float(self.total[node]) / self.noise_variance
            deltas = [scale * loss - price for loss, price in zip(fit.loss, prices, strict=True)]
        if fit.charge is None:
            return deltas
        return [delta - less for delta, less in zip(deltas, fit.charge.less, strict=True)]

    def prices(self, node: int, parents: Parents) -> list[float]:
        """The price of each parent of a node."""
        price = self._price[node]
        return [price[m] for m in parents]

    @cached_property
    def _price(self) -> list[list[float]]:
        """`penalty` of each node as numbers that are read one by one."""
        if self.penalty.ndim == 1:
            return [self.penalty.tolist()] * len(self.total)
        each: list[list[float]] = self.penalty.T.tolist()
        return each

    def cost(self, node: int, fit: NodeFit, parents: Parents) -> float:
        """Data term, charge and the price of the parents."""
        cost = self.data_term(node, fit.rss) + sum(self.prices(node, parents))
        return cost if fit.charge is None else cost + fit.charge.now


MANY_NODES = 200
"""Up to this many variables every node looks at all columns."""
_LEAST_Z2 = 9.0
_MOST_COLUMNS = 250
"""Of more columns the strongest stay."""
_MOST_FITS = 100
"""Fits of a node that are remembered, however many nodes there are: at most 2 kB each."""


def regressions_of(scatter: FloatArray, n: float, d: int) -> ParentRegressions:
    """The regressions of the first d columns, screened if there are many."""
    return (ScreenedRegressions if d > MANY_NODES else ParentRegressions)(scatter, n, d)


class ScreenedRegressions(ParentRegressions):
    """Least-squares fits whose gains are those of some columns only, for each node its own."""

    is_screened = True

    def __init__(self, scatter: FloatArray, n: float, d: int) -> None:
        super().__init__(scatter, n, d)
        self._columns: list[IntArray] = _screened(self.correlation, self.n, d)
        self._sets: dict[int, int] = {}
        self._most_known = _MOST_FITS

    def columns(self, node: int) -> IntArray:
        """The columns that are looked at for a node, ascending."""
        return self._columns[node]

    def column_set(self, node: int) -> int:
        """`columns` as a set."""
        found = self._sets.get(node)
        if found is None:
            found = self._sets[node] = sum(1 << m for m in self._columns[node].tolist())
        return found

    def missed(self, node: int, parents: Parents) -> FloatArray:
        """(q,) the gains of all columns beside these parents; those that are looked at anyway have 0."""
        gain = super()._compute(node, parents).gains(self.q).copy()
        gain[self._columns[node]] = 0.0
        return gain

    def take_up(self, node: int, columns: Iterable[int]) -> None:
        """Look at further columns for a node."""
        self._columns[node] = np.union1d(self._columns[node], np.fromiter(columns, dtype=np.intp))
        self._sets.pop(node, None)
        self._known[node].clear()

    def _compute(self, node: int, parents: Parents, columns: IntArray | None = None) -> NodeFit:
        seen = self.column_set(node)
        if not all(seen >> m & 1 for m in parents):
            self.take_up(node, parents)
        return super()._compute(node, parents, self._columns[node])


def _screened(R: FloatArray, n: float, d: int) -> list[IntArray]:
    partial = _partial_correlations(R, n)
    found = []
    for j in range(d):
        z2 = n * np.maximum(R[j] ** 2, partial[j] ** 2)
        z2[j] = 0.0
        chosen = np.flatnonzero(z2 > _LEAST_Z2)
        if len(chosen) > _MOST_COLUMNS:
            chosen = np.sort(chosen[np.argsort(-z2[chosen], kind="stable")[:_MOST_COLUMNS]])
        found.append(chosen)
    return found


def _partial_correlations(R: FloatArray, n: float) -> FloatArray:
    """Partial correlations given all other columns, shrunk where rows are few; 0 if they cannot be had."""
    q = len(R)
    shrunk = R.copy()
    shrunk.flat[:: q + 1] += q / n if n < 4 * q else 0.0
    factor, failed = dpotrf(shrunk, lower=1, overwrite_a=1)
    if not failed:
        inverse, failed = dpotri(factor, lower=1, overwrite_c=1)
    if failed:
        return np.zeros_like(R)
    inverse = np.tril(inverse, -1) + np.tril(inverse).T
    root = np.sqrt(np.maximum(np.diag(inverse), 1e-300))
    return np.asarray(inverse / root / root[:, None])


_IMPROVEMENT = 1e-9
_MOST_REMEMBERED = 200_000
_MOST_OF_A_NODE = 100
"""The same for each of many nodes: what is remembered of one does not depend on how many others there are."""


def columns_of(members: BoolArray) -> Columns:
    """The set of the columns marked True."""
    return int.from_bytes(np.packbits(members, bitorder="little").tobytes(), "little")


class Moves(NamedTuple):
    """What one set of parents costs a node, and which single changes would lower that.

    Attributes
    ----------
    cost
        Data term plus the price of the parents.
    columns, changes
        The columns whose addition lowers the cost and by how much it changes, the largest improvement first.
    drops
        ``(column, change of the cost)``, likewise.
    useful
        `columns` as a set.
    """

    cost: float
    columns: array[int]
    changes: array[float]
    drops: list[tuple[int, float]]
    useful: Columns

    @property
    def additions(self) -> Iterable[tuple[int, float]]:
        """Pairs of `columns` and `changes`."""
        return zip(self.columns, self.changes, strict=True)


class ParentSelection:
    """Selections under one objective.

    Parameters
    ----------
    regressions
        Fits of nodes on columns.
    objective
        What a fit costs.
    required
        For each node the columns that always stay.
    """

    def __init__(
        self, regressions: ParentRegressions, objective: Objective, required: Sequence[Parents]
    ) -> None:
        self.regressions, self.objective, self.required = regressions, objective, required
        self._max_parents = regressions.max_parents
        n_nodes = max(len(required), 1)
        self._most_remembered = (
            _MOST_OF_A_NODE if regressions.is_screened else max(_MOST_REMEMBERED // n_nodes, 1)
        )
        self._moves: list[dict[Parents, Moves]] = [{} for _ in required]
        self._selected: list[dict[tuple[Parents, Columns], tuple[Parents, float]]] = [{} for _ in required]

    def forget(self, node: int) -> None:
        """Select a node's parents anew, as it looks at other columns."""
        self._moves[node].clear()
        self._selected[node].clear()

    def moves(self, node: int, parents: Parents) -> Moves:
        """Return the cost of a set of parents and the changes that lower it."""
        known = self._moves[node]
        found = known.get(parents)
        if found is None:
            if len(known) >= self._most_remembered:
                known.clear()
            found = known[parents] = self._compute(node, parents)
        return found

    def _compute(self, node: int, parents: Parents) -> Moves:
        fit = self.regressions.fit(node, parents)
        additions, gained = _NO_COLUMNS, _NO_CHANGES
        drops: list[tuple[int, float]] = []
        useful: Columns = 0
        if len(parents) < self._max_parents:
            deltas = self.objective.add_deltas(node, fit)
            columns = (deltas < -_IMPROVEMENT).nonzero()[0]
            if len(columns):
                deltas = deltas[columns]
                if fit.columns is not None:
                    columns = fit.columns[columns]
                best_first = deltas.argsort(kind="stable")
                additions = array("i", columns[best_first].astype(np.int32).tobytes())
                gained = array("d", deltas[best_first].tobytes())
                members = np.zeros(int(columns[-1]) + 1, dtype=bool)
                members[columns] = True
                useful = columns_of(members)
        if parents:
            changes = self.objective.drop_deltas(node, fit, parents)
            if min(changes) < -_IMPROVEMENT:
                in_order = sorted(zip(changes, parents, strict=True))
                drops = [(m, delta) for delta, m in in_order if delta < -_IMPROVEMENT]
        return Moves(self.objective.cost(node, fit, parents), additions, gained, drops, useful)

    def select(
        self, node: int, start: Parents, candidates: Columns, exchange: bool = False
    ) -> tuple[Parents, float]:
        """Return a set of parents that no single addition, removal (or exchange) improves, and its cost.

        Parameters
        ----------
        start
            Where the search begins; columns that are neither candidates nor required leave first.
        candidates
            Which columns may be parents.
        exchange
            Also try to replace one parent by another.
        """
        if exchange:
            return self._search(node, start, candidates, True)
        if self.regressions.is_screened:
            # What is not looked at changes nothing.
            candidates &= self.regressions.column_set(node)
        known, key = self._selected[node], (start, candidates)
        found = known.get(key)
        if found is None:
            if len(known) >= self._most_remembered:
                known.clear()
            found = known[key] = self._search(node, start, candidates, False)
        return found

    def _search(
        self, node: int, start: Parents, candidates: Columns, exchange: bool
    ) -> tuple[Parents, float]:
        fixed = self.required[node]
        parents = tuple(sorted({m for m in start if candidates >> m & 1} | set(fixed)))
        moves = self.moves(node, parents)
        refused: Columns = 0
        while True:
            best, move = -_IMPROVEMENT, -1
            open_to_it = moves.useful & candidates & ~refused
            if open_to_it:
                best, move = next((change, m) for m, change in moves.additions if open_to_it >> m & 1)
            for m, delta in moves.drops:
                if delta >= best:
                    break
                if m not in fixed and not refused >> m & 1:
                    best, move = delta, m
                    break
            if move >= 0:
                changed = tuple(sorted({*parents} ^ {move}))
                there = self.moves(node, changed)
                if there.cost < moves.cost:
                    parents, moves = changed, there
                else:
                    refused |= 1 << move
                continue
            if exchange:
                better = self._exchanged(node, parents, moves.cost, candidates)
                if better is not None:
                    parents, moves = better, self.moves(node, better)
                    continue
            return parents, moves.cost

    def _exchanged(self, node: int, parents: Parents, now: float, candidates: Columns) -> Parents | None:
        """The best replacement of one parent; a parent's removal alone improves nothing, so that only the
        useful additions to what is left come into question.
        """
        found: list[tuple[float, Parents]] = []
        for m in parents:
            if m in self.required[node]:
                continue
            rest = tuple(k for k in parents if k != m)
            without = self.moves(node, rest)
            if not without.useful & candidates & ~(1 << m):
                continue
            for k, delta in without.additions:
                if k != m and candidates >> k & 1:
                    change = without.cost + delta - now
                    if change < -1e-7:
                        found.append((change, tuple(sorted((*rest, k)))))
                    break
        found.sort(key=lambda one: one[0])
        return next((better for _, better in found if self.moves(node, better).cost < now), None)


_NO_COLUMNS, _NO_CHANGES = array("i"), array("d")
