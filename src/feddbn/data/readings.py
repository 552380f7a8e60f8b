"""From readings to rows: tables that name the variable in a column, and times that are not equally far apart.

The one place where this is done, whatever the rows came from: in memory all at once, else batch by batch in the order of
recordings and times. Either gives the same bits: readings are put in the order of recording, time and value, and whatever is
averaged is added up in that order.

The rule
--------
- A reading is a recording, a time, a variable and a value. A row with many variables has one for each of its present cells.
- Its unit is changed first (`units`), then what lies beyond its `limits` is left out.
- "average": a row for every step in which something was read. A step is counted from the zero of the clock (1970 for dates),
  so all recordings have the same grid. Readings of a variable in one step become their mean; of a variable with levels, or
  one that counts, the last one stands. Steps without a reading are empty rows (`feddbn.data.streaming.RowCutter`).
- "keep" and "refuse": a row for every time at which something was read; only readings of the same time are averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind
from feddbn.core.sources import Source
from feddbn.data.layout import Layout, frame_values, names_of_keys, positions, quoted
from feddbn.data.times import HOUR, Clock, IntArray, exact_unit, parse_times
from feddbn.errors import DataError, Given, ParameterError
from feddbn.settings import Rule, setting

__all__ = ["Gathered", "Gatherer", "Tally", "gathered", "tidy_frame"]

_MEASURED = ("continuous", "positive")


@dataclass(frozen=True)
class Tally:
    """What was done to the readings of a site; arrays have an entry per variable.

    Attributes
    ----------
    n_readings, n_shared
        Readings that are used, and how many of them share their row with another one of the same variable.
    n_beyond
        Readings beyond their limits.
    n_rows
        Rows that they became.
    """

    variables: tuple[str, ...]
    n_readings: IntArray
    n_shared: IntArray
    n_beyond: IntArray
    n_rows: int

    def __add__(self, other: Tally) -> Tally:
        counts = (
            getattr(self, one) + getattr(other, one)
            for one in ("n_readings", "n_shared", "n_beyond", "n_rows")
        )
        return Tally(self.variables, *counts)


@dataclass(frozen=True, repr=False)
class Gathered(Layout):
    """The layout of rows that were made of readings."""

    tallies: Any = setting(
        None, Rule(lambda value: True, ("tallies",)), "What was done to readings, by site."
    )

    @property
    def gathers(self) -> bool:
        """Whether rows have yet to be made of readings: they are."""
        return False


def tidy_frame(frame: pd.DataFrame, layout: Layout, where: str) -> tuple[pd.DataFrame, Layout]:
    """Return the frame with text column names and one row per time, and its layout; dates in the index are its times."""
    keys = [name for name in layout.keys.values() if name is not None]
    if any(name in frame.index.names for name in keys if name not in frame.columns):
        frame = frame.reset_index()
    elif layout.time is None and isinstance(frame.index, (pd.DatetimeIndex, pd.PeriodIndex)):
        name = str(frame.index.name or "index")
        if name not in frame.columns:
            frame = frame.rename_axis(index=name).reset_index()
            layout = replace(layout, time=name)
    columns = frame.columns.tolist()
    names = [str(name) for name in columns]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise DataError(
            f"{where} has more than one column {quoted(twice)}; give every column its own name.", code="twice"
        )
    if any(type(name) is not str for name in columns):
        frame = frame.set_axis(names, axis=1)
    layout.require_keys(names, where)
    if layout.names is None and layout.sources:
        frame, layout = _renamed(frame, layout, where)
    return gathered(frame, layout, where) if layout.gathers else (frame, layout)


def _renamed(frame: pd.DataFrame, layout: Layout, where: str) -> tuple[pd.DataFrame, Layout]:
    """Columns under the names of their variables, and a layout that finds them there."""
    variables = layout.choose_variables(list(frame.columns), where)
    found = {one.name: variables[k] for k, one in layout.sources_of(variables)}
    own = {found[one.name]: (Source(found[one.name], one.change),) for _, one in layout.sources_of(variables)}
    frame = frame[[*layout.kept_keys, *found]].rename(columns=found)
    return frame, replace(layout, sources=own, variables=variables)


def gathered(frame: pd.DataFrame, layout: Layout, where: str) -> tuple[pd.DataFrame, Gathered]:
    """Return the rows that the readings in a table make, and their layout."""
    if layout.time is None:
        said = Given("names", layout.names) if layout.names is not None else Given("irregular", layout.way)
        raise ParameterError(f"{said} needs times; name their column with {Given('time')}.", argument="time")
    variables = layout.variables
    if layout.names is None:
        variables = layout.choose_variables(list(frame.columns), where)
    else:
        variables = named_variables(frame[layout.names], layout, where)
    clock = reading_clock(layout, frame[layout.time], where)
    gatherer = Gatherer(layout, clock, variables, where)
    rows = pd.concat([gatherer.feed(frame), gatherer.close()], ignore_index=True)
    return rows, gatherer.layout


def named_variables(column: pd.Series, layout: Layout, where: str) -> tuple[str, ...]:
    """The variables among the names in a column: those asked for, or all in the order of the alphabet."""
    found = set(_names(column.drop_duplicates()).dropna())
    if layout.variables is not None:
        layout.require_sources(found, where, f"readings in column {layout.names!r} of")
        return layout.variables
    clash = sorted(found & set(layout.kept_keys))
    if clash or not found:
        what = f"the name {clash[0]!r}, which is a column, too" if clash else "no name of a variable"
        raise DataError(
            f"{where} has {what} in column {layout.names!r}; choose others with {Given('variables')}."
        )
    return tuple(sorted(found))


def _names(column: pd.Series) -> pd.Series:
    """Names as text, empty ones as NaN; codes that are whole numbers have no decimal point."""
    if pd.api.types.is_float_dtype(column.dtype) and (column.dropna() % 1 == 0).all():
        column = column.astype("Int64")
    return column.astype(object).where(column.notna(), np.nan).map(str, na_action="ignore")


def reading_clock(layout: Layout, column: pd.Series, where: str) -> Clock:
    """The clock by which readings are put into rows: its step is that of "average", or the unit of times that are kept."""
    unit, declared = exact_unit(parse_times(column, where, layout.day_first)), layout.clock
    one = {"instant": HOUR, "integer": 1, "decimal": 10**9}[unit]
    if declared is None:
        if layout.way == "average":
            raise ParameterError(
                f"{Given('irregular', 'average')} needs a step; give {Given('freq')}, such as {Given('freq', '1h')}.",
                argument="freq",
            )
        return Clock(unit, one, True, layout.day_first)
    if declared.unit == "integer" and unit == "decimal":
        return replace(declared, unit=unit, step=(declared.step or 1) * one)
    if layout.way != "average" and declared.unit in ("month", "business"):
        if layout.way == "keep":
            raise ParameterError(
                f"{Given('freq', layout.freq)} has no fixed length, in which times can be counted; give a step such as '1h' "
                "or 'D'.",
                argument="freq",
            )
        return Clock(unit, one, True, layout.day_first)
    return declared


class Gatherer:
    """Makes rows of readings, whose recordings and times come in order if they come in batches."""

    def __init__(self, layout: Layout, clock: Clock, variables: Sequence[str], where: str) -> None:
        self._layout, self._clock, self._where = layout, clock, where
        self._variables = tuple(variables)
        found = layout.sources_of(variables)
        self._owner, self._sources = np.array([k for k, _ in found]), pd.Index([one.name for _, one in found])
        self._keys = [name for name in (layout.site, layout.series) if name is not None]
        self._step = int(clock.step or 1) if layout.way == "average" else 1
        kinds = (layout.kinds.get(name) for name in self._variables)
        self._is_measured = np.array([kind is None or kind.name in _MEASURED for kind in kinds])
        self._held: pd.DataFrame | None = None
        self._zone: Any = None
        self._tallies: dict[str, Tally] = {}

    @property
    def layout(self) -> Gathered:
        """How the rows are read on."""
        now = self._layout
        own = {name: getattr(now, name) for name in ("site", "series", "time", "label", "missing", "jitter")}
        own |= {"irregular": now.way, "variables": self._variables}
        own["freq"] = now.freq if now.way == "refuse" else self._clock.text
        return Gathered(**own, tallies=self._tallies)

    def feed(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the next rows; readings of the last one wait for more."""
        readings = self._readings(frame)
        if self._held is not None:
            readings = pd.concat([self._held, readings], ignore_index=True)
        readings = self._in_order(readings)
        if not len(readings):
            return self._rows(readings)
        place = [*self._keys, "row"]
        last = readings[place].iloc[-1]
        is_last = (readings[place] == last).all(axis=1).to_numpy()
        self._held = readings[is_last]
        return self._rows(readings[~is_last])

    def close(self) -> pd.DataFrame:
        """Return the last row."""
        held, self._held = self._held, None
        return self._rows(self._readings_of({}) if held is None else held)

    def _readings(self, frame: pd.DataFrame) -> pd.DataFrame:
        """One line for each reading: its keys, time, row, variable, value and label."""
        layout, where = self._layout, self._where
        times = parse_times(frame[layout.time], where, layout.day_first)
        self._zone = getattr(times, "tz", self._zone)
        ticks = self._clock.ticks(frame[layout.time], where)
        if layout.names is None:
            cells = frame_values(frame, self._variables, where, layout.kinds)
            at, source = np.nonzero(~np.isnan(cells))
            values = cells[at, source]
        else:
            codes = self._sources.get_indexer(pd.Index(_names(frame[layout.names])))
            numbers = self._numbers(frame[layout.values], np.where(codes >= 0, self._owner[codes], -1))
            at = np.flatnonzero((codes >= 0) & ~np.isnan(numbers))
            source, values = codes[at], numbers[at]
        variable = self._owner[source]
        if np.isinf(values).any():
            k = int(np.flatnonzero(np.isinf(values))[0])
            raise DataError(
                f"{where} has an infinite value of {self._variables[variable[k]]!r} at row {int(at[k])} (counted from 0); "
                "remove it or leave it empty.",
                code="infinite",
            )
        values = layout.plausible(values, self._variables, source)
        arguments = {layout.site: "site", layout.series: "series"}
        columns: dict[str, Any] = {
            key: names_of_keys(frame[key], arguments[key], where)[at] for key in self._keys
        }
        columns |= {"tick": ticks[at], "variable": variable.astype(np.int64), "value": values}
        if layout.keys["label"] is not None:
            columns["label"] = frame[layout.label].to_numpy()[at]
        readings = self._readings_of(columns)
        beyond = np.isnan(values)
        self._count(readings[beyond], n_beyond=True)
        return readings[~beyond]

    def _readings_of(self, columns: Mapping[str, Any]) -> pd.DataFrame:
        empty = {key: np.zeros(0, dtype=object) for key in self._keys}
        numbers = {name: np.zeros(0, dtype=np.int64) for name in ("tick", "variable")}
        label = {} if self._layout.keys["label"] is None else {"label": np.zeros(0, dtype=object)}
        found = pd.DataFrame({**empty, **numbers, "value": np.zeros(0), **label, **columns})
        found["row"] = found["tick"] // self._step
        return found

    def _numbers(self, column: pd.Series, codes: IntArray) -> FloatArray:
        """(n,) values; levels of declared kinds are their positions."""
        if pd.api.types.is_numeric_dtype(column.dtype):
            numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
        strange = np.isnan(numbers) & column.notna().to_numpy() & (codes >= 0)
        for name, kind in self._layout.kinds.items():
            if kind.levels and name in self._variables:
                mine = codes == self._variables.index(name)
                numbers = np.where(mine, np.nan, numbers)
                numbers[mine], odd = _positions(column[mine], kind)
                strange[mine] = odd
        if strange.any():
            row = int(np.flatnonzero(strange)[0])
            raise DataError(
                f"{self._where} has {str(column.iloc[row])!r} as a value of {self._variables[codes[row]]!r} in column "
                f"{column.name!r} at row {row} (counted from 0), which is not a number; correct it, leave the variable out "
                f"with {Given('variables')}, or declare its levels with {Given('kinds')}.",
                code="not-numeric",
                columns=(str(column.name),),
            )
        return np.asarray(numbers)

    def _in_order(self, readings: pd.DataFrame) -> pd.DataFrame:
        keys = [pd.factorize(readings[key], sort=True)[0] for key in self._keys]
        order = np.lexsort(
            [*(readings[name].to_numpy() for name in ("value", "variable", "tick")), *reversed(keys)]
        )
        return readings.iloc[order]

    def _rows(self, readings: pd.DataFrame) -> pd.DataFrame:
        """One line for each row, of readings in order."""
        d, n = len(self._variables), len(readings)
        place = readings[[*self._keys, "row"]]
        begins = np.ones(n, dtype=bool)
        begins[1:] = (place.iloc[1:].to_numpy() != place.iloc[:-1].to_numpy()).any(axis=1)
        number = np.cumsum(begins) - 1
        cell = number * d + readings["variable"].to_numpy()
        # Within a cell, readings stay in the order of time and value.
        order = np.argsort(cell, kind="stable")
        cell, values = cell[order], readings["value"].to_numpy()[order]
        cells, firsts, counts = np.unique(cell, return_index=True, return_counts=True)
        first = values[firsts]
        # Differences from the first one: the mean of equal readings is that reading.
        which = np.repeat(np.arange(len(cells)), counts)
        extra = np.bincount(which, values - first[which], len(cells))
        means = first + extra / counts
        measured = self._is_measured[cells % d] if d else np.zeros(0, dtype=bool)
        table = np.full((int(begins.sum()), d), np.nan)
        table.flat[cells] = np.where(measured, means, values[firsts + counts - 1])
        self._count(readings[begins], n_rows=True)
        self._count(readings, counts=counts[which][np.argsort(order)])
        heads = readings[begins]
        found = pd.DataFrame(table, columns=list(self._variables))
        for key in self._keys:
            found[key] = heads[key].to_numpy()
        if self._layout.keys["label"] is not None:
            found[self._layout.label] = heads["label"].to_numpy()
        found[self._layout.time] = self._clock.times(heads["row"].to_numpy() * self._step, self._zone)
        return found

    def _count(
        self,
        readings: pd.DataFrame,
        n_beyond: bool = False,
        n_rows: bool = False,
        counts: IntArray | None = None,
    ) -> None:
        d, site = len(self._variables), self._layout.site
        owners = np.zeros(len(readings), dtype=int) if site is None else pd.factorize(readings[site])[0]
        names = [""] if site is None else list(pd.unique(readings[site]))
        variable = readings["variable"].to_numpy()
        for k, name in enumerate(names):
            mine = owners == k
            n = np.bincount(variable[mine], minlength=d)
            none = np.zeros(d, dtype=np.int64)
            shared = none if counts is None else np.bincount(variable[mine & (counts > 1)], minlength=d)
            new = Tally(
                self._variables,
                none if counts is None else n,
                shared,
                n if n_beyond else none,
                int(mine.sum()) if n_rows else 0,
            )
            self._tallies[name] = self._tallies[name] + new if name in self._tallies else new


def _positions(column: pd.Series, kind: Kind) -> tuple[FloatArray, Any]:
    """(n,) positions of levels, and which cells have none."""
    found, _ = positions(column, kind)
    return found, np.isnan(found) & column.notna().to_numpy()
