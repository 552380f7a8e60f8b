"""Simulated federations with variables of other kinds: every variable is drawn from its distribution given its causes.

Graphs and weights are those of linear networks. A weight acts in standard units of both ends: a cause adds
``weight * g / s`` times its column, centred, to the predictor of its effect, where s is about the standard deviation
of that column and g what counts as one step of the effect (1 of a continuous variable, 0.5 of the log of a positive one
or of a rate, 1.8, the standard deviation of a logistic number, of log odds). Columns are centred by the
intercepts, so that with weights that are not strong rates stay near 3 and levels near equal shares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln, logit

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind
from feddbn.errors import ParameterError
from feddbn.model.conditionals import Conditional
from feddbn.model.dbn import DBN
from feddbn.model.paths import curved_paths, first_rows, usual
from feddbn.sim import SimulationSettings, System, draw_systems, split_evenly

__all__ = ["KindsDrawn", "draw_with_kinds"]

_RATE = 3.0
_LOG_SD = 0.5
_LOGISTIC_SD = float(np.pi / np.sqrt(3))
_DAMPING, _MOST_DAMPINGS = 0.8, 12


@dataclass(frozen=True, eq=False)
class KindsDrawn:
    """Recordings of every site, the network it follows (one object where it is shared), its damping and cluster."""

    recordings: list[list[FloatArray]]
    truths: list[DBN]
    damping: list[float]
    clusters: list[int] | None


@dataclass(frozen=True, eq=False)
class _Ends:
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
        As in `Conditional`.
    """

    centre: FloatArray
    spread: FloatArray
    steps: FloatArray
    intercept: FloatArray
    dispersion: float


def draw_with_kinds(settings: SimulationSettings, rng: np.random.Generator) -> KindsDrawn:
    """Draw the networks, then every recording from a stream of its own."""
    seeds = np.random.SeedSequence(rng.integers(0, 2**32, size=4).tolist()).spawn(3)
    structure_seed, series_seed, shape_seed = seeds
    systems, system_of_site = draw_systems(settings, np.random.default_rng(structure_seed))
    shape_rng, scales = np.random.default_rng(shape_seed), settings.noise_scales
    ends = [_ends(kind, scale, shape_rng) for kind, scale in zip(settings.kinds_of_all, scales, strict=True)]
    stable = [_stable(system, settings, ends) for system in systems]

    m, p, d = settings.n_recordings, settings.n_lags, settings.d
    lengths = [n + p for rows in settings.usable_rows for n in split_evenly(rows, m)]
    owners = [system_of_site[k] for k in range(settings.n_sites) for _ in range(m)]
    n_burned = settings.burn_in if p else 0
    streams = [np.random.default_rng(seed) for seed in series_seed.spawn(len(lengths))]
    shocks = [stream.standard_normal((n_burned + n, d)) for n, stream in zip(lengths, streams, strict=True)]
    series: list[FloatArray] = [np.zeros((0, d))] * len(lengths)
    for s, (dbn, _) in enumerate(stable):
        members = [r for r, owner in enumerate(owners) if owner == s]
        if members:
            for r, path in zip(members, _paths(dbn, [shocks[r] for r in members]), strict=True):
                series[r] = path[n_burned:]
    return KindsDrawn(
        [series[k * m : (k + 1) * m] for k in range(settings.n_sites)],
        [stable[s][0] for s in system_of_site],
        [stable[s][1] for s in system_of_site],
        None if settings.n_clusters is None else list(system_of_site),
    )


def _paths(dbn: DBN, shocks: list[FloatArray]) -> list[FloatArray]:
    """One path for each array of shocks, all advanced together."""
    longest = max(len(u) for u in shocks)
    padded = np.stack([np.concatenate([u, np.zeros((longest - len(u), dbn.d))]) for u in shocks])
    paths = curved_paths(dbn, first_rows(dbn), np.full((longest, dbn.d), np.nan), padded)
    return [path[: len(u)].copy() for path, u in zip(paths, shocks, strict=True)]


def _stable(system: System, settings: SimulationSettings, ends: list[_Ends]) -> tuple[DBN, float]:
    """The network of a system, and by how much its lagged effects were damped until its paths settle."""
    for k in range(_MOST_DAMPINGS):
        c = _DAMPING**k
        weaker = [A * c ** (lag + 1) for lag, A in enumerate(system.A)]
        damped = replace(system, A=np.array(weaker).reshape(system.A.shape))
        dbn = _network(damped, settings, ends)
        try:
            usual(dbn)
            return dbn, c * system.lag_damping
        except ParameterError:
            continue
    raise ParameterError("no stable network was found; lower w_range, a_range or mean_degree.")


def _network(system: System, settings: SimulationSettings, ends: list[_Ends]) -> DBN:
    nodes = []
    for j, (kind, here) in enumerate(zip(settings.kinds_of_all, ends, strict=True)):
        causes = [edge for edge in system.edges if edge[2] == j]
        effects = tuple(system.weight(edge) * ends[edge[1]].spread @ here.steps for edge in causes)
        added = sum(
            (ends[i].centre @ effect for (_, i, _), effect in zip(causes, effects, strict=True)), np.zeros(1)
        )
        # The thresholds of an ordinal variable stand on the other side of the inequality.
        intercept = here.intercept + added if kind.name == "ordinal" else here.intercept - added
        parents = tuple((i, lag) for lag, i, _ in causes)
        nodes.append(Conditional(kind, parents, intercept, effects, here.dispersion))
    return DBN.from_conditionals(nodes, settings.variable_names, settings.n_lags)


def _ends(kind: Kind, noise_scale: float, rng: np.random.Generator) -> _Ends:
    one, levels = np.ones((1, 1)), kind.n_levels
    if kind.name == "continuous":
        return _Ends(np.zeros(1), one, one, np.zeros(1), float(noise_scale**2))
    if kind.name == "positive":
        sd = _LOG_SD * float(noise_scale)
        return _Ends(np.zeros(1), one / _LOG_SD, one * _LOG_SD, np.zeros(1), sd**2)
    if kind.name == "count":
        mean, sd = _log_count()
        return _Ends(np.array([mean]), one / sd, one * _LOG_SD, np.array([np.log(_RATE)]), 0.0)
    step = one * _LOGISTIC_SD
    if kind.name != "categorical":
        spread = one / np.sqrt((levels**2 - 1) / 12)
        share = np.arange(1, levels) / levels
        return _Ends(np.array([(levels - 1) / 2]), spread, step, np.asarray(logit(share)), 1.0)
    # What levels do and what moves them: contrasts with mean 0 and variance 1, against the first level.
    does, moved = (_contrast(levels, rng) for _ in range(2))
    spread = (does[1:] - does[0])[:, None]
    return _Ends(
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
