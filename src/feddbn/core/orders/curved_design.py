"""The tokens of a curved design, and its network in the units of the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.curve_basis import CURVE, SMOOTH, relative_variances
from feddbn.core.designs.design import Design
from feddbn.core.orders.learn_curved import node_effects
from feddbn.core.orders.tokens import TokenRegressions, Tokens
from feddbn.core.statistics.moments import Moments

__all__ = ["CurvePart", "CurvedNetwork", "ProductPart", "curved_network", "in_data_units", "tokens_of"]


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

    `shares` (d, d), [from, to], is how much of each target's variance each source explains (`core.orders.strength`); what
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
    regressions = TokenRegressions(moments.scatter, moments.n, tokens_of(design))
    for j in range(d):
        found = node_effects(moments, regressions, j, tokens[j])
        place = {int(column): k for k, column in enumerate(found.columns)}
        intercept[j] = moments.mean[j] - float(moments.mean[found.columns] @ found.coefficients)
        variances[j] = found.noise_variance
        for t in tokens[j]:
            own = [place[column] for column in regressions.tokens.columns[t]]
            size = found.coefficients[own]
            edges = regressions.tokens.edges[t]
            explained = float(size @ moments.scatter[found.columns[own], j]) / max(
                moments.scatter[j, j], 1e-300
            )
            for row in edges:
                shares[row % d, j] += explained / len(edges)
            if t < q:
                weights[t, j] = size[0]
            elif t < 2 * q:
                both = [place[t - q], *own]
                curves.append(CurvePart(t % d, j, (t - q) // d, size, found.covariance[np.ix_(both, both)]))
            else:
                first, second, lag = design.products[t - 2 * q]
                products.append(ProductPart(first, second, j, lag, float(size[0])))
    return CurvedNetwork(weights, tuple(curves), tuple(products), intercept, variances, shares)
