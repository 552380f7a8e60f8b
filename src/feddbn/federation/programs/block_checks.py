"""Residual checks of a network that changes: every row has the residuals of its own segment's network.

``block-checks``   sums of products and squares of standardised residuals and of their predecessors, as `residual-checks`
                   has them, segment by segment, added up over the segments

A segment is some consecutive blocks. No product reaches from one segment into the next: by networks that are zero in one
of two segments, such a product would be that of the one row at their border.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.designs.public_units import are_public_units, public_units
from feddbn.core.designs.recordings import Recording
from feddbn.core.statistics.curvature import CurvatureSums
from feddbn.core.statistics.moments import Moments
from feddbn.core.statistics.residual_checks import (
    ResidualSums,
    check_residuals,
    echo_weights,
    residual_sums,
    sums_length,
    violations,
)
from feddbn.core.statistics.scaling import safe_roots
from feddbn.federation.programs.network_checks import ResidualReport, curvature_of, share_of_means
from feddbn.federation.programs.statistics import training_parts
from feddbn.federation.programs.time_blocks import BlocksQuestion, block_pieces
from feddbn.federation.protocol.question import Constant, array, wholes
from feddbn.federation.protocol.site import Here, SiteState, SiteTask, one_by_one, register_site_task
from feddbn.federation.protocol.task import ServerProgram, Task

__all__ = ["BlockChecksQuestion", "SegmentNetwork", "block_checks_program"]


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
    stop = sums_length(d, question.n_back)
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


def _answer(here: Here, question: BlockChecksQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    d, n_back = question.d, question.n_back
    stop = sums_length(d, n_back)
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


def _length(question: BlockChecksQuestion) -> int:
    return sums_length(question.d, question.n_back) + CurvatureSums.length(question.q, question.d)


register_site_task(SiteTask(BlockChecksQuestion, one_by_one(_answer), length=_length))
