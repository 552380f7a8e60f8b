"""From the moments of lagged rows to a network: everything a server does after the one sum.

`learn_network` searches with equal and with free noise variances, decides between them by BIC, averages over
orders where the data are few, and says how firmly each edge is directed and whether the answer rests on the
units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.average import (
    OrderPosterior,
    average_orders,
    average_within_order,
    median_graph,
)
from feddbn.core.orders.criterion import Criterion
from feddbn.core.orders.noise_choice import (
    NoiseChoice,
    Searches,
    choose_noise,
    needed_advantage,
    price_of_free,
)
from feddbn.core.orders.orientation import (
    STRONG_EVIDENCE,
    EdgeOrientation,
    compelled_edges,
    fixed_directions,
    settle_directions,
)
from feddbn.core.orders.screening import MANY_NODES
from feddbn.core.orders.search import NoiseVariance, OrderResult, OrderSearch
from feddbn.core.orders.units import varsortability
from feddbn.core.statistics.moments import Moments
from feddbn.core.statistics.scaling import correlations, safe_roots

__all__ = [
    "LearnOptions",
    "Learned",
    "PathPoint",
    "UnitsCheck",
    "choose_lags",
    "firmness_of",
    "learn_network",
    "refit",
]

FEW_ROWS = 200
"""With free variances, above this many rows the single best network is reported: an average would leave out
edges whose direction alone is open."""
MOST_NODES_TO_AVERAGE = 40
"""Orders of more variables than this are not averaged: sampling them takes longer than the search. Edges are
then averaged within the order found. A fixed price per edge would let in more false ones the more columns there
are to choose from; the average knows how rare edges are."""


@dataclass(frozen=True)
class LearnOptions:
    """How to learn; see `feddbn.methods.oneshot.OneShotDBN`."""

    noise_variance: Literal["auto", "equal", "free"] = "auto"
    criterion: Criterion = field(default_factory=Criterion)
    n_restarts: int = 2
    average: bool | Literal["auto"] = "auto"
    lambdas: tuple[float, ...] | None = None
    """Penalties of a DYNOTEARS path instead of a search over orders; empty: a grid from the data."""


@dataclass(frozen=True)
class UnitsCheck:
    """Evidence on how far the network rests on the units.

    Attributes
    ----------
    n_changed
        Entries of [W; A] that differ when every variable is first scaled to unit variance; of more than 200 variables those
        that the first moves of 100 to 200 of them change.
    n_open
        Other edges within a moment that no scale-free evidence directs.
    varsortability
        Share of causal paths of the network along which the variance increases.
    """

    n_changed: int
    n_open: int
    varsortability: float

    @property
    def sentence(self) -> str:
        """What to tell a person whose units may be arbitrary; empty if nothing rests on them."""
        if not self.n_changed + self.n_open:
            return ""
        return (
            f"this network rests on equal noise variances in the units given: {self.n_changed} entries "
            f"change when the variables are scaled to unit variance, and {self.n_open} other edges have "
            f"a direction only because of the units (varsortability {self.varsortability:.2f}); "
            "use noise_variance='free' if the units are arbitrary."
        )


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
        How firmly each edge within a moment is directed.
    units
        Evidence on the units; None with free variances, which cannot depend on them.
    posterior
        Edge probabilities, over orders or given the order found.
    score
        Criterion of the network.
    network
        Before edges were selected at their full price: where questions about neighbouring networks start.
    search
        The search that found it, which answers them.
    path
        What a DYNOTEARS path found at each penalty, largest first.
    """

    support: BoolArray
    order: tuple[int, ...]
    noise: NoiseChoice
    orientation: tuple[EdgeOrientation, ...]
    units: UnitsCheck | None
    posterior: OrderPosterior
    score: float
    network: OrderResult
    search: OrderSearch
    path: tuple[PathPoint, ...] = ()


@dataclass(frozen=True)
class PathPoint:
    """The network at one penalty: its edges at lag 0 and beyond after the refit, and its score."""

    penalty: float
    n_present: int
    n_lagged: int
    score: float
    converged: bool


def learn_network(
    moments: Moments,
    d: int,
    n_lags: int,
    constraints: EdgeConstraints,
    options: LearnOptions,
    rng: np.random.Generator,
) -> Learned:
    """Return the network of moments of lagged rows."""
    searches, noise = choose_noise(
        moments, d, n_lags, constraints, options.criterion, options.noise_variance, options.n_restarts, rng
    )
    search, best = searches[noise.kind]
    over_orders = options.average is True or (options.average == "auto" and d <= MOST_NODES_TO_AVERAGE)
    posterior: OrderPosterior | None = None
    if over_orders:
        starts = _varied_starts(moments, d, n_lags, constraints, noise.kind, search, rng)
        posterior = average_orders(search.regressions, [*starts, best], constraints, rng)
    few, free = moments.n < FEW_ROWS or noise.kind == "equal", noise.kind == "free"
    if posterior is not None and (few or options.average is True):
        # With free variances a direction may be open by nature; that is no doubt about the link.
        median = median_graph(posterior.probability, constraints.required, keep_links=free)
        network = best = search.adopt(median)
        orientation = _posterior_directions(search, best, posterior)
    else:
        network, asked = settle_directions(search, best)
        if posterior is None:
            posterior = average_within_order(search.regressions, network, constraints)
        if over_orders or options.average is False:
            best = search.select_edges(network, options.criterion)
        else:
            best = search.adopt(median_graph(posterior.probability, constraints.required))
        orientation = firmness_of(best.support, asked)
    return Learned(
        best.support,
        best.order,
        noise,
        tuple(orientation),
        _check_units(moments, d, n_lags, constraints, options, searches, noise, rng),
        posterior,
        best.score,
        network,
        search,
    )


def choose_lags(
    moments: Moments,
    d: int,
    max_lags: int,
    constraints: EdgeConstraints,
    criterion: Criterion,
    noise_variance: NoiseVariance,
) -> tuple[int, FloatArray]:
    """The number of lags with the lowest score on the same rows, and the (max_lags + 1,) scores.

    Every number of lags is a submodel of the largest, so one sum at `max_lags` serves them all. A lag more
    has to pay for itself by strong evidence.
    """
    scores = []
    for p in range(max_lags + 1):
        part = moments.select(np.arange((p + 1) * d))
        limits = EdgeConstraints(constraints.allowed[: (p + 1) * d], constraints.required[: (p + 1) * d])
        search = OrderSearch(part, d, p, limits, criterion.for_orders, noise_variance)
        found = search.run(0, np.random.default_rng(0))
        scores.append(search.select_edges(found, criterion).score)
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
    """One row per edge within a moment; edges that were not asked about are not directed."""
    known = {(e.source, e.target): e for e in asked}
    edges = np.argwhere(support[: support.shape[1]]).tolist()
    return [known.get((i, j), EdgeOrientation(i, j, 0.0, False)) for i, j in edges]


def _varied_starts(
    moments: Moments,
    d: int,
    n_lags: int,
    constraints: EdgeConstraints,
    kind: NoiseVariance,
    search: OrderSearch,
    rng: np.random.Generator,
) -> list[OrderResult]:
    """Local optima of a lenient criterion, best first; they nominate the columns of the average's tables."""
    lenient = OrderSearch(moments, d, n_lags, constraints, Criterion(c=1.0), kind, search.regressions)
    found = [lenient.run(0, rng)]
    for _ in range(3):
        found.append(lenient.run_shaken(found[0], rng))
    return sorted(found, key=lambda result: result.score)


def _posterior_directions(
    search: OrderSearch, best: OrderResult, posterior: OrderPosterior
) -> list[EdgeOrientation]:
    """Twice the log posterior odds of each edge against its reversal."""
    d = search.d
    fixed = fixed_directions(search, best.support)
    compelled = compelled_edges(best.support, fixed)
    free = best.noise_variance == "free"
    table = []
    for i, j in np.argwhere(best.support[:d]):
        odds = posterior.probability[i, j] / max(posterior.probability[j, i], 1e-12)
        difference = 0.0 if free and not compelled[i, j] else max(2 * float(np.log(odds)), 0.0)
        difference = np.inf if fixed[i, j] else difference
        table.append(EdgeOrientation(int(i), int(j), difference, bool(difference >= STRONG_EVIDENCE)))
    return table


def _check_units(
    moments: Moments,
    d: int,
    n_lags: int,
    constraints: EdgeConstraints,
    options: LearnOptions,
    searches: Searches,
    noise: NoiseChoice,
    rng: np.random.Generator,
) -> UnitsCheck | None:
    """Learn once more from variables scaled to unit variance and count the edges that differ."""
    if noise.kind == "free":
        return None
    best = searches["equal"][1]
    sd = safe_roots(np.diag(moments.scatter)[:d] / moments.n)
    scaled = moments.scaled(np.tile(sd, n_lags + 1))
    prices, regressions = options.criterion.for_orders, searches["equal"][0].regressions
    search = OrderSearch(scaled, d, n_lags, constraints, prices, "equal", regressions.scaled(sd))
    # Of many variables only the first moves of some of them away from the network found are looked at.
    other = search.run(0, rng) if d <= MANY_NODES else search.moved_once(best)
    advantage = needed_advantage(other, moments.n)
    if options.noise_variance == "auto" and np.isfinite(advantage):
        search = OrderSearch(scaled, d, n_lags, constraints, prices, "free", regressions.scaled(sd))
        free = search.run_from(best) if d <= MANY_NODES else search.moved_once(best)
        if free.score + price_of_free(d, moments.n) + advantage < other.score:
            other = free
    changed = int((other.support != best.support).sum())
    shared = (
        best.support[:d]
        & other.support[:d]
        & ~compelled_edges(best.support, best.support[:d] & ~constraints.allowed[:d].T)
    )
    return UnitsCheck(
        changed, int(shared.sum()), varsortability(best.support[:d], np.diag(moments.scatter)[:d])
    )
