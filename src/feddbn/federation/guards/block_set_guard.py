"""Keeps blocks of rows of different studies from showing a few rows: see `privacy.row_sets`.

A study cuts the rows of a site into blocks: by their place, by the calendar, or by a column. What two such cuts, or a cut and
any other set of rows, have in common is a class of rows that sums may single out. A month less the days of it that are whole
weeks is a day or two. So a site writes down which rows were in which block, and refuses a cut by which some class would have
fewer than `min_rows` rows. Months, days and hours lie within each other, weeks and months do not. With a calendar or a column
every label counts by itself, wherever the study's first block begins.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from feddbn.core.arrays import IntArray
from feddbn.core.designs.complete import CompleteSite
from feddbn.core.designs.left_out import RowNumbers, numbered, site_rows
from feddbn.core.designs.recordings import SiteData
from feddbn.errors import SiteRefused
from feddbn.federation.guards.row_set_guard import BLOCK, RowBook, UsedRows, lagged_sets, seen_cells
from feddbn.federation.programs.time_blocks import BlocksQuestion
from feddbn.federation.protocol.site import Guard, Here
from feddbn.federation.protocol.task import Task

__all__ = ["MOST_CUTS", "BlockSetGuard"]

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
                f"this site's rows were cut into blocks in {len(cuts)} ways; ask for blocks that were asked for before."
            )
        seen = replace(question, log_scales=None).treated(data)
        rows, (numbers, blocks) = site_rows(seen, order), _numbers(seen, question, self._book)
        for p in sorted({one.n_lags for one in used} | {question.n_lags}):
            inside = np.isin(numbers, rows.lagged(numbers, p))
            fewest = _smallest_class(numbers[inside], blocks[inside], lagged_sets(rows, used, p), self._least)
            if fewest < self._least:
                raise SiteRefused(
                    f"blocks of this study differ from sums of earlier ones by {fewest} rows of this site, and it answers "
                    f"only if these are at least {self._least}; ask for blocks that were asked for before."
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
