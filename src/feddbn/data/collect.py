"""One site in the making: its tables come batch by batch, then its clock is found, then its rows are cut into segments.

Nothing here raises about rows: what makes them useless is among the `errors` of a site, and reading goes on, so that its
profile is whole. Rows are kept in memory or in files (`rows.Room`); a table is read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.data.cells import names_of_keys, read_cells
from feddbn.data.kinds import refuse_misfits
from feddbn.data.layout import ROW_TIMES, Layout, quoted
from feddbn.data.profile import Profile
from feddbn.data.readings import (
    Readings,
    averaged,
    names_of,
    numbers_of,
    tally,
)
from feddbn.data.rows import Room, Rows
from feddbn.data.segments import (
    MOST_EMPTY,
    clocks_go_back,
    cure_of_closeness,
    filled,
    jumps,
    segments,
    stretches_of,
)
from feddbn.data.site import Recording, Site, StoredSegments
from feddbn.data.tables import Table
from feddbn.data.times import DECIMAL, Clock, IntArray, StepCounter, Times, in_billionths, read_times
from feddbn.errors import DataError, Given, ParameterError
from feddbn.findings import Finding

__all__ = ["Collected", "Part"]

_AT_ONCE = 1 << 20
"""So many readings are averaged at once, where they are in files; more if a recording has more."""


@dataclass(frozen=True)
class Part:
    """How a table is read: its layout, its variables and other columns to look at, and what its recordings are called."""

    table: Table
    layout: Layout
    variables: tuple[str, ...]
    others: tuple[str, ...]
    where: str
    prefix: str = ""

    @classmethod
    def of(
        cls, table: Table, layout: Layout, where: str, is_looked_at: bool = False, prefix: str = ""
    ) -> Part:
        """Return it for a table; a layout that does not go with its columns is refused."""
        if layout.time is None and table.time_index is not None:
            layout = replace(layout, time=table.time_index)
        layout.require_keys(table.columns, where)
        if layout.gathers and layout.time is None:
            said = Given("names", layout.names) if layout.names else Given("irregular", layout.way)
            raise ParameterError(
                f"{said} needs times; name their column with {Given('time')}.", code="needs-times"
            )
        if layout.names is not None:
            return cls(table, layout, tuple(layout.variables or ()), (), where, prefix)
        keys = set(layout.keys.values())
        data = [name for name in table.columns if name in keys or name not in table.index_columns]
        chosen = layout.choose_variables(data, where)
        others = [name for name in data if name not in {*keys, *chosen}]
        return cls(
            table, layout, chosen, tuple(others) if is_looked_at and not layout.sources else (), where, prefix
        )

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yield the rows of the table, numbered from 0, with variables under their own names."""
        keys = [name for name in self.layout.keys.values() if name is not None]
        found = {one.name: self.variables[k] for k, one in self.layout.sources_of(self.variables)}
        wanted = keys if self.layout.names is not None else [*dict.fromkeys([*found, *self.others, *keys])]
        is_renamed = self.layout.names is None and bool(self.layout.sources)
        before = 0
        for frame in self.table.frames(wanted):
            frame = frame.set_axis(pd.RangeIndex(before, before + len(frame)))
            yield frame.rename(columns=found) if is_renamed and not self.layout.gathers else frame
            before += len(frame)


class Collected:
    """The rows, or the readings, of one site, and what was found while they came.

    `names` are those of variables in a column of names, with a number for each; the sites of one table share them.
    """

    def __init__(self, name: str, layout: Layout, room: Room, names: dict[str, int] | None = None) -> None:
        self.name, self.layout, self.where = name, layout, f"site {name!r}"
        self.errors: list[DataError] = []
        self.said: list[Finding] = []
        self.variables: tuple[str, ...] = ()
        self.names = {} if names is None else names
        self.profile: Profile | None = None
        self._part: Part | None = None
        self._seen: set[str] = set()
        self.rows = Rows(room)
        self.clock: Clock | None = None
        self._counter: StepCounter | None = None
        self._recordings: dict[str, int] = {}
        self._unit: str | None = None
        self._zone: Any = None
        self._is_business = False
        self._n_whole = 0
        self._beyond: IntArray = np.zeros(0, dtype=np.int64)
        self._odd: tuple[int, str, str] | None = None

    @property
    def unit(self) -> str:
        """In which its times are whole numbers."""
        return str(self._unit)

    @property
    def has_times(self) -> bool:
        """Whether it has rows or readings whose times are known, though they may be too close."""
        return bool(self.rows.n) and "tick" in self.rows and all(one.code == "closer" for one in self.errors)

    # ---- tables

    def begin(self, part: Part) -> None:
        """Take the layout and the variables of a table; those of all tables of a site have to be the same."""
        if self._part is None:
            self._part, self.layout, self.variables = part, part.layout, part.variables
            self._beyond = np.zeros(len(self.variables), dtype=np.int64)
            self.profile = self._new_profile(part.others)
        else:
            part.layout.require_same(part.variables, self.variables, part.where, "its first recording")
        if part.layout.names is not None:
            self.names |= {one.name: k for k, (_, one) in enumerate(part.layout.sources_of(part.variables))}

    def _new_profile(self, others: Sequence[str] = ()) -> Profile:
        assert self._part is not None
        table = self._part.table
        columns = (*self.variables, *others)
        is_timed = self.layout.time is not None
        found = Profile(self.name, columns, self.variables, not table.is_held, table.index, is_timed)
        found.names = self._recordings
        return found

    def feed(self, frame: pd.DataFrame, part: Part) -> None:
        """Take the next rows of a table."""
        if not len(frame):
            return
        columns: dict[str, NDArray[Any]] = {"code": np.zeros(len(frame), dtype=np.int32)}
        try:
            columns["code"] = self._codes(frame, part)
            columns |= self._times(frame, part)
        except DataError as error:
            self.errors.append(error)
        if part.layout.names is None:
            self._feed_rows(frame, part, columns)
        elif "tick" in columns:
            self._feed_readings(frame, part, columns)

    def _codes(self, frame: pd.DataFrame, part: Part) -> NDArray[np.int32]:
        """(n,) the number of the recording of each row."""
        if part.layout.series is None:
            code = self._recordings.setdefault(part.table.name, len(self._recordings))
            return np.full(len(frame), code, dtype=np.int32)
        which, found = pd.factorize(names_of_keys(frame[part.layout.series], "series", part.where))
        names = [part.prefix + str(name) for name in found]
        codes = [self._recordings.setdefault(name, len(self._recordings)) for name in names]
        return np.array(codes, dtype=np.int32)[which]

    def _times(self, frame: pd.DataFrame, part: Part) -> dict[str, NDArray[Any]]:
        """The times and labels of rows, and which of them lack a label."""
        layout, found = part.layout, dict[str, NDArray[Any]]()
        if layout.time is not None:
            times = read_times(frame[layout.time], part.where, layout.day_first)
            found["tick"] = self._ticks(times, layout.time, part.where)
        if layout.label == ROW_TIMES:
            if self._unit != "instant":
                raise DataError(
                    f"{part.where} has no dates to tell the calendar by; name the column of dates with {Given('time')}, or "
                    "use a DataFrame with dates as its index."
                )
            found["label"] = found["tick"].view("datetime64[ns]")
        elif layout.label is not None:
            found["label"] = frame[layout.label].to_numpy()
            found["unlabelled"] = frame[layout.label].isna().to_numpy()
        return found

    def _ticks(self, times: Times, name: str, where: str) -> IntArray:
        """Times in the unit of the site, which has fractions from the first number on that has one."""
        self._unit = self._unit or times.unit
        if (times.unit == "instant") != (self._unit == "instant"):
            raise DataError(
                f"{where} has numbers in time column {name!r} where others have dates; use one kind."
            )
        self._zone = self._zone or times.zone
        self._is_business |= times.is_business
        if times.unit == "decimal" and self._unit == "integer":
            self._unit, self._n_whole = "decimal", self.rows.n
        return in_billionths(times.ticks, name, where) if times.unit != self._unit else times.ticks

    def _feed_rows(self, frame: pd.DataFrame, part: Part, columns: dict[str, NDArray[Any]]) -> None:
        layout, d = part.layout, len(part.variables)
        sources = [one.name for _, one in layout.sources_of(part.variables)]
        chosen = sources if layout.gathers else list(part.variables)
        cells = read_cells(frame, chosen, layout.kinds, part.where, part.others)
        self.errors += cells.errors
        if layout.gathers:
            at, source = np.nonzero(~np.isnan(cells.values[:, : len(chosen)]))
            values = cells.values[at, source]
            self._add_readings(frame, part, {k: v[at] for k, v in columns.items()}, source, values, at)
            return
        within = layout.plausible(cells.values[:, :d], part.variables)
        if within is not cells.values[:, :d]:
            self._beyond += (np.isnan(within) & ~np.isnan(cells.values[:, :d])).sum(axis=0)
        code = columns["code"]
        order = None if (np.diff(code) >= 0).all() else np.argsort(code, kind="stable")
        if order is not None:
            within, columns = within[order], {name: one[order] for name, one in columns.items()}
            cells = replace(cells, values=cells.values[order])
            cells = replace(cells, texts={j: one.iloc[order] for j, one in cells.texts.items()})
        assert self.profile is not None
        self.profile.feed(
            np.concatenate([within, cells.values[:, d:]], axis=1) if part.others else within,
            columns["code"],
            cells.texts,
        )
        if not self.errors:
            self.rows.append(
                **columns, hollow=self._hollow(within, columns), values=np.ascontiguousarray(within)
            )

    def _hollow(self, values: FloatArray, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """(n,) rows that can neither begin nor end a segment; the first cell that must not be is noted."""
        hollow = columns.get("unlabelled", np.zeros(len(values), dtype=bool)).copy()
        if hollow.any() and self.layout.gaps == "error":
            self._note("missing-label", int(np.flatnonzero(hollow)[0]), str(self.layout.label))
        # One finite total proves that every value is finite, without an (n, d) mask; the reverse need not hold.
        with np.errstate(invalid="ignore", over="ignore"):
            if np.isfinite(values.sum()):
                return hollow
        odd = {"infinite": np.isinf(values)}
        if self.layout.gaps == "error":
            odd["missing-value"] = np.isnan(values)
        for code, cells in odd.items():
            if cells.any():
                row, column = (int(one) for one in np.argwhere(cells)[0])
                self._note(code, row, self.variables[column])
        absent = np.isnan(values)
        return np.asarray(hollow | (absent.all(axis=1) if self.layout.gaps == "keep" else absent.any(axis=1)))

    def _note(self, code: str, row: int, column: str) -> None:
        """Remember the first cell that must not be."""
        self._odd = self._odd or (self.rows.n + row, code, column)

    def _feed_readings(self, frame: pd.DataFrame, part: Part, columns: dict[str, NDArray[Any]]) -> None:
        """Take lines of which each names a variable and has its value."""
        layout = part.layout
        assert layout.names is not None
        which, found = pd.factorize(frame[layout.names])
        names = names_of(pd.Series(found))
        self._seen.update(names.dropna())
        number = self.names.get if layout.variables is not None else self._new_name
        # A line without a name has the code -1, which is the last place.
        source = np.array([*(-1 if pd.isna(name) else number(name, -1) for name in names), -1])[which]
        at = np.flatnonzero(source >= 0)
        owners = [part.variables[k] for k, _ in layout.sources_of(part.variables)] or [*self.names]
        variable = np.array(owners, dtype=object)[source[at]]
        try:
            values = numbers_of(frame[layout.values].iloc[at], variable, layout, part.where)
            for name, kind in layout.kinds.items():
                refuse_misfits(values[variable == name], name, kind, part.where)
        except DataError as error:
            self.errors.append(error)
            return
        there = ~np.isnan(values)
        at, values = at[there], values[there]
        self._add_readings(frame, part, {k: v[at] for k, v in columns.items()}, source[at], values, at)

    def _new_name(self, name: str, _: int) -> int:
        return self.names.setdefault(name, len(self.names))

    def _add_readings(
        self,
        frame: pd.DataFrame,
        part: Part,
        columns: dict[str, NDArray[Any]],
        source: NDArray[np.integer],
        values: FloatArray,
        at: NDArray[np.intp],
    ) -> None:
        if np.isinf(values).any():
            k = int(np.flatnonzero(np.isinf(values))[0])
            names = (
                [*self.names]
                if part.layout.names
                else [one.name for _, one in part.layout.sources_of(part.variables)]
            )
            self.errors.append(
                DataError(
                    f"{part.where} has an infinite value of {names[source[k]]!r} at row {frame.index[at[k]]} (counted "
                    "from 0); remove it or leave it empty.",
                    code="infinite",
                )
            )
        if not self.errors:
            columns.pop("unlabelled", None)
            self.rows.append(**columns, source=source.astype(np.int32), value=values)

    # ---- clocks

    def close(self) -> None:
        """Bring times to one unit, and recordings together, once all tables were read."""
        if self._n_whole:
            self.rows.change("tick", lambda ticks: ticks * DECIMAL, self._n_whole)
        if self.layout.names is not None:
            self._name_variables()
        if self.layout.gathers and not self.rows.n and not self.errors:
            self.errors.append(DataError(f"{self.where} has no reading that can be used.", code="no-reading"))
        if self.errors or not self.rows.n:
            return
        if self.layout.gathers:
            # Rows that are made of readings have recordings in the order of their names.
            self._number(sorted(self._recordings))
        order = self._order()
        if order is not None:
            rows, self.rows = self.rows, self.rows.take(order)
            rows.keep(())
            if self._odd is not None:
                self._odd = int(np.flatnonzero(order == self._odd[0])[0]), *self._odd[1:]

    def _name_variables(self) -> None:
        """Variables are those that were asked for, or all names in the order of the alphabet."""
        layout = self.layout
        if layout.variables is not None:
            layout.require_sources(self._seen, self.where, f"readings in column {layout.names!r} of")
            return
        clash = sorted({*self.names} & {*layout.kept_keys})
        if clash or (not self.names and not self.errors):
            what = f"the name {clash[0]!r}, which is a column, too" if clash else "no name of a variable"
            raise DataError(
                f"{self.where} has {what} in column {layout.names!r}; choose others with {Given('variables')}."
            )
        self.variables = tuple(sorted(self.names))
        places = np.array([self.variables.index(name) for name in self.names], dtype=np.int32)
        if self.rows.n:
            self.rows.change("source", lambda source: places[source])
        self._beyond, self.profile = np.zeros(len(places), dtype=np.int64), self._new_profile()

    def _number(self, names: Sequence[str]) -> None:
        """Number the recordings in another order."""
        places = np.array([names.index(name) for name in self._recordings], dtype=np.int32)
        self._recordings |= {name: k for k, name in enumerate(names)}
        self.rows.change("code", lambda code: places[code])

    def _order(self) -> NDArray[np.intp] | None:
        """The order in which recordings stand together, and times are sorted where that is wanted; None if they are."""
        rows, begins = self.rows, self.begins()
        if self.layout.sort and self.layout.time is None:
            raise ParameterError(
                f"{Given('sort', True)} needs times to sort by; name their column with {Given('time')}."
            )
        if self.layout.sort and not self.layout.gathers:
            order = np.lexsort((rows.read("tick"), rows.read("code")))
            return None if (np.diff(order) > 0).all() else order
        is_parted = len(np.unique(rows.pick("code", begins))) < len(begins)
        return np.argsort(rows.read("code"), kind="stable") if is_parted else None

    def begins(self) -> IntArray:
        """The first row of each recording."""
        found = [np.zeros(0, dtype=np.int64)]
        for start, stop in self.rows.chunks():
            before = max(start - 1, 0)
            found.append(before + 1 + np.flatnonzero(np.diff(self.rows.read("code", before, stop))))
        return np.concatenate([np.zeros(min(self.rows.n, 1), dtype=np.int64), *found])

    # ---- readings

    def _groups(self) -> Iterator[tuple[Readings, IntArray]]:
        """Yield readings of some recordings at a time, and how many of each variable lie beyond its limits."""
        rows, starts = self.rows, [0]
        at_once = _AT_ONCE if rows.is_in_files else rows.n
        starts += [begin for begin in self.begins().tolist() if begin - starts[-1] >= at_once > 0]
        owner = np.array([k for k, _ in self.layout.sources_of(self.variables)], dtype=np.int32)
        for start, stop in pairwise([*starts, rows.n]):
            source = rows.read("source", start, stop)
            value = self.layout.plausible(rows.read("value", start, stop), self.variables, source)
            variable, is_in = owner[source], ~np.isnan(value)
            beyond = np.bincount(variable[~is_in], minlength=len(self.variables))
            names = ("code", "tick", "label") if "label" in rows else ("code", "tick")
            given = {name: rows.read(name, start, stop)[is_in] for name in names}
            yield Readings(variable=variable[is_in], value=value[is_in], **given), beyond

    def steps(self, variables: Sequence[str]) -> Iterator[tuple[IntArray, IntArray, NDArray[np.bool_]]]:
        """Yield recordings, times and which cells are there, for a table of steps."""
        places = [self.variables.index(name) for name in variables]
        if "source" in self.rows:
            for readings, _ in self._groups():
                found, _ = averaged(readings, self.layout, self.variables, 1)
                yield found["code"], found["tick"], ~np.isnan(found["values"][:, places])
            return
        for start, stop in self.rows.chunks():
            code, tick = self.rows.read("code", start, stop), self.rows.read("tick", start, stop)
            yield code, tick, ~np.isnan(self.rows.read("values", start, stop)[:, places])

    def _average(self, clock: Clock | None) -> None:
        """Put rows in the place of readings: one for each step of a clock, or for each time."""
        found, d = Rows(self.rows.room), len(self.variables)
        used, became = np.zeros(d, dtype=np.int64), np.zeros(d, dtype=np.int64)
        assert self.profile is not None
        for readings, beyond in self._groups():
            step = 1
            if clock is not None:
                tick, step = clock.ticks(readings.tick, self.unit, self._zone), clock.step or 1
                readings = replace(readings, tick=tick)
            rows, n_values = averaged(readings, self.layout, self.variables, step)
            if self.layout.label == ROW_TIMES and clock is not None:
                rows["label"] = clock.dates(rows["tick"])
            self._beyond += beyond
            used += np.bincount(readings.variable, minlength=d)
            became += n_values
            self.profile.feed(rows["values"], rows["code"], {})
            found.append(**rows, hollow=np.zeros(len(rows["code"]), dtype=bool))
        self.rows.keep(())
        self.rows = found
        lacking = [name for name, n in zip(self.variables, used + self._beyond, strict=True) if n == 0]
        if lacking:
            self.errors.append(
                DataError(
                    f"{self.where} has no reading of {quoted(lacking)}; leave the site out, or choose other variables with "
                    f"{Given('variables')}.",
                    code="no-reading",
                )
            )
        self.said += tally(self.layout, self.variables, used, became)

    # ---- rows

    def find_clock(self) -> None:
        """Find the step between neighbouring rows, which are made of readings first where these are given."""
        if not self.has_times or self.errors:
            return
        layout, declared = self.layout, self.layout.clock
        assert self._unit is not None
        if declared is not None:
            declared = declared.of(self._unit, layout.time, self.where)
        if "source" in self.rows:
            is_averaged = layout.way == "average"
            self._average(declared if is_averaged else None)
            if is_averaged and declared is not None:
                self._unit, self._zone = declared.unit, self._zone if declared.unit == "instant" else None
        self._counter = StepCounter(self._unit, self._zone, self._is_business)
        begins = self.begins()
        for start, stop in self.rows.chunks():
            before = max(start - 1, 0)
            is_first = np.zeros(stop - before, dtype=bool)
            is_first[begins[(begins >= before) & (begins < stop)] - before] = True
            self._counter.feed(self.rows.read("tick", before, stop), is_first)
        self.clock = self._counter.clock(layout.tolerance, declared)
        self._jumps = self._find_jumps(self.clock, begins)

    def _find_jumps(self, clock: Clock, begins: IntArray) -> tuple[IntArray, IntArray]:
        """The rows before which time jumps, and by how many steps; a time that is wrong is refused."""
        at, steps, wrong = jumps(self.rows, begins, clock, self.unit, self._zone, self.layout.tolerance)
        if wrong is not None:
            raise self._wrong_time(*wrong, clock, begins)
        return at, steps

    def site(self, clock: Clock | None) -> Site:
        """Return the site on a clock, which may be finer than its own; its rows are cut into segments."""
        if not self.errors:
            try:
                return self._cut(clock)
            except DataError as error:
                self.errors.append(error)
        return Site(self.variables, (), 0, tuple(self.said), None, self.profile, self.errors[0])

    def _cut(self, clock: Clock | None) -> Site:
        layout, rows, begins = self.layout, self.rows, self.begins()
        self._say_times(clock)
        if self._odd is not None:
            row, code, column = self._odd
            k = int(np.searchsorted(begins, row, side="right")) - 1
            raise DataError(
                f"{self._where(row)} has {_ODD[code].format(column, row - begins[k])}.", code=code
            )
        at = lacking = np.zeros(0, dtype=np.int64)
        if clock is not None:
            at, steps = self._jumps if clock is self.clock else self._find_jumps(clock, begins)
            lacking = steps - 1
            is_filled = np.isin(lacking, _fills(layout, clock))
            if is_filled.any():
                rows = filled(rows, at[is_filled], lacking[is_filled])
                more = np.append(0, np.cumsum(np.where(is_filled, lacking, 0)))
                begins = begins + more[np.searchsorted(at, begins)]
                at, lacking = (at + more[1:])[~is_filled], lacking[~is_filled]
        breaks = [begins, at]
        if "unlabelled" in rows:
            cut = np.flatnonzero(rows.read("unlabelled"))
            breaks += [cut, cut + 1]
        most = MOST_EMPTY if layout.gaps == "keep" else 0
        starts, ends = segments(rows.n, np.unique(np.concatenate(breaks)), stretches_of(rows, "hollow"), most)
        owner = np.searchsorted(begins, starts, side="right") - 1
        passed = np.append(0, np.cumsum(lacking))
        n_dropped = rows.n - int((ends - starts).sum())
        since = passed[np.searchsorted(at, starts, side="right")] - passed[np.searchsorted(at, begins)][owner]
        spans = np.stack([starts, ends, starts - begins[owner] + since], axis=1)
        by_code = {code: name for name, code in self._recordings.items()}
        names = [by_code[code] for code in rows.pick("code", begins).tolist()] if rows.n else []
        assert self.profile is not None
        is_whole = self.profile.is_whole and rows is self.rows
        edges = np.searchsorted(owner, np.arange(len(begins) + 1))
        last = np.append(begins[1:], rows.n)[: len(begins)] - 1
        times = self._times_of(rows, last)
        ends = (
            last
            - begins
            + passed[np.searchsorted(at, last, side="right")]
            - passed[np.searchsorted(at, begins)]
        )
        items = tuple(
            _recording(name, rows, spans[a:b].tolist(), is_whole, *end)
            for name, (a, b), *end in zip(names, pairwise(edges.tolist()), ends.tolist(), times, strict=True)
        )
        rows.keep(("values", "label"))
        if rows is not self.rows:
            self.rows.keep(())
        cells = {name: int(n) for name, n in zip(self.variables, self._beyond, strict=True) if n}
        self.said += [Finding("beyond-limits", "note", {"cells": cells})] if cells else []
        return Site(self.variables, items, n_dropped, tuple(self.said), clock, self.profile)

    def _times_of(self, rows: Rows, which: IntArray) -> list[Any]:
        """The times of some rows; None if they have none."""
        if "tick" not in rows:
            return [None] * len(which)
        ticks = rows.pick("tick", which)
        if self.unit == "decimal":
            return list(np.round(ticks / DECIMAL, 9))
        if self.unit == "integer":
            return [*ticks.tolist()]
        unit = (
            self.clock if self.clock is not None and self.clock.unit == self.unit else Clock("instant", None)
        )
        dates = pd.DatetimeIndex(unit.dates(ticks))
        return list(dates if self._zone is None else dates.tz_localize("UTC").tz_convert(self._zone))

    def _say_times(self, clock: Clock | None) -> None:
        """Say whether rows were taken as evenly spaced that are not quite, and whether they are at some of the steps only."""
        layout, own = self.layout, self.clock
        if clock is None or own is None or self._counter is None:
            return
        is_said = layout.jitter is not None or layout.way != "refuse"
        uneven = None if is_said else self._counter.unevenness(own, layout.tolerance)
        if uneven is not None:
            values = {"share": uneven[0], "most": uneven[1], "step": own.text}
            self.said.append(Finding("uneven-times", "note", values, (str(layout.time),), {"jitter": 0}))
        is_coarser = 1 < clock.every <= MOST_EMPTY + 1 and clock.step is not None
        if is_coarser and layout.gaps == "keep" and (uneven is None or clock is not own):
            coarse = replace(clock, step=(clock.step or 1) * clock.every)
            values = {"every": clock.every, "own": coarse.text, "step": clock.text}
            self.said.append(Finding("coarser-rows", "note", values))

    def _where(self, row: int) -> str:
        """The recording of a row, in a sentence."""
        code = int(self.rows.pick("code", np.array([row]))[0])
        name = next(name for name, one in self._recordings.items() if one == code)
        return f"recording {name!r} of {self.where}"

    def _wrong_time(self, row: int, code: str, clock: Clock, begins: IntArray) -> DataError:
        """What to say of a row whose time is not after that of the row before it, or too close to it."""
        layout, k = self.layout, int(np.searchsorted(begins, row, side="right")) - 1
        first, end = int(begins[k]), int(np.append(begins, self.rows.n)[k + 1])
        where, n = self._where(row), row - first
        tick, unit, zone = self.rows.read("tick", row - 1, row + 1), self.unit, self._zone
        column, apart = f"{layout.time!r}", int(tick[1] - tick[0])
        cures = [f"{Given('series')} if a column tells recordings apart"] if layout.series is None else []
        if code == "closer":
            near = self.rows.read("tick", first, min(end, first + _LOOKED_AT))
            cure = cure_of_closeness(near, clock, unit, zone, layout.freq is not None)
            said = f"{where} has times in column {column} at rows {n - 1} and {n} (counted from 0) that are closer than the "
            said += "sampling step; correct them"
            cures = [*([cure] if cure else []), f"{Given('irregular', 'average')}"]
        elif unit == "instant" and zone is None and clocks_go_back(int(tick[1]), apart, clock.step or 0):
            said = f"{where} has times in column {column} that repeat an hour at row {n} (counted from 0), in a night in "
            said += "which clocks may go back from summer time; write times in UTC, or with their distance from it as in "
            said, code, cures = said + "2024-10-27T02:00+01:00", "clocks-back", []
        elif code == "same-time":
            said = f"{where} has the same time in column {column} at rows {n - 1} and {n} (counted from 0); keep "
            said += "one row per time"
            cures.append(f"{Given('irregular', 'average')}")
        else:
            said = f"{where} has a time in column {column} at row {n} (counted from 0) that is earlier than the row before; "
            said += f"sort the rows by {column}"
            cures.append(f"{Given('sort', True)}")
        return DataError(f"{said}{', or use ' if cures else ''}{', or '.join(cures)}.", code=code)


_LOOKED_AT = 100_000


def _fills(layout: Layout, clock: Clock) -> tuple[int, ...]:
    """How many rows may be missing between two so that empty ones stand for them."""
    if layout.gaps != "keep":
        return ()
    if layout.way == "average":
        return tuple(range(1, MOST_EMPTY + 1))
    return (clock.every - 1,) if clock.every > 1 else ()


def _recording(
    name: str, rows: Rows, spans: Sequence[tuple[int, int, int]], is_whole: bool, end: int, last: Any
) -> Recording:
    stored = StoredSegments(rows, spans)
    known = [(time, stop - start) for start, stop, time in spans] if is_whole else None
    return Recording(name, stored if rows.is_in_files else tuple(stored), known, end, last)


_ODD = {
    "infinite": "an infinite value in column {!r} at row {} (counted from 0); remove it or mark it as missing (NaN)",
    "missing-value": "a missing value in column {!r} at row {} (counted from 0); fill it, or use missing='drop' to leave "
    "such rows out",
    "missing-label": "a missing label in column {!r} at row {} (counted from 0); fill it, or use missing='drop' to leave "
    "such rows out",
}
