"""Types of the arrays that everything here computes with, and what is asked of any of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.intp]
_CACHED_VALUES = 15_000
"""Arrays of this size stay in cache, and are too small for an allocator to fetch each from the system anew (128 kB)."""
_LONG = 256
_FEWEST_ROWS = 64


def rows_in_cache(width: int) -> int:
    """How many rows of so many numbers to work on at once."""
    return max(_FEWEST_ROWS, _CACHED_VALUES // max(width, 1))


def by_row(
    operation: Callable[..., Any], rows: FloatArray, row: FloatArray, out: FloatArray | None = None
) -> FloatArray:
    """(n, k) ``operation(rows, row)`` with one row for all; short rows are handled as few long ones, twice as fast."""
    n, k = rows.shape
    found = np.empty((n, k)) if out is None else out
    fold = max(1, _LONG // max(k, 1))
    whole = n - n % fold
    if not (whole and rows.flags.c_contiguous and found.flags.c_contiguous):
        return np.asarray(operation(rows, row, out=found))
    long = np.broadcast_to(row, (fold, k)).ravel()
    operation(rows[:whole].reshape(-1, fold * k), long, out=found[:whole].reshape(-1, fold * k))
    operation(rows[whole:], row, out=found[whole:])
    return found


def weighted(rows: FloatArray, weights: FloatArray | None) -> FloatArray:
    """(n, k) rows times their weights; as they are without any."""
    return rows if weights is None else rows * weights[:, None]


def root_weighted(rows: FloatArray, weights: FloatArray | None) -> FloatArray:
    """(n, k) rows whose squares and products are weighted, for what is no sum over single rows; about as large as before."""
    return weighted(rows, None if weights is None else np.sqrt(weights / weights.mean()))


def total_weight(n: int, weights: FloatArray | None) -> float:
    """What n rows count together."""
    return float(n) if weights is None else float(weights.sum())


def may_lack_cells(values: FloatArray) -> bool:
    """False proves that no cell is NaN: one total tells, without a mask as large as the values."""
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(np.isnan(values.sum()))
