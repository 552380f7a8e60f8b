"""Simulators with known truth: networks are drawn and run, and their rows corrupted if asked for.

It stands above `model`, and takes randomness as a `Generator`.
May import: model and below.
"""

from feddbn.sim.corruptions import CORRUPTIONS
from feddbn.sim.settings import EFFECTS

__all__ = ["CORRUPTIONS", "EFFECTS"]
