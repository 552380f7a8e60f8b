"""Cut rows into contiguous segments: at gaps in time and at rows with missing values.

The one place where this is decided. In-memory recordings feed it once, streamed ones batch by batch; the
state carried between batches is the last time and whether the last row was kept, so both give the same
segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.lagged import Block
from feddbn.errors import DataError

__all__ = ["Segmenter"]


class Segmenter:
    """Turns the batches of one recording into blocks.

    Parameters
    ----------
    where
        How messages name the recording, e.g. ``"recording 'r1' of site 'B'"``.
    variables
        Names of the columns, for messages.
    step
        Expected difference of two neighbouring times; larger is a gap, smaller is an error. None without
        times.
    missing
        "drop" removes a row with a missing value and ends the segment there; "error" refuses it.
    time
        Name of the time column, for messages.
    """

    def __init__(
        self,
        where: str,
        variables: Sequence[str],
        step: int | None = None,
        missing: str = "drop",
        time: str = "time",
    ) -> None:
        self.where = where
        self.variables = tuple(variables)
        self.step = step
        self.missing = missing
        self.time = time
        self.n_rows = 0
        self.n_dropped = 0
        self._first_tick: int | None = None
        self._last_tick: int | None = None
        self._last_kept = False

    def feed(
        self,
        values: FloatArray,
        ticks: NDArray[np.int64] | None = None,
        labels: NDArray[np.generic] | None = None,
        unlabelled: NDArray[np.bool_] | None = None,
    ) -> Iterator[Block]:
        """Yield the blocks of the next n rows: values (n, d), times, labels, which labels are missing."""
        n = len(values)
        if n == 0:
            return
        drop = self._unusable(values, unlabelled)
        breaks = np.zeros(n, dtype=bool)
        breaks[0] = not self._last_kept
        if ticks is not None:
            breaks |= self._gaps(ticks)
            self._last_tick = int(ticks[-1])
        times = self._times(n, ticks)
        self.n_rows += n
        if drop is None:
            starts = np.flatnonzero(breaks)
            edges = starts.tolist() if breaks[0] else [0, *starts.tolist()]
            spans = list(zip(edges, [*edges[1:], n], strict=True))
            self._last_kept = True
        else:
            self.n_dropped += int(drop.sum())
            breaks[1:] |= drop[:-1]
            keep = ~drop
            first = keep & (breaks | np.r_[True, drop[:-1]])
            last = keep & np.r_[breaks[1:] | drop[1:], True]
            spans = list(
                zip(np.flatnonzero(first).tolist(), (np.flatnonzero(last) + 1).tolist(), strict=True)
            )
            self._last_kept = bool(keep[-1])
        for start, stop in spans:
            yield Block(
                values[start:stop],
                bool(breaks[start]),
                None if labels is None else labels[start:stop],
                int(times[start]),
            )

    def _times(self, n: int, ticks: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """(n,) sampling steps since the first row; without times every row, kept or dropped, is one."""
        if ticks is None or self.step is None:
            return self.n_rows + np.arange(n)
        if self._first_tick is None:
            self._first_tick = int(ticks[0])
        return np.asarray((ticks - self._first_tick) // self.step)

    def _unusable(self, values: FloatArray, unlabelled: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        # One finite total proves that every value is finite, without an (n, d) mask; the reverse need not
        # hold.
        with np.errstate(invalid="ignore", over="ignore"):
            suspicious = not np.isfinite(values.sum())
        drop = None
        if suspicious:
            infinite = np.isinf(values)
            if infinite.any():
                row, column = np.argwhere(infinite)[0]
                raise DataError(
                    f"{self.where} has an infinite value in column {self.variables[column]!r} at row "
                    f"{self.n_rows + int(row)} (counted from 0); remove it or mark it as missing (NaN)."
                )
            absent = np.isnan(values)
            if self.missing == "error" and absent.any():
                row, column = np.argwhere(absent)[0]
                raise DataError(
                    f"{self.where} has a missing value in column {self.variables[column]!r} at row "
                    f"{self.n_rows + int(row)} (counted from 0); fill it, or use missing='drop' to leave "
                    "such rows out."
                )
            drop = np.asarray(absent.any(axis=1))
        if unlabelled is not None and unlabelled.any():
            if self.missing == "error":
                raise DataError(
                    f"{self.where} has a missing label at row "
                    f"{self.n_rows + int(np.flatnonzero(unlabelled)[0])} "
                    "(counted from 0); fill it, or use missing='drop' to leave such rows out."
                )
            drop = unlabelled if drop is None else drop | unlabelled
        return drop if drop is not None and drop.any() else None

    def _gaps(self, ticks: NDArray[np.int64]) -> NDArray[np.bool_]:
        known = self._last_tick is not None
        before = ticks[0] if self._last_tick is None else self._last_tick
        steps = np.diff(np.concatenate([np.array([before], dtype=np.int64), ticks]))
        wrong = steps <= 0 if known else np.r_[False, steps[1:] <= 0]
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            row = self.n_rows + at
            if steps[at] == 0:
                raise DataError(
                    f"{self.where} has the same time in column {self.time!r} at rows {row - 1} and {row} "
                    "(counted from 0); "
                    "keep one row per time, or name the column that tells recordings apart with series=."
                )
            raise DataError(
                f"{self.where} has a time in column {self.time!r} at row {row} (counted from 0) that is "
                f"earlier than the row before; sort the rows by {self.time!r} or give sort=True, or name the column "
                "that tells recordings apart with series=."
            )
        if self.step is None:
            return np.zeros(len(ticks), dtype=bool)
        small = steps < self.step
        if not known:
            small[0] = False
        if small.any():
            row = self.n_rows + int(np.flatnonzero(small)[0])
            raise DataError(
                f"{self.where} has times in column {self.time!r} at rows {row - 1} and {row} (counted from "
                "0) that are closer "
                "than the sampling step; resample to a regular step, give the right one with freq= "
                "(for example freq='MS' for months), or allow uneven steps with jitter= (for example jitter=0.2)."
            )
        return np.asarray(steps > self.step)
