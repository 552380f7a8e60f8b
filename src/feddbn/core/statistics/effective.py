"""On how many rows columns rest, each with what it has beyond all others.

A combination of columns that is nearly zero but in a few rows shows these rows through ordinary sums of products: two
columns that differ once, a column of zeros with one 1, a formula with one exception. Ratios of two such sums cancel noise
and weights. The part of a column that the others do not explain is such a combination, and so is the direction in which one
row weighs most. Of the first the effective number of rows is told (Kish: ``(sum r^2)^2 / sum r^4``, which is k if r is equal
in k rows and 0 elsewhere), of the second the row's share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray, IntArray

DEPENDENT = 1e-10
"""A column of which less than this share is beyond the columns before it depends on them exactly, but for rounding. It tells
nothing that they do not tell, so no single row either, and it is left out. Which one of several goes does not matter: the
columns that stay span the same combinations.
"""


@dataclass(frozen=True)
class OwnParts:
    """What columns have beyond all others.

    Attributes
    ----------
    kept
        (k,) columns that depend on no others; the first are the columns, the last is a 1.
    rows
        (k,) effective number of rows of their own parts.
    n
        (k,) rows in which a column has a cell.
    leverage
        The largest share of one row in the square of any combination of columns, from 0, where all rows have the same, to 1.
    heaviest
        (k,) the share that this row has in each own part.
    """

    kept: IntArray
    rows: FloatArray
    n: IntArray
    leverage: float
    heaviest: FloatArray


def own_parts(read: Callable[[], Iterator[FloatArray]], are_there: bool) -> OwnParts | None:
    """Return the own parts of columns (n, q) and of a 1, which are read in pieces, twice; None without rows.

    Where a cell is empty (NaN) a row adds 0. With `are_there` sums over the rows that have a cell are told, too, so that
    columns of 1 where it has one, else 0, are columns like others.
    """
    R: FloatArray | None = None
    shift = np.zeros(0)
    for piece in read():
        if R is None and len(piece):
            # What is far from 0 loses digits; any shift will do beside a 1, and a median has no far cell.
            there = ~np.isnan(piece)
            shift = np.array(
                [np.median(x[t]) if t.any() else 0.0 for x, t in zip(piece.T, there.T, strict=True)]
            )
        if len(piece):
            columns = _columns(piece, shift, are_there)
            R = np.asarray(np.linalg.qr(columns if R is None else np.concatenate([R, columns]), mode="r"))
    if R is None:
        return None
    size = np.sqrt((R**2).sum(axis=0))
    kept = _independent(R / np.where(size > 0, size, 1.0))
    size = size[kept]
    X = np.linalg.inv(np.linalg.qr(R[:, kept] / size, mode="r"))
    W = X.T / np.sqrt((X**2).sum(axis=1))
    square, fourth = np.zeros((2, len(kept)))
    leverage, heaviest = 0.0, np.zeros(len(kept))
    n: list[Any] = [0, 0]
    for piece in read():
        if not len(piece):
            continue
        n = [n[0] + len(piece), n[1] + (~np.isnan(piece)).sum(axis=0)]
        Q = _columns(piece, shift, are_there)[:, kept] / size @ X
        own, weight = (Q @ W) ** 2, (Q**2).sum(axis=1)
        square, fourth = square + own.sum(axis=0), fourth + (own**2).sum(axis=0)
        if weight.max() > leverage:
            leverage, heaviest = float(weight.max()), own[weight.argmax()]
    share, here = len(kept) / n[0], np.concatenate([[n[0]], *([n[1]] * (1 + are_there))])[kept]
    return OwnParts(kept, square**2 / fourth, here, (leverage - share) / max(1.0 - share, 1e-9), heaviest)


def _columns(piece: FloatArray, shift: FloatArray, are_there: bool) -> FloatArray:
    empty: BoolArray = np.isnan(piece)
    values = np.where(empty, 0.0, piece - shift)
    there = [(~empty).astype(np.float64)] if are_there else []
    return np.concatenate([np.ones((len(piece), 1)), *there, values], axis=1)


def _independent(R: FloatArray) -> IntArray:
    """Which columns, of size one each, have a part beyond those before them."""
    found: list[int] = []
    Q = np.zeros((len(R), min(R.shape)))
    for j, column in enumerate(R.T):
        base = Q[:, : len(found)]
        # Twice is enough.
        rest = column - base @ (base.T @ column)
        rest -= base @ (base.T @ rest)
        size = float(np.sqrt(rest @ rest))
        if size > DEPENDENT and len(found) < Q.shape[1]:
            Q[:, len(found)] = rest / size
            found.append(j)
    return np.array(found)
