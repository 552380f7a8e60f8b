"""Times as whole numbers, and the step between neighbouring rows.

The rule
--------
- Integers (also floats that are whole), datetimes with or without a time zone, ISO 8601 text and pandas
  periods are times.
- The step is `freq` if given; otherwise the most common difference of neighbouring rows over all recordings
  of the site (the smallest of equally common ones), for integers as for datetimes.
- A larger difference is a gap. A smaller one is an error: the series is irregular, and a lag would have no
  meaning.
- Calendar steps: ``freq="MS"``, ``"QS"``, ``"YS"`` (or their ends) count months, ``"B"`` counts working
  days. A step of whole days in a time zone is counted by the local clock, so that a change to summer time is
  not a gap.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feddbn.errors import DataError, ParameterError

__all__ = ["Clock", "Freq", "StepCounter", "parse_freq"]

Freq = str | int | pd.Timedelta | pd.DateOffset | np.timedelta64 | None
IntArray = NDArray[np.int64]

_DAY = 86_400 * 10**9
_MONTHS = {"MonthBegin": 1, "MonthEnd": 1, "QuarterBegin": 3, "QuarterEnd": 3, "YearBegin": 12, "YearEnd": 12}
_MOST_STEPS = 20_000


@dataclass(frozen=True)
class Clock:
    """How to count time: `step` in `unit`: integer, instant (ns), wall (local ns), month or business."""

    unit: str
    step: int | None

    def ticks(self, column: pd.Series, where: str) -> IntArray:
        """(n,) whole numbers that grow by `step` from one row to the next where no row is missing."""
        times = _parse(column, where)
        if self.unit == "integer":
            if not isinstance(times, np.ndarray):
                raise DataError(
                    f"{where} has dates in time column {column.name!r}, but freq= or another recording "
                    "speaks of whole numbers; "
                    "give freq as text such as '1h', 'D' or 'MS'."
                )
            return times
        if isinstance(times, np.ndarray):
            raise DataError(
                f"{where} has whole numbers in time column {column.name!r}, but freq= or another recording "
                "speaks of dates; "
                "convert the column with pandas.to_datetime."
            )
        if self.unit == "instant":
            return _instants(times)
        local = times.tz_localize(None)
        if self.unit == "wall":
            return _instants(local)
        if self.unit == "month":
            return np.asarray(local.year * 12 + local.month, dtype=np.int64)
        return np.asarray(
            np.busday_count("1970-01-01", local.to_numpy().astype("datetime64[D]")), dtype=np.int64
        )

    def describe(self) -> str:
        """Return the step in words."""
        if self.step is None:
            return "an unknown step"
        if self.unit in ("instant", "wall"):
            return str(pd.Timedelta(self.step, unit="ns"))
        noun = {"integer": "unit", "month": "month", "business": "working day"}[self.unit]
        return f"{self.step} {noun}{'' if self.step == 1 else 's'}"


def parse_freq(freq: Freq) -> Clock | None:
    """Return the clock that `freq` names, or None if the data should decide."""
    if freq is None:
        return None
    if isinstance(freq, np.timedelta64):
        # numpy counts a duration among its integers.
        freq = pd.Timedelta(freq)
    if isinstance(freq, (bool, float)):
        raise ParameterError(
            f"freq={freq!r} is not a step; give a whole number, or text such as '1h', 'D' or 'MS'."
        )
    if isinstance(freq, (int, np.integer)):
        if freq < 1:
            raise ParameterError(f"freq={freq!r} is not a step; give a whole number of at least 1.")
        return Clock("integer", int(freq))
    try:
        offset: Any = pd.tseries.frequencies.to_offset(freq)
    except (ValueError, TypeError):
        raise ParameterError(
            f"freq={freq!r} is not a step; give a whole number, or text such as '1h', 'D' or 'MS'."
        ) from None
    kind, n = type(offset).__name__, int(offset.n)
    clock: Clock | None = None
    if kind in _MONTHS:
        clock = Clock("month", _MONTHS[kind] * n)
    elif kind in ("Day", "Week"):
        clock = Clock("wall", _DAY * n * (7 if kind == "Week" else 1))
    elif kind == "BusinessDay":
        clock = Clock("business", n)
    elif isinstance(offset, pd.offsets.Tick):
        clock = Clock("wall" if offset.nanos % _DAY == 0 else "instant", int(offset.nanos))
    if clock is None or clock.step is None or clock.step < 1:
        raise ParameterError(
            f"freq={freq!r} is not a supported step; use multiples of 'ns'..'h', 'D', 'W', 'B', 'MS', 'QS' "
            "or 'YS'."
        )
    return clock


class StepCounter:
    """Finds a site's clock from the differences of neighbouring times; memory stays bounded."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._units: set[str] = set()
        self._has_zone = False
        self._recording: object = None
        self._last: int | None = None

    def feed(self, recording: object, column: pd.Series, where: str) -> None:
        """Count the steps of the next rows of a recording."""
        times = _parse(column, where)
        integer = isinstance(times, np.ndarray)
        self._units.add("integer" if integer else "instant")
        if len(self._units) > 1:
            raise DataError(
                f"{where} has whole numbers in time column {column.name!r} where others have dates; use one "
                "kind."
            )
        if isinstance(times, np.ndarray):
            ticks = times
        else:
            self._has_zone = self._has_zone or times.tz is not None
            ticks = _instants(times)
        if recording != self._recording:
            self._recording, self._last = recording, None
        if self._last is not None:
            ticks = np.concatenate([np.array([self._last], dtype=np.int64), ticks])
        if len(ticks) == 0:
            return
        self._last = int(ticks[-1])
        steps, counts = np.unique(np.diff(ticks), return_counts=True)
        self._counts.update(dict(zip(steps[steps > 0].tolist(), counts[steps > 0].tolist(), strict=True)))
        if len(self._counts) > _MOST_STEPS:
            self._counts = Counter(dict(self._counts.most_common(_MOST_STEPS // 2)))

    def clock(self) -> Clock:
        """Return the clock whose step is the most common difference."""
        unit = next(iter(self._units), "integer")
        if not self._counts:
            return Clock(unit, None)
        most = max(self._counts.values())
        step = min(s for s, count in self._counts.items() if count == most)
        if unit == "instant" and self._has_zone and step % _DAY == 0:
            unit = "wall"
        return Clock(unit, step)


def _instants(times: pd.DatetimeIndex) -> IntArray:
    return np.asarray(times.as_unit("ns").asi8, dtype=np.int64)


def _parse(column: pd.Series, where: str) -> IntArray | pd.DatetimeIndex:
    """Whole numbers as int64, anything that is a date as DatetimeIndex; a DataError for everything else."""
    name = column.name
    absent = column.isna().to_numpy()
    if absent.any():
        raise DataError(
            f"{where} has a missing time in column {name!r} at row {int(np.flatnonzero(absent)[0])} (counted "
            "from 0); "
            "fill it or remove the row."
        )
    dtype = column.dtype
    if isinstance(dtype, pd.PeriodDtype):
        return np.asarray(pd.PeriodIndex(column).asi8, dtype=np.int64)
    if pd.api.types.is_bool_dtype(dtype):
        raise DataError(f"{where} has true/false values in time column {name!r}; use whole numbers or dates.")
    if pd.api.types.is_integer_dtype(dtype):
        return column.to_numpy(dtype=np.int64)
    if pd.api.types.is_float_dtype(dtype):
        floats = column.to_numpy(dtype=float)
        whole = (
            floats.astype(np.int64) if np.isfinite(floats).all() and (np.abs(floats) < 2**53).all() else None
        )
        if whole is None or (whole != floats).any():
            raise DataError(
                f"{where} has fractional times in column {name!r}; use whole numbers (for example "
                "milliseconds) or dates."
            )
        return whole
    try:
        if isinstance(dtype, pd.DatetimeTZDtype) or pd.api.types.is_datetime64_dtype(dtype):
            times = pd.DatetimeIndex(column)
        else:
            times = _from_text(column)
        return times.as_unit("ns")
    except (ValueError, TypeError, OverflowError):
        raise DataError(
            f"{where} has times in column {name!r} that are neither whole numbers nor dates; write dates as "
            "2024-01-31 or "
            "2024-01-31T12:00, or convert the column with pandas.to_datetime."
        ) from None


def _from_text(column: pd.Series) -> pd.DatetimeIndex:
    # Text with offsets is read as UTC throughout, so that a batch with one offset and a batch with two agree.
    try:
        times = pd.DatetimeIndex(pd.to_datetime(column, format="ISO8601"))
        if times.tz is None:
            return times
    except ValueError:
        pass
    return pd.DatetimeIndex(pd.to_datetime(column, format="ISO8601", utc=True))
