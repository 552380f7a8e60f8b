"""One sum about residuals: do they remember, does their variance change, have they heavy tails?

``residual-checks``   sums of products and squares of standardised residuals and of their predecessors, by thirds of the
                      recordings, and of the logarithms of their variances
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.complete import CompleteSite
from feddbn.core.designs.design import Design
from feddbn.core.designs.lagged import stretches
from feddbn.core.designs.nuisance import ONE_MEAN, TimeBasis
from feddbn.core.designs.rows import design_rows
from feddbn.core.statistics.moments import Moments
from feddbn.core.statistics.residual_checks import (
    ResidualSums,
    residual_sums,
    sums_length,
)
from feddbn.errors import ParameterError
from feddbn.federation.protocol.question import Constant, array
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import (
    Here,
    Recording,
    SiteState,
    SiteTask,
    one_by_one,
    register_site_task,
)
from feddbn.federation.protocol.task import ServerProgram, Task

__all__ = ["ResidualChecksQuestion", "own_nuisances", "residual_checks_program"]

_Piece = tuple[int, FloatArray]


@dataclass(frozen=True, kw_only=True)
class ResidualChecksQuestion(RowsQuestion):
    """Sums over ``z @ coefficients - offset``: one residual per variable, each clipped to 20 standard deviations."""

    name = "residual-checks"
    purpose = (
        "products and fourth-order products of standardised residuals and of their predecessors, "
        "their variances by thirds of the recordings, and the logarithms of these variances"
    )

    coefficients: FloatArray = array("q", "d")
    offset: FloatArray = array("d")

    @property
    def projected(self) -> tuple[FloatArray, FloatArray]:
        """Its residuals."""
        return self.coefficients, self.offset

    @property
    def constants(self) -> tuple[Constant, ...]:
        """A run looks at its network, and where residuals remember at two others."""
        return *super().constants, Constant("residuals that are checked", (self.coefficients, self.offset), 3)

    @property
    def n_back(self) -> int:
        """How many rows back residuals are compared: one more than a row reaches."""
        return self.n_lags + 1

    def check(self) -> None:
        """A lag of at least 1 keeps segments apart in time; all rows count."""
        super().check()
        if self.fold:
            raise self.wrong(f"'fold' is {self.fold}, but all rows are asked for")
        if self.n_lags < 1:
            raise self.wrong(f"'n_lags' is {self.n_lags}, but it must be at least 1")


def residual_checks_program(
    variables: tuple[str, ...],
    n_lags: int,
    coefficients: FloatArray,
    offset: FloatArray,
    center: str = "none",
) -> ServerProgram[tuple[ResidualSums, bool]]:
    """Ask for the sums; return them, and whether every site has rows enough for a lag more.

    Parameters
    ----------
    coefficients, offset
        ((p+1) d, d) and (d,): residuals are ``z @ coefficients - offset`` with mean square 1.
    center
        "recording": residuals of a recording are centred on their own mean, and the offset is not used.
    """
    d = len(variables)
    if n_lags == 0:
        n_lags, coefficients = 1, np.concatenate([coefficients, np.zeros((d, d))])
    question = ResidualChecksQuestion(
        n_lags=n_lags, variables=variables, center=center, coefficients=coefficients, offset=offset
    )
    answer = yield Task(question)
    return ResidualSums.from_vector(answer.value[1:], d, question.n_back), float(answer.value[0]) == 0.0


def own_nuisances(
    design: Design, read: Callable[[], Iterator[_Piece]], runs: Sequence[tuple[int, int]]
) -> Iterator[_Piece]:
    """Yield residuals of a recording without what is its own: the one place that knows every nuisance of a design.

    `read` yields the residuals as (time of the first row, rows), `runs` are (time, number) of consecutive rows.
    """
    nuisance = design.nuisance
    if nuisance.scope == "all":
        yield from read()
        return
    if nuisance.scope != "recording":
        raise ParameterError(
            f"scope={nuisance.scope!r}: residuals can be checked for means of recordings only."
        )
    basis = TimeBasis.over(nuisance, runs) if nuisance.has_time else None

    def columns(time: int, m: int) -> FloatArray:
        return np.zeros((m, 0)) if basis is None else basis.at(time + np.arange(m, dtype=np.float64))

    d = design.d
    joint = Moments.empty(d if basis is None else d + basis.mix.shape[1])
    for time, u in read():
        joint = joint.merge(Moments.of_rows(np.concatenate([u, columns(time, len(u))], axis=1)))
    cross = joint.scatter[d:, :d]
    weights = np.linalg.lstsq(joint.scatter[d:, d:], cross, rcond=None)[0] if len(cross) else cross
    for time, u in read():
        yield time, u - joint.mean[:d] - (columns(time, len(u)) - joint.mean[d:]) @ weights


def _read(recording: Recording, question: ResidualChecksQuestion) -> Iterator[_Piece]:
    """Yield the residuals of a recording in pieces of bounded size."""
    plain = replace(question.design, nuisance=ONE_MEAN)
    for rows in design_rows(plain, recording.blocks()):
        yield rows.time, rows.values @ question.coefficients - question.offset


def _answer(here: Here, question: ResidualChecksQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    design, d, p = question.design, question.d, question.n_lags
    total = np.zeros(1 + sums_length(d, question.n_back))
    if question.abstains(here.state):
        return here.state, total
    for recording in CompleteSite(question.treated(here.data)).recordings():
        runs = [(part.time, len(part.values) - p) for part in stretches(recording.blocks(), p)]
        if runs:
            span = (runs[0][0], runs[-1][0] + runs[-1][1] - 1)
            pieces = own_nuisances(design, partial(_read, recording, question), runs)
            total[1:] += residual_sums(pieces, span, d, question.n_back).to_vector()
    sums = ResidualSums.from_vector(total[1:], d, question.n_back)
    # A site whose rows do not reach one lag further back says so by a one.
    total[0] = float(sums.counts[1] == 0)
    return here.state, total


register_site_task(SiteTask(ResidualChecksQuestion, one_by_one(_answer)))
