"""What happens to the cells of a site before rows are made of them: wrong ones become empty, units become one.

Rules of this file
------------------
- Public numbers and the site's own robust scales decide, never another site's data.
- A segment cut into blocks is treated like the whole segment: the rows next to a cut are looked at from both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.lagged import Block
from feddbn.core.designs.recordings import Recording, SiteData
from feddbn.core.statistics.survey import (
    OWN_SCALE_CELLS,
    TAIL,
    bin_counts,
    deviations,
    lagged_profile,
    robust_scale,
    without_slow_part,
)

__all__ = ["TreatedSite", "block_deviations", "common_limits", "limits_of", "site_profile"]

_REACH = 3
"""How many rows on either side the running median of `deviations` looks at."""
_INPUT_REACH = 8
"""How many rows back inputs are looked at when what they do is taken off."""
_ROWS_PER_WEIGHT = 8


def block_deviations(blocks: Iterable[Block]) -> Iterator[tuple[Block, FloatArray]]:
    """Yield each block with the deviations of its cells from their running medians."""
    before = np.empty((0, 0))
    waiting: Block | None = None

    def looked_at(block: Block, after: FloatArray) -> tuple[Block, FloatArray]:
        n, start = len(block.values), len(before)
        parts = [part for part in (before, block.values, after) if len(part)]
        return block, deviations(np.concatenate(parts) if len(parts) > 1 else parts[0])[start : start + n]

    for block in blocks:
        if not len(block.values):
            continue
        if waiting is not None:
            goes_on = not block.starts_segment
            yield looked_at(waiting, block.values[:_REACH] if goes_on else block.values[:0])
            before = waiting.values[-_REACH:] if goes_on else block.values[:0]
        waiting = block
    if waiting is not None:
        yield looked_at(waiting, waiting.values[:0])


def limits_of(data: SiteData, common: FloatArray, far: float = TAIL) -> FloatArray:
    """(d,) how far a cell may be from its running median: by the site's own scale, or if it has few cells the common one.

    `common` has robust standard deviations of all sites together; 0 there sets no limit. `far` of them are too far.
    """
    d = len(data.variables)
    counts = np.zeros((d, 0))
    for recording in data.recordings():
        for _, deviation in block_deviations(recording.blocks()):
            found = bin_counts(deviation)
            counts = counts + found if counts.size else found
    own = robust_scale(counts) if counts.size else np.zeros(d)
    enough = counts.sum(axis=1) >= OWN_SCALE_CELLS
    scale = np.where(enough & (own > 0), own, common)
    return common_limits(np.where(common > 0, scale, 0.0), far)


def common_limits(scale: FloatArray, far: float = TAIL) -> FloatArray:
    """(d,) how far a cell may be from its running median by given scales alone; 0 sets no limit."""
    return np.where(scale > 0, far * scale, np.inf)


def site_profile(
    data: SiteData, n_lags: int, columns: Sequence[int] | None = None
) -> tuple[FloatArray, float] | None:
    """What a site is compared by (`survey.lagged_profile`), from all of its recordings.

    `columns` are the variables to compare; what the others, known inputs, do to them is taken off first.
    """
    d = len(data.variables)
    chosen = list(range(d) if columns is None else columns)
    inputs = [j for j in range(d) if j not in chosen]
    parts = (
        _without_inputs(without_slow_part(block.values), chosen, inputs)
        for recording in data.recordings()
        for block in recording.blocks()
    )
    return lagged_profile(parts, len(chosen), n_lags)


def _without_inputs(rest: FloatArray, columns: list[int], inputs: list[int]) -> FloatArray:
    """The columns without what inputs of the same row and of a few rows before explain, by least squares."""
    found, n = rest[:, columns], len(rest)
    reach = min(_INPUT_REACH, n // (_ROWS_PER_WEIGHT * max(len(inputs), 1)) - 1)
    if not inputs or reach < 0:
        return found
    known = np.nan_to_num(rest[:, inputs])
    # Before the first row nothing is known; what is done is taken to have begun with it.
    before = np.concatenate([np.repeat(known[:1], reach, axis=0), known])
    rows = np.concatenate([before[reach - lag : reach - lag + n] for lag in range(reach + 1)], axis=1)
    left = np.full_like(found, np.nan)
    for j in range(len(columns)):
        here = ~np.isnan(found[:, j])
        weights = np.linalg.lstsq(rows[here], found[here, j], rcond=1e-8)[0]
        left[here, j] = found[here, j] - rows[here] @ weights
    return left


@dataclass(frozen=True)
class TreatedSite:
    """A site whose cells are treated as a question asks.

    Attributes
    ----------
    limits
        (d,) cells farther than this from their running median are empty; None: none are.
    gains
        (d,) values are multiplied by these; None: they stay.
    """

    data: SiteData
    limits: FloatArray | None = None
    gains: FloatArray | None = None

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.data.variables

    def recordings(self) -> Iterator[Recording]:
        """Yield the recordings with treated cells."""
        return (_Treated(recording, self.limits, self.gains) for recording in self.data.recordings())


@dataclass(frozen=True)
class _Treated:
    recording: Recording
    limits: FloatArray | None
    gains: FloatArray | None

    @property
    def name(self) -> str:
        return self.recording.name

    def blocks(self) -> Iterator[Block]:
        blocks: Iterable[Block] = self.recording.blocks()
        if self.limits is not None:
            limits = self.limits
            blocks = (
                replace(block, values=np.where(deviation > limits, np.nan, block.values))
                for block, deviation in block_deviations(blocks)
            )
        for block in blocks:
            yield block if self.gains is None else replace(block, values=block.values * self.gains)
