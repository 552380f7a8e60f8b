"""Sums of counts, totals and cross-products of lagged rows: the statistics every linear method starts from.

Site tasks
----------
``summary``   count, totals, squares and lag-1 products: enough to centre and scale, nothing about pairs of variables
``moments``   count, totals and the whole lagged Gram matrix: enough for any linear model in one round; with
              ``shape`` also skewness and kurtosis of every variable, which say whether the noise is worth a look

A site reads its rows once per design; the moments stay in its state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.design import Design
from feddbn.core.designs.gram import recording_gram
from feddbn.core.designs.rows import design_rows
from feddbn.core.orders.nongaussian import shape_sums
from feddbn.core.statistics.levels import evidence_for_own_levels
from feddbn.core.statistics.moments import Moments, sums_length, symmetric, upper_triangle
from feddbn.errors import DataError, ParameterError
from feddbn.federation.programs.folds import training_part
from feddbn.federation.protocol.question import array, flag, number
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import (
    Here,
    Recording,
    SiteData,
    SiteState,
    SiteTask,
    one_by_one,
    register_site_task,
)
from feddbn.federation.protocol.task import ServerProgram, Task

__all__ = [
    "CENTERS",
    "AskedMoments",
    "MomentsQuestion",
    "Preparation",
    "Summary",
    "SummaryQuestion",
    "asked_moments",
    "asked_moments_program",
    "autocorrelation",
    "local_moments",
    "moments_program",
    "prepare",
    "summary_of_moments",
    "summary_program",
]

CENTERS = ("auto", "none", "federated", "recording")
# Beyond this ratio of mean to standard deviation, sums of squares about zero lose too many digits.
_FAR_FROM_ZERO = 1e3


@dataclass(frozen=True, kw_only=True)
class SummaryQuestion(RowsQuestion):
    """Counts, totals, squares and lag-1 products about an origin."""

    name = "summary"
    purpose = "counts, means and variances of single variables"

    origin: FloatArray | None = array("q", default=None)


@dataclass(frozen=True, kw_only=True)
class MomentsQuestion(RowsQuestion):
    """Counts, totals and cross-products about an origin.

    `levels` adds the number of recordings and the same products within recordings, `shape` skewness and kurtosis of
    every variable. `clip_bound` is the bound to which sites clip where they add noise.
    """

    name = "moments"
    purpose = (
        "lagged means and cross-products of all variables, and if asked the same within recordings, "
        "and skewness and kurtosis"
    )

    origin: FloatArray | None = array("q", default=None)
    levels: bool = flag(default=False)
    shape: bool = flag(default=False)
    clip_bound: float | None = number(0.0, default=None)


def local_moments(here: Here, design: Design, fold: tuple[int, ...] = ()) -> tuple[SiteState, Moments]:
    """Return the site's moments of a design, from its state if it has read them before.

    The state also keeps the scatter within recordings and their number.

    With a `fold` only the rows before the held-out block count (see `federation.programs.folds`).
    """
    state = here.state
    key = np.frombuffer(
        bytes.fromhex(design.digest) + np.array(fold, dtype=np.int64).tobytes(), dtype=np.uint8
    )
    if "moments.key" in state and np.array_equal(state["moments.key"], key):
        return state, Moments(float(state["moments.n"]), state["moments.mean"], state["moments.scatter"])
    total, within, n_recordings = Moments.empty(design.q), np.zeros((design.q, design.q)), 0
    for recording in _training_parts(here.data, fold):
        part = recording_gram(design, recording).moments
        total, n_recordings = total.merge(part), n_recordings + (part.n > 0)
        within += part.scatter
    if total.n == 0:
        raise DataError(
            f"no row of this site has n_lags={design.n_lags} rows before it; lower n_lags or leave the site out."
        )
    new = {
        **state,
        "moments.key": key,
        "moments.n": np.array(total.n),
        "moments.mean": total.mean,
        "moments.scatter": total.scatter,
        "moments.within": within,
        "moments.recordings": np.array(float(n_recordings)),
    }
    return new, total


def _training_parts(data: SiteData, fold: tuple[int, ...]) -> Iterator[Recording]:
    return (training_part(recording, fold) for recording in data.recordings())


def asked_moments(here: Here, question: RowsQuestion) -> tuple[SiteState, Moments]:
    """Return the moments a question is about, of a site that holds all of its variables."""
    question.require_variables(here.data)
    return local_moments(here, question.design, question.fold)


def _moments(here: Here, question: MomentsQuestion) -> tuple[SiteState, FloatArray]:
    state, moments = asked_moments(here, question)
    parts = [moments.to_sums(question.origin)]
    if question.levels:
        parts += [state["moments.recordings"][None], upper_triangle(state["moments.within"])]
    return state, np.concatenate([*parts, _shapes(here.data)] if question.shape else parts)


def _shapes(data: SiteData) -> FloatArray:
    """The shapes of the recordings' first blocks, summed; a long file need not be read again for a hint."""
    total = np.zeros(2 * len(data.variables) + 1)
    for recording in data.recordings():
        block = next(iter(recording.blocks()), None)
        if block is not None:
            total += shape_sums(block.values)
    return total


def _moment_units(here: Here, question: MomentsQuestion, unit: str) -> Iterator[FloatArray]:
    if question.levels:
        raise ParameterError("levels=True: noise is fitted to one matrix of products, not to two.")
    if question.shape:
        raise ParameterError("shape=True: the shape of the data has no bound to which noise could be fitted.")
    if unit == "row":
        if question.design.nuisance.scope != "all":
            raise ParameterError(
                "center='recording' mixes the rows of a recording; protect unit='recording'."
            )
        for recording in _training_parts(here.data, question.fold):
            for rows in design_rows(question.design, recording.blocks()):
                for row in rows.values:
                    yield Moments.of_rows(row[None]).to_sums(question.origin)
        return
    if unit != "recording":
        raise ParameterError(f"unit={unit!r} is not known; choose 'recording' or 'row'.")
    for recording in _training_parts(here.data, question.fold):
        yield recording_gram(question.design, recording).moments.to_sums(question.origin)


def _summary_answer(here: Here, question: SummaryQuestion) -> tuple[SiteState, FloatArray]:
    state, moments = asked_moments(here, question)
    d = question.d
    centre = np.zeros(moments.q) if question.origin is None else question.origin
    cross = moments.about(centre)
    lagged = np.diag(cross, k=d)[:d] if moments.q > d else np.zeros(d)
    return state, np.concatenate([[moments.n], moments.n * (moments.mean - centre), np.diag(cross), lagged])


register_site_task(SiteTask(MomentsQuestion, one_by_one(_moments), _moment_units))
register_site_task(SiteTask(SummaryQuestion, one_by_one(_summary_answer)))


@dataclass(frozen=True)
class Summary:
    """Federation-wide count, means (q,), variances (q,) and lag-1 autocorrelations (d,)."""

    n: float
    mean: FloatArray
    variance: FloatArray
    autocorrelation: FloatArray


@dataclass(frozen=True)
class Preparation:
    """What every site does to z before a fit: ``(z - center) / scale``, both (q,); `summary` explains why."""

    center: FloatArray
    scale: FloatArray
    center_rule: str
    summary: Summary

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


def summary_program(variables: tuple[str, ...], n_lags: int, center: str = "none") -> ServerProgram[Summary]:
    """Ask for counts, means and variances; a second time about the means if these are far from zero."""
    d = len(variables)
    question = SummaryQuestion(n_lags=n_lags, variables=variables, center=center)
    total = (yield Task(question)).value
    summary = _summary(total, d, np.zeros((n_lags + 1) * d))
    if np.any(np.abs(summary.mean) > _FAR_FROM_ZERO * np.sqrt(np.maximum(summary.variance, 0.0))):
        origin = summary.mean
        total = (yield Task(replace(question, origin=origin))).value
        summary = _summary(total, d, origin)
    return summary


def _summary(total: FloatArray, d: int, origin: FloatArray) -> Summary:
    q = len(origin)
    n = float(total[0])
    delta = total[1 : 1 + q] / n
    variance = total[1 + q : 1 + 2 * q] / n - delta * delta
    lagged = total[1 + 2 * q :] / n - (delta[:d] * delta[d : 2 * d] if q > d else 0.0)
    return Summary(n, delta + origin, variance, autocorrelation(lagged, variance[:d]))


def autocorrelation(lagged: FloatArray, variance: FloatArray) -> FloatArray:
    """Return lag-1 autocorrelations from lag-1 covariances and variances; 0 for a constant."""
    with np.errstate(divide="ignore", invalid="ignore"):
        r = np.where(variance > 0, lagged / variance, 0.0)
    return np.clip(r, -0.99, 0.99)


def summary_of_moments(moments: Moments, d: int) -> Summary:
    """Return the same summary from whole moments."""
    n = moments.n
    variance = np.diag(moments.scatter) / n
    lagged = np.diag(moments.scatter, k=d)[:d] / n if moments.q > d else np.zeros(d)
    return Summary(n, moments.mean, variance, autocorrelation(lagged, variance[:d]))


def prepare(summary: Summary, d: int, center: str, scale: str) -> Preparation:
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


def moments_program(variables: tuple[str, ...], n_lags: int, center: str = "none") -> ServerProgram[Moments]:
    """Ask for the whole lagged Gram matrix; a second time about the means if these are far from zero."""
    asked = yield from asked_moments_program(variables, n_lags, center)
    return asked.moments


@dataclass(frozen=True)
class AskedMoments:
    """What one sum of moments told.

    Attributes
    ----------
    moments
        Of all rows, centred as `center` says.
    center
        "none" or "recording": what was asked for, or what the evidence chose.
    own_levels
        Evidence that recordings have means of their own (`core.statistics.levels`); None if it was not asked for.
    shape
        Sums of `core.orders.nongaussian.shape_sums`, or None.
    """

    moments: Moments
    center: str
    own_levels: float | None = None
    shape: FloatArray | None = None


def asked_moments_program(
    variables: tuple[str, ...], n_lags: int, center: str, shape: bool = False
) -> ServerProgram[AskedMoments]:
    """Ask for the whole lagged Gram matrix, and in the same sum for what `center` and `shape` need.

    ``center="auto"`` asks for the products within recordings, too. Where recordings have means of their own, these
    products are taken, with the mean of all rows: what is said about levels is then about the average recording.
    """
    d, q = len(variables), (n_lags + 1) * len(variables)
    is_auto = center == "auto"
    question = MomentsQuestion(n_lags=n_lags, variables=variables, center="none" if is_auto else center)
    total = (yield Task(replace(question, levels=is_auto, shape=shape))).value
    size = sums_length(q)
    moments, rest = Moments.from_sums(total[:size], q), total[size:]
    deviation = np.sqrt(np.maximum(np.diag(moments.scatter), 0.0) / moments.n)
    if np.any(np.abs(moments.mean) > _FAR_FROM_ZERO * deviation):
        origin = moments.mean
        answer = yield Task(replace(question, origin=origin))
        moments = Moments.from_sums(answer.value, q, origin)
    if not is_auto:
        return AskedMoments(moments, center, None, rest if shape else None)
    length = 1 + q * (q + 1) // 2
    within = symmetric(rest[1:length], q)
    evidence = evidence_for_own_levels(moments.scatter, within, moments.n, float(rest[0]), d)
    if evidence > 0:
        moments = Moments(moments.n, moments.mean, within)
    rule = "recording" if evidence > 0 else "none"
    return AskedMoments(moments, rule, evidence, rest[length:] if shape else None)
