"""What is not linear in drawn systems: functions of edges, and the units in which they act.

A function is a table of values between -3 and 3 standard deviations of its cause, straight between them and constant beyond,
so it is bounded. It has mean 0 and variance 1 if the cause is standard normal: an edge of weight w then moves its target as
much as a straight edge of weight w does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.model.dbn import DBN
from feddbn.model.nodes import Part, Term
from feddbn.sim.settings import SimulationSettings
from feddbn.sim.systems import MAX_RADIUS, Edge, System

REACH = 3.0
GRID = np.linspace(-REACH, REACH, 121)
GRID.setflags(write=False)
MAX_SPREAD_RADIUS = 0.85

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


def draw_function(effects: str, rng: np.random.Generator) -> tuple[float, ...]:
    """Values at `GRID` of a function of mean 0 and variance 1 over a standard normal cause; empty for a straight line."""
    if effects == "linear" or (effects == "mixed" and rng.random() < 0.5):
        return ()
    table = _gaussian_process(rng)
    centred = table - _mass() @ table
    return tuple((centred / np.sqrt(_mass() @ centred**2)).tolist())


@cache
def _mass() -> FloatArray:
    """The probability of every point of `GRID`, for a standard normal cause that is rounded to it."""
    from scipy.special import ndtr

    middles = (GRID[1:] + GRID[:-1]) / 2.0
    return np.diff(ndtr(np.concatenate([[-np.inf], middles, [np.inf]])))


def network_of(system: System, variables: Sequence[str], scales: FloatArray, causes: FloatArray) -> DBN:
    """The network of a drawn system whose noise has (d,) standard deviations `scales`.

    `causes` are (d,) scales s of the causes of its functions: an edge of weight w adds ``w s f(x / s)``.
    """
    straight, s = system.straight, causes.tolist()
    return DBN(straight.W, straight.A, variables, noise_variances=scales**2).with_parts(
        Part(j, Term(((i, lag),), "table", (0.0,), (s[i],), table), [system.weight((lag, i, j)) * s[i]])
        for (lag, i, j), table in system.functions.items()
    )


def bend_systems(
    systems: Sequence[System], settings: SimulationSettings, rng: np.random.Generator
) -> list[System]:
    """The systems with functions as the settings ask for; themselves if all is to be linear.

    An edge that several systems have with the same weight has the same function in all of them. A system is damped until
    its straight edges alone have a radius of `MAX_RADIUS`, and its variances one of `MAX_SPREAD_RADIUS`.
    """
    if settings.effects == "linear":
        return list(systems)
    drawn: dict[tuple[Edge, float], tuple[float, ...]] = {}
    bent = []
    for system in systems:
        functions = {}
        for edge in system.edges:
            # The weight as it was drawn: damping differs between systems, the edge does not.
            key = edge, round(system.weight(edge) / system.lag_damping ** edge[0], 9)
            if key not in drawn:
                drawn[key] = draw_function(settings.effects, rng)
            if drawn[key]:
                functions[edge] = drawn[key]
        new = replace(system, functions=functions)
        spread = spread_of(new).spectral_radius ** 0.5
        excess = max(new.spectral_radius / MAX_RADIUS, spread / MAX_SPREAD_RADIUS)
        bent.append(new if excess <= 1 else new.damped(1 / excess))
    return bent


def spread_of(system: System) -> System:
    """How variances act on each other if effects have nothing to do with each other.

    Effects of variance 1 add up as ``v_t = sigma^2 + v_t W^2 + sum_l v_{t-l} A_l^2``, element by element: a system of
    its own, whose eigenvalues are squares.
    """
    return System(system.W**2, system.A**2, system.order)


def causes_scales(systems: Sequence[System], scales: FloatArray) -> FloatArray:
    """(d,) scales of the causes of functions: the standard deviations that effects which have nothing to do with each other
    would give, over all systems, so that an edge that sites share is one function.
    """
    spreads = [spread_of(system) for system in systems]
    variances = [
        np.linalg.solve((np.eye(len(one.W)) - one.W - one.A.sum(axis=0)).T, scales**2) for one in spreads
    ]
    return np.asarray(np.sqrt(np.maximum(np.mean(variances, axis=0), scales**2)))
