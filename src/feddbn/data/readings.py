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
- "refuse": a row for every time at which something was read; only readings of the same time are averaged.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.data.kinds import refuse_misfits
from feddbn.data.layout import Layout, frame_values, names_of_keys, positions, quoted, with_levels
from feddbn.data.sources import Source
from feddbn.data.steps import MOST_APART, StepCount
from feddbn.data.tables import ParquetTable, Table, refuse_twice, sorted_frames
from feddbn.data.times import HOUR, Clock, IntArray, exact_unit, parse_times, ways_of_dates
from feddbn.errors import DataError, Given, ParameterError
from feddbn.findings import Finding
from feddbn.settings import Rule, setting

__all__ = [
    "Counted",
    "Gathered",
    "Gatherer",
    "Tally",
    "gathered",
    "gathered_table",
    "refuse_readings",
    "site_tally",
    "tidy_frame",
]

_MEASURED = ("continuous", "positive")


@dataclass(frozen=True)
class Tally:
    """What was done to the readings of a site: (3, d) readings that are used, values they became, readings beyond limits."""

    variables: tuple[str, ...]
    counts: IntArray

    def findings(self, layout: Layout) -> tuple[Finding, ...]:
        """What to say of it."""
        used, became, beyond = self.counts
        n, left = int(used.sum()), int(became.sum())
        if left == n:
            return beyond_limits(self.variables, beyond)
        lost = 1 - became / np.maximum(used, 1)
        shares = {self.variables[j]: float(lost[j]) for j in np.argsort(-lost, kind="stable") if lost[j] > 0}
        values = {"how": layout.way, "n": n, "n_values": left, "shares": shares, "step": layout.freq}
        values["readings"] = dict(zip(self.variables, map(int, used), strict=True))
        is_coarse = layout.way == "average" and left < MOST_APART * n
        found = Finding("averaged", "warning" if is_coarse else "note", values)
        return (found, *beyond_limits(self.variables, beyond))


def beyond_limits(variables: Sequence[str], n_beyond: IntArray) -> tuple[Finding, ...]:
    """A finding if cells lie beyond their limits."""
    cells = {name: int(n) for name, n in zip(variables, n_beyond, strict=True) if n}
    return (Finding("beyond-limits", "note", {"cells": cells}),) if cells else ()


@dataclass(frozen=True, repr=False)
class Gathered(Layout):
    """The layout of rows that were made of readings: what was done to them by site, and the names that they had."""

    tallies: Any = setting(None, Rule(lambda value: True, ("tallies",)), "Site -> tally.")
    found: Any = setting(None, Rule(lambda value: True, ("names",)), "Names of variables in the table.")

    @property
    def gathers(self) -> bool:
        """Whether rows have yet to be made of readings: they are."""
        return False


@dataclass(frozen=True, repr=False)
class Counted(Layout):
    """The layout of readings whose step is yet to be chosen: what usual steps would keep of each table is put into a list."""

    counts: Any = setting(None, Rule(lambda value: True, ("a list",)), "A `StepCount` for each table.")


_LOOKED_AT = 20_000
_MANY, _FEW = 0.25, 0.05


def readings_in(frame: pd.DataFrame, layout: Layout) -> tuple[dict[str, str], list[str]]:
    """Return the settings that read a table with one reading per row, and other columns of names; empty if it is none.

    The names are in the column of texts that repeat within times and tell most about the one column of numbers.
    """
    keys = {layout.site, layout.series} & {*frame.columns}
    frame = frame.head(_LOOKED_AT)
    free = [name for name in frame.columns if name not in keys | {layout.time, layout.label}]
    numbers = [name for name in free if pd.api.types.is_numeric_dtype(frame[name].dtype)]
    others = {name: bool(ways_of_dates(frame[name])) for name in free if name not in numbers}
    texts = [name for name, is_date in others.items() if not is_date]
    if layout.names is not None or not texts:
        return {}, []
    for time in [layout.time] if layout.time is not None else [*(n for n in others if others[n]), *numbers]:
        values = [name for name in numbers if name != time]
        if len(values) != 1:
            continue
        ranks = frame[values[0]].rank()
        told = {one: float(ranks.groupby(frame[one].to_numpy()).transform("mean").var()) for one in texts}
        for names in sorted(texts, key=lambda name: -told[name]):
            rest = [name for name in texts if name != names]
            place = [time, *keys, *rest]
            is_once = frame.duplicated([*place, names]).mean() <= _FEW
            is_repeated = frame[names].nunique() < _MANY * len(frame)
            if is_once and is_repeated and frame.duplicated(place).mean() >= _MANY:
                said = {"names": names, "values": values[0]}
                return said if time == layout.time else {**said, "time": str(time)}, rest
    return {}, []


def refuse_readings(frame: pd.DataFrame, layout: Layout, where: str) -> None:
    """Refuse a table that has one reading per row, if nobody says so."""
    said, rest = readings_in(frame, layout)
    if not said:
        return
    given = ", ".join(f"{Given(name, column)}" for name, column in said.items())
    roles = "".join(
        f"; {Given('site', name)} or {Given('series', name)} says what {name!r} names" for name in rest
    )
    roles = roles or f"; or {Given('site', said['names'])} if it names sites"
    raise DataError(
        f"{where} seems to have one reading per row: column {said['names']!r} names the variable and column "
        f"{said['values']!r} has its value; give {given}{roles}.",
        code="readings",
        columns=(*said.values(), *rest),
        cure=said,
    )


def site_tally(layout: Layout, made: Sequence[Layout], name: str) -> tuple[Finding, ...]:
    """What was done to the readings of a site, whose tables became rows of these layouts; a variable needs readings."""
    own = [one for one in made if isinstance(one, Gathered)]
    tallies = [one.tallies[key] for one in own for key in (name, "") if key in one.tallies]
    if layout.names is not None:
        names = {each for one in own for each in one.found}
        layout.require_sources(names, f"site {name!r}", f"readings in column {layout.names!r} of")
    if not tallies:
        return ()
    total = Tally(tallies[0].variables, np.sum([one.counts for one in tallies], axis=0))
    lacking = [one for one, n in zip(total.variables, total.counts.sum(axis=0), strict=True) if n == 0]
    if lacking:
        raise DataError(
            f"site {name!r} has no reading of {quoted(lacking)}; leave the site out, or choose other variables with "
            f"{Given('variables')}.",
            code="no-reading",
        )
    return total.findings(own[0])


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
    refuse_twice(names, where)
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
    gatherer = _gatherer(layout, list(frame.columns), lambda columns: iter([frame[columns]]), where)
    rows = pd.concat([gatherer.feed(gatherer.readings(frame)), gatherer.close()], ignore_index=True)
    return rows, gatherer.layout


def gathered_table(table: Table, layout: Layout, batch_rows: int) -> tuple[Table, Gathered]:
    """Return the rows of a table of any size as a table in a file of its own, and their layout (needs duckdb)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def frames(columns: list[str]) -> Iterator[pd.DataFrame]:
        return table.frames(columns, 0, batch_rows)[1]

    gatherer = _gatherer(layout, table.columns(), frames, table.where)
    keys = [name for name in (layout.site, layout.series) if name is not None]
    used = [name for name in layout.keys.values() if name is not None]
    used += [one.name for _, one in layout.sources_of(gatherer.variables)] if layout.names is None else []
    readings = (one for one in map(gatherer.readings, frames(used)) if len(one))
    # Nobody else can read the folder, which is removed with the table.
    folder = TemporaryDirectory(prefix="feddbn-")
    path, writer = Path(folder.name) / "rows.parquet", None
    in_order = sorted_frames(readings, [*keys, "tick", "variable", "value"], batch_rows)
    for rows in chain(map(gatherer.feed, in_order), (gatherer.close() for _ in range(1))):
        if not len(rows):
            continue
        found = pa.Table.from_pandas(rows, writer and writer.schema, preserve_index=False)
        writer = writer or pq.ParquetWriter(path, found.schema)
        writer.write_table(found)
    assert writer is not None
    writer.close()
    made = ParquetTable(path)
    weakref.finalize(made, folder.cleanup)
    made.name, made.where = table.name, table.where
    return made, gatherer.layout


def _gatherer(
    layout: Layout,
    columns: Sequence[str],
    frames: Callable[[list[str]], Iterator[pd.DataFrame]],
    where: str,
) -> Gatherer:
    """What makes rows of the readings in a table; one look at its names and times says of which variables and clock."""
    if layout.time is None:
        said = Given("names", layout.names) if layout.names is not None else Given("irregular", layout.way)
        raise ParameterError(
            f"{said} needs times; name their column with {Given('time')}.", code="needs-times"
        )
    names, unit = set[str](), ""
    variables = layout.choose_variables(columns, where) if layout.names is None else layout.variables
    for frame in frames([name for name in (layout.time, layout.names) if name is not None]):
        found = exact_unit(parse_times(frame[layout.time], where, layout.day_first))
        unit = "decimal" if {unit, found} == {"integer", "decimal"} else found
        if variables is None:
            names |= set(_names(frame[layout.names].drop_duplicates()).dropna())
        elif unit == "instant":
            break
    if variables is None:
        clash = sorted(names & set(layout.kept_keys))
        if clash or not names:
            what = f"the name {clash[0]!r}, which is a column, too" if clash else "no name of a variable"
            raise DataError(
                f"{where} has {what} in column {layout.names!r}; choose others with {Given('variables')}."
            )
        variables = tuple(sorted(names))
    return Gatherer(layout, reading_clock(layout, unit or "integer"), variables, where)


def _names(column: pd.Series) -> pd.Series:
    """Names as text, empty ones as NaN; codes that are whole numbers have no decimal point."""
    if pd.api.types.is_float_dtype(column.dtype) and (column.dropna() % 1 == 0).all():
        column = column.astype("Int64")
    return column.astype(object).where(column.notna(), np.nan).map(str, na_action="ignore")


def reading_clock(layout: Layout, unit: str) -> Clock:
    """The clock by which readings are put into rows: its step is that of "average", or a unit if none is chosen."""
    declared = layout.clock
    one = {"instant": HOUR, "integer": 1, "decimal": 10**9}[unit]
    if declared is None:
        return Clock(unit, one, True, layout.day_first)
    if declared.unit == "integer" and unit == "decimal":
        return replace(declared, unit=unit, step=(declared.step or 1) * one)
    if layout.way != "average" and declared.unit in ("month", "business"):
        return Clock(unit, one, True, layout.day_first)
    return declared


class Gatherer:
    """Makes rows of readings, whose recordings and times come in order if they come in batches."""

    def __init__(self, layout: Layout, clock: Clock, variables: Sequence[str], where: str) -> None:
        self._layout, self._clock, self._where = layout, clock, where
        self.variables = tuple(variables)
        found = layout.sources_of(variables)
        self._owner, self._sources = np.array([k for k, _ in found]), pd.Index([one.name for _, one in found])
        self._keys = [name for name in (layout.site, layout.series) if name is not None]
        self._step = int(clock.step or 1) if layout.way == "average" else 1
        kinds = (layout.kinds.get(name) for name in self.variables)
        self._is_measured = np.array([kind is None or kind.name in _MEASURED for kind in kinds])
        self._held: pd.DataFrame | None = None
        self._found: set[str] = set()
        self._n_lines = 0
        self._zone: Any = None
        self._tallies: dict[str, Tally] = {}
        self._steps: StepCount | None = None
        if isinstance(layout, Counted):
            self._steps = StepCount(variables, clock)
            layout.counts.append(self._steps)
        self._recording: tuple[Any, ...] | None = None

    @property
    def layout(self) -> Gathered:
        """How the rows are read on."""
        now = self._layout
        own = {name: getattr(now, name) for name in ("site", "series", "time", "label", "missing", "jitter")}
        own |= {"irregular": now.way, "variables": self.variables}
        own["freq"] = now.freq if now.way == "refuse" else self._clock.text
        return Gathered(**own, tallies=self._tallies, found=self._found)

    def feed(self, readings: pd.DataFrame) -> pd.DataFrame:
        """Return the next rows; readings of the last one wait for more."""
        if self._held is not None:
            readings = pd.concat([self._held, readings], ignore_index=True)
        keys = [pd.factorize(readings[key], sort=True)[0] for key in self._keys]
        within = [readings[name].to_numpy() for name in ("value", "variable", "tick")]
        readings = readings.iloc[np.lexsort([*within, *reversed(keys)])]
        place = readings[[*self._keys, "row"]]
        is_last = (place == place.iloc[-1]).all(axis=1).to_numpy() if len(place) else np.zeros(0, dtype=bool)
        self._held = readings[is_last]
        return self._rows(readings[~is_last])

    def close(self) -> pd.DataFrame:
        """Return the last row."""
        if self._held is None:
            raise DataError(f"{self._where} has no reading that can be used.", code="no-reading")
        held, self._held = self._held, None
        return self._rows(held)

    def readings(self, frame: pd.DataFrame) -> pd.DataFrame:
        """One line for each reading of the next lines of a table: its keys, time, row, variable, value and label."""
        layout, where, before = self._layout, self._where, self._n_lines
        self._n_lines += len(frame)
        times = parse_times(frame[layout.time], where, layout.day_first)
        self._zone = getattr(times, "tz", self._zone)
        ticks = self._clock.ticks(frame[layout.time], where)
        if layout.names is None:
            frame = frame.rename(columns=dict(zip(self._sources, self.variables, strict=True)))
            cells = frame_values(frame, self.variables, where, layout.kinds)
            at, source = np.nonzero(~np.isnan(cells))
            values = cells[at, source]
        else:
            which, found = pd.factorize(frame[layout.names])
            names = _names(pd.Series(found))
            self._found.update(names.dropna())
            # A line without a name has the code -1, which is the last place.
            codes = np.append(self._sources.get_indexer(pd.Index(names)), -1)[which]
            numbers = self._numbers(
                frame[layout.values], np.where(codes >= 0, self._owner[codes], -1), before
            )
            at = np.flatnonzero((codes >= 0) & ~np.isnan(numbers))
            source, values = codes[at], numbers[at]
        variable = self._owner[source]
        if np.isinf(values).any():
            k = int(np.flatnonzero(np.isinf(values))[0])
            raise DataError(
                f"{where} has an infinite value of {self.variables[variable[k]]!r} at row {before + int(at[k])} (counted "
                "from 0); remove it or leave it empty.",
                code="infinite",
            )
        arguments = {layout.site: "site", layout.series: "series"}
        columns: dict[str, Any] = {
            key: names_of_keys(frame[key], arguments[key], where)[at] for key in self._keys
        }
        values = layout.plausible(values, self.variables, source)
        columns |= {"row": ticks[at] // self._step, "tick": ticks[at], "variable": variable, "value": values}
        if layout.keys["label"] is not None:
            columns["label"] = frame[layout.label].to_numpy()[at]
        readings = pd.DataFrame(columns)
        beyond = np.isnan(values)
        self._count(2, readings[beyond])
        return readings[~beyond]

    def _numbers(self, column: pd.Series, codes: IntArray, before: int) -> FloatArray:
        """(n,) values; levels of declared kinds are their positions."""
        plain = (
            column if pd.api.types.is_numeric_dtype(column.dtype) else pd.to_numeric(column, errors="coerce")
        )
        numbers = np.array(plain.to_numpy(dtype=np.float64, na_value=np.nan))
        for name, kind in with_levels(self._layout.kinds).items():
            if name in self.variables:
                mine = codes == self.variables.index(name)
                numbers[mine] = positions(column[mine], kind)[0]
        strange = np.isnan(numbers) & column.notna().to_numpy() & (codes >= 0)
        if strange.any():
            row = int(np.flatnonzero(strange)[0])
            raise DataError(
                f"{self._where} has {str(column.iloc[row])!r} as a value of {self.variables[codes[row]]!r} in column "
                f"{column.name!r} at row {before + row} (counted from 0), which is not a number; correct it, leave the "
                f"variable out with {Given('variables')}, or declare its levels with {Given('kinds')}.",
                code="not-numeric",
                columns=(str(column.name),),
            )
        for name, kind in self._layout.kinds.items():
            if name in self.variables:
                refuse_misfits(numbers[codes == self.variables.index(name)], name, kind, self._where)
        return numbers

    def _rows(self, readings: pd.DataFrame) -> pd.DataFrame:
        """One line for each row, of readings in order."""
        d, places = len(self.variables), [readings[key].to_numpy() for key in (*self._keys, "row")]
        begins = np.ones(len(readings), dtype=bool)
        begins[1:] = np.any([one[1:] != one[:-1] for one in places], axis=0)
        cell = (np.cumsum(begins) - 1) * d + readings["variable"].to_numpy()
        # Within a cell, readings stay in the order of time and value.
        order = np.argsort(cell, kind="stable")
        values = readings["value"].to_numpy()[order]
        cells, firsts, counts = np.unique(cell[order], return_index=True, return_counts=True)
        first, which = values[firsts], np.repeat(np.arange(len(cells)), counts)
        # Differences from the first one: the mean of equal readings is that reading.
        means = first + np.bincount(which, values - first[which], len(cells)) / counts
        table = np.full((int(begins.sum()), d), np.nan)
        table.flat[cells] = np.where(self._is_measured[cells % d], means, values[firsts + counts - 1])
        self._count(0, readings)
        self._count(1, readings.iloc[order[firsts]])
        self._count_steps(readings)
        heads, layout = readings[begins], self._layout
        found = pd.DataFrame(table, columns=list(self.variables))
        for key in self._keys:
            found[key] = heads[key].to_numpy()
        if layout.keys["label"] is not None:
            found[layout.label] = heads["label"].to_numpy()
        found[layout.time] = self._clock.times(heads["row"].to_numpy() * self._step, self._zone)
        return found

    def _count(self, what: int, readings: pd.DataFrame) -> None:
        d, site = len(self.variables), self._layout.site
        for name, mine in [("", readings)] if site is None else readings.groupby(site):
            none = Tally(self.variables, np.zeros((3, d), dtype=np.int64))
            tally = self._tallies.setdefault(str(name), none)
            tally.counts[what] += np.bincount(mine["variable"].to_numpy(dtype=np.intp), minlength=d)

    def _count_steps(self, readings: pd.DataFrame) -> None:
        if self._steps is None or not len(readings):
            return
        keys = readings[self._keys]
        begins = (keys != keys.shift()).any(axis=1).to_numpy(copy=True)
        begins[0] = tuple(keys.iloc[0]) != self._recording
        self._recording = tuple(keys.iloc[-1])
        self._steps.add(begins, readings["tick"].to_numpy(), readings["variable"].to_numpy())
