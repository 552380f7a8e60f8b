"""A network that changes over time, as a short program of sums.

    as every method begins    what has to be done to the rows, and their moments
    ``gram.blocks``         the same of consecutive blocks of rows
    ``residuals.blocks``          what the residuals say, each row's by the network of its segment

Where nothing changes, the network is the one that OneShotDBN learns from the same moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.changes import Changing, CutLearner
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.designs.design import public_units
from feddbn.core.orders.learn import refit
from feddbn.core.statistics.moments import Moments, safe_roots, sums_length
from feddbn.core.statistics.residual_checks import (
    CurvatureSums,
    ResidualSums,
    check_residuals,
    echo_weights,
)
from feddbn.core.statistics.residual_checks import sums_length as check_sums_length
from feddbn.errors import DataError, ParameterError
from feddbn.federation.programs.oneshot import OneShotOptions, OneShotOutcome, first_look, learn_from_moments
from feddbn.federation.programs.residual_checks import (
    ResidualReport,
    ResidualsQuestion,
    curvature_of,
    only_looked_at,
    share_of_means,
)
from feddbn.federation.protocol.rows import MOST_TIME_BLOCKS, BlockWish, RowsQuestion, treated
from feddbn.federation.protocol.task import Plan, Planned, ServerProgram, Task, counted
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.in_view import CountsQuestion
from feddbn.federation.sums.prepare import Prepare
from feddbn.federation.sums.survey import survey_plan, survey_program
from feddbn.federation.sums.treatment import AskedMoments, asked_moments_plan, asked_moments_program

USUAL_BLOCKS = 24
"""About so many blocks, 17 to 34, are made where their length is left to the data."""
_SHORTEST_BLOCKS = 3
"""A change within a block makes that block a mixture of two networks; in a segment of this many it does not pass for one."""
_TOLD_ROWS = 4.5
"""Rows of an average site in a block for each column; a usual policy asks for 3 of every site."""
_SHORTEST_ROWS = 4.0
"""Fewest rows of a segment for each column of a row."""


@dataclass(frozen=True)
class TimeBlocks:
    """Which blocks there are, and how their beginnings are called.

    Attributes
    ----------
    wish
        How time is cut.
    n
        Number of blocks.
    rows
        Rows of a recording in a block; 0 where labels say in which block a row is.
    first
        Label of the first block.
    length
        Mean number of rows of a recording.
    """

    wish: BlockWish
    n: int
    rows: int
    first: int = 0
    length: float = 0.0

    def start(self, block: int) -> int | str:
        """Where a block begins: its first row, its label, or its date."""
        if self.rows:
            return block * self.rows
        number = self.first + block
        return self.wish.name(number) if self.wish.kind == "calendar" else number

    @property
    def stop(self) -> int | str:
        """Where the last one ends."""
        last = (self.n - 1) * self.rows
        return max(round(self.length), last + 1) if self.rows else self.start(self.n)


@dataclass(frozen=True)
class ChangingOutcome:
    """What the server ends with.

    Attributes
    ----------
    changing
        Cuts and differences.
    constant
        The one network of all rows; None if there are changes.
    moments_by_block, blocks
        Moments of each block, and which blocks these are.
    moments
        Of all rows.
    asked
        What the first sums told.
    n_sums
        Number of sums.
    could_change
        Whether there are rows enough for two segments.
    report
        What residuals say; None if they were not looked at.
    """

    changing: Changing
    constant: OneShotOutcome | None
    moments_by_block: tuple[Moments, ...]
    blocks: TimeBlocks
    moments: Moments
    asked: AskedMoments
    n_sums: int
    could_change: bool
    report: ResidualReport | None = None


def changing_program(
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
    changes: CutLearner,
    wish: BlockWish,
    n_sites: int | None,
    rng: np.random.Generator,
    *,
    checks: bool = False,
    fewest_sites: int | None = None,
) -> ServerProgram[ChangingOutcome]:
    """Ask, find the changes, and learn one network for all segments if there are none.

    Where the length of blocks is left to the data, they hold enough rows of an average of `n_sites` sites for them to be
    told by a usual policy, or any number if it is None. With `checks` residuals are looked at. Blocks that fewer than
    `fewest_sites` sites have rows in are put together with those before them.
    """
    asked, n_sums, blocks, question = yield from first_sums_program(variables, options, wish, n_sites)
    if fewest_sites is not None:
        n_blocks = yield from treated(block_counts_program(question, fewest_sites), asked.treatment)
        question, blocks = replace(question, n_blocks=n_blocks), replace(blocks, n=n_blocks)
        n_sums += 1
    by_block = yield from treated(block_moments_program(question), asked.treatment)
    if not blocks.rows:
        blocks, by_block = trimmed(blocks, by_block)
    n = sum(block.n for block in by_block)
    shortest = shortest_segment(n, blocks, asked.moments.q)
    found = replace(changes, shortest=shortest).learn(by_block, constraints, rng)
    constant = None
    if not found.cuts:
        constant = learn_from_moments(asked.moments, variables, constraints, options, rng)
    outcome = ChangingOutcome(
        found, constant, by_block, blocks, asked.moments, asked, n_sums + 1, n >= 2 * shortest
    )
    if checks:
        report = yield from treated(_checks(outcome, question), asked.treatment)
        outcome = replace(outcome, report=report, n_sums=outcome.n_sums + 1)
    return outcome


def changing_plan(variables: tuple[str, ...], n_lags: int, prepare: Prepare, *, checks: bool = True) -> Plan:
    """What `changing_program` may ask."""
    d, q = len(variables), (n_lags + 1) * len(variables)
    plan = asked_moments_plan(variables, n_lags, prepare)
    if not prepare.needs_survey:
        # How many blocks there are follows from what the first look tells.
        plan += survey_plan(variables, n_lags, profiles="none")
    block = sums_length(q)
    plan += (Planned("counts.blocks", 4 * MOST_TIME_BLOCKS, least=4 * USUAL_BLOCKS),)
    plan += (Planned("gram.blocks", MOST_TIME_BLOCKS * block, least=USUAL_BLOCKS * block),)
    if checks:
        p = max(n_lags, 1)
        numbers = 1 + check_sums_length(d, p + 1) + CurvatureSums.length((p + 1) * d, d)
        plan += (Planned("residuals.blocks", numbers),)
    return plan


def first_sums_program(
    variables: tuple[str, ...], options: OneShotOptions, wish: BlockWish, n_sites: int | None
) -> ServerProgram[tuple[AskedMoments, int, TimeBlocks, GramQuestion]]:
    """Ask as every method begins; return what was told, by how many sums, and what to ask about blocks."""
    n_lags = options.n_lags
    asked, n_sums = yield from counted(asked_moments_program(variables, n_lags, options.prepare))
    survey = asked.survey
    if survey is None:
        survey, n_more = yield from counted(
            treated(survey_program(variables, n_lags, profiles="none"), options.prepare.given)
        )
        n_sums += n_more
    first_look(asked.moments, variables, options)
    length = survey.n_rows / max(survey.n_recordings, 1.0)
    fewest = n_lags + 1.0
    if n_sites is not None:
        # Of the rows in a block some have empty cells or no predecessor.
        share = asked.moments.n / (n_sites * length)
        fewest = max(fewest, _TOLD_ROWS * asked.moments.q / share)
    blocks = _blocks(length, wish, fewest)
    question = GramQuestion(
        n_lags=n_lags,
        variables=variables,
        center=asked.center,
        block_rows=blocks.rows,
        n_blocks=blocks.n,
        calendar=wish.unit,
        first_block=blocks.first,
        # Sums about a point near the means keep their digits.
        origin=None if asked.center == "recording" else asked.moments.mean,
    )
    return asked, n_sums, blocks, question


def _checks(outcome: ChangingOutcome, question: GramQuestion) -> ServerProgram[ResidualReport]:
    """Look at the residuals of what was found."""
    found, asked, d = outcome.changing, outcome.asked, question.d
    if outcome.constant is None:
        networks = [SegmentNetwork(*found.network(s), n=float(n)) for s, n in enumerate(found.grams.n)]
        order = found.order
    else:
        C, level, variances = refit(outcome.moments, outcome.constant.learned.support)
        level = np.zeros(d) if question.center == "recording" else level
        networks = [SegmentNetwork(C, level, variances, outcome.moments.n)]
        order = outcome.constant.learned.order
    moments = outcome.moments
    sd = safe_roots(np.diag(moments.scatter)[:d] / moments.n)
    # A network without lags is looked at with one.
    missing = np.zeros((d, d)) if not question.n_lags else np.zeros((0, d))
    residuals = [one.residuals(one.variances > 1e-8 * sd**2) for one in networks]
    names = ("variables", "center", "block_rows", "n_blocks", "calendar", "first_block")
    asks = ResidualsQuestion(
        **{name: getattr(question, name) for name in names},
        n_lags=max(question.n_lags, 1),
        cuts=found.cuts,
        coefficients=np.concatenate([part for one, _ in residuals for part in (one, missing)]),
        offset=np.concatenate([offset for _, offset in residuals]),
        units=np.stack(public_units(moments.mean[:d], sd)),
    )
    answer = (yield Task(asks)).value
    stop = 1 + check_sums_length(d, asks.n_back)
    sums = ResidualSums.from_vector(answer[1:stop], d, asks.n_back)
    is_known = asked.rank and asked.n_rows
    share = asked.rank / asked.n_rows if is_known else share_of_means(sums, question.center)
    checks = check_residuals(sums, _echoes(networks, question.n_lags, d), share)
    support = np.any([one.weights != 0 for one in networks], axis=0)
    bends = curvature_of(CurvatureSums.from_vector(answer[stop:], asks.q, d), support, order, range(d))
    return only_looked_at(replace(checks, curvature_p=bends))


def shortest_segment(n: float, blocks: TimeBlocks, q: int) -> float:
    """Fewest rows of a segment, of `n` rows of all sites with q columns."""
    return max(0.9 * _SHORTEST_BLOCKS * n / blocks.n, _SHORTEST_ROWS * q)


def _blocks(length: float, wish: BlockWish, fewest: float) -> TimeBlocks:
    """Which blocks to ask for."""
    if wish.kind != "rows":
        return TimeBlocks(wish, MOST_TIME_BLOCKS, 0, wish.first or 0, length)
    given = wish.rows
    usual = 2 ** max(round(np.log2(length / USUAL_BLOCKS)), int(np.ceil(np.log2(fewest))))
    size = usual if given is None else given
    # What is left at the end belongs to the last block.
    n_blocks = max(int(length / size + 1e-6), 1)
    if n_blocks > MOST_TIME_BLOCKS:
        raise ParameterError(
            f"blocks={size} makes {n_blocks} blocks of recordings of {length:.0f} rows; at most {MOST_TIME_BLOCKS} are "
            f"possible, so use {2 ** int(np.ceil(np.log2(length / MOST_TIME_BLOCKS)))} or more, or 'auto'."
        )
    if given is not None and n_blocks < 2:
        raise DataError(
            f"blocks={size} is more than half of a recording, which has {length:.0f} rows; use fewer, or 'auto'."
        )
    return TimeBlocks(wish, n_blocks, size, length=length)


def trimmed(blocks: TimeBlocks, found: tuple[Moments, ...]) -> tuple[TimeBlocks, tuple[Moments, ...]]:
    """The same without blocks after the last that anybody has rows in."""
    n = max((b for b, one in enumerate(found) if one.n > 0.5), default=0) + 1
    return replace(blocks, n=n), found[:n]


# What is asked about blocks.


def block_counts_program(blocks: GramQuestion, n_sites: int) -> ServerProgram[int]:
    """Return how many blocks there may be: each has rows of no site or of `n_sites`, and of none too few.

    The last has all rows after it.
    """
    question = CountsQuestion(
        **{item.name: getattr(blocks, item.name) for item in fields(RowsQuestion)}, least=1
    )
    found = np.round((yield Task(question)).value).astype(int).reshape(4, blocks.n_blocks)
    enough, few, enough_after, few_after = found
    is_fine = ((enough == 0) | (enough >= n_sites)) & (few == 0)
    for n in range(blocks.n_blocks, 0, -1):
        if is_fine[: n - 1].all() and enough_after[n - 1] >= n_sites and few_after[n - 1] == 0:
            return n
    raise DataError(
        f"in no way do all blocks of time have enough rows of at least {n_sites} sites, or of none; use longer blocks.",
        code="blocks-of-few-sites",
    )


def block_moments_program(question: GramQuestion) -> ServerProgram[tuple[Moments, ...]]:
    """Ask for the moments of blocks; those that nobody has rows in are empty."""
    total = (yield Task(question)).value
    parts = total.reshape(question.n_blocks, sums_length(question.q))
    return tuple(Moments.from_sums(part, question.q, question.origin) for part in parts)


@dataclass(frozen=True)
class SegmentNetwork:
    """The network of one segment in the units of the rows.

    Attributes
    ----------
    weights
        (q, d).
    levels, variances
        (d,) intercepts and noise variances.
    n
        Rows.
    """

    weights: FloatArray
    levels: FloatArray
    variances: FloatArray
    n: float

    def residuals(self, varies: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Coefficients and offset of the standardised residuals; none of variables that follow from their causes."""
        d = len(self.levels)
        full = -self.weights
        full[:d] += np.eye(d)
        root = np.where(varies, np.sqrt(np.where(varies, self.variances, 1.0)), np.inf)
        return full / root, self.levels / root


def _echoes(networks: Sequence[SegmentNetwork], n_lags: int, d: int) -> FloatArray:
    """Mean over rows of what shocks of earlier rows do along lagged edges."""
    total, n = np.zeros((n_lags + 1, d, d)), sum(one.n for one in networks)
    for one in networks:
        A = one.weights[d:].reshape(n_lags, d, d)
        total += one.n / n * echo_weights(one.weights[:d], A, one.variances, n_lags + 1)
    return total
