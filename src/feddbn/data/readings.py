"""From readings to rows: tables that name the variable in a column, and times that are not equally far apart.

The rule
--------
- A reading is a recording, a time, a variable and a value. A row with many variables has one for each of its present cells.
- Its unit is changed first (`units`), then what lies beyond its `limits` is left out.
- "average": a row for every step in which something was read. A step is counted from the zero of the clock (1970 for dates),
  so all recordings have the same grid. Readings of a variable in one step become their mean; of a variable with levels, or
  one that counts, the last one stands. Steps without a reading are empty rows.
- "refuse": a row for every time at which something was read; only readings of the same time are averaged.
- Readings are added up in the order of time and value, whatever order they come in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.data.cells import positions, with_levels
from feddbn.data.kinds import refuse_misfits
from feddbn.data.layout import ROW_TIMES, Layout
from feddbn.data.segments import MOST_EMPTY
from feddbn.data.times import Clock, IntArray, Ticks
from feddbn.errors import DataError, Given
from feddbn.findings import Finding

__all__ = ["Readings", "averaged", "names_of", "numbers_of", "steps_of", "tally", "with_empty_rows"]

_MEASURED = ("continuous", "positive")
_FEW_LEFT = 0.8
"""Where less than this share of the readings is left, a step is coarse."""
# Times are divided, and those at the beginning of a step must not fall into the one before.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Readings:
    """Readings (n,) of recordings `code` at `tick`, in a `row` each, of `variable` with `value`, perhaps with a label."""

    code: NDArray[np.integer]
    tick: Ticks
    row: Ticks
    variable: NDArray[np.integer]
    value: FloatArray
    label: NDArray[np.generic] | None = None


def steps_of(ticks: Ticks, clock: Clock) -> Ticks:
    """(n,) the times at which the steps begin that times are in."""
    step = clock.step or 1
    found: Ticks = (
        ticks // int(step) * int(step)
        if clock.unit != "number"
        else np.floor(ticks / step + _ROUNDING) * step
    )
    return found


def averaged(
    readings: Readings, layout: Layout, variables: Sequence[str]
) -> tuple[dict[str, NDArray[Any]], IntArray]:
    """Return the rows that readings make, in the order of recordings and times, and the (d,) number of values."""
    d = len(variables)
    # Within a cell, readings are in the order of time and value.
    order = np.lexsort((readings.value, readings.tick, readings.variable, readings.row, readings.code))
    code, row, variable = readings.code[order], readings.row[order], readings.variable[order]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (code[1:] != code[:-1]) | (row[1:] != row[:-1])
    is_first = begins.copy()
    is_first[1:] |= variable[1:] != variable[:-1]
    firsts = np.flatnonzero(is_first)
    counts = np.diff(np.append(firsts, len(order)))
    values = readings.value[order]
    # Differences from the first one: the mean of equal readings is that reading.
    first, which = values[firsts], np.cumsum(is_first) - 1
    means = first + np.bincount(which, values - first[which], len(firsts)) / counts
    kinds = (layout.kinds.get(name) for name in variables)
    is_measured = np.array([kind is None or kind.name in _MEASURED for kind in kinds])
    of_cells = variable[firsts]
    table = np.full((int(begins.sum()), d), np.nan)
    last = values[firsts + counts - 1]
    table[(np.cumsum(begins) - 1)[firsts], of_cells] = np.where(is_measured[of_cells], means, last)
    found: dict[str, NDArray[Any]] = {"code": code[begins], "tick": row[begins], "values": table}
    if readings.label is not None:
        found["label"] = readings.label[order[begins]]
    return found, np.bincount(of_cells, minlength=d)


def with_empty_rows(
    rows: dict[str, NDArray[Any]], clock: Clock | None, layout: Layout
) -> dict[str, NDArray[Any]]:
    """Return rows with empty ones for the steps of a clock between them, where these are few."""
    code, tick, n = rows["code"], rows["tick"], len(rows["code"])
    step = 1 if clock is None else clock.step or 1
    lacking = np.zeros(n, dtype=np.int64)
    if clock is not None and layout.gaps == "keep":
        lacking[1:] = np.where(code[1:] == code[:-1], np.rint(np.diff(tick) / step) - 1, 0)
        lacking[lacking > MOST_EMPTY] = 0
    order = np.repeat(np.arange(n), lacking + 1)
    before = np.cumsum(lacking + 1)[order] - 1 - np.arange(len(order))
    found = {name: one[order] for name, one in rows.items()}
    found["tick"], found["hollow"] = found["tick"] - before * step, before > 0
    found["values"][found["hollow"]] = np.nan
    if layout.label == ROW_TIMES and clock is not None:
        found["label"] = clock.dates(found["tick"])
    return found


def tally(layout: Layout, variables: Sequence[str], used: IntArray, became: IntArray) -> list[Finding]:
    """What to say of the readings of a site: (d,) that are used, and values that they became."""
    n, left = int(used.sum()), int(became.sum())
    if left == n:
        return []
    lost = 1 - became / np.maximum(used, 1)
    shares = {variables[j]: float(lost[j]) for j in np.argsort(-lost, kind="stable") if lost[j] > 0}
    values = {"how": layout.way, "n": n, "n_values": left, "shares": shares, "step": layout.freq}
    values["readings"] = dict(zip(variables, map(int, used), strict=True))
    is_coarse = layout.way == "average" and left < _FEW_LEFT * n
    return [Finding("averaged", "warning" if is_coarse else "note", values)]


def names_of(column: pd.Series) -> pd.Series:
    """Names as text, empty ones as NaN; codes that are whole numbers have no decimal point."""
    if pd.api.types.is_float_dtype(column.dtype) and (column.dropna() % 1 == 0).all():
        column = column.astype("Int64")
    return column.astype(object).where(column.notna(), np.nan).map(str, na_action="ignore")


def numbers_of(column: pd.Series, names: NDArray[np.object_], layout: Layout, where: str) -> FloatArray:
    """(n,) values of readings of variables `names`; levels of declared kinds are their positions."""
    is_number = pd.api.types.is_numeric_dtype(column.dtype)
    plain = column if is_number else pd.to_numeric(column, errors="coerce")
    numbers = np.array(plain.to_numpy(dtype=np.float64, na_value=np.nan))
    for name, kind in with_levels(layout.kinds).items():
        mine = names == name
        numbers[mine] = positions(column[mine], kind)[0]
    for name, kind in layout.kinds.items():
        refuse_misfits(numbers[names == name], name, kind, where)
    odd = np.flatnonzero((np.isnan(numbers) & column.notna().to_numpy()) | np.isinf(numbers))
    if len(odd):
        row = int(odd[0])
        raise DataError(
            f"{where} has {str(column.iloc[row])!r} as a value of {names[row]!r} in column {column.name!r} at row "
            f"{column.index[row]} (counted from 0), which is no finite number; correct it, leave the variable out with "
            f"{Given('variables')}, or declare its levels with {Given('kinds')}.",
            code="infinite" if np.isinf(numbers[row]) else "not-numeric",
            columns=(str(column.name),),
        )
    return numbers
