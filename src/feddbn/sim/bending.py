"""Systems with curved edges and products, from linear ones: what is drawn, and the units of the causes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.sim.curved_series import Stepper
from feddbn.sim.curves import Curve, draw_curve
from feddbn.sim.noise import draw_noise
from feddbn.sim.settings import SimulationSettings
from feddbn.sim.shapes import Edge, Product, Shapes
from feddbn.sim.systems import MAX_RADIUS, System

__all__ = ["MAX_SPREAD_RADIUS", "bend_systems", "in_units_of_causes"]

MAX_SPREAD_RADIUS = 0.85

_N_CHAINS = 256
_N_BLOCKS = 15
_BLOCK = 20
_KEPT = 10
_FURTHEST = 3.0


def bend_systems(
    systems: Sequence[System], settings: SimulationSettings, is_shared: bool, rng: np.random.Generator
) -> list[System]:
    """The systems with curves and products as the settings ask for; themselves if all is to be linear.

    An edge that several systems have with the same weight has the same curve in all of them. Products are the same in
    all systems if these have a backbone in common (`is_shared`), else drawn for each. Levels near a unit root stay what
    they are: their edges to themselves are straight. A system is damped until its straight edges alone have a radius of
    `MAX_RADIUS`, and its variances one of `MAX_SPREAD_RADIUS` (`_spread_radius`), or that of levels near a unit root.
    """
    if settings.effects == "linear" and not settings.interactions:
        return list(systems)
    known: dict[tuple[Edge, float], Curve | None] = {}
    products: tuple[Product, ...] | None = None
    bent: dict[int, System] = {}
    for system in _different(systems):
        curves: dict[Edge, Curve] = {}
        slow, levels = 0.0, set[Edge]()
        if "slow-levels" in settings.mess_strengths:
            slow, levels = system.spectral_radius, _slow_loops(system)
        for edge in system.edges:
            if edge in levels:
                continue
            # The weight as it was drawn: damping differs between systems, the edge does not.
            key = edge, round(system.weight(edge) / system.lag_damping ** edge[0], 9)
            if key not in known:
                known[key] = draw_curve(settings.effects, rng)
            curve = known[key]
            if curve is not None:
                curves[edge] = curve
        if products is None or not is_shared:
            products = _draw_products(system, settings, rng)
        new = replace(system, shapes=Shapes(curves, products))
        excess = max(
            new.spectral_radius / max(MAX_RADIUS, slow), _spread_radius(new) / max(MAX_SPREAD_RADIUS, slow)
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
        drawn.setdefault((frozenset(causes), target), Product(causes, target, weight))
    return tuple(drawn.values())


def _spread_radius(system: System) -> float:
    """How fast variances feed on themselves if effects have nothing to do with each other; above 1 they never settle.

    Effects of variance 1 add up as ``v_t = sigma^2 + v_t W^2 + sum_l v_{t-l} A_l^2``, element by element: a system of
    its own, whose eigenvalues are squares. A product of causes a and b adds ``w^2 s_a s_b``, at most half of
    ``w^2 (s_a^2 + s_b^2)``.
    """
    assert system.shapes is not None
    squares = system.A**2
    for product in system.shapes.products:
        for lag, i, j in product.edges:
            squares[lag - 1, i, j] += product.weight**2 / 2.0
    return float(np.sqrt(System(system.W**2, squares, system.order).spectral_radius))


def _slow_loops(system: System) -> set[Edge]:
    """The edges that `feddbn.sim.mess.effects.slow_levels` makes."""
    return {(1, int(root), int(root)) for root in np.flatnonzero(~system.W.any(axis=0))}


def in_units_of_causes(
    systems: Sequence[System], noise: str, scales: FloatArray, rng: np.random.Generator
) -> list[System]:
    """The systems with the centre and scale that their curves refer to; themselves if all is linear.

    Mean and standard deviation of a variable depend on the curves, and the curves on them. So chains of all systems run
    in blocks, and after every block the units go half of the way to what the chains have. A system that feeds back
    strongly may have no such units: they stay within a factor of `_FURTHEST` of what the variables would have if all
    edges were straight, and centres within one such standard deviation. The units are the same for all systems: an edge
    that sites share is one function.
    """
    if systems[0].shapes is None:
        return list(systems)
    different = _different(systems)
    straight = np.sqrt(np.mean([_straight_variances(system, scales) for system in different], axis=0))
    centre, scale = np.zeros_like(scales), straight
    n_chains = max(4, _N_CHAINS // len(different))
    p, past = len(systems[0].A), np.zeros((0, n_chains * len(different), len(scales)))
    for _ in range(_N_BLOCKS):
        moved = [_in_units(system, centre, scale) for system in different]
        stepper = Stepper([system for system in moved for _ in range(n_chains)])
        shocks = draw_noise(noise, (_BLOCK, *past.shape[1:]), scales, rng)
        path = stepper.advance(shocks, past)
        past = path[len(path) - p :]
        kept = path[-_KEPT:].reshape(-1, len(scales))
        centre = np.clip((centre + kept.mean(axis=0)) / 2.0, -straight, straight)
        scale = np.clip((scale + kept.std(axis=0)) / 2.0, straight / _FURTHEST, straight * _FURTHEST)
    final = {id(system): _in_units(system, centre, scale) for system in different}
    return [final[id(system)] for system in systems]


def _straight_variances(system: System, scales: FloatArray) -> FloatArray:
    """(d,) variances of the variables if every edge were straight and no product acted."""
    from scipy.linalg import solve_discrete_lyapunov

    p, d = len(system.A), len(scales)
    shocks = (system.mixing.T * scales**2) @ system.mixing
    if p == 0:
        return np.diag(shocks)
    driven = np.zeros((p * d, p * d))
    driven[:d, :d] = shocks
    covariance = np.asarray(solve_discrete_lyapunov(system.companion.T, driven), dtype=np.float64)
    return np.diag(covariance)[:d]


def _different(systems: Sequence[System]) -> list[System]:
    """Every system once; sites that share one go on sharing one."""
    return list({id(system): system for system in systems}.values())


def _in_units(system: System, centre: FloatArray, scale: FloatArray) -> System:
    assert system.shapes is not None
    return replace(system, shapes=replace(system.shapes, centre=centre, scale=scale))
