"""Times: what is one, the step between neighbouring rows, and times counted in it.

The rule
--------
- Whole numbers (also floats that are whole), numbers with a fraction, datetimes with or without a time zone, ISO 8601 text
  and pandas periods are times. Text such as 31.01.2024 or 01/31/2024 is read only if somebody says what stands first: a file
  in which no day is above 12 would be read wrongly without a sign of it.
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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.errors import DataError, Given, ParameterError
from feddbn.settings import number

__all__ = [
    "DECIMAL",
    "Clock",
    "Freq",
    "StepCounter",
    "Times",
    "check_jitter",
    "parse_freq",
    "read_times",
    "steps_between",
]

IntArray = NDArray[np.int64]

# Numbers with a fraction are counted in billionths.
DECIMAL = 10**9
_LARGEST = 9e9
_NUMERIC_DATE = (
    r"^\s*(?P<first>\d{1,2})(?P<mark>[./-])(?P<second>\d{1,2})(?P=mark)(?P<year>\d{4}|\d{2})"
    r"(?:(?:T|\s+)(?P<time>\d{1,2}:\d{2})(?P<seconds>:\d{2})?)?\s*$"
)


@dataclass(frozen=True)
class Times:
    """Times as whole numbers `ticks` (n,) of a `unit`: "integer", "decimal" (billionths) or "instant" (ns since 1970, UTC).

    `zone` is the time zone of dates, `is_business` says that they are periods of working days.
    """

    ticks: IntArray
    unit: str
    zone: Any = None
    is_business: bool = False


def read_times(column: pd.Series, where: str, day_first: bool | None = None) -> Times:
    """Return the times in a column of numbers or dates; raise DataError for anything else."""
    name, dtype = column.name, column.dtype
    absent = column.isna().to_numpy()
    if absent.any():
        raise DataError(
            f"{where} has a missing time in column {name!r} at row {int(np.flatnonzero(absent)[0])} (counted "
            "from 0); fill it or remove the row."
        )
    if pd.api.types.is_bool_dtype(dtype):
        raise DataError(f"{where} has true/false values in time column {name!r}; use numbers or dates.")
    if pd.api.types.is_integer_dtype(dtype):
        return Times(column.to_numpy(dtype=np.int64), "integer")
    if pd.api.types.is_float_dtype(dtype):
        return _from_floats(column, where)
    dates = _dates(column, where, day_first)
    is_business = getattr(dtype, "freq", None) == pd.offsets.BusinessDay()
    return Times(np.asarray(dates.as_unit("ns").asi8, dtype=np.int64), "instant", dates.tz, is_business)


def _dates(column: pd.Series, where: str, day_first: bool | None) -> pd.DatetimeIndex:
    if isinstance(column.dtype, pd.PeriodDtype):
        return pd.DatetimeIndex(pd.PeriodIndex(column).to_timestamp())
    try:
        is_date = isinstance(column.dtype, pd.DatetimeTZDtype) or pd.api.types.is_datetime64_dtype(
            column.dtype
        )
        return (pd.DatetimeIndex(column) if is_date else _from_text(column)).as_unit("ns")
    except (ValueError, TypeError, OverflowError):
        return _from_numeric_dates(column, where, day_first)


def ways_of_dates(column: pd.Series) -> list[bool | None]:
    """Return by which values of `day_first` a column that is not numeric can be read as dates; none if it holds others."""
    texts, ways = column.dropna(), list[bool | None]()
    if column.dtype.kind != "M" and not isinstance(column.dtype, pd.PeriodDtype):
        # A number such as 2024 can be read as a date, too.
        texts = texts.astype(str)
        if not len(texts) or not texts.str.contains(r"\d[-/.:]\d").all():
            return []
    for way in (None, True, False):
        try:
            read_times(texts, "", way)
        except DataError:
            continue
        ways.append(way)
        if way is None:
            break
    return ways


def in_billionths(ticks: IntArray | FloatArray, name: object, where: str) -> IntArray:
    """(n,) numbers in billionths."""
    if len(ticks) and np.abs(ticks).max() >= _LARGEST:
        raise DataError(
            f"{where} has times in column {name!r} that are too large to have fractions; use whole numbers "
            "(for example milliseconds) or dates.",
            code="too-large",
        )
    return np.rint(np.asarray(ticks, dtype=np.float64) * DECIMAL).astype(np.int64)


def _from_floats(column: pd.Series, where: str) -> Times:
    floats = column.to_numpy(dtype=np.float64)
    if not np.isfinite(floats).all():
        raise DataError(f"{where} has an infinite time in column {column.name!r}; remove the row.")
    if (np.abs(floats) < 2**53).all():
        whole = floats.astype(np.int64)
        if (whole == floats).all():
            return Times(whole, "integer")
    return Times(in_billionths(floats, column.name, where), "decimal")


def _from_text(column: pd.Series) -> pd.DatetimeIndex:
    # Text with offsets is read as UTC throughout, so that a batch with one offset and a batch with two agree.
    try:
        times = pd.DatetimeIndex(pd.to_datetime(column, format="ISO8601"))
        if times.tz is None:
            return times
    except ValueError:
        pass
    return pd.DatetimeIndex(pd.to_datetime(column, format="ISO8601", utc=True))


def _from_numeric_dates(column: pd.Series, where: str, day_first: bool | None) -> pd.DatetimeIndex:
    """Dates such as 31.01.2024 12:00, all written in one way."""
    name = column.name
    parts = column.astype(str).str.extract(_NUMERIC_DATE)
    if not len(parts) or parts["year"].isna().any():
        raise DataError(
            f"{where} has times in column {name!r} that are neither numbers nor dates; write dates as "
            "2024-01-31 or 2024-01-31T12:00, or convert the column with pandas.to_datetime.",
            code="no-times",
        )
    first, second = parts["first"].astype(int), parts["second"].astype(int)
    is_day_first, is_month_first = bool((first > 12).any()), bool((second > 12).any())
    if is_day_first and is_month_first:
        raise DataError(
            f"{where} has dates in column {name!r} of which some have the day first and some the month; write them as "
            "2024-01-31.",
            code="both-first",
        )
    if day_first is None:
        known = "in which the day stands first" if is_day_first else "in which the month stands first"
        clear = is_day_first or is_month_first
        said = Given("day_first", is_day_first)
        cure = f"give {said}" if clear else f"give {Given('day_first', True)} or {Given('day_first', False)}"
        raise DataError(
            f"{where} has dates in column {name!r} {known if clear else 'in which day or month may stand first'}; "
            f"{cure}, or write them as 2024-01-31.",
            code="day-or-month",
        )
    if (is_month_first and day_first) or (is_day_first and not day_first):
        raise DataError(
            f"{where} has dates in column {name!r} in which the {'month' if day_first else 'day'} stands first; "
            f"{Given('day_first', day_first)} cannot be right.",
            code="wrong-first",
        )
    year = parts["year"].astype(int)
    # Two digits are the years 1970 to 2069.
    year += np.where(parts["year"].str.len() == 4, 0, np.where(year < 70, 2000, 1900))
    day, month = (first, second) if day_first else (second, first)
    try:
        dates = pd.to_datetime(pd.DataFrame({"year": year, "month": month, "day": day}))
        return pd.DatetimeIndex(
            dates + pd.to_timedelta(parts["time"].fillna("0:00") + parts["seconds"].fillna(":00"))
        )
    except (ValueError, OverflowError):
        raise DataError(
            f"{where} has dates in column {name!r} that are not in the calendar; correct them or write them as "
            "2024-01-31.",
            code="no-such-day",
        ) from None


Freq = str | int | float | pd.Timedelta | pd.DateOffset | np.timedelta64 | None

_DAY = 86_400 * 10**9
_MONTHS = {"MonthBegin": 1, "MonthEnd": 1, "QuarterBegin": 3, "QuarterEnd": 3, "YearBegin": 12, "YearEnd": 12}
_MOST_STEPS = 20_000
_FIRST = 100
_NUMBER = re.compile(r"\d*\.?\d+(e-?\d+)?")
_NUMBERS = ("integer", "decimal")
# Differences that rounding leaves are not worth a word.
_EXACT = 1e-4
_ALIKE = 0.01
_NEAR = 1e-3
_INSTANTS = (_DAY, 3600 * 10**9, 60 * 10**9, 10**9, 10**8, 10**7, 10**6)
_LENGTHS = {"D": _DAY, "h": 3600 * 10**9, "min": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass(frozen=True)
class Clock:
    """How to count time: `step` in `unit`: integer, decimal (billionths), instant (ns), wall (local ns), month or business.

    `is_exact` is False where the step is a mean of differences that vary. `every` is how many steps lie between two rows of a
    site that is read on a finer step than its own.
    """

    unit: str
    step: int | None
    is_exact: bool = True
    every: int = 1

    def of(self, unit: str, name: object, where: str) -> Clock:
        """The same clock for times of a unit; a step of whole numbers also counts numbers with a fraction."""
        if (self.unit in _NUMBERS) != (unit in _NUMBERS):
            found, wanted = ("dates", "numbers") if self.unit in _NUMBERS else ("numbers", "dates")
            raise DataError(
                f"{where} has {found} in time column {name!r}, but {Given('freq')} speaks of {wanted}; give a step of "
                f"{found}, or convert the column."
            )
        if self.unit == "integer" and unit == "decimal":
            return replace(self, unit=unit, step=(self.step or 1) * DECIMAL)
        return self

    def ticks(self, ticks: IntArray, unit: str, zone: Any) -> IntArray:
        """(n,) whole numbers that grow by `step` from one row to the next where no row is missing, of exact times."""
        if self.unit in (unit, "integer", "instant"):
            return ticks
        if self.unit == "decimal":
            return ticks * DECIMAL
        local = local_dates(ticks, zone)
        if self.unit == "wall":
            return np.asarray(local.asi8, dtype=np.int64)
        if self.unit == "month":
            return np.asarray(local.year * 12 + local.month - 1, dtype=np.int64)
        days = local.to_numpy().astype("datetime64[D]")
        return np.asarray(np.busday_count("1970-01-01", days), dtype=np.int64)

    def dates(self, ticks: IntArray) -> NDArray[np.datetime64]:
        """(n,) dates that are so far from zero, without a time zone."""
        if self.unit == "month":
            return (ticks - 1970 * 12).astype("datetime64[M]").astype("datetime64[ns]")
        if self.unit == "business":
            return np.busday_offset("1970-01-01", ticks, roll="forward").astype("datetime64[ns]")
        return ticks.view("datetime64[ns]")

    def steps_of(self, other: Clock) -> int:
        """How many steps of another clock are one of this one, 0 if no whole number is; means may be off by a hundredth."""
        (mine, one), (its, another) = (_length(clock) for clock in (self, other))
        whole = round(mine / its)
        off = 0.0 if self.is_exact and other.is_exact else _ALIKE * mine
        return whole if one == another and abs(mine - whole * its) <= off else 0

    @property
    def text(self) -> str | None:
        """The step as `freq` takes it: "1h", "0.5"."""
        if self.step is None:
            return None
        if self.unit in ("instant", "wall"):
            unit, size = next(one for one in _LENGTHS.items() if self.step % one[1] == 0)
            return f"{self.step // size}{unit}"
        if self.unit in _NUMBERS:
            return f"{self.step / (DECIMAL if self.unit == 'decimal' else 1):.12g}"
        return f"{self.step}{'MS' if self.unit == 'month' else 'B'}"


def local_dates(ticks: IntArray, zone: Any) -> pd.DatetimeIndex:
    """Dates and times on the clocks of a time zone."""
    dates = pd.DatetimeIndex(ticks.view("datetime64[ns]"))
    return dates if zone is None else dates.tz_localize("UTC").tz_convert(zone).tz_localize(None)


def _length(clock: Clock) -> tuple[int, str]:
    """The step in the smallest unit of its kind, and the kind."""
    step, unit = clock.step or 1, clock.unit
    if unit in _NUMBERS:
        return step * (DECIMAL if unit == "integer" else 1), "number"
    return step, "instant" if unit == "wall" else unit


def parse_freq(freq: Freq) -> Clock | None:
    """Return the clock that `freq` names, or None if the data should decide."""
    if freq is None or freq == "auto":
        return None
    if isinstance(freq, np.timedelta64):
        # numpy counts a duration among its integers.
        freq = pd.Timedelta(freq)
    if isinstance(freq, str) and re.fullmatch(r"\s*\d*\.?\d+\s*", freq):
        freq = float(freq)
    if isinstance(freq, (int, float, np.integer, np.floating)):
        if isinstance(freq, bool) or not 1 / DECIMAL <= freq < np.inf:
            raise ParameterError(
                f"{Given('freq', freq)} is not a step; give a positive number, or text such as '1h', 'D' or 'MS'."
            )
        return Clock("integer", int(freq)) if freq == int(freq) else Clock("decimal", round(freq * DECIMAL))
    try:
        offset: Any = pd.tseries.frequencies.to_offset(freq)
    except (ValueError, TypeError):
        raise ParameterError(
            f"{Given('freq', freq)} is not a step; give a positive number, or text such as '1h', 'D' or 'MS'."
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
            f"{Given('freq', freq)} is not a supported step; use multiples of 'ns'..'h', 'D', 'W', 'B', 'MS', 'QS' "
            "or 'YS'."
        )
    return clock


def usual_steps(unit: str) -> dict[str, float]:
    """Steps that a person would name, as text ("1h") and in ticks of a unit."""
    if unit != "instant":
        one = DECIMAL if unit == "decimal" else 1
        return {f"{n * 10.0**k:g}": n * 10.0**k * one for k in range(-3, 6) for n in (1, 2, 5)}
    ns = [n * size for size in (10**9, 60 * 10**9) for n in (1, 2, 5, 10, 15, 30)]
    ns += [n * _LENGTHS["h"] for n in (1, 2, 3, 4, 6, 8, 12, 24, 7 * 24)]
    return {str(Clock("instant", one).text): float(one) for one in ns}


def clock_of_step(text: str, argument: str = "freq") -> Clock:
    """Return the clock of a step as `Clock.text` writes it: "1h", "0.5"."""
    try:
        found = parse_freq(float(text) if _NUMBER.fullmatch(text) else text)
    except ParameterError:
        found = None
    if found is None:
        raise ParameterError(
            f"{Given(argument, text)} is not a step; give a positive number, or text such as '1h', 'D' or 'MS'."
        )
    return found


class StepCounter:
    """Finds a site's clock from the differences of neighbouring times; memory stays bounded."""

    def __init__(self, unit: str, zone: Any = None, is_business: bool = False) -> None:
        self._unit, self._zone, self._is_business = unit, zone, is_business
        self._counts: Counter[int] = Counter()
        self._months: Counter[int] | None = Counter() if unit == "instant" else None

    def feed(self, ticks: IntArray, begins: NDArray[np.bool_]) -> None:
        """Count the steps of the next rows, of which the first was fed before; some begin a recording."""
        steps, goes_on = np.diff(ticks), ~begins[1:]
        if self._months is not None:
            self._count_months(ticks, goes_on)
        found, counts = np.unique(steps[goes_on], return_counts=True)
        self._counts.update(dict(zip(found[found > 0].tolist(), counts[found > 0].tolist(), strict=True)))
        if len(self._counts) > _MOST_STEPS:
            self._counts = Counter(dict(self._counts.most_common(_MOST_STEPS // 2)))

    def _count_months(self, ticks: IntArray, goes_on: NDArray[np.bool_]) -> None:
        """Count months between neighbouring dates, as long as they are on one day of their months, or at ends of months."""
        assert self._months is not None
        month, goes = np.zeros(0, dtype=np.int64), goes_on
        # As a rule the first dates show that there are no months between them.
        for n in (_FIRST, len(ticks)):
            dates, goes = local_dates(ticks[:n], self._zone), goes_on[: max(n - 1, 0)]
            day, month = np.asarray(dates.day), np.diff(np.asarray(dates.year * 12 + dates.month))
            is_end = np.asarray(dates.is_month_end)
            is_same = (day[1:] == day[:-1]) | (is_end[1:] & is_end[:-1])
            if not is_same[goes].all() or (np.diff(dates.asi8)[goes & (month == 0)] > 0).any():
                self._months = None
                return
        month = month[goes]
        self._months.update(month[month > 0].tolist())

    def clock(self, jitter: float = 0.0, declared: Clock | None = None) -> Clock:
        """Return the clock of these times, which may be `declared`."""
        unit = self._unit
        if declared is not None:
            return replace(declared, every=self._every(declared, jitter))
        if not self._counts:
            return Clock(unit, None)
        if self._is_business:
            return Clock("business", 1)
        if self._months:
            usual = min(self._months.items(), key=lambda one: (-one[1], one[0]))[0]
            return Clock("month", usual)
        step, is_exact = self._step(jitter)
        if unit == "instant" and self._zone is not None and step % _DAY == 0:
            unit = "wall"
        return Clock(unit, step, is_exact)

    def _every(self, clock: Clock, jitter: float) -> int:
        """How many steps of a declared clock lie between most of these rows, 1 if that is no whole number."""
        if not self._counts or clock.step is None or clock.unit in ("month", "business"):
            return 1
        scale = DECIMAL if clock.unit == "decimal" and self._unit == "integer" else 1
        ratio = self._step(jitter)[0] * scale / clock.step
        return round(ratio) if ratio > 1 and abs(ratio - round(ratio)) <= jitter else 1

    def _step(self, jitter: float) -> tuple[int, bool]:
        steps = np.array(sorted(self._counts), dtype=np.int64)
        counts = np.array([self._counts[s] for s in steps.tolist()])
        common = int(steps[np.argmax(counts)])
        if jitter == 0 or 2 * counts.max() >= counts.sum():
            return common, True
        middle = int(steps[np.searchsorted(np.cumsum(counts), counts.sum() / 2)])
        near = [np.abs(steps - anchor) <= jitter * anchor for anchor in (common, middle)]
        chosen = near[int(counts[near[1]].sum() > counts[near[0]].sum())]
        if chosen.sum() == 1:
            return int(steps[chosen][0]), True
        return _plain(float(np.average(steps[chosen], weights=counts[chosen])), self._unit), False

    def unevenness(self, clock: Clock, jitter: float) -> tuple[float, float] | None:
        """Return the share of the rows that are off their grid but within the tolerance, and by how much of the step.

        None if there are none, or where time is counted by the calendar.
        """
        if (
            clock.step is None
            or not self._counts
            or clock.unit not in ("integer", "decimal", "instant", "wall")
        ):
            return None
        steps = np.array(list(self._counts), dtype=np.float64)
        if clock.unit == "decimal" and self._unit == "integer":
            steps *= DECIMAL
        counts = np.array(list(self._counts.values()))
        off = np.abs(steps / clock.step - 1)
        uneven = (off > _EXACT) & (off <= jitter)
        if not uneven.any():
            return None
        return float(counts[uneven].sum() / counts.sum()), float(off[uneven].max())


def _plain(step: float, unit: str | None) -> int:
    """Return the number that people would name for a mean of varying steps: 3600 s for 3599.97 s."""
    digits = 10.0 ** (np.floor(np.log10(step)) - 2)
    coarser = _INSTANTS if unit == "instant" else (10 * digits, digits)
    for size in coarser:
        nearest = round(step / size) * size
        if nearest > 0 and abs(nearest - step) <= _NEAR * step:
            return round(nearest)
    return round(step)


DEFAULT_JITTER = 0.05


def check_jitter(jitter: float | None) -> float:
    """Return the share of the step by which a distance may be off; None is the default."""
    if jitter is None:
        return DEFAULT_JITTER
    if not number(0, below=0.5).holds(jitter):
        raise ParameterError(
            f"{Given('jitter', jitter)} must be a share of the step of at least 0 and less than 0.5, such as 0.1."
        )
    return float(jitter)


def steps_between(ticks: IntArray, step: int, jitter: float) -> tuple[IntArray, NDArray[np.bool_]]:
    """(n - 1,) how many steps of a clock lie between neighbouring times, and which of these are closer than one step.

    Neighbours may be off by a share of the step; more than one step are at least two.
    """
    apart = np.diff(ticks)
    is_near = np.abs(apart - step) <= jitter * step
    later = np.maximum(np.rint(apart / step), 2).astype(np.int64)
    return np.where(is_near, 1, later), (apart < step) & ~is_near
