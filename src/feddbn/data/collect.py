"""One site in the making: its tables come batch by batch, then its clock is found, then its rows are cut into segments.

Nothing here raises about rows: what makes them useless is among the `errors` of a site, and reading goes on, so that its
profile is whole. Rows are kept in memory or in files (`rows.Room`); a table is read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.data.cells import names_of_keys, read_cells
from feddbn.data.layout import ROW_TIMES, Layout, quoted
from feddbn.data.profile import Profile
from feddbn.data.readings import Readings, averaged, names_of, numbers_of, steps_of, tally, with_empty_rows
from feddbn.data.rows import Room, Rows
from feddbn.data.segments import MOST_EMPTY, jumps, segments, stretches_of
from feddbn.data.site import Recording, Site, StoredSegments
from feddbn.data.tables import Table
from feddbn.data.times import Clock, IntArray, StepCounter, read_times
from feddbn.errors import DataError, Given, ParameterError
from feddbn.findings import Finding

__all__ = ["Collected", "Part"]

_AT_ONCE = 1 << 20
"""So many readings are averaged at once, where they are in files; more if a recording has more."""


@dataclass(frozen=True)
class Part:
    """How a table is read: its layout, its variables, and what its recordings are called."""

    table: Table
    layout: Layout
    variables: tuple[str, ...]
    where: str
    prefix: str = ""

    @classmethod
    def of(cls, table: Table, layout: Layout, where: str, prefix: str = "") -> Part:
        """Return it for a table; a layout that does not go with its columns is refused."""
        if layout.time is None and table.time_index is not None:
            layout = replace(layout, time=table.time_index)
        layout.require_keys(table.columns, where)
        for name, is_needed in (("time", layout.gathers), ("freq", layout.way == "average")):
            if is_needed and getattr(layout, name) is None:
                said = f"{where} has readings, whose {'times' if name == 'time' else 'step of time'} must be known"
                raise ParameterError(f"{said}; give {Given(name)}.", code=f"needs-{name}")
        if layout.names is not None:
            return cls(table, layout, tuple(layout.variables or ()), where, prefix)
        keys = set(layout.keys.values())
        data = [name for name in table.columns if name in keys or name not in table.index_columns]
        return cls(table, layout, layout.choose_variables(data, where), where, prefix)

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yield the rows of the table, numbered from 0, with variables under their own names."""
        keys = [name for name in self.layout.keys.values() if name is not None]
        found = {one: self.variables[k] for k, one in self.layout.sources_of(self.variables)}
        wanted = keys if self.layout.names is not None else [*found, *keys]
        before = 0
        for frame in self.table.frames(wanted):
            frame = frame.set_axis(pd.RangeIndex(before, before + len(frame)))
            yield frame if self.layout.names is not None else frame.rename(columns=found)
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
        self.rows = Rows(room)
        self._seen: set[str] = set()
        self._recordings: dict[str, int] = {}
        self._unit: str | None = None
        self._zone: Any = None
        self._beyond: IntArray = np.zeros(0, dtype=np.int64)

    # ---- tables

    def begin(self, part: Part) -> None:
        """Take the layout and the variables of a table; those of all tables of a site have to be the same."""
        if self.profile is None:
            self.layout, self.variables = part.layout, part.variables
            self._begin_counts()
        else:
            part.layout.require_same(part.variables, self.variables, part.where, "its first recording")
        if part.layout.names is not None:
            self.names |= {one: k for k, one in part.layout.sources_of(part.variables)}

    def _begin_counts(self) -> None:
        self.profile = Profile(self.name, self.variables, self.layout.time is not None)
        self._beyond = np.zeros(len(self.variables), dtype=np.int64)

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
        layout, where, found = part.layout, part.where, dict[str, NDArray[Any]]()
        if layout.time is not None:
            times = read_times(frame[layout.time], where, layout.day_first)
            self._unit, self._zone = self._unit or times.unit, self._zone or times.zone
            if times.unit != self._unit:
                raise DataError(
                    f"{where} has numbers in time column {layout.time!r} where others have dates; use one kind."
                )
            found["tick"] = times.ticks
        if layout.label == ROW_TIMES:
            if self._unit != "instant":
                raise DataError(
                    f"{where} has no dates to tell the calendar by; name the column of dates with {Given('time')}, or use a "
                    "DataFrame with dates as its index."
                )
            found["label"] = found["tick"].view("datetime64[ns]")
        elif layout.label is not None:
            found["label"] = frame[layout.label].to_numpy()
            found["unlabelled"] = frame[layout.label].isna().to_numpy()
        return found

    def _feed_rows(self, frame: pd.DataFrame, part: Part, columns: dict[str, NDArray[Any]]) -> None:
        layout = part.layout
        values, texts, errors = read_cells(frame, part.variables, layout.kinds, part.where)
        within = values if layout.gathers else layout.plausible(values, part.variables)
        hollow = columns.get("unlabelled", np.zeros(len(frame), dtype=bool))
        self.errors += errors
        # One finite total proves that every value is finite, without an (n, d) mask; the reverse need not hold.
        with np.errstate(invalid="ignore", over="ignore"):
            is_finite = bool(np.isfinite(within.sum()))
        if not is_finite:
            absent, infinite = np.isnan(within), np.argwhere(np.isinf(within))
            if len(infinite):
                row, column = (int(one) for one in infinite[0])
                self.errors.append(
                    DataError(
                        f"{part.where} has an infinite value in column {part.variables[column]!r} at row {frame.index[row]} "
                        "(counted from 0); leave it empty.",
                        code="infinite",
                    )
                )
            hollow = hollow | (absent.all(axis=1) if layout.gaps == "keep" else absent.any(axis=1))
        if layout.gathers:
            at, variable = np.nonzero(~np.isnan(values))
            self._add_readings({k: v[at] for k, v in columns.items()}, variable, values[at, variable])
            return
        if within is not values:
            self._beyond += (np.isnan(within) & ~np.isnan(values)).sum(axis=0)
        columns |= {"hollow": hollow, "values": within}
        if (np.diff(columns["code"]) < 0).any():
            order = np.argsort(columns["code"], kind="stable")
            columns = {name: one[order] for name, one in columns.items()}
            texts = {j: one.iloc[order] for j, one in texts.items()}
        assert self.profile is not None
        self.profile.feed(columns["values"], columns["code"], texts)
        if not self.errors:
            self.rows.append(**{**columns, "values": np.ascontiguousarray(columns["values"])})

    def _feed_readings(self, frame: pd.DataFrame, part: Part, columns: dict[str, NDArray[Any]]) -> None:
        """Take lines of which each names a variable and has its value."""
        layout = part.layout
        which, found = pd.factorize(frame[layout.names])
        names = names_of(pd.Series(found))
        self._seen.update(names.dropna())
        if layout.variables is None:
            for name in names.dropna():
                self.names.setdefault(name, len(self.names))
        # A line without a name has the code -1, which is the last place.
        variable = np.array([*(self.names.get(name, -1) for name in names), -1])[which]
        at = np.flatnonzero(variable >= 0)
        named = np.array(part.variables or [*self.names], dtype=object)[variable[at]]
        try:
            values = numbers_of(frame[layout.values].iloc[at], named, layout, part.where)
        except DataError as error:
            self.errors.append(error)
            return
        there = ~np.isnan(values)
        at, values = at[there], values[there]
        self._add_readings({k: v[at] for k, v in columns.items()}, variable[at], values)

    def _add_readings(
        self, columns: dict[str, NDArray[Any]], variable: NDArray[np.integer], values: FloatArray
    ) -> None:
        columns.pop("unlabelled", None)
        if not self.errors:
            self.rows.append(**columns, variable=variable.astype(np.int32), value=values)

    # ---- the site

    def site(self) -> Site:
        """Return the site, whose rows are cut into segments, or why it is refused."""
        clock, found = None, None
        try:
            if not self.errors:
                self._close()
                clock = self._find_clock()
                found = self._cut(clock)
        except DataError as error:
            self.errors.append(error)
        if found is None:
            return Site(self.variables, (), 0, tuple(self.said), clock, self.profile, self.errors[0])
        return found

    def _close(self) -> None:
        """Name the variables, those of readings in the order of the alphabet, and bring recordings together."""
        layout, rows = self.layout, self.rows
        if layout.names is not None and layout.variables is not None:
            layout.require_sources(self._seen, f"column {layout.names!r} of {self.where}")
        if layout.gathers and not rows.n:
            raise DataError(f"{self.where} has no reading that can be used.", code="no-reading")
        if layout.names is not None and layout.variables is None:
            self.variables = tuple(sorted(self.names))
            self._begin_counts()
        if layout.sort and layout.time is None:
            raise ParameterError(
                f"{Given('sort', True)} needs times to sort by; name their column with {Given('time')}."
            )
        order = None
        codes = rows.pick("code", self._begins()) if rows.n else np.zeros(0)
        if layout.gathers:
            order = np.argsort(self._ranks()[rows.read("code")], kind="stable")
        elif layout.sort and rows.n:
            order = np.lexsort((rows.read("tick"), rows.read("code")))
        elif len(np.unique(codes)) < len(codes):
            order = np.argsort(rows.read("code"), kind="stable")
        if order is not None and (np.diff(order) < 0).any():
            self.rows = rows.take(order)
            rows.keep(())

    def _ranks(self) -> NDArray[np.int32]:
        """The place of each recording in the order of their names."""
        place = {name: k for k, name in enumerate(sorted(self._recordings))}
        return np.array([place[name] for name in self._recordings], dtype=np.int32)

    def _begins(self) -> IntArray:
        """The first row of each recording."""
        found = [np.zeros(min(self.rows.n, 1), dtype=np.int64)]
        for start, stop in self.rows.chunks():
            before = max(start - 1, 0)
            found.append(before + 1 + np.flatnonzero(np.diff(self.rows.read("code", before, stop))))
        return np.concatenate(found)

    def _find_clock(self) -> Clock | None:
        """Find the step between neighbouring rows, which are made of readings first where these are given."""
        layout, declared = self.layout, self.layout.clock
        if layout.time is None or not self.rows.n:
            return None
        unit = str(self._unit)
        if declared is not None and (declared.unit == "number") != (unit == "number"):
            found, wanted = ("dates", "numbers") if declared.unit == "number" else ("numbers", "dates")
            raise DataError(
                f"{self.where} has {found} in time column {layout.time!r}, but {Given('freq')} speaks of {wanted}; give a "
                f"step of {found}, or convert the column."
            )
        if layout.gathers:
            is_averaged = layout.way == "average"
            self._average(declared if is_averaged else None)
            if is_averaged:
                return declared
        counter, begins = StepCounter(unit, self._zone), self._begins()
        for start, stop in self.rows.chunks():
            before = max(start - 1, 0)
            is_first = np.zeros(stop - before, dtype=bool)
            is_first[begins[(begins >= before) & (begins < stop)] - before] = True
            counter.feed(self.rows.read("tick", before, stop), is_first)
        return declared or counter.clock(layout.tolerance)

    def _average(self, clock: Clock | None) -> None:
        """Put rows in the place of readings: one for each step of a clock, or for each time."""
        found, d = Rows(self.rows.room), len(self.variables)
        used, became = np.zeros(d, dtype=np.int64), np.zeros(d, dtype=np.int64)
        assert self.profile is not None
        for readings, beyond in self._groups(clock):
            rows, n_values = averaged(readings, self.layout, self.variables)
            self._beyond += beyond
            used += np.bincount(readings.variable, minlength=d)
            became += n_values
            self.profile.feed(rows["values"], rows["code"], {})
            found.append(**with_empty_rows(rows, clock, self.layout))
        self.rows.keep(())
        self.rows = found
        self._recordings = {name: k for k, name in enumerate(sorted(self._recordings))}
        lacking = [name for name, n in zip(self.variables, used + self._beyond, strict=True) if n == 0]
        if lacking:
            raise DataError(
                f"{self.where} has no reading of {quoted(lacking)}; leave the site out, or choose other variables with "
                f"{Given('variables')}.",
                code="no-reading",
            )
        self.said += tally(self.layout, self.variables, used, became)

    def _groups(self, clock: Clock | None) -> Iterator[tuple[Readings, IntArray]]:
        """Yield readings of some recordings at a time, and how many of each variable lie beyond its limits."""
        rows, starts, ranks = self.rows, [0], self._ranks()
        at_once = _AT_ONCE if rows.is_in_files else rows.n
        starts += [begin for begin in self._begins().tolist() if begin - starts[-1] >= at_once]
        place = np.arange(len(self.variables))
        if self.layout.names is not None and self.layout.variables is None:
            # Names were numbered as they came.
            place = np.array([self.variables.index(name) for name in self.names])
        for start, stop in pairwise([*starts, rows.n]):
            variable = place[rows.read("variable", start, stop)]
            value = self.layout.plausible(rows.read("value", start, stop), self.variables, variable)
            is_in = ~np.isnan(value)
            beyond = np.bincount(variable[~is_in], minlength=len(self.variables))
            tick = rows.read("tick", start, stop)[is_in]
            row = tick if clock is None else steps_of(clock.ticks(tick, self._zone), clock)
            label = rows.read("label", start, stop)[is_in] if "label" in rows else None
            code = ranks[rows.read("code", start, stop)[is_in]]
            yield Readings(code, tick, row, variable[is_in], value[is_in], label), beyond

    def _cut(self, clock: Clock | None) -> Site:
        layout, rows, begins = self.layout, self.rows, self._begins()
        at = lacking = np.zeros(0, dtype=np.int64)
        if clock is not None:
            # Rows that are made of readings are at steps of their clock.
            own = replace(clock, unit="instant") if layout.way == "average" else clock
            at, steps, wrong = jumps(rows, begins, own, self._zone, layout.tolerance)
            if wrong is not None:
                raise self._wrong_time(*wrong, begins)
            lacking = steps - 1
        breaks = [begins, at]
        if "unlabelled" in rows:
            cut = np.flatnonzero(rows.read("unlabelled"))
            breaks += [cut, cut + 1]
        most = MOST_EMPTY if layout.gaps == "keep" else 0
        starts, ends = segments(rows.n, np.unique(np.concatenate(breaks)), stretches_of(rows, "hollow"), most)
        passed = np.append(0, np.cumsum(lacking))

        def since(which: IntArray, first: IntArray) -> IntArray:
            """Steps from a row to another one of its recording."""
            more = passed[at.searchsorted(which, "right")] - passed[at.searchsorted(first)]
            return np.asarray(which - first + more)

        owner = begins.searchsorted(starts, "right") - 1
        spans = np.stack([starts, ends, since(starts, begins[owner])], axis=1)
        last = np.append(begins[1:], rows.n)[: len(begins)] - 1
        by_code = [*self._recordings]
        names = [by_code[code] for code in rows.pick("code", begins).tolist()] if rows.n else []
        edges = owner.searchsorted(np.arange(len(begins) + 1)).tolist()
        assert self.profile is not None
        is_whole = self.profile.is_whole and not layout.gathers
        ends_at, times = since(last, begins).tolist(), self._times_of(last, clock)
        items = tuple(
            _recording(name, rows, spans[a:b].tolist(), is_whole, end, time)
            for name, (a, b), end, time in zip(names, pairwise(edges), ends_at, times, strict=True)
        )
        rows.keep(("values", "label"))
        cells = {name: int(n) for name, n in zip(self.variables, self._beyond, strict=True) if n}
        self.said += [Finding("beyond-limits", "note", {"cells": cells})] if cells else []
        n_dropped = rows.n - int((ends - starts).sum())
        return Site(self.variables, items, n_dropped, tuple(self.said), clock, self.profile)

    def _times_of(self, which: IntArray, clock: Clock | None) -> list[Any]:
        """The times of some rows; None if they have none."""
        if clock is None:
            return [None] * len(which)
        ticks = self.rows.pick("tick", which)
        if self._unit == "number":
            return [int(one) if one == int(one) else round(one, 9) for one in ticks.tolist()]
        if self.layout.way == "average" and clock.unit != "instant":
            return list(pd.DatetimeIndex(clock.dates(ticks)))
        dates = pd.DatetimeIndex(ticks.view("datetime64[ns]"))
        return list(dates if self._zone is None else dates.tz_localize("UTC").tz_convert(self._zone))

    def _wrong_time(self, row: int, code: str, begins: IntArray) -> DataError:
        """What to say of a row whose time is not after that of the row before it, or too close to it."""
        k = int(begins.searchsorted(row, "right")) - 1
        name = [*self._recordings][int(self.rows.pick("code", begins[k : k + 1])[0])]
        said, cure = {
            "closer": ("less than a step after", f"give {Given('freq')}, allow more with {Given('jitter')}"),
            "same-time": ("the same as at", "keep one row per time"),
            "earlier": ("earlier than at", f"give {Given('sort', True)}"),
        }[code]
        n = row - int(begins[k])
        return DataError(
            f"recording {name!r} of {self.where} has a time in column {self.layout.time!r} at row {n} (counted from 0) that "
            f"is {said} row {n - 1}; {cure}, average with {Given('irregular', 'average')}, or name recordings with "
            f"{Given('series')}.",
            code=code,
        )


def _recording(
    name: str, rows: Rows, spans: Sequence[tuple[int, int, int]], is_whole: bool, end: int, last: Any
) -> Recording:
    stored = StoredSegments(rows, spans)
    known = [(time, stop - start) for start, stop, time in spans] if is_whole else None
    return Recording(name, stored if rows.is_in_files else tuple(stored), known, end, last)
