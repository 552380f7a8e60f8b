"""Cut rows into contiguous segments: at gaps in time and, unless they are kept, at rows with missing values.

The one place where this is decided. In-memory recordings feed it once, streamed ones batch by batch; the
state carried between batches is the last time, whether the last row was kept, and empty rows of which the
next batch decides, so both give the same segments.

Rules
-----
- A row without a label, where labels are asked for, is left out and ends the segment.
- "drop" does the same with a row with any missing cell.
- "keep" leaves such rows where they are, NaN where a cell is missing. Rows of which nothing is present keep the
  clock between two others; they are left out where they lead or trail a segment, and more than `MOST_EMPTY` of them in
  a row end it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import Block
from feddbn.errors import DataError

__all__ = ["MISSING", "MOST_EMPTY", "Segmenter"]

MISSING = ("drop", "keep", "error")
"""What can be done about missing cells."""
_HOUR = 3600 * 10**9
MOST_EMPTY = 10
"""How many rows without any cell may lie within a segment, one after the other."""


@dataclass(frozen=True)
class _Held:
    """Empty rows at the end of a batch: part of the segment if a row follows soon, left out if none does."""

    values: FloatArray
    labels: NDArray[np.generic] | None
    times: NDArray[np.int64]


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
        "drop" removes a row with a missing value and ends the segment there; "keep" leaves it in, see above;
        "error" refuses it.
    time
        Name of the time column, for messages.
    fills
        A gap of so many rows is none: empty rows stand there.

    Attributes
    ----------
    is_local
        Whether times are nanoseconds of dates whose time zone nobody says.
    """

    def __init__(
        self,
        where: str,
        variables: Sequence[str],
        step: int | None = None,
        missing: str = "drop",
        time: str = "time",
        fills: Sequence[int] = (),
    ) -> None:
        self.where = where
        self.variables = tuple(variables)
        self.step = step
        self.missing = missing
        self.time = time
        self.n_rows = self._n_kept = 0
        self._fills, self.is_local = fills, False
        self.first_tick: int | None = None
        self._last_tick: int | None = None
        self._last_kept = False
        self._held: _Held | None = None
        self.has_empty = False

    @property
    def n_dropped(self) -> int:
        """Number of rows that are in no segment so far."""
        return self.n_rows - self._n_kept

    def feed(
        self,
        values: FloatArray,
        ticks: NDArray[np.int64] | None = None,
        labels: NDArray[np.generic] | None = None,
        unlabelled: NDArray[np.bool_] | None = None,
    ) -> Iterator[Block]:
        """Yield the blocks of the next n rows: values (n, d), times, labels, which labels are missing."""
        if len(values) == 0:
            return
        if ticks is not None and self._fills:
            values, ticks, labels, unlabelled = self._filled(values, ticks, labels, unlabelled)
        n = len(values)
        hollow = self._unusable(values, unlabelled)
        breaks = np.zeros(n, dtype=bool)
        if ticks is not None:
            breaks |= self._gaps(ticks)
            self._last_tick = int(ticks[-1])
        times = self._times(n, ticks)
        self.n_rows += n
        if unlabelled is not None and unlabelled.any():
            breaks |= unlabelled
            breaks[1:] |= unlabelled[:-1]
        if self._held is not None:
            held, self._held = self._held, None
            k = len(held.values)
            values = np.concatenate([held.values, values])
            times = np.concatenate([held.times, times])
            breaks = np.concatenate([np.zeros(k, dtype=bool), breaks])
            hollow = np.concatenate(
                [np.ones(k, dtype=bool), np.zeros(n, dtype=bool) if hollow is None else hollow]
            )
            if labels is not None and held.labels is not None:
                labels = np.concatenate([held.labels, labels])
        for start, stop, is_new in self._spans(breaks, hollow):
            self._n_kept += stop - start
            yield Block(
                values[start:stop], is_new, None if labels is None else labels[start:stop], int(times[start])
            )
        # What trails the last full row waits for the next batch.
        if hollow is not None and hollow[-1] and self._last_kept:
            rest = slice(len(hollow) - int(np.argmin(hollow[::-1])) if not hollow.all() else 0, None)
            self._held = _Held(values[rest], None if labels is None else labels[rest], times[rest])

    def _filled(
        self, values: FloatArray, ticks: NDArray[np.int64], *labels: NDArray[Any] | None
    ) -> tuple[Any, ...]:
        """The same with empty rows where so many are missing; they have the labels of the rows after them."""
        step = self.step or 1
        before = ticks[0] if self._last_tick is None else self._last_tick
        lacking = np.diff(ticks, prepend=before) // step - 1
        lacking = np.where(np.isin(lacking, self._fills), lacking, 0)
        if not lacking.any():
            return values, ticks, *labels
        times = lacking + 1
        own = np.cumsum(times) - 1
        row = np.repeat(np.arange(len(values)), times)
        wide = np.full((len(row), values.shape[1]), np.nan)
        wide[own] = values
        ticks = ticks[row] - step * (own[row] - np.arange(len(row)))
        return wide, ticks, *(None if one is None else one[row] for one in labels)

    def _spans(
        self, breaks: NDArray[np.bool_], hollow: NDArray[np.bool_] | None
    ) -> list[tuple[int, int, bool]]:
        """(start, stop, begins a segment) of the rows to keep; a segment goes from one full row to another."""
        n = len(breaks)
        follows = self._last_kept
        if hollow is None:
            starts = np.flatnonzero(breaks[1:]) + 1
            edges = [0, *starts.tolist(), n]
            self._last_kept = True
            begins = [bool(breaks[0]) or not follows, *[True] * len(starts)]
            return list(zip(edges[:-1], edges[1:], begins, strict=True))
        most = MOST_EMPTY if self.missing == "keep" else 0
        n_breaks = np.cumsum(breaks)
        full = np.flatnonzero(~hollow)
        if len(full) == 0:
            self._last_kept = follows and n <= most and not breaks.any()
            return []
        far = (np.diff(full) > most + 1) | (np.diff(n_breaks[full]) > 0)
        firsts, lasts = full[np.r_[True, far]].tolist(), full[np.r_[far, True]].tolist()
        goes_on = follows and full[0] <= most and n_breaks[full[0]] == 0
        if goes_on:
            firsts[0] = 0
        self._last_kept = n - 1 - lasts[-1] <= most and n_breaks[-1] == n_breaks[lasts[-1]]
        return [
            (first, last + 1, not (goes_on and k == 0))
            for k, (first, last) in enumerate(zip(firsts, lasts, strict=True))
        ]

    def _times(self, n: int, ticks: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """(n,) sampling steps since the first row; without times every row, kept or dropped, is one."""
        if ticks is None or self.step is None:
            return self.n_rows + np.arange(n)
        if self.first_tick is None:
            self.first_tick = int(ticks[0])
        return np.asarray((ticks - self.first_tick) // self.step)

    def _unusable(self, values: FloatArray, unlabelled: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        """(n,) rows that cannot begin or end a segment, None if there are none."""
        # One finite total proves that every value is finite, without an (n, d) mask; the reverse need not hold.
        with np.errstate(invalid="ignore", over="ignore"):
            suspicious = not np.isfinite(values.sum())
        drop = None
        if suspicious:
            infinite = np.isinf(values)
            if infinite.any():
                row, column = np.argwhere(infinite)[0]
                raise DataError(
                    f"{self.where} has an infinite value in column {self.variables[column]!r} at row "
                    f"{self.n_rows + int(row)} (counted from 0); remove it or mark it as missing (NaN).",
                    code="infinite",
                )
            absent = np.isnan(values)
            if self.missing == "error" and absent.any():
                row, column = np.argwhere(absent)[0]
                raise DataError(
                    f"{self.where} has a missing value in column {self.variables[column]!r} at row "
                    f"{self.n_rows + int(row)} (counted from 0); fill it, or use missing='drop' to leave "
                    "such rows out.",
                    code="missing-value",
                )
            self.has_empty = self.has_empty or (self.missing == "keep" and bool(absent.any()))
            drop = np.asarray(absent.all(axis=1) if self.missing == "keep" else absent.any(axis=1))
        if unlabelled is not None and unlabelled.any():
            if self.missing == "error":
                raise DataError(
                    f"{self.where} has a missing label at row "
                    f"{self.n_rows + int(np.flatnonzero(unlabelled)[0])} "
                    "(counted from 0); fill it, or use missing='drop' to leave such rows out.",
                    code="missing-label",
                )
            drop = unlabelled if drop is None else drop | unlabelled
        return drop if drop is not None and drop.any() else None

    def _clocks_go_back(self, tick: int, step: int) -> bool:
        """Whether rows at most an hour apart repeat an hour in the first hours of a Sunday, as they do twice a year."""
        own, night = self.step or 0, pd.Timestamp(tick)
        is_back = 0 < own <= _HOUR and step in (0, own - _HOUR)
        return is_back and night.month in (4, 9, 10, 11) and night.weekday() == 6 and night.hour <= 3

    def _gaps(self, ticks: NDArray[np.int64]) -> NDArray[np.bool_]:
        known = self._last_tick is not None
        before = ticks[0] if self._last_tick is None else self._last_tick
        steps = np.diff(np.concatenate([np.array([before], dtype=np.int64), ticks]))
        wrong = steps <= 0 if known else np.r_[False, steps[1:] <= 0]
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            row = self.n_rows + at
            if self.is_local and self._clocks_go_back(int(ticks[at]), int(steps[at])):
                raise DataError(
                    f"{self.where} has times in column {self.time!r} that repeat an hour at row {row} (counted from 0), in a "
                    "night in which clocks may go back from summer time; write times in UTC, or with their distance from it "
                    "as in 2024-10-27T02:00+01:00.",
                    code="clocks-back",
                )
            if steps[at] == 0:
                raise DataError(
                    f"{self.where} has the same time in column {self.time!r} at rows {row - 1} and {row} "
                    "(counted from 0); keep one row per time.",
                    code="same-time",
                )
            raise DataError(
                f"{self.where} has a time in column {self.time!r} at row {row} (counted from 0) that is "
                f"earlier than the row before; sort the rows by {self.time!r}.",
                code="earlier",
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
                "0) that are closer than the sampling step; correct them.",
                code="closer",
            )
        return np.asarray(steps > self.step)
