"""Which step keeps how much of readings at irregular times.

A step keeps two readings of a variable apart if they lie in different steps; otherwise they are averaged. A step that is too
small leaves most of its rows empty, one that is too large averages over what happens within it. Steps are counted from the
zero of the clock, as those of the rows would be: a recording may say how far from there it begins (``start``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import Block, SiteData

__all__ = ["MOST_APART", "StepTable", "step_table"]

MOST_APART = 0.8
"""A step keeps most readings apart if it keeps this share of them."""
# Times are quotients, and those at the beginning of a step must not fall into the one before.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class StepTable:
    """What each of some steps would do to readings.

    Attributes
    ----------
    steps
        (m,) lengths, ascending, in the unit of the times.
    kept
        (m,) share of the readings that a step keeps apart; readings of one variable at one time are one.
    filled
        (m, d) share of the steps, from the first to the last reading of a recording, in which a variable was read.
    """

    variables: tuple[str, ...]
    steps: FloatArray
    kept: FloatArray
    filled: FloatArray

    @property
    def best(self) -> int | None:
        """The place of the largest step that keeps most readings apart, None if there is none."""
        enough = np.flatnonzero(self.kept >= MOST_APART)
        return int(enough[-1]) if len(enough) else None


def step_table(sites: Iterable[SiteData], steps: Sequence[float]) -> StepTable:
    """Return what steps of these lengths would do to sites whose recordings have times (`Block.times`).

    Examples
    --------
    >>> import pandas as pd
    >>> from feddbn.data.steps import step_table
    >>> from feddbn.data import read_sites
    >>> rows = pd.DataFrame({"t": [0, 1, 2.5, 4], "x": [1.0, 2.0, 3.0, 4.0]})
    >>> table = step_table(read_sites(rows, time="t", irregular="keep").values(), [1, 2])
    >>> table.kept.tolist(), table.filled[:, 0].tolist()
    ([1.0, 0.75], [0.8, 1.0])
    """
    lengths = np.sort(np.asarray(steps, dtype=np.float64))
    n_readings, values, n_steps = 0, None, np.zeros(len(lengths))
    variables: tuple[str, ...] = ()
    for site in sites:
        variables = tuple(site.variables)
        for recording in site.recordings():
            counts = [_Count(len(variables), step) for step in lengths]
            for block in recording.blocks():
                n_readings += int((~np.isnan(block.values)).sum())
                for count in counts:
                    count.add(block, float(getattr(recording, "start", 0.0)))
            found = np.array([count.values for count in counts])
            values = found if values is None else values + found
            n_steps += [count.last - count.first + 1 for count in counts]
    total = np.zeros((len(lengths), len(variables))) if values is None else values
    return StepTable(
        variables, lengths, total.sum(axis=1) / max(n_readings, 1), total / np.maximum(n_steps, 1)[:, None]
    )


class _Count:
    """Counts the steps of one length in which each variable was read; a step may go on in the next block."""

    def __init__(self, d: int, step: float) -> None:
        self._step, self.first, self.last = step, 0, -1
        self.values, self._there = np.zeros(d, dtype=np.int64), np.zeros(d, dtype=bool)

    def add(self, block: Block, start: float) -> None:
        if block.times is None or not len(block.values):
            return
        number = np.floor((start + block.times) / self._step + _ROUNDING).astype(np.int64)
        self.first = int(number[0]) if self.last < 0 else self.first
        starts = np.flatnonzero(np.diff(number, prepend=-1))
        there = np.logical_or.reduceat(~np.isnan(block.values), starts, axis=0)
        if number[0] == self.last:
            there[0] &= ~self._there
            self._there = self._there | there[0] if len(there) == 1 else there[-1]
        else:
            self._there = there[-1]
        self.values += there.sum(axis=0)
        self.last = int(number[-1])
