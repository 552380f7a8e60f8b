"""A whole simulated federation as plain arrays: which site follows which system, and its recordings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln, logit

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind
from feddbn.errors import ParameterError
from feddbn.model.conditionals import Conditional
from feddbn.model.dbn import DBN
from feddbn.model.dynamics import first_rows, paths_from, usual
from feddbn.model.mechanisms import known
from feddbn.sim.corruptions import corrupted
from feddbn.sim.series import advance, bend_systems, draw_shocks, in_units_of_causes
from feddbn.sim.settings import SimulationSettings, split_evenly
from feddbn.sim.systems import HiddenVariables, System, draw_system, vary_system

_NUMBERS_TOGETHER = 1 << 24
"""Of the noise of recordings that are made at once: 128 megabytes."""


@dataclass(frozen=True, eq=False)
class SimulatedArrays:
    """Recordings and truths.

    Attributes
    ----------
    recordings
        Site name -> its recordings, each (rows, d) with ``rows = usable rows + n_lags``.
    systems
        Site name -> the system it follows; sites that share a system share the object.
    variables
        Names of the columns.
    noise_variances
        One per column.
    networks
        Site name -> its network, if variables of other kinds were asked for; its system then has weights in standard
        units. Else None.
    """

    recordings: dict[str, list[FloatArray]]
    systems: dict[str, System]
    variables: tuple[str, ...]
    noise_variances: FloatArray
    networks: dict[str, DBN] | None = None


class Recordings:
    """Which recordings there are: their lengths and sites, one after the other, and how many rows are burned before each."""

    def __init__(self, settings: SimulationSettings) -> None:
        self._settings, self._m = settings, settings.n_recordings
        lengths = [split_evenly(rows, self._m) for rows in settings.usable_rows]
        self.sizes = [length + settings.n_lags for site in lengths for length in site]
        self.sites = [k for k in range(settings.n_sites) for _ in range(self._m)]
        self.n_burned = settings.burn_in if settings.n_lags else 0

    def by_site(self, series: list[FloatArray]) -> list[list[FloatArray]]:
        """The recordings of each site."""
        return [series[k * self._m : (k + 1) * self._m] for k in range(self._settings.n_sites)]

    def drawn(
        self,
        rows: list[list[FloatArray]],
        systems: Sequence[System],
        of_site: Sequence[int],
        variances: FloatArray,
    ) -> SimulatedArrays:
        """Rows and truths under the names of sites; `of_site` says which system each follows."""
        names = [f"site-{k}" for k in range(len(rows))]
        return SimulatedArrays(
            recordings=dict(zip(names, rows, strict=True)),
            systems={name: systems[s] for name, s in zip(names, of_site, strict=True)},
            variables=self._settings.variable_names,
            noise_variances=variances,
        )


def simulate_arrays(
    settings: SimulationSettings, rng: np.random.Generator, hidden: HiddenVariables | None = None
) -> SimulatedArrays:
    """Draw the systems, then every recording from a stream of its own; corruptions and curves have their own streams, too.

    Hidden variables are among those of the settings, and in the recordings. The streams are derived from draws of `rng`,
    so a second call with the same generator gives new data.
    """
    if settings.kinds_of_all:
        return _simulate_kinds(settings, rng)
    seeds = np.random.SeedSequence(rng.integers(0, 2**32, size=4).tolist()).spawn(4)
    structure_seed, series_seed, corruption_seed, shape_seed = seeds
    systems, system_of_site = draw_systems(settings, np.random.default_rng(structure_seed))
    if hidden is not None:
        with_hidden = {id(system): hidden.act(system) for system in systems}
        systems = [with_hidden[id(system)] for system in systems]
    shape_rng, scales = np.random.default_rng(shape_seed), settings.noise_scales
    systems = bend_systems(systems, settings, not are_independent(settings), shape_rng)
    systems = in_units_of_causes(systems, settings.noise, scales, shape_rng)

    plan = Recordings(settings)
    sizes, n_burned = plan.sizes, plan.n_burned
    follows = [systems[system_of_site[k]] for k in plan.sites]
    series: list[FloatArray] = []
    # They are made in parts, as rows are burned for each.
    at_once = max(1, _NUMBERS_TOGETHER // (len(scales) * (n_burned + max(sizes))))
    for first in range(0, len(sizes), at_once):
        part = slice(first, first + at_once)
        generators = [np.random.default_rng(seed) for seed in series_seed.spawn(len(sizes[part]))]
        shocks = draw_shocks(sizes[part], generators, settings.noise, scales, n_burned)
        series += advance(follows[part], shocks, n_burned)

    rows = corrupted(plan.by_site(series), settings.strengths, corruption_seed)
    truths = {id(system): system.with_product_edges() for system in systems}
    return plan.drawn(rows, [truths[id(system)] for system in systems], system_of_site, scales**2)


def draw_systems(settings: SimulationSettings, rng: np.random.Generator) -> tuple[list[System], list[int]]:
    """The different systems and, for every site, the number of the one it follows."""
    heterogeneity = settings.heterogeneity
    n_systems = 1 if heterogeneity == 0 else settings.n_sites
    if are_independent(settings):
        systems = [draw_system(settings, rng) for _ in range(n_systems)]
    else:
        systems = [draw_system(settings, rng)] * n_systems
        if heterogeneity != 0:
            systems = [vary_system(system, float(heterogeneity), settings, rng) for system in systems]
    return systems, [k % n_systems for k in range(settings.n_sites)]


def are_independent(settings: SimulationSettings) -> bool:
    """Whether the systems have nothing in common."""
    return settings.heterogeneity == "independent"


_RATE = 3.0
_LOG_SD = 0.5
_LOGISTIC_SD = float(np.pi / np.sqrt(3))
_DAMPING, _MOST_DAMPINGS = 0.8, 12


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


def _simulate_kinds(settings: SimulationSettings, rng: np.random.Generator) -> SimulatedArrays:
    """Draw the networks, then every recording from a stream of its own."""
    seeds = np.random.SeedSequence(rng.integers(0, 2**32, size=4).tolist()).spawn(3)
    structure_seed, series_seed, shape_seed = seeds
    systems, system_of_site = draw_systems(settings, np.random.default_rng(structure_seed))
    shape_rng, scales = np.random.default_rng(shape_seed), settings.noise_scales
    ends = [_ends(kind, scale, shape_rng) for kind, scale in zip(settings.kinds_of_all, scales, strict=True)]
    stable = [_stable(system, settings, ends) for system in systems]

    plan = Recordings(settings)
    generators = [np.random.default_rng(seed) for seed in series_seed.spawn(len(plan.sizes))]
    shocks = draw_shocks(plan.sizes, generators, "gaussian", np.ones(settings.d), plan.n_burned)
    series: list[FloatArray] = [np.zeros((0, settings.d))] * len(plan.sizes)
    for s, (_, dbn) in enumerate(stable):
        members = [r for r, k in enumerate(plan.sites) if system_of_site[k] == s]
        if members:
            for r, path in zip(members, _paths(dbn, [shocks[r] for r in members]), strict=True):
                series[r] = path[plan.n_burned :]
    damped, networks = zip(*stable, strict=True)
    variances = known(networks[0].noise_variances, "noise_variances")
    drawn = plan.drawn(plan.by_site(series), damped, system_of_site, variances)
    return replace(
        drawn, networks={name: networks[s] for name, s in zip(drawn.systems, system_of_site, strict=True)}
    )


def _paths(dbn: DBN, shocks: list[FloatArray]) -> list[FloatArray]:
    """One path for each array of shocks, all advanced together."""
    longest = max(len(u) for u in shocks)
    padded = np.stack([np.concatenate([u, np.zeros((longest - len(u), dbn.d))]) for u in shocks])
    paths = paths_from(dbn, first_rows(dbn), padded)
    return [path[: len(u)].copy() for path, u in zip(paths, shocks, strict=True)]


def _stable(system: System, settings: SimulationSettings, ends: list[_Ends]) -> tuple[System, DBN]:
    """A system whose lagged effects were damped until its paths settle, and its network."""
    for k in range(_MOST_DAMPINGS):
        c = _DAMPING**k
        weaker = [A * c ** (lag + 1) for lag, A in enumerate(system.A)]
        A = np.array(weaker).reshape(system.A.shape)
        damped = replace(system, A=A, lag_damping=c * system.lag_damping)
        dbn = _network(damped, settings, ends)
        try:
            usual(dbn)
            return damped, dbn
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
