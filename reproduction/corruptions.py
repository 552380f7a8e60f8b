"""Simulated federations whose noise, systems or columns are not what methods assume; corruptions of rows are `feddbn.sim`'s.

    noise and causes that nobody measures    unequal-noise heavy-tails autocorrelated-noise changing-noise noisy-site
                                             hidden-causes hidden-lagged-cause
    systems                                  slow-levels stopping-edges tanh squares
    columns made of others                   sum-column duplicate

What counts as an edge: an edge of the network that drives the data. Hidden causes and the memory of noise change no truth.
An edge that stops half-way or is not linear is an edge, with its weight at the start. "slow-levels" adds edges of
variables to themselves. "sum-column" and "duplicate" add a column, with a contemporaneous edge of weight 1 from every
column it is made of (which of two exact copies came first, data cannot tell). Noise variances of a truth are those of the
network's own noise, without hidden causes and with the variance of an ordinary site.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model.dbn import DBN
from feddbn.model.step import run
from feddbn.sim import CORRUPTIONS
from feddbn.sim.corruptions import corrupted, spreads, stream
from feddbn.sim.functions import networks_of
from feddbn.sim.settings import SimulationSettings
from feddbn.sim.simulation import Recordings, SimulatedFederation, advance, federation_of
from feddbn.sim.systems import System, draw_systems, first_stable

STRENGTHS = {
    "unequal-noise": 2.0,
    "slow-levels": 0.97,
    "heavy-tails": 3.0,
    "autocorrelated-noise": 0.6,
    "changing-noise": 0.8,
    "noisy-site": 3.0,
    "hidden-causes": 0.8,
    "hidden-lagged-cause": 0.8,
    "stopping-edges": 0.25,
    "tanh": 1.0,
    "squares": 1.0,
    "sum-column": 3.0,
    "duplicate": 0.0,
}
"""Every corruption that is not of rows, in the order in which they act, and its strength if none is given."""

_MEMORY = 0.7
_CLIP = 3.0
Strengths = Mapping[str, float | None]


def simulate(corruptions: Strengths, random_state: int = 0, **more: Any) -> SimulatedFederation:
    """As `feddbn.simulate` with these corruptions, of rows or not; drawn as the same seed draws without them.

    Examples
    --------
    >>> from reproduction.corruptions import simulate
    >>> fed = simulate({"duplicate": None, "missing": 0.2}, d=3, n_sites=2, n_samples=60)
    >>> fed.truth.variables
    ('x0', 'x1', 'x2', 'x2_copy')
    """
    of_rows = {name: strength for name, strength in corruptions.items() if name not in STRENGTHS}
    settings = SimulationSettings(corruptions=of_rows, **more)
    given = {name: corruptions[name] for name in STRENGTHS if name in corruptions}
    strengths = {name: STRENGTHS[name] if value is None else value for name, value in given.items()}
    _check(strengths, settings)
    made = _drawn(settings, strengths, np.random.default_rng(random_state))
    return replace(made, parameters={**asdict(settings), "random_state": random_state})


def names() -> tuple[str, ...]:
    """Every corruption: those of this module, then those of rows."""
    return (*STRENGTHS, *CORRUPTIONS)


def _check(strengths: dict[str, float], settings: SimulationSettings) -> None:
    shaped = strengths.keys() & {
        "tanh",
        "squares",
        "stopping-edges",
        "slow-levels",
        "sum-column",
        "duplicate",
    }
    if settings.kinds_of_all or (shaped and settings.effects != "linear"):
        raise ParameterError(f"{', '.join(strengths)} change linear systems of continuous variables.")
    if {"tanh", "squares"} <= strengths.keys():
        raise ParameterError("effects can have one shape: 'tanh' or 'squares'.")
    if "slow-levels" in strengths and settings.n_lags < 1:
        raise ParameterError("'slow-levels' needs n_lags >= 1.")


def _drawn(
    settings: SimulationSettings, strengths: dict[str, float], rng: np.random.Generator
) -> SimulatedFederation:
    """As `feddbn.simulate` draws; every corruption has a stream of its own."""
    seeds = np.random.SeedSequence(rng.integers(0, 2**32, size=4).tolist()).spawn(4)
    structure_seed, series_seed, corruption_seed, shape_seed = seeds
    rngs = {name: stream(corruption_seed, name) for name in (*strengths, "columns")}
    columns = new_columns(strengths, settings.variable_names, rngs)
    systems, system_of_site = draw_systems(settings, np.random.default_rng(structure_seed))
    scales, shape_rng = settings.noise_scales, np.random.default_rng(shape_seed)
    if "unequal-noise" in strengths:
        scales = scales * strengths["unequal-noise"] ** rngs["unequal-noise"].uniform(-1.0, 1.0, len(scales))
    if "slow-levels" in strengths:
        systems = [slow_levels(system, strengths["slow-levels"]) for system in systems]
    drawn = zip(systems, networks_of(systems, settings, scales, shape_rng), strict=True)
    networks = {id(system): dbn for system, dbn in drawn}

    plan = Recordings(settings)
    values = plan.shocks(slice(None), settings.noise, scales, series_seed)
    shocks = Shocks(values, plan.sites, plan.n_burned, scales)
    for name, strength in strengths.items():
        if name in NOISE:
            shocks = NOISE[name](shocks, strength, rngs[name])
    follows = [systems[system_of_site[k]] for k in plan.sites]
    rows = plan.by_site(_series(follows, networks, shocks, strengths, rngs))

    spread = spreads(rows)
    added = [(column.noise * float(spread @ column.weights)) ** 2 for column in columns]
    rows = [[add_to_rows(one, columns, spread, rngs["columns"]) for one in site] for site in rows]
    truths = {key: add_to_network(dbn, columns, added) for key, dbn in networks.items()}
    rows = corrupted(rows, settings.strengths, corruption_seed)
    chosen = [systems[s] for s in system_of_site]
    return federation_of(
        rows, chosen, [truths[id(system)] for system in chosen], len(truths[id(chosen[0])].W)
    )


# Columns that are made of others -------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class NewColumn:
    """``x @ weights`` plus noise with standard deviation `noise` times that of the column it copies."""

    name: str
    weights: FloatArray
    noise: float = 0.0


def new_columns(
    strengths: dict[str, float], names: Sequence[str], rngs: dict[str, np.random.Generator]
) -> list[NewColumn]:
    """The columns that are added to d columns, one after the other."""
    d, columns = len(names), []
    if "sum-column" in strengths:
        parts = rngs["sum-column"].choice(d, size=min(round(strengths["sum-column"]), d), replace=False)
        name = "sum_of_" + "_".join(names[i] for i in sorted(parts))
        columns.append(NewColumn(name, np.isin(np.arange(d), parts).astype(float)))
    if "duplicate" in strengths:
        copied = int(rngs["duplicate"].integers(d))
        columns.append(NewColumn(f"{names[copied]}_copy", np.eye(d)[copied], strengths["duplicate"]))
    return columns


def add_to_rows(
    rows: FloatArray, columns: Sequence[NewColumn], scale: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """(n, d) rows with the new columns behind them; `scale` holds d standard deviations."""
    new = []
    for column in columns:
        value = rows @ column.weights
        if column.noise:
            value = value + rng.standard_normal(len(rows)) * column.noise * (scale @ column.weights)
        new.append(value)
    return np.column_stack([rows, *new])


def add_to_network(dbn: DBN, columns: Sequence[NewColumn], variances: Sequence[float]) -> DBN:
    """The network with a contemporaneous edge, of weight 1, from every part of a new column to it."""
    if not columns:
        return dbn
    d, m = dbn.d, len(columns)
    W, A = np.pad(dbn.W, ((0, m), (0, m))), np.pad(dbn.A, ((0, 0), (0, m), (0, m)))
    for k, column in enumerate(columns):
        W[:d, d + k] = column.weights
    if dbn.parts:
        raise ParameterError("columns are added to linear systems only.")
    names = (*dbn.variables, *(column.name for column in columns))
    return DBN(W, A, names, noise_variances=np.append(dbn.noise_variances, variances))


# Systems -------------------------------------------------------------------------------------------------------------------
def slow_levels(system: System, strength: float) -> System:
    """The system with a lag-1 edge from itself at every variable without contemporaneous causes.

    They share one weight, found by bisection, that gives the system the spectral radius `strength`.
    """
    roots = np.flatnonzero(~system.W.any(axis=0))

    def with_weight(weight: float) -> System:
        A = system.A.copy()
        A[0, roots, roots] = weight
        return replace(system, A=A)

    low, high = 0.0, 2.0
    if with_weight(low).spectral_radius >= strength:  # The drawn loops alone are too slow: damp them first.
        damped = with_weight(low)
        system = damped.damped(0.5 * strength / damped.spectral_radius)
    while with_weight(high).spectral_radius < strength:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if with_weight(middle).spectral_radius >= strength else (middle, high)
    return with_weight(high)


def stop_edges(system: System, strength: float, rng: np.random.Generator) -> System:
    """The stable system in which a share `strength` of all edges, chosen at random, is gone."""
    n_edges = np.count_nonzero(system.W) + np.count_nonzero(system.A)

    def attempt() -> System:
        gone = np.zeros(n_edges, dtype=bool)
        gone[rng.choice(n_edges, size=round(strength * n_edges), replace=False)] = True
        W, A = system.W.copy(), system.A.copy()
        n_within = np.count_nonzero(W)
        W[W != 0] *= ~gone[:n_within]
        A[A != 0] *= ~gone[n_within:]
        return replace(system, W=W, A=A)

    return first_stable(attempt)


Shape = Callable[[FloatArray], FloatArray]


def _shape(strengths: dict[str, float], scales: FloatArray) -> Shape:
    """What of a cause acts, as a function of its values; tanh and squares are bounded, so every system stays stable.

    With ``z = x / scales``: "tanh" is ``tanh(s z) / s``, "squares" is ``(1 - s) c + s (c^2 - 1) / sqrt(2)`` where c is
    z kept within +-3; both times `scales`.
    """

    def level_off(x: FloatArray) -> FloatArray:
        return np.asarray(scales * np.tanh(strengths["tanh"] * (x / scales)) / strengths["tanh"])

    def square(x: FloatArray) -> FloatArray:
        c, share = np.clip(x / scales, -_CLIP, _CLIP), strengths["squares"]
        return np.asarray(scales * ((1.0 - share) * c + share * (c**2 - 1.0) / np.sqrt(2.0)))

    return level_off if "tanh" in strengths else square if "squares" in strengths else (lambda x: x)


def _series(
    systems: list[System],
    networks: Mapping[int, DBN],
    shocks: Shocks,
    strengths: dict[str, float],
    rngs: dict[str, np.random.Generator],
) -> list[FloatArray]:
    """One (rows, d) array for each recording."""
    if not strengths.keys() & {"tanh", "squares", "stopping-edges"}:
        return advance([networks[id(system)] for system in systems], shocks.values, shocks.n_burned)
    later = {id(system): system for system in systems}
    if "stopping-edges" in strengths:
        rng, share = rngs["stopping-edges"], strengths["stopping-edges"]
        later = {key: stop_edges(system, share, rng) for key, system in later.items()}
    acting = _shape(strengths, shocks.scales)
    outcome = []
    for system, u in zip(systems, shocks.values, strict=True):
        middle = shocks.n_burned + (len(u) - shocks.n_burned) // 2
        path = u[None, :0]
        for one, part in ((system, u[:middle]), (later[id(system)], u[middle:])):
            path = np.concatenate([path, run(_step(one, acting), len(one.A), path, part[None])], axis=1)
        outcome.append(path[0, shocks.n_burned :])
    return outcome


def _step(system: System, acting: Shape) -> Callable[[FloatArray, FloatArray, FloatArray], FloatArray]:
    """One step of ``x_t = f(x_t) W + sum_l f(x_{t-l}) A_l + u_t``."""

    def step(past: FloatArray, shocks: FloatArray, held: FloatArray) -> FloatArray:
        given = shocks.copy()
        for lag in range(1, past.shape[1] + 1):
            given += acting(past[:, -lag]) @ system.A[lag - 1]
        now = given
        # W has no cycles: after d - 1 repetitions nothing changes any more.
        for _ in range(shocks.shape[1] - 1):
            now = given + acting(now) @ system.W
        return now

    return step


# Noise, and causes that nobody measures ------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Shocks:
    """The noise of all recordings.

    Attributes
    ----------
    values
        One (burn-in + rows, d) array per recording.
    sites
        The number of each recording's site.
    n_burned
        Rows at the start of each array that nobody will see.
    scales
        (d,) standard deviations.
    """

    values: list[FloatArray]
    sites: list[int]
    n_burned: int
    scales: FloatArray


def heavy_tails(shocks: Shocks, strength: float, rng: np.random.Generator) -> Shocks:
    """A normal variable over the root of chi-squared / degrees is Student's t; scaled so that variances stay."""

    def change(u: FloatArray) -> FloatArray:
        return u * np.sqrt((strength - 2.0) / rng.chisquare(strength, u.shape))

    return replace(shocks, values=[change(u) for u in shocks.values])


def autocorrelated_noise(shocks: Shocks, strength: float, rng: np.random.Generator) -> Shocks:
    """``v_t = r v_{t-1} + sqrt(1 - r^2) u_t`` from ``v_0 = u_0``: variances stay."""
    return replace(shocks, values=[_remember(u, strength) for u in shocks.values])


def _remember(u: FloatArray, memory: float) -> FloatArray:
    v = u.copy()
    for t in range(1, len(v)):
        v[t] = memory * v[t - 1] + np.sqrt(1.0 - memory**2) * u[t]
    return v


def changing_noise(shocks: Shocks, strength: float, rng: np.random.Generator) -> Shocks:
    """Log standard deviations follow one to three sine waves over a recording; the mean variance stays."""
    n_sites, d = max(shocks.sites) + 1, len(shocks.scales)
    waves, phases = rng.integers(1, 4, (n_sites, d)), rng.uniform(0, 2 * np.pi, (n_sites, d))

    def change(u: FloatArray, site: int) -> FloatArray:
        n = len(u) - shocks.n_burned
        times = (np.arange(len(u))[:, None] - shocks.n_burned) / n
        factor = np.exp(strength * np.sin(2 * np.pi * waves[site] * times + phases[site]))
        return np.asarray(u * factor / np.sqrt((factor[shocks.n_burned :] ** 2).mean(axis=0)))

    return replace(shocks, values=[change(u, k) for u, k in zip(shocks.values, shocks.sites, strict=True)])


def noisy_site(shocks: Shocks, strength: float, rng: np.random.Generator) -> Shocks:
    """All noise of one site times `strength`."""
    chosen = int(rng.integers(max(shocks.sites) + 1))
    values = [u * strength if k == chosen else u for u, k in zip(shocks.values, shocks.sites, strict=True)]
    return replace(shocks, values=values)


def hidden_causes(shocks: Shocks, strength: float, rng: np.random.Generator) -> Shocks:
    """Two white hidden variables, each with the same weights at all sites."""
    d = len(shocks.scales)
    loads = np.zeros((2, d))
    for load in loads:
        load[rng.choice(d, size=min(3, d), replace=False)] = strength
    loads *= np.where(rng.random(loads.shape) < 0.5, -1.0, 1.0) * shocks.scales

    return replace(shocks, values=[u + rng.standard_normal((len(u), 2)) @ loads for u in shocks.values])


def hidden_lagged_cause(shocks: Shocks, strength: float, rng: np.random.Generator) -> Shocks:
    """One hidden variable that remembers `_MEMORY` of itself; half of its targets feel it a row later."""
    d = len(shocks.scales)
    targets = rng.choice(d, size=min(4, d), replace=False)
    loads = strength * np.where(rng.random(d) < 0.5, -1.0, 1.0) * shocks.scales
    at_once, later = targets[: len(targets) // 2], targets[len(targets) // 2 :]

    def change(u: FloatArray) -> FloatArray:
        hidden = _remember(rng.standard_normal((len(u) + 1, 1)), _MEMORY)
        changed = u.copy()
        changed[:, at_once] += hidden[1:] * loads[at_once]
        changed[:, later] += hidden[:-1] * loads[later]
        return changed

    return replace(shocks, values=[change(u) for u in shocks.values])


NOISE = {
    "heavy-tails": heavy_tails,
    "autocorrelated-noise": autocorrelated_noise,
    "changing-noise": changing_noise,
    "noisy-site": noisy_site,
    "hidden-causes": hidden_causes,
    "hidden-lagged-cause": hidden_lagged_cause,
}
