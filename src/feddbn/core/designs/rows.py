"""The rows of a design, made from the blocks of a recording.

Rules of this file
------------------
- A row depends on its own segment up to its own time and on public numbers only.
- A stream cut into blocks gives the same rows as the whole segment: smoothing and lags are carried over the cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.design import PRODUCT_REACH, Design
from feddbn.core.designs.lagged import CHUNK_ROWS, Block, stack_lags, stretches

__all__ = ["Rows", "design_rows", "public_blocks"]

_CHUNK_VALUES = 1 << 22


@dataclass(frozen=True)
class Rows:
    """Consecutive design rows (..., m, q), the label of each row's own time or None, and the first row's time.

    The time counts sampling steps from the recording's first row.
    """

    values: FloatArray
    labels: NDArray[np.generic] | None
    time: int


def public_blocks(design: Design, blocks: Iterable[Block]) -> Iterable[Block]:
    """Return the blocks in the design's public origin and scale, or as the columns of its kinds."""
    if design.kinds:
        return (replace(block, values=_coded(design, block.values)) for block in blocks)
    if not (design.origin or design.scale):
        return blocks
    origin, scale = np.array(design.origin or 0.0), np.array(design.scale or 1.0)
    return (replace(block, values=(block.values - origin) / scale) for block in blocks)


def _coded(design: Design, values: FloatArray) -> FloatArray:
    columns = [coding.encode(values[:, j], design.variables[j]) for j, coding in enumerate(design.codings)]
    return np.concatenate(columns, axis=1)


def design_rows(design: Design, blocks: Iterable[Block], chunk_rows: int | None = None) -> Iterator[Rows]:
    """Yield the rows of one recording whose lags lie in the same segment, in pieces of bounded size."""
    p, q = design.n_lags, design.q
    # Wide rows come in shorter pieces, so that memory does not grow with the number of columns.
    size = chunk_rows or min(CHUNK_ROWS, max(1, _CHUNK_VALUES // q))
    averages: list[FloatArray | None] = [None] * len(design.terms)
    for stretch in stretches(public_blocks(design, blocks), p, size):
        m = stretch.values.shape[-2] - p
        rows = np.empty((*stretch.values.shape[:-2], m, q))
        start = 0
        for position, term in enumerate(design.terms):
            before = None if stretch.starts_segment else averages[position]
            features, average = term.basis.features(stretch.values, before)
            # The next stretch of this segment begins m rows later.
            averages[position] = average[..., m - 1, :]
            stop = start + len(term.lags) * features.shape[-1]
            stack_lags(features, term.lags, rows[..., start:stop])
            start = stop
        for product in design.products:
            rows[:, start] = _product(stretch.values, product, m)
            start += 1
        yield Rows(rows, stretch.labels, stretch.time)


def _product(values: FloatArray, product: tuple[int, int, int], m: int) -> FloatArray:
    first, second, lag = product
    at = values[len(values) - m - lag : len(values) - lag]
    a, b = (np.clip(at[:, k], -PRODUCT_REACH, PRODUCT_REACH) for k in (first, second))
    return np.asarray(a * b)
