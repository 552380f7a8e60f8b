"""The one-round method as a short program of sums.

``moments``             count, totals and cross-products of lagged rows; one sum
``residuals.shapes``   sums of nonlinear functions of standardised residuals; only to direct edges that
                        second moments leave open, or to review all edges if equal variances were assumed, and
                        only while the noise is not Gaussian
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar, cast

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.constraints import EdgeConstraints, causes_first, strongest_acyclic
from feddbn.core.orders.hidden import CLEAR_GAIN, HiddenDoubts, doubtful_edges, may_be_looked_for
from feddbn.core.orders.knobs import Knobs
from feddbn.core.orders.learn import (
    STRONG_EVIDENCE,
    EdgeOrientation,
    Learned,
    OrderLearner,
    choose_lags,
    firmness_of,
    refit,
    with_directions,
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
from feddbn.core.orders.search import NoiseVariance, OrderResult, OrderSearch
from feddbn.core.statistics.diagnostics import (
    memory_filter,
    memory_of_noise,
    neutral_inputs,
    outputs_of,
    without_memory,
)
from feddbn.core.statistics.discoveries import discoveries, edge_p_values, q_values
from feddbn.core.statistics.enough import check_variances, rows_doubt
from feddbn.core.statistics.moments import Moments, dependences, safe_roots, sums_length
from feddbn.core.statistics.parts import UNKNOWN_DISPERSION
from feddbn.core.statistics.residual_checks import ResidualChecks, violations
from feddbn.errors import DataError
from feddbn.federation.programs.functions import CurvedMoments, knobs_program
from feddbn.federation.programs.residual_checks import (
    FEWEST_COMPLETE,
    MOST_QUESTIONS,
    ResidualReport,
    ResidualsQuestion,
    checks_plan,
    checks_program,
)
from feddbn.federation.protocol.rows import treated
from feddbn.federation.protocol.task import Plan, Planned, ServerProgram, Task, counted
from feddbn.federation.sums.prepare import AS_THEY_ARE, Prepare
from feddbn.federation.sums.treatment import (
    AskedMoments,
    asked_moments_plan,
    asked_moments_program,
    moments_program,
)
from feddbn.findings import Finding
from feddbn.words import say


def most_residuals(d: int) -> int:
    """How many columns one such question has at most."""
    return 2 * d * (d + 1)


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
    prepare
        What is done to the rows first. The intercept is always fitted.
    use_nongaussian
        "auto": only if the residuals are clearly not Gaussian.
    finds_knobs
        Look for variables that somebody sets at random.
    learn
        How the server learns.
    """

    n_lags: int = 1
    choose_n_lags: bool = False
    prepare: Prepare = AS_THEY_ARE
    use_nongaussian: bool | Literal["auto"] = "auto"
    finds_knobs: bool = False
    learn: OrderLearner = field(default_factory=OrderLearner)


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

    `asked` is what the first sum told, `dependent` says which variables follow from others. `dispersion` is how much more
    parts of the rows differ than chance; where no parts were asked for, `without_parts` says why.
    `knobs` are variables that somebody sets at random, where that was asked. `beside` is what was told of curves where lines
    stayed, `doubted` are the edges (from, to, lag) that do not hold beside curves.
    `q_values` are those of all edges where the network is that of discoveries (`with_discoveries`), which count `n_tested`
    rows.
    """

    learned: Learned
    moments: Moments
    n_lags: int
    lag_scores: FloatArray | None
    nongaussian: NonGaussianReport | None
    n_sums: int
    asked: AskedMoments | None = None
    dependent: tuple[Finding, ...] = ()
    without_parts: str = "sums"
    dispersion: float = UNKNOWN_DISPERSION
    knobs: Knobs | None = None
    beside: CurvedMoments | None = None
    doubted: tuple[tuple[int, int, int], ...] = ()
    q_values: FloatArray | None = None
    n_tested: float = 0.0

    def limits(self, constraints: EdgeConstraints) -> EdgeConstraints:
        """The constraints, narrowed by what is known of variables that somebody sets."""
        return constraints if self.knobs is None else self.knobs.limits(constraints)


def oneshot_program(
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
    rng: np.random.Generator,
) -> ServerProgram[OneShotOutcome]:
    """Ask for the moments, learn, and direct what is left open by the noise if it is not Gaussian."""
    may_ask = bool(options.use_nongaussian)
    # Whether equal variances are all there is to see is found out along the way, not by a sum of its own.
    shaped = options.use_nongaussian == "auto" and may_ask
    program = asked_moments_program(variables, options.n_lags, options.prepare, shaped)
    asked_for, n_sums = yield from counted(program)
    shape, knobs = asked_for.shape, None
    if options.finds_knobs and not options.prepare.inputs:
        finding = knobs_program(variables, options.n_lags, asked_for.moments, asked_for.center)
        knobs, n_more = yield from counted(treated(finding, asked_for.treatment))
        constraints = constraints if knobs is None else knobs.limits(constraints)
        n_sums += n_more
    outcome = learn_from_moments(asked_for.moments, variables, constraints, options, rng)
    learned, report = outcome.learned, None
    inputs = options.prepare.input_places(variables)
    # The sums of shapes of inputs say nothing about noise.
    known = [1 + block * len(variables) + j for block in (0, 1) for j in inputs]
    looks_gaussian = shape is not None and shape_p_value(np.delete(shape, known)) > WORTH_A_LOOK
    # Shapes are told apart by residuals whose variance is exactly one; of the complete rows among others it is not.
    may_ask = may_ask and asked_for.treatment.row_model is None
    if may_ask and not (learned.noise.kind == "equal" and looks_gaussian):
        improving = _improve_by_noise(
            outcome.moments, variables, outcome.n_lags, learned, options, asked_for.center
        )
        learned, report, asked = yield from treated(improving, asked_for.treatment)
        n_sums += asked
    return replace(outcome, learned=learned, nongaussian=report, n_sums=n_sums, asked=asked_for, knobs=knobs)


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
    inputs = options.prepare.input_places(variables)
    lag_scores = None
    if options.choose_n_lags:
        kind: NoiseVariance = "equal" if options.learn.noise_variance == "equal" else "free"
        p, lag_scores = choose_lags(working, constraints, options.learn.criterion, kind)
        kept = np.arange((p + 1) * d)
        working, moments = working.select(kept), moments.select(kept)
        constraints = constraints.up_to(p)
    dependent = dependent_findings(moments, variables, inputs)
    learned = options.learn.learn(working, constraints, rng)
    return OneShotOutcome(learned, moments, p, lag_scores, None, 0, dependent=dependent)


MOST_TURNED = 40
"""Undecided directions that are tested the other way, too, the least decided first."""


def with_discoveries(
    outcome: OneShotOutcome, report: ResidualReport | None, limits: EdgeConstraints, fdr: float
) -> OneShotOutcome:
    """The same with the network of all edges that are discoveries at this level.

    Tests count the rows that are left after nuisances of recordings, as far as they are independent: fewer where variances
    change, and where blocks of rows differ more than the model knows of.
    """
    learned, asked = outcome.learned, outcome.asked
    n = outcome.moments.n if report is None or not report.n_effective else report.n_effective
    own = asked.rank / asked.n_rows if asked is not None and asked.n_rows else 0.0
    n *= max(1.0 - own, 0.0) / outcome.dispersion
    search, start = learned.search, learned.search.adopt(learned.support)
    undecided = sorted(
        (e.score_difference, e.source, e.target) for e in learned.orientation if not e.oriented
    )
    turned = (search.best_reversed(start, i, j) for _, i, j in undecided[:MOST_TURNED])
    others = [_directed_order(one.order, one.support, limits) for one in turned if one is not None]
    order = _directed_order(learned.order, learned.support, limits)
    q = q_values(edge_p_values(outcome.moments, [order, *others], limits, n))
    support = discoveries(q, fdr, order, limits)
    parents = [tuple(np.flatnonzero(support[:, j]).tolist()) for j in range(limits.d)]
    # What constraints direct is directed, also where the search had left the edge out.
    fixed = np.argwhere(support[: limits.d] & ~limits.allowed[: limits.d].T).tolist()
    known = (*learned.orientation, *(EdgeOrientation(i, j, np.inf) for i, j in fixed))
    learned = replace(
        learned,
        support=support,
        order=tuple(order),
        orientation=tuple(firmness_of(support, known)),
        score=search.score_of(parents),
    )
    return replace(outcome, learned=learned, q_values=q, n_tested=n)


def _directed_order(order: Sequence[int], support: BoolArray, limits: EdgeConstraints) -> list[int]:
    """An order of the same network in which causes also come first where constraints allow one direction only."""
    d, allowed = limits.d, limits.allowed[: limits.d]
    must = strongest_acyclic(np.where(allowed & ~allowed.T, 1.0, -1.0), support[:d])
    return causes_first(order, must)


def first_look(moments: Moments, variables: tuple[str, ...], options: OneShotOptions) -> Moments:
    """The moments as the search wants them; DataError if there is too little to learn from."""
    d = len(variables)
    if moments.n < 5:
        raise DataError(
            f"learning needs at least 5 usable rows over all sites, got {int(moments.n)}; a row is usable if its "
            f"n_lags={options.n_lags} predecessors are in the same segment."
        )
    # Large means were asked about an origin near them, so only rounding of the values themselves is left.
    check_variances(variables, np.diag(moments.scatter)[:d] / moments.n, moments.mean[:d], rtol=1e-28)
    return as_searched(moments, variables, options.prepare)


def as_searched(moments: Moments, variables: tuple[str, ...], prepare: Prepare) -> Moments:
    """The moments as the search wants them."""
    d = len(variables)
    if prepare.scale == "federated":
        sd = safe_roots(np.diag(moments.scatter)[:d] / moments.n)
        moments = moments.scaled(np.tile(sd, moments.q // d))
    # How an input varies is no noise: it must not count where noise variances are compared or added up.
    return neutral_inputs(moments, d, prepare.input_places(variables))[0]


def dependent_findings(
    moments: Moments, variables: tuple[str, ...], inputs: tuple[int, ...] = ()
) -> tuple[Finding, ...]:
    """Each variable that follows from others; DataError if all follow from one."""
    d = len(variables)
    found = dependences(moments.scatter, moments.n, d, inputs)
    findings = tuple(one.finding(variables) for one in found)
    if len(found) == d - 1 and d > 1 and all(one.others == (0,) for one in found):
        raise DataError(
            f"all variables follow from {variables[0]}, so no edge can be learned: {say(findings[0])}",
            code="all-dependent",
        )
    return findings


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

    def ask(networks: Sequence[Network]) -> ServerProgram[tuple[FloatArray, float, int] | None]:
        jobs = scores.unknown(networks)
        if not jobs:
            return None
        n_asked, n, told = 0, 0.0, []
        for start in range(0, len(jobs), most_residuals(d)):
            residuals = node_residuals(moments, jobs[start : start + most_residuals(d)])
            question = ResidualsQuestion(
                n_lags=n_lags,
                variables=variables,
                center=center,
                coefficients=residuals.coefficients,
                offset=residuals.offset,
                shapes=True,
            )
            answer = yield Task(question)
            n, n_asked = float(answer.value[0]), n_asked + 1
            told.append(answer.value[1:].reshape(N_FEATURES, -1))
        features = np.concatenate(told, axis=1)
        scores.learn(jobs, features, n)
        return features, n, n_asked

    first = yield from ask([start.parents])
    assert first is not None
    # Its jobs are one for each variable, in order; inputs have no noise whose shape could tell something.
    outputs = outputs_of(d, options.prepare.input_places(variables))
    shapes = first[0][:, outputs], first[1]
    p_value, n_sums = min(float(gaussian_p(*shapes).min()) * len(outputs), 1.0), 1
    if options.use_nongaussian == "auto" and p_value > GAUSSIAN_LEVEL:
        return learned, NonGaussianReport(False, p_value, 0), n_sums
    scores.tails = tail_weight(*shapes)
    # Equal variances have decided about every edge; to overrule them takes strong evidence.
    undecided, enough = (OVERSTATED, STRONG_EVIDENCE) if equal else (UNDECIDED, 0.0)
    open_edges = [(e.source, e.target) for e in learned.orientation if e.score_difference < undecided]
    best = start
    differences: dict[Edge, float] = {}
    while n_sums < MAX_DIRECTION_SUMS:
        turned = {edge: search.best_reversed(best, *edge) for edge in open_edges}
        shorter = without_one_edge(best.parents) if equal else {}
        others = [other.parents for other in turned.values() if other is not None]
        told = yield from ask([*others, *shorter.values()])
        n_sums += 0 if told is None else told[2]
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
    firm = [EdgeOrientation(i, j, max(float(value), 0.0), True) for (i, j), value in differences.items()]
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


# The one-round method, its residuals looked at: one more sum tells how far the evidence holds.
#
# Theory of operation: after learning, sites send sums about the residuals (`residual_checks`).
#
# memory       Where residuals remember earlier ones, or effects come again with the opposite sign, moments with one more
#              lag are asked for and three explanations compared by the score that chooses networks: as it is, one lag
#              more, noise with a memory of its own (`core.statistics.diagnostics`). The better one is taken if the
#              residuals then remember nothing. A lag is added only where their number was left to the method.
# variance     Where variances change, the same moments are worth fewer rows: the network is learned again from
#              ``n / inflation`` of them.
# hidden       Where noise variances differ, networks with hidden common causes are compared with the one found, from the
#              moments that are there already (`core.orders.hidden`). If they clearly explain more, edges between the
#              effects of one are left open; edges that they do not need are in doubt.
#
# What was found and what is left is the report; sentences are made of it elsewhere.

LARGE_SHARED = 0.05
"""Squares of different residuals of a row that correlate more than this, in the mean, do not come from independent noises."""


Instead = Callable[
    [OneShotOutcome, ResidualChecks], ServerProgram[tuple[OneShotOutcome, ResidualReport | None]]
]
"""What else could explain residuals like these: a program that returns another outcome with its report, or the one it was
given (with the sums it took) and None."""


@dataclass(frozen=True)
class _Fit:
    """A learned network, the moments it was learned from and how these come from lagged rows."""

    outcome: OneShotOutcome
    learned_from: Moments
    to_learned: FloatArray | None = None
    rho: float | None = None


def oneshot_plan(
    variables: tuple[str, ...],
    n_lags: int,
    prepare: Prepare,
    *,
    use_nongaussian: bool | str = False,
    chooses_lags: bool = False,
    checks: bool = True,
    finds_knobs: bool = False,
) -> Plan:
    """What `checked_oneshot_program` may ask, or without `checks` `oneshot_program`."""
    d, shaped = len(variables), use_nongaussian == "auto"
    plan = asked_moments_plan(variables, n_lags, prepare, shaped)
    if finds_knobs:
        plan += (Planned("gram.functions", sums_length(2 * (n_lags + 1) * d), usual=0),)
    if use_nongaussian:
        numbers = 1 + N_FEATURES * most_residuals(d)
        plan += (Planned("residuals.shapes", numbers, MOST_QUESTIONS, int(not shaped), 1 + N_FEATURES * d),)
    if not checks:
        return plan
    # Where residuals remember, moments with one more lag are asked for, and again if that lag is taken.
    settled = replace(AS_THEY_ARE, center="recording")
    longer = asked_moments_plan(variables, n_lags + 1, settled, shaped)[0]
    longer = replace(longer, times=(1 + chooses_lags) * longer.times, usual=0)
    return *plan, *checks_plan(d, n_lags, 3, adds_lag=chooses_lags), longer


def checked_oneshot_program(
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
    rng: np.random.Generator,
    instead: Instead | None = None,
) -> ServerProgram[tuple[OneShotOutcome, ResidualReport]]:
    """Learn, look at the residuals, and learn again where that helps; without checks if too few rows are complete.

    `instead` is asked for another kind of network where effects are curved: from the one found to a better one, or None.
    """
    outcome = yield from oneshot_program(variables, constraints, options, rng)
    assert outcome.asked is not None
    wanted = options.prepare
    prepare = replace(
        AS_THEY_ARE, center=outcome.asked.center, exogenous=wanted.exogenous, scale=wanted.scale
    )
    # What is set is known by now.
    settled = replace(options, prepare=prepare, n_lags=outcome.n_lags, choose_n_lags=False, finds_knobs=False)
    look = _Look(variables, outcome.limits(constraints), options, settled, rng)
    return (yield from treated(look.program(outcome, instead), outcome.asked.treatment))


@dataclass(frozen=True)
class _Look:
    """How a network that was learned from the treated rows of sites is looked at, and learned again.

    `options` are those of the user, `settled` those that say what was decided by them.
    """

    variables: tuple[str, ...]
    constraints: EdgeConstraints
    options: OneShotOptions
    settled: OneShotOptions
    rng: np.random.Generator

    @property
    def d(self) -> int:
        """Number of variables."""
        return len(self.variables)

    @property
    def inputs(self) -> tuple[int, ...]:
        """Positions of variables that only act on others."""
        return self.settled.prepare.input_places(self.variables)

    def program(
        self, outcome: OneShotOutcome, instead: Instead | None
    ) -> ServerProgram[tuple[OneShotOutcome, ResidualReport]]:
        """Look at the residuals, and learn again where that helps."""
        assert outcome.asked is not None
        fit = _Fit(outcome, outcome.moments)
        checks, may_add = yield from self._checked(fit)
        has_gaps = outcome.asked.treatment.row_model is not None
        if has_gaps and checks.n < FEWEST_COMPLETE:
            # What moments tell of hidden causes they tell without complete rows.
            unknown = ResidualReport(None, n_effective=outcome.moments.n, n_complete=round(checks.n))
            unknown = self._with_doubts(unknown, self._hidden_causes(fit, 1.0), CLEAR_GAIN)
            return replace(fit.outcome, n_sums=outcome.n_sums + 1), unknown
        if instead is not None and "curvature" in violations(checks):
            # A curve that is taken for a line leaves residuals that seem to have memory and changing variances: curves first.
            outcome, report = yield from instead(replace(outcome, n_sums=outcome.n_sums + 1), checks)
            if report is not None:
                return outcome, report
            fit = replace(fit, outcome=outcome)
            n_sums = outcome.n_sums
        else:
            n_sums = outcome.n_sums + 1
        # Memory is looked for in moments with one lag more, for which there is no model of rows with empty cells.
        may_add = may_add and not has_gaps
        found, gain = violations(checks), None
        if may_add and ("memory" in found or _is_mirrored(outcome)):
            fit, checks, gain, asked = yield from self._explain_memory(fit, checks)
            n_sums += asked
        left = violations(checks)
        factor = checks.inflation if "volatility" in left else 1.0
        if factor > 1.0:
            fit = self._tempered(fit, factor, checks.shared > LARGE_SHARED)
        report = ResidualReport(
            checks,
            found,
            left,
            fit.rho,
            fit.outcome.n_lags - outcome.n_lags,
            gain,
            fit.outcome.moments.n / factor,
        )
        report = self._with_doubts(report, self._hidden_causes(fit, factor), _enough(checks))
        return replace(fit.outcome, n_sums=n_sums, asked=outcome.asked, lag_scores=outcome.lag_scores), report

    def _checked(self, fit: _Fit) -> ServerProgram[tuple[ResidualChecks, bool]]:
        """Ask about the residuals of a network."""
        outcome, asked = fit.outcome, fit.outcome.asked
        own_share = 0.0 if asked is None or not asked.n_rows else asked.rank / asked.n_rows
        return (
            yield from checks_program(
                fit.learned_from,
                outcome.learned.support,
                self.variables,
                self.settled.prepare.center,
                self.inputs,
                own_share,
                fit.to_learned,
                outcome.learned.order,
            )
        )

    def _explain_memory(
        self, fit: _Fit, checks: ResidualChecks
    ) -> ServerProgram[tuple[_Fit, ResidualChecks, float, int]]:
        """Compare what may be behind residuals that remember, and take what leaves none that do.

        Returns the network and its checks, what one lag more would gain, and how many sums that took.
        """
        outcome, d, p = fit.outcome, self.d, fit.outcome.n_lags
        longer = yield from moments_program(self.variables, p + 1, outcome.asked)
        # Recordings centred on their own means come with none; levels are those of the first sum.
        longer = Moments(longer.n, np.tile(outcome.moments.mean[:d], p + 2), longer.scatter)
        scale = (
            safe_roots(np.diag(longer.scatter)[:d] / longer.n)
            if self.settled.prepare.scale == "federated"
            else np.ones(d)
        )
        plain = longer.select(np.arange((p + 1) * d))
        inputs = self.inputs
        limits = limits_over(self.constraints, p + 1, d, inputs)

        def score(moments: Moments) -> float:
            n_lags = moments.q // d - 1
            kept = limits.up_to(n_lags)
            criterion, kind = self.settled.learn.criterion, outcome.learned.noise.kind
            working, level = neutral_inputs(moments.scaled(np.tile(scale, n_lags + 1)), d, inputs)
            search = OrderSearch(working, kept, criterion.for_orders, kind)
            network = search.run_from(outcome.learned.network)
            found = search.select_edges(network, criterion)
            # What inputs add is no evidence about the noise.
            return float(found.score) - len(inputs) * moments.n * level

        base = score(plain)
        lag_gain = base - score(longer)
        # If nothing is delayed, p lags fit as well without any memory; p - 1 lags then tell its size.
        memories = [memory_of_noise(longer, d, inputs), *([memory_of_noise(plain, d, inputs)] if p else [])]
        scores = [score(without_memory(longer, rho, d)) for rho in memories]
        rho = memories[int(np.argmin(scores))]
        memory_gain = base - min(scores) - float(np.log(longer.n))
        n_sums = 1
        gains = {"memory": memory_gain, "lag": lag_gain if self.options.choose_n_lags else -np.inf}
        for name in sorted(gains, key=lambda key: -gains[key]):
            if gains[name] < STRONG_EVIDENCE:
                break
            if name == "memory":
                other = self._without_memory(without_memory(longer, rho, d), rho, longer.mean, limits)
            else:
                asked = replace(self.settled, n_lags=p + 1)
                again = yield from oneshot_program(self.variables, limits, asked, self.rng)
                other = _Fit(again, again.moments)
                n_sums += again.n_sums
            then, _ = yield from self._checked(other)
            n_sums += 1
            if "memory" not in violations(then):
                return other, then, lag_gain, n_sums
        return fit, checks, lag_gain, n_sums

    def _without_memory(
        self, filtered: Moments, rho: float, mean: FloatArray, limits: EdgeConstraints
    ) -> _Fit:
        """Learn from moments without the noise's memory."""
        q, d = filtered.q, self.d
        kept = limits.up_to(q // d - 1)
        outcome = learn_from_moments(filtered, self.variables, kept, self.settled, self.rng)
        # Weights are the same; means and the noise's whole variance are those of the variables as they are.
        moments = Moments(filtered.n, mean[:q], filtered.scatter / (1.0 - rho * rho))
        to_learned = memory_filter(rho, outcome.n_lags, d)
        return _Fit(replace(outcome, moments=moments), filtered, to_learned, rho)

    def _tempered(self, fit: _Fit, factor: float, is_shared: bool) -> _Fit:
        """Learn again as from fewer rows; what the noise's shape said of directions stays, for as many rows.

        Shapes decide rightly only while noises are independent: not if their variances change together.
        """
        outcome, moments = fit.outcome, fit.learned_from
        fewer = Moments(moments.n / factor, moments.mean, moments.scatter / factor)
        inputs = self.inputs
        limits = limits_over(self.constraints, outcome.n_lags, self.d, inputs)
        again = learn_from_moments(
            fewer, self.variables, limits, replace(self.settled, n_lags=outcome.n_lags), self.rng
        )
        if is_shared:
            return replace(fit, outcome=replace(outcome, learned=again.learned, nongaussian=None))
        learned = with_directions(again.learned, outcome.learned, factor)
        return replace(fit, outcome=replace(outcome, learned=learned))

    def _with_doubts(
        self, report: ResidualReport, doubts: HiddenDoubts | None, enough: float
    ) -> ResidualReport:
        """The report with the doubts; if hidden causes gain `enough`, it names their effects, between which no link has a
        direction.
        """
        report = replace(report, doubts=doubts)
        if doubts is None or not doubts.effects or doubts.gain < enough:
            return report
        names = tuple(tuple(self.variables[j] for j in one) for one in doubts.effects)
        left = ("hidden", *report.left)
        return replace(report, left=left, hidden=names, hidden_gain=doubts.gain)

    def _hidden_causes(self, fit: _Fit, factor: float) -> HiddenDoubts | None:
        """The edges that hidden causes could stand for; None if that cannot be told.

        Where all noises have one variance nothing is left for a hidden cause to explain. With inputs, dependent variables, or
        very few or many variables it is not looked for.
        """
        outcome, moments, d = fit.outcome, fit.learned_from, self.d
        support = outcome.learned.support
        if outcome.learned.noise.kind == "equal":
            return HiddenDoubts(np.zeros_like(support))
        is_told = not outcome.dependent and may_be_looked_for(d)
        if not is_told or self.inputs or rows_doubt(moments.n / factor, moments.q) == 1.0:
            return None
        moments = Moments(moments.n / factor, moments.mean, moments.scatter / factor)
        if self.settled.prepare.scale == "federated":
            moments = moments.scaled(
                np.tile(safe_roots(np.diag(moments.scatter)[:d] / moments.n), outcome.n_lags + 1)
            )
        limits = limits_over(self.constraints, outcome.n_lags, d)
        return doubtful_edges(moments, support, limits, self.settled.learn.criterion, self.rng)


def _enough(checks: ResidualChecks) -> float:
    """From which gain on hidden causes clearly explain more than edges. Residuals that remember have other reasons, too.

    Second moments of heavy tails vary more than the score knows.
    """
    if "memory" in violations(checks):
        return np.inf
    return CLEAR_GAIN * max(1.0, (float(checks.kurtosis.max()) - 1.0) / 2.0)


def _is_mirrored(outcome: OneShotOutcome) -> bool:
    """Whether contemporaneous effects come again a row later with the opposite sign, as noise with a memory has it.

    Its network with one lag may leave no memory in residuals: ``A = rho (I - W)`` and what is really delayed. So most
    edges come again, or most variables keep some of themselves and at least one edge comes again.
    """
    d = outcome.learned.support.shape[1]
    C = refit(outcome.moments, outcome.learned.support)[0]
    n_edges = int(np.count_nonzero(C[:d]))
    if not outcome.n_lags or n_edges < 2:
        return False
    n_again = int(np.count_nonzero(C[:d] * C[d : 2 * d] < 0))
    keep_some = 2 * int(np.count_nonzero(np.diag(C[d : 2 * d]) > 0)) > d
    return 2 * n_again > n_edges or (keep_some and n_again > 0)


def limits_over(
    constraints: EdgeConstraints, n_lags: int, d: int, inputs: Sequence[int] = ()
) -> EdgeConstraints:
    """The constraints over this many lags; what no known lag allows, a further one does not either."""
    allowed, required = constraints.allowed, constraints.required
    q = (n_lags + 1) * d
    if q > len(allowed):
        known = allowed[d:].reshape(-1, d, d)
        further = np.array(known.any(axis=0) if len(known) else np.ones((d, d)), dtype=bool)
        further[:, list(inputs)] = False
        n_more = q // d - len(allowed) // d
        allowed = np.concatenate([allowed, np.tile(further, (n_more, 1))])
        required = np.concatenate([required, np.zeros((n_more * d, d), dtype=bool)])
    return EdgeConstraints(allowed[:q], required[:q])
