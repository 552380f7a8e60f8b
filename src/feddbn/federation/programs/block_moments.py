"""One sum for networks that change: the moments of consecutive blocks of rows, one after the other in one vector.

``block-moments``   count, totals and cross-products of the lagged rows of each block

A row belongs to a block by its place in its recording; what is beyond the last block belongs to it, so that the blocks of
a site add up to its ``moments``. Lags may reach back over the beginning of a block. What is a recording's own (mean, trend,
cycles) is taken off over the whole recording. Rows with empty cells are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray, IntArray
from feddbn.core.designs.complete import CompleteRows
from feddbn.core.designs.gram import nuisance_basis, whole_rows
from feddbn.core.designs.recordings import Recording
from feddbn.core.statistics.moments import Moments, sums_length
from feddbn.federation.programs.statistics import training_parts
from feddbn.federation.protocol.question import Constant, array, whole
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.scope import Scope
from feddbn.federation.protocol.site import (
    Here,
    SiteData,
    SiteState,
    SiteTask,
    one_by_one,
    register_site_task,
)
from feddbn.federation.protocol.task import ServerProgram, Task

__all__ = [
    "MOST_TIME_BLOCKS",
    "BlockMomentsQuestion",
    "block_moments_program",
    "is_block_length",
    "rows_of_blocks",
]

MOST_TIME_BLOCKS = 60
"""With many blocks each has few rows, and all ranges of them are learned from."""


def is_block_length(n_rows: int) -> bool:
    """Whether blocks may have this many rows: a power of two.

    Any two such lengths cut time so that what differs between their blocks is whole blocks of the shorter one. By other
    lengths two studies would differ by a row.
    """
    return n_rows > 0 and n_rows & (n_rows - 1) == 0


@dataclass(frozen=True, kw_only=True)
class BlockMomentsQuestion(RowsQuestion):
    """Counts, totals and cross-products about an origin, of each of `n_blocks` blocks of `block_rows` rows."""

    name = "block-moments"
    purpose = "lagged means and cross-products of all variables in each of a few blocks of rows, by their place in time"

    block_rows: int = whole(1, 1_000_000_000)
    n_blocks: int = whole(1, MOST_TIME_BLOCKS)
    origin: FloatArray | None = array("q", default=None)

    def check(self) -> None:
        """Blocks are of all rows that are complete."""
        super().check()
        if not is_block_length(self.block_rows):
            raise self.wrong(f"'block_rows' is {self.block_rows}, but it must be a power of two")
        if self.fold:
            raise self.wrong("'fold' has no meaning: blocks are of all rows")
        if self.row_model is not None:
            raise self.wrong("'row_model' has no meaning: rows with empty cells are left out")

    def check_scope(self, scope: Scope) -> None:
        """The length of a block is the study's, if it says one."""
        super().check_scope(scope)
        asked = scope.parameters.get("block_rows", "auto")
        scope.require(asked in ("auto", self.block_rows), self.name, f"'block_rows' is {self.block_rows}")

    @property
    def constants(self) -> tuple[Constant, ...]:
        """All of it is settled once: sums over other blocks would differ by few rows."""
        given = (self.n_lags, self.block_rows, self.n_blocks, self.origin)
        treatment = (self.center, self.degree, self.periods, self.log_scales)
        return *super().constants, Constant("blocks of rows", (*given, *treatment))

    def block_of(self, times: FloatArray) -> IntArray:
        """In which block the rows at these times are."""
        found: IntArray = np.minimum(times.astype(np.int64) // self.block_rows, self.n_blocks - 1)
        return found


def block_moments_program(question: BlockMomentsQuestion) -> ServerProgram[tuple[Moments, ...]]:
    """Ask for the moments of blocks; those that nobody has rows in are empty."""
    total = (yield Task(question)).value
    parts = total.reshape(question.n_blocks, sums_length(question.q))
    return tuple(Moments.from_sums(part, question.q, question.origin) for part in parts)


def rows_of_blocks(data: SiteData, question: BlockMomentsQuestion) -> IntArray:
    """(n_blocks,) how many rows of a site are in each block."""
    total = np.zeros(question.n_blocks, dtype=np.int64)
    for recording in training_parts(data, question):
        times = whole_rows(question.design, CompleteRows(recording))[1]
        total += np.bincount(question.block_of(times), minlength=question.n_blocks)
    return total


def _of_recording(recording: Recording, question: BlockMomentsQuestion) -> list[Moments]:
    rows, times = whole_rows(question.design, CompleteRows(recording))
    basis = nuisance_basis(question.nuisance, times)
    if basis is not None and len(rows):
        rows = rows - basis @ np.linalg.lstsq(basis, rows, rcond=None)[0]
    block = question.block_of(times)
    return [Moments.of_rows(rows[block == b]) for b in range(question.n_blocks)]


def _answer(here: Here, question: BlockMomentsQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    total = [Moments.empty(question.q)] * question.n_blocks
    if not question.abstains(here.state):
        for recording in training_parts(here.data, question):
            found = _of_recording(recording, question)
            total = [one.merge(other) for one, other in zip(total, found, strict=True)]
    return here.state, np.concatenate([one.to_sums(question.origin) for one in total])


register_site_task(
    SiteTask(
        BlockMomentsQuestion,
        one_by_one(_answer),
        length=lambda question: question.n_blocks * sums_length(question.q),
    )
)
