"""Keeps sums, and blocks of rows, of different studies from showing a few rows: `too_few` has the rule.

Which rows have an empty cell depends on the variables of a study, and on which cells count as far out. A site writes down
which rows were complete for each of these, once for each version of its data. Before it answers about others it leaves out
as many rows as it takes for no combination to be about fewer than `min_rows` of them. The same for rows that have any cell,
where rows with empty cells count.

Rows with p lags are those whose p predecessors are complete, too. So rows are compared for every number of lags that has been
asked for. Sums with two numbers of lags over the same rows still differ by the rows at the beginnings of segments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import IntArray
from feddbn.core.designs.recordings import (
    CompleteSite,
    RowNumbers,
    SiteData,
    SiteRows,
    WithoutRows,
    numbered,
    site_rows,
)
from feddbn.errors import SiteRefused
from feddbn.federation.programs.feature_statistics import FeatureMomentsQuestion, FeatureScaleQuestion
from feddbn.federation.programs.statistics import SitePart, held_out_part, training_part
from feddbn.federation.programs.time_blocks import BlocksQuestion
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import Guard, Here
from feddbn.federation.protocol.task import Task
from feddbn.findings import Finding

# Which rows of a site may be in a sum, given those that were in earlier ones.
#
# Theory of operation
# -------------------
# Two studies that choose other variables, or treat cells in other ways, leave out other rows: those with an empty cell in one
# of their variables. Sums over the row sets R_1, ..., R_m give every combination of them, and a combination may be about a
# single row. Rows that were in the same sets have the same coefficient in every combination. So call rows with the same
# memberships a *class*: if every class of rows that were in any sum has at least `least` rows, then every combination that is
# not empty is about at least `least` rows. This is sufficient, and it is easy to keep to: a site can always leave more rows
# out of a new sum.
#
# - Few rows of a class in the new set: they are left out of it.
# - Few rows of a class not in the new set: more of them are left out, those next to them, until they are enough.
# - Few rows that were in no sum before: they are left out.

Rows = NDArray[np.int64]


def too_few(new: Rows, known: Sequence[Rows], least: int) -> Rows:
    """Return rows of `new` without which every class of rows has at least `least` members; empty if none must go.

    All arguments are sorted numbers of rows. The rows that are left may split other classes: ask again.
    """
    every = np.unique(np.concatenate([new, *known]))
    is_new = np.isin(every, new)
    member = np.array([np.isin(every, rows) for rows in known], dtype=bool).reshape(len(known), len(every))
    # One number for each pattern of memberships.
    classes = np.zeros(len(every), dtype=np.int64)
    for row in member:
        classes = np.unique(2 * classes + row, return_inverse=True)[1]
    goes = np.zeros(len(every), dtype=bool)
    for one in range(int(classes.max(initial=-1)) + 1):
        places = np.flatnonzero(classes == one)
        inside, outside = places[is_new[places]], places[~is_new[places]]
        was_summed = bool(member[:, places[0]].any())
        if not len(inside) or (was_summed and not len(outside)):
            continue
        lacking = least - len(outside) if was_summed else 0
        if len(inside) - max(lacking, 0) < least:
            goes[inside] = True
        elif lacking > 0:
            goes[_nearest(every, inside, outside)[:lacking]] = True
    return np.asarray(every[goes])


def _nearest(every: Rows, inside: Rows, outside: Rows) -> Rows:
    """The places inside, those next to places outside first."""
    after = np.clip(np.searchsorted(outside, inside), 1, len(outside)) - 1
    before = np.minimum(after + 1, len(outside) - 1)
    gaps = np.minimum(
        np.abs(every[inside] - every[outside[after]]), np.abs(every[inside] - every[outside[before]])
    )
    return inside[np.argsort(gaps, kind="stable")]


MOST_SETS = 64
"""Sets of rows that one version of the data may be asked about."""
BLOCK = "block "
"""Begins the digest of rows that are one block of several; its number comes last."""


@dataclass(frozen=True)
class UsedRows:
    """Rows that sums were made of.

    Attributes
    ----------
    cells
        Digest of what decides which cells are empty: the variables and the limits. For a block of rows `BLOCK`, the digest of
        what decides about all blocks, and its number.
    n_lags
        How many predecessors a row needs to have.
    rows
        Numbers of the complete rows, or of the rows with any cell.
    left_out
        Numbers of the rows that were left out so that no combination of sums shows few.
    run
        The run that was the first to use them.
    """

    cells: str
    n_lags: int
    rows: RowNumbers
    left_out: RowNumbers
    run: str = ""

    @property
    def partition(self) -> str:
        """Which blocks these rows are one of; empty if they are all rows."""
        return self.cells.rpartition(" ")[0] if self.cells.startswith(BLOCK) else ""


def lagged_sets(rows: SiteRows, used: Sequence[UsedRows], n_lags: int) -> list[RowNumbers]:
    """The different sets of rows with `n_lags` predecessors that sums were made of; lags reach over the ends of blocks."""
    found = [rows.lagged(one, n_lags) for one in _different([one.rows for one in used if not one.partition])]
    for name in dict.fromkeys(one.partition for one in used if one.partition):
        parts = [one.rows for one in used if one.partition == name]
        every = rows.lagged(np.unique(np.concatenate(parts)), n_lags)
        found += [np.intersect1d(part, every, assume_unique=True) for part in parts]
    return found


class RowBook(Protocol):
    """Where a site keeps which rows it has used, of the present version of its data; `add` has happened when it returns."""

    def hold(self) -> AbstractContextManager[None]:
        """Keep others from reading and writing meanwhile."""
        ...

    def order(self) -> Mapping[str, int]:
        """Return the number of each recording."""
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
        Which rows were used before, and by which run.
    run
        The run that is answered now; a restart in its middle does not make its own rows those of an earlier one.
    least
        Fewest rows that a combination of sums may be about.
    tell
        Called with what the site's owner should know.
    """

    def __init__(
        self, book: RowBook, least: int, tell: Callable[[Finding], None] = lambda finding: None, run: str = ""
    ) -> None:
        self._book = book
        self._run = run
        self._least = least
        self._tell = tell
        self._settled: dict[tuple[object, ...], RowNumbers] = {}
        self._earlier: list[RowNumbers] | None = None

    def reads(self, here: Here, task: Task) -> tuple[Here, Task]:
        """Leave rows out."""
        question = task.question
        is_rows = isinstance(question, RowsQuestion) and not question.is_look
        if not is_rows and not isinstance(question, FeatureMomentsQuestion | FeatureScaleQuestion):
            return here, task
        about = _About.of(question, here.data)
        # Folds are of the rows that are left.
        key = (about.cells, about.n_lags, about.fold)
        if key not in self._settled:
            with self._book.hold():
                if self._earlier is None:
                    others = [one for one in self._book.used() if not one.run or one.run != self._run]
                    self._earlier = _different([one.rows for one in others if not one.partition])
                left_out = self._left_out(here.data, about)
                self._check_fold(WithoutRows(here.data, left_out, self._book.order()), about)
            self._settled[key] = left_out
            if len(left_out):
                self._tell(Finding("rows-left-out", "note", {"n": len(left_out), "n_lags": about.n_lags}))
        left_out = self._settled[key]
        if not len(left_out):
            return here, task
        return replace(here, data=WithoutRows(here.data, left_out, self._book.order())), task

    def _left_out(self, data: SiteData, about: _About) -> RowNumbers:
        """Return the rows that this question does without, after they were written down."""
        book, used = self._book, self._book.used()
        same = [one for one in used if one.cells == about.cells]
        for one in same:
            if one.n_lags == about.n_lags:
                return one.left_out
        known = _different([one.rows for one in used if not one.partition])
        if len(known) >= MOST_SETS:
            raise SiteRefused(
                f"sums over {len(known)} different sets of this site's rows were made; ask about variables and limits "
                "that were asked about before, or use a study with noise.",
                code="too-many-row-sets",
            )
        lags = sorted({one.n_lags for one in used} | {about.n_lags})
        left_out = same[-1].left_out if same else np.zeros(0, dtype=np.int64)
        while True:
            rows = about.rows(WithoutRows(data, left_out, book.order()), book.order())
            if not about.is_filled and len(rows.lagged(rows.complete, about.n_lags)) < self._least:
                # Too few rows for any sum, which is the next guard's business; nothing is used.
                return left_out
            found = [rows.complete, *([rows.present] if about.is_filled else [])]
            goes = self._goes(rows, found, used, lags)
            if not len(goes):
                break
            left_out = np.union1d(left_out, goes)
        book.add([UsedRows(about.cells, about.n_lags, new, left_out, self._run) for new in found])
        return left_out

    def _goes(
        self, rows: SiteRows, found: list[RowNumbers], used: Sequence[UsedRows], lags: Sequence[int]
    ) -> RowNumbers:
        """Rows to leave out next; empty if no combination of sums would show few."""
        for k, new in enumerate(found):
            for p in lags:
                others = [*lagged_sets(rows, used, p), *(rows.lagged(one, p) for one in found[:k])]
                goes = too_few(rows.lagged(new, p), others, self._least)
                if len(goes):
                    return _without_neighbours(goes, p)
        return np.zeros(0, dtype=np.int64)

    def _check_fold(self, data: SiteData, about: _About) -> None:
        """Refuse where rows that differ are enough, but not those of them that a fold leaves or holds out.

        Compared with earlier runs: within one, the study's scope and constants say which folds and limits there are.
        """
        if not about.fold:
            return
        order = self._book.order()
        rows = about.rows(data, order)
        known = [one for one in self._earlier or () if not _same(one, rows.complete)]
        fold = about.fold
        for part in (lambda one: training_part(one, fold), lambda one: held_out_part(one, fold, 0)):
            within = site_rows(SitePart(data, part), order).every
            cut = [np.intersect1d(rows.lagged(one, about.n_lags), within) for one in (rows.complete, *known)]
            if len(too_few(cut[0], cut[1:], self._least)):
                raise SiteRefused(
                    f"the rows that this fold leaves or holds out differ by fewer than {self._least} rows from those of "
                    "an earlier study; hold out another share, or use a study with noise.",
                    code="fold-shows-rows",
                )


def seen_cells(question: object, data: SiteData) -> str:
    """A digest of what decides which cells are empty for a question."""
    digest = hashlib.sha256(repr(tuple(data.variables)).encode())
    if isinstance(question, RowsQuestion):
        if question.limits is not None:
            common = [question.variables.index(name) for name in data.variables]
            digest.update(f" {question.far!r} {question.own_limits} ".encode())
            digest.update(np.ascontiguousarray(question.limits[common]).tobytes())
        digest.update(b" filled" if question.reads_incomplete_rows else b"")
    return digest.hexdigest()


@dataclass(frozen=True)
class _About:
    """What a question says about which rows it is about."""

    question: RowsQuestion | None
    cells: str
    n_lags: int
    fold: tuple[int, ...]
    is_filled: bool

    @classmethod
    def of(cls, question: object, data: SiteData) -> _About:
        cells = seen_cells(question, data)
        if not isinstance(question, RowsQuestion):
            return cls(None, cells, int(getattr(question, "reach", 0)), (), False)
        return cls(question, cells, question.n_lags, question.fold, question.reads_incomplete_rows)

    def rows(self, data: SiteData, order: Mapping[str, int]) -> SiteRows:
        """The rows of a site as this question sees them."""
        seen = data if self.question is None else replace(self.question, log_scales=None).treated(data)
        return site_rows(seen, order)


def _without_neighbours(rows: RowNumbers, n_lags: int) -> RowNumbers:
    """Some of the rows, such that the others are among the `n_lags` that follow one: they go with it."""
    kept: list[int] = []
    for row in rows.tolist():
        if not kept or row - kept[-1] > n_lags:
            kept.append(row)
    return np.array(kept, dtype=np.int64)


def _same(one: RowNumbers, other: RowNumbers) -> bool:
    return one.tobytes() == other.tobytes()


def _different(sets: Sequence[RowNumbers]) -> list[RowNumbers]:
    return list({one.tobytes(): one for one in sets}.values())


# Keeps blocks of rows of different studies from showing a few rows: see `federation.guards.row_set_guard`.
#
# A study cuts the rows of a site into blocks: by their place, by the calendar, or by a column. What two such cuts, or a
# cut and any other set of rows, have in common is a class of rows that sums may single out. A month less the days of it
# that are whole weeks is a day or two. So a site writes down which rows were in which block, and refuses a cut by which
# some class would have fewer than `min_rows` rows. Months, days and hours lie within each other, weeks and months do
# not. With a calendar or a column every label counts by itself, wherever the study's first block begins.

MOST_CUTS = 6
"""Ways to cut it into blocks that one version of the data may be asked about."""


class BlockSetGuard(Guard):
    """Refuses blocks that show few rows together with earlier sums.

    Parameters
    ----------
    book
        Which rows were used before.
    least
        Fewest rows that a combination of sums may be about.
    """

    def __init__(self, book: RowBook, least: int) -> None:
        self._book = book
        self._least = least
        self._settled: set[str] = set()

    def reads(self, here: Here, task: Task) -> tuple[Here, Task]:
        """Compare blocks with earlier ones, and write them down."""
        question = task.question
        if isinstance(question, BlocksQuestion):
            name = _name(question, here.data)
            if name not in self._settled:
                with self._book.hold():
                    self._settle(name, here.data, question)
                self._settled.add(name)
        return here, task

    def _settle(self, name: str, data: SiteData, question: BlocksQuestion) -> None:
        used, order = self._book.used(), self._book.order()
        cuts = {one.partition for one in used if one.partition}
        if name in cuts:
            return
        if len(cuts) >= MOST_CUTS:
            raise SiteRefused(
                f"this site's rows were cut into blocks in {len(cuts)} ways; ask for blocks that were asked for before.",
                code="too-many-cuts",
            )
        seen = replace(question, log_scales=None).treated(data)
        rows, (numbers, blocks) = site_rows(seen, order), _numbers(seen, question, self._book)
        for p in sorted({one.n_lags for one in used} | {question.n_lags}):
            inside = np.isin(numbers, rows.lagged(numbers, p))
            fewest = _smallest_class(numbers[inside], blocks[inside], lagged_sets(rows, used, p), self._least)
            if fewest < self._least:
                raise SiteRefused(
                    f"blocks of this study differ from sums of earlier ones by {fewest} rows of this site, and it answers "
                    f"only if these are at least {self._least}; ask for blocks that were asked for before.",
                    code="blocks-show-rows",
                )
        self._book.add(
            [
                UsedRows(f"{name} {b}", question.n_lags, numbers[blocks == b], np.zeros(0, dtype=np.int64))
                for b in np.unique(blocks).tolist()
            ]
        )


def _name(question: BlocksQuestion, data: SiteData) -> str:
    """What decides which rows are in which block."""
    by_place = (question.block_rows, question.n_blocks) if question.block_rows else ()
    told = repr((by_place, question.unit, seen_cells(question, data)))
    return BLOCK + hashlib.sha256(told.encode()).hexdigest()


def _numbers(data: SiteData, question: BlocksQuestion, book: RowBook) -> tuple[RowNumbers, IntArray]:
    """Numbers of the complete rows of a site, sorted, and their blocks or labels."""
    numbers, blocks = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for recording in CompleteSite(data).recordings():
        for found, block in numbered(recording, book.order()):
            numbers.append(found)
            times = (block.time or 0) + np.arange(len(found))
            if question.block_rows:
                blocks.append(question.block_of(times, None))
            else:
                blocks.append(question.label_numbers(block.labels))
    every, label = np.concatenate(numbers), np.concatenate(blocks)
    order = np.argsort(every)
    return every[order], label[order]


def _smallest_class(numbers: RowNumbers, blocks: IntArray, known: list[RowNumbers], least: int) -> int:
    """The fewest rows that new blocks share with, or leave of, rows with the same memberships in known sets."""
    every = np.unique(np.concatenate([numbers, *known]))
    classes, was_summed = np.zeros(len(every), dtype=np.int64), np.zeros(len(every), dtype=bool)
    for one in known:
        member = np.isin(every, one)
        was_summed |= member
        classes = np.unique(2 * classes + member, return_inverse=True)[1]
    new = np.full(len(every), -1, dtype=np.int64)
    new[np.searchsorted(every, numbers)] = blocks
    pairs = np.unique(np.stack([classes, new]), axis=1, return_counts=True)
    touched = np.isin(pairs[0][0], np.unique(classes[new >= 0]))
    # What is left of a class is told only if it was summed before, or is in a block.
    is_told = touched & ((pairs[0][1] >= 0) | np.isin(pairs[0][0], np.unique(classes[was_summed])))
    return int(np.min(pairs[1][is_told], initial=least))
