"""Edges within a moment from sums: partial correlation for presence, non-Gaussianity for direction.

Theory of operation
-------------------
Each recording is prewhitened by its own AR(1) per variable and standardised, so that slow drifts do not pass
for correlation. With w the result, x -> y and super-Gaussian or skewed noise, the sign of ::

    R = rho E[ x tanh(y) - tanh(x) y ]

is positive on average (Hyvarinen & Smith 2013, JMLR 14: the first-order likelihood ratio of the
two directions). It is turned into a probability by its standard error and multiplies the partial
correlation::

    score[i, j] = |pcorr_ij| (1/2 + 1/2 Phi(z_ij)),   z_ij = sqrt(n) sign(rho_ij) mean(D_ij) / sd(D_ij)
    D_ij = w_i tanh(w_j) - tanh(w_i) w_j

Known weaknesses: with Gaussian noise z is noise and the score is symmetric up to chance; sub-Gaussian noise
turns the sign around; skewed noise with a negative effect gives weak evidence (z is at most 40 % of that of a
positive effect, measured with exponential noise); a cycle or a hidden common cause is not recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.lagged import Block, lagged_rows
from feddbn.core.statistics.moments import Moments, upper_triangle
from feddbn.core.statistics.scaling import correlations
from feddbn.errors import DataError, ParameterError

__all__ = ["DirectionSums", "PairScores", "direction_sums", "score_pairs"]


@dataclass(frozen=True)
class DirectionSums:
    """Sums over prewhitened rows w: all that `score_pairs` needs.

    Attributes
    ----------
    n
        Number of rows.
    products
        (d, d) sum of ``w_i w_j``.
    asymmetry
        (d, d) sum of ``D_ij = w_i tanh(w_j) - tanh(w_i) w_j``; antisymmetric.
    asymmetry_squares
        (d, d) sum of ``D_ij^2``.
    """

    n: float
    products: FloatArray
    asymmetry: FloatArray
    asymmetry_squares: FloatArray

    @classmethod
    def empty(cls, d: int) -> DirectionSums:
        """Sums over no rows."""
        return cls(0.0, np.zeros((d, d)), np.zeros((d, d)), np.zeros((d, d)))

    def merge(self, other: DirectionSums) -> DirectionSums:
        """Sums over both groups of rows."""
        return DirectionSums(
            self.n + other.n,
            self.products + other.products,
            self.asymmetry + other.asymmetry,
            self.asymmetry_squares + other.asymmetry_squares,
        )

    def to_sums(self) -> FloatArray:
        """One vector that adds up over groups: the count and three upper triangles."""
        parts = (self.products, self.asymmetry, self.asymmetry_squares)
        return np.concatenate([[self.n], *(upper_triangle(part) for part in parts)])

    @classmethod
    def from_sums(cls, vector: FloatArray, d: int) -> DirectionSums:
        """Inverse of `to_sums`, also for a sum of such vectors."""
        upper = np.triu_indices(d)
        length = len(upper[0])
        if vector.shape != (1 + 3 * length,):
            raise ParameterError(
                f"the sums of {d} variables have {1 + 3 * length} numbers, got shape {vector.shape}."
            )

        def full(part: int, sign: float) -> FloatArray:
            triangle = vector[1 + part * length : 1 + (part + 1) * length]
            matrix = np.zeros((d, d))
            matrix[upper[1], upper[0]] = sign * triangle
            matrix[upper] = triangle
            return matrix

        return cls(float(vector[0]), full(0, 1.0), full(1, -1.0), full(2, 1.0))


@dataclass(frozen=True)
class PairScores:
    """Scores of ordered pairs, all (d, d) and [from, to] with a zero diagonal.

    Attributes
    ----------
    score
        Presence times direction, in [0, 1].
    partial_correlation
        Signed and symmetric.
    direction
        Probability-like evidence Phi(z) for from -> to against to -> from.
    """

    score: FloatArray
    partial_correlation: FloatArray
    direction: FloatArray


def direction_sums(blocks: Callable[[], Iterable[Block]], d: int) -> DirectionSums:
    """Return the sums of one recording; `blocks` is called twice, once for the AR(1) fit and once for the
    rows.

    A recording of fewer than 4 usable rows is skipped: its own AR(1) fit would explain it completely. A
    variable that is constant in the recording contributes zeros.
    """
    fit = Moments.empty(2 * d)
    for rows in lagged_rows(blocks(), 1):
        fit = fit.merge(Moments.of_rows(rows))
    if fit.n < 4:
        return DirectionSums.empty(d)
    now, past = np.diag(fit.scatter)[:d], np.diag(fit.scatter)[d:]
    both = np.diag(fit.scatter[:d, d:])
    slope = np.divide(both, past, out=np.zeros(d), where=past > 0)
    residual = now - slope * both
    usable = residual > 1e-12 * np.maximum(now, np.finfo(float).tiny)
    inverse_sd = np.where(usable, 1.0, 0.0) / np.sqrt(np.where(usable, residual, 1.0) / fit.n)
    total = DirectionSums.empty(d)
    for rows in lagged_rows(blocks(), 1):
        w = (rows[:, :d] - fit.mean[:d] - slope * (rows[:, d:] - fit.mean[d:])) * inverse_sd
        t = np.tanh(w)
        cross = w.T @ t
        mixed, w2, t2 = w * t, w**2, t**2
        # D_ij^2 = w_i^2 t_j^2 + t_i^2 w_j^2 - 2 (w_i t_i)(w_j t_j): three products instead of an (n, d, d)
        # array.
        squares = w2.T @ t2
        chunk = DirectionSums(
            float(len(w)), w.T @ w, cross - cross.T, squares + squares.T - 2.0 * (mixed.T @ mixed)
        )
        total = total.merge(chunk)
    return total


def score_pairs(sums: DirectionSums, ridge: float = 1e-3) -> PairScores:
    """Return presence, direction and their product for every ordered pair."""
    d = len(sums.products)
    if sums.n < 4:
        raise DataError(
            f"{sums.n:.0f} usable rows are too few to score pairs;"
            " give recordings of at least 5 rows without gaps."
        )
    correlation, _ = correlations(sums.products)
    np.fill_diagonal(correlation, 1.0)
    precision: FloatArray = np.linalg.inv(correlation + ridge * np.eye(d)).astype(np.float64, copy=False)
    partial = -correlations(precision)[0]
    np.fill_diagonal(partial, 0.0)
    mean = sums.asymmetry / sums.n
    variance = np.maximum(sums.asymmetry_squares / sums.n - mean**2, 0.0)
    z = np.zeros((d, d))
    np.divide(np.sqrt(sums.n) * np.sign(correlation) * mean, np.sqrt(variance), out=z, where=variance > 0)
    direction = ndtr(z)
    np.fill_diagonal(direction, 0.0)
    return PairScores(np.abs(partial) * (0.5 + 0.5 * direction), partial, direction)
