"""Count, mean and scatter of vectors: all that a linear model needs to know about data.

`Moments` are kept as (n, mean, scatter about the mean), merged by Chan's update, so that large means do not
cancel. Only `to_sums` / `from_sums` use raw sums, because raw sums are what adds up over sites in one vector.

Columns that follow exactly from others: columns are taken one after another. A column that those before leave next to
nothing of (`COLLINEAR` of its variance) is dependent; it is left out, so that the ones after are compared with
independent columns only. On clean data one Cholesky factor per question shows that there is nothing to look for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf

from feddbn.core.arrays import FloatArray, IntArray, by_row, total_weight, weighted
from feddbn.core.designs.recordings import Block, Stretch, stack_lags, stretches
from feddbn.findings import Finding
from feddbn.settings import word


def safe_roots(squares: FloatArray) -> FloatArray:
    """(q,) roots of sums or means of squares; 1 where there is nothing to divide by."""
    return np.sqrt(np.where(squares > 0, squares, 1.0))


def correlations(G: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(q, q) ``G_ij / sqrt(G_ii G_jj)`` and the (q,) roots; a constant column correlates with nothing, not even itself."""
    root = safe_roots(np.diag(G))
    return G / np.outer(root, root), root


# About a megabyte: large enough that calls cost nothing, small enough to stay in cache.
_CHUNK_VALUES = 1 << 17


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
    """The upper triangle of a (q, q) matrix, row by row; the inverse of `symmetric`."""
    return matrix.ravel()[_upper_places(len(matrix))]


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
        Number of rows, or what they count together (a float: sums of counts travel as floats).
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
    def of_rows(cls, rows: FloatArray, weights: FloatArray | None = None) -> Moments:
        """Moments of the rows of one (n, q) array, each counted as often as its weight says."""
        n, q = rows.shape
        if n == 0:
            return cls.empty(q)
        mean = rows.mean(axis=0) if weights is None else weights @ rows / weights.sum()
        centred = rows - mean
        return cls(total_weight(n, weights), mean, weighted(centred, weights).T @ centred)

    @classmethod
    def of_blocks(
        cls,
        blocks: Iterable[Block],
        n_lags: int,
        d: int,
        chunk_rows: int | None = None,
        watch: Callable[[Stretch], None] | None = None,
    ) -> Moments:
        """Moments of the lagged rows ``z_t = [x_t, ..., x_{t-p}]`` of blocks (n, d), without forming z.

        Within a segment the cross-products of lags (a, b) and (a-1, b-1) run over the same rows but for one
        at each end, so only ``sum_t x_t' x_{t-l}`` for l = 0..p has to be computed::

            G[a, b] = G[a-1, b-1] + x_{first-a}' x_{first-b} - x_{last+1-a}' x_{last+1-b}

        Equal to the moments of all `lagged_rows` up to rounding. `watch` sees every stretch of rows pass by.
        """
        total = _Accumulator((n_lags + 1) * d)
        for stretch in stretches(blocks, n_lags, chunk_rows or max(1024, _CHUNK_VALUES // d)):
            if watch is not None:
                watch(stretch)
            values = stretch.values
            m = len(values) - n_lags
            origin = total.origin(values)[:d]
            centred = by_row(np.subtract, values, origin, total.buffer(len(values), d))
            totals, cross = _lagged_sums(centred, n_lags, m, d, stretch.weights)
            total.add(total_weight(m, stretch.weights), np.tile(origin, n_lags + 1), totals, cross)
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
        scatter = self.scatter + other.scatter + np.outer(delta, delta) * (self.n * other.n / n)
        return Moments(n, mean, scatter)

    def without(self, other: Moments) -> Moments:
        """Moments of the rows that were merged with those of `other`; the inverse of `merge`, up to rounding."""
        n = self.n - other.n
        mean = self.mean + (self.mean - other.mean) * (other.n / n)
        delta = mean - other.mean
        return Moments(
            n, mean, self.scatter - other.scatter - np.outer(delta, delta) * (other.n * n / self.n)
        )

    def about(self, origin: FloatArray) -> FloatArray:
        """(q, q) ``sum_t (z_t - origin)(z_t - origin)'``."""
        delta = self.mean - origin
        return self.scatter + self.n * np.outer(delta, delta)

    def standardised(self, origin: FloatArray, scale: FloatArray) -> FloatArray:
        """(q, q) mean products of ``(z - origin) / scale``."""
        return self.about(origin) / self.n / np.outer(scale, scale)

    def scaled(self, factor: FloatArray) -> Moments:
        """Moments of ``z / factor`` (elementwise, factor (q,))."""
        return Moments(self.n, self.mean / factor, self.scatter / np.outer(factor, factor))

    def select(self, index: np.ndarray) -> Moments:
        """Moments of the columns in `index`, in that order."""
        rows, columns = np.ix_(index, index)
        return Moments(self.n, self.mean[index], self.scatter[rows, columns])

    def to_sums(self, origin: FloatArray | None = None) -> FloatArray:
        """One vector that adds up over groups: count, totals of z - origin, upper triangle of products."""
        centre = np.zeros(self.q) if origin is None else origin
        totals = self.n * (self.mean - centre)
        return np.concatenate([[self.n], totals, upper_triangle(self.about(centre))])

    def to_dict(self) -> dict[str, Any]:
        """Plain values: number, mean and upper triangle of the scatter; they read back bit for bit."""
        return {"n": self.n, "mean": self.mean.tolist(), "scatter": upper_triangle(self.scatter).tolist()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], q: int) -> Moments:
        """Inverse of `to_dict` for q columns; another number of numbers, or one that is not finite, raises ValueError."""
        n, mean, triangle = (np.asarray(stored[name], dtype=np.float64) for name in ("n", "mean", "scatter"))
        shapes = ((), (q,), (q * (q + 1) // 2,))
        if (n.shape, mean.shape, triangle.shape) != shapes or not np.isfinite(np.r_[n, mean, triangle]).all():
            raise ValueError(
                f"moments of {q} columns are {q} means and {shapes[2][0]} products, all of them finite"
            )
        return cls(float(n), mean, symmetric(triangle, q))

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

    def __init__(self, q: int) -> None:
        self.n = 0.0
        self.mean = np.zeros(q)
        self.scatter = np.zeros((q, q))
        self._buffer = np.empty(0)

    def origin(self, rows: FloatArray) -> FloatArray:
        """Mean so far, or that of the first rows."""
        return self.mean if self.n else rows.mean(axis=0)

    def buffer(self, n_rows: int, n_columns: int) -> FloatArray:
        """(n_rows, n_columns) of scratch space, used again by the next chunk."""
        if len(self._buffer) < n_rows * n_columns:
            self._buffer = np.empty(n_rows * n_columns)
        return self._buffer[: n_rows * n_columns].reshape(n_rows, n_columns)

    def add(self, m: float, origin: FloatArray, totals: FloatArray, cross: FloatArray) -> None:
        """Add m rows, or rows that count as many, given totals and cross-products of z - origin."""
        offset = totals / m
        self.scatter += cross
        self.scatter -= np.outer(totals, offset)
        delta = origin + offset - self.mean
        n = self.n + m
        self.scatter += np.outer(delta, delta * (self.n * m / n))
        self.mean = self.mean + delta * (m / n)
        self.n = n

    def moments(self) -> Moments:
        """Return what has been accumulated, exactly symmetric."""
        return Moments(self.n, self.mean, (self.scatter + self.scatter.T) / 2)


def _lagged_sums(
    x: FloatArray, n_lags: int, m: int, d: int, weights: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Totals ((p+1) d,) and cross-products of the m lagged rows within x (p + m, d)."""
    p = n_lags
    if weights is not None:
        # Neighbours count differently, so nothing is shared between lags.
        rows = np.empty((m, (p + 1) * d))
        stack_lags(x, range(p + 1), rows)
        return weights @ rows, weighted(rows, weights).T @ rows
    totals = np.empty((p + 1, d))
    cross = np.empty((p + 1, d, p + 1, d))
    now = x[p:]
    totals[0] = np.ones(m) @ now
    for lag in range(p + 1):
        cross[0, :, lag] = now.T @ x[p - lag : p - lag + m]
    first, last = x[:p], x[m:]
    for a in range(1, p + 1):
        before, after = first[p - a], last[p - a]
        totals[a] = totals[a - 1] + before - after
        for b in range(a, p + 1):
            cross[a, :, b] = (
                cross[a - 1, :, b - 1] + np.outer(before, first[p - b]) - np.outer(after, last[p - b])
            )
    for a in range(p + 1):
        for b in range(a):
            cross[a, :, b] = cross[b, :, a].T
    q = (p + 1) * d
    return totals.reshape(q), cross.reshape(q, q)


def nearest_positive(F: FloatArray, floor: float = 1e-3) -> FloatArray:
    """Return F with its correlations' eigenvalues raised to at least `floor`, variances kept.

    Moments that were averaged entry by entry over different sites need not be positive. A negative eigenvalue shows how
    far the entries contradict each other; positive ones below its size cannot be told from such an error and are raised
    to it, or regressions on them would explode.
    """
    e, V = np.linalg.eigh(correlations(F)[0])
    R, _ = correlations((V * np.maximum(e, max(floor, -float(e[0])))) @ V.T)
    root = np.sqrt(np.diag(F))
    result: FloatArray = R * np.outer(root, root)
    return result


def as_of_rows(moments: Moments) -> Moments:
    """Return moments that rows can have: the same, or where noise has made products contradict each other the nearest."""
    if np.linalg.eigvalsh(correlations(moments.scatter)[0])[0] > -CONTRADICTION:
        return moments
    return Moments(moments.n, moments.mean, nearest_positive(moments.scatter))


CONTRADICTION = 1e-8
"""A correlation matrix with an eigenvalue this far below zero is that of no rows."""
COLLINEAR = 1e-9
"""A column of which the others leave less than this share of its variance carries nothing but rounding."""


def independent(R: FloatArray) -> list[int]:
    """The columns of a correlation matrix that do not follow from those before them."""
    rest, kept = R.copy(), []
    for m in range(len(R)):
        pivot = float(rest[m, m])
        if pivot > COLLINEAR:
            kept.append(m)
            row = rest[m].copy()
            rest -= np.outer(row, row / pivot)
    return kept


@dataclass(frozen=True)
class Dependence:
    """A variable that follows from other columns.

    Attributes
    ----------
    column
        Position of the variable.
    others
        The columns it follows from, largest part first.
    weights
        Their weights in the units of the data.
    """

    column: int
    others: tuple[int, ...]
    weights: tuple[float, ...]

    def finding(self, variables: Sequence[str]) -> Finding:
        """Say so."""
        d = len(variables)
        others = [[variables[m % d], m // d] for m in self.others]
        values = {"others": others, "weights": list(self.weights)}
        return Finding("dependent-column", "warning", values, about=(variables[self.column],))


def dependences(scatter: FloatArray, n: float, d: int, inputs: Sequence[int] = ()) -> list[Dependence]:
    """The variables (the first d columns) that follow from others of their time step or, if not, also from lags.

    Too few rows make all columns dependent; nothing is said then. `inputs` may be any signal, also one that goes on as it
    began: of them only is said which follow from other inputs of the same time step.
    """
    if inputs:
        return _with_inputs(scatter, n, d, inputs)
    R, root = correlations(scatter)
    q = len(R)
    found: dict[int, Dependence] = {}
    lags_first = np.r_[d:q, :d]
    for columns in (np.arange(d), lags_first) if q > d else (np.arange(d),):
        if n - 1 <= len(columns) or is_regular(R[np.ix_(columns, columns)]):
            continue
        known = [m for m in columns.tolist() if m not in found]
        kept = [known[k] for k in independent(R[np.ix_(known, known)])]
        for m in sorted(set(range(d)) & set(known) - set(kept)):
            before = [k for k in kept if known.index(k) < known.index(m)]
            dependence = _explained(R, root, m, before)
            if dependence is not None:
                found[m] = dependence
    return [found[m] for m in sorted(found)]


def _with_inputs(scatter: FloatArray, n: float, d: int, inputs: Sequence[int]) -> list[Dependence]:
    """The same with inputs taken first, so that what follows from them is said to, and not the other way round."""
    first = [*inputs, *(j for j in range(d) if j not in inputs)]
    order = [lag * d + j for lag in range(len(scatter) // d) for j in first]
    found = []
    for one in dependences(scatter[np.ix_(order, order)], n, d):
        others = tuple(order[m] for m in one.others)
        if order[one.column] not in inputs or set(others) <= set(inputs):
            found.append(Dependence(order[one.column], others, one.weights))
    return sorted(found, key=lambda one: one.column)


def is_regular(R: FloatArray) -> bool:
    """Whether no column of a correlation matrix follows from those before it."""
    factor, failed = dpotrf(R, lower=1)
    return not failed and float(np.diag(factor).min()) ** 2 > COLLINEAR


def _explained(R: FloatArray, root: FloatArray, column: int, others: list[int]) -> Dependence | None:
    """The column as a combination of others; None if it is none, as noise on the sums can make it look."""
    beta = np.linalg.lstsq(R[np.ix_(others, others)], R[others, column], rcond=None)[0]
    left = 1.0 - 2.0 * float(beta @ R[others, column]) + float(beta @ R[np.ix_(others, others)] @ beta)
    if abs(left) > 10 * COLLINEAR:
        return None
    # What a weight of this size contributes is rounding.
    parts = [k for k in np.argsort(-np.abs(beta), kind="stable") if abs(beta[k]) > 1e-4]
    chosen = [others[k] for k in parts]
    weights = [float(beta[k] * root[column] / root[others[k]]) for k in parts]
    return Dependence(column, tuple(int(m) for m in chosen), tuple(weights)) if parts else None


RULES = ("one-standard-error", "best")


def choose(loss: FloatArray, standard_error: FloatArray, rule: str = "one-standard-error") -> int:
    """Return the index of the simplest candidate whose loss is not clearly above the lowest.

    Candidates come simplest first; `standard_error` is that of the difference to the best (paired), so it is zero
    there. "best" ignores it.
    """
    word(*RULES).check("rule", rule)
    best = int(np.argmin(loss))
    if rule == "best":
        return best
    return int(np.flatnonzero(loss <= loss[best] + standard_error)[0])
