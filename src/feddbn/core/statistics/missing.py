"""Second moments of rows with missing cells: over pairs of present cells, or expected given the present ones.

Theory of operation
-------------------
Cells are missing at random: whether a cell is missing may depend on present cells of its row, not on its own value.
*Pairwise* sums take each pair of columns over the rows that have both. They cost one pass, and need cells that are
missing completely at random. *Expected* sums are one step of EM for Gaussian rows: under a mean and a covariance S with
precision K, the missing cells m of a row have, given the present cells o, ::

    E[x_m | x_o] = mean_m - K_mm^-1 K_mo (x_o - mean_o)        Cov[x_m | x_o] = K_mm^-1

so a row costs a solve of the size of what it lacks. Rows that lack the same cells share it; patterns of one size are
solved as one batch. A row of which nothing is present says nothing and is left out everywhere.

Known weakness: neighbouring lagged rows hold the same cells; each row is completed from its own cells alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import block_diag

from feddbn.core.arrays import BoolArray, FloatArray, IntArray, total_weight, weighted
from feddbn.core.statistics.moments import Moments, correlations, nearest_positive

# Values held at once while patterns are solved: about eight megabytes.
_CHUNK_VALUES = 1 << 20
# Values of conditional covariances that are kept for the next inner iteration: at most 256 megabytes.
_KEPT_VALUES = 1 << 25
# Eigenvalues of correlations below this are taken for zero, and raised to it.
_SINGULAR = 1e-9
# Nuisance columns whose part of their own is smaller than this, relatively, are combinations of the others.
_COLLINEAR = 1e-9
# Matrices whose Cholesky factor has no smaller diagonal are inverted as they are.
_REGULAR = 1e-3
_MAX_INNER = 50
# Pairs seen less often than this, and in less than a tenth of the rows that have the rarer of the two, tell nothing.
_FEWEST_TOGETHER = 8.0
_SHARE_TOGETHER = 0.1
# Coefficients of an orthonormal basis have a standard error of one standard deviation of the rows.
_INNER_TOL = 1e-5


def pairwise_sums(
    rows: FloatArray, basis: FloatArray | None = None, weights: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return how often two columns are present together (q, q), and their sums of products there (q, q).

    Parameters
    ----------
    rows
        (n, q), NaN where missing.
    basis
        (n, k) nuisance columns, among them the constant if a mean is to be taken off. Each column of `rows` is first
        taken off them, by least squares over its present cells. A column with no more present cells than the basis has
        directions is explained completely; its cells count as missing. None takes nothing off.
    weights
        (n,) how much each row counts; None: 1.
    """
    present = ~np.isnan(rows)
    values = np.where(present, rows, 0.0)
    if basis is not None:
        Q = _orthonormal(basis)
        present &= present.sum(axis=0) > Q.shape[1]
        values -= Q @ own_coefficients(values, present, Q)
        values[~present] = 0.0
    seen = present.astype(np.float64)
    return weighted(seen, weights).T @ seen, weighted(values, weights).T @ values


def pair_totals(rows: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """(q, q) sums of column i over the rows that also have column j; the diagonal has those of all present cells."""
    present = ~np.isnan(rows)
    return np.where(present, rows, 0.0).T @ weighted(present.astype(np.float64), weights)


def products_about(
    centre: FloatArray, counts: FloatArray, totals: FloatArray, products: FloatArray
) -> FloatArray:
    """(q, q) what `pairwise_sums` gives for ``rows - centre``, from the sums of `rows` and their `pair_totals`.

    Two columns are present together in some rows only, whose means are not those of all: a product of means in place of
    the totals would be off by a mean times the error of another, more than a covariance where means are large.
    """
    mixed = totals * centre[None, :]
    return products - mixed - mixed.T + counts * np.outer(centre, centre)


def pairwise_scatter(counts: FloatArray, products: FloatArray) -> tuple[FloatArray, float]:
    """Return the (q, q) covariance of summed `pairwise_sums`, positive, and the number of rows it is worth.

    Entries over different rows need not fit together. Eigenvalues of the correlations that are smaller than the error
    this makes, ``sqrt(2/N) (1/f - 1)`` for N rows of which each cell is present with probability f, are raised to it.
    Where every pair was seen equally often nothing is changed. A pair that was never seen together gets covariance 0:
    look at `counts`. The rows it is worth: `pairs_n`.
    """
    covariance = products / np.maximum(counts, 1.0)
    covariance = (covariance + covariance.T) / 2
    if counts.size == 0 or counts.min() == counts.max():
        return covariance, float(counts.max(initial=0.0))
    N, share = _rows_and_shares(counts)
    if N <= 0:
        return covariance, 0.0
    floor = np.sqrt(2.0 / N) * float(np.mean(1.0 / share - 1.0))
    covariance = nearest_positive(covariance, max(floor, _SINGULAR))
    return covariance, pairs_n(counts, covariance)


def pairs_n(counts: FloatArray, covariance: FloatArray) -> float:
    """Return the number of complete rows that would tell partial correlations as precisely as these pairs do.

    With R the correlations, P their inverse and f_k the share of rows that have column k, the estimate of a partial
    correlation between i and j that is zero has, where cells are missing completely at random, the variance ::

        V_i V_j / N        V_i = 1 + sum_k P_ik^2 (1/f_k - 1) / P_ii

    as if every column had noise of variance (1/f - 1) R_kk on it (for uncorrelated columns V_i V_j / N is one over the
    count of the pair). The result is N over the median of V_i V_j over pairs. N is the median of n_i n_j / n_ij: rows of
    which all cells are missing do not count.
    """
    N, share = _rows_and_shares(counts)
    if N <= 0:
        return 0.0
    K, _ = _precision(covariance)
    V = 1.0 + (np.square(K) @ (1.0 / share - 1.0)) / np.diag(K)
    q = len(V)
    if q == 1:
        return float(counts[0, 0])
    together = float(np.median(np.outer(V, V)[~np.eye(q, dtype=bool)]))
    return float(N / together)


def seldom_together(counts: FloatArray, d: int) -> tuple[tuple[int, int, int], ...]:
    """Return (i, j, lag) of every i at t - lag and j at t that are never, or as good as never, both present.

    `counts` are summed `pairwise_sums` of lagged rows of `d` variables. A covariance of such a pair is what the other
    variables suggest, and no sum of these rows can contradict it.
    """
    own = np.diag(counts)
    rarer = np.minimum.outer(own[:d], own)
    seldom = (counts[:d] < _FEWEST_TOGETHER) & (counts[:d] < _SHARE_TOGETHER * rarer)
    places = ((int(k) % d, int(j), int(k) // d) for j, k in np.argwhere(seldom))
    return tuple(sorted((i, j, lag) for i, j, lag in places if lag or i < j))


Bases = FloatArray | Sequence[FloatArray]
"""Nuisance columns (n, k) of the rows of a recording; or of several, one after the other."""


def expected_moments(
    rows: FloatArray,
    covariance: FloatArray,
    mean: FloatArray | None = None,
    basis: Bases | None = None,
    weights: FloatArray | None = None,
) -> Moments:
    """Return the expected moments of the rows given their present cells: one E-step of EM for Gaussian rows.

    Parameters
    ----------
    rows
        (n, q), NaN where missing. Rows of which nothing is present are left out.
    covariance
        (q, q) what the federation knows so far: of the rows, or of the rows off the basis.
    mean
        (q,) what it knows about the mean; None: 0. Not used with a basis.
    basis
        Nuisance columns of recordings. Their coefficients are estimated from the completed rows, under `covariance`,
        until they settle; the result is of the rows off the basis and has mean 0. A column with no more present cells than
        the basis has directions is explained completely; its cells count as missing.
    weights
        (n,) how much each row counts; None: 1.
    """
    done = _completed(rows, covariance, mean, basis)
    if not len(done.kept):
        return Moments.empty(rows.shape[1])
    weights = None if weights is None else weights[done.kept]
    if basis is not None:
        scatter = weighted(done.rows, weights).T @ done.rows + done.patterns.spread(weights)
        return Moments(total_weight(len(done.rows), weights), np.zeros(rows.shape[1]), scatter)
    moments = Moments.of_rows(done.rows, weights)
    return Moments(moments.n, moments.mean + done.centre, moments.scatter + done.patterns.spread(weights))


def expected_parts(
    rows: FloatArray,
    parts: IntArray,
    covariance: FloatArray,
    mean: FloatArray | None = None,
    basis: Bases | None = None,
    weights: FloatArray | None = None,
) -> Iterator[tuple[int, Moments]]:
    """Yield what `expected_moments` returns of the rows (n, q) of each part (n,); they add up to that of all rows."""
    done = _completed(rows, covariance, mean, basis)
    parts = parts[done.kept]
    for k in np.unique(parts).tolist():
        is_in = parts == k
        own = None if weights is None else weights[done.kept][is_in]
        moments = Moments.of_rows(done.rows[is_in], own)
        spread = _Patterns(done.absent[is_in], covariance).spread(own)
        yield k, Moments(moments.n, moments.mean + done.centre, moments.scatter + spread)


class _Completed(NamedTuple):
    """Rows less their centre, or off their basis, with conditional means in missing cells; which of all rows they are."""

    rows: FloatArray
    kept: IntArray
    absent: BoolArray
    centre: FloatArray
    patterns: _Patterns


def _completed(
    rows: FloatArray, covariance: FloatArray, mean: FloatArray | None, basis: Bases | None
) -> _Completed:
    kept, directions = np.flatnonzero(~np.isnan(rows).all(axis=1)), list[FloatArray]()
    if basis is not None:
        rows, kept, start = rows.copy(), np.zeros(0, dtype=np.intp), 0
        for own in [basis] if isinstance(basis, np.ndarray) else basis:
            part = rows[start : start + len(own)]
            while True:
                there = np.flatnonzero(~np.isnan(part).all(axis=1))
                Q = _orthonormal(own[there])
                n_present = (~np.isnan(part)).sum(axis=0)
                thin = (n_present > 0) & (n_present <= Q.shape[1])
                if not thin.any():
                    break
                part[:, thin] = np.nan
            kept = np.concatenate([kept, start + there])
            directions.append(Q)
            start += len(own)
    rows = rows[kept]
    absent = np.isnan(rows)
    centre = np.zeros(rows.shape[1]) if mean is None or basis is not None else mean
    patterns = _Patterns(absent, covariance)
    if not len(rows):
        whole = rows
    elif basis is None:
        whole = patterns.fill(rows - centre)
    else:
        whole = _off_basis(rows, directions, patterns)
    return _Completed(whole, kept, absent, centre, patterns)


def known_pairs(rows: FloatArray, covariance: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """(q, q) how many complete rows these are worth for each partial correlation, nearly; it adds up over recordings.

    A partial correlation of i and j is read off the products of their residuals given all other columns. Of residual i,
    a row knows the share ``r_i = 1 - K_im K_mm^-1 K_mi / K_ii`` of its variance; the row counts as r_i r_j.
    """
    some = ~np.isnan(rows).all(axis=1)
    return _Patterns(np.isnan(rows[some]), covariance).known(None if weights is None else weights[some])


def known_n(known: FloatArray) -> float:
    """Return the number of complete rows that summed `known_pairs` are worth: their mean over pairs of columns."""
    q = len(known)
    if q == 1:
        return float(known[0, 0])
    return float((known.sum() - np.trace(known)) / (q * (q - 1)))


class _Patterns:
    """Rows grouped by which cells they lack; all inside is in units of the columns' standard deviations."""

    def __init__(self, absent: BoolArray, covariance: FloatArray) -> None:
        self.K, self.root = _precision(covariance)
        self._places = np.flatnonzero(absent.any(axis=1))
        self._absent = absent
        packed = np.packbits(absent[self._places], axis=1)
        keys = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
        _, first, inverse, counts = np.unique(
            keys, return_index=True, return_inverse=True, return_counts=True
        )
        masks = absent[self._places][first]
        sizes = masks.sum(axis=1)
        # Patterns in the order of their size, rows in the order of their patterns.
        order = np.argsort(sizes, kind="stable")
        self._masks, self._sizes = masks[order], sizes[order]
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        pattern_of = rank[inverse.ravel()]
        by_pattern = np.argsort(pattern_of, kind="stable")
        self._rows = self._places[by_pattern]
        self._pattern_of = pattern_of[by_pattern]
        self._starts = np.concatenate([[0], np.cumsum(counts[order])])
        self._keep = int(np.square(self._sizes).sum()) <= _KEPT_VALUES
        self._kept: dict[int, FloatArray] = {}

    def _batches(self) -> Iterator[tuple[int, int, IntArray, FloatArray]]:
        """Yield (first, stop, cells, conditional covariances) of patterns that lack equally many cells."""
        q = len(self.K)
        start = 0
        while start < len(self._sizes):
            m = int(self._sizes[start])
            stop = min(
                int(np.searchsorted(self._sizes, m, "right")), start + max(1, _CHUNK_VALUES // (m * q))
            )
            cells: IntArray = np.nonzero(self._masks[start:stop])[1].reshape(-1, m)
            if start in self._kept:
                C = self._kept[start]
            else:
                C = np.asarray(np.linalg.inv(self.K[cells[:, :, None], cells[:, None, :]]), dtype=np.float64)
                if self._keep:
                    self._kept[start] = C
            yield start, stop, cells, C
            start = stop

    def fill(self, centred: FloatArray) -> FloatArray:
        """(n, q) the centred rows with conditional means in the missing cells; others are to the bit as they were."""
        z = np.where(self._absent, 0.0, centred) / self.root
        for first, stop, cells, C in self._batches():
            m = cells.shape[1]
            width = max(1, _CHUNK_VALUES // (m * m))
            for low in range(int(self._starts[first]), int(self._starts[stop]), width):
                high = min(low + width, int(self._starts[stop]))
                which, pattern = self._rows[low:high], self._pattern_of[low:high] - first
                cell = cells[pattern]
                pull = np.take_along_axis(z[which] @ self.K, cell, axis=1)
                z[which[:, None], cell] = -(C[pattern] @ pull[:, :, None])[:, :, 0]
        return np.where(self._absent, z * self.root, centred)

    def square(self, a: FloatArray, b: FloatArray | None = None) -> float:
        """Sum of ``a K b'`` over rows, in units of the columns."""
        return float(((a / self.root @ self.K) * ((a if b is None else b) / self.root)).sum())

    def _worth(self, weights: FloatArray | None) -> FloatArray:
        """What the rows of each pattern count together; weights are those of all rows."""
        own = None if weights is None else weights[self._rows]
        return np.bincount(self._pattern_of, own, minlength=len(self._sizes)).astype(np.float64)

    def spread(self, weights: FloatArray | None = None) -> FloatArray:
        """(q, q) sum over rows of the conditional covariance of their missing cells."""
        q, worth = len(self.K), self._worth(weights)
        total = np.zeros(q * q)
        for first, stop, cells, C in self._batches():
            flat = cells[:, :, None] * q + cells[:, None, :]
            counted = C * worth[first:stop, None, None]
            total += np.bincount(flat.ravel(), counted.ravel(), minlength=q * q)
        whole = total.reshape(q, q)
        return (whole + whole.T) / 2 * np.outer(self.root, self.root)

    def known(self, weights: FloatArray | None = None) -> FloatArray:
        """(q, q) sum over rows of the products of the shares of residuals that they know."""
        q, worth = len(self.K), self._worth(weights)
        total = np.full((q, q), total_weight(len(self._absent), weights) - worth.sum())
        for first, stop, cells, C in self._batches():
            K_m = self.K[cells]
            lost = ((C @ K_m) * K_m).sum(axis=1)
            share = np.maximum(1.0 - lost / np.diag(self.K), 0.0)
            total += (share * worth[first:stop, None]).T @ share
        return total


def _off_basis(rows: FloatArray, bases: Sequence[FloatArray], patterns: _Patterns) -> FloatArray:
    """(n, q) completed rows off the bases of recordings, whose coefficients fit the present cells best.

    Taking what a basis has of completed rows off them, again and again, leads there slowly where much is missing. It is a
    step towards the solution of a positive system in the precision of the columns: conjugate gradients take few of them.
    """
    present = ~np.isnan(rows)
    values = np.where(present, rows, 0.0)
    Q: Any = block_diag(bases, format="csr")
    cuts = np.cumsum([len(one) for one in bases])[:-1]
    parts = zip(np.split(values, cuts), np.split(present, cuts), bases, strict=True)
    coefficients = np.concatenate([own_coefficients(*part) for part in parts])
    left = patterns.fill(values - Q @ coefficients)
    change = Q.T @ left
    direction, size = change, patterns.square(change)
    for _ in range(_MAX_INNER):
        if np.all(np.abs(change) <= _INNER_TOL * patterns.root):
            break
        ahead = Q.T @ patterns.fill(Q @ direction)
        step = size / patterns.square(direction, ahead)
        coefficients += step * direction
        change = change - step * ahead
        before, size = size, patterns.square(change)
        direction = change + size / before * direction
    left = patterns.fill(values - Q @ coefficients)
    return np.asarray(left - Q @ (Q.T @ left))


def own_coefficients(values: FloatArray, present: BoolArray, Q: FloatArray) -> FloatArray:
    """(k, q) least-squares coefficients of each column over its present cells; absent values are 0."""
    n, k = Q.shape
    q = values.shape[1]
    seen = present.astype(np.float64)
    grams = (seen.T @ (Q[:, :, None] * Q[:, None, :]).reshape(n, k * k)).reshape(q, k, k)
    inverses = _inverses(grams)
    coefficients = np.zeros((k, q))
    for _ in range(2):
        # The second time takes off what rounding left of large means.
        left = (values - Q @ coefficients) * seen
        coefficients += (inverses @ (Q.T @ left).T[:, :, None])[:, :, 0].T
    return coefficients


def _inverses(grams: FloatArray) -> FloatArray:
    """(q, k, k) inverses of positive matrices, with a diagonal of at most 1; pseudo-inverses if one is near singular."""
    k = grams.shape[-1]
    if k == 1:
        return np.asarray(np.where(grams > _COLLINEAR, 1.0 / np.maximum(grams, _COLLINEAR), 0.0))
    try:
        factors = np.linalg.cholesky(grams)
    except np.linalg.LinAlgError:
        factors = np.zeros_like(grams)
    if np.diagonal(factors, axis1=1, axis2=2).min(initial=1.0) > _REGULAR:
        return np.asarray(np.linalg.inv(grams))
    return np.asarray(np.linalg.pinv(grams, rcond=_COLLINEAR, hermitian=True))


def _orthonormal(basis: FloatArray) -> FloatArray:
    """(n, r) orthonormal columns that span the basis."""
    size = np.sqrt(np.square(basis).sum(axis=0))
    scaled = basis[:, size > 0] / size[size > 0]
    if scaled.shape[1] < 2:
        return np.asarray(scaled)
    U, s, _ = np.linalg.svd(scaled, full_matrices=False)
    found: FloatArray = U[:, s > _COLLINEAR * s[0]]
    return found


def _precision(covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(q, q) inverse of the correlations, those that are singular but for rounding made regular; the (q,) roots."""
    R, root = correlations(covariance)
    e, V = np.linalg.eigh(R)
    K = (V / np.maximum(e, _SINGULAR)) @ V.T
    return (K + K.T) / 2, root


def _rows_and_shares(counts: FloatArray) -> tuple[float, FloatArray]:
    """Number of rows with any cell, as if cells were missing independently, and the (q,) share that has each column."""
    own = np.diag(counts)
    q = len(own)
    if not np.all(own > 0):
        return 0.0, np.zeros(q)
    pairs = ~np.eye(q, dtype=bool) & (counts > 0)
    if not pairs.any():
        return float(own.max()), own / own.max()
    N = max(float(np.median((np.outer(own, own)[pairs]) / counts[pairs])), float(own.max()))
    return N, own / N
