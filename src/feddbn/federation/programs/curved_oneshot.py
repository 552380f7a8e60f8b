"""The one-round method for effects that may be curved: one more sum, of functions of the variables.

    as the linear method begins    what has to be done to the rows, and their moments
    ``curved-moments``             the same of fixed functions of them, in the public units that the first sum told

`curved_program` models curves wherever the evidence is for them. `auto_program` learns as the linear method does and
looks for curvature only where the residuals have some; it keeps straight lines unless the evidence is clearly against.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.designs.design import Design
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.curved import (
    CurvedLearned,
    CurvedNetwork,
    TokenRegressions,
    curved_network,
    in_data_units,
    learn_curved,
    straight_score,
    tokens_of,
)
from feddbn.core.orders.learn import LearnOptions, choose_lags
from feddbn.core.orders.parents import MANY_NODES
from feddbn.core.orders.search import products_to_ask
from feddbn.core.statistics.curvature import information_of_shape
from feddbn.core.statistics.moments import Moments
from feddbn.core.statistics.residual_checks import ResidualChecks, violations
from feddbn.federation.programs.checked_oneshot import checked_oneshot_program
from feddbn.federation.programs.curved_checks import curved_checks_program
from feddbn.federation.programs.curved_moments import CurvedMoments, curved_moments_program
from feddbn.federation.programs.network_checks import ResidualReport
from feddbn.federation.programs.oneshot import OneShotOptions, OneShotOutcome, counted, first_look
from feddbn.federation.programs.treatment import AskedMoments, asked_moments_program
from feddbn.federation.protocol.rows import treated
from feddbn.federation.protocol.task import ServerProgram

__all__ = ["CurveOptions", "CurvedOutcome", "auto_program", "curved_program", "learn_from_curved"]

CLEAR_GAIN = 10.0
"""By how much curves must score better than straight lines, as for other choices between kinds of networks."""


@dataclass(frozen=True)
class CurveOptions:
    """Which functions (`programs.curved_moments.MAPS`), and whether products of lagged variables."""

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
        asked_moments_program(variables, options.n_lags, options.wishes, False)
    )
    working = first_look(asked.moments, variables, options)
    n_lags, lag_scores = options.n_lags, None
    if options.choose_n_lags:
        n_lags, lag_scores = choose_lags(working, d, n_lags, constraints, options.learn.criterion, "free")
    kept = np.arange((n_lags + 1) * d)
    limits = EdgeConstraints(constraints.allowed[kept], constraints.required[kept])
    given = OneShotGiven(asked, asked.moments.select(kept), n_lags, limits)

    def learning() -> ServerProgram[tuple[CurvedLearned, CurvedMoments, ResidualChecks | None]]:
        learned, told = yield from _learned(variables, given, options, curves, rng)
        checks = None
        if looks and n_lags:
            checks = yield from _checked(told, learned, variables, options, asked)
        return learned, told, checks

    learned, told, checks = yield from treated(learning(), asked.treatment)
    n_sums += 1 + (checks is not None)
    outcome = OneShotOutcome(learned.learned, given.moments, n_lags, lag_scores, None, n_sums, asked)
    report = None if checks is None else _report(checks)
    curved = replace(_curved(outcome, learned, told), is_noisy=options.wishes.noisy)
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
) -> ServerProgram[tuple[CurvedLearned, CurvedMoments]]:
    products: tuple[tuple[int, int, int], ...] = ()
    if curves.interactions:
        products = products_to_ask(given.moments, len(variables), given.n_lags, given.limits)
    told = yield from curved_moments_program(
        variables,
        given.n_lags,
        given.moments,
        curves.features,
        given.asked.center,
        products,
        options.wishes.noisy,
    )
    return _network_of(told, variables, given.limits, options, rng), told


def _network_of(
    told: CurvedMoments,
    variables: tuple[str, ...],
    limits: EdgeConstraints,
    options: OneShotOptions,
    rng: np.random.Generator,
) -> CurvedLearned:
    # In public units all variables have variance 1; equal noise variances are meant in the units of the data.
    working = told.moments if options.scale == "federated" else in_data_units(told.moments, told.design)
    learn: LearnOptions = options.learn
    if options.wishes.input_places(variables) and learn.noise_variance == "auto":
        # How an input varies is no noise: it must not count where noise variances are compared.
        learn = replace(learn, noise_variance="free")
    return learn_curved(working, tokens_of(told.design), limits, learn, rng)


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
    outcome = OneShotOutcome(learned.learned, plain, options.n_lags, None, None, 0)
    return _curved(outcome, learned, told)


def _checked(
    told: CurvedMoments,
    learned: CurvedLearned,
    variables: tuple[str, ...],
    options: OneShotOptions,
    asked: AskedMoments,
) -> ServerProgram[ResidualChecks]:
    """Ask about the residuals of a network with curves."""
    regressions = TokenRegressions(told.moments.scatter, told.moments.n, tokens_of(told.design))
    weights = [regressions.coefficients(j, tokens)[:2] for j, tokens in enumerate(learned.tokens)]
    share = asked.rank / asked.n_rows if asked.n_rows else 0.0
    inputs = options.wishes.input_places(variables)
    return (yield from curved_checks_program(told, weights, inputs, share))


def _report(checks: ResidualChecks) -> ResidualReport:
    """What the residuals of a network with curves say; it stays as it is, whatever they say."""
    found = violations(checks)
    factor = checks.inflation if "volatility" in found else 1.0
    return ResidualReport(checks, found, found, n_effective=checks.n / factor, looked_only=True)


def _curved(
    outcome: OneShotOutcome, learned: CurvedLearned, told: CurvedMoments, gain: float | None = None
) -> CurvedOutcome:
    network = curved_network(in_data_units(told.moments, told.design), told.design, learned.tokens)
    return CurvedOutcome(outcome, learned.tokens, network, told, gain=gain)


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
        limits = EdgeConstraints(constraints.allowed[:n_lines], constraints.required[:n_lines])
        given = OneShotGiven(outcome.asked, outcome.moments, outcome.n_lags, limits)
        learned, told = yield from _learned(variables, given, options, curves, rng)
        outcome = replace(outcome, n_sums=outcome.n_sums + 1)
        gain = straight_score(learned, outcome.learned) - learned.learned.score
        has_curves = any(t >= n_lines for parents in learned.tokens for t in parents)
        if gain < CLEAR_GAIN or not has_curves:
            return outcome, None
        if outcome.n_lags:
            then = yield from _checked(told, learned, variables, options, given.asked)
            outcome = replace(outcome, n_sums=outcome.n_sums + 1)
            gain -= 2 * given.moments.n * (information_of_shape(checks) - information_of_shape(then))
            checks = then
            if gain < CLEAR_GAIN:
                return outcome, None
        outcome = replace(outcome, learned=learned.learned, nongaussian=None)
        taken.append(_curved(outcome, learned, told, gain))
        return outcome, _report(checks)

    outcome, report = yield from checked_oneshot_program(variables, constraints, options, rng, instead)
    return outcome, report, taken[0] if taken else None
