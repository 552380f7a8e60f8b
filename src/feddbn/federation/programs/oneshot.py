"""The one-round method as a short program of sums.

``moments``             count, totals and cross-products of lagged rows; one sum
``residual-features``   sums of nonlinear functions of standardised residuals; only to direct edges that
                        second moments leave open, or to review all edges if equal variances were assumed, and
                        only while the noise is not Gaussian
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar, cast

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.lambda_path import learn_by_path
from feddbn.core.orders.learn import (
    STRONG_EVIDENCE,
    EdgeOrientation,
    Learned,
    LearnOptions,
    choose_lags,
    firmness_of,
    learn_network,
)
from feddbn.core.orders.nongaussian import (
    N_FEATURES,
    Edge,
    Network,
    ShapedScores,
    gaussian_p,
    node_residuals,
    shape_p_value,
    tail_weight,
    without_one_edge,
)
from feddbn.core.orders.search import NoiseVariance, OrderResult
from feddbn.core.statistics.dependence import dependences
from feddbn.core.statistics.known_inputs import neutral_inputs, outputs_of
from feddbn.core.statistics.moments import Moments
from feddbn.core.statistics.scaling import safe_roots
from feddbn.data.checks import check_variances
from feddbn.errors import DataError
from feddbn.federation.programs.residual_features import ResidualsQuestion
from feddbn.federation.programs.treatment import AskedMoments, asked_moments_program
from feddbn.federation.programs.wishes import Wishes
from feddbn.federation.protocol.rows import treated
from feddbn.federation.protocol.task import ServerProgram, Task

__all__ = [
    "NonGaussianReport",
    "OneShotOptions",
    "OneShotOutcome",
    "counted",
    "first_look",
    "learn_from_moments",
    "oneshot_program",
]

T = TypeVar("T")

UNDECIDED = 20.0
"""If any direction is open, those with a smaller score difference than this are put to the noise, too."""
OVERSTATED = 100.0
"""The same if the difference comes from equal variances: by heavy tails it may be several times too large."""
MAX_DIRECTION_SUMS = 8
GAUSSIAN_LEVEL = 0.01
WORTH_A_LOOK = 0.01
"""With equal variances the residuals' shape is asked for if that of the variables is less probable than this."""


@dataclass(frozen=True)
class OneShotOptions:
    """What `oneshot_program` is asked for.

    Attributes
    ----------
    n_lags
        Number of lags, or the largest to consider with `choose_n_lags`.
    choose_n_lags
        Choose the number of lags by the score.
    wishes
        What is done to the rows first. The intercept is always fitted.
    scale
        "none" or "federated": whether the search sees variables scaled to unit variance.
    use_nongaussian
        "auto": only if the residuals are clearly not Gaussian.
    learn
        How the server learns.
    """

    n_lags: int = 1
    choose_n_lags: bool = False
    wishes: Wishes = field(default_factory=Wishes)
    scale: Literal["none", "federated"] = "none"
    use_nongaussian: bool | Literal["auto"] = "auto"
    learn: LearnOptions = field(default_factory=LearnOptions)


@dataclass(frozen=True)
class NonGaussianReport:
    """Whether the residuals are Gaussian, and what was made of it.

    Attributes
    ----------
    used
        Whether directions were decided by higher moments.
    p_value
        Smallest p-value of the test that a residual is Gaussian, times d.
    n_changed
        Entries of [W; A] that changed.
    """

    used: bool
    p_value: float
    n_changed: int


@dataclass(frozen=True)
class OneShotOutcome:
    """What the server ends with: the network, the moments (original units), the number of lags and sums.

    `asked` is what the first sum told, `dependent` says which variables follow from others.
    """

    learned: Learned
    moments: Moments
    n_lags: int
    lag_scores: FloatArray | None
    nongaussian: NonGaussianReport | None
    n_sums: int
    asked: AskedMoments | None = None
    dependent: tuple[str, ...] = ()


def oneshot_program(
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
    rng: np.random.Generator,
) -> ServerProgram[OneShotOutcome]:
    """Ask for the moments, learn, and direct what is left open by the noise if it is not Gaussian."""
    may_ask = bool(options.use_nongaussian) and options.learn.lambdas is None
    # Whether equal variances are all there is to see is found out along the way, not by a sum of its own.
    shaped = options.use_nongaussian == "auto" and may_ask
    program = asked_moments_program(variables, options.n_lags, options.wishes, shaped)
    asked_for, n_sums = yield from counted(program)
    shape = asked_for.shape
    outcome = learn_from_moments(asked_for.moments, variables, constraints, options, rng)
    learned, report = outcome.learned, None
    inputs = options.wishes.input_places(variables)
    looks_gaussian = shape is not None and shape_p_value(_of_outputs(shape, inputs)) > WORTH_A_LOOK
    # Shapes are told apart by residuals whose variance is exactly one; of the complete rows among others it is not.
    may_ask = may_ask and asked_for.treatment.row_model is None
    if may_ask and not (learned.noise.kind == "equal" and looks_gaussian):
        improving = _improve_by_noise(
            outcome.moments, variables, outcome.n_lags, learned, options, asked_for.center
        )
        learned, report, asked = yield from treated(improving, asked_for.treatment)
        n_sums += asked
    return replace(outcome, learned=learned, nongaussian=report, n_sums=n_sums, asked=asked_for)


def learn_from_moments(
    moments: Moments,
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
    rng: np.random.Generator,
) -> OneShotOutcome:
    """What the server learns from the sum of moments alone, without any further sum."""
    d, p = len(variables), options.n_lags
    working = first_look(moments, variables, options)
    inputs = options.wishes.input_places(variables)
    lag_scores = None
    if options.choose_n_lags:
        kind: NoiseVariance = "equal" if options.learn.noise_variance == "equal" else "free"
        p, lag_scores = choose_lags(working, d, p, constraints, options.learn.criterion, kind)
        kept = np.arange((p + 1) * d)
        working, moments = working.select(kept), moments.select(kept)
        constraints = EdgeConstraints(constraints.allowed[kept], constraints.required[kept])
    dependent = _dependent(moments, variables, inputs)
    if options.learn.lambdas is not None:
        learned = learn_by_path(working, d, p, constraints, options.learn)
    else:
        learned = learn_network(working, d, p, constraints, options.learn, rng)
    return OneShotOutcome(learned, moments, p, lag_scores, None, 0, dependent=dependent)


def first_look(moments: Moments, variables: tuple[str, ...], options: OneShotOptions) -> Moments:
    """The moments as the search wants them; DataError if there is too little to learn from."""
    d, p = len(variables), options.n_lags
    _require_rows(moments, p)
    # Large means were asked about an origin near them, so only rounding of the values themselves is left.
    check_variances(variables, np.diag(moments.scatter)[:d] / moments.n, moments.mean[:d], rtol=1e-28)
    working = moments
    if options.scale == "federated":
        sd = safe_roots(np.diag(moments.scatter)[:d] / moments.n)
        working = moments.scaled(np.tile(sd, p + 1))
    # How an input varies is no noise: it must not count where noise variances are compared or added up.
    return neutral_inputs(working, d, options.wishes.input_places(variables))[0]


def _of_outputs(shape: FloatArray, inputs: tuple[int, ...]) -> FloatArray:
    """Sums of shapes without those of inputs."""
    d = len(shape) // 2
    return np.delete(shape, [1 + block * d + j for block in (0, 1) for j in inputs])


def _dependent(moments: Moments, variables: tuple[str, ...], inputs: tuple[int, ...] = ()) -> tuple[str, ...]:
    """A sentence for each variable that follows from others; DataError if all follow from one."""
    d = len(variables)
    found = dependences(moments.scatter, moments.n, d, inputs)
    sentences = tuple(one.sentence(variables) for one in found)
    if len(found) == d - 1 and d > 1 and all(one.others == (0,) for one in found):
        raise DataError(
            f"all variables follow from {variables[0]}, so no edge can be learned: {sentences[0]}"
        )
    return sentences


def _improve_by_noise(
    moments: Moments,
    variables: tuple[str, ...],
    n_lags: int,
    learned: Learned,
    options: OneShotOptions,
    center: str,
) -> ServerProgram[tuple[Learned, NonGaussianReport | None, int]]:
    """Move to neighbouring networks that the shape of the noise favours, until none is better.

    Neighbours: for every edge whose direction second moments do not decide, the best network with its ends
    exchanged; with equal variances, whose evidence heavy tails overstate, also the network without an edge.
    """
    equal = learned.noise.kind == "equal"
    if not equal and all(e.oriented for e in learned.orientation):
        return learned, None, 0
    search, d = learned.search, learned.search.d
    start = search.adopt(learned.support) if equal else learned.network
    scores = ShapedScores(search)

    def ask(networks: Sequence[Network]) -> ServerProgram[tuple[FloatArray, float] | None]:
        jobs = scores.unknown(networks)
        if not jobs:
            return None
        residuals = node_residuals(moments, jobs)
        question = ResidualsQuestion(
            n_lags=n_lags,
            variables=variables,
            center=center,
            coefficients=residuals.coefficients,
            offset=residuals.offset,
        )
        answer = yield Task(question)
        n, features = float(answer.value[0]), answer.value[1:].reshape(N_FEATURES, -1)
        scores.learn(jobs, features, n)
        return features, n

    first = yield from ask([start.parents])
    assert first is not None
    # Its jobs are one for each variable, in order; inputs have no noise whose shape could tell something.
    outputs = outputs_of(d, options.wishes.input_places(variables))
    first = first[0][:, outputs], first[1]
    p_value, n_sums = min(float(gaussian_p(*first).min()) * len(outputs), 1.0), 1
    if options.use_nongaussian == "auto" and p_value > GAUSSIAN_LEVEL:
        return learned, NonGaussianReport(False, p_value, 0), n_sums
    scores.tails = tail_weight(*first)
    # Equal variances have decided about every edge; to overrule them takes strong evidence.
    undecided, enough = (OVERSTATED, STRONG_EVIDENCE) if equal else (UNDECIDED, 0.0)
    open_edges = [(e.source, e.target) for e in learned.orientation if e.score_difference < undecided]
    best = start
    differences: dict[Edge, float] = {}
    while n_sums < MAX_DIRECTION_SUMS:
        turned = {edge: search.best_reversed(best, *edge) for edge in open_edges}
        shorter = without_one_edge(best.parents) if equal else {}
        others = [other.parents for other in turned.values() if other is not None]
        n_sums += (yield from ask([*others, *shorter.values()])) is not None
        here = scores.of(best.parents)
        differences = {
            edge: np.inf if other is None else scores.of(other.parents) - here
            for edge, other in turned.items()
        }
        wrong = min(differences, key=lambda e: differences[e], default=None)
        useless = [edge for edge, other in shorter.items() if scores.of(other) < here - enough]
        if wrong is not None and differences[wrong] < -enough:
            # With an edge turned, others may be needed after all.
            best = cast(OrderResult, turned[wrong])
        elif useless:
            best = search.adopt(_without(best.support, useless))
        else:
            break
        support = best.support
        open_edges = [
            (i, j) if support[i, j] else (j, i) for i, j in open_edges if support[i, j] or support[j, i]
        ]
    if best is start:
        support, order, score = learned.support, learned.order, learned.score
    else:
        chosen = best if equal else search.select_edges(best, options.learn.criterion)
        support, order, score = chosen.support, chosen.order, chosen.score
    firm = [
        EdgeOrientation(i, j, max(float(value), 0.0), bool(value >= STRONG_EVIDENCE))
        for (i, j), value in differences.items()
    ]
    asked = {(e.source, e.target) for e in firm}
    firm += [e for e in learned.orientation if (e.source, e.target) not in asked]
    directed = replace(
        learned, support=support, order=order, score=score, orientation=tuple(firmness_of(support, firm))
    )
    n_changed = int((support != learned.support).sum())
    return directed, NonGaussianReport(True, p_value, n_changed), n_sums


def _without(support: BoolArray, edges: Sequence[Edge]) -> BoolArray:
    """The network without edges, but of those to one node the first only: it may have made the others useless."""
    rest = support.copy()
    for i, j in edges:
        if np.array_equal(rest[:, j], support[:, j]):
            rest[i, j] = False
    return rest


def _require_rows(moments: Moments, n_lags: int) -> None:
    if moments.n < 5:
        raise DataError(
            f"learning needs at least 5 usable rows over all sites, got {int(moments.n)}; a row is usable if "
            f"its "
            f"n_lags={n_lags} predecessors are in the same segment."
        )


def counted(program: ServerProgram[T]) -> ServerProgram[tuple[T, int]]:
    """The same program, which also says how many sums it asked for."""
    n_sums = 0
    try:
        task = next(program)
        while True:
            n_sums += 1
            task = program.send((yield task))
    except StopIteration as end:
        result: T = end.value
        return result, n_sums
