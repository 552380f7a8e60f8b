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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.data.cells import positions, with_levels
from feddbn.data.layout import Layout
from feddbn.data.times import IntArray
from feddbn.errors import DataError, Given
from feddbn.findings import Finding

__all__ = [
    "MOST_APART",
    "Readings",
    "StepTable",
    "averaged",
    "names_of",
    "numbers_of",
    "tally",
]

_MEASURED = ("continuous", "positive")
MOST_APART = 0.8
"""A step keeps most readings apart if it keeps this share of them."""
# Times are floats where they are divided, and those at the beginning of a step must not fall into the one before.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Readings:
    """Readings (n,) of recordings `code` at `tick`, of `variable` with `value`, and perhaps a label for each."""

    code: IntArray
    tick: IntArray
    variable: NDArray[np.integer]
    value: FloatArray
    label: NDArray[np.generic] | None = None


def averaged(
    readings: Readings, layout: Layout, variables: Sequence[str], step: int
) -> tuple[dict[str, NDArray[Any]], IntArray]:
    """Return the rows that readings make, one for each recording and step of `step` ticks, and the (d,) number of values."""
    d, row = len(variables), readings.tick // step
    # Within a cell, readings are in the order of time and value.
    order = np.lexsort((readings.value, readings.tick, readings.variable, row, readings.code))
    code, row, variable = readings.code[order], row[order], readings.variable[order]
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
    found: dict[str, NDArray[Any]] = {"code": code[begins], "tick": row[begins] * step, "values": table}
    if readings.label is not None:
        heads = np.lexsort(
            (readings.value, readings.variable, readings.tick, readings.tick // step, readings.code)
        )
        found["label"] = readings.label[heads[begins]]
    return found, np.bincount(of_cells, minlength=d)


def tally(layout: Layout, variables: Sequence[str], used: IntArray, became: IntArray) -> list[Finding]:
    """What to say of the readings of a site: (d,) that are used, and values that they became."""
    n, left = int(used.sum()), int(became.sum())
    if left == n:
        return []
    lost = 1 - became / np.maximum(used, 1)
    shares = {variables[j]: float(lost[j]) for j in np.argsort(-lost, kind="stable") if lost[j] > 0}
    values = {"how": layout.way, "n": n, "n_values": left, "shares": shares, "step": layout.freq}
    values["readings"] = dict(zip(variables, map(int, used), strict=True))
    is_coarse = layout.way == "average" and left < MOST_APART * n
    return [Finding("averaged", "warning" if is_coarse else "note", values)]


@dataclass(frozen=True)
class StepTable:
    """What each of some steps would do to readings.

    Attributes
    ----------
    texts
        The steps, ascending.
    kept
        (m,) share of the readings that a step keeps apart; readings of one variable at one time are one.
    filled
        (m, d) share of the steps, from the first to the last reading of a recording, in which a variable was read.
    """

    variables: tuple[str, ...]
    texts: tuple[str, ...]
    kept: FloatArray
    filled: FloatArray

    @property
    def best(self) -> int | None:
        """The place of the largest step that keeps most readings apart, None if there is none."""
        enough = np.flatnonzero(self.kept >= MOST_APART)
        return int(enough[-1]) if len(enough) else None

    @classmethod
    def of(
        cls,
        variables: tuple[str, ...],
        steps: Mapping[str, float],
        rows: Iterator[tuple[IntArray, IntArray, NDArray[np.bool_]]],
    ) -> StepTable:
        """Return it from recordings, times in order and cells (n, d) that are there, of some rows at a time."""
        n_readings, n_steps = 0, np.zeros(len(steps))
        cells = np.zeros((len(steps), len(variables)))
        for code, tick, is_there in rows:
            n_readings += int(is_there.sum())
            ends = np.flatnonzero(np.append(np.diff(code) != 0, True))
            heads = np.append(0, ends[:-1] + 1)
            for k, size in enumerate(steps.values()):
                number = np.floor(tick / size + _ROUNDING)
                begins = np.flatnonzero(np.append(True, (np.diff(number) != 0) | (np.diff(code) != 0)))
                cells[k] += np.logical_or.reduceat(is_there, begins, axis=0).sum(axis=0)
                n_steps[k] += (number[ends] - number[heads] + 1).sum()
        shares = cells / np.maximum(n_steps, 1)[:, None]
        return cls(variables, tuple(steps), cells.sum(axis=1) / max(n_readings, 1), shares)


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
    strange = np.isnan(numbers) & column.notna().to_numpy()
    if strange.any():
        row = int(np.flatnonzero(strange)[0])
        raise DataError(
            f"{where} has {str(column.iloc[row])!r} as a value of {names[row]!r} in column "
            f"{column.name!r} at row {column.index[row]} (counted from 0), which is not a number; correct it, leave the "
            f"variable out with {Given('variables')}, or declare its levels with {Given('kinds')}.",
            code="not-numeric",
            columns=(str(column.name),),
        )
    return numbers
