"""FDBNL over sums, by two schedules.

    gram     the summed Gram matrix, which the first sums ask for anyway; the rest is the server's (`PenalisedLearner`)
    paper    [fdbnl] Algorithm 1: one sum of ``C_k + U_k / (rho2 D)`` per round

`core.penalised` makes the steps in both. In the paper's rounds a site keeps its Gram matrix with its eigendecomposition, C_k
and U_k. Where sites weigh the same whatever their rows, the matrix that the first sums give is the
wrong one, and "gram" asks for one sum more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.penalised.acyclicity import ACYCLICITIES
from feddbn.core.penalised.consensus import Ask, Consensus, ConsensusRun, Decomposed
from feddbn.core.penalised.path import Schedule, make_schedule
from feddbn.core.penalised.pooled import OPTIMA, PenalisedLearner, PooledRun
from feddbn.core.statistics.diagnostics import (
    ColumnStatistics,
    ScaleChoice,
    choose_scale,
    summary_of_moments,
)
from feddbn.core.statistics.enough import check_variances
from feddbn.core.statistics.moments import symmetric, upper_triangle
from feddbn.errors import ParameterError
from feddbn.federation.protocol import task as asked_for
from feddbn.federation.protocol.rows import RowsQuestion, treated
from feddbn.federation.protocol.site import Here, Record, SiteState, SiteTask, register_site_task
from feddbn.federation.protocol.task import Constant, Plan, Planned, Scope, ServerProgram, Task, array, choice
from feddbn.federation.sums.gram import asked_moments
from feddbn.federation.sums.prepare import AS_THEY_ARE, Prepare, PreparedSettings
from feddbn.federation.sums.statistics import Preparation, prepare, summary_program
from feddbn.federation.sums.treatment import AskedMoments, asked_moments_plan, asked_moments_program
from feddbn.settings import Rule, Settings, edges, flag, group, nothing, number, setting, whole, word

SCHEDULES = ("gram", "paper")
WEIGHTINGS = ("samples", "sites")
MOST_ROUNDS = 1000
"""Rounds of a fit, unless the user says otherwise."""


@dataclass(frozen=True, repr=False)
class Rounds(Settings):
    """How a solver goes on, and when it ends: in rounds over sites, or in steps at the server.

    Examples
    --------
    >>> import feddbn
    >>> feddbn.FDBNL(schedule="paper", rounds=feddbn.Rounds(max_rounds=300))
    FDBNL(rounds=Rounds(max_rounds=300), schedule='paper')
    """

    rho1: float | None = setting(
        None, number(above=0) | nothing(), "Initial penalty on cycles. None: set by the schedule."
    )
    rho2: float | None = setting(
        None,
        number(above=0) | nothing(),
        'Initial penalty on differences between sites; only for schedule "paper".',
    )
    phi1: float | None = setting(
        None, number(1) | nothing(), "Factor by which rho1 grows. None: set by the schedule."
    )
    phi2: float | None = setting(
        None, number(1) | nothing(), 'Factor by which rho2 grows; only for schedule "paper".'
    )
    max_rounds: int = setting(
        MOST_ROUNDS,
        whole(1),
        "Largest number of rounds, or of the server's steps if it solves the problem alone.",
    )
    h_tol: float = setting(1e-8, number(above=0), "Tolerance for cycles at convergence.")
    tol: float = setting(1e-6, number(above=0), "Tolerance for the solver's residuals at convergence.")
    acyclicity: str = setting(
        "expm", word(*ACYCLICITIES), 'Measure of cycles: "expm" (the paper) or "logdet".'
    )

    def schedule(self, name: str, n_sites: int, total_weight: float) -> Schedule:
        """Return the schedule of this name, with the numbers that were given."""
        given = {each: getattr(self, each) for each in ("rho1", "rho2", "phi1", "phi2")}
        return make_schedule(name, n_sites, total_weight, **given)

    def check_use(self, schedule: str) -> None:
        """Refuse numbers that a schedule has no use for."""
        for name in ("rho2", "phi2") if schedule != "paper" else ():
            if getattr(self, name) is not None:
                raise ParameterError(
                    f"rounds.{name}={getattr(self, name)!r} has no use with schedule={schedule!r}; leave it out or choose "
                    "schedule='paper'."
                )


@dataclass(frozen=True, repr=False)
class PenalisedSettings(PreparedSettings):
    """What a person may choose of a method that solves the penalised problem."""

    n_lags: int | str = setting(
        1,
        whole(0) | word("auto"),
        'Number of lags p; 0 learns a static network (NOTEARS-ADMM). "auto": chosen by held-out loss.',
        kw_only=False,
    )
    lambda_w: float | str = setting(
        0.05,
        number(0) | word("auto"),
        'L1 penalty of contemporaneous edges. "auto": chosen by held-out loss (see `feddbn.select`).',
        kw_only=False,
    )
    lambda_a: float | str = setting(
        0.05,
        number(0) | word("auto"),
        'L1 penalty of lagged edges. "auto": chosen by held-out loss.',
        kw_only=False,
    )
    rounds: Rounds = setting(
        Rounds(),
        group(Rounds),
        "Settings of the solver: penalties, number of rounds, tolerances (`feddbn.Rounds`).",
    )
    w_threshold: float = setting(0.2, number(0), "Smaller contemporaneous weights are not edges.")
    a_threshold: float = setting(0.2, number(0), "Smaller lagged weights are not edges.")
    refit: bool = setting(
        True,
        flag(),
        "True: refit the chosen edges without penalty, then remove small weights. False: no refit, as in the paper.",
    )
    forbidden_edges: Any = setting(
        None,
        edges(),
        'Edges (from, to, lag) that must not exist, by name or position; "*" means every variable.',
    )
    required_edges: Any = setting(None, edges(), "Edges that must exist, in the same form.")
    optimum: str = setting(
        "order",
        word(*OPTIMA),
        'The problem has many local optima. "order": search for the best order of the variables; for up to about a dozen '
        'variables, the result is proven to be the global optimum (`certificate_`). "exact": the same with up to 50 times '
        'the work, for about twenty. "path": the optimum that the solver reaches. The search needs no further sums. Above '
        '200 variables, "order" uses the order found by OneShotDBN instead. The paper\'s schedule allows only "path".',
    )
    auto: ClassVar[Mapping[str, Any]] = {}
    may_be: ClassVar[Mapping[str, Rule]] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rounds.check_use("gram")

    def learner(self, schedule: Schedule, **more: Any) -> PenalisedLearner:
        """Return the learner that solves the problem of these settings; `more` is what it says of units."""
        return learner_of(self, schedule, refit=self.refit, optimum=self.optimum, **more)


@dataclass(frozen=True, repr=False)
class PooledSettings(PenalisedSettings):
    """What a person may choose of a method that solves it for the rows of all sites, and can look at their residuals."""

    check_residuals: bool | str = setting(
        "auto",
        flag() | word("auto"),
        "Check by one more sum whether residuals contradict the model (`residuals_`, `findings_`). The network does not "
        "change. The residuals are those of a similar network with the best score, so edges removed by thresholds do not "
        'count as violations. "auto": not under differential privacy, with the paper\'s schedule, or for unprepared rows '
        "(`feddbn.AS_THEY_ARE`).",
    )


@dataclass(frozen=True, repr=False)
class FDBNLSettings(PooledSettings):
    """What a person may choose of `FDBNL`."""

    schedule: str = setting(
        "gram",
        word(*SCHEDULES),
        '"gram": sites send their second moments once, and the server solves the problem. "paper": Algorithm 1 of the '
        "paper, message by message. Without masks, a few rounds of messages determine a site's second moments. So both "
        "reveal equally much to a server that sees single sites.",
    )
    weighting: str = setting(
        "samples",
        word(*WEIGHTINGS),
        '"samples": sites count by their number of rows. "sites": all sites count equally, as in the paper (lambda then '
        "acts as lambda / K).",
    )

    def __post_init__(self) -> None:
        PreparedSettings.__post_init__(self)
        self.rounds.check_use(self.schedule)
        if self.optimum == "exact" and self.schedule == "paper":
            raise ParameterError(
                "optimum='exact' needs schedule='gram'; the paper's schedule has its own path."
            )


@dataclass(frozen=True)
class ConsensusFit:
    """A finished run with the preparation of its data; weights are those of the prepared variables."""

    run: PooledRun
    preparation: Preparation
    total_weight: float
    asked: AskedMoments | None = None
    scale: ScaleChoice | None = None


def learner_of(settings: Any, schedule: Schedule, **more: Any) -> PenalisedLearner:
    """Return the learner of these settings; `more` are fields of it that are not theirs."""
    for name in ("lambda_w", "lambda_a"):
        if isinstance(getattr(settings, name), str):
            raise ParameterError(f"{name}='auto' is chosen by fit, on held-out rows; give a number here.")
    problem = ("lambda_w", "lambda_a", "w_threshold", "a_threshold")
    steps = ("h_tol", "tol", "max_rounds", "acyclicity")
    return PenalisedLearner(
        **{name: getattr(settings, name) for name in problem},
        **{name: getattr(settings.rounds, name) for name in steps},
        schedule=schedule,
        **more,
    )


def check_summary(variables: tuple[str, ...], summary: ColumnStatistics) -> None:
    """Raise if a variable is constant over the whole federation, or the federation has a single row."""
    d = len(variables)
    # The summary was taken about the means where these are large, so only a true constant is left with this little.
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
    settings: Any, variables: tuple[str, ...], n_sites: int, *, one_network: bool = True
) -> ServerProgram[Prepared]:
    """Ask for what rounds need first: means and variances.

    With ``center="auto"`` also whether recordings have levels of their own, with ``scale="auto"`` whether noise differs.
    These take a sum of moments instead of a summary.
    """
    d, rows = len(variables), settings.rows.among(n_sites)
    rule, scale_rule, inputs = settings.prepare.center, settings.prepare.scale, rows.input_places(variables)
    if rows.is_settled:
        center = "recording" if rule == "recording" else "none"
        if scale_rule == "auto":
            known = yield from asked_moments_program(
                variables, settings.n_lags, replace(AS_THEY_ARE, center=center)
            )
            summary = summary_of_moments(known.moments, d)
            scale = choose_scale("auto", d, known.moments, one_network=one_network, inputs=inputs)
        else:
            summary = yield from summary_program(variables, settings.n_lags, center)
            scale = ScaleChoice(scale_rule)
        found = Prepared(prepare(summary, d, rule, scale.rule), center, scale)
    else:
        asked = yield from asked_moments_program(variables, settings.n_lags, rows)
        # Sites weigh themselves by the rows they count.
        summary = replace(summary_of_moments(asked.moments, d), n=asked.n_rows)
        if asked.center == "recording":
            summary, rule = replace(summary, mean=np.zeros_like(summary.mean)), "recording"
        scale = choose_scale(scale_rule, d, asked.moments, one_network=one_network, inputs=inputs)
        preparation = prepare(summary, d, rule, scale.rule, asked.treatment)
        found = Prepared(preparation, asked.center, scale, asked)
    check_summary(variables, found.preparation.summary)
    return found


def prepared_plan(variables: tuple[str, ...], n_lags: int, prepare: Prepare) -> Plan:
    """What `prepared_program` may ask; `prepare` also has its scale."""
    q = (n_lags + 1) * len(variables)
    if not prepare.is_settled:
        return asked_moments_plan(variables, n_lags, prepare)
    if prepare.scale == "auto":
        return asked_moments_plan(variables, n_lags, replace(AS_THEY_ARE, center=prepare.center))
    return (Planned("gram.diagonal", 1 + 2 * q + len(variables), 2),)


def fdbnl_plan(
    variables: tuple[str, ...],
    n_lags: int,
    prepare: Prepare,
    *,
    schedule: str = "gram",
    weighting: str = WEIGHTINGS[0],
    max_rounds: int = MOST_ROUNDS,
) -> Plan:
    """What `fdbnl_program` may ask."""
    d, q = len(variables), (n_lags + 1) * len(variables)
    if schedule == "gram" and weighting == WEIGHTINGS[0]:
        return asked_moments_plan(variables, n_lags, prepare)
    first = prepared_plan(variables, n_lags, prepare)
    if schedule == "gram":
        return *first, Planned("step.fdbnl", q * (q + 1) // 2)
    # Beside weights a residual, and a loss of each variable.
    return *first, Planned("step.fdbnl", q * d + 1 + d, max_rounds, min(max_rounds, 80))


def fdbnl_program(
    settings: FDBNLSettings,
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    n_sites: int,
    rows: Prepare | None = None,
) -> ServerProgram[ConsensusFit]:
    """Yield the tasks of one FDBNL run; the result is a `ConsensusFit`.

    `rows` is what is done to the rows, where the sites do not answer all that the settings wish for.
    """
    if settings.schedule == "gram" and settings.weighting == "samples":
        return (yield from pooled_program(settings, variables, constraints, n_sites, rows))
    prepared = yield from prepared_program(settings, variables, n_sites)
    rounds = _rounds_program(settings, variables, constraints, n_sites, prepared)
    return (yield from treated(rounds, prepared.preparation.treatment))


def pooled_program(
    settings: PenalisedSettings,
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    n_sites: int,
    rows: Prepare | None = None,
) -> ServerProgram[ConsensusFit]:
    """Yield the tasks of a fit to the pooled rows: what the summed second moments take. Arguments as above."""
    rows = settings.rows.among(n_sites) if rows is None else rows
    asked = yield from asked_moments_program(variables, _number(settings.n_lags), rows)
    return fit_of_moments(settings, variables, constraints, asked)


def _number(n_lags: int | str) -> int:
    if isinstance(n_lags, str):
        raise ParameterError(f"n_lags={n_lags!r} is chosen by fit, on held-out rows; give a number here.")
    return n_lags


def fit_of_moments(
    settings: PenalisedSettings,
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    asked: AskedMoments,
) -> ConsensusFit:
    """Return the fit to the moments of all rows; no sum is needed."""
    moments, rows = asked.moments, settings.prepare
    summary = summary_of_moments(moments, len(variables))
    check_summary(variables, summary)
    learner = settings.learner(
        settings.rounds.schedule("gram", 1, 1.0),
        center=rows.center if asked.center == "none" else "recording",
        scale=rows.scale,
        inputs=rows.input_places(variables),
    )
    found = learner.learn(moments, constraints, np.random.default_rng(0))
    counted = {**vars(found.units), "summary": replace(summary, n=asked.n_rows)}
    return ConsensusFit(found.run, Preparation(**counted, treatment=asked.treatment), 1.0, asked, found.scale)


def _rounds_program(
    settings: FDBNLSettings,
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    n_sites: int,
    prepared: Prepared,
) -> ServerProgram[ConsensusFit]:
    preparation = prepared.preparation
    total_weight = 1.0 if settings.weighting == "samples" else float(n_sites)
    schedule = settings.rounds.schedule(settings.schedule, n_sites, total_weight)
    learner = settings.learner(schedule)
    options = learner.options(preparation, constraints)
    run = ConsensusRun(options)

    def question(ask: Ask) -> StepQuestion:
        return StepQuestion(
            n_lags=_number(settings.n_lags),
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
        solved = learner.solve(G, preparation, constraints)
        return ConsensusFit(solved, prepared.reported, total_weight, prepared.asked, prepared.scale)
    while not run.is_done:
        answer = yield Task(question(run.ask), note=run.note)
        run.advance(answer.value, len(answer.contributors))
    return ConsensusFit(run, prepared.reported, total_weight, prepared.asked, prepared.scale)


@dataclass(frozen=True, kw_only=True)
class StepQuestion(RowsQuestion):
    """One round of FDBNL about the broadcast weights C of variables ``(z - origin) / scale``."""

    name = "step.fdbnl"
    purpose = "one round of FDBNL: local weights plus scaled multipliers, or the weighted cross-products"

    weighting: str = choice(*WEIGHTINGS)
    n_total: float = asked_for.number(1.0)
    round: int = asked_for.whole()
    ask: str = choice(*(ask.value for ask in Ask))
    rho2_before: float = asked_for.number(0.0)
    rho2: float = asked_for.number(0.0)
    relaxation: float = asked_for.number(0.0, 2.0)
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
        if given.get("schedule", "gram") == "paper":
            self._check_paper(scope)
        else:
            scope.require(self.ask == Ask.GRAM.value, self.name, f"'ask' is {self.ask!r}")

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
    """The site's ``w_k G_k``."""

    prefix = "fdbnl"

    wG: FloatArray


@dataclass(frozen=True)
class _Consensus(Record):
    """What the paper's rounds keep besides."""

    prefix = "fdbnl.consensus"

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


def _step(here: Here, question: StepQuestion) -> tuple[SiteState, FloatArray]:
    state = here.state
    if question.round == 0:
        state, wG = _weighted_gram(here, question)
        state = _Gram(wG).kept(state)
    else:
        wG = _Gram.read(state).wG
    ask, C = Ask(question.ask), question.C
    if ask is Ask.GRAM:
        return state, upper_triangle(wG)
    if ask is Ask.ZERO:
        problem = Decomposed.of(wG[None], question.metric)
        before = Consensus(*np.zeros((2, 1, *C.shape)))
    else:
        known = _Consensus.read(state)
        problem = Decomposed(wG[None], known.V[None], known.e[None], question.metric)
        before = Consensus(known.C[None], known.U[None])
    after, vectors = before.answers(problem, ask, C, question.rho2_before, question.rho2, question.relaxation)
    return _Consensus(problem.V[0], problem.e[0], after.C[0], after.U[0]).kept(state), vectors[0]


register_site_task(SiteTask(StepQuestion, _step))
