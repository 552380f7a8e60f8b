"""The one-round method, its residuals looked at: one more sum tells how far the evidence holds.

Theory of operation: after learning, sites send sums about the residuals (`residual_checks`).

memory       Where residuals remember earlier ones, or effects come again with the opposite sign, moments with one more
             lag are asked for and three explanations compared by the score that chooses networks: as it is, one lag
             more, noise with a memory of its own (`core.statistics.noise_memory`). The better one is taken if the
             residuals then remember nothing. A lag is added only where their number was left to the method.
variance     Where variances change, the same moments are worth fewer rows: the network is learned again from
             ``n / inflation`` of them.
hidden       Where noise variances differ, networks with hidden common causes are compared with the one found, from the
             moments that are there already (`core.orders.hidden`). If they clearly explain more, edges between the
             effects of one are left open; edges that they do not need are in doubt.

What was found and what is left is the report; sentences are made of it elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.hidden import CLEAR_GAIN, HiddenDoubts, doubtful_edges, may_be_looked_for
from feddbn.core.orders.learn import STRONG_EVIDENCE, EdgeOrientation, refit
from feddbn.core.orders.parents import MANY_NODES
from feddbn.core.orders.search import OrderSearch
from feddbn.core.statistics.known_inputs import neutral_inputs
from feddbn.core.statistics.moments import Moments
from feddbn.core.statistics.noise_memory import memory_filter, memory_of_noise, without_memory
from feddbn.core.statistics.residual_checks import ResidualChecks, violations
from feddbn.core.statistics.scaling import safe_roots
from feddbn.federation.programs.network_checks import FEWEST_COMPLETE, ResidualReport, checks_program
from feddbn.federation.programs.oneshot import (
    OneShotOptions,
    OneShotOutcome,
    learn_from_moments,
    oneshot_program,
)
from feddbn.federation.programs.treatment import moments_program
from feddbn.federation.programs.wishes import Wishes
from feddbn.federation.protocol.rows import treated
from feddbn.federation.protocol.task import ServerProgram

LARGE_SHARED = 1.15
"""Squares of different residuals of a row whose mean product is above this do not come from independent noises."""

__all__ = ["Instead", "checked_oneshot_program"]

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


def checked_oneshot_program(
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
    rng: np.random.Generator,
    instead: Instead | None = None,
) -> ServerProgram[tuple[OneShotOutcome, ResidualReport | None]]:
    """Learn, look at the residuals, and learn again where that helps; no report if too few rows are complete.

    `instead` is asked for another kind of network where effects are curved: from the one found to a better one, or None.
    """
    outcome = yield from oneshot_program(variables, constraints, options, rng)
    assert outcome.asked is not None
    looking = _looked_at(outcome, variables, constraints, options, rng, instead)
    return (yield from treated(looking, outcome.asked.treatment))


def _looked_at(
    outcome: OneShotOutcome,
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
    rng: np.random.Generator,
    instead: Instead | None,
) -> ServerProgram[tuple[OneShotOutcome, ResidualReport | None]]:
    assert outcome.asked is not None
    wishes = Wishes(outcome.asked.center, inputs=options.wishes.inputs)
    settled = replace(options, wishes=wishes, n_lags=outcome.n_lags, choose_n_lags=False)
    fit = _Fit(outcome, outcome.moments)
    checks, may_add = yield from _checked(fit, variables, settled)
    has_gaps = outcome.asked.treatment.row_model is not None
    if has_gaps and checks.n < FEWEST_COMPLETE:
        return replace(outcome, n_sums=outcome.n_sums + 1), None
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
        fit, checks, gain, asked = yield from _explain_memory(
            fit, checks, variables, constraints, options, settled, rng
        )
        n_sums += asked
    left = violations(checks)
    factor = checks.inflation if "volatility" in left else 1.0
    if factor > 1.0:
        fit = _tempered(fit, factor, checks.shared > LARGE_SHARED, variables, constraints, settled, rng)
    doubts = _hidden_causes(fit, factor, variables, constraints, settled, rng)
    is_clear = doubts is not None and _is_clear(doubts, checks)
    effects = doubts.effects if doubts is not None and is_clear else ()
    if effects:
        fit, left = _left_open(fit, effects), ("hidden", *left)
    report = ResidualReport(
        checks,
        found,
        left,
        fit.rho,
        fit.outcome.n_lags - outcome.n_lags,
        gain,
        fit.outcome.moments.n / factor,
        hidden=tuple(tuple(variables[j] for j in one) for one in effects),
        hidden_gain=0.0 if doubts is None or not is_clear else doubts.gain,
        doubts=doubts,
    )
    return replace(fit.outcome, n_sums=n_sums, asked=outcome.asked, lag_scores=outcome.lag_scores), report


def _checked(
    fit: _Fit, variables: tuple[str, ...], options: OneShotOptions
) -> ServerProgram[tuple[ResidualChecks, bool]]:
    """Ask about the residuals of a network."""
    outcome, asked = fit.outcome, fit.outcome.asked
    own_share = 0.0 if asked is None or not asked.n_rows else asked.rank / asked.n_rows
    return (
        yield from checks_program(
            fit.learned_from,
            outcome.learned.support,
            variables,
            options.wishes.center,
            options.wishes.input_places(variables),
            own_share,
            fit.to_learned,
            outcome.learned.order,
        )
    )


def _explain_memory(
    fit: _Fit,
    checks: ResidualChecks,
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
    settled: OneShotOptions,
    rng: np.random.Generator,
) -> ServerProgram[tuple[_Fit, ResidualChecks, float, int]]:
    """Compare what may be behind residuals that remember, and take what leaves none that do.

    Returns the network and its checks, what one lag more would gain, and how many sums that took.
    """
    outcome, d, p = fit.outcome, len(variables), fit.outcome.n_lags
    longer = yield from moments_program(variables, p + 1, settled.wishes.center)
    # Recordings centred on their own means come with none; levels are those of the first sum.
    longer = Moments(longer.n, np.tile(outcome.moments.mean[:d], p + 2), longer.scatter)
    scale = safe_roots(np.diag(longer.scatter)[:d] / longer.n) if settled.scale == "federated" else np.ones(d)
    plain = longer.select(np.arange((p + 1) * d))
    inputs = settled.wishes.input_places(variables)
    limits = _limits(constraints, p + 1, d, inputs)

    def score(moments: Moments) -> float:
        n_lags = moments.q // d - 1
        kept = EdgeConstraints(limits.allowed[: moments.q], limits.required[: moments.q])
        criterion, kind = settled.learn.criterion, outcome.learned.noise.kind
        working, level = neutral_inputs(moments.scaled(np.tile(scale, n_lags + 1)), d, inputs)
        search = OrderSearch(working, d, n_lags, kept, criterion.for_orders, kind)
        # Many variables stay where they are unless a move helps.
        start = outcome.learned.network
        network = search.run(0, np.random.default_rng(0)) if d <= MANY_NODES else search.run_from(start)
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
    gains = {"memory": memory_gain, "lag": lag_gain if options.choose_n_lags else -np.inf}
    for name in sorted(gains, key=lambda key: -gains[key]):
        if gains[name] < STRONG_EVIDENCE:
            break
        if name == "memory":
            other = _without_memory(
                without_memory(longer, rho, d), rho, longer.mean, variables, limits, settled, rng
            )
        else:
            asked = replace(settled, n_lags=p + 1)
            again = yield from oneshot_program(variables, limits, asked, rng)
            other = _Fit(again, again.moments)
            n_sums += again.n_sums
        then, _ = yield from _checked(other, variables, settled)
        n_sums += 1
        if "memory" not in violations(then):
            return other, then, lag_gain, n_sums
    return fit, checks, lag_gain, n_sums


def _without_memory(
    filtered: Moments,
    rho: float,
    mean: FloatArray,
    variables: tuple[str, ...],
    limits: EdgeConstraints,
    options: OneShotOptions,
    rng: np.random.Generator,
) -> _Fit:
    """Learn from moments without the noise's memory."""
    q, d = filtered.q, len(variables)
    kept = EdgeConstraints(limits.allowed[:q], limits.required[:q])
    outcome = learn_from_moments(filtered, variables, kept, options, rng)
    # Weights are the same; means and the noise's whole variance are those of the variables as they are.
    moments = Moments(filtered.n, mean[:q], filtered.scatter / (1.0 - rho * rho))
    to_learned = memory_filter(rho, outcome.n_lags, d)
    return _Fit(replace(outcome, moments=moments), filtered, to_learned, rho)


def _tempered(
    fit: _Fit,
    factor: float,
    is_shared: bool,
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
    rng: np.random.Generator,
) -> _Fit:
    """Learn again as from fewer rows; where the noise's shape decided about edges, only their probabilities.

    Shapes decide rightly only while noises are independent: not if their variances change together.
    """
    outcome, moments = fit.outcome, fit.learned_from
    fewer = Moments(moments.n / factor, moments.mean, moments.scatter / factor)
    inputs = options.wishes.input_places(variables)
    limits = _limits(constraints, outcome.n_lags, len(variables), inputs)
    again = learn_from_moments(fewer, variables, limits, replace(options, n_lags=outcome.n_lags), rng)
    learned = again.learned
    if outcome.nongaussian is not None and outcome.nongaussian.used and not is_shared:
        learned = replace(outcome.learned, posterior=learned.posterior)
        return replace(fit, outcome=replace(outcome, learned=learned))
    return replace(fit, outcome=replace(outcome, learned=learned, nongaussian=None))


def _hidden_causes(
    fit: _Fit,
    factor: float,
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
    rng: np.random.Generator,
) -> HiddenDoubts | None:
    """The edges that hidden causes could stand for; None if that cannot be told.

    Where all noises have one variance nothing is left for a hidden cause to explain. With inputs, dependent variables, or
    very few or many variables it is not looked for.
    """
    outcome, moments, d = fit.outcome, fit.learned_from, len(variables)
    support = outcome.learned.support
    if outcome.learned.noise.kind == "equal":
        return HiddenDoubts(np.zeros_like(support))
    is_told = not outcome.dependent and outcome.learned.path == () and may_be_looked_for(d)
    if not is_told or options.wishes.input_places(variables):
        return None
    moments = Moments(moments.n / factor, moments.mean, moments.scatter / factor)
    if options.scale == "federated":
        moments = moments.scaled(
            np.tile(safe_roots(np.diag(moments.scatter)[:d] / moments.n), outcome.n_lags + 1)
        )
    limits = _limits(constraints, outcome.n_lags, d)
    return doubtful_edges(moments, support, limits, options.learn.criterion, rng)


def _is_clear(doubts: HiddenDoubts, checks: ResidualChecks) -> bool:
    """Whether hidden causes clearly explain more than edges. Residuals that remember have other reasons, too.

    Second moments of heavy tails vary more than the score knows.
    """
    enough = CLEAR_GAIN * max(1.0, (float(checks.kurtosis.max()) - 1.0) / 2.0)
    return doubts.gain >= enough and "memory" not in violations(checks)


def _left_open(fit: _Fit, effects: Sequence[Sequence[int]]) -> _Fit:
    """The same network, the directions of edges between effects of one hidden cause left open."""
    together = {(i, j) for one in effects for i in one for j in one}
    learned = fit.outcome.learned
    orientation = tuple(
        EdgeOrientation(e.source, e.target, 0.0, False) if (e.source, e.target) in together else e
        for e in learned.orientation
    )
    return replace(fit, outcome=replace(fit.outcome, learned=replace(learned, orientation=orientation)))


def _is_mirrored(outcome: OneShotOutcome) -> bool:
    """Whether effects within a moment come again a row later with the opposite sign, as noise with a memory has it.

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


def _limits(constraints: EdgeConstraints, n_lags: int, d: int, inputs: Sequence[int] = ()) -> EdgeConstraints:
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
