"""What methods decide from the first sums: folds of held-out rows, centre and scale.

A fold has every question about rows answered from its training rows only (`core.designs.folds`), so that every server program
can be run on a fold without knowing about it. Two folds differ by the rows of a block. Where a site has no row in it the
difference is about the other sites alone, and with many small blocks about one: so there are few blocks, and a site that has
none of the rows does not answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.diagnostics import (
    DIFFERENT_NETWORKS_FACTOR,
    NOISE_FACTOR,
    Spread,
    noise_spread,
    output_columns,
    outputs_of,
)
from feddbn.core.statistics.moments import Moments
from feddbn.errors import ParameterError
from feddbn.federation.protocol.rows import MOST_BLOCKS, UNTREATED, Fold, RowsQuestion, Treatment
from feddbn.federation.protocol.task import (
    FederationView,
    Question,
    ServerProgram,
    Sum,
    Task,
    asking,
)
from feddbn.federation.sums.gram import GramQuestion
from feddbn.findings import Finding

T = TypeVar("T")


def make_fold(block: int, n_blocks: int, share: float) -> Fold:
    """Return the fold of a question; `share` of each recording is tested on in `n_blocks` blocks."""
    if not 0.0 < share < 1.0:
        raise ParameterError(f"share={share!r} of the rows to test on must lie between 0 and 1.")
    if not 1 <= n_blocks <= MOST_BLOCKS or not 0 <= block < n_blocks:
        raise ParameterError(f"n_blocks={n_blocks!r} must be between 1 and {MOST_BLOCKS}.")
    return block, n_blocks, min(max(round(1000 * share), 1), 999)


def on_fold(program: ServerProgram[T], fold: Fold) -> ServerProgram[T]:
    """Run a server program on the training rows of a fold."""
    return asking(program, lambda question: _folded(question, fold))


def _folded(question: Question, fold: Fold) -> Question:
    if not isinstance(question, RowsQuestion):
        if question.reads_rows:
            raise ParameterError(
                f"the task {question.name!r} cannot be asked about earlier rows only, so what needs it (features, noise) "
                "cannot be judged on held-out rows; leave that out."
            )
        return question
    if question.fold:
        raise ParameterError(
            "a parameter is 'auto', which is chosen on held-out rows itself; give a number, `feddbn select` finds one."
        )
    return replace(question, fold=fold)


@dataclass(frozen=True)
class EarlierRows(FederationView):
    """A federation whose sites answer from the training rows of a fold: what is fitted on it does not learn from the others.

    What is looked for first (cycles, outliers, scales of sites) is looked for in all rows, alike for all that is fitted.
    """

    fold: Fold

    def sum(self, task: Task) -> Sum:
        """Return the sum over the training rows."""
        return self.federation.sum(replace(task, question=_folded(task.question, self.fold)))


CENTERS = ("auto", "none", "federated", "recording")
# Beyond this ratio of mean to standard deviation, sums of squares about zero lose too many digits.
FAR_FROM_ZERO = 1e3


@dataclass(frozen=True)
class ColumnStatistics:
    """Federation-wide count, means (q,), variances (q,) and lag-1 autocorrelations (d,)."""

    n: float
    mean: FloatArray
    variance: FloatArray
    autocorrelation: FloatArray


@dataclass(frozen=True)
class Preparation:
    """What every site does to z before a fit: ``(z - center) / scale``, both (q,); `summary` explains why.

    `treatment` is what it does to its rows before that.
    """

    center: FloatArray
    scale: FloatArray
    center_rule: str
    summary: ColumnStatistics
    treatment: Treatment = UNTREATED

    @property
    def variance(self) -> FloatArray:
        """(q,) mean squares of the prepared columns."""
        offset = self.summary.mean - self.center
        return (self.summary.variance + offset * offset) / self.scale**2

    @property
    def metric(self) -> FloatArray:
        """(q,) `variance`, bounded from below: a variable that hardly varies must not make a metric singular."""
        variance = self.variance
        return np.maximum(variance, 1e-9 * float(variance.mean()))


def summary_program(
    variables: tuple[str, ...], n_lags: int, center: str = "none"
) -> ServerProgram[ColumnStatistics]:
    """Ask for counts, means and variances; a second time about the means if these are far from zero."""
    d = len(variables)
    question = GramQuestion(n_lags=n_lags, variables=variables, center=center, diagonal=True)
    total = (yield Task(question)).value
    summary = _summary(total, d, np.zeros((n_lags + 1) * d))
    if np.any(np.abs(summary.mean) > FAR_FROM_ZERO * np.sqrt(np.maximum(summary.variance, 0.0))):
        origin = summary.mean
        total = (yield Task(replace(question, origin=origin))).value
        summary = _summary(total, d, origin)
    return summary


def _summary(total: FloatArray, d: int, origin: FloatArray) -> ColumnStatistics:
    q = len(origin)
    n = float(total[0])
    delta = total[1 : 1 + q] / n
    variance = total[1 + q : 1 + 2 * q] / n - delta * delta
    lagged = total[1 + 2 * q :] / n - (delta[:d] * delta[d : 2 * d] if q > d else 0.0)
    return ColumnStatistics(n, delta + origin, variance, autocorrelation(lagged, variance[:d]))


def autocorrelation(lagged: FloatArray, variance: FloatArray) -> FloatArray:
    """Return lag-1 autocorrelations from lag-1 covariances and variances; 0 for a constant."""
    with np.errstate(divide="ignore", invalid="ignore"):
        r = np.where(variance > 0, lagged / variance, 0.0)
    return np.clip(r, -0.99, 0.99)


def summary_of_moments(moments: Moments, d: int) -> ColumnStatistics:
    """Return the same summary from whole moments."""
    n = moments.n
    variance = np.diag(moments.scatter) / n
    lagged = np.diag(moments.scatter, k=d)[:d] / n if moments.q > d else np.zeros(d)
    return ColumnStatistics(n, moments.mean, variance, autocorrelation(lagged, variance[:d]))


def prepare(summary: ColumnStatistics, d: int, center: str, scale: str) -> Preparation:
    """Choose centre and scale from sums only.

    ``center="auto"`` centres unless every variable's mean is within four standard errors of zero, with standard errors
    inflated for lag-1 autocorrelation: series that were simulated or already centred stay as they are.
    """
    if center not in CENTERS:
        raise ParameterError(f"center={center!r} is not known; choose one of {', '.join(CENTERS)}.")
    if scale not in ("none", "federated"):
        raise ParameterError(f"scale={scale!r} is not known; choose 'none' or 'federated'.")
    rule = center
    if center == "auto":
        r = np.maximum(summary.autocorrelation, 0.0)
        error = np.sqrt(summary.variance[:d] * (1 + r) / (1 - r) / summary.n)
        rule = "federated" if np.any(np.abs(summary.mean[:d]) > 4.0 * error) else "none"
    q = len(summary.mean)
    # Recordings that were centred on their own means have a mean of zero, or that of the average recording.
    middle = np.zeros(q) if rule == "none" else summary.mean
    factor = np.tile(np.sqrt(summary.variance[:d]), q // d) if scale == "federated" else np.ones(q)
    return Preparation(middle, factor, rule, summary)


# Whether penalties and thresholds act on scaled variables, decided from a sum of moments.

SCALES = ("auto", "none", "federated")


@dataclass(frozen=True)
class ScaleChoice:
    """Which units penalties and thresholds act on.

    Attributes
    ----------
    rule
        "none": those of the data; "federated": every variable scaled to unit variance over all sites.
    spread
        How far the noise of variables differs, where that was looked at.
    one_network
        Whether all sites have one network, so that the spread is a bound.
    """

    rule: str
    spread: Spread | None = None
    one_network: bool = True

    def finding(self, variables: Sequence[str]) -> Finding | None:
        """What was decided and why; None where nothing was, or the data stay as they are."""
        if self.spread is None or self.rule == "none":
            return None
        names = variables[self.spread.large], variables[self.spread.small]
        values = {"factor": self.spread.factor, "is_bound": self.one_network}
        return Finding("variables-scaled", "note", values, names, {"prepare.scale": "none"})


def choose_scale(
    scale: str, d: int, moments: Moments, *, one_network: bool = True, inputs: Sequence[int] = ()
) -> ScaleChoice:
    """Decide about ``scale="auto"`` by how far noise must differ; `one_network` says whether sites share one.

    `inputs` are positions of variables that only act on others, and have no noise.
    """
    if scale != "auto":
        return ScaleChoice(scale, one_network=one_network)
    scatter, m = output_columns(moments.scatter, d, inputs)
    spread = noise_spread(scatter, moments.n, m)
    if spread is not None and inputs:
        outputs = outputs_of(d, inputs)
        spread = replace(spread, large=outputs[spread.large], small=outputs[spread.small])
    limit = NOISE_FACTOR if one_network else DIFFERENT_NETWORKS_FACTOR
    rule = "federated" if spread is not None and spread.factor > limit else "none"
    return ScaleChoice(rule, spread, one_network)
