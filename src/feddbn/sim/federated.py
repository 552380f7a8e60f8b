"""A whole simulated federation as plain arrays: which site follows which system, and its recordings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.sim.messy import MessyWorld, Shocks
from feddbn.sim.series import advance, bend_systems, draw_shocks, in_units_of_causes
from feddbn.sim.settings import SimulationSettings, connectivity_degree, split_evenly
from feddbn.sim.systems import HiddenVariables, System, draw_system, thin_system, vary_system

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
        Site name -> the system it follows; sites that share a system share the object. A mess that changes the network
        or adds a column shows here (see `feddbn.simulate`).
    clusters
        Site name -> cluster number, or None if no clusters were asked for.
    settings
        What was asked for.
    variables
        Names of the columns: those of the settings, and columns that a mess added.
    noise_variances
        One per column: of the network's own noise.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.sim import simulate_arrays, SimulationSettings
    >>> drawn = simulate_arrays(SimulationSettings(d=3, n_sites=2, n_samples=100), np.random.default_rng(0))
    >>> drawn.variables, drawn.is_homogeneous, sorted(drawn.recordings)
    (('x0', 'x1', 'x2'), True, ['site-0', 'site-1'])
    """

    recordings: dict[str, list[FloatArray]]
    systems: dict[str, System]
    clusters: dict[str, int] | None
    settings: SimulationSettings
    variables: tuple[str, ...]
    noise_variances: FloatArray

    @property
    def is_homogeneous(self) -> bool:
        """Whether every site follows the same system."""
        systems = list(self.systems.values())
        return all(system is systems[0] for system in systems)


def simulate_arrays(
    settings: SimulationSettings, rng: np.random.Generator, hidden: HiddenVariables | None = None
) -> SimulatedArrays:
    """Draw the systems, then every recording from a stream of its own; a mess and curves have their own streams, too.

    Hidden variables are among those of the settings, and in the recordings. The streams are derived from draws of `rng`,
    so a second call with the same generator gives new data.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.sim import SimulationSettings, simulate_arrays
    >>> drawn = simulate_arrays(SimulationSettings(d=3, n_sites=2, n_samples=100), np.random.default_rng(0))
    >>> [rows.shape for rows in drawn.recordings["site-0"]]
    [(51, 3)]
    """
    seeds = np.random.SeedSequence(rng.integers(0, 2**32, size=4).tolist()).spawn(4)
    structure_seed, series_seed, mess_seed, shape_seed = seeds
    world = MessyWorld(settings.mess_strengths, mess_seed, settings.variable_names)
    names = [f"site-{k}" for k in range(settings.n_sites)]
    systems, system_of_site = draw_systems(settings, np.random.default_rng(structure_seed))
    if hidden is not None:
        with_hidden = {id(system): hidden.act(system) for system in systems}
        systems = [with_hidden[id(system)] for system in systems]
    shape_rng, scales = np.random.default_rng(shape_seed), world.scales(settings.noise_scales)
    systems = bend_systems(world.systems(systems), settings, not _are_independent(settings), shape_rng)
    systems = in_units_of_causes(systems, settings.noise, scales, shape_rng)

    m = settings.n_recordings
    sizes = [split_evenly(rows, m) for rows in settings.usable_rows]
    flat_sizes = [size + settings.n_lags for site in sizes for size in site]
    flat_systems = [systems[s] for s in system_of_site for _ in range(m)]
    flat_sites = [k for k in range(settings.n_sites) for _ in range(m)]
    n_burned = settings.burn_in if settings.n_lags else 0
    series: list[FloatArray] = []
    # A mess may act on all recordings together; without one they are made in parts, as rows are burned for each.
    at_once = len(flat_sizes)
    if not settings.mess_strengths:
        at_once = max(1, _NUMBERS_TOGETHER // (len(scales) * (n_burned + max(flat_sizes))))
    for first in range(0, len(flat_sizes), at_once):
        part = slice(first, first + at_once)
        generators = [np.random.default_rng(seed) for seed in series_seed.spawn(len(flat_sizes[part]))]
        shocks = draw_shocks(flat_sizes[part], generators, settings.noise, scales, n_burned)
        shocks = world.noise(Shocks(shocks, flat_sites[part], n_burned, scales))
        acting = world.effects(flat_systems[part], scales)
        series += advance(flat_systems[part], shocks, n_burned, acting)

    clean = [series[k * m : (k + 1) * m] for k in range(settings.n_sites)]
    truths = {id(system): world.truth(system.with_product_edges()) for system in systems}
    return SimulatedArrays(
        recordings=dict(zip(names, world.rows(clean), strict=True)),
        systems={name: truths[id(systems[s])] for name, s in zip(names, system_of_site, strict=True)},
        clusters=None if settings.n_clusters is None else dict(zip(names, system_of_site, strict=True)),
        settings=settings,
        variables=world.variables,
        noise_variances=world.truth_variances(scales, clean),
    )


def draw_systems(settings: SimulationSettings, rng: np.random.Generator) -> tuple[list[System], list[int]]:
    """The different systems and, for every site, the number of the one it follows.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.sim import SimulationSettings, draw_systems
    >>> systems, of_site = draw_systems(SimulationSettings(d=3, n_sites=2), np.random.default_rng(0))
    >>> len(systems), of_site
    (1, [0, 0])
    """
    heterogeneity = settings.heterogeneity
    if settings.n_clusters is not None:
        n_systems = settings.n_clusters
    else:
        n_systems = 1 if heterogeneity == 0 and settings.connectivity != "mixed" else settings.n_sites
    degrees = _degrees(settings, n_systems)

    systems: list[System]
    if _are_independent(settings):
        systems = [draw_system(settings, degree, rng) for degree in degrees]
    else:
        backbone = draw_system(settings, max(degrees), rng)
        by_degree = {
            degree: backbone if degree == max(degrees) else thin_system(backbone, degree / max(degrees), rng)
            for degree in sorted(set(degrees), reverse=True)
        }
        systems = [by_degree[degree] for degree in degrees]
        if heterogeneity != 0:
            systems = [vary_system(system, float(heterogeneity), settings, rng) for system in systems]
    return systems, [k % n_systems for k in range(settings.n_sites)]


def _are_independent(settings: SimulationSettings) -> bool:
    """Whether the systems have nothing in common; clusters without heterogeneity have not."""
    if settings.heterogeneity == 0 and settings.connectivity != "mixed":
        return settings.n_clusters is not None
    return settings.heterogeneity == "independent"


def _degrees(settings: SimulationSettings, n_systems: int) -> list[float]:
    if settings.connectivity is None:
        return [float(settings.mean_degree)] * n_systems
    if settings.connectivity == "mixed":
        return [connectivity_degree("high" if s % 2 else "low", settings.d) for s in range(n_systems)]
    return [connectivity_degree(settings.connectivity, settings.d)] * n_systems
