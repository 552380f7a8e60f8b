"""Are cells far from the others errors of measurement, or large values that act as all values do?

A shock travels: what a variable causes deviates with it, in the same row or the next. A glitch of a sensor does not. So
around far cells of a variable the other cells deviate more than usual if they are shocks, and as usual if they are errors.
Cells that are far themselves are not looked at: sensors may fail together.

With c the size of a cell's deviation in robust standard deviations, at most 3: shocks travel if c is larger around far
cells, by an amount that matters and by three standard errors.
"""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray

__all__ = ["far_cells_are_errors", "far_sums", "far_sums_length"]

_MOST = 3.0
_ERRORS = 3.0
_SIZE = 0.2
"""Shocks of six standard deviations whose weights are .3 or more move the cells around them by more, on average."""


def far_sums_length(d: int) -> int:
    """Return the length of `far_sums`."""
    return 3 * d + 4 * d * d


def far_sums(sizes: FloatArray, far: BoolArray) -> FloatArray:
    """What contiguous rows say about their far cells; it adds up.

    Parameters
    ----------
    sizes
        (n, d) deviations in robust standard deviations, NaN where a cell is empty.
    far
        (n, d) which cells are far.

    Counts, sums and squares of c of the other cells; then for every pair of variables, in the rows in which the first is
    far and in the rows after these, the sums of c of the second and their number.
    """
    near = ~far & ~np.isnan(sizes)
    c = np.where(near, np.minimum(sizes, _MOST), 0.0)
    N, F = near.astype(float), far.astype(float)
    pairs = [F.T @ c, F.T @ N, F[:-1].T @ c[1:], F[:-1].T @ N[1:]]
    return np.concatenate(
        [N.sum(axis=0), c.sum(axis=0), (c * c).sum(axis=0), *(pair.ravel() for pair in pairs)]
    )


def far_cells_are_errors(sums: FloatArray, suspects: BoolArray) -> tuple[BoolArray, bool]:
    """(d,) for which of the suspects far cells are errors, of all of them or of none; and whether shocks would have shown.

    Shocks of a variable that acts on nothing do not travel either, so the suspects are judged together.
    """
    d = len(suspects)
    n, total, squares = (np.maximum(part, 0.0) for part in np.split(sums[: 3 * d], 3))
    mean = total / np.maximum(n, 1.0)
    variance = np.maximum(squares / np.maximum(n, 1.0) - mean**2, 1e-12)
    now, n_now, after, n_after = sums[3 * d :].reshape(4, d, d)
    # A far cell moves the running median of its own neighbours; those are not looked at.
    other = ~np.eye(d, dtype=bool)
    excess = ((now + after - (n_now + n_after) * mean) * other).sum(axis=1)[suspects].sum()
    count = ((n_now + n_after) * other).sum(axis=1)[suspects].sum()
    spread = ((n_now + n_after) * variance * other).sum(axis=1)[suspects].sum()
    if count == 0:
        return np.zeros(d, dtype=bool), False
    travels = excess > _SIZE * count and excess > _ERRORS * np.sqrt(spread)
    is_sure = bool(_SIZE * count > _ERRORS * np.sqrt(spread))
    return (np.zeros(d, dtype=bool) if travels else suspects), is_sure
