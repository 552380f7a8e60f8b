"""From the moments of a curved design to a network of straight and curved edges, and products of lagged variables.

A node is regressed on *tokens*: groups of columns that come and go together, with the evidence as their price. A possible
edge has two tokens: its straight line (one column) and its curve (several). A product of two variables is one more.
Coefficients of a token are independent, ``b ~ N(0, s2 D)`` with the node's noise variance s2, so with ``M = X'X + D^-1``

    -2 log evidence = n log RSS + log det (D M),    RSS = y'y - y'X M^-1 X'y          (up to a constant)

The second term is the price of flexibility: a rough function whose D is small costs little and can do little, so an
edge pays for the curvature that it has. Columns are scaled to unit variance inside; D is in those units.

Scores of the search over orders:

    free variances    sum_j [ n log(RSS_j / n) + charge_j ]     + price of every token
    equal variances   n d log(sum_j RSS_j / (n d)) + sum_j charge_j + price of every token

The charge is the evidence's price of a token's flexibility; the price is that of choosing
it: prior odds of one expected token a node, twice their logarithm.

Edge probabilities come from tables over subsets of tokens; that of an edge is that of any of its tokens.

A curved edge settles its direction: with it turned, noise would not be independent of causes (Buehlmann, Peters and
Ernest 2014). So networks have no equals in general, and each edge is turned once to see what the score says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.designs.design import Design
from feddbn.core.designs.features import CURVE, SMOOTH, relative_variances
from feddbn.core.graphs.constraints import EdgeConstraints, topological_order
from feddbn.core.orders.average import (
    Hyper,
    NodeTable,
    OrderChain,
    OrderPosterior,
    given_order,
    median_graph,
    nominees_of,
    posterior_of,
    sampled_orders,
    subset_sums,
)
from feddbn.core.orders.learn import (
    FEW_ROWS,
    MOST_NODES_TO_AVERAGE,
    Learned,
    LearnOptions,
    choose_noise,
    edge_firmness,
    firmness_of,
    settle_directions,
)
from feddbn.core.orders.parents import Columns, NodeFit, Objective, ParentRegressions, Parents
from feddbn.core.orders.search import OrderResult, OrderSearch
from feddbn.core.statistics.moments import Moments

_NO_RESIDUAL = 1e-12


@dataclass(frozen=True, eq=False)
class Tokens:
    """Which columns belong together, and which edges they are.

    Attributes
    ----------
    d, n_lags
        Variables and lags.
    columns
        The columns of each token. The first (p+1) d tokens are the straight lines, the next as many the curves, if there
        are any; then products.
    edges
        For each token the rows of the stack ``[W; A_1; ...]`` of the edges it is part of: one, or two of a product.
    prior
        (number of columns,) variances of coefficients over the noise variance, of columns with unit variance.
    """

    d: int
    n_lags: int
    columns: tuple[tuple[int, ...], ...]
    edges: tuple[tuple[int, ...], ...]
    prior: FloatArray

    @property
    def n_edges(self) -> int:
        """Rows of the stack."""
        return (self.n_lags + 1) * self.d

    @property
    def present(self) -> list[list[int]]:
        """For each variable its contemporaneous tokens."""
        return [[t for t, rows in enumerate(self.edges) if rows == (j,)] for j in range(self.d)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargedFit(NodeFit):
    """A fit with what its flexibility costs.

    Attributes
    ----------
    charge
        ``log det (D M)`` of the parents.
    add_charge
        By how much it rises when each token joins.
    drop_charge
        By how much it falls when each parent leaves.
    """

    charge: float = 0.0
    add_charge: FloatArray = field(default_factory=lambda: np.zeros(0))
    drop_charge: tuple[float, ...] = ()


class TokenRegressions(ParentRegressions):
    """Fits of the first d columns on tokens, computed once each.

    Parameters
    ----------
    scatter
        Sums of squares and products of all columns about their means.
    n
        Number of rows.
    tokens
        Which columns belong together.
    """

    def __init__(self, scatter: FloatArray, n: float, tokens: Tokens) -> None:
        super().__init__(scatter, n, tokens.d)
        self.tokens = tokens
        self.n_columns = self.q
        self.q = len(tokens.columns)
        self.ridge = 1.0 / (self.n * tokens.prior)
        # Tokens of one width are worked on together: who they are, their columns (width, how many), and their matrices M.
        widths = np.array([len(columns) for columns in tokens.columns])
        self._widths: list[tuple[IntArray, IntArray, FloatArray]] = []
        for width in np.unique(widths).tolist():
            alike = np.flatnonzero(widths == width)
            group = np.array([tokens.columns[t] for t in alike]).T
            block = self.correlation[group[:, None], group[None]]
            block[np.arange(width), np.arange(width)] += self.ridge[group]
            self._widths.append((alike, group, block))
        self._log_ridge = np.array([np.log(self.ridge[list(c)]).sum() for c in tokens.columns])
        self._own = [
            np.array([t for t, c in enumerate(tokens.columns) if j in c or tokens.edges[t] == (j,)])
            for j in range(tokens.d)
        ]
        usable = np.diag(scatter) > 0
        self._blocked = np.array([not usable[list(c)].all() for c in tokens.columns])

    @property
    def n_edges(self) -> int:
        """Possible causes of a node, whatever their shape."""
        return self.tokens.n_edges

    def _compute(self, node: int, parents: Parents) -> ChargedFit:
        R, ridge = self.correlation, self.ridge
        columns = [c for t in parents for c in self.tokens.columns[t]]
        rest, rss, charge = R[node].copy(), 1.0 if self._usable[node] else 0.0, 0.0
        loss: tuple[float, ...] = ()
        drops: tuple[float, ...] = ()
        along = np.zeros((0, self.n_columns))
        if columns:
            index = np.array(columns)
            rows = R[index]
            M = rows[:, index]
            M.flat[:: len(index) + 1] += ridge[index]
            factor, failed = dpotrf(M, lower=1, clean=1)
            if failed:
                raise FloatingPointError("a matrix with a positive prior must have a factor")
            inverse, _ = dtrtri(factor, lower=1)
            along = inverse @ rows
            own = along[:, node]
            rss = max(rss - float(own @ own), _NO_RESIDUAL)
            rest -= own @ along
            charge = float(2 * np.log(np.diag(factor)).sum() - np.log(ridge[index]).sum())
            loss, drops = self._leaving(parents, inverse, own)
        gain, more = self._joining(along, rest)
        for taken in (self._own[node], list(parents), self._blocked):
            gain[taken] = 0.0
        np.minimum(gain, max(rss - _NO_RESIDUAL, 0.0), out=gain)
        return ChargedFit(rss, gain, loss, charge=charge, add_charge=more, drop_charge=drops)

    def _joining(self, along: FloatArray, rest: FloatArray) -> tuple[FloatArray, FloatArray]:
        """By how much the residual sum falls and the charge rises when each token joins; by elimination, all tokens at once.

        `along` are all columns in an orthonormal basis of the parents', `rest` is what the parents leave of X'y.
        """
        gain, more = np.zeros(self.q), np.zeros(self.q)
        for tokens, group, blocks in self._widths:
            block, cross, part = blocks.copy(), rest[group], along[:, group]
            falls, rises = np.zeros(len(tokens)), -self._log_ridge[tokens]
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
            gain[tokens], more[tokens] = falls, rises
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
            stop = start + len(self.tokens.columns[t])
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
        columns = np.array([c for t in parents for c in self.tokens.columns[t]], dtype=np.int64)
        if not len(columns):
            return columns, np.zeros(0), np.zeros((0, 0))
        M = self.correlation[np.ix_(columns, columns)].copy()
        M.flat[:: len(columns) + 1] += self.ridge[columns]
        K = np.linalg.inv(M)
        size = np.sqrt(np.maximum(self.column_total, 1e-300))
        beta = K @ self.correlation[columns, node] * size[node] / size[columns]
        return columns, np.asarray(beta), np.asarray(K / np.outer(size[columns], size[columns]))


@dataclass(frozen=True)
class ChargedObjective(Objective):
    """An objective whose fits have a charge beside the price of each token."""

    def add_deltas(self, node: int, fit: NodeFit) -> FloatArray:
        """(q,) change of the cost when each token joins."""
        assert isinstance(fit, ChargedFit)
        return np.asarray(super().add_deltas(node, fit) + fit.add_charge)

    def drop_deltas(self, node: int, fit: NodeFit, parents: Parents) -> list[float]:
        """Change of the cost when each parent leaves."""
        assert isinstance(fit, ChargedFit)
        plain = super().drop_deltas(node, fit, parents)
        return [delta - charge for delta, charge in zip(plain, fit.drop_charge, strict=True)]

    def cost(self, node: int, fit: NodeFit, parents: Parents) -> float:
        """Data term, charge and the price of the parents."""
        assert isinstance(fit, ChargedFit)
        return super().cost(node, fit, parents) + fit.charge


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


@dataclass(frozen=True)
class CurvedLearned:
    """A network with curves.

    Attributes
    ----------
    learned
        As of a linear network; the support has edges of any shape.
    tokens
        For each node its tokens: the line of every edge, and the curves and products that the evidence is for.
    """

    learned: Learned
    tokens: tuple[tuple[int, ...], ...]


def learn_curved(
    moments: Moments,
    tokens: Tokens,
    constraints: EdgeConstraints,
    options: LearnOptions,
    rng: np.random.Generator,
) -> CurvedLearned:
    """Return the network of moments of a curved design."""
    d = tokens.d
    regressions = TokenRegressions(moments.scatter, moments.n, tokens)
    searches, noise = choose_noise(
        moments,
        constraints,
        options.criterion,
        options.noise_variance,
        options.n_restarts,
        rng,
        regressions,
        CurvedSearch,
    )
    search, best = searches[noise.kind]
    assert isinstance(search, CurvedSearch)
    over_orders = options.average is True or (options.average == "auto" and d <= MOST_NODES_TO_AVERAGE)
    best, asked = settle_directions(search, best)
    posterior = average_tokens(search, best, constraints, rng, over_orders)
    if over_orders and (moments.n < FEW_ROWS or options.average is True):
        best = search.adopt(median_graph(posterior.probability, constraints.required))
        asked = edge_firmness(search, best)
    learned = Learned(
        best.support,
        best.order,
        noise,
        tuple(firmness_of(best.support, asked)),
        None,
        posterior,
        best.score,
        best,
        search,
    )
    # Every edge has its line, so that a weight says how steep it is on average.
    chosen = tuple(
        tuple(sorted({*parents, *(row for t in parents for row in tokens.edges[t])}))
        for parents in best.parents
    )
    return CurvedLearned(learned, chosen)


def straight_score(curved: CurvedLearned, straight: Learned) -> float:
    """The score that a network of straight lines has by the evidence of tokens: comparable with a curved one's."""
    other = curved.learned.search.like(noise_variance=straight.noise.kind)
    network = [tuple(np.flatnonzero(straight.support[:, j]).tolist()) for j in range(other.d)]
    return other.score_of(network)


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


def tokens_of(design: Design) -> Tokens:
    """A line and a curve for every variable at every lag, then the products."""
    d, p = design.d, design.n_lags
    q, width = (p + 1) * d, design.terms[1].basis.width
    lines = tuple((t,) for t in range(q))
    curves = tuple(tuple(range(q + t * width, q + (t + 1) * width)) for t in range(q))
    first = q + q * width
    products = tuple((first + k,) for k in range(len(design.products)))
    pairs = tuple((lag * d + a,) if a == b else (lag * d + a, lag * d + b) for a, b, lag in design.products)
    is_spline = design.terms[1].basis.name in (CURVE, SMOOTH)
    expected = relative_variances()[:width] if is_spline else np.ones(width)
    prior = np.concatenate([np.ones(q), np.tile(expected, q), np.ones(len(products))])
    return Tokens(d, p, (*lines, *curves, *products), (*lines, *lines, *pairs), prior)


def in_data_units(moments: Moments, design: Design) -> Moments:
    """The moments of a curved design with its lines in the units of the data; functions and products have none."""
    n_lines = (design.n_lags + 1) * design.d
    factor, shift = np.ones(moments.q), np.zeros(moments.q)
    factor[:n_lines] = np.tile(design.scale, design.n_lags + 1)
    shift[:n_lines] = np.tile(design.origin, design.n_lags + 1)
    return Moments(moments.n, moments.mean * factor + shift, moments.scatter * np.outer(factor, factor))


def curved_network(moments: Moments, design: Design, tokens: Sequence[Sequence[int]]) -> CurvedNetwork:
    """What the tokens of each node come to; `moments` are `in_data_units`."""
    d, q = design.d, (design.n_lags + 1) * design.d
    weights, intercept, variances = np.zeros((q, d)), np.zeros(d), np.zeros(d)
    shares = np.zeros((d, d))
    curves: list[CurvePart] = []
    products: list[ProductPart] = []
    S, regressions = moments.scatter, TokenRegressions(moments.scatter, moments.n, tokens_of(design))
    for j in range(d):
        # Curves are drawn in as far as the prior expects small coefficients.
        columns, beta, K = regressions.coefficients(j, tokens[j])
        among = S[np.ix_(columns, columns)]
        left = S[j, j] - 2 * beta @ S[columns, j] + beta @ among @ beta
        # A shrunk coefficient takes less than one degree of freedom.
        used = float(np.trace(K @ among)) if len(columns) else 0.0
        variances[j] = max(float(left), 0.0) / max(moments.n - 1 - used, 1.0)
        covariance = K * variances[j]
        place = {int(column): k for k, column in enumerate(columns)}
        intercept[j] = moments.mean[j] - float(moments.mean[columns] @ beta)
        for t in tokens[j]:
            own = [place[column] for column in regressions.tokens.columns[t]]
            size = beta[own]
            edges = regressions.tokens.edges[t]
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
