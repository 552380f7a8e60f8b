"""Keeps sums of different studies from showing a few rows: see `privacy.row_sets`.

Which rows have an empty cell depends on the variables of a study, and on which cells count as far out. A site writes down
which rows were complete for each of these, once for each version of its data. Before it answers about others it leaves out
as many rows as it takes for no combination to be about fewer than `min_rows` of them. The same for rows that have any cell,
where rows with empty cells count.

Rows with p lags are those whose p predecessors are complete, too. So rows are compared for every number of lags that has been
asked for. Sums with two numbers of lags over the same rows still differ by the rows at the beginnings of segments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from feddbn.core.designs.left_out import RowNumbers, SiteRows, WithoutRows, site_rows
from feddbn.core.designs.recordings import Recording, SiteData
from feddbn.errors import SiteRefused
from feddbn.federation.programs.feature_statistics import FeatureMomentsQuestion, FeatureScaleQuestion
from feddbn.federation.programs.folds import held_out_part, training_part
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import Guard, Here
from feddbn.federation.protocol.task import Task
from feddbn.privacy.row_sets import too_few

__all__ = ["BLOCK", "MOST_SETS", "RowBook", "RowSetGuard", "UsedRows", "lagged_sets", "seen_cells"]

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
        Called with a sentence for the site's owner.
    """

    def __init__(
        self, book: RowBook, least: int, tell: Callable[[str], None] = lambda sentence: None, run: str = ""
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
                self._tell(
                    f"{len(left_out)} rows are left out of sums with n_lags = {about.n_lags}: without them, sums of this "
                    "study and of earlier ones together show no few rows."
                )
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
                "that were asked about before, or use a study with noise."
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
        for part in (training_part, _held_out):
            within = site_rows(_Parts(data, part, about.fold), order).every
            cut = [np.intersect1d(rows.lagged(one, about.n_lags), within) for one in (rows.complete, *known)]
            if len(too_few(cut[0], cut[1:], self._least)):
                raise SiteRefused(
                    f"the rows that this fold leaves or holds out differ by fewer than {self._least} rows from those of "
                    "an earlier study; hold out another share, or use a study with noise."
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


def _held_out(recording: Recording, fold: tuple[int, ...]) -> Recording:
    return held_out_part(recording, fold, 0)


@dataclass(frozen=True)
class _Parts:
    """A site with a part of each recording."""

    data: SiteData
    part: Callable[[Recording, tuple[int, ...]], Recording]
    fold: tuple[int, ...]

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(self.data.variables)

    def recordings(self) -> Iterator[Recording]:
        return (self.part(recording, self.fold) for recording in self.data.recordings())
