"""The one-round method for effects that may be curved: what is asked, what residuals say, and what is learned.

``curved-moments``   count, totals and cross-products of the variables and of fixed smooth functions of them, at lags 0..p
                     (`Design.curved`)
``curved-checks``    the sums of `residual_checks`, of residuals of such a design

Values are treated as the question asks; what is a recording's own (mean, trend, cycles) is taken off the values before
functions of them are formed, so a curve bends about a recording's own level. Empty cells are drawn under the federation's
model of rows, as for resampling. The functions have fixed knots; origin and scale are those that an earlier sum told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.cells import FilledSite, off_nuisance
from feddbn.core.designs.design import Basis, Design, are_public_units, public_units
from feddbn.core.designs.features import BEND, CURVE, N_CURVES, N_SMOOTH, SMOOTH
from feddbn.core.designs.gram import recording_gram
from feddbn.core.designs.nuisance import ONE_MEAN, RECORDING_MEANS
from feddbn.core.designs.recordings import CompleteRows, CompleteSite, Recording, SiteData
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.groups import (
    CurvedNetwork,
    CurvedRegressions,
    curved_groups,
    curved_network,
    in_data_units,
)
from feddbn.core.orders.learn import Learned, OrderLearner, choose_lags, chosen_groups, straight_score
from feddbn.core.orders.parents import MANY_NODES
from feddbn.core.orders.search import MOST_WITHOUT_SCREENING, products_to_ask
from feddbn.core.statistics.diagnostics import outputs_of
from feddbn.core.statistics.moments import Moments, safe_roots, sums_length
from feddbn.core.statistics.residual_checks import (
    ResidualChecks,
    ResidualSums,
    check_residuals,
    information_of_shape,
    violations,
)
from feddbn.core.statistics.residual_checks import sums_length as check_sums_length
from feddbn.errors import ParameterError
from feddbn.federation.programs.oneshot import (
    OneShotOptions,
    OneShotOutcome,
    checked_oneshot_program,
    first_look,
    oneshot_plan,
)
from feddbn.federation.programs.prepare import Prepare
from feddbn.federation.programs.residual_checks import MOST_NETWORKS, ResidualReport, recording_residuals
from feddbn.federation.programs.statistics import require_separate_units, row_sums, training_site
from feddbn.federation.programs.treatment import AskedMoments, asked_moments_plan, asked_moments_program
from feddbn.federation.protocol.plan import Plan, Planned
from feddbn.federation.protocol.rows import RowsQuestion, treated
from feddbn.federation.protocol.site import Here, SiteState, answers
from feddbn.federation.protocol.task import (
    Constant,
    Scope,
    ServerProgram,
    Task,
    View,
    array,
    counted,
    number,
    text,
    wholes,
)

MAPS = {"spline": CURVE, "quadratic": BEND}
"""Which part of a design stands for which choice of `features`; a map of a user's own stands for itself."""
_NOISY_MAPS = {**MAPS, "spline": SMOOTH}
_SEED = 0


def part_of(features: str, noisy: bool = False) -> str:
    """Return which part of a design stands for a choice of `features`; under noise splines have fewer functions."""
    return (_NOISY_MAPS if noisy else MAPS).get(features, features)


def features_of(part: str) -> str:
    """Inverse of `part_of`."""
    return next((name for name in MAPS if part in (MAPS[name], _NOISY_MAPS[name])), part)


@dataclass(frozen=True, kw_only=True)
class CurvedMomentsQuestion(RowsQuestion):
    """Cross-products of the rows of one curved design.

    `basis` names the functions, `origin` and `scale` (d,) bring values to public standard deviations, `products` are
    (first, second, lag), one after the other. `clip_bound` is the bound to which sites clip where they add noise.
    """

    name = "curved-moments"
    purpose = "means and cross-products of all variables and of fixed smooth functions and products of them"

    basis: str = text()
    origin: FloatArray = array("d")
    scale: FloatArray = array("d")
    products: tuple[int, ...] = wholes(0, 1_000_000, default=())
    clip_bound: float | None = number(0.0, default=None)

    def check(self) -> None:
        """Origin and scale are on the public grid, and the design exists."""
        super().check()
        if not are_public_units(self.origin, self.scale):
            raise self.wrong("'origin' and 'scale' must be on the public grid")
        if len(self.products) % 3:
            raise self.wrong("'products' must be (first, second, lag), one after the other")
        try:
            reach = self.curved.n_lags
        except ParameterError as error:
            raise self.wrong(str(error).rstrip(".")) from None
        if reach != self.n_lags:
            raise self.wrong(f"'products' reach {reach} rows back, but n_lags is {self.n_lags}")

    def check_scope(self, scope: Scope) -> None:
        """Functions and products are the study's."""
        super().check_scope(scope)
        asked = scope.parameters.get("features", "linear")
        names = tuple(MAPS.values()) if asked == "auto" else (part_of(str(asked), scope.unit is not None),)
        scope.require(self.basis in names, self.name, f"its functions are {self.basis!r}", "other-functions")
        wants = bool(scope.parameters.get("interactions", False))
        scope.require(wants or not self.products, self.name, "it multiplies variables", "other-functions")
        has_meaning = self.clip_bound is None or scope.unit is not None
        scope.require(has_meaning, self.name, "'clip_bound' has no meaning without noise")

    @property
    def feature_maps(self) -> tuple[str, ...]:
        """The choice of `features` that its functions stand for."""
        return (features_of(self.basis),)

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Origin and scale are settled by earlier sums, and functions and products by the study."""
        what = f"functions of rows (n_lags = {self.n_lags}, fold = {self.fold})"
        return *super().constants, Constant(what, (self.basis, self.origin, self.scale, self.products), 2)

    @cached_property
    def curved(self) -> Design:
        """Its columns; where recordings lose what is their own, functions of what is left lose their means, too."""
        nuisance = RECORDING_MEANS if self.center == "recording" else ONE_MEAN
        triples = zip(*(iter(self.products),) * 3, strict=True)
        return Design.curved(
            self.variables,
            self.n_lags,
            Basis(self.basis),
            nuisance,
            tuple(self.origin.tolist()),
            tuple(self.scale.tolist()),
            tuple(triples),
        )

    @property
    def function_units(self) -> tuple[FloatArray, FloatArray] | None:
        """Those of its functions."""
        return self.origin, self.scale

    @property
    def n_columns(self) -> int:
        """Columns of the curved design."""
        return self.curved.q

    def in_view(self, data: SiteData, site: str) -> tuple[View, ...]:
        """Also the functions of values, where empty cells are drawn."""
        key = (self.limits, self.far, self.own_limits, self.center, self.degree, self.periods, self.row_model)
        drawn = self.view(
            self.curved,
            seen=lambda one: curved_site(one, self),
            key=key,
            is_whole=False,
            are_pairs=False,
            fold=(),
        )
        return *super().in_view(data, site), drawn


@dataclass(frozen=True)
class CurvedMoments:
    """What a sum over curved rows told.

    Attributes
    ----------
    moments
        In the public units of the design.
    question
        What was asked.
    level
        (d,) where the variables are 0 in these units: about their means, where recordings lost their own those of all rows.
    """

    moments: Moments
    question: CurvedMomentsQuestion
    level: FloatArray

    @property
    def design(self) -> Design:
        """The design whose columns they are, about the level."""
        return replace(self.question.curved, origin=tuple(self.level.tolist()))

    def of(self, moments: Moments) -> CurvedMoments:
        """The same design with the moments of other rows, such as resamples of these."""
        return replace(self, moments=moments)


def curved_moments_program(
    variables: tuple[str, ...],
    n_lags: int,
    plain: Moments,
    features: str,
    center: str = "none",
    products: tuple[tuple[int, int, int], ...] = (),
    noisy: bool = False,
) -> ServerProgram[CurvedMoments]:
    """Ask for the cross-products of a curved design; `plain` are the moments of the rows themselves.

    Returns them as from as many rows as `plain` has: where cells are empty, fewer than there are. `noisy` sums have noise of
    their own each, so these count as many rows as they are worth themselves.
    """
    d = len(variables)
    is_own = center == "recording"
    # What is a recording's own has been taken off: what is left varies about 0.
    sd = safe_roots(np.diag(plain.scatter)[:d] / plain.n)
    origin, scale = public_units(np.zeros(d) if is_own else plain.mean[:d], sd)
    question = CurvedMomentsQuestion(
        n_lags=n_lags,
        variables=variables,
        center=center,
        basis=part_of(features, noisy),
        origin=origin,
        scale=scale,
        products=tuple(number for product in products for number in product),
    )
    answer = yield Task(question)
    moments = Moments.from_sums(answer.value, question.curved.q)
    n = moments.n if noisy else plain.n
    scatter = moments.scatter * (n / moments.n)
    level = plain.mean[:d] if is_own else origin
    return CurvedMoments(Moments(n, moments.mean, scatter), question, level)


def curved_site(data: SiteData, question: CurvedMomentsQuestion) -> SiteData:
    """A site as functions are formed of it: without what is its recordings' own, and with empty cells drawn."""
    data = training_site(question.treated(data), question.fold)
    if question.center == "recording" or question.row_model is not None:
        data = FilledSite(data, question.nuisance, question.row_model, _SEED)
    return data


def curved_recordings(here: Here, question: CurvedMomentsQuestion) -> Iterator[Recording]:
    """The recordings of such a site without the rows that still have empty cells."""
    return iter(CompleteSite(curved_site(here.data, question)).recordings())


def local_curved_moments(here: Here, question: CurvedMomentsQuestion) -> Moments:
    """The moments of a site's rows of a curved design; none if it abstains."""
    question.require_variables(here.data)
    total = Moments.empty(question.curved.q)
    if not question.abstains(here.state):
        for recording in curved_recordings(here, question):
            total = total.merge(recording_gram(question.curved, recording).moments)
    return total


def _moments_answer(here: Here, question: CurvedMomentsQuestion) -> tuple[SiteState, FloatArray]:
    return here.state, local_curved_moments(here, question).to_sums()


def _units(here: Here, question: CurvedMomentsQuestion, unit: str) -> Iterator[FloatArray]:
    question.require_variables(here.data)
    require_separate_units(question, unit)
    if unit == "row" and question.basis not in (*MAPS.values(), *_NOISY_MAPS.values()):
        raise ParameterError(
            f"features={question.basis!r}: functions of one's own may look at several rows; protect unit='recording'.",
            code="functions-mix",
        )
    # Nothing is drawn here: that one recording's cells are drawn would change those of the next.
    for recording in question.treated(here.data).recordings():
        whole = CompleteRows(off_nuisance(recording, question.nuisance))
        if unit == "row":
            yield from row_sums(question.curved, whole)
        else:
            yield recording_gram(question.curved, whole).moments.to_sums()


answers(CurvedMomentsQuestion, _units, lambda question: sums_length(question.curved.q))(_moments_answer)


# Residual checks of a network with curves: the same sums as `residual_checks`, of residuals of a curved design.
#
# ``curved-checks``   sums of products and squares of standardised residuals ``z @ coefficients - offset`` of curved rows


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


@answers(CurvedChecksQuestion, length=lambda question: check_sums_length(question.d, question.n_lags + 1))
def _checks_answer(here: Here, question: CurvedChecksQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    d, n_back = question.d, question.n_lags + 1
    total = np.zeros(check_sums_length(d, n_back))
    if question.abstains(here.state):
        return here.state, total
    of = question.coefficients, question.offset
    for recording in curved_recordings(here, question):
        total += recording_residuals(question.curved, recording, of, n_back)
    return here.state, total


# The one-round method for effects that may be curved: one more sum, of functions of the variables.
#
#     as the linear method begins    what has to be done to the rows, and their moments
#     ``curved-moments``             the same of fixed functions of them, in the public units that the first sum told
#
# `curved_program` models curves wherever the evidence is for them. `auto_program` learns as the linear method does and
# looks for curvature only where the residuals have some; it keeps straight lines unless the evidence is clearly against.

CLEAR_GAIN = 10.0
"""By how much curves must score better than straight lines, as for other choices between kinds of networks."""


@dataclass(frozen=True)
class CurveOptions:
    """Which functions (`MAPS`), and whether products of lagged variables."""

    features: str = "spline"
    interactions: bool = False


@dataclass(frozen=True)
class CurvedOutcome:
    """What the server ends with.

    Attributes
    ----------
    outcome
        As of the linear method; its moments are those of the rows themselves.
    tokens
        For each node the lines, curves and products that it has.
    network
        Weights and curves in the units of the data.
    told
        The sum over curved rows that it was learned from; under noise it counts as fewer rows than there are.
    is_noisy
        Whether that sum carries noise.
    gain
        By how much the score is better than that of the best straight network; None if that was not compared.
    """

    outcome: OneShotOutcome
    tokens: tuple[tuple[int, ...], ...]
    network: CurvedNetwork
    told: CurvedMoments
    is_noisy: bool = False
    gain: float | None = None

    @property
    def design(self) -> Design:
        """The design whose functions the curves are."""
        return self.told.design


def curved_columns(
    d: int, n_lags: int, features: str, interactions: bool = False, noisy: bool = False
) -> int:
    """Columns of a row of functions of the variables; functions of a user's own count as one."""
    per_line = {"spline": N_SMOOTH if noisy else N_CURVES, "auto": N_CURVES}.get(features, 1)
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
        first = oneshot_plan(variables, n_lags, prepare, checks=checks, **options)
    if is_auto and d > MANY_NODES:
        return first
    columns = curved_columns(d, n_lags, curves.features, curves.interactions, prepare.noisy)
    usual = int(not is_auto)
    plan = *first, Planned(CurvedMomentsQuestion.name, sums_length(columns), usual=usual)
    if not checks or n_lags == 0:
        return plan
    return *plan, Planned(CurvedChecksQuestion.name, check_sums_length(d, n_lags + 1), usual=usual)


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
    report = None if checks is None else _report(checks)
    curved = replace(_curved(outcome, learned, told), is_noisy=options.prepare.noisy)
    return outcome, report, curved


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
) -> ServerProgram[tuple[Learned, CurvedMoments]]:
    products: tuple[tuple[int, int, int], ...] = ()
    if curves.interactions:
        products = products_to_ask(given.moments, given.limits)
    told = yield from curved_moments_program(
        variables,
        given.n_lags,
        given.moments,
        curves.features,
        given.asked.center,
        products,
        options.prepare.noisy,
    )
    return _network_of(told, variables, given.limits, options, rng), told


def _network_of(
    told: CurvedMoments,
    variables: tuple[str, ...],
    limits: EdgeConstraints,
    options: OneShotOptions,
    rng: np.random.Generator,
) -> Learned:
    # In public units all variables have variance 1; equal noise variances are meant in the units of the data.
    working = (
        told.moments if options.prepare.scale == "federated" else in_data_units(told.moments, told.design)
    )
    learn: OrderLearner = replace(options.learn, groups=curved_groups(told.design))
    if options.prepare.input_places(variables) and learn.noise_variance == "auto":
        # How an input varies is no noise: it must not count where noise variances are compared.
        learn = replace(learn, noise_variance="free")
    return learn.learn(working, limits, rng)


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


def _report(checks: ResidualChecks) -> ResidualReport:
    """What the residuals of a network with curves say; it stays as it is, whatever they say."""
    found = violations(checks)
    factor = checks.inflation if "volatility" in found else 1.0
    return ResidualReport(checks, found, found, n_effective=checks.n / factor, looked_only=True)


def _curved(
    outcome: OneShotOutcome, learned: Learned, told: CurvedMoments, gain: float | None = None
) -> CurvedOutcome:
    network = curved_network(in_data_units(told.moments, told.design), told.design, chosen_groups(learned))
    return CurvedOutcome(outcome, chosen_groups(learned), network, told, gain=gain)


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
        limits = constraints.up_to(outcome.n_lags)
        given = OneShotGiven(outcome.asked, outcome.moments, outcome.n_lags, limits)
        learned, told = yield from _learned(variables, given, options, curves, rng)
        outcome = replace(outcome, n_sums=outcome.n_sums + 1)
        gain = straight_score(learned, outcome.learned) - learned.score
        has_curves = any(t >= n_lines for parents in chosen_groups(learned) for t in parents)
        if gain < CLEAR_GAIN or not has_curves:
            return outcome, None
        if outcome.n_lags:
            then = yield from _checked(told, learned, variables, options, given.asked)
            outcome = replace(outcome, n_sums=outcome.n_sums + 1)
            gain -= 2 * given.moments.n * (information_of_shape(checks) - information_of_shape(then))
            checks = then
            if gain < CLEAR_GAIN:
                return outcome, None
        outcome = replace(outcome, learned=learned, nongaussian=None)
        taken.append(_curved(outcome, learned, told, gain))
        return outcome, _report(checks)

    outcome, report = yield from checked_oneshot_program(variables, constraints, options, rng, instead)
    return outcome, report, taken[0] if taken else None
