"""Count, mean and scatter of vectors: all that a linear model needs to know about data.

`Moments` are kept as (n, mean, scatter about the mean), merged by Chan's update, so that large means do not
cancel. Only `to_sums` / `from_sums` use raw sums, because raw sums are what adds up over sites in one vector.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray, IntArray, by_row
from feddbn.core.backend.device import HOST, Device
from feddbn.core.designs.lagged import Block, Stretch, stretches

__all__ = ["Moments", "outer", "sums_length", "symmetric", "upper_triangle"]


_CHUNK_VALUES = 1 << 17
# What is carried to a device at once: 64 megabytes.
_CARRIED_VALUES = 1 << 23


def sums_length(q: int) -> int:
    """Return the length of `Moments.to_sums` for q columns: a count, q totals, the upper triangle."""
    return 1 + q + q * (q + 1) // 2


@functools.lru_cache(maxsize=8)
def _upper_places(q: int) -> IntArray:
    """Places of the upper triangle in a (q, q) matrix read row by row; many sites ask for those of one q."""
    places: IntArray = np.ravel_multi_index(np.triu_indices(q), (q, q))
    places.flags.writeable = False
    return places


def upper_triangle(matrix: FloatArray) -> FloatArray:
    """The upper triangle of a (..., q, q) matrix, row by row; the inverse of `symmetric`."""
    *lead, q, _ = matrix.shape
    return matrix.reshape(*lead, q * q)[..., _upper_places(q)]


def outer(a: FloatArray, b: FloatArray) -> FloatArray:
    """(..., m, n) all products of the last axes; leading axes go along."""
    return np.asarray(a[..., :, None] * b[..., None, :])


def symmetric(triangle: FloatArray, q: int) -> FloatArray:
    """(q, q) symmetric matrix with this upper triangle."""
    matrix = np.zeros((q, q))
    rows, columns = np.triu_indices(q)
    matrix[rows, columns] = triangle
    matrix[columns, rows] = triangle
    return matrix


@dataclass(frozen=True)
class Moments:
    """Moments of n vectors z of length q.

    Leading axes of mean and scatter are groups of n rows each: sites that are read together.

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
        return int(self.mean.shape[-1])

    @classmethod
    def empty(cls, q: int) -> Moments:
        """Moments of no rows at all; the neutral element of `merge`."""
        return cls(0.0, np.zeros(q), np.zeros((q, q)))

    @classmethod
    def of_rows(cls, rows: FloatArray) -> Moments:
        """Moments of the rows of one (..., n, q) array."""
        n = rows.shape[-2]
        if n == 0:
            return cls.empty(rows.shape[-1])
        mean = rows.mean(axis=-2)
        centred = rows - mean[..., None, :]
        return cls(float(n), mean, centred.swapaxes(-1, -2) @ centred)

    @classmethod
    def of_chunks(cls, chunks: Iterable[FloatArray], q: int) -> Moments:
        """Moments of all rows of all chunks, reading each chunk once."""
        total = _Accumulator(q)
        for chunk in chunks:
            m = len(chunk)
            if m == 0:
                continue
            origin = total.origin(chunk)
            centred = np.subtract(chunk, origin, out=total.buffer(m, q))
            total.add(m, origin, np.ones(m) @ centred, centred.T @ centred)
        return total.moments()

    @classmethod
    def of_blocks(
        cls,
        blocks: Iterable[Block],
        n_lags: int,
        d: int,
        chunk_rows: int | None = None,
        device: Device = HOST,
        watch: Callable[[Stretch], None] | None = None,
    ) -> Moments:
        """Moments of the lagged rows ``z_t = [x_t, ..., x_{t-p}]`` of blocks (..., n, d), without forming z.

        Within a segment the cross-products of lags (a, b) and (a-1, b-1) run over the same rows but for one
        at each end, so only ``sum_t x_t' x_{t-l}`` for l = 0..p has to be computed::

            G[a, b] = G[a-1, b-1] + x_{first-a}' x_{first-b} - x_{last+1-a}' x_{last+1-b}

        Equal to ``of_chunks(lagged_rows(blocks, n_lags), (n_lags + 1) * d)`` up to rounding. `device` multiplies if the
        first block is large; it takes larger chunks. `watch` sees every stretch of rows pass by.
        """
        blocks = iter(blocks)
        first = next(blocks, None)
        if first is None:
            return cls.empty((n_lags + 1) * d)
        total = _Accumulator((n_lags + 1) * d, first.values.shape[:-2])
        n_values = first.values.size
        device = device.of(2.0 * (n_lags + 1) * d * n_values, 8.0 * n_values)
        # About a megabyte: large enough that calls cost nothing, small enough to stay in cache.
        at_once = _CHUNK_VALUES if device is HOST else _CARRIED_VALUES
        blocks = itertools.chain([first], blocks)
        for stretch in stretches(blocks, n_lags, chunk_rows or max(1024, at_once // d)):
            if watch is not None:
                watch(stretch)
            values = stretch.values
            m = values.shape[-2] - n_lags
            origin = total.origin(values)[..., :d]
            if values.ndim > 2:
                device, centred = HOST, values - origin[..., None, :]
            elif device is HOST:
                centred = by_row(np.subtract, values, origin, total.buffer(len(values), d))
            else:
                centred = device.put(values) - device.put(origin)
            totals, cross = _lagged_sums(centred, n_lags, m, d, device)
            total.add(m, np.tile(origin, n_lags + 1), totals, cross)
        return total.moments()

    def merge(self, other: Moments) -> Moments:
        """Moments of both groups of rows together (Chan, Golub, LeVeque 1983)."""
        if self.n == 0:
            return other
        if other.n == 0:
            return self
        n = self.n + other.n
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.n / n)
        scatter = self.scatter + other.scatter + outer(delta, delta) * (self.n * other.n / n)
        return Moments(n, mean, scatter)

    def about(self, origin: FloatArray) -> FloatArray:
        """(q, q) ``sum_t (z_t - origin)(z_t - origin)'``."""
        delta = self.mean - origin
        return self.scatter + self.n * outer(delta, delta)

    def standardised(self, origin: FloatArray, scale: FloatArray) -> FloatArray:
        """(q, q) mean products of ``(z - origin) / scale``."""
        return self.about(origin) / self.n / np.outer(scale, scale)

    def scaled(self, factor: FloatArray) -> Moments:
        """Moments of ``z / factor`` (elementwise, factor (q,))."""
        return Moments(self.n, self.mean / factor, self.scatter / np.outer(factor, factor))

    def select(self, index: np.ndarray) -> Moments:
        """Moments of the columns in `index`, in that order."""
        rows, columns = np.ix_(index, index)
        return Moments(self.n, self.mean[..., index], self.scatter[..., rows, columns])

    def to_sums(self, origin: FloatArray | None = None) -> FloatArray:
        """One vector that adds up over groups: count, totals of z - origin, upper triangle of products."""
        centre = np.zeros(self.q) if origin is None else origin
        totals = self.n * (self.mean - centre)
        n = np.full((*totals.shape[:-1], 1), self.n)
        return np.concatenate([n, totals, upper_triangle(self.about(centre))], axis=-1)

    @classmethod
    def from_sums(cls, vector: FloatArray, q: int, origin: FloatArray | None = None) -> Moments:
        """Inverse of `to_sums`, also for a sum of such vectors."""
        n = float(vector[0])
        if n <= 0:
            return cls.empty(q)
        delta = vector[1 : 1 + q] / n
        scatter = symmetric(vector[1 + q :], q) - n * np.outer(delta, delta)
        return cls(n, delta if origin is None else delta + origin, scatter)


class _Accumulator:
    """Running (n, mean, scatter), updated in place.

    Each chunk is shifted by the mean so far before squaring: one pass instead of two. What rounding costs is
    then at most (rows of a chunk) * eps relative to the total scatter, because a chunk far from the mean so
    far is itself part of that scatter.
    """

    def __init__(self, q: int, lead: tuple[int, ...] = ()) -> None:
        self.n = 0
        self.mean = np.zeros((*lead, q))
        self.scatter = np.zeros((*lead, q, q))
        self._buffer = np.empty(0)

    def origin(self, rows: FloatArray) -> FloatArray:
        """Mean so far, or that of the first rows."""
        return self.mean if self.n else rows.mean(axis=-2)

    def buffer(self, n_rows: int, n_columns: int) -> FloatArray:
        """(n_rows, n_columns) of scratch space, used again by the next chunk."""
        if len(self._buffer) < n_rows * n_columns:
            self._buffer = np.empty(n_rows * n_columns)
        return self._buffer[: n_rows * n_columns].reshape(n_rows, n_columns)

    def add(self, m: int, origin: FloatArray, totals: FloatArray, cross: FloatArray) -> None:
        """Add m rows given totals and cross-products of z - origin."""
        offset = totals / m
        self.scatter += cross
        self.scatter -= outer(totals, offset)
        delta = origin + offset - self.mean
        n = self.n + m
        self.scatter += outer(delta, delta * (self.n * m / n))
        self.mean = self.mean + delta * (m / n)
        self.n = n

    def moments(self) -> Moments:
        """Return what has been accumulated, exactly symmetric."""
        return Moments(float(self.n), self.mean, (self.scatter + self.scatter.swapaxes(-1, -2)) / 2)


def _lagged_sums(x: Any, n_lags: int, m: int, d: int, device: Device) -> tuple[FloatArray, FloatArray]:
    """Totals (..., (p+1) d) and cross-products of the m lagged rows within x (..., p + m, d), an array of the device."""
    p, lead = n_lags, tuple(x.shape[:-2])
    totals = np.empty((*lead, p + 1, d))
    cross = np.empty((*lead, p + 1, d, p + 1, d))
    now = x[..., p:, :]
    totals[..., 0, :] = device.get(device.put(np.ones(m)) @ now)
    for lag in range(p + 1):
        cross[..., 0, :, lag, :] = device.get(now.swapaxes(-1, -2) @ x[..., p - lag : p - lag + m, :])
    first, last = device.get(x[..., :p, :]), device.get(x[..., m:, :])
    for a in range(1, p + 1):
        before, after = first[..., p - a, :], last[..., p - a, :]
        totals[..., a, :] = totals[..., a - 1, :] + before - after
        for b in range(a, p + 1):
            cross[..., a, :, b, :] = (
                cross[..., a - 1, :, b - 1, :]
                + outer(before, first[..., p - b, :])
                - outer(after, last[..., p - b, :])
            )
    for a in range(p + 1):
        for b in range(a):
            cross[..., a, :, b, :] = cross[..., b, :, a, :].swapaxes(-1, -2)
    q = (p + 1) * d
    return totals.reshape(*lead, q), cross.reshape(*lead, q, q)
