"""A network that changes over time, as a short program of sums.

    as every method begins    what has to be done to the rows, and their moments
    ``block-moments``         the same of consecutive blocks of rows

Where nothing changes, the network is the one that OneShotDBN learns from the same moments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.changes.learn import ChangeOptions, Changing, learn_changes
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.statistics.moments import Moments
from feddbn.errors import DataError, ParameterError
from feddbn.federation.programs.block_moments import (
    MOST_TIME_BLOCKS,
    BlockMomentsQuestion,
    block_moments_program,
)
from feddbn.federation.programs.oneshot import (
    OneShotOptions,
    OneShotOutcome,
    counted,
    first_look,
    learn_from_moments,
)
from feddbn.federation.programs.survey import survey_program
from feddbn.federation.programs.treatment import AskedMoments, asked_moments_program
from feddbn.federation.protocol.rows import treated
from feddbn.federation.protocol.task import ServerProgram

__all__ = ["USUAL_BLOCKS", "ChangingOutcome", "changing_program"]

USUAL_BLOCKS = 24
"""About so many blocks, 17 to 34, are made where their length is left to the data."""
_SHORTEST_BLOCKS = 3
"""A change within a block makes that block a mixture of two networks; in a segment of this many it does not pass for one."""
_TOLD_ROWS = 4.5
"""Rows of an average site in a block for each column; a usual policy asks for 3 of every site."""
_SHORTEST_ROWS = 4.0
"""Fewest rows of a segment for each column of a row."""


@dataclass(frozen=True)
class ChangingOutcome:
    """What the server ends with.

    Attributes
    ----------
    changing
        Cuts and differences.
    constant
        The one network of all rows; None if there are changes.
    blocks
        Moments of each block.
    block_rows
        Rows of a recording in a block.
    length
        Mean number of rows of a recording.
    moments
        Of all rows.
    asked
        What the first sums told.
    n_sums
        Number of sums.
    could_change
        Whether there are rows enough for two segments.
    """

    changing: Changing
    constant: OneShotOutcome | None
    blocks: tuple[Moments, ...]
    block_rows: int
    length: float
    moments: Moments
    asked: AskedMoments
    n_sums: int
    could_change: bool


def changing_program(
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
    changes: ChangeOptions,
    block_rows: int | None,
    n_sites: int | None,
    rng: np.random.Generator,
) -> ServerProgram[ChangingOutcome]:
    """Ask, find the changes, and learn one network for all segments if there are none.

    `block_rows` is None where it is left to the data; blocks then hold enough rows of an average of `n_sites` sites for
    them to be told by a usual policy, or any number if it is None.
    """
    d, n_lags = len(variables), options.n_lags
    asked, n_sums = yield from counted(asked_moments_program(variables, n_lags, options.wishes))
    survey = asked.survey
    if survey is None:
        survey, n_more = yield from counted(survey_program(variables, n_lags, profiles=False))
        n_sums += n_more
    first_look(asked.moments, variables, options)
    length = survey.n_rows / max(survey.n_recordings, 1.0)
    fewest = n_lags + 1.0
    if n_sites is not None:
        # Of the rows in a block some have empty cells or no predecessor.
        share = asked.moments.n / (n_sites * length)
        fewest = max(fewest, _TOLD_ROWS * asked.moments.q / share)
    size, n_blocks = _blocks(length, block_rows, fewest)
    question = BlockMomentsQuestion(
        n_lags=n_lags,
        variables=variables,
        center=asked.center,
        block_rows=size,
        n_blocks=n_blocks,
        # Sums about a point near the means keep their digits.
        origin=None if asked.center == "recording" else asked.moments.mean,
    )
    blocks = yield from treated(block_moments_program(question), asked.treatment)
    n = sum(block.n for block in blocks)
    shortest = max(0.9 * _SHORTEST_BLOCKS * n / n_blocks, _SHORTEST_ROWS * asked.moments.q)
    found = learn_changes(blocks, d, constraints, replace(changes, shortest=shortest), rng)
    constant = None
    if not found.cuts:
        constant = learn_from_moments(asked.moments, variables, constraints, options, rng)
    return ChangingOutcome(
        found, constant, blocks, size, length, asked.moments, asked, n_sums + 1, n >= 2 * shortest
    )


def _blocks(length: float, given: int | None, fewest: float) -> tuple[int, int]:
    """Rows of a block, and how many blocks there are."""
    usual = 2 ** max(round(np.log2(length / USUAL_BLOCKS)), int(np.ceil(np.log2(fewest))))
    size = usual if given is None else given
    # What is left at the end belongs to the last block.
    n_blocks = max(int(length / size + 1e-6), 1)
    if n_blocks > MOST_TIME_BLOCKS:
        raise ParameterError(
            f"block_rows={size} makes {n_blocks} blocks of recordings of {length:.0f} rows; at most {MOST_TIME_BLOCKS} are "
            f"possible, so use {2 ** int(np.ceil(np.log2(length / MOST_TIME_BLOCKS)))} or more, or 'auto'."
        )
    if given is not None and n_blocks < 2:
        raise DataError(
            f"block_rows={size} is more than half of a recording, which has {length:.0f} rows; use fewer, or 'auto'."
        )
    return size, n_blocks
