"""Simulators with known truth: networks are drawn, run by their mechanisms, and their rows corrupted if asked for.

It stands above `model`, and takes randomness as a `Generator`.
May import: model and below.
"""

from feddbn.sim.corruptions import CORRUPTIONS, Corruption
from feddbn.sim.shapes import EFFECTS, EdgeEffect
from feddbn.sim.simulation import TrueNetwork

__all__ = [
    "CORRUPTIONS",
    "EFFECTS",
    "Corruption",
    "EdgeEffect",
    "TrueNetwork",
]
