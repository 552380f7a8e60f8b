"""How large an effect must be so that a method finds it in most samples.

The effect is standardised: what one standard deviation of a cause, beside the other causes, does to its target, in standard
deviations of the target's noise. It is b = r / sqrt(1 - r^2) with r the partial correlation. In samples of n rows and k
controls its Fisher z has a standard deviation of 1 / sqrt(n - k - 3).

A method that charges a price for an edge takes it where n log(1 / (1 - r^2)) is above the price. A method with a threshold
takes it where the estimated weight is above it; a weight has a standard error of about 1 / sqrt(n - k).
"""

from __future__ import annotations

from math import asinh, exp, inf, log, sinh, sqrt

from scipy.special import ndtri

POWER = 0.8


def effect_above_price(n: float, n_controls: int, factor: float = 2.0, power: float = POWER) -> float:
    """Return the smallest effect that is found with this power where an edge costs `factor` log(n); inf if no rows are left.

    Examples
    --------
    >>> round(effect_above_price(1000, 8), 3)
    0.145
    """
    room = n - n_controls - 3
    if room < 1:
        return inf
    # A gain as large as the price: asinh of an effect is Fisher's z of its partial correlation.
    price = factor * log(n) / n
    return sinh(asinh(sqrt(exp(price) - 1.0)) + float(ndtri(power)) / sqrt(room))


def effect_above_threshold(n: float, n_controls: int, threshold: float, power: float = POWER) -> float:
    """Return the smallest effect whose estimate lies above a threshold with this power; inf if no rows are left."""
    room = n - n_controls
    return threshold + float(ndtri(power)) / sqrt(room) if room >= 1 else inf
