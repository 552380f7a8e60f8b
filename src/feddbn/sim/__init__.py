"""Simulators with known truth."""

from feddbn.sim.federated import SimulatedArrays, simulate_arrays
from feddbn.sim.mess import MESSES, Mess, MessNames
from feddbn.sim.settings import SimulationSettings, connectivity_degree
from feddbn.sim.systems import System

__all__ = [
    "MESSES",
    "Mess",
    "MessNames",
    "SimulatedArrays",
    "SimulationSettings",
    "System",
    "connectivity_degree",
    "simulate_arrays",
]
