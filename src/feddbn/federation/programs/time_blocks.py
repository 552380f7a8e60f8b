"""Rows in blocks of time: what questions about blocks have in common, and how a site tells in which block a row is.

A row belongs to a block by its place in its recording, by the calendar, or by a label of its own. What is before the first
block or after the last belongs to that block, so that the blocks of a site add up to all of its rows. Lags may reach back
over the beginning of a block. What is a recording's own (mean, trend, cycles) is taken off over the whole recording. Rows
with empty cells are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray, IntArray
from feddbn.core.designs.complete import CompleteRows
from feddbn.core.designs.lagged import stretches
from feddbn.core.designs.nuisance import ONE_MEAN
from feddbn.core.designs.recordings import Recording, SiteData, usable_runs
from feddbn.core.designs.rows import design_rows
from feddbn.errors import DataError
from feddbn.federation.programs.residual_checks import own_nuisances
from feddbn.federation.programs.statistics import training_parts
from feddbn.federation.protocol.block_wish import (
    CALENDAR,
    MOST_TIME_BLOCKS,
    BlockWish,
    is_block_length,
    period_numbers,
)
from feddbn.federation.protocol.question import Constant, choice, whole
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.scope import Scope

__all__ = ["BlockPiece", "BlocksQuestion", "block_pieces", "rows_of_blocks", "rows_of_labels"]

_FAR = 10**12


@dataclass(frozen=True, kw_only=True)
class BlocksQuestion(RowsQuestion):
    """A question about each of `n_blocks` blocks of rows.

    Attributes
    ----------
    block_rows
        Rows of a recording in a block; 0: labels of rows say in which block they are.
    unit
        Period of the calendar, where labels are times; empty: they are whole numbers.
    first
        Label of the first block; periods are counted from 1970 on.
    """

    block_rows: int = whole(0, 1_000_000_000)
    n_blocks: int = whole(1, MOST_TIME_BLOCKS)
    unit: str = choice("", *CALENDAR.values(), default="")
    first: int = whole(-_FAR, _FAR, default=0)

    def check(self) -> None:
        """Blocks are of all rows that are complete."""
        super().check()
        if self.block_rows and not is_block_length(self.block_rows):
            raise self.wrong(f"'block_rows' is {self.block_rows}, but it must be a power of two")
        if self.block_rows and (self.unit or self.first):
            raise self.wrong("'unit' and 'first' have no meaning: blocks are by 'block_rows'")
        if self.fold:
            raise self.wrong("'fold' has no meaning: blocks are of all rows")
        if self.row_model is not None:
            raise self.wrong("'row_model' has no meaning: rows with empty cells are left out")

    def check_scope(self, scope: Scope) -> None:
        """Blocks are as the study says."""
        super().check_scope(scope)
        wish = BlockWish.of(scope.parameters.get("blocks", "auto"))
        if wish.kind == "rows":
            is_asked = self.block_rows > 0 and wish.rows in (None, self.block_rows)
            scope.require(is_asked, self.name, f"'block_rows' is {self.block_rows}")
        else:
            is_asked = not self.block_rows and self.unit == wish.unit
            scope.require(is_asked, self.name, "it is about other blocks than the study's")
            scope.require(self.first == (wish.first or 0), self.name, f"'first' is {self.first}")

    @property
    def constants(self) -> tuple[Constant, ...]:
        """All of it is settled once: sums over other blocks would differ by few rows."""
        given = (self.block_rows, self.n_blocks, self.unit, self.first)
        treatment = (self.center, self.degree, self.periods, self.log_scales)
        return *super().constants, Constant("blocks of rows", (*given, *treatment))

    def block_of(self, times: IntArray, labels: NDArray[np.generic] | None) -> IntArray:
        """In which block the rows at these times, with these labels, are."""
        found = times // self.block_rows if self.block_rows else self.label_numbers(labels) - self.first
        return np.clip(found, 0, self.n_blocks - 1)

    def label_numbers(self, labels: NDArray[np.generic] | None) -> IntArray:
        """Labels as whole numbers: themselves, or periods of the calendar since 1970."""
        if self.unit:
            if labels is None or labels.dtype.kind != "M":
                raise DataError(
                    "blocks by the calendar need the dates of rows; name their column with time= (a deployed site also has "
                    "label = '@time' in its settings)."
                )
            return period_numbers(labels, self.unit)
        if labels is None:
            raise DataError("blocks by a column need that column as the label of rows; name it with label=.")
        values = np.asarray(labels)
        numbers = values.astype(np.float64) if values.dtype.kind in "iufb" else np.full(len(values), np.nan)
        if not np.all((numbers >= 0) & (numbers < MOST_TIME_BLOCKS) & (numbers == np.floor(numbers))):
            raise DataError(
                f"the column of blocks must hold whole numbers from 0 to {MOST_TIME_BLOCKS - 1}, one for each block in "
                "order of time."
            )
        return numbers.astype(np.int64)


@dataclass(frozen=True)
class BlockPiece:
    """Consecutive rows of a recording: time of the first, (m, q) values off what is the recording's own, (m,) blocks."""

    time: int
    values: FloatArray
    blocks: IntArray

    def of(self, wanted: NDArray[np.bool_]) -> Iterator[tuple[int, FloatArray]]:
        """Yield the runs of wanted rows, (m,), as (time of the first, values)."""
        edges = np.flatnonzero(np.diff(np.concatenate([[False], wanted, [False]]).astype(np.int8)))
        for start, stop in edges.reshape(-1, 2).tolist():
            yield self.time + start, self.values[start:stop]


def block_pieces(question: BlocksQuestion, recording: Recording) -> Iterator[BlockPiece]:
    """Yield the complete rows of a recording in pieces of bounded size."""
    design, complete = question.design, CompleteRows(recording)
    plain = replace(design, nuisance=ONE_MEAN)

    def read() -> Iterator[tuple[int, FloatArray]]:
        return ((rows.time, rows.values) for rows in design_rows(plain, complete.blocks()))

    runs = usable_runs(complete, design.n_lags)
    if not runs:
        return
    pieces = own_nuisances(design, read, runs)
    labels = None if question.block_rows else (rows.labels for rows in design_rows(plain, complete.blocks()))
    for time, values in pieces:
        times = time + np.arange(len(values))
        yield BlockPiece(time, values, question.block_of(times, None if labels is None else next(labels)))


def rows_of_blocks(data: SiteData, question: BlocksQuestion) -> IntArray:
    """(n_blocks,) how many rows of a site are in each block."""
    found = np.concatenate([np.zeros(0, dtype=np.int64), *_numbers(data, question, by_label=False)])
    return np.bincount(found, minlength=question.n_blocks)


def rows_of_labels(data: SiteData, question: BlocksQuestion) -> IntArray:
    """How many rows of a site have each label that it has; labels that lie beyond the blocks count one by one."""
    if question.block_rows:
        return rows_of_blocks(data, question)
    found = np.concatenate([np.zeros(0, dtype=np.int64), *_numbers(data, question, by_label=True)])
    return np.asarray(np.unique(found, return_counts=True)[1])


def _numbers(data: SiteData, question: BlocksQuestion, *, by_label: bool) -> Iterator[IntArray]:
    p = question.n_lags
    for recording in training_parts(data, question):
        for part in stretches(CompleteRows(recording).blocks(), p):
            times = part.time + np.arange(len(part.values) - p)
            yield question.label_numbers(part.labels) if by_label else question.block_of(times, part.labels)
