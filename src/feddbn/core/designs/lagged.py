"""From contiguous blocks of rows to lagged rows ``z_t = [x_t, x_{t-1}, ..., x_{t-p}]``.

Orientation, stated once for the whole package: a coefficient matrix is indexed ``[from, to]``; the stack
``C = [W; A_1; ...; A_p]`` has shape ``((p+1) d, d)``; the columns of ``z`` are in the same order as the rows
of ``C``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray

__all__ = ["Block", "lagged_rows"]


@dataclass(frozen=True)
class Block:
    """Rows that directly follow each other in time.

    Attributes
    ----------
    values
        (n, d), finite.
    starts_segment
        False if the first row directly follows the last row of the block before it; a lag may then reach
        back.
    labels
        One label per row, or None; used to centre rows group by group.
    """

    values: FloatArray
    starts_segment: bool = True
    labels: NDArray[np.generic] | None = None


def lagged_rows(blocks: Iterable[Block], n_lags: int, chunk_rows: int = 4096) -> Iterator[FloatArray]:
    """Yield arrays (m, (n_lags+1) d) whose rows are z_t, at most `chunk_rows` rows each.

    A row is usable if its `n_lags` predecessors lie in the same segment. Memory is bounded by the largest
    block plus one chunk; the last `n_lags` rows of a block are carried into the next when it continues the
    segment.
    """
    tail: FloatArray | None = None
    for block in blocks:
        values = block.values
        if block.starts_segment:
            tail = None
        if tail is not None and len(tail):
            values = np.concatenate([tail, values])
        n_usable = len(values) - n_lags
        for start in range(0, max(n_usable, 0), chunk_rows):
            stop = min(start + chunk_rows, n_usable)
            yield _stack_lags(values[start : stop + n_lags], n_lags)
        tail = values[max(len(values) - n_lags, 0) :]


def _stack_lags(values: FloatArray, n_lags: int) -> FloatArray:
    m, d = len(values) - n_lags, values.shape[1]
    rows = np.empty((m, (n_lags + 1) * d))
    for lag in range(n_lags + 1):
        rows[:, lag * d : (lag + 1) * d] = values[n_lags - lag : n_lags - lag + m]
    return rows
