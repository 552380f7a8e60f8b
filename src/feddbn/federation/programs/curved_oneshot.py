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
from feddbn.core.orders.curved_design import CurvedNetwork, curved_network, in_data_units, tokens_of
from feddbn.core.orders.learn import LearnOptions, choose_lags
from feddbn.core.orders.learn_curved import CurvedLearned, learn_curved, straight_score
from feddbn.core.statistics.moments import Moments
from feddbn.core.statistics.residual_checks import ResidualChecks
from feddbn.federation.programs.checked_oneshot import checked_oneshot_program
from feddbn.federation.programs.curved_moments import all_products, curved_moments_program
from feddbn.federation.programs.network_checks import ResidualReport
from feddbn.federation.programs.oneshot import OneShotOptions, OneShotOutcome, counted, first_look
from feddbn.federation.programs.treatment import asked_moments_program
from feddbn.federation.protocol.rows import treated
from feddbn.federation.protocol.task import ServerProgram

__all__ = ["CurveOptions", "CurvedOutcome", "auto_program", "curved_program"]

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
    network, design
        Weights and curves in the units of the data, and the design whose functions they are.
    gain
        By how much the score is better than that of the best straight network; None if that was not compared.
    """

    outcome: OneShotOutcome
    tokens: tuple[tuple[int, ...], ...]
    network: CurvedNetwork
    design: Design
    gain: float | None = None


def curved_program(
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
    curves: CurveOptions,
    rng: np.random.Generator,
) -> ServerProgram[CurvedOutcome]:
    """Ask, and learn a network of straight and curved edges."""
    d = len(variables)
    asked, n_sums = yield from counted(
        asked_moments_program(variables, options.n_lags, options.wishes, False)
    )
    working = first_look(asked.moments, variables, options)
    n_lags, lag_scores = options.n_lags, None
    if options.choose_n_lags:
        n_lags, lag_scores = choose_lags(working, d, n_lags, constraints, options.learn.criterion, "free")
    kept = np.arange((n_lags + 1) * d)
    plain = asked.moments.select(kept)
    limits = EdgeConstraints(constraints.allowed[kept], constraints.required[kept])
    learned, moments, design = yield from treated(
        _learned(variables, n_lags, plain, asked.center, limits, options, curves, rng), asked.treatment
    )
    outcome = OneShotOutcome(learned.learned, plain, n_lags, lag_scores, None, n_sums + 1, asked)
    network = curved_network(moments, design, learned.tokens)
    return CurvedOutcome(outcome, learned.tokens, network, design)


def _learned(
    variables: tuple[str, ...],
    n_lags: int,
    plain: Moments,
    center: str,
    limits: EdgeConstraints,
    options: OneShotOptions,
    curves: CurveOptions,
    rng: np.random.Generator,
) -> ServerProgram[tuple[CurvedLearned, Moments, Design]]:
    products = all_products(len(variables), n_lags) if curves.interactions else ()
    moments, design = yield from curved_moments_program(
        variables, n_lags, plain, curves.features, center, products
    )
    moments = in_data_units(moments, design)
    working = moments
    if options.scale == "federated":
        sd = np.ones(moments.q)
        sd[: (n_lags + 1) * design.d] = np.tile(design.scale, n_lags + 1)
        working = moments.scaled(sd)
    learn: LearnOptions = options.learn
    if options.wishes.input_places(variables) and learn.noise_variance == "auto":
        # How an input varies is no noise: it must not count where noise variances are compared.
        learn = replace(learn, noise_variance="free")
    return learn_curved(working, tokens_of(design), limits, learn, rng), moments, design


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
        n_lines = (outcome.n_lags + 1) * len(variables)
        limits = EdgeConstraints(constraints.allowed[:n_lines], constraints.required[:n_lines])
        learned, moments, design = yield from _learned(
            variables, outcome.n_lags, outcome.moments, outcome.asked.center, limits, options, curves, rng
        )
        outcome = replace(outcome, n_sums=outcome.n_sums + 1)
        gain = straight_score(learned, outcome.learned) - learned.learned.score
        has_curves = any(t >= n_lines for parents in learned.tokens for t in parents)
        if gain < CLEAR_GAIN or not has_curves:
            return outcome, None
        outcome = replace(outcome, learned=learned.learned, nongaussian=None)
        network = curved_network(moments, design, learned.tokens)
        taken.append(CurvedOutcome(outcome, learned.tokens, network, design, gain))
        return outcome, ResidualReport(checks, ("curvature",), (), n_effective=outcome.moments.n)

    outcome, report = yield from checked_oneshot_program(variables, constraints, options, rng, instead)
    return outcome, report, taken[0] if taken else None
