"""What a site can say about its rows before anybody learns from them: tails, cycles, and how it compares.

All of it adds up over recordings, and none of it is a total or a product of the data: what a site tells here cannot be
taken off what it tells later, or the other way round.

    deviation    |x_t - running median|, in steps of half an octave of the unit: robust scales without agreeing on one
    spectrum     periodograms of recordings without their slow parts, each over its own variance
    profile      log standard deviations and Fisher's z of lagged correlations of a site: what sites are compared by
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from scipy.fft import rfft

from feddbn.core.arrays import BoolArray, FloatArray, by_row, may_lack_cells, rows_in_cache
from feddbn.core.designs.lagged import stack_lags

__all__ = [
    "N_BINS",
    "N_FREQUENCIES",
    "OWN_SCALE_CELLS",
    "TAIL",
    "bin_counts",
    "deviations",
    "fisher_z",
    "lagged_profile",
    "median_of_counts",
    "periodogram",
    "profile_length",
    "robust_scale",
    "tail_counts",
    "without_slow_part",
]

N_BINS = 192
"""Bins of half an octave from 2^-48 to 2^48; smaller deviations, 0 too, are in the first and larger ones in the last."""
_LOWEST = -48.0
N_FREQUENCIES = 1025
"""0 to half a turn per row."""
_PIECE = 2 * (N_FREQUENCIES - 1)
_WINDOW = 7
TAIL = 12.0
"""Cells farther from the running median than this many robust standard deviations may be errors. Of exponential noise one
cell in some thousands is, of Gaussian noise none."""
_PULLED_IN = 6.0
OWN_SCALE_CELLS = 50
"""A site with fewer cells of a variable has no scale of its own."""
_SLOW_ROWS = 50
"""Shorter recordings only lose their mean: a cubic would take a good part of the rest."""
_SPECTRUM_ROWS = 48
_GAUSSIAN_MEDIAN = 0.6744897501960817


def deviations(values: FloatArray) -> FloatArray:
    """(n, d) distance of each cell from the median of the cells around it in time; NaN where a cell is empty."""
    filled = values
    if may_lack_cells(values):
        filled = _interpolated(values, np.isnan(values))
    distance = np.subtract(values, _running_median(filled))
    return np.abs(distance, out=distance)


def _running_median(values: FloatArray) -> FloatArray:
    """Medians of the rows around each row, which are mirrored at the ends."""
    reach = min(_WINDOW // 2, len(values) - 1)
    if reach < 1:
        return values
    padded = np.concatenate([values[reach:0:-1], values, values[-2 : -2 - reach : -1]])
    if 2 * reach + 1 < _WINDOW:
        windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1, axis=0)
        return np.asarray(np.median(windows, axis=2))
    n, d = values.shape
    found = np.empty((n, d))
    at_once = rows_in_cache(d)
    for start in range(0, n, at_once):
        part = padded[start : start + at_once + 2 * reach]
        found[start : start + at_once] = _medians_of_seven(part.ravel(), d).reshape(-1, d)
    return found


def _medians_of_seven(flat: FloatArray, d: int) -> FloatArray:
    """Running medians over seven rows of d values, written one after the other.

    Seven rows are a middle one and two triples, which are sorted once for all windows they are in. The median is the
    middle cell, kept between the third and the fourth of the six others; of two sorted triples a and b the third is the
    least of a3, b3, max(a1, b2) and max(a2, b1), and the fourth the same from above.
    """
    first, second, third = flat[: -2 * d], flat[d:-d], flat[2 * d :]
    low, high = np.minimum(first, second), np.maximum(first, second)
    between = np.maximum(low, third)
    np.minimum(low, third, out=low)
    middle = np.minimum(between, high)
    np.maximum(between, high, out=high)
    a1, a2, a3 = (part[: -4 * d] for part in (low, middle, high))
    b1, b2, b3 = (part[4 * d :] for part in (low, middle, high))
    below, above, spare = np.minimum(a3, b3), np.maximum(a1, b1), np.maximum(a1, b2)
    np.minimum(below, spare, out=below)
    np.minimum(below, np.maximum(a2, b1, out=spare), out=below)
    np.maximum(above, np.minimum(a3, b2, out=spare), out=above)
    np.maximum(above, np.minimum(a2, b3, out=spare), out=above)
    np.maximum(below, flat[3 * d : -3 * d], out=below)
    return np.minimum(below, above, out=below)


def _interpolated(values: FloatArray, absent: BoolArray) -> FloatArray:
    filled, t = values.copy(), np.arange(len(values))
    for j in np.flatnonzero(absent.any(axis=0)):
        here = ~absent[:, j]
        filled[:, j] = np.interp(t, t[here], values[here, j]) if here.any() else 0.0
    return filled


def bin_counts(deviation: FloatArray) -> FloatArray:
    """(d, N_BINS) how many cells deviate by how much."""
    n, d = deviation.shape
    at_once, first = rows_in_cache(d), N_BINS * np.arange(d, dtype=np.float64)
    total = np.zeros(d * N_BINS, dtype=np.int64)
    for start in range(0, n, at_once):
        part = deviation[start : start + at_once]
        with np.errstate(divide="ignore", invalid="ignore"):
            place = np.log2(part)
        place -= _LOWEST
        place *= 2.0
        np.clip(np.floor(place, out=place), 0, N_BINS - 1, out=place)
        by_row(np.add, place, first, place)
        places = place[~np.isnan(place)] if may_lack_cells(place) else place.ravel()
        total += np.bincount(places.astype(np.int64), minlength=d * N_BINS)
    return total.reshape(d, N_BINS).astype(np.float64)


def median_of_counts(counts: FloatArray) -> FloatArray:
    """(d,) medians of deviations from their counts (d, N_BINS); 0 where half of the cells do not deviate at all."""
    total = counts.sum(axis=1)
    below = np.cumsum(counts, axis=1)
    half, found = total / 2, np.zeros(len(counts))
    place = (below < half[:, None]).sum(axis=1)
    j = np.flatnonzero((total > 0) & (place > 0))
    k = place[j]
    share = (half[j] - below[j, k - 1]) / counts[j, k]
    found[j] = [2.0**power for power in _LOWEST + (k + share) / 2.0]
    return found


def robust_scale(counts: FloatArray) -> FloatArray:
    """(d,) standard deviations that Gaussian cells with these medians of deviations would have."""
    return median_of_counts(counts) / _GAUSSIAN_MEDIAN


def tail_counts(counts: FloatArray) -> FloatArray:
    """(d,) how many cells are farther out than `TAIL` robust standard deviations; 0 where there is no scale.

    Those in the bin of the limit itself are left out.
    """
    scale = robust_scale(counts)
    found = np.zeros(len(counts))
    for j in np.flatnonzero(scale):
        first = int(np.floor(2.0 * (np.log2(TAIL * scale[j]) - _LOWEST))) + 1
        found[j] = counts[j, first:].sum()
    return found


_KEPT_ROWS = 1 << 16


def _slow_columns(n: int) -> FloatArray:
    place = np.linspace(-1.0, 1.0, n) if n > 1 else np.zeros(n)
    return np.asarray(np.polynomial.legendre.legvander(place, 3 if n >= _SLOW_ROWS else 0))


@lru_cache(maxsize=4)
def _slow_basis(n: int) -> FloatArray:
    """Orthonormal; many recordings have as many rows as the one before."""
    return np.linalg.qr(_slow_columns(n))[0]


def without_slow_part(values: FloatArray) -> FloatArray:
    """The rows of a recording without a cubic in time, or if they are few without their mean; NaN stays NaN."""
    n, d = values.shape
    absent = np.isnan(values) if may_lack_cells(values) else None
    if absent is None or not absent.any():
        Q = _slow_basis(n) if n <= _KEPT_ROWS else np.linalg.qr(_slow_columns(n))[0]
        slow = Q @ (Q.T @ values)
        return np.subtract(values, slow, out=slow)
    B, rest = _slow_columns(n), np.full_like(values, np.nan)
    for j in range(d):
        here = ~absent[:, j]
        if here.sum() > B.shape[1]:
            coefficients = np.linalg.lstsq(B[here], values[here, j], rcond=None)[0]
            rest[here, j] = values[here, j] - B[here] @ coefficients
    return rest


def periodogram(rest: FloatArray) -> tuple[FloatArray, float]:
    """(N_FREQUENCIES,) periodograms of the columns of one recording, each over its variance, summed, and how many.

    Longer recordings are cut; white noise gives 1 at every frequency and column.
    """
    total, number = np.zeros(N_FREQUENCIES), 0.0
    for start in range(0, len(rest), _PIECE):
        piece = rest[start : start + _PIECE]
        n = len(piece)
        if n < _SPECTRUM_ROWS:
            continue
        # Columns become rows: sums along them are quicker, and so are transforms.
        columns = np.ascontiguousarray((np.nan_to_num(piece) if may_lack_cells(piece) else piece).T)
        variance = columns.var(axis=1)
        varies = variance > 0
        if not varies.any():
            continue
        waves = rfft(columns if varies.all() else columns[varies], n=_PIECE, axis=1)
        parts = waves.view(np.float64)
        power = (1.0 / (n * variance[varies])) @ np.square(parts, out=parts)
        total += power[0::2] + power[1::2]
        number += float(varies.sum())
    return total, number


def profile_length(d: int, n_lags: int) -> int:
    """Return the length of `lagged_profile`."""
    q = (n_lags + 1) * d
    return d + q * (q - 1) // 2


def lagged_profile(parts: Iterable[FloatArray], d: int, n_lags: int) -> tuple[FloatArray, float] | None:
    """Log standard deviations (d,) and Fisher's z of the correlations of lagged rows, and the number of rows.

    `parts` are contiguous rows without their slow parts. Extreme cells are pulled in to six robust standard deviations.
    None if a variable has too few cells.
    """
    pieces = list(parts)
    q = (n_lags + 1) * d
    every = np.concatenate(pieces) if pieces else np.empty((0, d))
    known = (~np.isnan(every)).sum(axis=0)
    if known.min(initial=len(every)) < q + 8 or not len(every):
        return None
    bound = _PULLED_IN * np.nanmedian(np.abs(every), axis=0) / _GAUSSIAN_MEDIAN
    bound[bound == 0] = np.inf
    N, S = np.zeros((q, q)), np.zeros((q, q))
    n = 0.0
    for piece in pieces:
        m = len(piece) - n_lags
        if m <= 0:
            continue
        rows = np.empty((m, q))
        stack_lags(np.clip(piece, -bound, bound), range(n_lags + 1), rows)
        here = ~np.isnan(rows)
        filled = np.where(here, rows, 0.0)
        S += filled.T @ filled
        mask = here.astype(float)
        N += mask.T @ mask
        n += m
    if N.min() < 8 or np.any(np.diag(S) <= 0):
        return None
    C = S / N
    root = np.sqrt(np.diag(C))
    r = C / np.outer(root, root)
    upper = np.triu_indices(q, 1)
    return np.concatenate([np.log(root[:d]), fisher_z(r[upper])]), float(np.median(N))


def fisher_z(r: FloatArray) -> FloatArray:
    """Fisher's z of correlations; those beyond .995 count as .995."""
    return np.asarray(np.arctanh(np.clip(r, -0.995, 0.995)))
