"""Are cells far from the others errors of measurement, or large values that act as all values do?

A shock travels: what a variable causes deviates with it, in the same row or the next. A glitch of a sensor does not. So
around far cells of a variable the other cells deviate more than usual if they are shocks, and as usual if they are errors.
Cells that are far themselves are not looked at: sensors may fail together.

Errors come at any time, so a far cell has a far neighbour in time as often as chance has it. Where that is more frequent, by
a fifth of the far cells and by four standard errors, the variable has bursts, and its far cells stay. A value that most far
cells share is a code for "missing"; it may stand for several rows and makes no burst.

With c the size of a cell's deviation in robust standard deviations, at most 3: shocks travel if c is larger around far
cells, by an amount that matters and by three standard errors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray

__all__ = ["FarCells", "far_cells_are_errors", "far_sums", "far_sums_length"]

_MOST = 3.0
_ERRORS = 3.0
_SIZE = 0.2
"""Shocks of six standard deviations whose weights are .3 or more move the cells around them by more, on average."""
_LASTING = 0.2
_LASTING_ERRORS = 4.0


class FarCells(NamedTuple):
    """What far cells are.

    Attributes
    ----------
    errors
        (d,) of which suspects they are errors.
    bursts
        (d,) of which suspects they come in bursts.
    is_sure
        Whether shocks would have shown.
    """

    errors: BoolArray
    bursts: BoolArray
    is_sure: bool


def far_sums_length(d: int) -> int:
    """Return the length of `far_sums`."""
    return 5 * d + 4 * d * d


def far_sums(sizes: FloatArray, far: BoolArray, values: FloatArray) -> FloatArray:
    """What contiguous rows say about their far cells; it adds up.

    Parameters
    ----------
    sizes
        (n, d) deviations in robust standard deviations, NaN where a cell is empty.
    far
        (n, d) which cells are far.
    values
        (n, d) the cells themselves.

    Far cells, and those of them with a far neighbour in time; counts, sums and squares of c of the other cells; then for
    every pair of variables, in the rows in which the first is far and in the rows after these, the sums of c of the
    second and their number.
    """
    near = ~far & ~np.isnan(sizes)
    c = np.where(near, np.minimum(sizes, _MOST), 0.0)
    N, F = near.astype(float), far.astype(float)
    pairs = [F.T @ c, F.T @ N, F[:-1].T @ c[1:], F[:-1].T @ N[1:]]
    return np.concatenate(
        [
            F.sum(axis=0),
            _in_bursts(far, values).sum(axis=0),
            N.sum(axis=0),
            c.sum(axis=0),
            (c * c).sum(axis=0),
            *(pair.ravel() for pair in pairs),
        ]
    )


def _in_bursts(far: BoolArray, values: FloatArray) -> BoolArray:
    """(n, d) which far cells have a far neighbour in time; those that hold a code do not count."""
    lasting = far.copy()
    for j in np.flatnonzero(far.any(axis=0)):
        found, times = np.unique(values[far[:, j], j], return_counts=True)
        if times.max() > max(1.0, times.sum() / 2):
            lasting[:, j] &= values[:, j] != found[times.argmax()]
    both = lasting[:-1] & lasting[1:]
    either = np.zeros(far.shape, dtype=bool)
    either[:-1] |= both
    either[1:] |= both
    return either


def _has_bursts(n_far: FloatArray, n_lasting: FloatArray, n_others: FloatArray) -> BoolArray:
    """(d,) whether more far cells have a far neighbour than chance allows."""
    share = n_far / np.maximum(n_far + n_others, 1.0)
    chance = n_far * (1.0 - (1.0 - share) ** 2)
    # Far neighbours come in pairs, hence the factor 2 of the variance, and two pairs say nothing.
    allowed = chance + np.maximum(_LASTING * n_far, 4.0 + _LASTING_ERRORS * np.sqrt(2.0 * chance))
    return np.asarray(n_lasting > allowed)


def far_cells_are_errors(sums: FloatArray, suspects: BoolArray) -> FarCells:
    """Judge the far cells of the suspects.

    Shocks of a variable that acts on nothing do not travel either, so the suspects without bursts are judged together: all
    of them have errors, or none.
    """
    d = len(suspects)
    n_far, n_lasting, n, total, squares = (np.maximum(part, 0.0) for part in np.split(sums[: 5 * d], 5))
    bursts = suspects & _has_bursts(n_far, n_lasting, n)
    suspects = suspects & ~bursts
    mean = total / np.maximum(n, 1.0)
    variance = np.maximum(squares / np.maximum(n, 1.0) - mean**2, 1e-12)
    now, n_now, after, n_after = sums[5 * d :].reshape(4, d, d)
    # A far cell moves the running median of its own neighbours; those are not looked at.
    other = ~np.eye(d, dtype=bool)
    excess = ((now + after - (n_now + n_after) * mean) * other).sum(axis=1)[suspects].sum()
    count = ((n_now + n_after) * other).sum(axis=1)[suspects].sum()
    spread = ((n_now + n_after) * variance * other).sum(axis=1)[suspects].sum()
    if count == 0:
        return FarCells(np.zeros(d, dtype=bool), bursts, False)
    travels = excess > _SIZE * count and excess > _ERRORS * np.sqrt(spread)
    is_sure = bool(_SIZE * count > _ERRORS * np.sqrt(spread))
    return FarCells(np.zeros(d, dtype=bool) if travels else suspects, bursts, is_sure)
