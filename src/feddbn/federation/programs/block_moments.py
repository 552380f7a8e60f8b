"""One sum for networks that change: the moments of consecutive blocks of rows, one after the other in one vector.

``block-moments``   count, totals and cross-products of the lagged rows of each block (`time_blocks` says which these are)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import SiteData
from feddbn.core.statistics.moments import Moments, sums_length
from feddbn.federation.programs.statistics import training_parts
from feddbn.federation.programs.time_blocks import BlocksQuestion, block_pieces
from feddbn.federation.protocol.question import Constant, array
from feddbn.federation.protocol.site import (
    Here,
    SiteState,
    SiteTask,
    one_by_one,
    register_site_task,
)
from feddbn.federation.protocol.task import ServerProgram, Task

__all__ = ["BlockMomentsQuestion", "block_moments_program", "local_block_moments"]


@dataclass(frozen=True, kw_only=True)
class BlockMomentsQuestion(BlocksQuestion):
    """Counts, totals and cross-products about an origin, of each block."""

    name = "block-moments"
    purpose = "lagged means and cross-products of all variables in each of a few blocks of rows, by their place in time"

    origin: FloatArray | None = array("q", default=None)

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Also the origin, and the lags."""
        return *super().constants, Constant("blocks of rows about an origin", (self.n_lags, self.origin))


def block_moments_program(question: BlockMomentsQuestion) -> ServerProgram[tuple[Moments, ...]]:
    """Ask for the moments of blocks; those that nobody has rows in are empty."""
    total = (yield Task(question)).value
    parts = total.reshape(question.n_blocks, sums_length(question.q))
    return tuple(Moments.from_sums(part, question.q, question.origin) for part in parts)


def local_block_moments(data: SiteData, question: BlocksQuestion) -> list[Moments]:
    """The moments of each block of one site."""
    total = [Moments.empty(question.q)] * question.n_blocks
    for recording in training_parts(data, question):
        for piece in block_pieces(question, recording):
            for b in np.unique(piece.blocks).tolist():
                total[b] = total[b].merge(Moments.of_rows(piece.values[piece.blocks == b]))
    return total


def _answer(here: Here, question: BlockMomentsQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    if question.abstains(here.state):
        return here.state, np.zeros(question.n_blocks * sums_length(question.q))
    found = local_block_moments(here.data, question)
    return here.state, np.concatenate([one.to_sums(question.origin) for one in found])


register_site_task(
    SiteTask(
        BlockMomentsQuestion,
        one_by_one(_answer),
        length=lambda question: question.n_blocks * sums_length(question.q),
    )
)
