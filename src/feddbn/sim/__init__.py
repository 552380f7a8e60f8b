"""Simulators with known truth: networks are drawn, made messy if asked for, and run by their mechanisms.

Other systems with a known graph are in `differential`. It stands above `model`, and takes randomness as a `Generator`.
May import: model and below.
"""

from feddbn.sim.differential import (
    Trajectories,
    diffusion,
    draw_rates,
    lorenz96,
    lotka_volterra,
    river_levels,
)
from feddbn.sim.federated import SimulatedArrays, draw_systems, simulate_arrays
from feddbn.sim.mess import MESSES, Mess, MessNames
from feddbn.sim.settings import AskedKinds, SimulationSettings, connectivity_degree, kinds_asked, split_evenly
from feddbn.sim.shapes import EFFECTS, EdgeEffect, Shapes, TrueCurve, TrueProduct
from feddbn.sim.systems import System

__all__ = [
    "EFFECTS",
    "MESSES",
    "AskedKinds",
    "EdgeEffect",
    "Mess",
    "MessNames",
    "Shapes",
    "SimulatedArrays",
    "SimulationSettings",
    "System",
    "Trajectories",
    "TrueCurve",
    "TrueProduct",
    "connectivity_degree",
    "diffusion",
    "draw_rates",
    "draw_systems",
    "kinds_asked",
    "lorenz96",
    "lotka_volterra",
    "river_levels",
    "simulate_arrays",
    "split_evenly",
]
