"""Are cells far from the others errors of measurement, or large values that act as all values do?

A shock travels: what is caused by a variable follows it, next to it or a row later. A glitch of a sensor does not. So with
m the values where far cells are pulled in to the middle, and x the values as they are, a variable's far cells are errors if
the other variables are explained better by its m than by its x.
"""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.statistics.scaling import correlations

__all__ = ["far_cells_are_errors"]

_ENOUGH = 10.0
_RIDGE = 1e-8


def far_cells_are_errors(products: FloatArray, n: float, d: int, n_lags: int) -> BoolArray:
    """(d,) for which variables, from the products of [x_t, ..., x_{t-p}, m_t, ..., m_{t-p}].

    For each source i, every other m_j is explained by all other m and lags, once with m_i and once with x_i in them. The
    difference of the log-likelihoods is added up over j; positive speaks for errors.
    """
    q = (n_lags + 1) * d
    found = np.zeros(d, dtype=bool)
    if n <= q + 2:
        return found
    R, _ = correlations(products)
    R = R + _RIDGE * np.eye(2 * q)
    near = np.arange(q, 2 * q)
    for i in range(d):
        own = np.arange(i, q, d)
        with_far = near.copy()
        with_far[own] = own
        difference = sum(
            _log_rest(R, q + j, np.delete(with_far, j)) - _log_rest(R, q + j, np.delete(near, j))
            for j in range(d)
            if j != i
        )
        # A variable explains itself a row later, too.
        if n_lags:
            past = slice(d, q)
            difference += _log_rest(R, q + i, with_far[past]) - _log_rest(R, q + i, near[past])
        found[i] = n * difference > _ENOUGH
    return found


def _log_rest(R: FloatArray, target: int, columns: np.ndarray) -> float:
    """Log of the share of a target that columns leave unexplained."""
    r = R[columns, target]
    rest = R[target, target] - r @ np.linalg.solve(R[np.ix_(columns, columns)], r)
    return float(np.log(max(rest, 1e-12)))
