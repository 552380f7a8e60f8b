"""Rows in blocks of time: their moments, the residuals of networks that change, and how a site tells in which block a row is.

A row belongs to a block by its place in its recording, by the calendar, or by a label of its own. What is before the first
block or after the last belongs to that block, so that the blocks of a site add up to all of its rows. Lags may reach back
over the beginning of a block. What is a recording's own (mean, trend, cycles) is taken off over the whole recording. Rows
with empty cells are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.designs.design import are_public_units, design_rows, public_units
from feddbn.core.designs.nuisance import ONE_MEAN
from feddbn.core.designs.recordings import CompleteRows, Recording, SiteData, usable_runs
from feddbn.core.statistics.moments import Moments, safe_roots, sums_length
from feddbn.core.statistics.residual_checks import (
    CurvatureSums,
    ResidualSums,
    check_residuals,
    echo_weights,
    residual_sums,
    violations,
)
from feddbn.core.statistics.residual_checks import sums_length as check_sums_length
from feddbn.errors import DataError, Given
from feddbn.federation.programs.residual_checks import (
    ResidualReport,
    curvature_of,
    own_nuisances,
    share_of_means,
)
from feddbn.federation.programs.statistics import training_parts
from feddbn.federation.protocol.rows import (
    CALENDAR,
    MOST_TIME_BLOCKS,
    BlockWish,
    RowsQuestion,
    is_block_length,
    period_numbers,
)
from feddbn.federation.protocol.site import Here, SiteState, answers
from feddbn.federation.protocol.task import (
    Constant,
    Scope,
    ServerProgram,
    Task,
    View,
    array,
    choice,
    whole,
    wholes,
)

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
            scope.require(is_asked, self.name, "it is about other blocks than the study's", "other-blocks")
            scope.require(self.first == (wish.first or 0), self.name, f"'first' is {self.first}")

    @property
    def constants(self) -> tuple[Constant, ...]:
        """All of it is settled once: sums over other blocks would differ by few rows."""
        given = (self.block_rows, self.n_blocks, self.unit, self.first)
        treatment = (self.center, self.degree, self.periods, self.log_scales)
        return *super().constants, Constant("blocks of rows", (*given, *treatment))

    def in_view(self, data: SiteData, site: str) -> tuple[View, ...]:
        """Every block by itself, and every label: where the first block begins is the study's choice."""

        def part_of(times: IntArray, labels: NDArray[np.generic] | None) -> IntArray:
            return self.block_of(times, labels) if self.block_rows else self.label_numbers(labels)

        key = (self.limits, self.far, self.own_limits, self.block_rows, self.n_blocks, self.unit)
        return (self.view(self.design, key=key, part_of=part_of),)

    def block_of(self, times: IntArray, labels: NDArray[np.generic] | None) -> IntArray:
        """In which block the rows at these times, with these labels, are."""
        found = times // self.block_rows if self.block_rows else self.label_numbers(labels) - self.first
        return np.clip(found, 0, self.n_blocks - 1)

    def label_numbers(self, labels: NDArray[np.generic] | None) -> IntArray:
        """Labels as whole numbers: themselves, or periods of the calendar since 1970."""
        if self.unit:
            if labels is None or labels.dtype.kind != "M":
                raise DataError(
                    f"blocks by the calendar need the dates of rows; name their column with {Given('time')} (a deployed "
                    "site also has label = '@time' in its settings)."
                )
            return period_numbers(labels, self.unit)
        if labels is None:
            raise DataError(
                f"blocks by a column need that column as the label of rows; name it with {Given('label')}."
            )
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


# Which blocks enough sites have rows in: a block that one site has alone is that site's sum.
#
# ``block-counts``   for each block whether the site has enough rows in it, or some but fewer, 0 or 1 each; and the same for
#                    all rows from the block on, which are one block if the blocks end there


@dataclass(frozen=True, kw_only=True)
class BlockCountsQuestion(RowsQuestion):
    """Whether a site has enough rows in each block; `least` are enough, or as many as its owner asks for."""

    name = "block-counts"
    purpose = "in which of a few blocks of rows this site has enough rows, and in which some but too few: 0 or 1 each"

    block_rows: int = whole(0, 1_000_000_000)
    n_blocks: int = whole(1, MOST_TIME_BLOCKS)
    unit: str = choice("", *CALENDAR.values(), default="")
    first: int = whole(-_FAR, _FAR, default=0)
    least: int = whole(1, 1_000_000)

    @cached_property
    def blocks(self) -> BlocksQuestion:
        """The blocks."""
        names = [item.name for item in fields(BlocksQuestion)]
        return BlockMomentsQuestion(**{name: getattr(self, name) for name in names})

    def check(self) -> None:
        """There are such blocks."""
        super().check()
        _ = self.blocks

    def check_scope(self, scope: Scope) -> None:
        """Blocks are the study's."""
        super().check_scope(scope)
        self.blocks.check_scope(scope)

    @property
    def constants(self) -> tuple[Constant, ...]:
        """They are counted once."""
        how = (self.block_rows, self.n_blocks, self.unit, self.first, self.n_lags, self.least)
        return *super().constants, Constant("blocks that are counted", how)

    def in_view(self, data: SiteData, site: str) -> tuple[View, ...]:
        """All rows; few of them do not show."""
        return (self.view(self.design, is_rounded=True, n_parameters=0),)


def block_counts_program(blocks: BlocksQuestion, n_sites: int) -> ServerProgram[int]:
    """Return how many blocks there may be: each has rows of no site or of `n_sites`, and of none too few.

    The last has all rows after it.
    """
    names = [item.name for item in fields(BlocksQuestion)]
    question = BlockCountsQuestion(**{name: getattr(blocks, name) for name in names}, least=1)
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


@answers(BlockCountsQuestion, length=lambda question: 4 * question.n_blocks)
def _counts_answer(here: Here, question: BlockCountsQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    n = np.zeros(question.n_blocks)
    if not question.abstains(here.state):
        for recording in training_parts(here.data, question):
            for piece in block_pieces(question.blocks, recording):
                n += np.bincount(piece.blocks, minlength=question.n_blocks)
    after = np.cumsum(n[::-1])[::-1]
    told = [
        part for one in (n, after) for part in (one >= question.least, (one > 0) & (one < question.least))
    ]
    return here.state, np.concatenate(told).astype(np.float64)


# One sum for networks that change: the moments of consecutive blocks of rows, one after the other in one vector.
#
# ``block-moments``   count, totals and cross-products of the lagged rows of each block (`time_blocks` says which these are)


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


@answers(BlockMomentsQuestion, length=lambda question: question.n_blocks * sums_length(question.q))
def _moments_answer(here: Here, question: BlockMomentsQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    if question.abstains(here.state):
        return here.state, np.zeros(question.n_blocks * sums_length(question.q))
    found = local_block_moments(here.data, question)
    return here.state, np.concatenate([one.to_sums(question.origin) for one in found])


# Residual checks of a network that changes: every row has the residuals of its own segment's network.
#
# ``block-checks``   sums of products and squares of standardised residuals and of their predecessors, as `residual-checks`
#                    has them, segment by segment, added up over the segments
#
# A segment is some consecutive blocks. No product reaches from one segment into the next: by networks that are zero in one
# of two segments, such a product would be that of the one row at their border.


@dataclass(frozen=True, kw_only=True)
class BlockChecksQuestion(BlocksQuestion):
    """Sums over ``z @ coefficients - offset`` of each row's segment, one residual per variable.

    Attributes
    ----------
    cuts
        First blocks of the second, third, ... segment.
    coefficients, offsets
        Those of all segments, one below the other.
    units
        (2, d), origin and scale: also products of the residuals with squares and cubes of the standardised variables.
    """

    name = "block-checks"
    purpose = (
        "products and fourth-order products of standardised residuals, and of their predecessors, of a network that "
        "changes from one of a few blocks of rows to another, and products with squares and cubes of the variables"
    )

    cuts: tuple[int, ...] = wholes(1, 1_000_000, default=())
    coefficients: FloatArray = array("q of all segments", "d")
    offsets: FloatArray = array("segments", "d")
    units: FloatArray = array("origin and scale", "d")

    def sizes(self) -> Mapping[str, int]:
        """Also segments."""
        n = len(self.cuts) + 1
        return {**super().sizes(), "segments": n, "q of all segments": n * self.q, "origin and scale": 2}

    def check(self) -> None:
        """Cuts are between blocks, and a lag of at least 1 keeps segments of recordings apart in time."""
        super().check()
        if self.n_lags < 1:
            raise self.wrong(f"'n_lags' is {self.n_lags}, but it must be at least 1")
        if any(a >= b for a, b in pairwise((*self.cuts, self.n_blocks))):
            raise self.wrong(f"'cuts' is {self.cuts}, but they must grow and be fewer than {self.n_blocks}")
        if not are_public_units(*self.units):
            raise self.wrong("'units' must be on the public grid")

    @property
    def constants(self) -> tuple[Constant, ...]:
        """One network that changes a run."""
        network = (self.cuts, self.coefficients, self.offsets, self.units)
        return *super().constants, Constant("residuals of blocks that are checked", network)

    @property
    def function_units(self) -> tuple[FloatArray, FloatArray]:
        """Those of squares and cubes."""
        return self.units[0], self.units[1]

    @property
    def n_back(self) -> int:
        """How many rows back residuals are compared: one more than a row reaches."""
        return self.n_lags + 1

    def segment_of(self, blocks: IntArray) -> IntArray:
        """In which segment blocks are."""
        return np.searchsorted(np.array(self.cuts, dtype=np.int64), blocks, side="right")

    def residuals_of(self, s: int) -> tuple[FloatArray, FloatArray]:
        """Coefficients and offset of a segment."""
        return self.coefficients[s * self.q : (s + 1) * self.q], self.offsets[s]


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


def block_checks_program(
    blocks: BlocksQuestion,
    cuts: Sequence[int],
    networks: Sequence[SegmentNetwork],
    order: Sequence[int],
    moments: Moments,
    own_share: float | None,
) -> ServerProgram[ResidualReport]:
    """Ask about the residuals of a network that changes.

    Parameters
    ----------
    blocks
        What was asked about the blocks.
    cuts, networks, order
        What was learned from the answer.
    moments
        Of all rows.
    own_share
        Number of nuisance parameters of recordings per row; None: that of their means, if these were taken off.
    """
    d = blocks.d
    sd = safe_roots(np.diag(moments.scatter)[:d] / moments.n)
    # A network without lags is looked at with one.
    missing = np.zeros((d, d)) if not blocks.n_lags else np.zeros((0, d))
    found = [one.residuals(one.variances > 1e-8 * sd**2) for one in networks]
    names = ("variables", "center", "block_rows", "n_blocks", "unit", "first")
    question = BlockChecksQuestion(
        **{name: getattr(blocks, name) for name in names},
        n_lags=max(blocks.n_lags, 1),
        cuts=tuple(cuts),
        coefficients=np.concatenate([part for one, _ in found for part in (one, missing)]),
        offsets=np.stack([offset for _, offset in found]),
        units=np.stack(public_units(moments.mean[:d], sd)),
    )
    answer = (yield Task(question)).value
    stop = check_sums_length(d, question.n_back)
    sums = ResidualSums.from_vector(answer[:stop], d, question.n_back)
    share = share_of_means(sums, blocks.center) if own_share is None else own_share
    checks = check_residuals(sums, _echoes(networks, blocks.n_lags, d), share)
    support = np.any([one.weights != 0 for one in networks], axis=0)
    bends = curvature_of(CurvatureSums.from_vector(answer[stop:], d), support, order, range(d))
    checks = replace(checks, curvature_p=bends)
    violated = violations(checks)
    factor = checks.inflation if "volatility" in violated else 1.0
    return ResidualReport(checks, violated, violated, n_effective=checks.n / factor, looked_only=True)


def _echoes(networks: Sequence[SegmentNetwork], n_lags: int, d: int) -> FloatArray:
    """Mean over rows of what shocks of earlier rows do along lagged edges."""
    total, n = np.zeros((n_lags + 1, d, d)), sum(one.n for one in networks)
    for one in networks:
        A = one.weights[d:].reshape(n_lags, d, d)
        total += one.n / n * echo_weights(one.weights[:d], A, one.variances, n_lags + 1)
    return total


def _residuals(
    question: BlockChecksQuestion, recording: Recording, s: int
) -> Iterator[tuple[int, FloatArray, FloatArray]]:
    """Yield (time of the first row, rows, residuals) of a segment, run by run."""
    coefficients, offset = question.residuals_of(s)
    for piece in block_pieces(question, recording):
        for time, rows in piece.of(question.segment_of(piece.blocks) == s):
            yield time, rows, rows @ coefficients - offset


def _spans(question: BlockChecksQuestion, recording: Recording) -> dict[int, tuple[int, int]]:
    """First and last time of each segment of which a recording has rows."""
    spans: dict[int, tuple[int, int]] = {}
    for piece in block_pieces(question, recording):
        segments = question.segment_of(piece.blocks)
        for s in np.unique(segments).tolist():
            here = piece.time + np.flatnonzero(segments == s)
            spans[s] = (spans.get(s, (int(here[0]), 0))[0], int(here[-1]))
    return spans


def _length(question: BlockChecksQuestion) -> int:
    return check_sums_length(question.d, question.n_back) + CurvatureSums.length(question.q, question.d)


@answers(BlockChecksQuestion, length=_length)
def _checks_answer(here: Here, question: BlockChecksQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    d, n_back = question.d, question.n_back
    stop = check_sums_length(d, n_back)
    total = np.zeros(_length(question))
    if question.abstains(here.state):
        return here.state, total
    origin = np.zeros(d) if question.center == "recording" else question.units[0]
    origin, scale = (np.tile(one, question.n_lags + 1) for one in (origin, question.units[1]))

    def watched(recording: Recording, s: int) -> Iterator[tuple[int, FloatArray]]:
        for time, rows, u in _residuals(question, recording, s):
            total[stop:] += CurvatureSums.of_rows((rows - origin) / scale, u).to_vector()
            yield time, u

    for recording in training_parts(here.data, question):
        for s, span in _spans(question, recording).items():
            total[:stop] += residual_sums(watched(recording, s), span, d, n_back).to_vector()
    return here.state, total
