"""Which norm bounds a unit's vector, and which bound is worth its noise; `grid` clips and adds the noise.

A vector's norm is ``|weights * v|``; the noise on coordinate i then has standard deviation ``sigma /
weights[i]``. For the sums of a Gram matrix (count, totals, upper triangle), `gram_weights` makes this the
Frobenius norm of the full symmetric matrix and the noise a symmetric Gaussian matrix: sigma on the diagonal,
sigma / sqrt(2) off it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import DataError, ParameterError

__all__ = [
    "choose_clip",
    "gram_weights",
    "norm_edges",
    "norm_histogram",
]


def gram_weights(q: int, count: float = 1.0, total: float = 1.0) -> FloatArray:
    """Return weights for a vector (count, q totals, upper triangle of q x q): Frobenius norm of the matrix.

    `count` and `total` above 1 spend more of the bound on the number of rows and on the totals, and so make
    their noise smaller; what they are worth depends on the units of the data.
    """
    rows, columns = np.triu_indices(q)
    off = np.where(rows == columns, 1.0, np.sqrt(2.0))
    return np.concatenate([[count], np.full(q, total), off])


def norm_edges(low: float = 1e-6, high: float = 1e12, per_octave: int = 2) -> FloatArray:
    """Return public, data-independent edges between norms, a constant ratio apart."""
    n = int(np.ceil(np.log2(high / low) * per_octave)) + 1
    return np.asarray(low * 2.0 ** (np.arange(n) / per_octave))


def norm_histogram(
    units: Iterable[FloatArray], edges: FloatArray, weights: FloatArray | None = None
) -> list[FloatArray]:
    """Return one indicator vector (len(edges),) for each unit: its norm is at most edges[i], more than
    edges[i-1].
    """
    indicators = []
    for vector in units:
        norm = float(np.linalg.norm(vector if weights is None else weights * vector))
        one = np.zeros(len(edges))
        one[min(int(np.searchsorted(edges, norm)), len(edges) - 1)] = 1.0
        indicators.append(one)
    return indicators


def choose_clip(histogram: FloatArray, edges: FloatArray, sigma: float, quantile: float = 0.9) -> float:
    """Return the smallest edge below which about `quantile` of the units lie, from a noisy histogram.

    Bins within three standard deviations of zero are read as empty, so that noise in empty bins does not add
    up to units that are not there.
    """
    if not 0 < quantile <= 1:
        raise ParameterError(f"quantile must lie in (0, 1], got {quantile}.")
    counts = np.where(histogram > 3 * sigma, histogram, 0.0)
    if not counts.any():
        raise DataError(
            "the noisy histogram of norms is empty at this noise level; use more recordings or a larger epsilon, or, for "
            "straight lines, give the clipping bound instead."
        )
    cumulative = np.cumsum(counts)
    return float(edges[int(np.searchsorted(cumulative, quantile * cumulative[-1]))])
