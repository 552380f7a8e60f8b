"""Networks of variables of other kinds from drawn systems: weights act in standard units of both ends, counts are Poisson."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logit

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind
from feddbn.errors import ParameterError
from feddbn.model.dbn import DBN
from feddbn.model.dynamics import stationary_sample
from feddbn.model.nodes import Node, Term
from feddbn.sim.settings import SimulationSettings
from feddbn.sim.systems import System

_RATE = 3.0
_LOG_SD = 0.5
_LOGISTIC_SD = float(np.pi / np.sqrt(3))
_DAMPING, _MOST_DAMPINGS = 0.8, 12


@dataclass(frozen=True, eq=False)
class Ends:
    """How a variable stands as a cause and as an effect.

    Attributes
    ----------
    centre, spread
        (w,) what is taken off its columns, and (w, 1) what a step of it adds to each: `spread` times a weight.
    steps
        (1, k) what one step means for its k predictors.
    intercept
        Without causes.
    dispersion
        As in `Node`.
    """

    centre: FloatArray
    spread: FloatArray
    steps: FloatArray
    intercept: FloatArray
    dispersion: float


def stable_network(system: System, settings: SimulationSettings, ends: list[Ends]) -> tuple[System, DBN]:
    """A system whose lagged effects were damped until its paths settle, and its network."""
    for k in range(_MOST_DAMPINGS):
        damped = system.damped(_DAMPING**k)
        dbn = _network(damped, settings, ends)
        try:
            dbn.is_linear or stationary_sample(dbn)
            return damped, dbn
        except ParameterError:
            continue
    raise ParameterError("no stable network was found; lower w_range or mean_degree.")


def _network(system: System, settings: SimulationSettings, ends: list[Ends]) -> DBN:
    nodes = []
    for j, (kind, here) in enumerate(zip(settings.kinds_of_all, ends, strict=True)):
        causes = [edge for edge in system.edges if edge[2] == j]
        effects = tuple(system.weight(edge) * ends[edge[1]].spread @ here.steps for edge in causes)
        added = sum(
            (ends[i].centre @ effect for (_, i, _), effect in zip(causes, effects, strict=True)), np.zeros(1)
        )
        # The thresholds of an ordinal variable stand on the other side of the inequality.
        intercept = here.intercept + added if kind.name == "ordinal" else here.intercept - added
        terms = tuple(Term(((i, lag),)) for lag, i, _ in causes)
        nodes.append(Node(kind, terms, effects, intercept, here.dispersion))
    return DBN.from_nodes(nodes, settings.variable_names, settings.n_lags)


def draw_ends(kind: Kind, noise_scale: float, rng: np.random.Generator) -> Ends:
    """How a variable of a kind stands."""
    one, levels = np.ones((1, 1)), kind.n_levels
    if kind.name == "continuous":
        return Ends(np.zeros(1), one, one, np.zeros(1), float(noise_scale**2))
    if kind.name == "positive":
        sd = _LOG_SD * float(noise_scale)
        return Ends(np.zeros(1), one / _LOG_SD, one * _LOG_SD, np.zeros(1), sd**2)
    if kind.name == "count":
        mean, sd = _log_count()
        return Ends(np.array([mean]), one / sd, one * _LOG_SD, np.array([np.log(_RATE)]), 0.0)
    step = one * _LOGISTIC_SD
    if kind.name != "categorical":
        spread = one / np.sqrt((levels**2 - 1) / 12)
        share = np.arange(1, levels) / levels
        return Ends(np.array([(levels - 1) / 2]), spread, step, np.asarray(logit(share)), 1.0)
    # What levels do and what moves them: contrasts with mean 0 and variance 1, against the first level.
    does, moved = (_contrast(levels, rng) for _ in range(2))
    spread = (does[1:] - does[0])[:, None]
    return Ends(
        np.full(levels - 1, 1 / levels), spread, step * (moved[1:] - moved[0]), np.zeros(levels - 1), 1.0
    )


def _contrast(n: int, rng: np.random.Generator) -> FloatArray:
    values = rng.permutation(np.arange(n) - (n - 1) / 2)
    return np.asarray(values / values.std())


def _log_count() -> tuple[float, float]:
    """Mean and standard deviation of log(1 + x) for a Poisson number with the usual rate."""
    x = np.arange(60.0)
    share = np.exp(x * np.log(_RATE) - _RATE - gammaln(x + 1))
    mean = float(share @ np.log1p(x))
    return mean, float(np.sqrt(share @ (np.log1p(x) - mean) ** 2))
