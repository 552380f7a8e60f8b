"""What is not linear in drawn systems: functions of edges, products of causes, and the units in which they act.

A function is a table of values between -3 and 3 standard deviations of its cause, straight between them and constant beyond,
so it is bounded. It has mean 0 and variance 1 if the cause is standard normal: an edge of weight w then moves its target as
much as a straight edge of weight w does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.model.dbn import DBN
from feddbn.model.dynamics import first_rows, paths_from
from feddbn.model.nodes import Part, Term
from feddbn.model.step import draw_noise
from feddbn.sim.settings import SimulationSettings
from feddbn.sim.systems import MAX_RADIUS, Edge, Product, System

REACH = 3.0
GRID = np.linspace(-REACH, REACH, 121)
GRID.setflags(write=False)
MAX_SPREAD_RADIUS = 0.85

_N_TERMS = 45
_N_KNOTS = 6
_N_CHAINS, _N_STEPS, _KEPT, _N_TIMES, _N_SYSTEMS = 128, 40, 10, 5, 4
_FURTHEST = 3.0


def _gaussian_process(rng: np.random.Generator) -> FloatArray:
    """A draw at `GRID` of a Gaussian process with the covariance ``exp(-(a - b)^2 / 2)``.

    The series of ``exp(a b)`` gives features ``phi_k(z) = exp(-z^2 / 2) z^k / sqrt(k!)`` whose products are this kernel;
    within +-`REACH` the terms that are left out add up to less than 1e-12.
    """
    columns = [np.exp(-(GRID**2) / 2.0)]
    for k in range(1, _N_TERMS):
        columns.append(columns[-1] * GRID / np.sqrt(k))
    return np.column_stack(columns) @ rng.standard_normal(_N_TERMS)


def _spline(rng: np.random.Generator) -> FloatArray:
    """A natural cubic spline through standard normal values at six knots."""
    # Imported here: most simulations are linear and need no splines.
    from scipy.interpolate import CubicSpline

    knots = np.linspace(-REACH, REACH, _N_KNOTS)
    spline = CubicSpline(knots, rng.standard_normal(_N_KNOTS), bc_type="natural")
    return np.asarray(spline(GRID), dtype=np.float64)


def _sigmoid(rng: np.random.Generator) -> FloatArray:
    """``tanh(a (z - b))``, a from 1 to 3, b from -1 to 1."""
    slope, place = rng.uniform(1.0, 3.0), rng.uniform(-1.0, 1.0)
    return np.tanh(slope * (GRID - place))


def _threshold(rng: np.random.Generator) -> FloatArray:
    """A step at a place from -1 to 1: sharp (within a cell of the grid) or, as often, rising over about half a unit."""
    place, is_sharp = rng.uniform(-1.0, 1.0), rng.random() < 0.5
    return np.where(place < GRID, 1.0, -1.0) if is_sharp else np.tanh(8.0 * (GRID - place))


def _quadratic(rng: np.random.Generator) -> FloatArray:
    """``(z - b)^2``, b from -1/2 to 1/2, constant beyond +-2: with longer tails it feeds on itself."""
    return np.asarray((np.clip(GRID, -2.0, 2.0) - rng.uniform(-0.5, 0.5)) ** 2)


FUNCTIONS: Mapping[str, Callable[[np.random.Generator], FloatArray]] = MappingProxyType(
    {
        "gp": _gaussian_process,
        "spline": _spline,
        "sigmoid": _sigmoid,
        "threshold": _threshold,
        "quadratic": _quadratic,
    }
)
"""Every kind of function by name, with what draws its values at `GRID`; `feddbn.sim.settings.EFFECTS` names them."""


def draw_function(effects: str, rng: np.random.Generator) -> tuple[float, ...]:
    """Values at `GRID` of a function of mean 0 and variance 1 over a standard normal cause; empty for a straight line."""
    kind = effects
    if effects == "mixed":
        kind = "linear" if rng.random() < 0.5 else str(rng.choice(list(FUNCTIONS)))
    if kind == "linear":
        return ()
    table = FUNCTIONS[kind](rng)
    centred = table - _mass() @ table
    return tuple((centred / np.sqrt(_mass() @ centred**2)).tolist())


@cache
def _mass() -> FloatArray:
    """The probability of every point of `GRID`, for a standard normal cause that is rounded to it."""
    from scipy.special import ndtr

    middles = (GRID[1:] + GRID[:-1]) / 2.0
    return np.diff(ndtr(np.concatenate([[-np.inf], middles, [np.inf]])))


def network_of(
    system: System, variables: Sequence[str], scales: FloatArray, units: tuple[FloatArray, FloatArray] | None
) -> DBN:
    """The network of a drawn system whose noise has (d,) standard deviations `scales`.

    `units` are (d,) centres m and scales s of the causes of its functions: an edge of weight w adds ``w s f((x - m) / s)``, a
    product ``w sqrt(s_a s_b)`` times those of its causes in standard deviations; None if all is linear.
    """
    straight = system.straight
    dbn = DBN(straight.W, straight.A, variables, noise_variances=scales**2)
    if units is None:
        return dbn
    m, s = units[0].tolist(), units[1].tolist()
    parts = []
    for (lag, i, j), table in system.functions.items():
        size = system.weight((lag, i, j)) * s[i]
        parts.append(Part(j, Term(((i, lag),), "table", (m[i],), (s[i],), table), [size]))
    for causes, target, weight in system.products:
        (a, _), (b, _) = causes
        term = Term(causes, "product", (m[a], m[b]), (s[a], s[b]))
        parts.append(Part(target, term, [weight * float(np.sqrt(s[a] * s[b]))]))
    return dbn.with_parts(parts)


def bend_systems(
    systems: Sequence[System], settings: SimulationSettings, is_shared: bool, rng: np.random.Generator
) -> list[System]:
    """The systems with functions and products as the settings ask for; themselves if all is to be linear.

    An edge that several systems have with the same weight has the same function in all of them. Products are the same in
    all systems if these have a backbone in common (`is_shared`), else drawn for each. A system is damped until its
    straight edges alone have a radius of `MAX_RADIUS`, and its variances one of `MAX_SPREAD_RADIUS`.
    """
    if settings.effects == "linear" and not settings.interactions:
        return list(systems)
    drawn: dict[tuple[Edge, float], tuple[float, ...]] = {}
    products: tuple[Product, ...] | None = None
    bent: dict[int, System] = {}
    for system in {id(system): system for system in systems}.values():
        functions = {}
        for edge in system.edges:
            # The weight as it was drawn: damping differs between systems, the edge does not.
            key = edge, round(system.weight(edge) / system.lag_damping ** edge[0], 9)
            if key not in drawn:
                drawn[key] = draw_function(settings.effects, rng)
            if drawn[key]:
                functions[edge] = drawn[key]
        if products is None or not is_shared:
            products = _draw_products(system, settings, rng)
        new = replace(system, functions=functions, products=products)
        excess = max(
            new.spectral_radius / MAX_RADIUS, spread_of(new).spectral_radius ** 0.5 / MAX_SPREAD_RADIUS
        )
        bent[id(system)] = new if excess <= 1 else new.damped(1 / excess)
    return [bent[id(system)] for system in systems]


def _draw_products(
    system: System, settings: SimulationSettings, rng: np.random.Generator
) -> tuple[Product, ...]:
    """Different products, each of two different variables at lags of their own."""
    asked = settings.interactions
    n = round(asked * np.count_nonzero(system.A)) if asked < 1 else int(asked)
    low, high = settings.lag_range
    drawn: dict[tuple[frozenset[tuple[int, int]], int], Product] = {}
    while len(drawn) < n:
        a, b = (int(i) for i in rng.choice(settings.d, size=2, replace=False))
        lag_a, lag_b = (int(lag) for lag in rng.integers(1, settings.n_lags + 1, size=2))
        target, sign = int(rng.integers(settings.d)), 1.0 if rng.random() < 0.5 else -1.0
        weight = sign * float(rng.uniform(low, high)) * settings.decay ** (1 - max(lag_a, lag_b))
        causes = ((a, lag_a), (b, lag_b))
        drawn.setdefault((frozenset(causes), target), (causes, target, weight))
    return tuple(drawn.values())


def spread_of(system: System) -> System:
    """How variances act on each other if effects have nothing to do with each other.

    Effects of variance 1 add up as ``v_t = sigma^2 + v_t W^2 + sum_l v_{t-l} A_l^2``, element by element: a system of
    its own, whose eigenvalues are squares. A product of causes a and b adds ``w^2 s_a s_b``, at most half of
    ``w^2 (s_a^2 + s_b^2)``.
    """
    squares = system.A**2
    for causes, target, weight in system.products:
        for i, lag in causes:
            squares[lag - 1, i, target] += weight**2 / 2.0
    return System(system.W**2, squares, system.order)


def units_of(
    systems: Sequence[System], noise: str, scales: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray] | None:
    """(d,) centres and (d,) scales of the causes of functions, about their means and standard deviations; None if all systems
    are linear.

    They depend on the functions, and the functions on them: from the scales that independent effects would give, they go
    half of the way, a few times, to what simulated rows have. A system that feeds back strongly may have no such units: they
    stay within a factor of `_FURTHEST` of the first. They are the same for all systems: an edge that sites share is one
    function.
    """
    if not any(system.functions or system.products for system in systems):
        return None
    some = list({id(system): system for system in systems}.values())[:_N_SYSTEMS]
    spreads = [spread_of(system) for system in some]
    variances = [
        np.linalg.solve((np.eye(len(one.W)) - one.W - one.A.sum(axis=0)).T, scales**2) for one in spreads
    ]
    first = np.sqrt(np.maximum(np.mean(variances, axis=0), scales**2))
    centre, scale, names = np.zeros_like(first), first, [f"x{k}" for k in range(len(first))]
    for _ in range(_N_TIMES):
        kept = []
        for system in some:
            dbn = network_of(system, names, scales, (centre, scale))
            shocks = draw_noise(noise, scales, (_N_CHAINS, _N_STEPS), rng)
            kept.append(paths_from(dbn, first_rows(dbn), shocks)[:, -_KEPT:].reshape(-1, len(scales)))
        rows = np.concatenate(kept)
        centre = np.clip((centre + rows.mean(axis=0)) / 2.0, -first, first)
        scale = np.clip((scale + rows.std(axis=0)) / 2.0, first / _FURTHEST, first * _FURTHEST)
    return centre, scale
