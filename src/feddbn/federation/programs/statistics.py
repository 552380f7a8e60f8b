"""Sums of counts, totals and cross-products of lagged rows, all of them or those before held-out ones: where methods start.

Site tasks
----------
``summary``   count, totals, squares and lag-1 products: enough to centre and scale, nothing about pairs of variables
``moments``   count, totals and the whole lagged Gram matrix: enough for any linear model in one round; if asked the
              same off nuisances of recordings, and with ``shape`` skewness and kurtosis of every variable, which
              say whether the noise is worth a look

A site reads its rows once per design; the moments stay in its state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.backend.device import HOST, Device
from feddbn.core.designs.design import Design, design_rows
from feddbn.core.designs.gram import nuisance_basis, recording_gram, tried_grams, whole_rows
from feddbn.core.designs.nuisance import ONE_MEAN, Nuisance
from feddbn.core.designs.recordings import (
    Block,
    CompleteRows,
    Recording,
    SiteData,
    leading_axes,
    side_by_side,
)
from feddbn.core.orders.nongaussian import shape_sums
from feddbn.core.statistics.diagnostics import (
    DIFFERENT_NETWORKS_FACTOR,
    NOISE_FACTOR,
    Spread,
    noise_spread,
    output_columns,
    outputs_of,
)
from feddbn.core.statistics.missing import expected_moments, known_pairs
from feddbn.core.statistics.moments import Moments, sums_length, upper_triangle
from feddbn.errors import DataError, Given, ParameterError
from feddbn.federation.protocol.rows import MOST_BLOCKS, UNTREATED, Fold, RowsQuestion, Treatment
from feddbn.federation.protocol.site import Here, SiteState, answers
from feddbn.federation.protocol.task import (
    Constant,
    FederationView,
    Question,
    Scope,
    ServerProgram,
    Sum,
    Task,
    array,
    asking,
    flag,
    number,
    numbers,
    wholes,
)
from feddbn.findings import Finding

# Later time blocks of every recording, held out one after the other.
#
# Fold b of B trains on the rows before block b of the last `share` of a recording and tests on block b: the future is
# never used to predict the past. A question with ``fold = (b, B, share in thousandths)`` is answered from training rows
# only, so every server program that asks about rows can be run on a fold without knowing about it.
#
# Two folds differ by the rows of a block. Where a site has no row in it the difference is about the other sites alone,
# and with many small blocks about one: so there are few blocks, and a site that has none of the rows does not answer.

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


@dataclass(frozen=True)
class SitePart:
    """A site with a part of each recording."""

    data: SiteData
    part: Callable[[Recording], Recording]

    @property
    def variables(self) -> tuple[str, ...]:
        """Those of the site."""
        return self.data.variables

    def recordings(self) -> Iterator[Recording]:
        """The parts."""
        return map(self.part, self.data.recordings())


def training_site(data: SiteData, fold: tuple[int, ...]) -> SiteData:
    """Return a site with its rows before the held-out block; as it is without a fold. A site without a row in it refuses."""
    if not fold:
        return data
    _require_rows(data, fold)
    return SitePart(data, lambda recording: training_part(recording, fold))


def _require_rows(data: SiteData, fold: tuple[int, ...]) -> None:
    """Refuse where this site has no row of some block: sums with and without that block would leave the site out."""
    edges = [_edges(recording, fold) for recording in data.recordings()]
    if not all(any(own[b] < own[b + 1] for own in edges) for b in range(fold[1])):
        raise DataError(
            f"this site has too few rows to hold out {fold[2] / 10:g} % of them in n_blocks={fold[1]} blocks; test on a "
            "larger share, in fewer blocks, or leave the site out."
        )


@dataclass(frozen=True)
class _Part:
    """Rows start <= t < stop of a recording."""

    recording: Recording
    start: int
    stop: int

    @property
    def name(self) -> str:
        return self.recording.name

    def blocks(self) -> Iterator[Block]:
        offset, is_first = 0, True
        for block in self.recording.blocks():
            low, high = max(self.start - offset, 0), min(self.stop - offset, len(block.values))
            offset += len(block.values)
            if low < high:
                labels = None if block.labels is None else block.labels[low:high]
                time = None if block.time is None else block.time + low
                yield Block(block.values[low:high], is_first or block.starts_segment or low > 0, labels, time)
                is_first = False


def _edges(recording: Recording, fold: tuple[int, ...]) -> list[int]:
    """Where the blocks begin, and where the last one ends."""
    _, n_blocks, thousandths = fold
    n = sum(len(b.values) for b in recording.blocks())
    first = n - round(n * thousandths / 1000)
    return [first + round((n - first) * i / n_blocks) for i in range(n_blocks + 1)]


def _bounds(recording: Recording, fold: tuple[int, ...]) -> tuple[int, int]:
    edges = _edges(recording, fold)
    return edges[fold[0]], edges[fold[0] + 1]


def training_part(recording: Recording, fold: tuple[int, ...]) -> Recording:
    """Return the rows before the held-out block; all of them without a fold."""
    return _Part(recording, 0, _bounds(recording, fold)[0]) if fold else recording


def held_out_part(recording: Recording, fold: tuple[int, ...], n_lags: int) -> Recording:
    """Return the held-out block, with the `n_lags` rows before it that only serve as lags."""
    start, stop = _bounds(recording, fold)
    return _Part(recording, max(start - n_lags, 0), stop)


# Questions about rows that also try nuisances of recordings: what most first sums of a run have in common.


@dataclass(frozen=True, kw_only=True)
class TryingQuestion(RowsQuestion):
    """A question that also asks for products off nuisances of every recording's own.

    Attributes
    ----------
    try_degrees, try_cycles
        For each nuisance to try, the degree of its polynomial in time (0: a mean), and how many of the `try_periods` it has.
    """

    try_degrees: tuple[int, ...] = wholes(0, 12, default=())
    try_cycles: tuple[int, ...] = wholes(0, 12, default=())
    try_periods: tuple[float, ...] = numbers(2.0, 1e9, default=())

    def check(self) -> None:
        """There is a number of cycles for each degree."""
        super().check()
        if len(self.try_degrees) != len(self.try_cycles) or max(self.try_cycles, default=0) > len(
            self.try_periods
        ):
            raise self.wrong(
                "'try_degrees' and 'try_cycles' must be of one length, and of cycles that are named"
            )

    def check_scope(self, scope: Scope) -> None:
        """What is tried is what the study leaves open."""
        super().check_scope(scope)
        n, most = len(self.try_degrees), len(scope.degrees) * (scope.most_cycles + 1)
        scope.require(n <= most, self.name, f"it tries {n} nuisances")
        scope.require(
            set(self.try_degrees) <= {*scope.degrees}, self.name, f"'try_degrees' is {self.try_degrees}"
        )
        n = len(self.try_periods)
        scope.require(n <= scope.most_cycles, self.name, f"it tries {n} cycles")

    @property
    def transformations(self) -> tuple[str, ...]:
        """Also what is tried."""
        tried = {
            "means": bool(self.try_degrees),
            "trends": max(self.try_degrees, default=0) > 0,
            "cycles": max(self.try_cycles, default=0) > 0,
        }
        found = (*super().transformations, *(what for what, is_tried in tried.items() if is_tried))
        return tuple(dict.fromkeys(found))

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Also what is tried."""
        if not self.try_degrees:
            return super().constants
        what = f"nuisances to try (n_lags = {self.n_lags}, fold = {self.fold})"
        return *super().constants, Constant(what, (self.try_degrees, self.try_cycles, self.try_periods))

    @property
    def is_trying(self) -> bool:
        """Whether something is to be decided by the answer: nuisances of recordings, or gains of sites."""
        return bool(self.try_degrees) or self.log_scales is not None

    @property
    def tried(self) -> tuple[Nuisance, ...]:
        """The nuisances to try."""
        pairs = zip(self.try_degrees, self.try_cycles, strict=True)
        return tuple(Nuisance("recording", degree, self.try_periods[:n]) for degree, n in pairs)


# Whether a unit's vector in an answer depends on that unit alone: what noise that protects one unit takes for granted.


def require_separate_units(question: RowsQuestion, unit: str) -> None:
    """Refuse, by what is asked and never by what is there, all that would let one unit change another's vector."""
    if unit not in ("recording", "row"):
        raise ParameterError(f"unit={unit!r} is not known; choose 'recording' or 'row'.", code="unknown-unit")
    if question.log_scales is not None or (question.limits is not None and question.own_limits):
        raise ParameterError(
            "scales of a site's own: one recording would change the rows of others, and noise is fitted to one alone; use "
            "gains='none' and common limits.",
            code="own-scales",
        )
    is_mixing = {
        "row_model": question.row_model is not None,
        "abstain": question.abstain,
        # A site without rows in a block would refuse, which tells something about them.
        "fold": bool(question.fold),
    }
    if any(is_mixing.values()):
        mixing = next(name for name, is_given in is_mixing.items() if is_given)
        raise ParameterError(
            f"{mixing}: noise protects units of rows as they are; leave it out.", code=f"{mixing}-mixes"
        )
    if unit == "recording":
        return
    if question.limits is not None:
        raise ParameterError(
            "limits: what is far is told by the rows around it; protect unit='recording'.", code="limits-mix"
        )
    if question.nuisance.scope != "all":
        raise ParameterError(
            "center='recording' mixes the rows of a recording; protect unit='recording'.", code="center-mixes"
        )


CENTERS = ("auto", "none", "federated", "recording")
# Beyond this ratio of mean to standard deviation, sums of squares about zero lose too many digits.
FAR_FROM_ZERO = 1e3


@dataclass(frozen=True, kw_only=True)
class SummaryQuestion(RowsQuestion):
    """Counts, totals, squares and lag-1 products about an origin."""

    name = "summary"
    draws_once = True
    purpose = "counts, means and variances of single variables"

    origin: FloatArray | None = array("q", default=None)


MOST_ORIGINS = 8
"""Origins about which a run asks for the moments of the same rows: none, the means, and those of each model of rows."""


@dataclass(frozen=True, kw_only=True)
class MomentsQuestion(TryingQuestion):
    """Counts, totals and cross-products about an origin.

    What is tried adds the number of nuisance parameters and the same products off these nuisances. `shape` adds skewness
    and kurtosis of every variable, `known` how many complete rows those with empty cells are worth for each pair of columns
    (`core.statistics.missing.known_pairs`). `clip_bound` is the bound to which sites clip where they add noise.
    """

    name = "moments"
    draws_once = True
    purpose = (
        "lagged means and cross-products of all variables, and if asked the same without means, trends and cycles of "
        "recordings, skewness and kurtosis, and how much rows with empty cells are worth"
    )

    origin: FloatArray | None = array("q", default=None)
    shape: bool = flag(default=False)
    known: bool = flag(default=False)
    clip_bound: float | None = number(0.0, default=None)

    def check_scope(self, scope: Scope) -> None:
        """Only noise needs a bound."""
        super().check_scope(scope)
        has_meaning = self.clip_bound is None or scope.unit is not None
        scope.require(has_meaning, self.name, "'clip_bound' has no meaning without noise")

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Also few origins: which of many is too far for a site to answer would tell its rows."""
        what = f"origins of moments (n_lags = {self.n_lags}, fold = {self.fold})"
        return *super().constants, Constant(what, (self.origin,), MOST_ORIGINS)


def moments_key(question: RowsQuestion, design: Design) -> FloatArray:
    """A digest of what the moments of a question depend on."""
    digest = hashlib.sha256(bytes.fromhex(design.digest) + np.array(question.fold, dtype=np.int64).tobytes())
    digest.update(str(question.far).encode())
    if not question.own_limits:
        digest.update(b"common limits")
    if question.inputs and question.log_scales is not None:
        digest.update(str(question.inputs).encode())
    for given in (question.limits, question.log_scales, question.row_model):
        digest.update(b"none" if given is None else np.ascontiguousarray(given).tobytes())
    return np.frombuffer(digest.digest(), dtype=np.uint8)


def local_moments(
    here: Here, question: RowsQuestion, design: Design | None = None
) -> tuple[SiteState, Moments]:
    """Return the site's moments of the rows a question is about, from its state if it has read them before.

    `design` replaces the question's for a site with other variables or lags. A site that abstains has none.
    """
    state, design = here.state, design or question.design
    if question.abstains(state):
        return state, Moments.empty(design.q)
    key = moments_key(question, design)
    if "moments.key" in state and np.array_equal(state["moments.key"], key):
        return state, Moments(float(state["moments.n"]), state["moments.mean"], state["moments.scatter"])
    total = Moments.empty(design.q)
    for recording in training_parts(here.data, question):
        total = total.merge(recording_moments(design, recording, question.row_model, here.device))
    if total.n == 0:
        if any(len(whole_rows(design, recording)[0]) for recording in training_parts(here.data, question)):
            raise DataError(
                f"every row of this site, or one of the n_lags={design.n_lags} rows before it, has an empty cell; use "
                f"missing='fill', leave out columns that are mostly empty with {Given('variables')}, or leave the site out."
            )
        raise DataError(
            f"no row of this site has n_lags={design.n_lags} rows before it; lower n_lags or leave the site out."
        )
    return _remembered(state, question, design, total), total


def _remembered(state: SiteState, question: RowsQuestion, design: Design, total: Moments) -> SiteState:
    """A state with these moments in it; without any rows there is nothing to remember."""
    if total.n == 0:
        return state
    return {
        **state,
        "moments.key": moments_key(question, design),
        "moments.n": np.array(total.n),
        "moments.mean": total.mean,
        "moments.scatter": total.scatter,
    }


def recording_moments(
    design: Design, recording: Recording, row_model: FloatArray | None, device: Device = HOST
) -> Moments:
    """The moments of one recording: of its complete rows, or of all of them with empty cells filled in as expected."""
    if row_model is None or len(row_model) != design.q + 1:
        return recording_gram(design, CompleteRows(recording), device).moments
    rows, times = whole_rows(design, recording)
    if not np.isnan(rows).any():
        return recording_gram(design, recording, device).moments
    return expected_moments(rows, row_model[1:], row_model[0], nuisance_basis(design.nuisance, times))


def training_parts(data: SiteData, question: RowsQuestion) -> Iterator[Recording]:
    """The recordings a question is about, as it wants their cells."""
    return training_site(question.treated(data), question.fold).recordings()


def asked_moments(here: Here, question: RowsQuestion) -> tuple[SiteState, Moments]:
    """Return the moments a question is about, of a site that holds all of its variables."""
    question.require_variables(here.data)
    return local_moments(here, question)


def _moments(here: Here, question: MomentsQuestion) -> tuple[SiteState, FloatArray]:
    state, tried = _tried(here, question)
    state, moments = asked_moments(replace(here, state=state), question)
    parts = [moments.to_sums(question.origin)]
    if question.is_trying:
        parts += [tried, np.array([moments.n * question.log_gain(here.data)])]
    if question.shape:
        parts.append(
            _shapes(training_site(here.data, question.fold)) if moments.n else np.zeros(2 * question.d + 1)
        )
    if question.known:
        parts.append(upper_triangle(_known(here, question, moments)))
    return state, side_by_side(parts, leading_axes(here.data))


def _known(here: Here, question: MomentsQuestion, moments: Moments) -> FloatArray:
    """(q, q) how many complete rows a site's rows are worth for each pair of columns."""
    q, row_model = question.q, question.row_model
    if row_model is None or moments.n == 0:
        return np.full((q, q), moments.n)
    total = np.zeros((q, q))
    for recording in training_parts(here.data, question):
        total += known_pairs(whole_rows(question.design, recording)[0], row_model[1:])
    return total


def _tried(here: Here, question: MomentsQuestion) -> tuple[SiteState, FloatArray]:
    """Number of parameters and products off each of the nuisances tried.

    The state has the plain moments where the same reading told them.
    """
    question.require_variables(here.data)
    tried, size = question.tried, 1 + question.q * (question.q + 1) // 2
    state, products = here.state, np.zeros(len(tried) * size)
    if not tried or question.abstains(state):
        return state, products
    total = Moments.empty(question.q)
    for recording in training_parts(here.data, question):
        moments, grams = tried_grams(question.design, CompleteRows(recording), tried, here.device)
        parts = [
            part for gram in grams for part in (np.array([gram.n_removed]), upper_triangle(gram.own.scatter))
        ]
        products = products + side_by_side(parts, leading_axes(here.data))
        total = total.merge(moments)
    are_plain = question.row_model is None and question.nuisance == ONE_MEAN
    return (_remembered(state, question, question.design, total) if are_plain else state), products


def _shapes(data: SiteData) -> FloatArray:
    """The shapes of the recordings' first blocks, summed; a long file need not be read again for a hint."""
    total = np.zeros(2 * len(data.variables) + 1)
    for recording in data.recordings():
        block = next(iter(CompleteRows(recording).blocks()), None)
        if block is not None:
            total = total + shape_sums(block.values)
    return total


def _moment_units(here: Here, question: MomentsQuestion, unit: str) -> Iterator[FloatArray]:
    question.require_variables(here.data)
    require_separate_units(question, unit)
    if question.is_trying:
        raise ParameterError(
            f"try_degrees={question.try_degrees}: noise is fitted to one matrix of products, not more."
        )
    if question.known:
        raise ParameterError("known=True: noise is fitted to moments alone, not to what rows are worth.")
    if question.shape:
        raise ParameterError("shape=True: the shape of the data has no bound to which noise could be fitted.")
    for recording in training_parts(here.data, question):
        if unit == "row":
            yield from row_sums(question.design, CompleteRows(recording), question.origin)
        else:
            yield recording_moments(question.design, recording, None).to_sums(question.origin)


answers(
    MomentsQuestion,
    _moment_units,
    lambda question: sums_length(question.q),
    together=lambda question: question.is_plain,
    own=("moments.mean", "moments.scatter"),
)(_moments)


def row_sums(design: Design, recording: Recording, origin: FloatArray | None = None) -> Iterator[FloatArray]:
    """Yield what each row of a recording adds to a sum of moments."""
    for rows in design_rows(design, recording.blocks()):
        for row in rows.values:
            yield Moments.of_rows(row[None]).to_sums(origin)


@answers(SummaryQuestion)
def _summary_answer(here: Here, question: SummaryQuestion) -> tuple[SiteState, FloatArray]:
    state, moments = asked_moments(here, question)
    d = question.d
    centre = np.zeros(moments.q) if question.origin is None else question.origin
    cross = moments.about(centre)
    lagged = np.diag(cross, k=d)[:d] if moments.q > d else np.zeros(d)
    return state, np.concatenate([[moments.n], moments.n * (moments.mean - centre), np.diag(cross), lagged])


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
    question = SummaryQuestion(n_lags=n_lags, variables=variables, center=center)
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
