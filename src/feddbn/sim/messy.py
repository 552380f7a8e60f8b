"""Every mess that was asked for, when it acts, with a stream of randomness of its own.

Columns that are no measurements of their own: a new column is an effect without delay of the columns it is made of, so
the truth gets these edges and no others.

Noise, and causes that nobody measures, enter before the effects travel. A function takes the noise of every recording
(burn-in included), a strength and a generator, and returns new noise.

Mess in recordings that are already there (sampling, drifts, units, sensors, files): every function takes the recordings
of all sites (site -> recordings (n, d)), a strength, the (d,) standard deviations of the variables before any mess, and a
generator, and returns new recordings. Nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar
from zlib import crc32

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.sim.series import Effects
from feddbn.sim.systems import System, first_stable


@dataclass(frozen=True, eq=False)
class NewColumn:
    """``x @ weights`` plus noise with standard deviation `noise` times that of the column it copies."""

    name: str
    weights: FloatArray
    noise: float = 0.0


def new_columns(
    mess: dict[str, float], names: Sequence[str], generators: dict[str, np.random.Generator]
) -> list[NewColumn]:
    """Return the columns that a mess adds to d columns, one after the other."""
    d, columns = len(names), []
    if "sum-column" in mess:
        parts = generators["sum-column"].choice(d, size=min(round(mess["sum-column"]), d), replace=False)
        weights = np.zeros(d)
        weights[parts] = 1.0
        columns.append(
            NewColumn(_free("sum_of_" + "_".join(names[i] for i in sorted(parts)), names), weights)
        )
    if "duplicate" in mess:
        copied = int(generators["duplicate"].integers(d))
        weights = np.zeros(d)
        weights[copied] = 1.0
        columns.append(NewColumn(_free(f"{names[copied]}_copy", names), weights, mess["duplicate"]))
    return columns


def _free(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name


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


def add_to_system(system: System, columns: Sequence[NewColumn]) -> System:
    """The system with a contemporaneous edge, of weight 1, from every part of a new column to it."""
    d, m = len(system.W), len(columns)
    W = np.pad(system.W, ((0, m), (0, m)))
    for k, column in enumerate(columns):
        W[:d, d + k] = column.weights
    A = np.pad(system.A, ((0, 0), (0, m), (0, m)))
    return replace(system, W=W, A=A, order=np.append(system.order, np.arange(d, d + m)))


CLIP = 3.0
Shape = Callable[[FloatArray], FloatArray]


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


def effect_shape(name: str, strength: float, scales: FloatArray) -> Shape:
    """What of a cause acts, as a function of its values; both shapes are bounded, so every system stays stable.

    With ``z = x / scales``: "tanh" is ``tanh(s z) / s``, "squares" is ``(1 - s) c + s (c^2 - 1) / sqrt(2)`` where c is
    z kept within +-`CLIP`; both times `scales`.
    """

    def shape(x: FloatArray) -> FloatArray:
        z = x / scales
        if name == "tanh":
            return np.asarray(scales * np.tanh(strength * z) / strength)
        c = np.clip(z, -CLIP, CLIP)
        return np.asarray(scales * ((1.0 - strength) * c + strength * (c**2 - 1.0) / np.sqrt(2.0)))

    return shape


HIDDEN_MEMORY = 0.7


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


Function = TypeVar("Function", bound=Callable[..., Any])


def unequal_noise(scales: FloatArray, strength: float, rng: np.random.Generator) -> FloatArray:
    """Standard deviations times factors between 1 / `strength` and `strength`, uniform on a log scale."""
    return scales * strength ** rng.uniform(-1.0, 1.0, len(scales))


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
    """One hidden variable that remembers `HIDDEN_MEMORY` of itself; half of its targets feel it a row later."""
    d = len(shocks.scales)
    targets = rng.choice(d, size=min(4, d), replace=False)
    loads = strength * np.where(rng.random(d) < 0.5, -1.0, 1.0) * shocks.scales
    at_once, later = targets[: len(targets) // 2], targets[len(targets) // 2 :]

    def change(u: FloatArray) -> FloatArray:
        hidden = _remember(rng.standard_normal((len(u) + 1, 1)), HIDDEN_MEMORY)
        changed = u.copy()
        changed[:, at_once] += hidden[1:] * loads[at_once]
        changed[:, later] += hidden[:-1] * loads[later]
        return changed

    return replace(shocks, values=[change(u) for u in shocks.values])


def _by_name(functions: Iterable[Function]) -> Mapping[str, Function]:
    return MappingProxyType({function.__name__.replace("_", "-"): function for function in functions})


NOISE_MESSES = _by_name(
    (heavy_tails, autocorrelated_noise, changing_noise, noisy_site, hidden_causes, hidden_lagged_cause)
)


PERIOD = 24
SPIKE = 15.0
SENTINEL = -999.0
Sites = list[list[FloatArray]]


def _every_recording(sites: Sites, change: Callable[[FloatArray], FloatArray]) -> Sites:
    return [[change(rows) for rows in recordings] for recordings in sites]


def _at(sites: Sites, chosen: set[int], change: Callable[[FloatArray], FloatArray]) -> Sites:
    """Change the recordings of the chosen sites only."""
    return [
        [change(rows) for rows in recordings] if k in chosen else list(recordings)
        for k, recordings in enumerate(sites)
    ]


def _n_variables(sites: Sites) -> int:
    return int(sites[0][0].shape[1])


def _one_of_each(sites: Sites, rng: np.random.Generator) -> tuple[int, int]:
    """One site and one variable."""
    return int(rng.integers(len(sites))), int(rng.integers(_n_variables(sites)))


def jitter(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """Rows at times that are up to `strength` rows early or late, interpolated between neighbours."""

    def change(rows: FloatArray) -> FloatArray:
        times = np.arange(len(rows), dtype=np.float64)
        shifted = times + rng.uniform(-strength, strength, len(rows))
        return np.stack([np.interp(shifted, times, column) for column in rows.T], axis=1)

    return _every_recording(sites, change)


def two_rates(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """Every `strength`-th row only, at half of the sites, chosen at random."""
    chosen = rng.choice(len(sites), size=len(sites) // 2, replace=False)
    return _at(sites, set(chosen.tolist()), lambda rows: rows[:: round(strength)].copy())


def trend(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """A line through 0 at the middle of every recording; one rise per site and variable."""
    rises = rng.standard_normal((len(sites), len(scale))) * strength * scale
    return [
        [rows + np.linspace(-0.5, 0.5, len(rows))[:, None] * rise for rows in recordings]
        for recordings, rise in zip(sites, rises, strict=True)
    ]


def cycle(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """A sine of `PERIOD` rows; one amplitude and phase per site and variable."""
    sizes = rng.standard_normal((len(sites), len(scale))) * strength * scale
    phases = rng.uniform(0, 2 * np.pi, (len(sites), len(scale)))
    return [
        [
            rows + size * np.sin(2 * np.pi * np.arange(len(rows))[:, None] / PERIOD + phase)
            for rows in recordings
        ]
        for recordings, size, phase in zip(sites, sizes, phases, strict=True)
    ]


def measurement_noise(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """Gaussian noise that the next row knows nothing of."""
    return _every_recording(sites, lambda rows: rows + rng.standard_normal(rows.shape) * strength * scale)


def gains(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """One log-normal factor per site and variable."""
    factors = np.exp(rng.standard_normal((len(sites), len(scale))) * strength)
    return [[rows * factor for rows in recordings] for recordings, factor in zip(sites, factors, strict=True)]


def offsets(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """One constant per site and variable."""
    shifts = rng.standard_normal((len(sites), len(scale))) * strength * scale
    return [[rows + shift for rows in recordings] for recordings, shift in zip(sites, shifts, strict=True)]


def unit_variance(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """Every variable divided by its standard deviation over all rows of all sites, to the power `strength`."""
    spread = np.vstack([rows for recordings in sites for rows in recordings]).std(axis=0)
    factor = np.where(spread > 0, spread, 1.0) ** strength
    return _every_recording(sites, lambda rows: rows / factor)


def other_units(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """One variable of one site multiplied by `strength`."""
    site, variable = _one_of_each(sites, rng)
    factor = np.ones(_n_variables(sites))
    factor[variable] = strength
    return _at(sites, {site}, lambda rows: rows * factor)


def stuck(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """One variable of one site repeats a value for a share `strength` of every recording."""
    site, variable = _one_of_each(sites, rng)

    def change(rows: FloatArray) -> FloatArray:
        length = round(strength * len(rows))
        start = int(rng.integers(len(rows) - length + 1))
        rows = rows.copy()
        if length:
            rows[start : start + length, variable] = rows[start, variable]
        return rows

    return _at(sites, {site}, change)


def rounding(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """Multiples of `strength`."""
    return _every_recording(sites, lambda rows: np.round(rows / strength) * strength)


def spikes(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """A share `strength` of all cells is moved by `SPIKE` standard deviations, up or down."""

    def change(rows: FloatArray) -> FloatArray:
        signs = np.where(rng.random(rows.shape) < 0.5, -1.0, 1.0)
        return rows + (rng.random(rows.shape) < strength) * signs * SPIKE * scale

    return _every_recording(sites, change)


def mixed_columns(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """`strength` sites in which no column is where its name says."""
    chosen = rng.choice(len(sites), size=min(round(strength), len(sites)), replace=False).tolist()
    ring = rng.permutation(_n_variables(sites))
    places = np.empty_like(ring)
    places[ring] = np.roll(ring, 1)
    return _at(sites, set(chosen), lambda rows: np.ascontiguousarray(rows[:, places]))


def sentinels(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """`SENTINEL` in a share `strength` of all cells."""
    return _every_recording(sites, lambda rows: np.where(rng.random(rows.shape) < strength, SENTINEL, rows))


def missing(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """NaN in a share `strength` of all cells, at random."""
    return _every_recording(sites, lambda rows: np.where(rng.random(rows.shape) < strength, np.nan, rows))


# fmt: off
ROW_MESSES = _by_name((
    jitter, two_rates, trend, cycle, measurement_noise, gains, offsets, unit_variance, other_units, stuck, rounding, spikes,
    mixed_columns, sentinels, missing,
))
# fmt: on


class MessyWorld:
    """The messes of one simulation.

    Parameters
    ----------
    mess
        Name -> strength, in the order in which they act (see `feddbn.sim.mess.resolve_mess`).
    seed
        Of the mess alone. Every mess has a stream that depends on the seed and its name, so that what one does does not
        change what another one draws.
    names
        The variables before any mess.
    """

    def __init__(self, mess: dict[str, float], seed: np.random.SeedSequence, names: Sequence[str]) -> None:
        self._mess = mess
        self._rng = {name: _stream(seed, name) for name in (*mess, "columns")}
        self._columns: list[NewColumn] = new_columns(mess, names, self._rng)
        self.variables = (*names, *(column.name for column in self._columns))
        """The variables of the recordings."""

    def scales(self, scales: FloatArray) -> FloatArray:
        """The standard deviations of the noise."""
        if "unequal-noise" in self._mess:
            return unequal_noise(scales, self._mess["unequal-noise"], self._rng["unequal-noise"])
        return scales

    def systems(self, systems: list[System]) -> list[System]:
        """The systems that recordings start with."""
        if "slow-levels" in self._mess:
            return [slow_levels(system, self._mess["slow-levels"]) for system in systems]
        return systems

    def effects(self, systems: Sequence[System], scales: FloatArray) -> Effects:
        """How effects travel, given the system of every recording; those that share one go on sharing one."""
        effects = Effects()
        if "stopping-edges" in self._mess:
            rng, later = self._rng["stopping-edges"], dict[int, System]()
            for system in systems:
                if id(system) not in later:
                    later[id(system)] = stop_edges(system, self._mess["stopping-edges"], rng)
            effects = replace(effects, later=[later[id(system)] for system in systems])
        for name in ("tanh", "squares"):
            if name in self._mess:
                effects = replace(effects, shape=effect_shape(name, self._mess[name], scales))
        return effects

    def noise(self, shocks: Shocks) -> list[FloatArray]:
        """The noise of every recording."""
        for name, strength in self._mess.items():
            if name in NOISE_MESSES:
                shocks = NOISE_MESSES[name](shocks, strength, self._rng[name])
        return shocks.values

    def rows(self, sites: Sites) -> Sites:
        """The recordings as the sites hold them."""
        if self._columns:
            scale, rng = _spreads(sites), self._rng["columns"]
            sites = [[add_to_rows(rows, self._columns, scale, rng) for rows in site] for site in sites]
        scale = _spreads(sites)
        for name, strength in self._mess.items():
            if name in ROW_MESSES:
                sites = ROW_MESSES[name](sites, strength, scale, self._rng[name])
        return sites

    def truth(self, system: System) -> System:
        """The system with the edges of columns that were added."""
        return add_to_system(system, self._columns) if self._columns else system

    def truth_variances(self, scales: FloatArray, sites: Sites) -> FloatArray:
        """Noise variances of all columns; a sum or an exact copy has none."""
        spread = _spreads(sites)[: len(scales)]
        added = [(column.noise * float(spread @ column.weights)) ** 2 for column in self._columns]
        return np.append(scales**2, added)


def _stream(seed: np.random.SeedSequence, name: str) -> np.random.Generator:
    """A generator that depends on the seed and the name, and on no other name."""
    key = (*seed.spawn_key, crc32(name.encode()))
    return np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=key))


def _spreads(sites: Sites) -> FloatArray:
    return np.asarray(np.vstack([rows for recordings in sites for rows in recordings]).std(axis=0))
