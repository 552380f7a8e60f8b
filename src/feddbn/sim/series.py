"""Time series of simulated systems, by the reduced form; step by step where effects are not linear.
Systems with curved edges and products are made from linear ones (`bend_systems`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.model.dynamics import long_run_covariance
from feddbn.model.mechanisms import Additive, Linear, Terms, depths, draw_noise, run
from feddbn.sim.settings import SimulationSettings
from feddbn.sim.shapes import GRID, REACH, Edge, Shapes, TrueCurve, TrueProduct, draw_curve
from feddbn.sim.systems import MAX_RADIUS, System

_STEP = 2.0 * REACH / (len(GRID) - 1)


def mechanisms_of(systems: Sequence[System]) -> Linear | Additive:
    """How rows go on, each by a system of its own; those that share a system share the object.

    All systems have shapes, or none has; all have as many variables and lags.
    """
    first = systems[0]
    silent, loud = np.zeros(len(first.W)), np.ones(len(first.W))
    if first.shapes is not None:
        return Additive(*terms_of(systems), len(first.A), len(first.W), silent, loud)
    if all(system is first for system in systems):
        return Linear(first.W, first.A, silent, loud)
    W, A = np.stack([system.W for system in systems]), np.stack([system.A for system in systems], axis=1)
    return Linear(W, A, silent, loud)


def terms_of(systems: Sequence[System]) -> tuple[list[Terms], list[Terms]]:
    """Terms of past causes, then those within a time step. Cells are counted over (rows, d)."""
    members: dict[int, list[int]] = {}
    for row, system in enumerate(systems):
        members.setdefault(id(system), []).append(row)
    groups = [(systems[rows[0]], np.array(rows, dtype=np.int64)) for rows in members.values()]
    curves = {id(curve): curve for system, _ in groups for curve in _shapes(system).curves.values()}
    row_of = {key: row for row, key in enumerate(curves)}
    tables = np.array([curve.table for curve in curves.values()] or [np.zeros(len(GRID))])
    parts = [_edges_of(system, rows, row_of) for system, rows in groups]
    lag, depth, *columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    d = len(systems[0].W)
    n_cells = len(systems) * d

    def chosen(these: BoolArray, at: int) -> Terms:
        source, target, *numbers = (column[these] for column in columns)
        return Terms(n_cells, ((at, source),), target, _acting(*numbers, tables=tables))

    lagged = [chosen(lag == k, k) for k in range(1, len(systems[0].A) + 1)]
    for system, rows in groups:
        shapes = _shapes(system)
        for product in shapes.products:
            causes = tuple((lag_of, rows * d + i) for i, lag_of in product.causes)
            target, acting = rows * d + product.target, partial(shapes.acting, product)
            lagged.append(Terms(n_cells, causes, target, acting))
    # Contemporaneous edges by the depth of their targets: their causes are complete when they act.
    within = [chosen((lag == 0) & (depth == k), 0) for k in range(1, int(depth.max(initial=0)) + 1)]
    return lagged, within


def _shapes(system: System) -> Shapes:
    assert system.shapes is not None, "linear systems advance by their reduced form"
    return system.shapes


def _edges_of(system: System, rows: IntArray, row_of: Mapping[int, int]) -> tuple[NDArray[Any], ...]:
    """Lag, depth, source, target, weight, centre, scale and row of the curve (-1: straight) of every edge, for each of the
    rows that follow a system.
    """
    shapes, edges, d = _shapes(system), system.edges, len(system.W)
    lag, i, j = np.array(edges, dtype=np.int64).reshape(-1, 3).T
    curves = [shapes.curves.get(edge) for edge in edges]
    row = np.array([-1 if curve is None else row_of[id(curve)] for curve in curves], dtype=np.int64)
    weight = np.array([system.weight(edge) for edge in edges], dtype=np.float64)
    own = [lag, depths(system.W != 0)[j], i, j, weight, shapes.centre[i], shapes.scale[i], row]
    start = np.repeat(rows * d, len(edges))
    columns = [np.tile(column, len(rows)) for column in own]
    columns[2], columns[3] = columns[2] + start, columns[3] + start
    return tuple(columns)


def _acting(
    weight: FloatArray, centre: FloatArray, scale: FloatArray, curve: IntArray, *, tables: FloatArray
) -> Callable[[FloatArray], FloatArray]:
    """What edges add, by the values of their causes."""

    def values(x: FloatArray) -> FloatArray:
        place = (np.clip((x - centre) / scale, -REACH, REACH) + REACH) / _STEP
        left = np.minimum(place.astype(np.int64), len(GRID) - 2)
        low, high = tables[curve, left], tables[curve, left + 1]
        curved = scale * (low + (place - left) * (high - low))
        return np.asarray(weight * np.where(curve < 0, x, curved))

    return values


def draw_shocks(
    n_rows: Sequence[int],
    generators: Sequence[np.random.Generator],
    noise: str,
    scales: FloatArray,
    n_burned: int,
) -> list[FloatArray]:
    """One (n_burned + n_rows[r], d) array of noise per recording r, drawn with ``generators[r]``."""
    return [
        draw_noise(noise, scales, (n_burned + length,), rng)
        for length, rng in zip(n_rows, generators, strict=True)
    ]


def advance(systems: Sequence[System], shocks: Sequence[FloatArray], n_burned: int) -> list[FloatArray]:
    """One (rows, d) array per recording r, from ``systems[r]`` and its noise, without the first `n_burned` rows.

    ``x_t = (sum_l x_{t-l} A_l + u_t)(I - W)^{-1}`` from ``x = 0``, unless the shapes of systems say otherwise. Recordings
    of the same length advance together, so the Python loop runs over time and not over recordings.
    """
    outcome: list[FloatArray] = [np.zeros((0, 0))] * len(systems)
    by_length: dict[int, list[int]] = {}
    for r, u in enumerate(shocks):
        by_length.setdefault(len(u), []).append(r)
    for members in by_length.values():
        stacked = np.stack([shocks[r] for r in members], axis=1).swapaxes(0, 1)
        group = [systems[r] for r in members]
        paths = run(mechanisms_of(group).step, len(group[0].A), stacked[:, :0], stacked)
        for r, path in zip(members, paths, strict=True):
            outcome[r] = path[n_burned:].copy()
    return outcome


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
    all systems if these have a backbone in common (`is_shared`), else drawn for each. A system is damped until its
    straight edges alone have a radius of `MAX_RADIUS`, and its variances one of `MAX_SPREAD_RADIUS` (`_spread_radius`).
    """
    if settings.effects == "linear" and not settings.interactions:
        return list(systems)
    known: dict[tuple[Edge, float], TrueCurve | None] = {}
    products: tuple[TrueProduct, ...] | None = None
    bent: dict[int, System] = {}
    for system in _different(systems):
        curves: dict[Edge, TrueCurve] = {}
        for edge in system.edges:
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
        excess = max(new.spectral_radius / MAX_RADIUS, _spread_radius(new) / MAX_SPREAD_RADIUS)
        bent[id(system)] = new if excess <= 1 else new.damped(1 / excess)
    return [bent[id(system)] for system in systems]


def _draw_products(
    system: System, settings: SimulationSettings, rng: np.random.Generator
) -> tuple[TrueProduct, ...]:
    """Different products, each of two different variables at lags of their own."""
    asked = settings.interactions
    n = round(asked * np.count_nonzero(system.A)) if asked < 1 else int(asked)
    low, high = settings.lag_range
    drawn: dict[tuple[frozenset[tuple[int, int]], int], TrueProduct] = {}
    while len(drawn) < n:
        a, b = (int(i) for i in rng.choice(settings.d, size=2, replace=False))
        lag_a, lag_b = (int(lag) for lag in rng.integers(1, settings.n_lags + 1, size=2))
        target, sign = int(rng.integers(settings.d)), 1.0 if rng.random() < 0.5 else -1.0
        weight = sign * float(rng.uniform(low, high)) * settings.decay ** (1 - max(lag_a, lag_b))
        causes = ((a, lag_a), (b, lag_b))
        drawn.setdefault((frozenset(causes), target), TrueProduct(causes, target, weight))
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
    straight = np.sqrt(
        np.mean([np.diag(long_run_covariance(one.W, one.A, scales**2)) for one in different], axis=0)
    )
    centre, scale = np.zeros_like(scales), straight
    n_chains = max(4, _N_CHAINS // len(different))
    p, past = len(systems[0].A), np.zeros((n_chains * len(different), 0, len(scales)))
    for _ in range(_N_BLOCKS):
        moved = [_in_units(system, centre, scale) for system in different]
        going = mechanisms_of([system for system in moved for _ in range(n_chains)])
        shocks = draw_noise(noise, scales, (_BLOCK, past.shape[0]), rng).swapaxes(0, 1)
        path = run(going.step, p, past, shocks)
        past = path[:, _BLOCK - p :]
        kept = path[:, -_KEPT:].swapaxes(0, 1).reshape(-1, len(scales))
        centre = np.clip((centre + kept.mean(axis=0)) / 2.0, -straight, straight)
        scale = np.clip((scale + kept.std(axis=0)) / 2.0, straight / _FURTHEST, straight * _FURTHEST)
    final = {id(system): _in_units(system, centre, scale) for system in different}
    return [final[id(system)] for system in systems]


def _different(systems: Sequence[System]) -> list[System]:
    """Every system once; sites that share one go on sharing one."""
    return list({id(system): system for system in systems}.values())


def _in_units(system: System, centre: FloatArray, scale: FloatArray) -> System:
    assert system.shapes is not None
    return replace(system, shapes=replace(system.shapes, centre=centre, scale=scale))
