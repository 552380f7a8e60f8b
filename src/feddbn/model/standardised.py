"""Weights that do not depend on units: by how many standard deviations an effect moves for one of its cause."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model.dynamics import innovation_covariance, spectral_radius, stationary_covariance
from feddbn.model.network import Network
from feddbn.model.paths import usual
from feddbn.model.strength import effect_sizes, standardised_effects

__all__ = ["standard_deviations", "standardised_weights"]


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
