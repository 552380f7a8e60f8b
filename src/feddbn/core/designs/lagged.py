"""From contiguous blocks of rows to lagged rows ``z_t = [x_t, x_{t-1}, ..., x_{t-p}]``.

Orientation, stated once for the whole package: a coefficient matrix is indexed ``[from, to]``; the stack
``C = [W; A_1; ...; A_p]`` has shape ``((p+1) d, d)``; the columns of ``z`` are in the same order as the rows
of ``C``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray

__all__ = ["CHUNK_ROWS", "Block", "Stretch", "lagged_rows", "stack_lags", "stretches"]

CHUNK_ROWS = 4096


@dataclass(frozen=True)
class Block:
    """Rows that directly follow each other in time.

    Attributes
    ----------
    values
        (n, d), finite; with ``missing="keep"`` NaN where a cell is missing (`complete` leaves such rows out). Leading
        axes are sites that are read together (`stacked`).
    starts_segment
        False if the first row directly follows the last row of the block before it; a lag may then reach
        back.
    labels
        One label per row, or None; used to centre rows group by group.
    time
        Sampling steps from the recording's first row to this block's first; None if no time is known to have
        passed since the block before.
    """

    values: FloatArray
    starts_segment: bool = True
    labels: NDArray[np.generic] | None = None
    time: int | None = None


@dataclass(frozen=True)
class Stretch:
    """Contiguous rows of one segment, of which the last m are usable: the first p serve as their lags.

    Attributes
    ----------
    values
        (..., p + m, d).
    starts_segment
        Whether no stretch of this segment came before.
    labels
        (m,) labels of the usable rows, or None.
    time
        Sampling steps from the recording's first row to the first usable one.
    """

    values: FloatArray
    starts_segment: bool
    labels: NDArray[np.generic] | None
    time: int


def stretches(blocks: Iterable[Block], n_lags: int, chunk_rows: int = CHUNK_ROWS) -> Iterator[Stretch]:
    """Yield every usable row once, with its lags, at most `chunk_rows` of them at a time.

    A row is usable if its `n_lags` predecessors lie in the same segment. Blocks are cut, not copied; where one
    continues a segment, the `n_lags` rows before it are put in front of its first chunk.
    """
    tail: FloatArray | None = None
    is_first, clock = True, 0
    for block in blocks:
        values = block.values
        clock = clock if block.time is None else block.time
        if block.starts_segment or tail is None:
            tail, is_first = values[..., :0, :], True
        n_carried, n = tail.shape[-2], values.shape[-2]
        n_usable = n_carried + n - n_lags
        for start in range(0, n_usable, chunk_rows):
            low, high = start - n_carried, min(start + chunk_rows, n_usable) + n_lags - n_carried
            if low >= 0:
                rows = values[..., low:high, :]
            else:
                rows = np.concatenate([tail[..., start:, :], values[..., :high, :]], axis=-2)
            labels = None if block.labels is None else block.labels[low + n_lags : high]
            yield Stretch(rows, is_first, labels, clock + low + n_lags)
            is_first = False
        clock += n
        if n < n_lags:
            values = np.concatenate([tail, values], axis=-2)
        tail = values[..., max(values.shape[-2] - n_lags, 0) :, :]


def lagged_rows(blocks: Iterable[Block], n_lags: int, chunk_rows: int = CHUNK_ROWS) -> Iterator[FloatArray]:
    """Yield arrays (m, (n_lags+1) d) whose rows are z_t, at most `chunk_rows` rows each."""
    for stretch in stretches(blocks, n_lags, chunk_rows):
        m, d = len(stretch.values) - n_lags, stretch.values.shape[1]
        rows = np.empty((m, (n_lags + 1) * d))
        stack_lags(stretch.values, range(n_lags + 1), rows)
        yield rows


def stack_lags(values: FloatArray, lags: Sequence[int], out: FloatArray) -> None:
    """Write the values (..., p + m, k) at each of the lags, side by side, into the m rows of `out`."""
    m, (n, k) = out.shape[-2], values.shape[-2:]
    for position, lag in enumerate(lags):
        first = n - m - lag
        out[..., position * k : (position + 1) * k] = values[..., first : first + m, :]
