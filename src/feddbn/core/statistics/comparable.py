"""Whether one penalty can serve all variables: how far their noise must differ, whatever the network is.

Theory of operation: in every acyclic network the noise of a variable varies at least as much as the variable does given
all others and the lags, and at most as much as it does given the lags alone. So the noise of i varies at least
``low_i / high_j`` times as much as that of j. With equal noise variances this is at most 1 for every pair, up to the
error of the sums, which is allowed for. Where it is clearly more, units or noise differ, and weights that stand for
equally strong effects differ as much.

Where rows are too few for such regressions, or only variances are known, what a variable's own past leaves of it is
compared, and a network may explain more of the difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.scaling import correlations

__all__ = ["NOISE_FACTOR", "VARIANCE_FACTOR", "Spread", "noise_spread", "variance_spread"]

NOISE_FACTOR = 1.5
"""Noise that differs by this factor in standard deviation, whatever the network: at d = 20 scaled variables are then
better than the given units, at d = 8 about as good; with equal noise variances 1.2 was not exceeded in 120 networks."""
VARIANCE_FACTOR = 5.0
"""The same for what a variable's own past leaves, of which the network explains a factor of up to 2.5."""
_STANDARD_ERRORS = 3.0
_LEAST_FREEDOM = 10


@dataclass(frozen=True)
class Spread:
    """The two variables that differ most.

    Attributes
    ----------
    factor
        How many times as large the standard deviation of `large` is as that of `small`, less what chance may add.
    large, small
        Positions of the variables.
    limit
        Above this the variables are better scaled.
    of_noise
        Whether it is a bound on the noise, whatever the network, and not a comparison of variances.
    """

    factor: float
    large: int
    small: int
    limit: float
    of_noise: bool

    @property
    def is_wide(self) -> bool:
        """Whether one penalty cannot serve both."""
        return self.factor > self.limit


def noise_spread(scatter: FloatArray, n: float, d: int) -> Spread | None:
    """How far noise differs at least, from the (q, q) scatter of ``[x_t, ..., x_{t-p}]``.

    None if there are too few rows for the regressions, or variables follow from others.
    """
    R, root = correlations(scatter)
    q = len(R)
    free_low, free_high = n - q, n - 1 - (q - d)
    if free_low < _LEAST_FREEDOM or d < 2:
        return None
    try:
        factor = np.linalg.cholesky(R)
        of_lags = np.linalg.cholesky(R[d:, d:])
    except np.linalg.LinAlgError:
        return None
    inverse = np.linalg.solve(factor, np.eye(q))
    low = 1.0 / (inverse * inverse).sum(axis=0)[:d] * root[:d] ** 2 / free_low
    explained = np.linalg.solve(of_lags, R[d:, :d])
    high = (1.0 - (explained * explained).sum(axis=0)) * root[:d] ** 2 / free_high
    if not (high.min() > 0 and np.isfinite(low).all()):
        return None
    return _spread(low, high, 2 / free_low + 2 / free_high, NOISE_FACTOR, of_noise=True)


def variance_spread(variance: FloatArray, autocorrelation: FloatArray, n: float) -> Spread | None:
    """How far the parts of the variables differ that their own last values leave; None if one is constant."""
    left = variance * (1.0 - autocorrelation * autocorrelation)
    if len(left) < 2 or not left.min() > 0:
        return None
    return _spread(left, left, 4 / max(n - 1, 1.0), VARIANCE_FACTOR, of_noise=False)


def _spread(low: FloatArray, high: FloatArray, chance: float, limit: float, *, of_noise: bool) -> Spread:
    large, small = int(np.argmax(low)), int(np.argmin(high))
    # A standard deviation has half the relative error of its square.
    deviation = np.sqrt(low[large] / high[small]) * np.exp(-_STANDARD_ERRORS * 0.5 * np.sqrt(chance))
    return Spread(float(deviation), large, small, limit, of_noise)
