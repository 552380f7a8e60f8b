"""How strong curved effects are: their average slopes and sizes, for a source that is normal about its origin."""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.model.conditional_weights import has_one_sign
from feddbn.model.network import Network

__all__ = ["average_slopes", "effect_sizes", "has_sign", "sizes_by_source"]

_Z = np.linspace(-8.0, 8.0, 1601)
_DENSITY = np.exp(-(_Z**2) / 2)
_DENSITY /= _DENSITY.sum()
# Variance of the square of a standard normal.
_SQUARE = 2.0


def average_slopes(dbn: Network) -> FloatArray:
    """(p+1, d, d) average slope of every effect in its own units, W first.

    It is the weight, except for functions of a registered feature map that are not uncorrelated with the value. A product
    has no slope on average.
    """
    slopes = dbn.adjacency_matrices
    for curve in dbn.curves:
        if curve.basis not in ("spline", "quadratic"):
            # Stein: under a standard normal z, E h'(z) = E z h(z).
            values = curve.at(curve.origin + curve.scale * _Z)
            slopes[curve.lag, curve.source, curve.target] += (_DENSITY * _Z) @ values / curve.scale
    return slopes


def effect_sizes(dbn: Network, sd: FloatArray) -> FloatArray:
    """(p+1, d, d) standard deviation of every effect in the units of its target, negative where it falls (`has_sign`).

    A straight effect has ``weight * sd``, with the (d,) standard deviations `sd` of the sources. Functions are taken over a
    normal with their own origin and scale, and the two variables of a product as independent.
    """
    falls = has_sign(dbn) & (average_slopes(dbn) < 0)
    return np.asarray(np.where(falls, -1.0, 1.0) * np.sqrt(_variances(dbn, sd)))


def sizes_by_source(dbn: Network) -> FloatArray:
    """(p+1, d, d) size of every effect over the scale of its source: |weight| of a straight one."""
    scale = np.ones(dbn.d)
    for product in dbn.products:
        scale[[product.first, product.second]] = product.scales
    for curve in dbn.curves:
        scale[curve.source] = curve.scale
    return np.asarray(np.sqrt(_variances(dbn, scale)) / scale[:, None])


def has_sign(dbn: Network) -> BoolArray:
    """(p+1, d, d) whether an effect goes one way: its average slope makes up half of its variance or more.

    What rises and falls, and what depends on another variable, is neither positive nor negative.
    """
    if dbn.conditionals:
        return has_one_sign(dbn.conditionals, dbn.n_lags)
    if not dbn.bends:
        return np.ones(dbn.adjacency_matrices.shape, dtype=bool)
    return np.asarray(np.abs(average_slopes(dbn)) >= np.sqrt(0.5) * sizes_by_source(dbn))


def _variances(dbn: Network, sd: FloatArray) -> FloatArray:
    """(p+1, d, d) variances of the effects of sources with standard deviations `sd`."""
    weights = dbn.adjacency_matrices
    variances = (weights * sd[:, None]) ** 2
    for curve in dbn.curves:
        place = (curve.lag, curve.source, curve.target)
        values = weights[place] * curve.scale * _Z + curve.at(curve.origin + curve.scale * _Z)
        variances[place] = _DENSITY @ (values - _DENSITY @ values) ** 2
    for product in dbn.products:
        is_square = product.first == product.second
        for source in {product.first, product.second}:
            variances[product.lag, source, product.target] += (
                _SQUARE if is_square else 1.0
            ) * product.weight**2
    return np.asarray(variances)
