"""Networks of drawn systems, whose edges may have functions.

A function is a table of values between -3 and 3 standard deviations of its cause, straight between them and constant beyond,
so it is bounded, and paths are, too. It has mean 0 and variance 1 if the cause is standard normal: an edge of weight w then
moves its target as much as a straight edge of weight w does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.model.dbn import DBN
from feddbn.model.nodes import Part, Term
from feddbn.sim.settings import SimulationSettings
from feddbn.sim.systems import System

REACH = 3.0
GRID = np.linspace(-REACH, REACH, 121)
GRID.setflags(write=False)
_N_TERMS = 45


def _gaussian_process(rng: np.random.Generator) -> FloatArray:
    """A draw at `GRID` of a Gaussian process with the covariance ``exp(-(a - b)^2 / 2)``.

    The series of ``exp(a b)`` gives features ``phi_k(z) = exp(-z^2 / 2) z^k / sqrt(k!)`` whose products are this kernel;
    within +-`REACH` the terms that are left out add up to less than 1e-12.
    """
    columns = [np.exp(-(GRID**2) / 2.0)]
    for k in range(1, _N_TERMS):
        columns.append(columns[-1] * GRID / np.sqrt(k))
    return np.column_stack(columns) @ rng.standard_normal(_N_TERMS)


def draw_function(rng: np.random.Generator) -> tuple[float, ...]:
    """Values at `GRID` of a function of mean 0 and variance 1 over a standard normal cause."""
    table = _gaussian_process(rng)
    centred = table - _mass() @ table
    return tuple((centred / np.sqrt(_mass() @ centred**2)).tolist())


@cache
def _mass() -> FloatArray:
    """The probability of every point of `GRID`, for a standard normal cause that is rounded to it."""
    from scipy.special import ndtr

    middles = (GRID[1:] + GRID[:-1]) / 2.0
    return np.diff(ndtr(np.concatenate([[-np.inf], middles, [np.inf]])))


def networks_of(
    systems: Sequence[System], settings: SimulationSettings, scales: FloatArray, rng: np.random.Generator
) -> list[DBN]:
    """The networks of drawn systems whose noise has (d,) standard deviations `scales`.

    If effects have functions f, an edge of weight w adds ``w s f(x / s)``, with the standard deviation s that the cause would
    have if all were straight, over all systems. An edge that several systems have with the same weight is one function.
    """
    names, variances = settings.variable_names, scales**2
    straight = [DBN(one.W, one.A, names, noise_variances=variances) for one in systems]
    if settings.effects == "linear":
        return straight
    s = np.sqrt(np.mean([np.diag(dbn.stationary_covariance()) for dbn in straight], axis=0)).tolist()
    drawn: dict[tuple[int, int, int, float], tuple[float, ...]] = {}
    found = []
    for system in systems:
        parts = []
        for lag, i, j in system.edges:
            weight = system.weight((lag, i, j))
            key = lag, i, j, round(weight, 9)
            drawn[key] = drawn.get(key) or draw_function(rng)
            parts.append(Part(j, Term(((i, lag),), "table", (0.0,), (s[i],), drawn[key]), [weight * s[i]]))
        nothing = DBN(0 * system.W, 0 * system.A, names, noise_variances=variances)
        found.append(nothing.with_parts(parts))
    return found
