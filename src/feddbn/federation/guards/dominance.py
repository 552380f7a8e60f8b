"""Refuses sums of products in which some combination of columns is about few rows, or mostly about one.

Two columns that are equal but in one row tell this row and the one before it, through one ordinary sum and in ratios that no
noise changes. Neither column has few rows in view (`in_view`), but their difference has. So what each column has beyond all
others must rest on at least `min_rows` effective rows, and no row may have more than half of the square of any combination
of columns (`core.statistics.effective`). It is the dominance rule of output checkers, for directions instead of cells.

Which columns
-------------
- All that were ever told of this site, by whatever study: twins in two designs differ as twins in one do. They are written
  down by name, not by value, so that restarts, other runs and later versions of the data find them (`ColumnBook`).
- As each question reads its cells and takes nuisances off: columns that differ by a constant of each recording are twins
  where means are taken off. Values count in every way of reading cells that was asked for before, too.
- At the lags of the question, and at the most lags that were told. Functions and codes are columns where they were told with
  the same way of reading cells.
- Where rows with empty cells count, a column is its cells, with 0 for empty ones, and the 0 and 1 that says which are there.
- In each part of the rows that is told by itself: blocks of time, rows that a fold leaves. Rows that are held out, resamples
  and cells that are filled in by a model are held to other rules only (`disclosure`, `row_set_guard`).

A question of the first look tells no products, but spectra and profiles of rows; it is held to the same rule for bounded
cells of single rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.cells import BoundedSite, FilledSite, mapped
from feddbn.core.designs.design import ONE_MEAN, Design, Nuisance, design_rows
from feddbn.core.designs.recordings import (
    CHUNK_ROWS,
    Block,
    SiteData,
    WithoutRows,
    stretches,
    training_site,
)
from feddbn.core.statistics.effective import own_parts
from feddbn.data.site import with_columns
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import Guard, Here
from feddbn.federation.protocol.task import Question, Task, View
from feddbn.federation.sums.gram import GramQuestion
from feddbn.privacy.policy import SitePolicy

MOST_LEVERAGE = 0.5
"""Largest share of one row in the square of a combination of columns, of what is beyond the mean share of all rows."""
HONEST = 8.0
"""Of n Gaussian rows a third count, in the worst of twenty columns a fifth, and of 30 to 60 hardly ever less than an eighth
of those that the others leave free. So where rows with a cell are fewer than 80 more than columns, an eighth of the
difference is enough, and one row may have 8 / n more: with 50 honest rows one site in ten would be refused else. A single
hidden row has all of a combination and is found all the same. More may pass: of sites with 24, 33, 50, 65 and 80 rows and 7
to 15 columns, one a twin of another but for some rows, these shares do, in %: with two rows 100, 9-100, 0-6, 0 and 0; with
three 100, 98-100, 1-77, 0-1 and 0; with five 100, 100, 100, 1-100 and 0-7. With 200 rows none do.
"""
_CELLS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Reading:
    """How cells are read before columns are made of them; `inputs` by name."""

    cell_maps: tuple[str, ...] = ()
    robust: str = "none"
    inputs: tuple[str, ...] = ()
    nuisance: Nuisance = ONE_MEAN

    def of(self, data: SiteData) -> SiteData:
        """The site as it reads it."""
        data = mapped(data, self.cell_maps)
        if self.robust != "none":
            known = (k for k, name in enumerate(data.variables) if name in self.inputs)
            data = BoundedSite(data, self.robust, tuple(known))
        return FilledSite(data, self.nuisance, None, 0) if self.nuisance.scope == "recording" else data


@dataclass(frozen=True)
class ToldColumns:
    """The columns of a design, from cells that are read in some way."""

    reading: Reading
    design: Design

    def listed(self) -> dict[str, Any]:
        """Plain values that say all of it."""
        one, nuisance = self.reading, self.reading.nuisance
        cells = [list(one.cell_maps), one.robust, list(one.inputs)]
        taken = [nuisance.scope, nuisance.degree, list(nuisance.periods)]
        return {"cells": cells, "off": taken, "design": self.design.to_dict()}

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        """Inverse of `listed`."""
        maps, robust, inputs = said["cells"]
        scope, degree, periods = said["off"]
        reading = Reading(tuple(maps), robust, tuple(inputs), Nuisance(scope, degree, tuple(periods)))
        return cls(reading, Design.from_dict(said["design"]))


class ColumnBook(Protocol):
    """Where a site keeps which columns were told; `add` has happened when it returns."""

    def hold(self) -> AbstractContextManager[None]:
        """Keep others from reading and writing meanwhile."""
        ...

    def told(self) -> Sequence[ToldColumns]:
        """Return all that were, of all versions of the data."""
        ...

    def add(self, told: Sequence[ToldColumns]) -> None:
        """Write some more down."""
        ...


class DominanceGuard(Guard):
    """Refuses columns some combination of which is about few rows.

    Parameters
    ----------
    policy
        The owner's rules.
    data, book
        All that the site offers, and which columns of it were told.
    """

    def __init__(self, policy: SitePolicy, data: SiteData, book: ColumnBook) -> None:
        self._policy = policy
        self._data = data
        self._book = book
        self._passed: set[tuple[object, ...]] = set()

    def reads(self, here: Here, task: Task) -> tuple[Here, Task]:
        """Look at the columns together with all that were told."""
        question: Question = getattr(task.question, "of", task.question)
        views = [view for view in question.in_view(here.data, here.name) if not view.is_rounded]
        if not views or (isinstance(question, RowsQuestion) and question.abstains(here.state)):
            return here, task
        new = _told_by(question, views)
        if _is_look(question) and getattr(question, "profiles", "none") != "whole":
            return here, task
        if _is_look(question):
            self._check(here, question, views, new, ())
            return here, task
        with self._book.hold():
            before = self._book.told()
            self._check(here, question, views, new, before)
            self._book.add([one for one in new if one not in before])
        return here, task

    def _check(
        self,
        here: Here,
        question: Question,
        views: Sequence[View],
        new: Sequence[ToldColumns],
        before: Sequence[ToldColumns],
    ) -> None:
        offered = tuple(self._data.variables)
        known = [one for one in (*before, *new) if set(one.design.variables) <= set(offered)]
        reach = max(one.design.n_lags for one in new)
        farthest = max(one.design.n_lags for one in known)
        readings = dict.fromkeys(one.reading for one in (*new, *known))
        if _is_look(question):
            readings = dict.fromkeys(one.reading for one in new)
        for reading in readings:
            own = [one.design for one in new if one.reading == reading] or [
                one.design for one in new if one.design.is_linear and not one.design.kinds
            ]
            # Twins that were told with fewer lags differ as much at these; rows at the beginning are in one of the two.
            for lags in sorted({reach, farthest}):
                others = _others(known, reading, offered, lags)
                self._check_columns(here, question, views[-1], reading, own, others, lags)

    def _check_columns(
        self,
        here: Here,
        question: Question,
        view: View,
        reading: Reading,
        own: Sequence[Design],
        others: Sequence[Design],
        lags: int,
    ) -> None:
        """Refuse if these columns, in some part of the rows, have a combination that is about few rows."""
        designs = _without_repeats([*own, *others])
        names = tuple(dict.fromkeys(name for design in designs for name in design.variables))
        data: SiteData = here.data
        if set(names) - set(data.variables):
            data = question.dealt(with_columns(self._data, names))
            if isinstance(here.data, WithoutRows):
                data = WithoutRows(data, here.data.left_out, here.data.order, here.data.ends_segments)
        is_whole = view.is_whole or view.are_pairs
        is_told_where = is_whole and not _is_look(question)
        left_out = here.data.left_out.tobytes() if isinstance(here.data, WithoutRows) else b""
        key = (
            reading,
            tuple(design.digest for design in designs),
            lags,
            is_whole,
            view.fold,
            view.key if view.part_of is not None else (),
            hashlib.sha256(left_out).digest(),
        )
        if key in self._passed:
            return
        site = reading.of(training_site(data, view.fold) if view.fold else data)
        if isinstance(question, RowsQuestion) and question.functions and question.row_model is not None:
            # Of cells that were drawn.
            designs, site = [question.design], question.rows_of(here.data)
        n_own = sum(design.q for design in designs if design in own)
        parts = {0} if view.part_of is None else _numbers(site, view, lags)
        for part in sorted(parts):

            def read(part: int = part) -> Iterator[FloatArray]:
                for values, at in _rows(site, designs, lags, view):
                    there = ~np.isnan(values[:, :n_own])
                    is_in: Any = there.any(axis=1) if is_whole else there.all(axis=1)
                    yield values[is_in & (at == part)]

            found = own_parts(read, is_told_where)
            if found is None:
                continue
            columns, values = _names(designs)
            are_values = np.array([True, *(values if is_told_where else ()), *values])[found.kept]
            every = ("", *(columns if is_told_where else ()), *columns)
            n, k = float(found.n[0]), len(found.kept)
            enough = np.minimum(self._policy.min_rows, found.n * max(1.0 - k / n, 0.0) / HONEST)
            # Few rows are far out, where functions of one variable differ: units see to these. As twins, formulas and codes
            # have values in them, functions only explain.
            few = (found.rows < enough - 1e-6) & are_values
            if are_values.all() and found.leverage > MOST_LEVERAGE + HONEST / n:
                few |= found.heaviest >= found.heaviest.max() / 2
            shown = [every[k] for k in found.kept[few].tolist() if every[k]]
            self._policy.check_dominance(few.any(), tuple(dict.fromkeys(shown)))
        self._passed.add(key)


def _is_look(question: Question) -> bool:
    return isinstance(question, RowsQuestion) and question.is_look


def _told_by(question: Question, views: Sequence[View]) -> list[ToldColumns]:
    """What a question tells."""
    designs = [replace(view.design, nuisance=ONE_MEAN) for view in views]
    if not isinstance(question, RowsQuestion):
        return [ToldColumns(Reading(), design) for design in dict.fromkeys(designs)]
    inputs = tuple(question.variables[k] for k in question.inputs)
    if question.is_look:
        reading = Reading(question.cell_maps, "site", inputs)
        return [ToldColumns(reading, Design.linear(designs[0].variables, 0))]
    plain = Reading(question.cell_maps, question.robust, inputs if question.robust != "none" else ())
    tried = question.tried if isinstance(question, GramQuestion) else ()
    found = [
        ToldColumns(replace(plain, nuisance=nuisance), design)
        for nuisance in dict.fromkeys((question.nuisance, *tried))
        for design in dict.fromkeys(designs)
        # Means are taken off codes, not off levels.
        if not design.kinds or nuisance == ONE_MEAN
    ]
    return found


def _others(
    known: Iterable[ToldColumns], reading: Reading, offered: Sequence[str], lags: int
) -> list[Design]:
    """The columns that were told of earlier rows, up to these lags."""
    names, most, found = set[str](), 0, list[Design]()
    for one in known:
        if one.design.is_linear and not one.design.kinds:
            names |= {*one.design.variables}
            most = max(most, one.design.n_lags)
        elif one.reading == reading and one.design.n_lags <= lags:
            found.append(one.design)
    linear = [Design.linear([name for name in offered if name in names], min(most, lags))] if names else []
    return [*linear, *found]


def _without_repeats(designs: Iterable[Design]) -> list[Design]:
    """The designs but for linear ones whose columns another has."""
    kept: list[Design] = []
    for design in dict.fromkeys(designs):
        if not any(
            one.is_linear
            and design.is_linear
            and one.kinds == design.kinds == ()
            and {*design.variables} <= {*one.variables}
            and design.n_lags <= one.n_lags
            for one in kept
        ):
            kept.append(design)
    return kept


def _rows(
    site: SiteData, designs: Sequence[Design], lags: int, view: View
) -> Iterator[tuple[FloatArray, np.ndarray]]:
    """Yield rows of the columns of all designs side by side, in pieces, and the part that each row is in."""
    size = max(1, min(CHUNK_ROWS, _CELLS_AT_ONCE // sum(design.q for design in designs)))
    places = [[site.variables.index(name) for name in design.variables] for design in designs]
    for recording in site.recordings():
        for stretch in stretches(recording.blocks(), lags, size):
            m = len(stretch.values) - lags
            columns = []
            for design, place in zip(designs, places, strict=True):
                block = Block(stretch.values[:, place])
                columns.append(_columns(design, block)[-m:])
            at = np.zeros(m, dtype=np.int64)
            if view.part_of is not None:
                at = view.part_of(stretch.time + np.arange(m), stretch.labels)
            yield np.concatenate(columns, axis=1), at


def _columns(design: Design, block: Block) -> FloatArray:
    """The rows of a design; functions are of whole rows."""
    empty = np.isnan(block.values)
    is_whole = (design.is_linear and not design.kinds) or not empty.any()
    filled = block if is_whole else replace(block, values=np.where(empty, 0.0, block.values))
    rows = np.concatenate([one.values for one in design_rows(design, [filled])])
    if not is_whole:
        linear = Design.linear(design.variables, design.n_lags)
        lagged = np.concatenate([one.values for one in design_rows(linear, [block])])
        rows[np.isnan(lagged).any(axis=1)] = np.nan
    return rows


def _numbers(site: SiteData, view: View, lags: int) -> set[int]:
    first = [Design.linear(tuple(site.variables), 0)]
    return {int(k) for _, at in _rows(site, first, lags, view) for k in np.unique(at)}


def _names(designs: Iterable[Design]) -> tuple[list[str], list[bool]]:
    """Of each column the variable that it is made of, or both, and whether it is a value or a code, and no function."""
    found: list[tuple[str, bool]] = []
    for design in designs:
        for term in design.terms:
            for _ in term.lags:
                for name, width in zip(design.variables, design.widths, strict=True):
                    found += [(name, term.basis.is_identity)] * (width * term.basis.width)
        found += [(f"{design.variables[a]} x {design.variables[b]}", False) for a, b, _ in design.products]
    return [name for name, _ in found], [is_value for _, is_value in found]
