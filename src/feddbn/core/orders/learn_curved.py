"""From the moments of a curved design to a network of straight and curved edges: what a server does after that sum.

A curved edge settles its direction: with it turned, noise would not be independent of causes (Buehlmann, Peters and
Ernest 2014). So networks have no equals in general, and each edge is turned once to see what the score says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray, IntArray
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.average import median_graph
from feddbn.core.orders.curved_search import CurvedSearch
from feddbn.core.orders.learn import (
    FEW_ROWS,
    MOST_NODES_TO_AVERAGE,
    Learned,
    LearnOptions,
    firmness_of,
)
from feddbn.core.orders.noise_choice import choose_noise
from feddbn.core.orders.orientation import edge_firmness, settle_directions
from feddbn.core.orders.token_tables import average_tokens
from feddbn.core.orders.tokens import TokenRegressions, Tokens
from feddbn.core.statistics.moments import Moments

__all__ = ["CurvedLearned", "NodeEffects", "learn_curved", "node_effects", "straight_score"]


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


@dataclass(frozen=True)
class NodeEffects:
    """What the tokens of one node come to, in the units of the moments.

    Attributes
    ----------
    columns, coefficients
        Columns of the moments and their expected coefficients.
    covariance
        Of the coefficients.
    noise_variance
        What is left, per degree of freedom.
    """

    columns: IntArray
    coefficients: FloatArray
    covariance: FloatArray
    noise_variance: float


def learn_curved(
    moments: Moments,
    tokens: Tokens,
    constraints: EdgeConstraints,
    options: LearnOptions,
    rng: np.random.Generator,
) -> CurvedLearned:
    """Return the network of moments of a curved design."""
    d, n_lags = tokens.d, tokens.n_lags
    regressions = TokenRegressions(moments.scatter, moments.n, tokens)
    searches, noise = choose_noise(
        moments,
        d,
        n_lags,
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
    search = curved.learned.search
    d = search.d
    other = type(search)(
        search.moments,
        d,
        search.n_lags,
        search.limits,
        search.criterion,
        straight.noise.kind,
        search.regressions,
    )
    network = [tuple(np.flatnonzero(straight.support[:, j]).tolist()) for j in range(d)]
    return other.score_of(network)


def node_effects(
    moments: Moments, regressions: TokenRegressions, node: int, tokens: Sequence[int]
) -> NodeEffects:
    """What a node's tokens come to; curves are drawn in as far as the prior expects small coefficients."""
    columns, beta, K = regressions.coefficients(node, tokens)
    S = moments.scatter
    left = S[node, node] - 2 * beta @ S[columns, node] + beta @ S[np.ix_(columns, columns)] @ beta
    # A shrunk coefficient takes less than one degree of freedom.
    used = float(np.trace(K @ S[np.ix_(columns, columns)])) if len(columns) else 0.0
    s2 = max(float(left), 0.0) / max(moments.n - 1 - used, 1.0)
    return NodeEffects(columns, beta, K * s2, s2)
