"""Which blocks a resample contains, as counts: a resample of sums is a weighted sum of block sums.

Rows ``z_t = [x_t, ..., x_{t-p}]`` already hold their lags, so cutting between two of them never breaks a lag.
Non-overlapping blocks (Carlstein 1986) keep the dependence between neighbouring rows and make a resample
cheap: with the sums of every block in a matrix ``S`` (m, L), the sums of all resamples are ``counts @ S``,
without reading a row again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.moments import sums_length
from feddbn.errors import ParameterError
from feddbn.settings import word

RESAMPLINGS = ("bootstrap", "stability")


def cube_root_length(n_rows: int) -> int:
    """Block length ``ceil(n^(1/3))``: the rate that balances bias and variance of a block bootstrap
    variance.
    """
    return max(1, int(np.ceil(round(n_rows ** (1 / 3), 9))))


def block_sizes(n_rows: int, block_length: int) -> NDArray[np.int64]:
    """Sizes of the blocks that `n_rows` consecutive rows are cut into: as near to `block_length` as equal
    sizes allow.
    """
    if n_rows == 0:
        return np.zeros(0, dtype=np.int64)
    n_blocks = max(1, round(n_rows / block_length))
    sizes = np.full(n_blocks, n_rows // n_blocks, dtype=np.int64)
    sizes[: n_rows % n_blocks] += 1
    return sizes


def block_sums(rows: FloatArray, sizes: NDArray[np.int64], origin: FloatArray) -> FloatArray:
    """(m, L) `Moments.to_sums` of each block of consecutive rows (n, q), all blocks of one size in one
    product.
    """
    q = rows.shape[1]
    sums = np.empty((len(sizes), sums_length(q)))
    upper = np.triu_indices(q)
    centred = rows - origin
    starts = np.cumsum(sizes) - sizes
    for size in np.unique(sizes):
        which = np.flatnonzero(sizes == size)
        blocks = centred[starts[which, None] + np.arange(size)]
        sums[which, 0] = size
        sums[which, 1 : 1 + q] = blocks.sum(axis=1)
        sums[which, 1 + q :] = (blocks.transpose(0, 2, 1) @ blocks)[:, upper[0], upper[1]]
    return sums


def resample_counts(
    n_blocks: int, resampling: str, second: bool, rng: np.random.Generator
) -> NDArray[np.float64]:
    """(n_blocks,) how often each block is in the resample.

    ``"bootstrap"`` draws n_blocks times with replacement. ``"stability"`` takes half of the blocks; with
    `second` and a generator in the same state it takes the other half (complementary pairs, Shah and
    Samworth 2013). An odd block goes to either half by a coin, so that a single block is in or out.
    """
    if resampling == "bootstrap":
        return np.bincount(rng.integers(n_blocks, size=n_blocks), minlength=n_blocks).astype(np.float64)
    if resampling != "stability":
        raise ParameterError(f"resampling must be one of {', '.join(RESAMPLINGS)}, got {resampling!r}.")
    order = rng.permutation(n_blocks)
    half = (n_blocks + int(rng.integers(2))) // 2
    counts = np.full(n_blocks, float(second))
    counts[order[:half]] = float(not second)
    return counts


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
