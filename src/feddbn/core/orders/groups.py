"""Fits of variables on groups of columns that come and go together: codes of a variable, or an edge's line and its curve.

**Coded** columns: a possible parent is a variable at a lag, whatever its number of columns. A node with columns Y costs
``n log det (Y'Y - Y'X (X'X)^-1 X'Y)`` given the columns X of its parents: the score of a Gaussian with a free covariance
(Andrews, Ramsey, Cooper 2019 use it for indicators of levels). One column is the usual ``n log RSS``. What `NodeFit` calls
`rss` is the determinant in units of that without parents, so that searches over orders run as ever. The score:

    sum_j n log det_j + sum over edges of  (columns of source * columns of target) * c log(n) + 2 log(number of such networks)

The first part of the price is that of BIC, the second that of the extended BIC (Chen and Chen 2008): with many variables
to choose from, one of them fits by chance, and that counts for more the fewer edges there are.

**Curved** effects: a possible edge has two groups, its straight line (one column) and its curve (several). A product of two
variables is one more. Coefficients of a group are independent, ``b ~ N(0, s2 D)`` with the node's noise variance s2, so
with ``M = X'X + D^-1``

    -2 log evidence = n log RSS + log det (D M),    RSS = y'y - y'X M^-1 X'y          (up to a constant)

The second term is the price of flexibility: a rough function whose D is small costs little and can do little, so an
edge pays for the curvature that it has. Columns are scaled to unit variance inside; D is in those units. Scores:

    free variances    sum_j [ n log(RSS_j / n) + charge_j ]     + price of every group
    equal variances   n d log(sum_j RSS_j / (n d)) + sum_j charge_j + price of every group

The charge is the evidence's price of a group's flexibility; the price is that of choosing
it: prior odds of one expected group a node, twice their logarithm.

A curved edge settles its direction: with it turned, noise would not be independent of causes (Buehlmann, Peters and
Ernest 2014). So networks have no equals in general, and each edge is turned once to see what the score says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.designs.design import Design
from feddbn.core.designs.features import CURVE, relative_variances
from feddbn.core.orders.parents import (
    NO_RESIDUAL,
    Charge,
    Columns,
    Criterion,
    NodeFit,
    ParentRegressions,
    Parents,
    regressions_of,
)
from feddbn.core.statistics.moments import COLLINEAR, Moments, independent


@dataclass(frozen=True, eq=False)
class Groups:
    """Which columns belong together, and which edges they are.

    Attributes
    ----------
    d
        Number of variables.
    columns
        The columns of each group. Coded: all variables of the same time step, then at lag 1, ... Curved: the first
        (p+1) d groups are the straight lines, the next as many the curves, if there are any; then products.
    edges
        For each group the rows of the stack ``[W; A_1; ...]`` of the edges it is part of: one, or two of a product. None:
        the one of its own number.
    prior
        (number of columns,) variances of coefficients over the noise variance, of columns with unit variance. None:
        weights are free, and a group pays by its columns.
    """

    d: int
    columns: tuple[tuple[int, ...], ...]
    edges: tuple[tuple[int, ...], ...] | None = None
    prior: FloatArray | None = None


def fits_of(moments: Moments, d: int, groups: Groups | None = None) -> ParentRegressions:
    """The fits of d variables on single columns, or on groups of them."""
    if groups is None:
        return regressions_of(moments.scatter, moments.n, d)
    kind = CodedRegressions if groups.prior is None else CurvedRegressions
    return kind(moments.scatter, moments.n, groups)


_ODDS, _NETWORKS = Criterion(1.0, 1.0), Criterion(0.0, 1.0)


class CodedRegressions(ParentRegressions):
    """Fits of variables of the same time step on variables at any lag, computed once each.

    Parameters
    ----------
    scatter
        Sums of squares and products of all columns about their means.
    n
        Number of rows.
    groups
        The columns of each variable at each lag.
    """

    is_priced = True

    def __init__(self, scatter: FloatArray, n: float, groups: Groups) -> None:
        super().__init__(scatter, n, groups.d)
        d, self.columns = groups.d, groups.columns
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

    def prices(self, criterion: Criterion, n_present: int, n_lagged: int) -> FloatArray:
        """(q, d) the price of each possible edge in a network that has so many within a time step and across."""
        odds = _ODDS.marginal(self.n, self.d, self.n_lags, n_present, n_lagged) - np.log(self.n)
        return np.asarray(criterion.c * np.log(self.n) * self._n_columns + odds[:, None])

    def price_of(self, criterion: Criterion, network: Sequence[Parents]) -> float:
        """What the edges of any network cost."""
        each = criterion.c * np.log(self.n) * self._n_columns
        total = sum(each[list(parents), j].sum() for j, parents in enumerate(network))
        return float(total) + super().price_of(_NETWORKS, network)

    @property
    def _n_columns(self) -> FloatArray:
        """(q, d) pairs of columns of a parent and a node."""
        return np.outer(self.widths, self.widths[: self.d])

    def _compute(self, node: int, parents: Parents, columns: IntArray | None = None) -> NodeFit:
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
        rss = max(float(np.exp(_log_det(rest) - self._log_total[node])), NO_RESIDUAL)
        gain = self._gains(own, left, rss)
        gain[node] = 0.0
        gain[list(parents)] = 0.0
        gain[self._blocked] = 0.0
        np.clip(gain, 0.0, max(rss - NO_RESIDUAL, 0.0), out=gain)
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

    def _independent(self, parents: Parents) -> list[int]:
        kept: list[int] = []
        for m in parents:
            index = np.array([c for k in (*kept, m) for c in self.columns[k]])
            if len(independent(self.correlation[np.ix_(index, index)])) == len(index):
                kept.append(m)
        return kept


def _log_det(matrices: FloatArray) -> FloatArray:
    """Log determinants; what is not positive is rounding."""
    sign, size = np.linalg.slogdet(matrices)
    return np.asarray(np.where(sign > 0, size, np.log(NO_RESIDUAL)))


class CurvedRegressions(ParentRegressions):
    """Fits of the first d columns on lines, curves and products, computed once each.

    Parameters
    ----------
    scatter
        Sums of squares and products of all columns about their means.
    n
        Number of rows.
    groups
        Which columns belong together.
    """

    is_priced = True
    has_equivalents = False
    edges: tuple[tuple[int, ...], ...]

    def __init__(self, scatter: FloatArray, n: float, groups: Groups) -> None:
        super().__init__(scatter, n, groups.d)
        assert groups.edges is not None
        assert groups.prior is not None
        self.columns, self.edges = groups.columns, groups.edges
        self.n_columns = self.q
        self.q = len(self.columns)
        self.ridge = 1.0 / (self.n * groups.prior)
        # Groups of one width are worked on together: who they are, their columns (width, how many), and their matrices M.
        widths = np.array([len(columns) for columns in self.columns])
        self._widths: list[tuple[IntArray, IntArray, FloatArray]] = []
        for width in np.unique(widths).tolist():
            alike = np.flatnonzero(widths == width)
            group = np.array([self.columns[t] for t in alike]).T
            block = self.correlation[group[:, None], group[None]]
            block[np.arange(width), np.arange(width)] += self.ridge[group]
            self._widths.append((alike, group, block))
        self._log_ridge = np.array([np.log(self.ridge[list(c)]).sum() for c in self.columns])
        self._own = [
            np.array([t for t, c in enumerate(self.columns) if j in c or self.edges[t] == (j,)])
            for j in range(self.d)
        ]
        usable = np.diag(scatter) > 0
        self._blocked = np.array([not usable[list(c)].all() for c in self.columns])

    @property
    def n_edges(self) -> int:
        """Possible causes of a node, whatever their shape."""
        return 1 + max(row for rows in self.edges for row in rows)

    @property
    def price(self) -> float:
        """Twice the log prior odds against one of so many groups, if a node is expected to have one."""
        return 2.0 * float(np.log(max(self.q - 1, 1)))

    @property
    def present(self) -> list[Columns]:
        """For each variable its contemporaneous groups."""
        return [sum(1 << t for t, rows in enumerate(self.edges) if rows == (j,)) for j in range(self.d)]

    def limits(self, constraints: EdgeConstraints) -> EdgeConstraints:
        """The constraints by group; a required edge is required as a straight line."""
        allowed = np.array([constraints.allowed[list(rows)].all(axis=0) for rows in self.edges])
        required = np.zeros_like(allowed)
        required[: len(constraints.required)] = constraints.required
        return EdgeConstraints(allowed, required)

    def support_of(self, network: Sequence[Parents]) -> BoolArray:
        """((p+1) d, d) the edges of any network, whatever their shape."""
        support = np.zeros((self.n_edges, self.d), dtype=bool)
        for j, parents in enumerate(network):
            for t in parents:
                support[list(self.edges[t]), j] = True
        return support

    def prices(self, criterion: Criterion, n_present: int, n_lagged: int) -> FloatArray:
        """(q,) the same for all groups."""
        return np.full(self.q, self.price)

    def price_of(self, criterion: Criterion, network: Sequence[Parents]) -> float:
        """What the groups of any network cost, and their flexibility."""
        fits = (self.fit(j, parents) for j, parents in enumerate(network))
        charge = sum(0.0 if fit.charge is None else fit.charge.now for fit in fits)
        return charge + self.price * sum(map(len, network))

    def _compute(self, node: int, parents: Parents, columns: IntArray | None = None) -> NodeFit:
        R, ridge = self.correlation, self.ridge
        index = np.array([c for t in parents for c in self.columns[t]], dtype=np.intp)
        rest, rss, charge = R[node].copy(), 1.0, 0.0
        loss: tuple[float, ...] = ()
        drops: tuple[float, ...] = ()
        along = np.zeros((0, self.n_columns))
        if len(index):
            rows = R[index]
            M = rows[:, index]
            M.flat[:: len(index) + 1] += ridge[index]
            factor, failed = dpotrf(M, lower=1, clean=1)
            if failed:
                raise FloatingPointError("a matrix with a positive prior must have a factor")
            inverse, _ = dtrtri(factor, lower=1)
            along = inverse @ rows
            own = along[:, node]
            rss = max(rss - float(own @ own), NO_RESIDUAL)
            rest -= own @ along
            charge = float(2 * np.log(np.diag(factor)).sum() - np.log(ridge[index]).sum())
            loss, drops = self._leaving(parents, inverse, own)
        gain, more = self._joining(along, rest)
        for taken in (self._own[node], list(parents), self._blocked):
            gain[taken] = 0.0
        np.minimum(gain, max(rss - NO_RESIDUAL, 0.0), out=gain)
        return NodeFit(rss, gain, loss, charge=Charge(charge, more, drops))

    def _joining(self, along: FloatArray, rest: FloatArray) -> tuple[FloatArray, FloatArray]:
        """By how much the residual sum falls and the charge rises when each group joins; by elimination, all groups at once.

        `along` are all columns in an orthonormal basis of the parents', `rest` is what the parents leave of X'y.
        """
        gain, more = np.zeros(self.q), np.zeros(self.q)
        for alike, group, blocks in self._widths:
            block, cross, part = blocks.copy(), rest[group], along[:, group]
            falls, rises = np.zeros(len(alike)), -self._log_ridge[alike]
            if len(along):
                for i in range(len(group)):
                    block[i, i:] -= (part[:, i, None] * part[:, i:]).sum(axis=0)
            for i, column in enumerate(group):
                # Rounding aside, no pivot is smaller than what the prior added.
                pivot = np.maximum(block[i, i], self.ridge[column])
                falls += cross[i] ** 2 / pivot
                rises += np.log(pivot)
                share = block[i, i + 1 :] / pivot
                cross[i + 1 :] -= share * cross[i]
                for j in range(i + 1, len(group)):
                    block[j, j:] -= share[j - i - 1] * block[i, j:]
            gain[alike], more[alike] = falls, rises
        return gain, more

    def _leaving(
        self, parents: Parents, inverse: FloatArray, own: FloatArray
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """By how much the residual sum rises and the charge falls when each parent leaves.

        With K = M^-1 and b = K X'y, leaving out the columns S costs ``b_S' (K_SS)^-1 b_S``, and the determinant loses a
        factor ``1 / det K_SS``.
        """
        beta = own @ inverse
        loss, drops, start = [], [], 0
        for t in parents:
            stop = start + len(self.columns[t])
            part = inverse[:, start:stop]
            K = part.T @ part
            b = beta[start:stop]
            loss.append(float(b @ np.linalg.solve(K, b)))
            drops.append(float(-np.linalg.slogdet(K)[1] - self._log_ridge[t]))
            start = stop
        return tuple(loss), tuple(drops)

    def coefficients(self, node: int, parents: Sequence[int]) -> tuple[IntArray, FloatArray, FloatArray]:
        """Columns of the parents, their expected coefficients, and K: their covariance over the noise variance.

        In the units of the columns of the scatter matrix.
        """
        columns = np.array([c for t in parents for c in self.columns[t]], dtype=np.int64)
        if not len(columns):
            return columns, np.zeros(0), np.zeros((0, 0))
        M = self.correlation[np.ix_(columns, columns)].copy()
        M.flat[:: len(columns) + 1] += self.ridge[columns]
        K = np.linalg.inv(M)
        size = np.sqrt(np.maximum(self.column_total, 1e-300))
        beta = K @ self.correlation[columns, node] * size[node] / size[columns]
        return columns, np.asarray(beta), np.asarray(K / np.outer(size[columns], size[columns]))


@dataclass(frozen=True)
class CurvePart:
    """The curved part of one edge, in the units of its target; `covariance` is of (weight, coefficients)."""

    source: int
    target: int
    lag: int
    coefficients: FloatArray
    covariance: FloatArray


@dataclass(frozen=True)
class ProductPart:
    """What two variables do together, in the units of the target."""

    first: int
    second: int
    target: int
    lag: int
    weight: float


@dataclass(frozen=True)
class CurvedNetwork:
    """Weights ((p+1) d, d), curves and products in the units of the data, intercepts and noise variances (d,).

    `shares` (d, d), [from, to], is how much of each target's variance each source explains (`core.orders.learn`); what
    two sources do together counts half for each.
    """

    weights: FloatArray
    curves: tuple[CurvePart, ...]
    products: tuple[ProductPart, ...]
    intercept: FloatArray
    variances: FloatArray
    shares: FloatArray


def curved_groups(design: Design) -> Groups:
    """A line and a curve for every variable at every lag, then the products."""
    d, p = design.d, design.n_lags
    q, width = (p + 1) * d, design.terms[1].basis.width
    lines = tuple((t,) for t in range(q))
    curves = tuple(tuple(range(q + t * width, q + (t + 1) * width)) for t in range(q))
    first = q + q * width
    products = tuple((first + k,) for k in range(len(design.products)))
    pairs = tuple((lag * d + a,) if a == b else (lag * d + a, lag * d + b) for a, b, lag in design.products)
    expected = relative_variances() if design.terms[1].basis.name == CURVE else np.ones(width)
    prior = np.concatenate([np.ones(q), np.tile(expected, q), np.ones(len(products))])
    return Groups(d, (*lines, *curves, *products), (*lines, *lines, *pairs), prior)


def in_data_units(moments: Moments, design: Design) -> Moments:
    """The moments of a curved design with its lines in the units of the data; functions and products have none."""
    n_lines = (design.n_lags + 1) * design.d
    factor, shift = np.ones(moments.q), np.zeros(moments.q)
    factor[:n_lines] = np.tile(design.scale, design.n_lags + 1)
    shift[:n_lines] = np.tile(design.origin, design.n_lags + 1)
    return Moments(moments.n, moments.mean * factor + shift, moments.scatter * np.outer(factor, factor))


def curved_network(moments: Moments, design: Design, chosen: Sequence[Sequence[int]]) -> CurvedNetwork:
    """What the groups of each node come to; `moments` are `in_data_units`."""
    d, q = design.d, (design.n_lags + 1) * design.d
    weights, intercept, variances = np.zeros((q, d)), np.zeros(d), np.zeros(d)
    shares = np.zeros((d, d))
    curves: list[CurvePart] = []
    products: list[ProductPart] = []
    S, regressions = moments.scatter, CurvedRegressions(moments.scatter, moments.n, curved_groups(design))
    for j in range(d):
        # Curves are drawn in as far as the prior expects small coefficients.
        columns, beta, K = regressions.coefficients(j, chosen[j])
        among = S[np.ix_(columns, columns)]
        left = S[j, j] - 2 * beta @ S[columns, j] + beta @ among @ beta
        # A shrunk coefficient takes less than one degree of freedom.
        used = float(np.trace(K @ among)) if len(columns) else 0.0
        variances[j] = max(float(left), 0.0) / max(moments.n - 1 - used, 1.0)
        covariance = K * variances[j]
        place = {int(column): k for k, column in enumerate(columns)}
        intercept[j] = moments.mean[j] - float(moments.mean[columns] @ beta)
        for t in chosen[j]:
            own = [place[column] for column in regressions.columns[t]]
            size = beta[own]
            edges = regressions.edges[t]
            explained = float(size @ S[columns[own], j]) / max(S[j, j], 1e-300)
            for row in edges:
                shares[row % d, j] += explained / len(edges)
            if t < q:
                weights[t, j] = size[0]
            elif t < 2 * q:
                both = [place[t - q], *own]
                curves.append(CurvePart(t % d, j, (t - q) // d, size, covariance[np.ix_(both, both)]))
            else:
                first, second, lag = design.products[t - 2 * q]
                products.append(ProductPart(first, second, j, lag, float(size[0])))
    return CurvedNetwork(weights, tuple(curves), tuple(products), intercept, variances, shares)
