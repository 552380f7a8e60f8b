"""How strong effects are, whatever the units: weights in standard deviations, average slopes and sizes of curved effects."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.errors import ParameterError
from feddbn.model.conditionals import Conditional, codes_of, has_one_sign
from feddbn.model.dynamics import innovation_covariance, spectral_radius, stationary_covariance
from feddbn.model.network import Network
from feddbn.model.paths import usual, usual_lagged

__all__ = [
    "average_slopes",
    "effect_sizes",
    "has_sign",
    "sizes_by_source",
    "standard_deviations",
    "standardised_effects",
    "standardised_weights",
]

_LOGISTIC = np.pi**2 / 3


def standardised_effects(dbn: Network) -> FloatArray:
    """(p+1, d, d) standard deviation of what a cause adds on the scale of the link over that of all that moves the variable
    there, W first; negative where a single coefficient is.

    What moves it is the spread of its predictor and, by its kind: the variance of noise (continuous, positive),
    ``pi^2/3`` (levels: the variance of a logistic number), ``log(1 + 1/mean + dispersion)`` (counts: the variance of the
    log of a number with their mean and variance). Spreads are those of rows that the network visits by itself; where
    it has no usual level, coefficients are given as they are.
    """
    found = dbn.adjacency_matrices
    try:
        with np.errstate(all="ignore"):
            rows = usual_lagged(dbn)
    except ParameterError:
        return found
    for j, node in enumerate(dbn.conditionals):
        codes = codes_of(dbn.conditionals, rows, j)
        total = (codes @ node.slopes).var(axis=0) + _own_variance(node, codes)
        begin = 0
        for (i, lag), effect in zip(node.parents, node.effects, strict=True):
            added = (codes[:, begin : begin + len(effect)] @ effect).var(axis=0)
            begin += len(effect)
            size = np.sqrt(added.sum() / total.sum()) if total.sum() > 0 else 0.0
            found[lag, i, j] = -size if effect.size == 1 and effect[0, 0] < 0 else size
    return found


def _own_variance(node: Conditional, codes: FloatArray) -> float:
    if node.kind.levels:
        return float(_LOGISTIC)
    if node.kind.name == "count":
        mean = max(float(node.mean(codes).mean()), 1e-12)
        return float(np.log1p(1 / mean + node.dispersion))
    return node.dispersion


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
    for source, (_, unit) in dbn.units.items():
        scale[source] = unit
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


def standard_deviations(dbn: Network) -> FloatArray:
    """(d,) standard deviations that the network itself implies; 1 for a variable that does not vary.

    They are those of the stationary process, with curves of simulated rows. Where there is none (shocks do not die out),
    those of one time step given the past; where W has a cycle without a solution or curves, those of the noise.
    """
    variances = dbn.noise_variances
    if dbn.conditionals:
        return _of_kinds(dbn)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        # Numbers beyond all bounds are no reason to have no edge table.
        warnings.simplefilter("ignore")
        try:
            is_stationary = dbn.bends or spectral_radius(dbn) < 1
            found = np.diag(stationary_covariance(dbn) if is_stationary else innovation_covariance(dbn))
            variances = found if np.all(np.isfinite(found)) else variances
        except (ParameterError, np.linalg.LinAlgError, ValueError):
            pass
    return np.sqrt(np.where(variances > 0, variances, 1.0))


def _of_kinds(dbn: Network) -> FloatArray:
    """Those of simulated rows; 1 for a categorical variable, whose positions have none."""
    try:
        variances = np.diag(usual(dbn).covariance)
    except ParameterError:
        return np.ones(dbn.d)
    plain = np.array([kind.name != "categorical" for kind in dbn.kinds])
    return np.sqrt(np.where(plain & (variances > 0), variances, 1.0))


def standardised_weights(dbn: Network, sd: ArrayLike | None = None) -> FloatArray:
    """(p+1, d, d) ``weight * sd_from / sd_to``, W first; of a curved effect its own standard deviation over ``sd_to``
    (`feddbn.model.strength.effect_sizes`), negative where it falls; with variables of other kinds
    `feddbn.model.strength.standardised_effects`.

    Parameters
    ----------
    dbn
        The network.
    sd
        (d,) standard deviations, for example of the rows it was learned from; those that it implies if None.
    """
    if dbn.conditionals:
        if sd is not None:
            raise ParameterError("sd has no meaning for variables of other kinds; leave it out.")
        return standardised_effects(dbn)
    if sd is None:
        scale = standard_deviations(dbn)
    else:
        scale = np.asarray(sd, dtype=np.float64)
        if scale.shape != (dbn.d,) or not (np.isfinite(scale).all() and (scale > 0).all()):
            raise ParameterError(f"sd must be {dbn.d} positive numbers, one for each variable, got {sd!r}.")
    with np.errstate(over="ignore", under="ignore"):
        if dbn.bends:
            return np.asarray(effect_sizes(dbn, scale) / scale)
        # No weight stays none, also where the ratio of two scales overflows.
        weights = dbn.adjacency_matrices
        return np.multiply(weights, scale[:, None] / scale, out=np.zeros_like(weights), where=weights != 0)
