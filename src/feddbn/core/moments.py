"""Count, mean and scatter of vectors: all that a linear model needs to know about data.

`Moments` are kept as (n, mean, scatter about the mean), merged by Chan's update, so that large means do not cancel.
Only `to_sums` / `from_sums` use raw sums, because raw sums are what adds up over sites in one vector.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from feddbn.core.lagged import FloatArray

__all__ = ["Moments", "sums_length"]


def sums_length(q: int) -> int:
    """Return the length of `Moments.to_sums` for q columns: a count, q totals, the upper triangle."""
    return 1 + q + q * (q + 1) // 2


@dataclass(frozen=True)
class Moments:
    """Moments of n vectors z of length q.

    Attributes
    ----------
    n
        Number of rows (a float: sums of counts travel as floats).
    mean
        (q,) mean of z.
    scatter
        (q, q), ``sum_t (z_t - mean)(z_t - mean)'``.
    """

    n: float
    mean: FloatArray
    scatter: FloatArray

    @property
    def q(self) -> int:
        """Number of columns."""
        return len(self.mean)

    @classmethod
    def empty(cls, q: int) -> Moments:
        """Moments of no rows at all; the neutral element of `merge`."""
        return cls(0.0, np.zeros(q), np.zeros((q, q)))

    @classmethod
    def of_rows(cls, rows: FloatArray) -> Moments:
        """Moments of the rows of one (n, q) array."""
        n = len(rows)
        if n == 0:
            return cls.empty(rows.shape[1])
        mean = rows.mean(axis=0)
        centred = rows - mean
        return cls(float(n), mean, centred.T @ centred)

    @classmethod
    def of_chunks(cls, chunks: Iterable[FloatArray], q: int) -> Moments:
        """Moments of all rows of all chunks, reading each chunk once."""
        total = cls.empty(q)
        for chunk in chunks:
            total = total.merge(cls.of_rows(chunk))
        return total

    def merge(self, other: Moments) -> Moments:
        """Moments of both groups of rows together (Chan, Golub, LeVeque 1983)."""
        if self.n == 0:
            return other
        if other.n == 0:
            return self
        n = self.n + other.n
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.n / n)
        scatter = self.scatter + other.scatter + np.outer(delta, delta) * (self.n * other.n / n)
        return Moments(n, mean, scatter)

    def about(self, origin: FloatArray) -> FloatArray:
        """(q, q) ``sum_t (z_t - origin)(z_t - origin)'``."""
        delta = self.mean - origin
        return self.scatter + self.n * np.outer(delta, delta)

    def raw_gram(self) -> FloatArray:
        """(q, q) ``sum_t z_t z_t'``, uncentred."""
        return self.about(np.zeros(self.q))

    def scaled(self, factor: FloatArray) -> Moments:
        """Moments of ``z / factor`` (elementwise, factor (q,))."""
        return Moments(self.n, self.mean / factor, self.scatter / np.outer(factor, factor))

    def select(self, index: np.ndarray) -> Moments:
        """Moments of the columns in `index`, in that order."""
        return Moments(self.n, self.mean[index], self.scatter[np.ix_(index, index)])

    def to_sums(self, origin: FloatArray | None = None) -> FloatArray:
        """One vector that adds up over groups: count, totals of z - origin, upper triangle of the cross-products."""
        centre = np.zeros(self.q) if origin is None else origin
        totals = self.n * (self.mean - centre)
        upper = self.about(centre)[np.triu_indices(self.q)]
        return np.concatenate([[self.n], totals, upper])

    @classmethod
    def from_sums(cls, vector: FloatArray, q: int, origin: FloatArray | None = None) -> Moments:
        """Inverse of `to_sums`, also for a sum of such vectors."""
        n = float(vector[0])
        if n <= 0:
            return cls.empty(q)
        delta = vector[1 : 1 + q] / n
        cross = np.zeros((q, q))
        rows, columns = np.triu_indices(q)
        cross[rows, columns] = vector[1 + q :]
        cross[columns, rows] = vector[1 + q :]
        scatter = cross - n * np.outer(delta, delta)
        return cls(n, delta if origin is None else delta + origin, scatter)
