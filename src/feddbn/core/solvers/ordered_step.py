"""Convex personal steps: every site in its own order, every column a small lasso.

    min_C  1/2 tr(C'H_k C) - tr(B_k'C) + sum(L_k o |C|)   within `allowed`,  H_k positive definite

From round to round most columns keep their support, and H_k does not change within a stage: `KnownInverses` keeps the
inverse of each column's equations, or, if these are many, their Cholesky factor.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg.lapack import dpotrs

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.solvers.sign_search import LONG, columns_by_signs, equations, factor_of, solve_active

__all__ = ["KnownInverses", "Solve", "ordered_columns"]

Solve = Callable[[FloatArray, BoolArray, FloatArray], FloatArray]
"""From H (K, q, q), active rows and right sides (K, d, q) of each column to the solutions, zero where not active."""

# Doubles of inverses, and of factors, worth keeping; beyond, equations are solved anew in every round.
_ROOM = 1 << 26


def _solve_anew(H: FloatArray, active: BoolArray, right: FloatArray) -> FloatArray:
    n, d, q = active.shape
    site = np.repeat(np.arange(n), d)
    return solve_active(H, site, active.reshape(-1, q), right.reshape(-1, q)).reshape(right.shape)


class KnownInverses:
    """Inverses of the equations of some sites' columns, kept while a column's support and its site's H stay."""

    def __init__(self, n_sites: int, q: int, d: int) -> None:
        self._longest = -1
        self._H = np.zeros((n_sites, q, q))
        self._active = np.zeros((n_sites, d, q), dtype=bool)
        self._is_valid = np.zeros((n_sites, d), dtype=bool)
        self._factors: dict[tuple[int, int], tuple[IntArray, FloatArray]] = {}
        self._n_kept = 0

    def fits(self, n_sites: int, q: int, d: int) -> bool:
        """Whether there is room for so many sites of this size."""
        return len(self._active) >= n_sites and self._active.shape[1:] == (d, q)

    def solve(self, at: IntArray, H: FloatArray, active: BoolArray, right: FloatArray) -> FloatArray:
        """Return the solutions for the sites of these numbers; see `Solve`."""
        lengths = active.sum(axis=2)
        is_long = lengths >= LONG
        longest = int(lengths[~is_long].max(initial=0))
        if max(longest, self._longest) ** 2 * self._is_valid.size > _ROOM:
            return _solve_anew(H, active, right)
        where = slice(at[0], at[-1] + 1) if np.array_equal(at, np.arange(at[0], at[0] + len(at))) else at
        changed = at[(self._H[where] != H).any(axis=(1, 2))]
        if len(changed):
            self._is_valid[changed] = False
            self._H[where] = H
            self._forget(changed)
        if not is_long.any():
            return self._of_short(at, where, H, active, right, longest)
        short = active & ~is_long[:, :, None]
        solution = self._of_short(at, where, H, short, right, longest)
        for k, j in zip(*np.nonzero(is_long), strict=True):
            rows = active[k, j].nonzero()[0]
            factor = self._factor(int(at[k]), int(j), H[k], rows)
            own = right[k, j, rows]
            solution[k, j, rows] = (
                np.linalg.solve(H[k][rows[:, None], rows], own) if factor is None else dpotrs(factor, own)[0]
            )
        return solution

    def _factor(self, number: int, j: int, H: FloatArray, rows: IntArray) -> FloatArray | None:
        """Return the Cholesky factor of one long column's equations; None where they are not definite to rounding."""
        known = self._factors.get((number, j))
        if known is not None:
            if np.array_equal(known[0], rows):
                return known[1]
            self._drop(number, j)
        factor = factor_of(H, rows)
        if factor is not None and self._n_kept + factor.size <= _ROOM:
            self._factors[number, j] = rows, factor
            self._n_kept += factor.size
        return factor

    def _drop(self, number: int, j: int) -> None:
        self._n_kept -= self._factors.pop((number, j))[1].size

    def _forget(self, numbers: IntArray) -> None:
        gone = set(numbers.tolist())
        for number, j in [key for key in self._factors if key[0] in gone]:
            self._drop(number, j)

    def _of_short(
        self,
        at: IntArray,
        where: slice | IntArray,
        H: FloatArray,
        active: BoolArray,
        right: FloatArray,
        longest: int,
    ) -> FloatArray:
        self._make_room(longest)
        is_old = self._is_valid[where] & (self._active[where] == active).all(axis=2)
        k, j = np.nonzero(~is_old)
        if len(k):
            rows, real, systems = equations(H, k, active[k, j], self._longest)
            inverse = np.linalg.inv(systems) * (real[:, :, None] & real[:, None, :])
            self._rows[at[k], j], self._inverse[at[k], j] = rows, inverse
            self._active[at[k], j], self._is_valid[at[k], j] = active[k, j], True
        rows = self._rows[where]
        found = self._inverse[where] @ np.take_along_axis(right, rows, axis=2)[..., None]
        solution = np.zeros(right.shape)
        np.put_along_axis(solution, rows, found[..., 0], axis=2)
        return solution

    def _make_room(self, longest: int) -> None:
        if longest > self._longest:
            self._longest = longest
            self._rows = np.zeros((*self._is_valid.shape, longest), dtype=np.intp)
            self._inverse = np.zeros((*self._is_valid.shape, longest, longest))
            self._is_valid[:] = False


def ordered_columns(
    H: FloatArray,
    B: FloatArray,
    penalty: FloatArray,
    allowed: BoolArray,
    C0: FloatArray,
    solve: Solve | None = None,
) -> FloatArray:
    """Return the (K, q, d) minimisers, searched from C0.

    From round to round few weights change their sign: with the signs of C0 all columns are one batch of linear
    equations, and only columns whose answer contradicts them are searched.
    """
    # Column by column, (K, d, q).
    B, penalty, C0 = (X.transpose(0, 2, 1) for X in (B, penalty, C0))
    allowed = allowed.transpose(0, 2, 1)
    free = allowed & (penalty == 0)
    active, sign = (allowed & (C0 != 0)) | free, np.sign(C0)
    C = (solve or _solve_anew)(H, active, B - penalty * sign)
    excess = np.abs(B - C @ H) - penalty
    wrong = (active & ~free & (C * sign <= 0.0)) | (allowed & ~active & (excess > 1e-12 * (1.0 + np.abs(B))))
    k, j = np.nonzero(wrong.any(axis=2))
    if len(k):
        C[k, j] = columns_by_signs(H, k, B[k, j], penalty[k, j], allowed[k, j], C0[k, j], C[k, j])
    return np.ascontiguousarray(C.transpose(0, 2, 1))
