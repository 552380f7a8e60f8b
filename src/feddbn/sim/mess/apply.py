"""Every mess that was asked for, at the moment at which it acts, with a stream of randomness of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from zlib import crc32

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.sim.mess.columns import NewColumn, add_to_rows, add_to_system, new_columns
from feddbn.sim.mess.effects import effect_shape, slow_levels, stop_edges
from feddbn.sim.mess.noise import NOISE_MESSES, Shocks, unequal_noise
from feddbn.sim.mess.rows import ROW_MESSES, Sites
from feddbn.sim.series import Effects
from feddbn.sim.systems import System

__all__ = ["MessyWorld"]


class MessyWorld:
    """The messes of one simulation.

    Parameters
    ----------
    mess
        Name -> strength, in the order in which they act (see `feddbn.sim.mess.table.resolve_mess`).
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
