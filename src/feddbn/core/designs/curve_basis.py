"""Functions that an effect may have beside its straight line: bounded, well conditioned, the smoothest first.

    h_k(z), k = 1..6:  natural cubic splines on fixed knots in public standard deviations, constant beyond the outer
                       knots; under a standard normal z they have mean 0, are uncorrelated with z and with each
                       other, have variance 1, and come in the order of their roughness, the integral of h''^2

An effect is ``weight x + sum_k b_k h_k((x - origin) / scale)``: beyond the outer knots a straight line. Functions that go on
growing there would let heavy tails decide: with them, linear networks with t noise of 3 degrees got 4 to 8 wrong edges of
18, with these none. The knots are the same everywhere and always: knots that somebody may choose could be put between two
rows.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.linalg import eigh

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.features import FeatureMap, natural_spline, register_feature_map

__all__ = [
    "BEND",
    "CURVE",
    "CURVE_KNOTS",
    "N_CURVES",
    "N_SMOOTH",
    "SMOOTH",
    "curve_features",
    "relative_variances",
    "square_features",
]

CURVE_KNOTS = (-2.4, -1.6, -0.95, -0.3, 0.3, 0.95, 1.6, 2.4)
"""Knots in public standard deviations: denser where values are."""
N_CURVES = len(CURVE_KNOTS) - 2
N_SMOOTH = 3
"""As many of them, the smoothest, are asked for under noise: each column more makes the noise on all others larger."""
SQUARE_REACH = 3.0
"""Beyond this many standard deviations a square stays what it is there."""


def curve_features(values: FloatArray) -> FloatArray:
    """(..., 6) the functions at standardised values (...)."""
    line, mix, _ = _recipe()
    inside = np.clip(values, CURVE_KNOTS[0], CURVE_KNOTS[-1])
    rough = natural_spline(inside, np.array(CURVE_KNOTS))[..., 1:]
    return np.asarray((rough - line[0] - inside[..., None] * line[1]) @ mix)


def square_features(values: FloatArray) -> FloatArray:
    """(..., 1) ``(z^2 - 1) / sqrt(2)``, constant beyond three standard deviations."""
    inside = np.clip(values, -SQUARE_REACH, SQUARE_REACH)
    return np.asarray((inside**2 - 1.0) / np.sqrt(2.0))[..., None]


def relative_variances() -> FloatArray:
    """(6,) how large coefficients are expected to be, as variances: rougher functions are rarer."""
    roughness = _recipe()[2]
    return np.asarray(np.sqrt(roughness[0] / roughness))


@lru_cache(maxsize=1)
def _recipe() -> tuple[FloatArray, FloatArray, FloatArray]:
    """The line to take off each spline, how to mix what is left, and the roughness of the mixtures."""
    knots = np.array(CURVE_KNOTS)
    z, weight = _normal_nodes(knots)
    inside = np.clip(z, knots[0], knots[-1])
    splines = natural_spline(inside, knots)[:, 1:]
    # Under a standard normal what is left has mean 0 and does not go along with z.
    slope = (weight * z) @ splines / float((weight * z) @ inside)
    line = np.stack([weight @ splines, slope])
    rest = splines - line[0] - inside[:, None] * slope
    overlap = rest.T @ (rest * weight[:, None])
    roughness, mix = eigh(_bending(knots), overlap)
    # An eigenvector's sign is arbitrary: every function ends above zero.
    ends = (natural_spline(knots[-1:], knots)[0, 1:] - line[0] - knots[-1] * line[1]) @ mix
    return line, np.asarray(mix * np.where(ends < 0, -1.0, 1.0)), np.asarray(roughness)


def _normal_nodes(knots: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Points and weights that integrate, over a standard normal, what is smooth between knots."""
    cuts = np.concatenate([[-10.0], knots, [10.0]])
    x, w = np.polynomial.legendre.leggauss(40)
    half, middle = np.diff(cuts) / 2, (cuts[1:] + cuts[:-1]) / 2
    z = (middle[:, None] + half[:, None] * x).ravel()
    weight = (half[:, None] * w).ravel() * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return z, weight


def _bending(knots: FloatArray) -> FloatArray:
    """Integrals of products of second derivatives, which are piecewise linear and 0 beyond the outer knots."""
    last, previous, n = knots[-1], knots[-2], len(knots)
    second = np.empty((n, n - 2))
    for k, knot in enumerate(knots[:-2]):
        second[:, k] = 6 * (
            np.maximum(knots - knot, 0.0)
            - np.maximum(knots - previous, 0.0) * (last - knot) / (last - previous)
        )
    second /= (last - knots[0]) ** 2
    second[-1] = 0.0
    # Simpson's rule is exact for products of two straight lines.
    step = np.diff(knots)[:, None, None]
    left, right = second[:-1], second[1:]
    middle = (left + right) / 2
    products = [one[:, :, None] * one[:, None, :] for one in (left, middle, right)]
    return np.asarray((step / 6 * (products[0] + 4 * products[1] + products[2])).sum(axis=0))


CURVE, SMOOTH, BEND = "curve", "smooth-curve", "bend"
"""Names of maps in designs: what a spline, one without its rough functions, and a square have beside the value itself."""
register_feature_map(
    FeatureMap(CURVE, lambda values, _: curve_features(values), lambda k: N_CURVES, False, False)
)
register_feature_map(
    FeatureMap(
        SMOOTH, lambda values, _: curve_features(values)[..., :N_SMOOTH], lambda k: N_SMOOTH, False, False
    )
)
register_feature_map(FeatureMap(BEND, lambda values, _: square_features(values), lambda k: 1, False, False))
