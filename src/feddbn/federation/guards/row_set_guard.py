"""Keeps sums of different questions, runs and versions of the data from differing by a few rows or cells of this site.

A site writes down which rows, and which of their cells, were in each sum. A new question is about rows that were in the same
earlier sums, or in none, in large groups only: `too_few` has the rule. Before it answers, the site leaves out as many rows
as that takes. This is one rule for other variables, robust rows, other numbers of lags, rows that are held out,
blocks of time, and data that have changed since.

Rows are known by what is in them (`RowTable`), not by where they stand, so that a row that is still there is the same row in
the next version of the data. With w lags what is compared is a row together with the w before it.

Where rows with empty cells count, every pair of columns has rows of its own. Then all pairs are compared with each earlier
sum (`_few_pairs`). Robust rows have other values in a few cells, by medians and scales that change with the rows: such a cell
is known by the value it is given, and is another cell than the one as it was recorded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.designs.cells import mapped
from feddbn.core.designs.recordings import (
    RowNumbers,
    SiteData,
    SitePart,
    WithoutRows,
    complete_rows,
    held_out_part,
    numbered,
    site_rows,
    training_part,
)
from feddbn.errors import SiteRefused
from feddbn.federation.programs.held_out import HeldOutQuestion
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import Guard, Here
from feddbn.federation.protocol.task import Task, View
from feddbn.federation.sums.in_view import rare_rows
from feddbn.federation.sums.private_moments import UnitNormsQuestion
from feddbn.findings import Finding

# Which rows of a site may be in a sum, given those that were in earlier ones.
#
# Theory of operation
# -------------------
# Sums over the row sets R_1, ..., R_m give every combination of them, and a combination may be about a single row. Rows that
# were in the same sets have the same coefficient in every combination. So call rows with the same memberships a *class*: if
# every class of rows that were in any sum has at least `least` rows, then every combination of sums of one number for each
# row that is not empty is about at least `least` rows. It is easy to keep to: a site can always leave more rows out of a new
# sum. It is not all that is needed. Within one sum columns may differ in few rows (`dominance` has that rule), and sums of
# lagged products at two lags differ by the first and last rows of recordings, which no rule here hides.
#
# - Few rows of a class in the new set: they are left out of it.
# - Few rows of a class not in the new set: more of them are left out, those next to others that are out, until they are
#   enough.
# - Few rows that were in no sum before: they are left out.

Ids = NDArray[np.uint64]
MOST_SETS = 256
"""Sets of rows that a site may be asked about."""


def too_few(new: Ids, known: Sequence[Ids], least: int, nearest: RowNumbers | None = None) -> BoolArray:
    """Which of the new rows have to go so that every class of rows has at least `least` members.

    Rows are named by numbers. Of a class that must lose some, those that come first in `nearest` go. The rows that are left
    may split other classes: ask again.
    """
    every, place = np.unique(np.concatenate([new, *known]), return_inverse=True)
    codes: Ids = np.zeros(len(every), dtype=np.uint64)
    start = len(new)
    for k, one in enumerate(known):
        # A number for each pattern of memberships: different patterns have different sums, almost surely.
        codes[place[start : start + len(one)]] += _mixed(np.uint64(k + 1))
        start += len(one)
    pattern, classes = np.unique(codes, return_inverse=True)
    is_new = np.zeros(len(every), dtype=bool)
    is_new[place[: len(new)]] = True
    n_in = np.bincount(classes[is_new], minlength=len(pattern))
    n_out = np.bincount(classes[~is_new], minlength=len(pattern))
    lacking = np.where((pattern != 0) & (n_out > 0), np.maximum(least - n_out, 0), 0)
    whole = (pattern != 0) & (n_out == 0)
    of_new = classes[place[: len(new)]]
    goes = ~whole[of_new] & (n_in - lacking < least)[of_new]
    order = np.arange(len(new)) if nearest is None else nearest
    for number in np.flatnonzero((lacking > 0) & (n_in - lacking >= least)).tolist():
        goes[order[of_new[order] == number][: lacking[number]]] = True
    return np.asarray(goes)


def _mixed(values: NDArray[np.uint64] | np.uint64) -> Ids:
    """Scatter bits (splitmix64)."""
    with np.errstate(over="ignore"):
        found = np.asarray(values, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(found ^ (found >> np.uint64(31)))


@dataclass(frozen=True)
class RowTable:
    """The rows of one version of a site's data, by a keyed digest of what is in each.

    Attributes
    ----------
    data
        Names the version.
    variables
        What the site offers, or those of it that the digests are about.
    digests
        (n,) in the order of `numbers`.
    numbers
        (n,) of the rows, sorted.
    """

    data: str
    variables: tuple[str, ...]
    digests: Ids
    numbers: RowNumbers

    @classmethod
    def of(cls, data: SiteData, order: Mapping[str, int], version: str, key: bytes) -> RowTable:
        """Read a site; rows with the same cells have the same digest."""
        salts = [hashlib.sha256(key + name.encode()).digest()[:8] for name in data.variables]
        salt = np.frombuffer(b"".join(salts), dtype="<u8")
        numbers, digests = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.uint64)]
        for recording in data.recordings():
            for found, block in numbered(recording, order):
                # Zero has no sign here, and there is one kind of empty cell.
                cells = np.where(np.isnan(block.values), np.nan, block.values + 0.0).view(np.uint64)
                numbers.append(found)
                digests.append(_mixed(_mixed(cells ^ salt).sum(axis=1, dtype=np.uint64)))
        every = np.concatenate(numbers)
        place = np.argsort(every)
        return cls(version, tuple(data.variables), np.concatenate(digests)[place], every[place])

    def windows(self, rows: RowNumbers, n_lags: int) -> Ids:
        """A name for each of some rows with the `n_lags` before it; equal ones are counted.

        Whichever of two equal rows is in a sum, the sum is the same.
        """
        found = self.digests[rows]
        with np.errstate(over="ignore"):
            for k in range(1, n_lags + 1):
                found = _mixed(found * np.uint64(0x2545F4914F6CDD1D) + self.digests[rows - k])
            order = np.argsort(found, kind="stable")
            begins = np.concatenate([[True], np.diff(found[order]) != 0])[: len(found)]
            place = np.arange(len(found))
            rank = place - np.maximum.accumulate(np.where(begins, place, 0))
            found[order] = _mixed(found[order] + rank.astype(np.uint64))
        return found


@dataclass(frozen=True)
class UsedRows:
    """Rows that a sum was made of.

    Attributes
    ----------
    key
        What decides which rows these are: a digest of what decides which cells are empty, then lags, fold and blocks.
    n_lags
        How many predecessors a row has.
    table
        The version of the data.
    rows
        Places of the rows in the table.
    left_out
        Places of the rows that were left out so that no combination of sums shows few.
    variables, cells
        Where rows with empty cells count, or far cells are bounded: what is in the cells of each row of the table, (n, d). 0:
        nothing; 1: what was recorded; else a digest of the value that takes its place.
    """

    key: str
    n_lags: int
    table: RowTable
    rows: RowNumbers
    left_out: RowNumbers
    variables: tuple[str, ...] = ()
    cells: Ids | None = None

    @property
    def group(self) -> str:
        """First looks and all other questions are compared among themselves."""
        return self.key.partition(" ")[0]

    @cached_property
    def present(self) -> RowNumbers:
        """Its rows; where rows with empty cells count, those that have any, like all before them."""
        if self.cells is None or not len(self.rows):
            return self.rows
        there = self.lagged_cells(self.n_lags, self.variables).reshape(len(self.rows), self.n_lags + 1, -1)
        has_any: BoolArray = np.any(there > 0, axis=2)
        return self.rows[np.all(has_any, axis=1)]

    def lagged_cells(self, n_lags: int, variables: Sequence[str]) -> Ids:
        """What the sum has in the cells of its rows and those before them."""
        if self.cells is None:
            return np.ones((len(self.rows), (n_lags + 1) * len(variables)), dtype=np.uint64)
        columns = [self.variables.index(name) for name in variables]
        return np.concatenate([self.cells[self.rows - k][:, columns] for k in range(n_lags + 1)], axis=1)

    def ids(self, rows: RowNumbers, n_lags: int | None, digests: RowTable) -> Ids:
        """Names of some of its rows: their places, or what is in them and in `n_lags` rows before them."""
        return rows.astype(np.uint64) if n_lags is None else digests.windows(rows, n_lags)


class RowBook(Protocol):
    """Where a site keeps which rows it has used, of all versions of its data; `add` has happened when it returns."""

    def hold(self) -> AbstractContextManager[None]:
        """Keep others from reading and writing meanwhile."""
        ...

    def order(self) -> Mapping[str, int]:
        """Return the number of each recording of the present version."""
        ...

    def table(self, variables: Sequence[str] | None = None) -> RowTable:
        """Return the rows of the present version, by all that the site offers or by some variables."""
        ...

    def used(self) -> Sequence[UsedRows]:
        """Return all that was written down."""
        ...

    def add(self, used: Sequence[UsedRows]) -> None:
        """Write some more down."""
        ...


class RowSetGuard(Guard):
    """Leaves out rows so that all sums of a site together show none of them.

    Parameters
    ----------
    book
        Which rows were used before.
    least
        Fewest rows that a combination of sums may be about.
    tell
        Called with what the site's owner should know.
    reach
        Rows have as many predecessors, whatever the number of lags of a question: for studies that choose it on rows that
        are held out, whose parts would else differ by a few rows each.
    """

    def __init__(
        self,
        book: RowBook,
        least: int,
        tell: Callable[[Finding], None] = lambda finding: None,
        reach: int = 0,
    ) -> None:
        self._book = book
        self._reach = reach
        self._least = least
        self._tell = tell
        self._settled: dict[str, RowNumbers] = {}

    def reads(self, here: Here, task: Task) -> tuple[Here, Task]:
        """Leave rows out."""
        question = task.question
        if not question.reads_rows:
            return here, task
        # How large units are in the answer to another question depends on the same rows.
        question = question.of if isinstance(question, UnitNormsQuestion) else question
        if not isinstance(question, RowsQuestion):
            raise SiteRefused(
                f"task {question.name!r} reads rows, and this site does not know how to keep it from showing few of them "
                "together with earlier sums.",
                code="rows-not-known",
            )
        views = question.in_view(here.data, here.name)
        if all(view.is_rounded for view in views):
            # Rows do not show in such numbers, alone or in differences.
            return here, task
        about = _About.of(question, here.data, views)
        if about.key not in self._settled:
            with self._book.hold():
                places = self._left_out(here.data, about)
            if len(places):
                self._tell(Finding("rows-left-out", "note", {"n": len(places), "n_lags": about.n_lags}))
            self._settled[about.key] = self._book.table().numbers[places]
        left_out = self._settled[about.key]
        if not len(left_out):
            return here, task
        return replace(here, data=WithoutRows(here.data, left_out, self._book.order())), task

    def _left_out(self, data: SiteData, about: _About) -> RowNumbers:
        """Return the places of the rows that this question does without, after they were written down."""
        book, table = self._book, self._book.table()
        used = [one for one in book.used() if one.group == about.group]
        now = [one for one in used if one.table.data == table.data]
        for one in now:
            if one.key.startswith(f"{about.key} "):
                return one.left_out
        n_known = len({(one.table.data, one.key.rpartition(" ")[0]) for one in used})
        if n_known >= MOST_SETS:
            raise SiteRefused(
                f"sums over {n_known} different sets of this site's rows were made; ask about variables and bounds "
                "that were asked about before, or use a study with noise.",
                code="too-many-row-sets",
            )
        lags = f"{about.cells} {about.n_lags} " if self._reach else f"{about.cells} "
        same = [one for one in now if one.key.startswith(lags)]
        left_out = same[-1].left_out if same else np.zeros(0, dtype=np.int64)
        if self._reach > about.n_lags and about.group != "look":
            first = about.first_rows(
                WithoutRows(data, table.numbers[:0], book.order()), book.order(), self._reach
            )
            left_out = np.union1d(left_out, np.searchsorted(table.numbers, first))
        is_cut_before = any(about.cut and f" {about.cut} " in one.key for one in now)
        while True:
            seen = WithoutRows(data, table.numbers[left_out], book.order())
            whole, *parts = about.found(seen, book.order(), table, left_out)
            if not about.is_filled and len(whole.rows) < self._least:
                # Too few rows for any sum, which is the next guard's business; nothing is used.
                return left_out
            fewest = min((len(one.rows) for one in parts), default=self._least)
            if fewest < self._least:
                raise SiteRefused(
                    f"{fewest} rows of this site would be in one of the sums; its policy asks for {self._least} (min_rows).",
                    code="few-rows",
                )
            goes = self._goes([whole, *(parts if is_cut_before else ())], used)
            if not len(goes):
                # Of what is left few rows may have a pattern of empty cells in common.
                rare = [rare_rows(view, seen, book.order(), self._least) for view in about.pairs]
                rare_ones = np.searchsorted(table.numbers, np.concatenate([table.numbers[:0], *rare]))
                goes = np.setdiff1d(rare_ones, left_out)
            if not len(goes):
                break
            left_out = np.union1d(left_out, goes)
        if len(self._goes(parts, [*used, whole])):
            raise SiteRefused(
                f"blocks of this study differ by fewer than {self._least} rows of this site from sums of earlier ones; ask "
                "for blocks that were asked for before.",
                code="blocks-show-rows",
            )
        if about.group == "look" and about.question is not None and about.question.cell_maps:
            self._check_emptied(whole, [about.as_recorded(seen, book.order(), table, left_out), *now])
        book.add(parts or [whole])
        return left_out

    def _check_emptied(self, new: UsedRows, others: Sequence[UsedRows]) -> None:
        """Refuse a first look whose maps empty few cells of a variable, against the data as recorded or another look.

        A study chooses the values that are emptied, and a first look tells how many cells a variable has left.
        """
        for one in others:
            if new.cells is None or one.cells is None:
                continue
            kept = np.ones(len(new.cells), dtype=bool)
            kept[np.concatenate([new.left_out, one.left_out])] = False
            both = [name for name in new.variables if name in one.variables]
            mine, theirs = (
                used[kept][:, [names.index(name) for name in both]]
                for used, names in ((new.cells, new.variables), (one.cells, one.variables))
            )
            n_emptied = (mine != theirs).sum(axis=0)
            if np.any((n_emptied > 0) & (n_emptied < self._least)):
                raise SiteRefused(
                    f"the study empties cells of a variable in fewer than {self._least} rows of this site (min_rows), and "
                    "would tell how many; empty them in the files, or have the study leave these values out.",
                    code="few-emptied",
                )

    def _goes(self, found: Sequence[UsedRows], used: Sequence[UsedRows]) -> RowNumbers:
        """Places of rows to leave out next; empty if no combination of sums would show few."""
        for k, new in enumerate(found):
            others = [*used, *found[:k]]
            for goes in (*self._few_in_classes(new, others), *self._few_in_pairs(new, others)):
                if len(goes):
                    return goes
        return np.zeros(0, dtype=np.int64)

    def _few_in_classes(self, new: UsedRows, used: Sequence[UsedRows]) -> Iterator[RowNumbers]:
        for n_lags, digests, others in self._compared(new, used):
            known = [
                one.ids(one.present, n_lags, digests if one.table.data == digests.data else one.table)
                for one in others
            ]
            rows = new.present
            nearest = _nearest(rows, len(digests.numbers))
            goes = too_few(new.ids(rows, n_lags, digests), known, self._least, nearest)
            yield _without_neighbours(rows[goes], new.n_lags)

    def _compared(
        self, new: UsedRows, used: Sequence[UsedRows]
    ) -> Iterator[tuple[int | None, RowTable, list[UsedRows]]]:
        """Yield earlier sets, by which variables rows are known there, and with how many rows before them."""
        table = self._book.table()
        now = [one for one in used if one.table.data == table.data]
        yield None, table, now
        earlier = [one for one in used if one.table.data != table.data]
        for variables in dict.fromkeys(one.table.variables for one in earlier):
            if not set(variables) <= set(table.variables):
                raise SiteRefused(
                    "this site offered variables in earlier sums that it does not offer now, so it cannot tell which of its "
                    f"rows were in them: {', '.join(sorted(set(variables) - set(table.variables)))}. Offer them again.",
                    code="fewer-variables",
                )
            digests = self._book.table(variables)
            alike = [*(one for one in earlier if one.table.variables == variables), *now]
            for n_lags in range(min(new.n_lags, max(one.n_lags for one in alike)) + 1):
                yield n_lags, digests, [one for one in alike if one.n_lags >= n_lags]

    def _few_in_pairs(self, new: UsedRows, used: Sequence[UsedRows]) -> Iterator[RowNumbers]:
        """Compare pairs of columns with each earlier sum, if rows with empty cells count in one of the two."""
        table = self._book.table()
        for one in used:
            if new.cells is None and one.cells is None:
                continue
            # Complete rows have all cells.
            asked = new.variables or one.variables
            both = [name for name in asked if name in (one.variables or asked)]
            if not both:
                continue
            n_lags = min(new.n_lags, one.n_lags)
            is_now = one.table.data == table.data
            digests = table if is_now else self._book.table(one.table.variables)
            names = new.ids(new.rows, None if is_now else n_lags, digests)
            others = one.ids(one.rows, None if is_now else n_lags, one.table)
            mine, theirs = new.lagged_cells(n_lags, both), one.lagged_cells(n_lags, both)
            yield _few_pairs(new.rows, (names, mine), (others, theirs), len(both), self._least)


def _few_pairs(
    rows: RowNumbers, new: tuple[Ids, Ids], old: tuple[Ids, Ids], n_columns: int, least: int
) -> RowNumbers:
    """Rows to leave out so that no pair of columns differs between two sums in few rows.

    `new` and `old` name rows and say what they have in the cells of `n_columns` at each lag.
    """
    every, place = np.unique(np.concatenate([new[0], old[0]]), return_inverse=True)
    mine, theirs = np.zeros((2, len(every), new[1].shape[1]), dtype=np.uint64)
    mine[place[: len(rows)]], theirs[place[len(rows) :]] = new[1], old[1]
    differ = (mine != theirs).any(axis=1)
    at = np.full(len(every), -1)
    at[place[: len(rows)]] = np.arange(len(rows))
    mine, theirs = mine[differ], theirs[differ]
    a, b, same = ((one > 0).astype(np.float32) for one in (mine, theirs, mine * (mine == theirs)))
    both = same.T @ same
    added, lost = a.T @ a - both, b.T @ b - both
    few = (added > 0) & (added < least)
    if few.any():
        # x' F x is how many of the few pairs a row has; the cells by which it differs go with all of their row.
        n_few = np.einsum("ri,ri->r", a @ few, a) - np.einsum("ri,ri->r", same @ few, same)
        where, column = np.nonzero((a > same) & (n_few > 0)[:, None])
        return np.unique(rows[at[differ][where]] - column // n_columns)
    if ((lost > 0) & (lost < least)).any():
        whole = np.flatnonzero((new[1] > 0).all(axis=1) & ~differ[place[: len(rows)]])
        if not len(whole):
            raise SiteRefused(
                f"cells of this site that count differ in fewer than {least} rows from those of an earlier sum; ask about "
                "variables and limits that were asked about before.",
                code="cells-show-rows",
            )
        gone = at[differ]
        near = rows[gone[gone >= 0]] if (gone >= 0).any() else rows[:1]
        return np.sort(rows[whole][_by_gap(rows[whole], near)][:least])
    return rows[:0]


def _nearest(rows: RowNumbers, n: int) -> RowNumbers:
    """The order in which rows are left out: those next to rows that are out come first."""
    out = np.setdiff1d(np.arange(n), rows, assume_unique=True)
    return _by_gap(rows, out) if len(out) else np.arange(len(rows))


def _by_gap(rows: RowNumbers, others: RowNumbers) -> RowNumbers:
    after = np.clip(np.searchsorted(others, rows), 1, len(others)) - 1
    before = np.minimum(after + 1, len(others) - 1)
    gaps = np.minimum(np.abs(rows - others[after]), np.abs(rows - others[before]))
    return np.argsort(gaps, kind="stable")


def _without_neighbours(rows: RowNumbers, n_lags: int) -> RowNumbers:
    """Some of the rows, such that the others are among the `n_lags` that follow one: they go with it."""
    kept: list[int] = []
    for row in rows.tolist():
        if not kept or row - kept[-1] > n_lags:
            kept.append(row)
    return np.array(kept, dtype=np.int64)


def _seen_cells(question: object, data: SiteData) -> str:
    """A digest of what decides which cells are empty for a question."""
    digest = hashlib.sha256(repr(tuple(data.variables)).encode())
    if isinstance(question, RowsQuestion):
        if question.robust != "none":
            digest.update(f" {question.robust} {question.inputs} ".encode())
        digest.update("".join(question.cell_maps).encode())
        digest.update(b" filled" if question.reads_incomplete_rows else b"")
    return digest.hexdigest()


@dataclass(frozen=True)
class _About:
    """What a question says about which rows it is about.

    Attributes
    ----------
    cells
        Whether it is a first look, and a digest of what decides which cells are empty.
    cut
        A digest of what decides which rows are in which block; empty without blocks.
    pairs
        Designs of rows with empty cells.
    """

    question: RowsQuestion | None
    cells: str
    n_lags: int
    cut: str = ""
    pairs: tuple[View, ...] = ()

    @classmethod
    def of(cls, question: object, data: SiteData, views: Sequence[View]) -> _About:
        cells = _seen_cells(question, data)
        if not isinstance(question, RowsQuestion):
            return cls(None, f"rows {cells}", int(getattr(question, "reach", 0)))
        cut = ""
        if question.n_blocks:
            by_place = (question.block_rows, question.n_blocks) if question.block_rows else ()
            cut = hashlib.sha256(repr((by_place, question.calendar, cells)).encode()).hexdigest()
        if question.is_look:
            # About all rows, whatever their lags, and before any are held out.
            return cls(replace(question, fold=()), f"look {cells}", 0)
        pairs = tuple(view for view in views if view.are_pairs)
        return cls(question, f"rows {cells}", question.n_lags, cut, pairs)

    @property
    def group(self) -> str:
        return self.cells.partition(" ")[0]

    @property
    def key(self) -> str:
        """All of it; what is written down has the number of a block behind it."""
        fold = self.question.fold if self.question is not None else ()
        part = "held-out" if isinstance(self.question, HeldOutQuestion) else "training"
        where = f"{part}{'-'.join(map(str, fold))}" if fold else "all"
        where += "".join(f":{view.design.digest[:16]}" for view in self.pairs)
        return f"{self.cells} {self.n_lags} {where} {self.cut or '-'}"

    def as_recorded(
        self, data: WithoutRows, order: Mapping[str, int], table: RowTable, left_out: RowNumbers
    ) -> UsedRows:
        """The same rows with the cells that they have without maps."""
        assert self.question is not None
        return next(
            replace(self, question=replace(self.question, cell_maps=())).found(data, order, table, left_out)
        )

    @property
    def is_filled(self) -> bool:
        """Whether rows with empty cells count."""
        return self.question is not None and (self.question.reads_incomplete_rows or self.question.is_look)

    @property
    def is_robust(self) -> bool:
        """Whether far cells are bounded."""
        return self.question is not None and self.question.robust != "none"

    def first_rows(self, data: WithoutRows, order: Mapping[str, int], reach: int) -> RowNumbers:
        """Numbers of the rows without which all others have `reach` predecessors."""
        rows = site_rows(self._seen(data, in_parts=False), order)
        base = rows.every if self.is_filled else rows.complete
        return np.setdiff1d(base, rows.lagged(base, reach - self.n_lags))

    def _seen(self, data: WithoutRows, in_parts: bool = True) -> SiteData:
        """The site as this question sees it."""
        question, n_lags = self.question, self.n_lags
        if question is None:
            return data
        if self.is_filled:
            # Of rows that are left out nothing is seen as a lag either.
            data = data.ending_segments()
        seen, fold = replace(question, log_scales=None).treated(data), question.fold if in_parts else ()
        if question.cell_maps:
            _check_codes(data, seen)
        if fold and isinstance(question, HeldOutQuestion):
            return SitePart(seen, lambda one: held_out_part(one, fold, n_lags))
        return SitePart(seen, lambda one: training_part(one, fold)) if fold else seen

    def found(
        self, data: WithoutRows, order: Mapping[str, int], table: RowTable, left_out: RowNumbers
    ) -> Iterator[UsedRows]:
        """Yield the rows of a site as this question sees them, then the blocks of them."""
        seen = self._seen(data)
        rows = site_rows(seen, order)
        targets = rows.lagged(rows.every if self.is_filled else rows.complete, self.n_lags)
        places = np.searchsorted(table.numbers, targets)
        used = UsedRows(f"{self.key} all", self.n_lags, table, places, left_out)
        if self.is_filled or self.is_robust:
            assert self.question is not None
            values = _values(seen, order, table)
            cells: Ids = (~np.isnan(values)).astype(np.uint64)
            if self.is_robust:
                is_other = (cells > 0) & (
                    values != _values(mapped(data, self.question.cell_maps), order, table)
                )
                # Neither of the two numbers that mean something else.
                cells[is_other] = _mixed(values[is_other].view(np.uint64)) | np.uint64(2)
            used = replace(used, variables=tuple(data.variables), cells=cells)
        yield used
        if self.question is not None and self.question.n_blocks:
            label = _labels(SitePart(seen, complete_rows), self.question, order, table)[places]
            for b in np.unique(label).tolist():
                yield replace(used, key=f"{self.key} {b}", rows=places[label == b])


def _values(data: SiteData, order: Mapping[str, int], table: RowTable) -> FloatArray:
    """(n, d) what is in the cells of each row of the table."""
    found = np.full((len(table.numbers), len(data.variables)), np.nan)
    for recording in data.recordings():
        for numbers, block in numbered(recording, order):
            found[np.searchsorted(table.numbers, numbers)] = block.values
    return found


def _check_codes(data: SiteData, seen: SiteData) -> None:
    """Refuse to empty most cells of a variable: codes are few, and what is left would be chosen."""
    before, after = (
        sum((~np.isnan(b.values)).sum(axis=0) for one in site.recordings() for b in one.blocks())
        for site in (data, seen)
    )
    if np.any(2 * np.asarray(after) < before):
        raise SiteRefused(
            "more than half of the cells of a variable of this site would be empty as codes by what the question names; such "
            "cells are few.",
            code="tight-limits",
        )


def _labels(
    data: SiteData, question: RowsQuestion, order: Mapping[str, int], table: RowTable
) -> NDArray[np.int64]:
    """In which block each row of the table is; with a calendar or a column every label counts by itself."""
    found = np.full(len(table.numbers), -1, dtype=np.int64)
    for recording in data.recordings():
        for numbers, block in numbered(recording, order):
            times = (block.time or 0) + np.arange(len(numbers))
            label = (
                question.block_of(times, None)
                if question.block_rows
                else question.label_numbers(block.labels)
            )
            found[np.searchsorted(table.numbers, numbers)] = label
    return found
