"""Sums of nonlinear functions of residuals: a nonlinear map of rows, which owners allow by name.

``residual-features``   for every residual the sums of five functions of it (`core.orders.nongaussian`)

What a server could do with it: a steep projection has single rows in view, and many of them read the rows one by one. So
a run asks a few times, of residuals that are about as large as those of a network, and of no more than the site's rows
stand for (`federation.guards.disclosure`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.complete import CompleteRows
from feddbn.core.designs.design import Design
from feddbn.core.designs.gram import nuisance_basis, recording_gram, whole_rows
from feddbn.core.designs.nuisance import ONE_MEAN
from feddbn.core.designs.rows import design_rows
from feddbn.core.orders.nongaussian import N_FEATURES, residual_features
from feddbn.errors import ParameterError
from feddbn.federation.programs.statistics import training_parts
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

__all__ = ["MOST_QUESTIONS", "ResidualsQuestion"]

MOST_QUESTIONS = 16
"""A run asks up to eight times, and again if it tries one lag more."""


@dataclass(frozen=True, kw_only=True)
class ResidualsQuestion(RowsQuestion):
    """Sums of nonlinear functions of ``z @ coefficients - offset``, m columns."""

    name = "residual-features"
    purpose = "sums of nonlinear functions of standardised residuals"

    coefficients: FloatArray = array("q", "m")
    offset: FloatArray = array("m")

    @property
    def projected(self) -> tuple[FloatArray, FloatArray]:
        """Its residuals."""
        return self.coefficients, self.offset

    @property
    def constants(self) -> tuple[Constant, ...]:
        """A run asks a few times, also if it tries one lag more."""
        what, n = "residuals whose shape is asked for", len(self.offset)
        asked = Constant(what, (self.coefficients, self.offset), MOST_QUESTIONS, n)
        return *super().constants, asked


def _residual_features(here: Here, question: ResidualsQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    vector = np.zeros(1 + N_FEATURES * len(question.offset))
    if question.abstains(here.state):
        return here.state, vector
    for part in _residual_feature_units(here, question, "recording"):
        vector += part
    return here.state, vector


def _residual_feature_units(here: Here, question: ResidualsQuestion, unit: str) -> Iterator[FloatArray]:
    if unit != "recording":
        raise ParameterError(f"unit={unit!r}: this statistic can be split by recording only.")
    B, plain = question.coefficients, replace(question.design, nuisance=ONE_MEAN)
    for recording in training_parts(here.data, question):
        total, n = np.zeros((N_FEATURES, B.shape[1])), 0
        for residuals in recording_residuals(plain, CompleteRows(recording), question, B):
            total += residual_features(residuals)
            n += len(residuals)
        yield np.concatenate([[float(n)], total.ravel()])


def recording_residuals(
    plain: Design, recording: Recording, question: ResidualsQuestion, B: FloatArray
) -> Iterator[FloatArray]:
    """Yield residuals ``z B`` of a recording, piece by piece, off the nuisances of the question."""
    nuisance = question.nuisance
    if nuisance.has_time:
        rows, times = whole_rows(plain, recording)
        basis = nuisance_basis(nuisance, times)
        if len(rows) and basis is not None:
            residuals = rows @ B
            yield residuals - basis @ np.linalg.lstsq(basis, residuals, rcond=None)[0]
        return
    shift = question.offset
    if nuisance.scope == "recording":
        shift = recording_gram(plain, recording).moments.mean @ B
    for rows_of in design_rows(plain, recording.blocks()):
        yield rows_of.values @ B - shift


register_site_task(SiteTask(ResidualsQuestion, one_by_one(_residual_features), _residual_feature_units))
