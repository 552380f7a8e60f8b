"""Times: what is one, the step between neighbouring rows, and times counted in it.

The rule
--------
- Numbers, datetimes with or without a time zone, ISO 8601 text and pandas periods are times. Text such as 31.01.2024 or
  01/31/2024 is read only if somebody says what stands first: a file in which no day is above 12 would be read wrongly without
  a sign of it.
- The step is `freq` if given; otherwise the most common difference of neighbouring rows over all recordings of the site (the
  smallest of equally common ones), for numbers as for dates. Where differences vary so that more of them lie within the
  tolerance of their median, it is the mean of these.
- A larger difference is a gap. A smaller one is an error: the series is irregular, and a lag would have no meaning.
- Whether two rows are neighbours is decided by their own distance, not by how far they are from the first row: a clock that
  runs 0.1 % fast is regular, however long the recording is (`steps_between`).
- Calendar steps: dates that stand on one day of their months, or all on the last one, are months, quarters or years apart,
  however many days these have. ``freq="MS"``, ``"QS"``, ``"YS"`` (or their ends) also count months of which only some day is
  known, ``"B"`` counts working days. A step of whole days in a time zone is counted by the local clock, so that a change to
  summer time is not a gap.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.errors import DataError, Given, ParameterError

__all__ = [
    "Clock",
    "Freq",
    "StepCounter",
    "Times",
    "are_dates",
    "clock_of",
    "read_times",
    "steps_between",
]

IntArray = NDArray[np.int64]
Ticks = IntArray | FloatArray
_NUMERIC_DATE = r"^\s*(\d{1,2})[./-](\d{1,2})[./-](\d{4})(?:[T\s]+(\d{1,2}:\d{2}(?::\d{2})?))?\s*$"


@dataclass(frozen=True)
class Times:
    """Times (n,) as `ticks` of a `unit`: "number", or "instant" (whole ns since 1970, UTC) with the time zone of dates."""

    ticks: Ticks
    unit: str
    zone: Any = None


def read_times(column: pd.Series, where: str, day_first: bool | None = None) -> Times:
    """Return the times in a column of numbers or dates; raise DataError for anything else."""
    name, dtype = column.name, column.dtype
    absent = np.flatnonzero(column.isna().to_numpy())
    if len(absent):
        raise DataError(
            f"{where} has a missing time in column {name!r} at row {absent[0]} (counted from 0); fill it or remove the row."
        )
    if pd.api.types.is_bool_dtype(dtype):
        raise DataError(f"{where} has true/false values in time column {name!r}; use numbers or dates.")
    if pd.api.types.is_numeric_dtype(dtype):
        numbers = column.to_numpy(dtype=np.float64)
        if not np.isfinite(numbers).all():
            raise DataError(f"{where} has an infinite time in column {name!r}; remove the row.")
        return Times(numbers, "number")
    dates = _dates(column, where, day_first).as_unit("ns")
    return Times(np.asarray(dates.asi8, dtype=np.int64), "instant", dates.tz)


def _dates(column: pd.Series, where: str, day_first: bool | None) -> pd.DatetimeIndex:
    if isinstance(column.dtype, pd.PeriodDtype):
        return pd.DatetimeIndex(pd.PeriodIndex(column).to_timestamp())
    if column.dtype.kind == "M":
        return pd.DatetimeIndex(column)
    try:
        # Text with offsets is read as UTC throughout, so that a batch with one offset and a batch with two agree.
        plain = pd.to_datetime(column, format="ISO8601", utc=True)
        has_zone = column.astype(str).str.contains(r"(?:Z|[+-]\d\d:?\d\d)$").any()
        return pd.DatetimeIndex(plain) if has_zone else pd.DatetimeIndex(plain).tz_localize(None)
    except (ValueError, TypeError, OverflowError):
        return _numeric_dates(column, where, day_first)


def _numeric_dates(column: pd.Series, where: str, day_first: bool | None) -> pd.DatetimeIndex:
    """Dates such as 31.01.2024 12:00, all with the day or all with the month first."""
    parts = column.astype(str).str.extract(_NUMERIC_DATE)
    said = f"{where} has times in column {column.name!r} that are"
    if not len(parts) or parts[2].isna().any():
        raise DataError(
            f"{said} neither numbers nor dates; write dates as 2024-01-31 or 2024-01-31T12:00, or convert the column with "
            "pandas.to_datetime.",
            code="no-times",
        )
    if day_first is None:
        raise DataError(
            f"{said} dates in which day or month may stand first; give {Given('day_first', True)} or "
            f"{Given('day_first', False)}, or write them as 2024-01-31.",
            code="day-or-month",
        )
    month, day = (parts[k].str.zfill(2) for k in ((1, 0) if day_first else (0, 1)))
    text = parts[2] + "-" + month + "-" + day + "T" + parts[3].fillna("00:00").str.rjust(5, "0")
    try:
        return pd.DatetimeIndex(pd.to_datetime(text, format="ISO8601"))
    except (ValueError, OverflowError):
        raise DataError(
            f"{said} not all dates with the {'day' if day_first else 'month'} first, as {Given('day_first', day_first)} has "
            "it; correct them, or write them as 2024-01-31.",
            code="wrong-first",
        ) from None


def are_dates(column: pd.Series) -> bool:
    """Whether a column that is not numeric holds dates, whatever stands first in them."""
    if column.dtype.kind == "M" or isinstance(column.dtype, pd.PeriodDtype):
        return True
    texts = column.dropna().astype(str)
    return bool(len(texts) and texts.str.match(r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\b").all())


Freq = str | int | float | pd.Timedelta | pd.DateOffset | np.timedelta64 | None

_DAY = 86_400 * 10**9
_SHORTEST_MONTH = 28 * _DAY
_MONTHS = {"MonthBegin": 1, "MonthEnd": 1, "QuarterBegin": 3, "QuarterEnd": 3, "YearBegin": 12, "YearEnd": 12}
_MOST_STEPS = 20_000
# Differences that rounding leaves are no deviation.
_ROUNDING, _DIGITS = 1e-6, 9
_ALIKE = 0.01
_NEAR = 1e-3
_LENGTHS = {"D": _DAY, "h": 3600 * 10**9, "min": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass(frozen=True)
class Clock:
    """How to count time: `step` in `unit`: number, instant (ns), wall (local ns), month or business; None with one row."""

    unit: str
    step: float | None

    def ticks(self, ticks: Ticks, zone: Any) -> Ticks:
        """(n,) numbers that grow by `step` from one row to the next where no row is missing, of exact times."""
        if self.unit in ("number", "instant"):
            return ticks
        local = local_dates(ticks, zone)
        if self.unit == "wall":
            return np.asarray(local.asi8, dtype=np.int64)
        if self.unit == "month":
            return np.asarray(local.year * 12 + local.month - 1, dtype=np.int64)
        days = local.to_numpy().astype("datetime64[D]")
        return np.asarray(np.busday_count("1970-01-01", days), dtype=np.int64)

    def dates(self, ticks: Ticks) -> NDArray[np.datetime64]:
        """(n,) dates that are so far from zero, without a time zone."""
        if self.unit == "month":
            return (ticks - 1970 * 12).astype("datetime64[M]").astype("datetime64[ns]")
        if self.unit == "business":
            return np.busday_offset("1970-01-01", ticks, roll="forward").astype("datetime64[ns]")
        return ticks.view("datetime64[ns]")

    def is_like(self, other: Clock) -> bool:
        """Whether another clock has the same step, but for a hundredth: that of times that vary is a mean."""
        mine, its = self.step or 1, other.step or 1
        units = {"instant" if one.unit == "wall" else one.unit for one in (self, other)}
        return len(units) == 1 and abs(mine - its) <= _ALIKE * mine

    @property
    def text(self) -> str | None:
        """The step as `freq` takes it: "1h", "0.5"."""
        if self.step is None:
            return None
        if self.unit in ("instant", "wall"):
            unit, size = next(one for one in _LENGTHS.items() if self.step % one[1] == 0)
            return f"{self.step // size:.0f}{unit}"
        return f"{self.step:.12g}" + {"month": "MS", "business": "B"}.get(self.unit, "")


def local_dates(ticks: Ticks, zone: Any) -> pd.DatetimeIndex:
    """Dates and times on the clocks of a time zone."""
    dates = pd.DatetimeIndex(ticks.view("datetime64[ns]"))
    return dates if zone is None else dates.tz_localize("UTC").tz_convert(zone).tz_localize(None)


def clock_of(freq: Freq, argument: str = "freq") -> Clock:
    """Return the clock with a step that somebody names: 1, "0.5", "1h", "MS"."""
    wrong = ParameterError(
        f"{Given(argument, freq)} is not a step; give a positive number, or multiples of 'ns' to 'h', 'D', 'W', 'B', 'MS', "
        "'QS' or 'YS', such as '1h'."
    )
    if isinstance(freq, np.timedelta64):
        # numpy counts a duration among its integers.
        freq = pd.Timedelta(freq)
    if isinstance(freq, str) and re.fullmatch(r"\s*\d*\.?\d+(e-?\d+)?\s*", freq):
        freq = float(freq)
    if isinstance(freq, (int, float, np.integer, np.floating)):
        if isinstance(freq, bool) or not 10.0**-_DIGITS <= freq < np.inf:
            raise wrong
        return Clock("number", float(freq))
    try:
        offset: Any = pd.tseries.frequencies.to_offset(freq)
    except (ValueError, TypeError):
        raise wrong from None
    kind, n = type(offset).__name__, int(getattr(offset, "n", 0))
    if n < 1:
        raise wrong
    if kind in _MONTHS:
        return Clock("month", _MONTHS[kind] * n)
    if kind in ("Day", "Week"):
        return Clock("wall", _DAY * n * (7 if kind == "Week" else 1))
    if kind == "BusinessDay":
        return Clock("business", n)
    if not isinstance(offset, pd.offsets.Tick):
        raise wrong
    return Clock("wall" if offset.nanos % _DAY == 0 else "instant", int(offset.nanos))


class StepCounter:
    """Finds a site's clock from the differences of neighbouring times; memory stays bounded."""

    def __init__(self, unit: str, zone: Any = None) -> None:
        self._unit, self._zone = unit, zone
        self._counts: Counter[float] = Counter()
        self._months: Counter[int] | None = Counter() if unit == "instant" else None

    def feed(self, ticks: Ticks, begins: NDArray[np.bool_]) -> None:
        """Count the steps of the next rows, of which the first was fed before; some begin a recording."""
        goes_on = ~begins[1:]
        steps = np.diff(ticks)[goes_on]
        if self._months is not None:
            self._count_months(ticks, goes_on, steps)
        found, counts = np.unique(
            steps if self._unit == "instant" else steps.round(_DIGITS), return_counts=True
        )
        self._counts.update(dict(zip(found[found > 0].tolist(), counts[found > 0].tolist(), strict=True)))
        if len(self._counts) > _MOST_STEPS:
            self._counts = Counter(dict(self._counts.most_common(_MOST_STEPS // 2)))

    def _count_months(self, ticks: Ticks, goes_on: NDArray[np.bool_], steps: Ticks) -> None:
        """Count months between neighbouring dates, as long as they are on one day of their months, or at ends of months."""
        assert self._months is not None
        if ((steps > 0) & (steps < _SHORTEST_MONTH)).any():
            self._months = None
            return
        dates = local_dates(ticks, self._zone)
        day, is_end = np.asarray(dates.day), np.asarray(dates.is_month_end)
        month = np.diff(np.asarray(dates.year * 12 + dates.month))[goes_on]
        is_same = (day[1:] == day[:-1]) | (is_end[1:] & is_end[:-1])
        if is_same[goes_on].all():
            self._months.update(month[month > 0].tolist())
        else:
            self._months = None

    def clock(self, jitter: float) -> Clock:
        """Return the clock of these times."""
        if not self._counts:
            return Clock(self._unit, None)
        if self._months:
            return Clock("month", min(self._months.items(), key=lambda one: (-one[1], one[0]))[0])
        step = self._step(jitter)
        is_local = self._unit == "instant" and self._zone is not None and step % _DAY == 0
        return Clock("wall" if is_local else self._unit, step)

    def _step(self, jitter: float) -> float:
        known = sorted(self._counts)
        steps, counts = np.array(known), np.array([self._counts[step] for step in known])
        common = known[int(np.argmax(counts))]
        if jitter == 0 or 2 * counts.max() >= counts.sum():
            return common
        middle = known[int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))]
        near = [np.abs(steps - anchor) <= jitter * anchor for anchor in (common, middle)]
        chosen = near[int(counts[near[1]].sum() > counts[near[0]].sum())]
        if chosen.sum() == 1:
            return known[int(np.argmax(chosen))]
        return _plain(float(np.average(steps[chosen], weights=counts[chosen])), self._unit)


def _plain(step: float, unit: str) -> float:
    """Return the number that people would name for a mean of varying steps: 3600 s for 3599.97 s."""
    short = float(f"{step:.3g}")
    plain = short if abs(short - step) <= _NEAR * step else step
    return round(plain) if unit == "instant" else plain


def steps_between(ticks: Ticks, step: float, jitter: float) -> tuple[IntArray, NDArray[np.bool_]]:
    """(n - 1,) how many steps of a clock lie between neighbouring times, and which of these are closer than one step.

    Neighbours may be off by a share of the step; more than one step are at least two.
    """
    apart = np.diff(ticks)
    is_near = np.abs(apart - step) <= max(jitter, _ROUNDING) * step
    later = np.maximum(np.rint(apart / step), 2).astype(np.int64)
    return np.where(is_near, 1, later), (apart < step) & ~is_near
