"""The one-round method for effects that may be curved: what is asked, what residuals say, and what is learned.

``gram.functions``   count, totals and cross-products of the variables and of fixed smooth functions of them, at lags 0..p
                     (`Design.curved`)
``residuals.functions``    the sums of `residual_checks`, of residuals of such a design

Values are treated as the question asks; what is a recording's own (mean, trend, cycles) is taken off the values before
functions of them are formed, so a curve bends about a recording's own level. Empty cells are drawn under the federation's
model of rows, as for resampling. The functions have fixed knots; origin and scale are those that an earlier sum told.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.designs.design import Design
from feddbn.core.designs.features import feature_map
from feddbn.core.designs.parts import least_rows
from feddbn.core.orders.doubts import doubtful_edges_of
from feddbn.core.orders.groups import (
    CurvedNetwork,
    CurvedRegressions,
    curved_groups,
    curved_network,
    in_data_units,
)
from feddbn.core.orders.learn import (
    Learned,
    OrderLearner,
    choose_lags,
    chosen_groups,
    straight_score,
)
from feddbn.core.orders.parents import MANY_NODES
from feddbn.core.orders.search import MOST_WITHOUT_SCREENING, products_to_ask
from feddbn.core.statistics.diagnostics import outputs_of
from feddbn.core.statistics.moments import Moments, sums_length
from feddbn.core.statistics.parts import UNKNOWN_DISPERSION
from feddbn.core.statistics.residual_checks import (
    ResidualChecks,
    ResidualSums,
    check_residuals,
    information_of_shape,
)
from feddbn.core.statistics.residual_checks import sums_length as check_sums_length
from feddbn.errors import NotEnoughSites, ParameterError, SiteRefused
from feddbn.federation.programs.functions import CurvedMoments, curved_moments_program
from feddbn.federation.programs.oneshot import (
    OneShotOptions,
    OneShotOutcome,
    checked_oneshot_program,
    first_look,
    oneshot_plan,
)
from feddbn.federation.programs.residual_checks import ResidualReport, ResidualsQuestion, only_looked_at
from feddbn.federation.protocol.rows import functions_of, treated
from feddbn.federation.protocol.task import Federation, Plan, Planned, ServerProgram, Task, counted
from feddbn.federation.sums.gram import GramQuestion, parts_program
from feddbn.federation.sums.prepare import Prepare
from feddbn.federation.sums.treatment import AskedMoments, asked_moments_plan, asked_moments_program


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
    d, q = question.d, question.design.q
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
        for name in (
            "n_lags",
            "variables",
            "center",
            "functions",
            "function_origin",
            "function_scale",
            "products",
        )
    }
    checked = ResidualsQuestion(**given, coefficients=weights, offset=offset)
    answer = yield Task(checked)
    sums = ResidualSums.from_vector(answer.value[1:], d, checked.n_back)
    return check_residuals(sums.of(outputs_of(d, inputs)), None, own_share)


# The one-round method for effects that may be curved: one more sum, of functions of the variables.
#
#     as the linear method begins    what has to be done to the rows, and their moments
#     ``gram.functions``             the same of fixed functions of them, in the public units that the first sum told
#
# `curved_program` models curves wherever the evidence is for them. `auto_program` learns as the linear method does and
# looks for curvature only where the residuals have some; it keeps straight lines unless the evidence is clearly against.

CLEAR_GAIN = 10.0
"""By how much curves must score better than straight lines, as for other choices between kinds of networks."""
_DEPENDENT = 0.001
BESIDE = 4
"""How many products of two causes are told beside curves, at most, per variable."""
_TIMES = 3
"""How often edges are held against curves and products; other edges may take the place of those in doubt."""
_EXTREME = 15.0
"""Kurtosis of what curves leave from which on squared errors are no evidence for them."""


@dataclass(frozen=True)
class CurveOptions:
    """Which functions (`protocol.rows.FUNCTIONS`), and whether products of lagged variables."""

    features: str = "spline"
    interactions: bool = False


@dataclass(frozen=True)
class CurvedOutcome:
    """What the server ends with.

    Attributes
    ----------
    outcome
        As of the linear method; its moments are those of the rows themselves.
    network
        Weights and curves in the units of the data.
    told
        The sum over curved rows that it was learned from.
    gain
        By how much the score is better than that of the best straight network; None if that was not compared.
    """

    outcome: OneShotOutcome
    network: CurvedNetwork
    told: CurvedMoments
    gain: float | None = None

    @property
    def design(self) -> Design:
        """The design whose functions the curves are."""
        return self.told.design


def curved_columns(d: int, n_lags: int, features: str, interactions: bool = False) -> int:
    """Columns of a row of functions of the variables; functions that are not known here count as one."""
    name = functions_of("spline" if features == "auto" else features)
    try:
        per_line = feature_map(name).width
    except ParameterError:
        per_line = 1
    columns = (n_lags + 1) * d * (1 + per_line)
    if interactions and d <= MOST_WITHOUT_SCREENING:
        columns += n_lags * d * (d - 1) // 2
    return columns


def curved_plan(
    variables: tuple[str, ...],
    n_lags: int,
    prepare: Prepare,
    curves: CurveOptions,
    *,
    checks: bool = True,
    **options: Any,
) -> Plan:
    """What `curved_program` may ask, or for ``features="auto"`` `auto_program`; `options` are those of `oneshot_plan`."""
    d, is_auto = len(variables), curves.features == "auto"
    first = asked_moments_plan(variables, n_lags, prepare)
    if is_auto:
        first = oneshot_plan(
            variables, n_lags, prepare, checks=checks, finds_knobs=d <= MANY_NODES, **options
        )
    if is_auto and d > MANY_NODES:
        return first
    columns = curved_columns(d, n_lags, curves.features, curves.interactions)
    if is_auto and not curves.interactions:
        columns += BESIDE * d
    usual = int(not is_auto)
    plan = *first, Planned("gram.functions", sums_length(columns), usual=usual)
    if not checks or n_lags == 0:
        return plan
    return *plan, Planned("residuals.functions", 1 + check_sums_length(d, n_lags + 1), usual=usual)


def curved_program(
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
    curves: CurveOptions,
    rng: np.random.Generator,
    looks: bool = True,
) -> ServerProgram[tuple[OneShotOutcome, ResidualReport | None, CurvedOutcome]]:
    """Ask, learn a network of straight and curved edges, and look at its residuals if asked to."""
    d = len(variables)
    asked, n_sums = yield from counted(
        asked_moments_program(variables, options.n_lags, options.prepare, False)
    )
    working = first_look(asked.moments, variables, options)
    n_lags, lag_scores = options.n_lags, None
    if options.choose_n_lags:
        n_lags, lag_scores = choose_lags(working, constraints, options.learn.criterion, "free")
    kept = np.arange((n_lags + 1) * d)
    given = OneShotGiven(asked, asked.moments.select(kept), n_lags, constraints.up_to(n_lags))

    def learning() -> ServerProgram[tuple[Learned, CurvedMoments, ResidualChecks | None]]:
        learned, told = yield from _learned(variables, given, options, curves, rng)
        checks = None
        if looks and n_lags:
            checks = yield from _checked(told, learned, variables, options, asked)
        return learned, told, checks

    learned, told, checks = yield from treated(learning(), asked.treatment)
    n_sums += 1 + (checks is not None)
    outcome = OneShotOutcome(learned, given.moments, n_lags, lag_scores, None, n_sums, asked)
    report = None if checks is None else only_looked_at(checks)
    return outcome, report, _curved(outcome, learned, told)


@dataclass(frozen=True)
class OneShotGiven:
    """What is known before curves are asked about: the first sums, and the moments and limits for a number of lags."""

    asked: AskedMoments
    moments: Moments
    n_lags: int
    limits: EdgeConstraints


def _learned(
    variables: tuple[str, ...],
    given: OneShotGiven,
    options: OneShotOptions,
    curves: CurveOptions,
    rng: np.random.Generator,
    beside: tuple[tuple[int, int, int], ...] = (),
) -> ServerProgram[tuple[Learned, CurvedMoments]]:
    """`beside` are products that are told and not learned from."""
    products = beside
    if curves.interactions:
        products = products_to_ask(given.moments, given.limits)
    told = yield from curved_moments_program(
        variables,
        given.n_lags,
        given.moments,
        curves.features,
        given.asked.center,
        products,
    )
    working = without_products(told) if beside else told
    return _network_of(working, variables, given.limits, options, rng), told


def without_products(told: CurvedMoments) -> CurvedMoments:
    """The same without the products of variables, which are its last columns."""
    question = replace(told.question, products=())
    kept = np.arange(question.design.q)
    return replace(told, moments=told.moments.select(kept), question=question)


def products_of_causes(support: BoolArray, most: int) -> tuple[tuple[int, int, int], ...]:
    """(first, second, 0) of products of two causes of linked variables within a time step; at most so many.

    Two effects of the same causes seem linked where these act by their product on both.
    """
    d = support.shape[1]
    W = support[:d]
    counts: dict[tuple[int, int, int], int] = {}
    for i, j in np.argwhere(W).tolist():
        causes = sorted({*np.flatnonzero(W[:, i]).tolist(), *np.flatnonzero(W[:, j]).tolist()} - {i, j})
        for pair in itertools.combinations(causes, 2):
            counts[*pair, 0] = counts.get((*pair, 0), 0) + 1
    return tuple(sorted(sorted(counts, key=lambda one: (-counts[one], one))[:most]))


def _network_of(
    told: CurvedMoments,
    variables: tuple[str, ...],
    limits: EdgeConstraints,
    options: OneShotOptions,
    rng: np.random.Generator,
) -> Learned:
    working, learn = _as_searched(told, variables, options)
    return learn.learn(working, limits, rng)


def _as_searched(
    told: CurvedMoments, variables: tuple[str, ...], options: OneShotOptions
) -> tuple[Moments, OrderLearner]:
    # In public units all variables have variance 1; equal noise variances are meant in the units of the data.
    working = (
        told.moments if options.prepare.scale == "federated" else in_data_units(told.moments, told.design)
    )
    learn: OrderLearner = replace(options.learn, groups=curved_groups(told.design))
    if options.prepare.input_places(variables) and learn.noise_variance == "auto":
        # How an input varies is no noise: it must not count where noise variances are compared.
        learn = replace(learn, noise_variance="free")
    return working, learn


def learn_from_curved(
    told: CurvedMoments,
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
    rng: np.random.Generator,
) -> CurvedOutcome:
    """What the server learns from a sum over curved rows alone, without any further sum."""
    learned = _network_of(told, variables, constraints, options, rng)
    plain = in_data_units(told.moments, told.design).select(np.arange(len(constraints.allowed)))
    outcome = OneShotOutcome(learned, plain, options.n_lags, None, None, 0)
    return _curved(outcome, learned, told)


def _checked(
    told: CurvedMoments,
    learned: Learned,
    variables: tuple[str, ...],
    options: OneShotOptions,
    asked: AskedMoments,
) -> ServerProgram[ResidualChecks]:
    """Ask about the residuals of a network with curves."""
    regressions = CurvedRegressions(told.moments.scatter, told.moments.n, curved_groups(told.design))
    weights = [regressions.coefficients(j, groups)[:2] for j, groups in enumerate(chosen_groups(learned))]
    share = asked.rank / asked.n_rows if asked.n_rows else 0.0
    inputs = options.prepare.input_places(variables)
    return (yield from curved_checks_program(told, weights, inputs, share))


def _curved(
    outcome: OneShotOutcome, learned: Learned, told: CurvedMoments, gain: float | None = None
) -> CurvedOutcome:
    return CurvedOutcome(outcome, curves_of(learned, told), told, gain=gain)


def curves_of(learned: Learned, told: CurvedMoments) -> CurvedNetwork:
    """The fitted network of what was learned."""
    return curved_network(in_data_units(told.moments, told.design), told.design, chosen_groups(learned))


def auto_program(
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
    curves: CurveOptions,
    rng: np.random.Generator,
) -> ServerProgram[tuple[OneShotOutcome, ResidualReport | None, CurvedOutcome | None]]:
    """Learn straight lines, look at the residuals, and model curves if they have some and the evidence is for it."""
    taken: list[CurvedOutcome] = []

    def instead(
        outcome: OneShotOutcome, checks: ResidualChecks
    ) -> ServerProgram[tuple[OneShotOutcome, ResidualReport | None]]:
        assert outcome.asked is not None
        if len(variables) > MANY_NODES:
            # Products of ten thousand columns and more; the report says that effects are not straight lines.
            return outcome, None
        n_lines = (outcome.n_lags + 1) * len(variables)
        limits = outcome.limits(constraints.up_to(outcome.n_lags))
        given = OneShotGiven(outcome.asked, outcome.moments, outcome.n_lags, limits)
        most = 0 if curves.interactions else BESIDE * len(variables)
        products = products_of_causes(outcome.learned.support, most)
        learned, told = yield from _learned(variables, given, options, curves, rng, products)
        outcome = replace(outcome, n_sums=outcome.n_sums + 1)
        beside, told = told, without_products(told) if products else told
        gain = straight_score(learned, outcome.learned) - learned.score
        has_curves = any(t >= n_lines for parents in chosen_groups(learned) for t in parents)
        if gain < CLEAR_GAIN or not has_curves:
            return replace(outcome, beside=beside), None
        if outcome.n_lags:
            then = yield from _checked(told, learned, variables, options, given.asked)
            outcome = replace(outcome, n_sums=outcome.n_sums + 1)
            gain -= 2 * given.moments.n * (information_of_shape(checks) - information_of_shape(then))
            # A curve from an effect back to its cause tells rare large shocks nearly all but for a few rows.
            if gain < CLEAR_GAIN or float(then.kurtosis.max()) > _EXTREME:
                return replace(outcome, beside=beside), None
            checks = then
        outcome = replace(outcome, learned=learned, nongaussian=None, beside=beside)
        taken.append(_curved(outcome, learned, told, gain))
        return outcome, only_looked_at(checks)

    outcome, report = yield from checked_oneshot_program(variables, constraints, options, rng, instead)
    return outcome, report, taken[0] if taken else None


# Which edges come again: networks of resamples of parts of the rows (`gram.parts`), in one more sum.

Fit = tuple[OneShotOutcome, ResidualReport | None, CurvedOutcome | None]
"""What a server ends with: the network, what its residuals say, and its curves, if it has any."""


def dispersion_program(
    variables: tuple[str, ...], n_lags: int, asked: AskedMoments, moments: Moments, federation: Federation
) -> ServerProgram[tuple[float, str]]:
    """By how much parts of the rows that these moments are of differ more than chance, and why that is not known, if so.

    Parts are asked for if sites answer that and have enough rows; where they are not known, rows count as less than they are.
    """
    d, tasks, n_sites = len(variables), federation.answered_tasks, len(federation.sites)
    if d > MANY_NODES:
        return UNKNOWN_DISPERSION, "many"
    if tasks is not None and "gram.parts" not in tasks:
        return UNKNOWN_DISPERSION, "refused"
    if (asked.n_rows or moments.n) < least_rows((n_lags + 1) * d) * n_sites:
        return UNKNOWN_DISPERSION, "few"
    # What is a recording's own has been taken off.
    level = None if asked.center == "recording" else np.tile(moments.mean[:d], n_lags + 1)
    question = GramQuestion(n_lags=n_lags, variables=variables, center=asked.center, origin=level)
    try:
        parts = yield from treated(parts_program(question), asked.treatment)
    except (SiteRefused, NotEnoughSites):
        return UNKNOWN_DISPERSION, "refused"
    return max(parts.overdispersion(d) / min(moments.n / parts.whole.n, 1.0), 1.0), ""


def replicated(
    fit: Fit, learn: OrderLearner, limits: EdgeConstraints, rng: np.random.Generator
) -> OneShotOutcome:
    """The same network with what comes again in resamples of as many rows as there are, by how much parts differ."""
    outcome, report, curved = fit
    # As many as the network was learned from: where variances change, fewer than there are. Parts do not show that well:
    # shocks that variables share are in all of them.
    n = outcome.learned.search.moments.n
    n /= outcome.dispersion
    curves_direct = curved is not None and report is not None and _may_direct(report.checks)
    if curved is not None:
        learn = replace(learn, groups=curved_groups(curved.design))
    found, doubted = outcome.learned, outcome.doubted
    if outcome.beside is not None:
        found, limits, doubted = _without_doubts(found, learn, limits, outcome.beside, n)
    learned = learn.replicated(found, n, limits, rng, curves_direct)
    return replace(outcome, learned=learned, doubted=doubted)


def _may_direct(checks: ResidualChecks | None) -> bool:
    """Whether curves direct edges: noise is independent of its causes one way only if the model lacks nothing (Hoyer et al.
    2009), and what it leaves of one variable then tells nothing about another's.
    """
    return checks is not None and min(checks.dependence_p, checks.volatility_p) > _DEPENDENT


def _without_doubts(
    found: Learned,
    learn: OrderLearner,
    limits: EdgeConstraints,
    beside: CurvedMoments,
    n: float,
) -> tuple[Learned, EdgeConstraints, tuple[tuple[int, int, int], ...]]:
    """The network learned again without the edges that are in doubt, the limits that say so, and these edges; evidence
    counts n rows.
    """
    q, d = found.support.shape
    told, groups, doubted = beside.moments, curved_groups(beside.design), dict[tuple[int, int, int], None]()
    evidence = Moments(n, told.mean, told.scatter * (n / told.n))
    if len(beside.design.terms[0].lags) * d != q:
        return found, limits, ()
    for _ in range(_TIMES):
        new = np.concatenate(doubtful_edges_of(found.support, evidence, groups)) & limits.allowed
        new &= ~limits.required
        if not (new & found.support).any():
            break
        doubted |= {(m % d, j, m // d): None for m, j in np.argwhere(new & found.support).tolist()}
        limits = EdgeConstraints(limits.allowed & ~new, limits.required)
        found = learn.narrowed(found, limits)
    return found, limits, tuple(sorted(doubted))
