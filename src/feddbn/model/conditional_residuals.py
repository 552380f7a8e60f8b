"""How well distributions of other kinds fit rows: residuals that are standard normal if they hold, and log densities.

A residual of a variable with gaps between its values is drawn: a uniform number between the probability of less and the
probability of the value or less, as a normal quantile (Dunn and Smyth 1996).
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from feddbn.core.arrays import FloatArray
from feddbn.model.conditional_steps import ConditionalSteps
from feddbn.model.network import Network

__all__ = ["log_densities", "quantile_residuals"]

_TINY = 2.0**-53


def quantile_residuals(dbn: Network, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
    """(n, d) residuals of lagged rows (n, (p+1) d): standard normal if the distributions hold."""
    found = np.empty((len(rows), dbn.d))
    for j, (kind, law) in enumerate(zip(dbn.kinds, ConditionalSteps(dbn).laws(rows), strict=True)):
        x = rows[:, j]
        if kind.name in ("continuous", "positive"):
            code, sd = kind.encode(x)[:, 0], np.sqrt(dbn.noise_variances[j])
            node = dbn.conditionals[j]
            centre = node.intercept[0] + ConditionalSteps(dbn).codes(rows, j) @ node.slopes[:, 0]
            with np.errstate(divide="ignore", invalid="ignore"):
                found[:, j] = (code - centre) / sd
            continue
        low, high = law.below(x), law.upto(x)
        u = low + rng.random(len(x)) * (high - low)
        found[:, j] = ndtri(np.clip(u, _TINY, 1 - _TINY))
    return found


def log_densities(dbn: Network, rows: FloatArray) -> FloatArray:
    """(n, d) log density of every variable in lagged rows, given its causes; their sum over d is that of the row."""
    laws = ConditionalSteps(dbn).laws(rows)
    return np.stack([law.log_density(rows[:, j]) for j, law in enumerate(laws)], axis=1)
