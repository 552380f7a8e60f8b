"""A column of times -> whole numbers, numbers with a fraction, or dates; everything else is refused with a sentence.

Whole numbers (also floats that are whole), numbers with a fraction, datetimes with or without a time zone, ISO 8601 text
and pandas periods are times. Text such as 31.01.2024 or 01/31/2024 is read only if somebody says what stands first: a
file in which no day is above 12 would be read wrongly without a sign of it.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.errors import DataError

__all__ = ["DECIMAL", "IntArray", "Times", "decimal_ticks", "instants", "order_of", "parse_times"]

IntArray = NDArray[np.int64]
Times = IntArray | FloatArray | pd.DatetimeIndex

# Numbers with a fraction are counted in billionths.
DECIMAL = 10**9
_LARGEST = 9e9
_NUMERIC_DATE = re.compile(
    r"\s*(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})(?:(T|\s+)(\d{1,2}:\d{2}(:\d{2})?))?\s*$"
)


def parse_times(column: pd.Series, where: str, day_first: bool | None = None) -> Times:
    """Return int64 for whole numbers, float64 for others, a DatetimeIndex for dates; raise DataError for the rest."""
    name = column.name
    absent = column.isna().to_numpy()
    if absent.any():
        raise DataError(
            f"{where} has a missing time in column {name!r} at row {int(np.flatnonzero(absent)[0])} (counted "
            "from 0); fill it or remove the row."
        )
    dtype = column.dtype
    if isinstance(dtype, pd.PeriodDtype):
        return np.asarray(pd.PeriodIndex(column).asi8, dtype=np.int64)
    if pd.api.types.is_bool_dtype(dtype):
        raise DataError(f"{where} has true/false values in time column {name!r}; use numbers or dates.")
    if pd.api.types.is_integer_dtype(dtype):
        return column.to_numpy(dtype=np.int64)
    if pd.api.types.is_float_dtype(dtype):
        return _from_floats(column, where)
    try:
        if isinstance(dtype, pd.DatetimeTZDtype) or pd.api.types.is_datetime64_dtype(dtype):
            times = pd.DatetimeIndex(column)
        else:
            times = _from_text(column)
        return times.as_unit("ns")
    except (ValueError, TypeError, OverflowError):
        pass
    return _from_numeric_dates(column, where, day_first)


def decimal_ticks(times: IntArray | FloatArray, name: object, where: str) -> IntArray:
    """(n,) numbers in billionths."""
    if len(times) and np.abs(times).max() >= _LARGEST:
        raise DataError(
            f"{where} has times in column {name!r} that are too large to have fractions; use whole numbers "
            "(for example milliseconds) or dates."
        )
    return np.rint(np.asarray(times, dtype=np.float64) * DECIMAL).astype(np.int64)


def instants(times: pd.DatetimeIndex) -> IntArray:
    """(n,) nanoseconds."""
    return np.asarray(times.as_unit("ns").asi8, dtype=np.int64)


def order_of(column: pd.Series, where: str, day_first: bool | None = None) -> NDArray[np.intp] | None:
    """(n,) rows in the order of their times, equal ones as they stand; None if they are in order already."""
    times = parse_times(column, where, day_first)
    values = instants(times) if isinstance(times, pd.DatetimeIndex) else times
    return None if (values[1:] >= values[:-1]).all() else np.argsort(values, kind="stable")


def _from_floats(column: pd.Series, where: str) -> IntArray | FloatArray:
    floats = column.to_numpy(dtype=np.float64)
    if not np.isfinite(floats).all():
        raise DataError(f"{where} has an infinite time in column {column.name!r}; remove the row.")
    if (np.abs(floats) < 2**53).all():
        whole = floats.astype(np.int64)
        if (whole == floats).all():
            return whole
    return floats


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
    found = [_NUMERIC_DATE.match(text) if isinstance(text, str) else None for text in column]
    parts = [match for match in found if match is not None]
    if len(parts) < len(found) or not parts:
        raise DataError(
            f"{where} has times in column {name!r} that are neither numbers nor dates; write dates as "
            "2024-01-31 or 2024-01-31T12:00, or convert the column with pandas.to_datetime."
        )
    first, second = (np.array([int(match[k]) for match in parts]) for k in (1, 3))
    is_day_first, is_month_first = bool((first > 12).any()), bool((second > 12).any())
    if is_day_first and is_month_first:
        raise DataError(
            f"{where} has dates in column {name!r} of which some have the day first and some the month; write them as "
            "2024-01-31."
        )
    if day_first is None:
        known = "in which the day stands first" if is_day_first else "in which the month stands first"
        clear = is_day_first or is_month_first
        cure = f"give day_first={is_day_first}" if clear else "give day_first=True or day_first=False"
        raise DataError(
            f"{where} has dates in column {name!r} {known if clear else 'in which day or month may stand first'}; "
            f"{cure}, or write them as 2024-01-31."
        )
    if (is_month_first and day_first) or (is_day_first and not day_first):
        raise DataError(
            f"{where} has dates in column {name!r} in which the {'month' if day_first else 'day'} stands first; "
            f"day_first={day_first} cannot be right."
        )
    wanted = [(m[3], m[1]) if day_first else (m[1], m[3]) for m in parts]
    text = [
        f"{_year(m[4])}-{int(month):02d}-{int(day):02d}T{(m[6] or '0:00').zfill(8 if m[7] else 5)}"
        for m, (month, day) in zip(parts, wanted, strict=True)
    ]
    try:
        return pd.DatetimeIndex(pd.to_datetime(text, format="ISO8601")).as_unit("ns")
    except (ValueError, OverflowError):
        raise DataError(
            f"{where} has dates in column {name!r} that are not in the calendar; correct them or write them as "
            "2024-01-31."
        ) from None


def _year(text: str) -> str:
    """Two digits are the years 1970 to 2069."""
    return text if len(text) == 4 else f"{'20' if int(text) < 70 else '19'}{text}"
