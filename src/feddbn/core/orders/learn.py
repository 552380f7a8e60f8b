"""From the moments of lagged rows, or of groups of columns, to a network: everything a server does after the one sum.

`OrderLearner` searches with equal and with free noise variances, decides between them by BIC, and says how firmly each edge
is directed and whether the answer rests on the units. From resamples of the rows it says which edges come again (`Shares`).

Directions: with free Gaussian noise variances, networks with the same adjacencies and the same unshielded colliders fit
equally well (Verma and Pearl 1990). Lagged columns precede everything, so every edge from a lag is directed
and helps to direct others: x_{t-1} -> i -> j with no edge x_{t-1} -> j says that j does not cause i.

Review: contemporaneous directions that Gaussian scores leave open are decided by the likelihoods of the variables' own
kinds. A line through 0 and 1 fits about as well both ways; a logistic or a Poisson model often does not. So for a few
open edges all directions are compared:  sum_j BIC_j(parents of j),  over those without a cycle. A node has as many models
as it has sets of open neighbours as parents; they are fitted together with all others.

Strength (`explained_shares`), which orders edges whose probabilities all are 1: with b the least-squares weights of the
parents of j in standard deviations and r their correlations with x_j,

    R^2 = sum_m b_m r_m

so that ``b_m r_m`` is the share of the variance of x_j that column m explains (Pratt 1987). Shares of the lags of one
source are added: weights of neighbouring lags that cancel explain nothing together. A share below 0 belongs to a source
that acts against its correlation with the target and only corrects what other parents have in common; slow variables have
many of these. Shares depend neither on units nor on the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Literal

import numpy as np
from scipy.special import chdtrc, expit

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.constraints import EdgeConstraints, causes_first, has_cycle, strongest_acyclic
from feddbn.core.orders.groups import Groups, fits_of
from feddbn.core.orders.parents import MANY_NODES, Criterion, ParentRegressions, Parents
from feddbn.core.orders.search import NoiseVariance, OrderResult, OrderSearch, search_order
from feddbn.core.orders.shares import Shares
from feddbn.core.statistics.moments import Moments, correlations, safe_roots
from feddbn.core.statistics.parts import redrawn
from feddbn.findings import Finding

STRONG_EVIDENCE = 6.0
"""Score difference that counts as decided: odds of 20 to 1, "strong" in Kass and Raftery (1995)."""

_MAX_BETTER = 10


@dataclass(frozen=True)
class EdgeOrientation:
    """How firmly one contemporaneous edge is directed.

    Attributes
    ----------
    source, target
        Nodes of the edge in the chosen network.
    score_difference
        Score of the best network found with the edge's ends in the other order, minus the chosen network's
        score. 0 if an equivalent network has the edge reversed.
    by_shape
        Whether something beside second moments decided, which the posterior does not see: the shape of the noise, or models
        of the variables' kinds.
    """

    source: int
    target: int
    score_difference: float
    by_shape: bool = False

    @property
    def oriented(self) -> bool:
        """Whether the difference is strong evidence."""
        return self.score_difference >= STRONG_EVIDENCE


def compelled_edges(support: BoolArray, fixed: BoolArray | None = None) -> BoolArray:
    """(d, d) the contemporaneous edges that every equivalent network directs the same way.

    Parameters
    ----------
    support
        ((p+1) d, d) the network.
    fixed
        (d, d) edges whose direction is known beforehand.
    """
    d = support.shape[1]
    W, lagged = support[:d], support[d:]
    adjacent = W | W.T
    known = np.zeros((d, d), dtype=bool) if fixed is None else fixed & W
    for j in range(d):
        parents = np.flatnonzero(W[:, j])
        for i in parents:
            from_lag = (lagged[:, j] & ~lagged[:, i]).any()
            unshielded = ~adjacent[i, parents]
            unshielded[parents == i] = False
            if from_lag or unshielded.any():
                known[i, j] = True
    changed = True
    while changed:
        changed = False
        for i, j in np.argwhere(W & ~known):
            if _meek(int(i), int(j), known, adjacent, lagged):
                known[i, j] = changed = True
    return known


def _meek(i: int, j: int, known: BoolArray, adjacent: BoolArray, lagged: BoolArray) -> bool:
    """Whether one of Meek's four rules (1995) directs i -> j."""
    if (lagged[:, i] & ~lagged[:, j]).any() or (known[:, i] & ~adjacent[:, j]).any():
        return True
    if (known[i] & known[:, j]).any():
        return True
    open_to_i = adjacent[i] & ~known[i] & ~known[:, i]
    middle = np.flatnonzero(open_to_i & known[:, j])
    if len(middle) > 1 and not (adjacent[np.ix_(middle, middle)] | np.eye(len(middle), dtype=bool)).all():
        return True
    return any(
        k != j and (known[k] & known[:, j] & adjacent[i]).any()
        for k in np.flatnonzero(open_to_i & ~adjacent[j])
    )


def settle_directions(search: OrderSearch, result: OrderResult) -> tuple[OrderResult, list[EdgeOrientation]]:
    """The network, and how firmly each contemporaneous edge is directed.

    Every edge is turned once. Should that lead to a better network, the questions begin anew from there.
    """
    if search.d > MANY_NODES:
        return _settle_one_by_one(search, result)
    for _ in range(_MAX_BETTER):
        table, better = _ask(search, result)
        if better is None:
            return result, table
        result = better
    search.adopt(result.support)
    return result, _ask(search, result)[0]


def _settle_one_by_one(search: OrderSearch, result: OrderResult) -> tuple[OrderResult, list[EdgeOrientation]]:
    """The same for many edges: a better network is taken at once, and only edges near what it changed are asked again."""
    d = search.d
    differences: dict[tuple[int, int], float] = {}
    for _ in range(_MAX_BETTER):
        fixed = fixed_directions(search, result.support)
        edges = [(i, j) for i, j in np.argwhere(result.support[:d]).tolist()]
        asked = [edge for edge in edges if edge not in differences]
        if not asked:
            break
        for i, j in asked:
            if not result.support[i, j]:
                continue
            other = None if fixed[i, j] else search.best_reversed(result, i, j)
            differences[i, j] = np.inf if other is None else max(other.score - result.score, 0.0)
            if other is not None and other.score < result.score - 1e-6:
                changed = {k for k in range(d) if other.parents[k] != result.parents[k]}
                differences = {
                    edge: value for edge, value in differences.items() if not changed.intersection(edge)
                }
                result = other
    compelled = compelled_edges(result.support, fixed_directions(search, result.support))
    free = result.noise_variance == "free" and search.regressions.has_equivalents
    table = []
    for i, j in np.argwhere(result.support[:d]).tolist():
        difference = 0.0 if free and not compelled[i, j] else differences.get((i, j), 0.0)
        table.append(EdgeOrientation(i, j, float(difference)))
    return result, table


def fixed_directions(search: OrderSearch, support: BoolArray) -> BoolArray:
    """(d, d) the edges whose reversal is forbidden."""
    return support[: search.d] & ~search.allowed[: search.d].T


def _ask(search: OrderSearch, result: OrderResult) -> tuple[list[EdgeOrientation], OrderResult | None]:
    fixed = fixed_directions(search, result.support)
    compelled = compelled_edges(result.support, fixed)
    free = result.noise_variance == "free" and search.regressions.has_equivalents
    table, better = [], result
    for i, j in np.argwhere(result.support[: search.d]).tolist():
        difference = np.inf
        if not fixed[i, j]:
            other = search.best_reversed(result, i, j)
            if other is not None:
                difference = max(other.score - result.score, 0.0)
                if other.score < better.score - 1e-6:
                    better = other
            if free and not compelled[i, j]:
                difference = 0.0
        table.append(EdgeOrientation(i, j, float(difference)))
    return table, None if better is result else better


DOUBTFUL = 0.01
"""Below this p-value of Bartlett's test, equal variances are put to the scores. A search that assumes them makes residual
variances as equal as it can, also by wrong edges, so a statistic below BIC's price does not settle it."""
CLEAR_ADVANTAGE = 10.0
"""By how much free variances must score better where Bartlett's statistic is doubtful but below BIC's price: odds of 150
to 1, "very strong" in Kass and Raftery (1995). (Seeds 100 to 139: of 320 networks with exponential or Laplace noise of equal
variance two are then taken for unequal, without it 13; of 234 with Gaussian noise none either way.)"""

Searches = dict[NoiseVariance, tuple[OrderSearch, OrderResult]]


@dataclass(frozen=True)
class NoiseChoice:
    """Equal or free noise variances, and why.

    Attributes
    ----------
    kind
        Which.
    numbers
        What decided: `bartlett` of the equal-variance network and its `price`; if free variances were tried, too, `equal`
        and `free`, both scores, and `ratio`, the largest fitted free variance over the smallest. Empty: as asked.
    """

    kind: NoiseVariance
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def finding(self) -> Finding:
        """Which and why."""
        return Finding("noise-variances", "note", {"kind": self.kind, **self.numbers})


def bartlett(rss: FloatArray, n_parents: Sequence[int], n: float) -> float:
    """Bartlett's statistic of residual sums of squares on so many parents each: large if variances differ.

    With few rows the free-variance search fits noise and its BIC is too good; this statistic knows how many
    degrees of freedom each node has left.
    """
    left = np.array([max(n - 1 - k, 1.0) for k in n_parents])
    total = float(left.sum())
    pooled = float(rss.sum()) / total
    statistic = total * np.log(pooled) - float(left @ np.log(rss / left))
    correction = 1 + (float((1 / left).sum()) - 1 / total) / (3 * max(len(left) - 1, 1))
    return float(statistic / correction)


def variance_difference(network: OrderResult, n: float) -> float:
    """`bartlett` of a network."""
    return bartlett(network.rss, [len(parents) for parents in network.parents], n)


def price_of_free(d: int, n: float) -> float:
    """What BIC charges for free variances: equal ones have d - 1 parameters less."""
    return (d - 1) * float(np.log(n))


def needed_advantage(equal: OrderResult, n: float) -> float:
    """By how much free variances, their price paid, must score better than this network; inf if they need not be tried."""
    d, unequal = len(equal.parents), variance_difference(equal, n)
    if unequal > price_of_free(d, n):
        return 0.0
    return CLEAR_ADVANTAGE if float(chdtrc(max(d - 1, 1), max(unequal, 0.0))) < DOUBTFUL else np.inf


def choose_noise(
    moments: Moments,
    constraints: EdgeConstraints,
    criterion: Criterion,
    asked: Literal["auto", "equal", "free"],
    n_restarts: int,
    rng: np.random.Generator,
    fits: ParentRegressions | None = None,
) -> tuple[Searches, NoiseChoice]:
    """Search as asked, or with equal variances and, if these are in doubt, with free ones; say which and why."""
    # The fits of a node on a set of parents are the same under both noise models.
    d = constraints.d
    known = fits or fits_of(moments, d)

    def searched(kind: NoiseVariance) -> tuple[OrderSearch, OrderResult]:
        search = OrderSearch(moments, constraints, criterion.for_orders, kind, known)
        return search, search.run(n_restarts, rng)

    if asked != "auto":
        found = searched(asked)
        return {asked: found}, NoiseChoice(asked)
    searches: Searches = {"equal": searched("equal")}
    equal = searches["equal"][1]
    price = price_of_free(d, moments.n)
    unequal, advantage = variance_difference(equal, moments.n), needed_advantage(equal, moments.n)
    numbers = {"bartlett": unequal, "price": price}
    if not np.isfinite(advantage):
        return searches, NoiseChoice("equal", numbers)
    searches["free"] = searched("free")
    free = searches["free"][1]
    free_score = free.score + price
    kind: NoiseVariance = "free" if free_score + advantage < equal.score else "equal"
    variances = free.rss / moments.n
    ratio = float(variances.max() / variances.min())
    return searches, NoiseChoice(kind, {**numbers, "equal": equal.score, "free": free_score, "ratio": ratio})


def varsortability(W: BoolArray, variances: FloatArray) -> float:
    """Share of directed paths along which the variance increases (Reisach, Seiler and Weichwald 2021).

    1: the order of the variances is the order of the network, so that methods which assume equal noise
    scales can read it off the units. 0.5: the variances say nothing. NaN without edges.

    Parameters
    ----------
    W
        (d, d) True where there is an edge.
    variances
        (d,) of the variables.
    """
    edges = np.asarray(W, dtype=bool)
    sources, targets = np.nonzero(edges)
    starts = np.flatnonzero(np.r_[True, np.diff(sources) > 0][: len(sources)])
    reach = edges.copy()
    n_paths = increasing = 0.0
    tolerance = 1e-9 * variances.max(initial=0.0)
    for _ in range(len(edges)):
        if not reach.any():
            break
        causes, effects = np.nonzero(reach)
        difference = variances[effects] - variances[causes]
        n_paths += len(causes)
        increasing += float((difference > tolerance).sum()) + 0.5 * float(
            (np.abs(difference) <= tolerance).sum()
        )
        # One step more: where a variable's effects lead to.
        farther = np.logical_or.reduceat(reach[targets], starts, axis=0)
        reach = np.zeros_like(edges)
        reach[sources[starts]] = farther
    return increasing / n_paths if n_paths else float("nan")


def explained_shares(scatter: FloatArray, C: FloatArray) -> FloatArray:
    """Return (d, d), [from, to]: the share of each target's variance that each source explains over all lags.

    The shares of a target add up to its R^2.

    Parameters
    ----------
    scatter
        (q, q) sums of squares and products of ``[x_t, ..., x_{t-p}]`` about their means.
    C
        (q, d) least-squares weights of a network on the same rows.
    """
    d = C.shape[1]
    variance = np.diag(scatter)[:d]
    shares = np.divide(C * scatter[:, :d], variance, out=np.zeros_like(C), where=variance > 0)
    total: FloatArray = shares.reshape(-1, d, d).sum(axis=0)
    return total


N_NETWORKS = 16
"""Resamples; of more variables than `MANY_NODES` none are drawn."""


@dataclass(frozen=True)
class UnitsCheck:
    """Evidence on how far the network rests on the units.

    Attributes
    ----------
    n_changed
        Entries of [W; A] that differ when every variable is first scaled to unit variance; of more than 200 variables those
        that the first moves of 100 to 200 of them change.
    n_open
        Other contemporaneous edges that no scale-free evidence directs.
    varsortability
        Share of causal paths of the network along which the variance increases.
    """

    n_changed: int
    n_open: int
    varsortability: float

    @property
    def finding(self) -> Finding | None:
        """What to tell a person whose units may be arbitrary; None if nothing rests on them."""
        if not self.n_changed + self.n_open:
            return None
        return Finding("rests-on-units", "warning", asdict(self), cure={"noise_variance": "free"})


@dataclass(frozen=True)
class Learned:
    """A learned network.

    Attributes
    ----------
    support
        ((p+1) d, d) its edges.
    order
        Its nodes, causes first.
    noise
        Which noise model and why.
    orientation
        How firmly each contemporaneous edge is directed.
    units
        Evidence on the units; None with free variances, which cannot depend on them.
    shares
        How many networks of resamples have each edge; None before there were any.
    score
        Criterion of the network.
    network
        Before edges were selected at their full price: where questions about neighbouring networks start.
    search
        The search that found it, which answers them.
    """

    support: BoolArray
    order: tuple[int, ...]
    noise: NoiseChoice
    orientation: tuple[EdgeOrientation, ...]
    units: UnitsCheck | None
    score: float
    network: OrderResult
    search: OrderSearch
    shares: Shares | None = None

    @property
    def probability(self) -> FloatArray:
        """((p+1) d, d) of each edge."""
        assert self.shares is not None
        return self.shares.probability


@dataclass(frozen=True)
class OrderLearner:
    """The order search: how to learn (`feddbn.methods.oneshot.OneShotDBN`), and of which groups of columns.

    Attributes
    ----------
    groups
        Columns that come and go together: codes of variables, or lines and curves. None: every column is one by itself.
    """

    noise_variance: Literal["auto", "equal", "free"] = "auto"
    criterion: Criterion = field(default_factory=Criterion)
    n_restarts: int = 2
    groups: Groups | None = None

    def learn(self, gram: Moments, limits: EdgeConstraints, rng: np.random.Generator) -> Learned:
        """Return the network of moments of lagged rows."""
        fits = fits_of(gram, limits.d, self.groups)
        searches, noise = choose_noise(
            gram, limits, self.criterion, self.noise_variance, self.n_restarts, rng, fits
        )
        units = None if fits.is_priced else self._check_units(searches, noise, rng)
        return self._learned(*searches[noise.kind], noise, units)

    def _learned(
        self, search: OrderSearch, best: OrderResult, noise: NoiseChoice, units: UnitsCheck | None
    ) -> Learned:
        network, asked = settle_directions(search, best)
        best = network if search.regressions.is_priced else search.select_edges(network, self.criterion)
        firm = tuple(firmness_of(best.support, asked))
        return Learned(best.support, best.order, noise, firm, units, best.score, network, search)

    def narrowed(self, found: Learned, limits: EdgeConstraints) -> Learned:
        """The network of the same moments under narrower limits, searched from the one found."""
        old, criterion = found.search, self.criterion.for_orders
        search = OrderSearch(old.moments, limits, criterion, found.noise.kind, old.regressions)
        best = search.run_from(search.adopt(found.support & limits.allowed))
        return self._learned(search, best, found.noise, found.units)

    def replicated(
        self,
        found: Learned,
        n: float,
        limits: EdgeConstraints,
        rng: np.random.Generator,
        curves_direct: bool = False,
    ) -> Learned:
        """The same network with the shares of those that n normal rows lead to, distributed as those it was learned from.

        A resample is searched with the noise that was chosen from all rows. A curve directs an edge where asked to.
        """
        rows, d, kind = found.search.moments, limits.d, found.noise.kind
        whole = Moments(n, rows.mean, rows.scatter * (n / rows.n))
        if d > MANY_NODES:
            fixed = compelled_edges(found.support, fixed_directions(found.search, found.support))
            return replace(found, shares=Shares.of_one(found.support, whole, self.criterion.c, fixed))
        networks = []
        for _ in range(N_NETWORKS):
            moments = redrawn(whole, rng)
            fits = fits_of(moments, d, self.groups)
            search = OrderSearch(moments, limits, self.criterion.for_orders, kind, fits)
            best = search.run_shaken(found.network, rng)
            if not fits.is_priced:
                best = search.select_edges(best, self.criterion)
            networks.append((best.support, _settled(search, best, curves_direct)))
        return replace(found, shares=Shares.of(networks))

    def _check_units(
        self, searches: Searches, noise: NoiseChoice, rng: np.random.Generator
    ) -> UnitsCheck | None:
        """Learn once more from variables scaled to unit variance and count the edges that differ."""
        if noise.kind == "free":
            return None
        found, best = searches["equal"]
        moments, d, constraints = found.moments, found.d, found.limits
        sd = safe_roots(np.diag(moments.scatter)[:d] / moments.n)
        scaled, regressions = moments.scaled(np.tile(sd, found.n_lags + 1)), found.regressions.scaled(sd)
        search = OrderSearch(scaled, constraints, self.criterion.for_orders, "equal", regressions)
        # Of many variables only the first moves of some of them away from the network found are looked at.
        other = search.run(0, rng) if d <= MANY_NODES else search.moved_once(best)
        advantage = needed_advantage(other, moments.n)
        if self.noise_variance == "auto" and np.isfinite(advantage):
            search = search.like(noise_variance="free")
            free = search.run_from(best) if d <= MANY_NODES else search.moved_once(best)
            if free.score + price_of_free(d, moments.n) + advantage < other.score:
                other = free
        changed = int((other.support != best.support).sum())
        compelled = compelled_edges(best.support, fixed_directions(found, best.support))
        shared = int((best.support[:d] & other.support[:d] & ~compelled).sum())
        return UnitsCheck(changed, shared, varsortability(best.support[:d], np.diag(moments.scatter)[:d]))


def _settled(search: OrderSearch, found: OrderResult, curves_direct: bool) -> BoolArray:
    """(d, d) the edges within a time step that more than an order directs: equivalence, limits, or a curve."""
    d, fits = search.d, search.regressions
    settled = compelled_edges(found.support, fixed_directions(search, found.support))
    if fits.edges is None or not curves_direct:
        return settled
    for j, parents in enumerate(found.parents):
        for t in parents:
            rows = fits.edges[t]
            if t >= len(found.support) and rows[0] < d:
                settled[list(rows), j] = True
    return settled


def with_shapes(learned: Learned, dispersion: float = 1.0) -> Learned:
    """The same with directions that the shape of the noise, or kinds of variables, decided; links are as probable as before.

    Score differences count as many rows as others: fewer where parts of the rows differ more than chance.
    """
    assert learned.shares is not None
    shares = learned.shares
    for e in learned.orientation:
        if e.by_shape and e.score_difference / dispersion >= STRONG_EVIDENCE:
            shares = shares.directed(e.source, e.target, float(expit(e.score_difference / dispersion / 2)))
    return replace(learned, shares=shares)


def with_directions(learned: Learned, before: Learned, factor: float) -> Learned:
    """The same with directions that the shape of the noise gave an earlier network, their evidence divided by a factor."""
    told = [
        replace(e, score_difference=e.score_difference / factor) for e in before.orientation if e.by_shape
    ]
    pairs = {frozenset((e.source, e.target)) for e in told}
    others = [e for e in learned.orientation if frozenset((e.source, e.target)) not in pairs]
    return replace(learned, orientation=(*others, *told))


def agreed(learned: Learned, limits: EdgeConstraints) -> Learned:
    """The network that agrees with its probabilities: every edge, or link, above one half, and no other.

    A link is written in its likelier direction, else as most networks have it. Required edges stay; of edges that form a
    cycle the least probable stay out.
    """
    shares, d, search = learned.shares, learned.support.shape[1], learned.search
    assert shares is not None
    p = shares.probability
    # What all rows say decides between directions that resamples have equally often.
    key = p[:d] + 1e-3 * shares.edges[:d] + 1e-6 * learned.support[:d]
    support = limits.required | (p > 0.5 + _ROUNDING)
    linked = (shares.links > 0.5 + _ROUNDING) & limits.allowed[:d] & ((key > key.T) | ~limits.allowed[:d].T)
    support[:d] = limits.required[:d] | (linked & ~limits.required[:d].T)
    if has_cycle(support[:d]):
        support[:d] = strongest_acyclic(np.where(support[:d], key, -1.0), limits.required[:d])
    table = []
    for i, j in np.argwhere(support[:d]).tolist():
        odds = 2 * float(np.log(max(p[i, j], 1e-12) / max(p[j, i], 0.5 / shares.n)))
        difference = max(odds, STRONG_EVIDENCE) if shares.told[i, j] else 0.0
        table.append(EdgeOrientation(i, j, difference if limits.allowed[j, i] else np.inf))
    edges, parents = search.regressions.edges, []
    for j in range(d):
        rows = np.flatnonzero(support[:, j]).tolist()
        if edges is not None:
            # Groups of edges that stay, and the straight lines of others.
            kept = [t for t in learned.network.parents[j] if set(edges[t]) <= set(rows)]
            rows = sorted({*kept, *(row for row in rows if not any(row in edges[t] for t in kept))})
        parents.append(tuple(rows))
    order = tuple(causes_first(learned.order, support[:d]))
    network = learned.network
    if search.regressions.is_priced:
        rss = search.rss_of(parents)
        network = OrderResult(
            order, tuple(parents), rss, search.score_of(parents), network.noise_variance, support
        )
    score = search.score_of(parents)
    return replace(
        learned, support=support, order=order, orientation=tuple(table), score=score, network=network
    )


_ROUNDING = 1e-9


def chosen_groups(curved: Learned) -> tuple[tuple[int, ...], ...]:
    """For each node its groups: the line of every edge, and the curves and products that the evidence is for.

    Every edge has its line, so that a weight says how steep it is on average.
    """
    edges = curved.search.regressions.edges
    assert edges is not None
    return tuple(
        tuple(sorted({*parents, *(row for t in parents for row in edges[t])}))
        for parents in curved.network.parents
    )


def straight_score(curved: Learned, straight: Learned) -> float:
    """The score that a network of straight lines has by the evidence of groups: comparable with a curved one's."""
    other = curved.search.like(noise_variance=straight.noise.kind)
    network = [tuple(np.flatnonzero(straight.support[:, j]).tolist()) for j in range(other.d)]
    return other.score_of(network)


def choose_lags(
    moments: Moments,
    constraints: EdgeConstraints,
    criterion: Criterion,
    noise_variance: NoiseVariance,
) -> tuple[int, FloatArray]:
    """The number of lags with the lowest score on the same rows, and the (max_lags + 1,) scores.

    Every number of lags is a submodel of the largest, so one sum at `max_lags` serves them all. A lag more
    has to pay for itself by strong evidence.
    """
    d, max_lags, scores = constraints.d, constraints.n_lags, []
    for p in range(max_lags + 1):
        part = moments.select(np.arange((p + 1) * d))
        scores.append(search_order(part, constraints.up_to(p), criterion, noise_variance).score)
    chosen = 0
    for p in range(1, max_lags + 1):
        if scores[p] < scores[chosen] - STRONG_EVIDENCE:
            chosen = p
    needed = np.flatnonzero(constraints.required.any(axis=1))
    if len(needed):
        chosen = max(chosen, int(needed.max()) // d)
    return chosen, np.array(scores)


def refit(moments: Moments, support: BoolArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Least-squares weights ((p+1) d, d), intercepts (d,) and noise variances (d,) of a network.

    A noise variance divides by the rows left after the node's parents and its intercept.
    """
    q, d = support.shape
    C = np.zeros((q, d))
    variances = np.zeros(d)
    R, scale = correlations(moments.scatter)
    for j in range(d):
        S = np.flatnonzero(support[:, j])
        if len(S):
            C[S, j] = np.linalg.lstsq(R[np.ix_(S, S)], R[S, j], rcond=None)[0] * scale[j] / scale[S]
        residual = moments.scatter[j, j] - float(moments.scatter[j] @ C[:, j])
        variances[j] = max(residual, 0.0) / max(moments.n - 1 - len(S), 1.0)
    intercept = moments.mean[:d] - moments.mean @ C
    return C, intercept, variances


def firmness_of(support: BoolArray, asked: Sequence[EdgeOrientation]) -> list[EdgeOrientation]:
    """One row per contemporaneous edge; edges that were not asked about are not directed."""
    known = {(e.source, e.target): e for e in asked}
    edges = np.argwhere(support[: support.shape[1]]).tolist()
    return [known.get((i, j), EdgeOrientation(i, j, 0.0)) for i, j in edges]


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
            table.append(EdgeOrientation(*ends, float(difference), by_shape=True))
        return Reviewed(tuple(self._parents_in(W, j) for j in range(self.d)), tuple(table))

    def _parents_in(self, W: BoolArray, node: int) -> Parents:
        return tuple(np.flatnonzero(W[:, node]).tolist())

    def _directed(self, turned: Sequence[bool]) -> BoolArray:
        W = self._fixed.copy()
        for (i, j), is_turned in zip(self.edges, turned, strict=True):
            W[(j, i) if is_turned else (i, j)] = True
        return W
