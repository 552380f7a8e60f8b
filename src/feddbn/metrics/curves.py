"""How far a learned function of a cause is from the true one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError

__all__ = ["curve_error"]

_RANGE = (0.05, 0.95)


def curve_error(
    truth: Callable[[FloatArray], ArrayLike], estimate: Callable[[FloatArray], ArrayLike], values: ArrayLike
) -> float:
    """Root mean square of ``estimate - truth`` over the cause's `values` between their 5 % and 95 % quantiles.

    Both curves are centred first, because constants of single effects cannot be told apart. In units of the target.

    Parameters
    ----------
    truth, estimate
        Functions of values of the cause, such as ``fed.truth.effect("x0", "x1", lag=1)``.
    values
        What was seen of the cause; empty cells (NaN) are left out.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.metrics import curve_error
    >>> values = np.linspace(-1, 1, 50)
    >>> round(curve_error(np.sin, lambda x: x, values), 3)
    0.044
    """
    x = np.asarray(values, dtype=np.float64).ravel()
    x = x[np.isfinite(x)]
    if not len(x):
        raise ParameterError("values must hold at least one finite number, and has none.")
    low, high = np.quantile(x, _RANGE)
    x = x[(x >= low) & (x <= high)]
    difference = np.asarray(estimate(x), dtype=np.float64) - np.asarray(truth(x), dtype=np.float64)
    if difference.shape != x.shape:
        raise ParameterError(
            f"truth and estimate must give one number for each of {len(x)} values, got shape {difference.shape}."
        )
    return float(difference.std())
