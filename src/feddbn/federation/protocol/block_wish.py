"""How time is to be cut into blocks, as people say it: by rows, by the calendar or by a column.

``"auto"``, 64              blocks of so many rows, a power of two; the data decide how many
``"month"``                 periods of the calendar; ``"month from 2024-01"`` says which is the first
``{"column": "phase"}``     a column of whole numbers 0, 1, 2, ..., also ``"column:phase"``
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import IntArray
from feddbn.errors import ParameterError

__all__ = ["CALENDAR", "MOST_TIME_BLOCKS", "BlockWish", "is_block_length", "period_name", "period_numbers"]

MOST_TIME_BLOCKS = 60
"""With many blocks each has few rows, and all ranges of them are learned from."""
CALENDAR: Mapping[str, str] = MappingProxyType(
    {"year": "Y", "month": "M", "week": "W", "day": "D", "hour": "h", "minute": "m"}
)
"""Periods and what numpy calls them."""
_MONDAY = 3
"""Days from the Monday of the week in which 1970 began to its first of January."""
_COLUMN, _FROM = "column:", " from "


def period_numbers(times: NDArray[np.generic], unit: str) -> IntArray:
    """(n,) how many periods after that of 1970-01-01 the dates are; weeks begin on Mondays."""
    if unit == "W":
        return np.asarray((times.astype("datetime64[D]").astype(np.int64) + _MONDAY) // 7)
    return np.asarray(times.astype(f"datetime64[{unit}]").astype(np.int64))


def period_name(number: int, unit: str) -> str:
    """The date on which a period begins, as exact as the period."""
    days = 7 * number - _MONDAY
    return str(np.array(days if unit == "W" else number, dtype=f"datetime64[{'D' if unit == 'W' else unit}]"))


def is_block_length(n_rows: int) -> bool:
    """Whether blocks may have this many rows: a power of two.

    Any two such lengths cut time so that what differs between their blocks is whole blocks of the shorter one. By other
    lengths two studies would differ by a row.
    """
    return n_rows > 0 and n_rows & (n_rows - 1) == 0


@dataclass(frozen=True)
class BlockWish:
    """What `blocks=` says.

    Attributes
    ----------
    kind
        "rows", "calendar" or "column"; "regime" where every site has its own clock.
    rows
        Rows in a block, None where the data decide.
    period
        Word of `CALENDAR`.
    first
        Number of the first period since 1970, None where the data decide.
    column
        Name of the column.
    """

    kind: str = "rows"
    rows: int | None = None
    period: str = ""
    first: int | None = None
    column: str = ""

    @property
    def unit(self) -> str:
        """The period as numpy calls it; empty without a calendar."""
        return CALENDAR.get(self.period, "")

    @classmethod
    def of(cls, given: Any) -> BlockWish:
        """Read the argument, or refuse it with a sentence."""
        if isinstance(given, Mapping) and set(given) == {"column"} and isinstance(given["column"], str):
            given = _COLUMN + given["column"]
        if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
            return cls._of_rows(int(given))
        if isinstance(given, str):
            if given == "auto":
                return cls()
            if given.startswith(_COLUMN) and len(given) > len(_COLUMN):
                return cls("column", column=given.removeprefix(_COLUMN))
            period, _, first = given.partition(_FROM)
            if period in CALENDAR:
                return cls("calendar", period=period, first=_first(given, period, first))
        raise ParameterError(
            f"blocks={given!r} must be 'auto', a number of rows, one of {', '.join(map(repr, CALENDAR))} (in a study with "
            "the first one, such as 'month from 2024-01'), or 'column:NAME'."
        )

    @classmethod
    def _of_rows(cls, n_rows: int) -> BlockWish:
        if not is_block_length(n_rows):
            near = 2 ** max(round(np.log2(max(n_rows, 1))), 0)
            raise ParameterError(
                f"blocks={n_rows} must be a power of two, for example {near}, or 'auto'; other lengths would let two studies "
                "differ by a few rows."
            )
        return cls(rows=n_rows)

    def name(self, number: int) -> str:
        """How people call a label: a date, or the column and its number."""
        if self.kind == "calendar":
            return period_name(number, self.unit)
        return f"{self.column} {number}"


def _first(given: str, period: str, date: str) -> int | None:
    if not date:
        return None
    try:
        return int(period_numbers(np.array([date.strip()], dtype="datetime64[ns]"), CALENDAR[period])[0])
    except ValueError:
        raise ParameterError(
            f"blocks={given!r} must name the first {period} by a date, such as '{period} from 2024-01-01'."
        ) from None
