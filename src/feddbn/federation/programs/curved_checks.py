"""Residual checks of a network with curves: the same sums as `residual_checks`, of residuals of a curved design.

``curved-checks``   sums of products and squares of standardised residuals ``z @ coefficients - offset`` of curved rows
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.known_inputs import outputs_of
from feddbn.core.statistics.residual_checks import (
    ResidualChecks,
    ResidualSums,
    check_residuals,
    sums_length,
)
from feddbn.federation.programs.curved_moments import CurvedMoments, CurvedMomentsQuestion, curved_recordings
from feddbn.federation.programs.residual_checks import MOST_NETWORKS, recording_residuals
from feddbn.federation.protocol.question import Constant, array
from feddbn.federation.protocol.site import (
    Here,
    SiteState,
    SiteTask,
    one_by_one,
    register_site_task,
)
from feddbn.federation.protocol.task import ServerProgram, Task

__all__ = ["CurvedChecksQuestion", "curved_checks_program"]


@dataclass(frozen=True, kw_only=True)
class CurvedChecksQuestion(CurvedMomentsQuestion):
    """Sums over ``z @ coefficients - offset``, z a row of the curved design: one residual a variable."""

    name = "curved-checks"
    purpose = "products and fourth-order products of standardised residuals of curved rows and of their predecessors"

    coefficients: FloatArray = array("columns", "d")
    offset: FloatArray = array("d")

    def sizes(self) -> Mapping[str, int]:
        """Also the columns of the curved design."""
        return {**super().sizes(), "columns": self.curved.q}

    @property
    def projected(self) -> tuple[FloatArray, FloatArray] | None:
        """Its residuals, as combinations of the columns of the curved design."""
        return self.coefficients, self.offset

    @property
    def constants(self) -> tuple[Constant, ...]:
        """One network a fit, as `residual-checks` has it."""
        network = (self.coefficients, self.offset)
        what = f"residuals with curves that are checked (fold = {self.fold})"
        return *super().constants, Constant(what, network, MOST_NETWORKS)


def curved_checks_program(
    asked: CurvedMoments,
    coefficients: Sequence[tuple[np.ndarray, FloatArray]],
    inputs: Sequence[int] = (),
    own_share: float = 0.0,
) -> ServerProgram[ResidualChecks]:
    """Ask about the residuals of a network with curves; `coefficients` has the columns of each node and their weights.

    The weights are in the design's public units, as the moments that were asked for.
    """
    question, moments = asked.question, asked.moments
    d, q = question.d, question.curved.q
    weights, offset = np.zeros((q, d)), np.zeros(d)
    for j, (columns, beta) in enumerate(coefficients):
        if j in inputs:
            continue
        weights[j, j] = 1.0
        weights[columns, j] -= beta
        variance = float(weights[:, j] @ moments.scatter @ weights[:, j]) / moments.n
        weights[:, j] /= np.sqrt(max(variance, 1e-300))
        offset[j] = float(moments.mean @ weights[:, j])
    given = {
        name: getattr(question, name)
        for name in ("n_lags", "variables", "center", "basis", "origin", "scale", "products")
    }
    checked = CurvedChecksQuestion(**given, coefficients=weights, offset=offset)
    answer = yield Task(checked)
    sums = ResidualSums.from_vector(answer.value, d, checked.n_lags + 1)
    return check_residuals(sums.of(outputs_of(d, inputs)), None, own_share)


def _answer(here: Here, question: CurvedChecksQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    d, n_back = question.d, question.n_lags + 1
    total = np.zeros(sums_length(d, n_back))
    if question.abstains(here.state):
        return here.state, total
    of = question.coefficients, question.offset
    for recording in curved_recordings(here, question):
        total += recording_residuals(question.curved, recording, of, n_back)
    return here.state, total


register_site_task(
    SiteTask(
        CurvedChecksQuestion,
        one_by_one(_answer),
        length=lambda question: sums_length(question.d, question.n_lags + 1),
    )
)
