"""Known inputs: variables that only act on others, in the moments of lagged rows.

An input has no noise that a model would explain: what is done to a system may be a step, a pulse, or any other signal. So
likelihoods are those of the other variables, the outputs, given the inputs of the same row and all lags; columns of inputs
stand among the lagged ones.

    output_columns   scatter with the outputs first, inputs and lags after
    noise_level      mean noise variance of the outputs, whatever their network is
    neutral_inputs   moments in which every input varies as much as the outputs' noise does, so that a sum of residual
                     variances over all variables does not read an order off the inputs
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.levels import log_det_of_residuals
from feddbn.core.statistics.moments import Moments

__all__ = ["neutral_inputs", "noise_level", "output_columns", "outputs_of"]


def outputs_of(d: int, inputs: Sequence[int]) -> list[int]:
    """Positions of the variables that are no inputs."""
    return [j for j in range(d) if j not in inputs]


def output_columns(scatter: FloatArray, d: int, inputs: Sequence[int]) -> tuple[FloatArray, int]:
    """The (q, q) scatter with the columns of outputs first, then inputs of the same row, then lags; number of outputs."""
    if not inputs:
        return scatter, d
    first = outputs_of(d, inputs)
    order = [*first, *inputs, *range(d, len(scatter))]
    return scatter[np.ix_(order, order)], len(first)


def noise_level(moments: Moments, d: int, inputs: Sequence[int]) -> float:
    """Geometric mean of the outputs' noise variances.

    The determinant of their covariance given inputs and lags is the product of their noise variances in every acyclic
    network, so no order is needed.
    """
    scatter, m = output_columns(moments.scatter, d, inputs)
    free = max(moments.n - 1 - (len(scatter) - m), 1.0)
    return float(np.exp(log_det_of_residuals(scatter, m) / m)) / free


def neutral_inputs(moments: Moments, d: int, inputs: Sequence[int]) -> tuple[Moments, float]:
    """Moments in which every input varies as much as the outputs' noise; the logarithm of that variance (0 without inputs).

    What an input adds to a score is the same for every network then, and about what one more output would.
    """
    if not inputs:
        return moments, 0.0
    level = noise_level(moments, d, inputs)
    divisors = np.ones(d)
    places = list(inputs)
    divisors[places] = np.sqrt(np.diag(moments.scatter)[places] / moments.n / level)
    return moments.scaled(np.tile(divisors, moments.q // d)), float(np.log(level))
