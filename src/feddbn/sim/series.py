"""Time series of simulated systems, by the reduced form; step by step where effects are not linear or change.
Systems with curved edges and products are made from linear ones (`bend_systems`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.sim.graphs import draw_noise
from feddbn.sim.settings import SimulationSettings
from feddbn.sim.shapes import GRID, REACH, Edge, Shapes, TrueCurve, TrueProduct, draw_curve
from feddbn.sim.systems import MAX_RADIUS, System

_STEP = 2.0 * REACH / (len(GRID) - 1)


@dataclass(frozen=True, eq=False)
class _Edges:
    """Edges of one lag of all recordings in a row: edge k of the row goes from cell `source` to cell `target`.

    Cells are counted over (recordings, d). `curve` is the row of its curve in `tables`, or -1 if the edge is straight.
    """

    source: IntArray
    target: IntArray
    weight: FloatArray
    centre: FloatArray
    scale: FloatArray
    curve: IntArray
    tables: FloatArray

    def add_to(self, now: FloatArray, causes: FloatArray) -> None:
        """Add what the (recordings, d) `causes` do to `now`, of the same shape."""
        if not len(self.source):
            return
        x = causes.ravel()[self.source]
        place = (np.clip((x - self.centre) / self.scale, -REACH, REACH) + REACH) / _STEP
        left = np.minimum(place.astype(np.int64), len(GRID) - 2)
        low, high = self.tables[self.curve, left], self.tables[self.curve, left + 1]
        curved = self.scale * (low + (place - left) * (high - low))
        acts = self.weight * np.where(self.curve < 0, x, curved)
        now += np.bincount(self.target, weights=acts, minlength=now.size).reshape(now.shape)


@dataclass(frozen=True, eq=False)
class _Group:
    """The recordings that follow one system."""

    members: IntArray
    system: System
    shapes: Shapes


class Stepper:
    """Advances recordings, each with a system of its own; all systems have shapes and as many variables and lags.

    Parameters
    ----------
    systems
        One per recording; those that share a system share the object.
    """

    def __init__(self, systems: Sequence[System]) -> None:
        self._groups = _groups(systems)
        curves = {id(curve): curve for group in self._groups for curve in group.shapes.curves.values()}
        row_of = {key: row for row, key in enumerate(curves)}
        tables = np.array([curve.table for curve in curves.values()] or [np.zeros(len(GRID))])
        parts = [_edges_of(group, row_of) for group in self._groups]
        lag, depth = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
        columns = [np.concatenate([part[k] for part in parts]) for k in range(2, 8)]

        def chosen(these: BoolArray) -> _Edges:
            source, target, weight, centre, scale, row = (column[these] for column in columns)
            return _Edges(source, target, weight, centre, scale, row, tables)

        # Contemporaneous edges by the depth of their targets: their causes are complete when they act.
        deepest = int(depth.max(initial=0))
        self._within = [chosen((lag == 0) & (depth == k)) for k in range(1, deepest + 1)]
        self._lagged = [chosen(lag == k) for k in range(1, len(systems[0].A) + 1)]

    def advance(self, shocks: FloatArray, past: FloatArray) -> FloatArray:
        """(T, R, d) paths of (T, R, d) noise after (any number, R, d) `past` rows; nothing acts from before those."""
        x = np.concatenate([past, np.empty_like(shocks)])
        for t in range(len(past), len(x)):
            now = shocks[t - len(past)].copy()
            for lag, edges in enumerate(self._lagged[:t], start=1):
                edges.add_to(now, x[t - lag])
            self._add_products(now, x, t)
            for edges in self._within:
                edges.add_to(now, now)
            x[t] = now
        return x[len(past) :]

    def _add_products(self, now: FloatArray, x: FloatArray, t: int) -> None:
        for group in self._groups:
            for product in group.shapes.products:
                (a, lag_a), (b, lag_b) = product.causes
                if max(lag_a, lag_b) <= t:
                    lagged = x[t - lag_a, group.members, a], x[t - lag_b, group.members, b]
                    now[group.members, product.target] += group.shapes.acting(product, lagged)


def _groups(systems: Sequence[System]) -> list[_Group]:
    members: dict[int, list[int]] = {}
    for r, system in enumerate(systems):
        members.setdefault(id(system), []).append(r)
    found = []
    for recordings in members.values():
        system = systems[recordings[0]]
        assert system.shapes is not None, "linear systems advance by their reduced form"
        found.append(_Group(np.array(recordings, dtype=np.int64), system, system.shapes))
    return found


def _edges_of(group: _Group, row_of: Mapping[int, int]) -> tuple[NDArray[Any], ...]:
    """Lag and depth of every edge of every recording, then the columns of `_Edges`."""
    system, shapes = group.system, group.shapes
    edges = system.edges
    lag, i, j = np.array(edges, dtype=np.int64).reshape(-1, 3).T
    curves = [shapes.curves.get(edge) for edge in edges]
    row = np.array([-1 if curve is None else row_of[id(curve)] for curve in curves], dtype=np.int64)
    weight = np.array([system.weight(edge) for edge in edges], dtype=np.float64)
    own = [lag, _depths(system)[j], i, j, weight, shapes.centre[i], shapes.scale[i], row]
    start = np.repeat(group.members * len(system.W), len(edges))
    columns = [np.tile(column, len(group.members)) for column in own]
    columns[2], columns[3] = columns[2] + start, columns[3] + start
    return tuple(columns)


def _depths(system: System) -> IntArray:
    """(d,) the number of edges on the longest way within a time step that ends at a variable."""
    depth = np.zeros(len(system.W), dtype=np.int64)
    for j in system.order:
        parents = np.flatnonzero(system.W[:, j])
        if len(parents):
            depth[j] = depth[parents].max() + 1
    return depth


@dataclass(frozen=True, eq=False)
class Effects:
    """How effects differ from those of one linear system.

    Attributes
    ----------
    shape
        What of the values of causes acts; None: the values themselves.
    later
        The system of every recording from its middle on; None: the same as before.
    """

    shape: Callable[[FloatArray], FloatArray] | None = None
    later: Sequence[System] | None = None

    @property
    def are_plain(self) -> bool:
        """Whether there is no difference."""
        return self.shape is None and self.later is None


def draw_shocks(
    n_rows: Sequence[int],
    generators: Sequence[np.random.Generator],
    noise: str,
    scales: FloatArray,
    n_burned: int,
) -> list[FloatArray]:
    """One (n_burned + n_rows[r], d) array of noise per recording r, drawn with ``generators[r]``."""
    return [
        draw_noise(noise, (n_burned + length, len(scales)), scales, rng)
        for length, rng in zip(n_rows, generators, strict=True)
    ]


def advance(
    systems: Sequence[System], shocks: Sequence[FloatArray], n_burned: int, effects: Effects | None = None
) -> list[FloatArray]:
    """One (rows, d) array per recording r, from ``systems[r]`` and its noise, without the first `n_burned` rows.

    ``x_t = (sum_l x_{t-l} A_l + u_t)(I - W)^{-1}`` from ``x = 0``, unless `effects` or the shapes of systems say
    otherwise. Recordings of the same length advance together, so the Python loop runs over time and not over
    recordings.
    """
    outcome: list[FloatArray | None] = [None] * len(systems)
    by_length: dict[int, list[int]] = {}
    for r, u in enumerate(shocks):
        by_length.setdefault(len(u), []).append(r)
    for length, members in by_length.items():
        stacked = np.stack([shocks[r] for r in members], axis=1)
        group = [systems[r] for r in members]
        later = group if effects is None or effects.later is None else [effects.later[r] for r in members]
        middle = n_burned + (length - n_burned) // 2
        if group[0].shapes is not None:
            paths = _curved(group, later, middle, stacked)
        elif effects is None or effects.are_plain:
            paths = _linear(group, stacked)
        else:
            paths = _step_by_step(group, later, middle, effects.shape or _same, stacked)
        for column, r in enumerate(members):
            outcome[r] = np.ascontiguousarray(paths[n_burned:, column])
    return [recording for recording in outcome if recording is not None]


def _linear(systems: list[System], shocks: FloatArray) -> FloatArray:
    """(T, R, d) paths from (T, R, d) shocks; works in place on the mixed shocks."""
    if all(system is systems[0] for system in systems):
        x = shocks @ systems[0].mixing
        B = systems[0].reduced
    else:
        # One system per recording: the recording axis is a batch axis of matrix products of one row each.
        x = shocks[:, :, None, :] @ np.stack([s.mixing for s in systems])
        B = np.stack([s.reduced for s in systems], axis=1)
    for t in range(1, len(x)):
        for lag in range(1, min(t, len(B)) + 1):
            x[t] += x[t - lag] @ B[lag - 1]
    return x.reshape(shocks.shape)


def _curved(systems: list[System], later: list[System], middle: int, shocks: FloatArray) -> FloatArray:
    """(T, R, d) paths of systems with shapes, with `later` systems from row `middle` on."""
    if later is systems:
        return Stepper(systems).advance(shocks, shocks[:0])
    first = Stepper(systems).advance(shocks[:middle], shocks[:0])
    return np.concatenate([first, Stepper(later).advance(shocks[middle:], first)])


def _same(x: FloatArray) -> FloatArray:
    return x


def _step_by_step(
    systems: list[System],
    later: list[System],
    middle: int,
    shape: Callable[[FloatArray], FloatArray],
    shocks: FloatArray,
) -> FloatArray:
    """(T, R, d) paths of ``x_t = f(x_t) W + sum_l f(x_{t-l}) A_l + u_t``, with `later` systems from row `middle` on."""
    W, A = np.stack([s.W for s in systems]), np.stack([s.A for s in systems], axis=1)
    x = np.empty_like(shocks)
    acting = np.empty_like(shocks)
    for t in range(len(shocks)):
        if t == middle:
            W, A = np.stack([s.W for s in later]), np.stack([s.A for s in later], axis=1)
        given = shocks[t].copy()
        for lag in range(1, min(t, len(A)) + 1):
            given += (acting[t - lag][:, None, :] @ A[lag - 1])[:, 0]
        now = given
        for _ in range(
            shocks.shape[2] - 1
        ):  # W has no cycles: after d - 1 repetitions nothing changes any more.
            now = given + (shape(now)[:, None, :] @ W)[:, 0]
        x[t], acting[t] = now, shape(now)
    return x


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
    known: dict[tuple[Edge, float], TrueCurve | None] = {}
    products: tuple[TrueProduct, ...] | None = None
    bent: dict[int, System] = {}
    for system in _different(systems):
        curves: dict[Edge, TrueCurve] = {}
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


def _slow_loops(system: System) -> set[Edge]:
    """The edges that `feddbn.sim.messy.slow_levels` makes."""
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
