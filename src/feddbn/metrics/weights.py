"""Distances between weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from feddbn.errors import ParameterError

__all__ = ["WeightError", "weight_error"]


@dataclass(frozen=True)
class WeightError:
    """Distances between two arrays of weights.

    Attributes
    ----------
    max_abs
        ``max |estimate - truth|``.
    rmse
        ``sqrt(mean (estimate - truth)^2)`` over all entries, zeros included.
    frobenius
        ``sqrt(sum (estimate - truth)^2)``.

    Examples
    --------
    >>> from feddbn.metrics import weight_error
    >>> weight_error([[0, 0.5], [0, 0]], [[0, 0.25], [0, 0]]).max_abs
    0.25
    """

    max_abs: float
    rmse: float
    frobenius: float


def weight_error(truth: ArrayLike, estimate: ArrayLike) -> WeightError:
    """Distances between weights of any one shape; all 0 for arrays without entries (no lags).

    Examples
    --------
    >>> from feddbn.metrics import weight_error
    >>> round(weight_error([[0, 0.5], [0, 0]], [[0, 0.25], [0, 0]]).rmse, 3)
    0.125
    """
    first, second = np.asarray(truth, dtype=np.float64), np.asarray(estimate, dtype=np.float64)
    if first.shape != second.shape:
        raise ParameterError(
            f"truth and estimate must have the same shape, got {first.shape} and {second.shape}."
        )
    if first.size == 0:
        return WeightError(0.0, 0.0, 0.0)
    difference = second - first
    return WeightError(
        max_abs=float(np.abs(difference).max()),
        rmse=float(np.sqrt(np.mean(difference**2))),
        frobenius=float(np.linalg.norm(difference)),
    )
