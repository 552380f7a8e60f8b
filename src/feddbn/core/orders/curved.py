"""What is read off a network of straight and curved edges: its groups of columns, weights, curves and products.

Columns, evidence and prices of lines and curves are those of `core.orders.groups`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.design import Design
from feddbn.core.designs.features import CURVE, SMOOTH, relative_variances
from feddbn.core.orders.groups import CurvedRegressions, Groups
from feddbn.core.orders.learn import Learned
from feddbn.core.statistics.moments import Moments


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
    is_spline = design.terms[1].basis.name in (CURVE, SMOOTH)
    expected = relative_variances()[:width] if is_spline else np.ones(width)
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
