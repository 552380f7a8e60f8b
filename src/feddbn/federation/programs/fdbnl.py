"""FDBNL over sums, by three schedules.

    gram     the summed Gram matrix, which the first sums ask for anyway; the rest is the server's (`core.fdbnl.dynotears`)
    rounds   one sum of gradients per round, for sites that must not send their second moments in one piece
    paper    [fdbnl] Algorithm 1: one sum of ``C_k + U_k / (rho2 D)`` per round

`core.fdbnl.server` makes the steps in all of them. In rounds a site keeps its Gram matrix, and for the paper's schedule its
eigendecomposition, C_k and U_k. Where sites weigh the same whatever their rows, the matrix that the first sums give is the
wrong one, and "gram" asks for one sum more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.backend.device import open_device
from feddbn.core.fdbnl.best_order import OPTIMA
from feddbn.core.fdbnl.dynotears import penalty_matrix, solve_dynotears
from feddbn.core.fdbnl.path import RunOptions
from feddbn.core.fdbnl.schedules import Schedule, make_schedule
from feddbn.core.fdbnl.server import ConsensusRun
from feddbn.core.fdbnl.site import Ask, Consensus, Decomposed, gradient_answers
from feddbn.core.graphs.acyclicity import get_acyclicity
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.statistics.moments import symmetric, upper_triangle
from feddbn.data.checks import check_variances
from feddbn.errors import ParameterError
from feddbn.federation.programs.prepare import AS_THEY_ARE, Prepare, flat_prepare
from feddbn.federation.programs.statistics import (
    SCALES,
    Preparation,
    ScaleChoice,
    asked_moments,
    choose_scale,
    prepare,
    summary_of_moments,
    summary_program,
)
from feddbn.federation.programs.treatment import AskedMoments, asked_moments_program
from feddbn.federation.protocol.rows import RowsQuestion, treated
from feddbn.federation.protocol.site import Here, Memo, Record, SiteState, SiteTask, register_site_task
from feddbn.federation.protocol.task import Constant, Scope, ServerProgram, Task, array, choice, number, whole

__all__ = [
    "MOST_ROUNDS",
    "WEIGHTINGS",
    "ConsensusFit",
    "ConsensusSettings",
    "StepQuestion",
    "check_summary",
    "consensus_options",
    "fdbnl_program",
    "fit_of_moments",
    "prepared_program",
    "run_options",
]

WEIGHTINGS = ("samples", "sites")
MOST_ROUNDS = 1000
"""Rounds of a fit, unless the user says otherwise."""
_LIMITS = ("h_tol", "tol", "max_rounds", "w_threshold", "a_threshold", "refit", "optimum")


@dataclass(frozen=True)
class ConsensusSettings:
    """What the user chose; names as in the public contract."""

    n_lags: int
    lambda_w: float
    lambda_a: float
    schedule: str = "gram"
    weighting: str = "samples"
    rho1: float | None = None
    rho2: float | None = None
    phi1: float | None = None
    phi2: float | None = None
    max_rounds: int = MOST_ROUNDS
    h_tol: float = 1e-8
    tol: float = 1e-6
    w_threshold: float = 0.0
    a_threshold: float = 0.0
    refit: bool = True
    center: str = "auto"
    detrend: int | str = 0
    period: tuple[float, ...] | float | str | None = ()
    gains: str = "none"
    spikes: str = "keep"
    missing: str = "drop"
    on_disagreement: str = "ignore"
    exogenous: Sequence[str] | None = None
    scale: str = "auto"
    acyclicity: str = "expm"
    optimum: str = "order"
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("lambda_w", "lambda_a", "w_threshold", "a_threshold"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise ParameterError(f"{name}={value!r} must be a number of at least 0.")
        for name in ("h_tol", "tol"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise ParameterError(f"{name}={value!r} must be positive.")
        if isinstance(self.max_rounds, bool) or not isinstance(self.max_rounds, int) or self.max_rounds < 1:
            raise ParameterError(f"max_rounds={self.max_rounds!r} must be a whole number of at least 1.")
        if isinstance(self.n_lags, bool) or not isinstance(self.n_lags, (int, np.integer)) or self.n_lags < 0:
            raise ParameterError(f"n_lags={self.n_lags!r} must be a whole number of at least 0.")
        for name in ("rho2", "phi2"):
            if self.schedule != "paper" and getattr(self, name) is not None:
                raise ParameterError(
                    f"{name}={getattr(self, name)!r} has no use with schedule={self.schedule!r}; leave it out or choose "
                    "schedule='paper'."
                )
        for name, words in (("weighting", WEIGHTINGS), ("optimum", OPTIMA), ("scale", SCALES)):
            value = getattr(self, name)
            if value not in words:
                raise ParameterError(f"{name}={value!r} is not known; choose one of {', '.join(words)}.")
        if self.optimum == "exact" and self.schedule == "paper":
            raise ParameterError(
                "optimum='exact' needs schedule='gram' or 'rounds'; the paper's schedule has its own path."
            )

    @property
    def wishes(self) -> Prepare:
        """What is to be done to the rows first; "federated" centring comes after that."""
        return flat_prepare(self)

    def make_schedule(self, n_sites: int, total_weight: float) -> Schedule:
        """Return the schedule that was chosen, with the numbers that were given."""
        given = {name: getattr(self, name) for name in ("rho1", "rho2", "phi1", "phi2")}
        return make_schedule(self.schedule, n_sites, total_weight, **given)


@dataclass(frozen=True)
class ConsensusFit:
    """A finished run with the preparation of its data; weights are those of the prepared variables."""

    run: ConsensusRun
    preparation: Preparation
    total_weight: float
    asked: AskedMoments | None = None
    scale: ScaleChoice | None = None


def run_options(
    settings: ConsensusSettings, preparation: Preparation, constraints: EdgeConstraints, schedule: Schedule
) -> RunOptions:
    """Return the options of a run with this schedule."""
    return RunOptions(
        penalty=penalty_matrix(constraints, settings.lambda_w, settings.lambda_a),
        # The paper's proximal term is unweighted; the adaptive one is in units of the sources' variances.
        metric=preparation.metric if schedule.is_adaptive else np.ones(len(constraints.allowed)),
        constraints=constraints,
        schedule=schedule,
        acyclicity=get_acyclicity(settings.acyclicity, open_device(settings.device)),
        n_rows=preparation.summary.n,
        **{name: getattr(settings, name) for name in _LIMITS},
    )


def consensus_options(
    settings: ConsensusSettings, preparation: Preparation, constraints: EdgeConstraints, n_sites: int
) -> tuple[RunOptions, float]:
    """Return the options of the core solver and the sum of the sites' weights."""
    total_weight = 1.0 if settings.weighting == "samples" else float(n_sites)
    schedule = settings.make_schedule(n_sites, total_weight)
    return run_options(settings, preparation, constraints, schedule), total_weight


def check_summary(variables: tuple[str, ...], preparation: Preparation) -> None:
    """Raise if a variable is constant over the whole federation, or the federation has a single row."""
    d = len(variables)
    # The summary was taken about the means where these are large, so only a true constant is left with this little.
    summary = preparation.summary
    check_variances(variables, summary.variance[:d], summary.mean[:d], rtol=1e-28)


@dataclass(frozen=True)
class Prepared:
    """What a run's first sums have settled.

    Attributes
    ----------
    preparation
        For the rounds.
    center
        "none" or "recording": what sites take off their rows.
    asked
        The sum that decided about levels, or None.
    scale
        Which units penalties act on, and why.
    """

    preparation: Preparation
    center: str
    scale: ScaleChoice
    asked: AskedMoments | None = None

    @property
    def reported(self) -> Preparation:
        """The preparation of the network: where recordings were centred, levels are those of the average recording."""
        if self.asked is None or self.center == "none":
            return self.preparation
        return replace(self.preparation, center=self.asked.moments.mean)


def prepared_program(
    settings: ConsensusSettings, variables: tuple[str, ...], n_sites: int, *, one_network: bool = True
) -> ServerProgram[Prepared]:
    """Ask for what rounds need first: means and variances.

    With ``center="auto"`` also whether recordings have levels of their own, with ``scale="auto"`` whether noise differs.
    These take a sum of moments instead of a summary.
    """
    d, wishes = len(variables), settings.wishes.among(n_sites)
    inputs = wishes.input_places(variables)
    if wishes.is_settled:
        center = "recording" if settings.center == "recording" else "none"
        if settings.scale == "auto":
            known = yield from asked_moments_program(
                variables, settings.n_lags, replace(AS_THEY_ARE, center=center)
            )
            summary = summary_of_moments(known.moments, d)
            scale = choose_scale("auto", d, known.moments, one_network=one_network, inputs=inputs)
        else:
            summary = yield from summary_program(variables, settings.n_lags, center)
            scale = ScaleChoice(settings.scale)
        found = Prepared(prepare(summary, d, settings.center, scale.rule), center, scale)
    else:
        asked = yield from asked_moments_program(variables, settings.n_lags, wishes)
        # Sites weigh themselves by the rows they count.
        summary, rule = replace(summary_of_moments(asked.moments, d), n=asked.n_rows), settings.center
        if asked.center == "recording":
            summary, rule = replace(summary, mean=np.zeros_like(summary.mean)), "recording"
        scale = choose_scale(settings.scale, d, asked.moments, one_network=one_network, inputs=inputs)
        preparation = replace(prepare(summary, d, rule, scale.rule), treatment=asked.treatment)
        found = Prepared(preparation, asked.center, scale, asked)
    check_summary(variables, found.preparation)
    return found


def fdbnl_program(
    settings: ConsensusSettings,
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    n_sites: int,
    wishes: Prepare | None = None,
) -> ServerProgram[ConsensusFit]:
    """Yield the tasks of one FDBNL run; the result is a `ConsensusFit`.

    `wishes` is what is to be done to the rows, where the sites do not answer all that the settings wish for.
    """
    if settings.schedule == "gram" and settings.weighting == "samples":
        wishes = settings.wishes.among(n_sites) if wishes is None else wishes
        asked = yield from asked_moments_program(variables, settings.n_lags, wishes)
        return fit_of_moments(settings, variables, constraints, asked)
    prepared = yield from prepared_program(settings, variables, n_sites)
    rounds = _rounds_program(settings, variables, constraints, n_sites, prepared)
    return (yield from treated(rounds, prepared.preparation.treatment))


def fit_of_moments(
    settings: ConsensusSettings, variables: tuple[str, ...], constraints: EdgeConstraints, asked: AskedMoments
) -> ConsensusFit:
    """Return the fit to the moments of all rows; no sum is needed."""
    d, moments = len(variables), asked.moments
    scale = choose_scale(settings.scale, d, moments, inputs=settings.wishes.input_places(variables))
    summary = replace(summary_of_moments(moments, d), n=asked.n_rows)
    rule = settings.center if asked.center == "none" else "recording"
    preparation = replace(prepare(summary, d, rule, scale.rule), treatment=asked.treatment)
    check_summary(variables, preparation)
    options, _ = consensus_options(settings, preparation, constraints, 1)
    G = moments.standardised(preparation.center, preparation.scale)
    run = solve_dynotears(G, options, device=open_device(settings.device))
    return ConsensusFit(run, preparation, 1.0, asked, scale)


def _rounds_program(
    settings: ConsensusSettings,
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    n_sites: int,
    prepared: Prepared,
) -> ServerProgram[ConsensusFit]:
    preparation = prepared.preparation
    options, total_weight = consensus_options(settings, preparation, constraints, n_sites)
    run = ConsensusRun(options)

    def question(ask: Ask) -> StepQuestion:
        return StepQuestion(
            n_lags=settings.n_lags,
            variables=variables,
            center=prepared.center,
            weighting=settings.weighting,
            n_total=preparation.summary.n,
            round=run.round,
            ask=ask.value,
            rho2_before=run.rho2_before,
            rho2=run.rho2,
            relaxation=run.relaxation,
            C=run.C,
            origin=preparation.center,
            scale=preparation.scale,
            metric=options.metric,
        )

    if settings.schedule == "gram":
        answer = yield Task(question(Ask.GRAM))
        G = symmetric(answer.value, len(preparation.center))
        run = solve_dynotears(G, options, device=open_device(settings.device))
    while not run.is_done:
        answer = yield Task(question(run.ask), note=run.note)
        run.advance(answer.value, len(answer.contributors), answer.contributors)
    return ConsensusFit(run, prepared.reported, total_weight, prepared.asked, prepared.scale)


@dataclass(frozen=True, kw_only=True)
class StepQuestion(RowsQuestion):
    """One round of FDBNL about the broadcast weights C of variables ``(z - origin) / scale``."""

    name = "fdbnl-step"
    purpose = (
        "one round of FDBNL: gradients, local weights plus scaled multipliers, or the weighted cross-products"
    )

    weighting: str = choice(*WEIGHTINGS)
    n_total: float = number(1.0)
    round: int = whole()
    ask: str = choice(*(ask.value for ask in Ask))
    rho2_before: float = number(0.0)
    rho2: float = number(0.0)
    relaxation: float = number(0.0, 2.0)
    C: FloatArray = array("q", "d")
    origin: FloatArray = array("q")
    scale: FloatArray = array("q")
    metric: FloatArray = array("q")

    def check_scope(self, scope: Scope) -> None:
        """Sites weigh as the study says, and answer with what its schedule asks for.

        Sums with two weights would tell more than one. Local weights are not linear in a site's moments: sums for penalties
        that a server chooses would tell sites apart.
        """
        super().check_scope(scope)
        given = scope.parameters
        weighting = given.get("weighting", WEIGHTINGS[0])
        scope.require(self.weighting == weighting, self.name, f"'weighting' is {self.weighting!r}")
        schedule = given.get("schedule", "gram")
        if schedule == "paper":
            self._check_paper(scope)
        else:
            ask = Ask.GRAM if schedule == "gram" else Ask.GRADIENT
            scope.require(self.ask == ask.value, self.name, f"'ask' is {self.ask!r}")

    def _check_paper(self, scope: Scope) -> None:
        """The paper's rounds have one metric, one beginning, and penalties that the study gives."""
        most = scope.parameters.get("max_rounds", MOST_ROUNDS)
        scope.require(self.round <= most, self.name, f"'round' is {self.round}")
        ask = Ask.STEP if self.round else Ask.ZERO
        scope.require(self.ask == ask.value, self.name, f"'ask' is {self.ask!r} in round {self.round}")
        scope.require(bool((self.metric == 1.0).all()), self.name, "'metric' is not 1 throughout")
        given = {name: scope.parameters.get(name) for name in ("rho2", "phi2")}
        schedule = make_schedule("paper", 1, 1.0, **given)
        for name in ("rho2", "rho2_before"):
            value = getattr(self, name)
            scope.require(schedule.has_rho2(value, self.round), self.name, f"{name!r} is {value:g}")

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Also the units of the variables, which the first sums have settled."""
        units = (self.n_total, self.origin, self.scale, self.metric)
        return *super().constants, self.settled_once("units of rounds", units)

    @property
    def told_rows(self) -> float | None:
        """Sites weigh themselves by it."""
        return self.n_total if self.weighting == "samples" else None


@dataclass(frozen=True)
class _Gram(Record):
    """What every round needs: the sites' ``w_k G_k``."""

    prefix = "fdbnl"
    version = 2

    wG: FloatArray


@dataclass(frozen=True)
class _Consensus(Record):
    """What the paper's rounds keep besides."""

    prefix = "fdbnl.consensus"
    version = 2

    V: FloatArray
    e: FloatArray
    C: FloatArray
    U: FloatArray


def _weighted_gram(here: Here, question: StepQuestion) -> tuple[SiteState, FloatArray]:
    """Return the site's ``w_k G_k`` (q, q) about the federation's centre, in its scale; the state keeps the moments."""
    state, moments = asked_moments(here, question)
    if moments.n == 0:
        return state, np.zeros((question.q, question.q))
    G = moments.standardised(question.origin, question.scale)
    return state, G * (moments.n / question.n_total if question.weighting == "samples" else 1.0)


def _step(
    sites: Sequence[Here], question: StepQuestion, memo: Memo
) -> tuple[Sequence[SiteState], FloatArray]:
    states: Sequence[SiteState] = [here.state for here in sites]
    if question.round == 0:
        grams = [_weighted_gram(here, question) for here in sites]
        wG = np.stack([wG for _, wG in grams])
        states = _Gram(wG).kept([state for state, _ in grams])
    else:
        wG = _Gram.read(states).wG
    ask, C = Ask(question.ask), question.C
    if ask is Ask.GRAM:
        return states, upper_triangle(wG)
    if ask is Ask.GRADIENT:
        return states, gradient_answers(wG, C, sites[0].device)
    if ask is Ask.ZERO:
        problem = Decomposed.of(wG, question.metric)
        before = Consensus(*np.zeros((2, len(wG), *C.shape)))
    else:
        known = _Consensus.read(states, memo, sites[0].name)
        problem, before = Decomposed(wG, known.V, known.e, question.metric), Consensus(known.C, known.U)
    after, vectors = before.answers(problem, ask, C, question.rho2_before, question.rho2, question.relaxation)
    kept = _Consensus(problem.V, problem.e, after.C, after.U)
    return kept.kept(states, None if ask is Ask.ZERO else ("C", "U"), memo, sites[0].name), vectors


def _adds_up(question: StepQuestion) -> tuple[str, ...]:
    """A gradient is linear in w_k G_k, once a site has it."""
    return ("fdbnl.wG",) if question.round and question.ask == Ask.GRADIENT.value else ()


register_site_task(SiteTask(StepQuestion, _step, adds_up=_adds_up))
