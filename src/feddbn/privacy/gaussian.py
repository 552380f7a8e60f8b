"""The Gaussian mechanism, exactly: how much noise gives how much privacy.

Adding N(0, sigma^2) to a sum whose L2 sensitivity is s gives (epsilon, delta)-differential privacy if and
only if

    delta >= Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu),      mu = s / sigma

(Balle & Wang 2018, Theorem 8). T such releases together are one release with mu sqrt(T) (Dong, Roth & Su
2022, Corollary 3.3), so the same formula calibrates a run of rounds. A *noise multiplier* is sigma / s = 1 /
mu.
"""

from __future__ import annotations

import math

from feddbn.errors import ParameterError

__all__ = ["gaussian_delta", "gaussian_epsilon", "noise_multiplier"]


def gaussian_delta(epsilon: float, multiplier: float, n_releases: int = 1) -> float:
    """Return the smallest delta for which the releases are (epsilon, delta)-differentially private."""
    # Imported here, and below: every site's process imports this module, few of them need it.
    from scipy.special import log_ndtr

    mu = math.sqrt(n_releases) / multiplier
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    # The second term is at most the first, because a privacy loss beyond epsilon is likelier under the first.
    return math.exp(first) * -math.expm1(min(second - first, 0.0))


def gaussian_epsilon(delta: float, multiplier: float, n_releases: int = 1) -> float:
    """Return the smallest epsilon >= 0 for which the releases are (epsilon, delta)-differentially private."""
    _check_delta(delta)
    if gaussian_delta(0.0, multiplier, n_releases) <= delta:
        return 0.0
    upper = 1.0
    while gaussian_delta(upper, multiplier, n_releases) > delta:
        upper *= 2
    from scipy.optimize import brentq

    return float(brentq(lambda e: gaussian_delta(e, multiplier, n_releases) - delta, 0.0, upper, xtol=1e-12))


def noise_multiplier(epsilon: float, delta: float, n_releases: int = 1) -> float:
    """Return the smallest sigma / sensitivity that makes `n_releases` releases (epsilon, delta)-private
    together.
    """
    _check_delta(delta)
    if not 0 < epsilon < math.inf:
        raise ParameterError(f"epsilon must be positive and finite, got {epsilon}.")
    if n_releases < 1:
        raise ParameterError(f"n_releases must be at least 1, got {n_releases}.")
    low, high = 0.0, 1.0
    while gaussian_delta(epsilon, high, n_releases) > delta:
        high *= 2
    # The upper end of the bracket is returned, so that rounding never costs privacy.
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian_delta(epsilon, middle, n_releases) <= delta else (middle, high)
    return high


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ParameterError(f"delta must lie strictly between 0 and 1, got {delta}.")
