"""Simulators with known truth."""

from feddbn.sim.differential import Trajectories, lorenz96, lotka_volterra, river_levels
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
    "draw_systems",
    "kinds_asked",
    "lorenz96",
    "lotka_volterra",
    "river_levels",
    "simulate_arrays",
    "split_evenly",
]
