"""Whether one penalty can serve all variables: how far their noise must differ, whatever the network is.

Theory of operation: in every acyclic network the noise of a variable varies at least as much as the variable does given
all others and the lags, and at most as much as it does given the lags alone. So the noise of i varies at least
``low_i / high_j`` times as much as that of j. With equal noise variances this is at most 1 for every pair, up to the
error of the sums, which is allowed for. Where it is clearly more, units or noise differ, and weights that stand for
equally strong effects differ as much.

That is for one network. The sums of sites with different networks are those of no network, and the bound may be passed
with equal noise: by up to 15 with strong weights and a third of the edges different, by up to 1.25 with weights below .5.

Known weakness: rows that are too few for the regressions tell nothing, and units stay unnoticed. To compare variances
instead would be wrong: with strong weights they differ 150-fold in networks with equal noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.scaling import correlations

__all__ = ["DIFFERENT_NETWORKS_FACTOR", "NOISE_FACTOR", "Spread", "noise_spread"]

NOISE_FACTOR = 1.5
"""Noise that differs by this factor in standard deviation, whatever the network: at d = 20 scaled variables are then
better than the given units, at d = 8 about as good; with equal noise variances 1.2 was not exceeded in 120 networks."""
DIFFERENT_NETWORKS_FACTOR = 20.0
"""The same where sites may have different networks."""
_STANDARD_ERRORS = 3.0
_LEAST_FREEDOM = 10
_RIDGE = 1e-10


@dataclass(frozen=True)
class Spread:
    """The two variables that differ most.

    Attributes
    ----------
    factor
        How many times as large the noise of `large` is at least as that of `small` (standard deviations), less what
        chance may add.
    large, small
        Positions of the variables.
    """

    factor: float
    large: int
    small: int


def noise_spread(scatter: FloatArray, n: float, d: int) -> Spread | None:
    """How far noise differs at least, from the (q, q) scatter of ``[x_t, ..., x_{t-p}]``.

    None if there are too few rows for the regressions, or noise has made the sums those of no rows.
    """
    R, root = correlations(scatter)
    q = len(R)
    free_low, free_high = n - q, n - 1 - (q - d)
    if free_low < _LEAST_FREEDOM or d < 2:
        return None
    # A column that follows from others is left next to nothing, and is never the one with the most noise.
    R = R + _RIDGE * np.eye(q)
    try:
        factor, of_lags = np.linalg.cholesky(R), np.linalg.cholesky(R[d:, d:])
    except np.linalg.LinAlgError:
        return None
    inverse = np.linalg.solve(factor, np.eye(q))
    low = 1.0 / (inverse * inverse).sum(axis=0)[:d] * root[:d] ** 2 / free_low
    explained = np.linalg.solve(of_lags, R[d:, :d])
    high = (np.diag(R)[:d] - (explained * explained).sum(axis=0)) * root[:d] ** 2 / free_high
    if not (high.min() > 0 and np.isfinite(low).all()):
        return None
    large, small = int(np.argmax(low)), int(np.argmin(high))
    # A standard deviation has half the relative error of its square.
    chance = np.exp(-_STANDARD_ERRORS * 0.5 * np.sqrt(2 / free_low + 2 / free_high))
    return Spread(float(np.sqrt(low[large] / high[small]) * chance), large, small)
