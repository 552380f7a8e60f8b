"""Paths of systems with curved edges and products, step by step; many recordings at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray, IntArray
from feddbn.sim.curves import GRID, REACH
from feddbn.sim.shapes import Edge, Shapes
from feddbn.sim.systems import System

__all__ = ["Stepper"]

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
        self._row_of = {key: row for row, key in enumerate(curves)}
        self._tables = np.array([curve.table for curve in curves.values()] or [np.zeros(len(GRID))])
        depths = [_depths(group.system) for group in self._groups]
        deepest = max(int(depth.max()) for depth in depths)
        # Edges within a moment by the depth of their targets: their causes are complete when they act.
        self._within = [
            self._edges(
                [
                    [e for e in _of_lag(g, 0) if depth[e[2]] == k]
                    for g, depth in zip(self._groups, depths, strict=True)
                ]
            )
            for k in range(1, deepest + 1)
        ]
        n_lags = len(systems[0].A)
        self._lagged = [self._edges([_of_lag(g, lag) for g in self._groups]) for lag in range(1, n_lags + 1)]

    def _edges(self, of_groups: Sequence[list[Edge]]) -> _Edges:
        """One row of edges from those of every group, repeated for the group's recordings."""
        cells, numbers = [np.zeros((0, 3), dtype=np.int64)], [np.zeros((0, 3))]
        for group, edges in zip(self._groups, of_groups, strict=True):
            shapes, system = group.shapes, group.system
            start = group.members * len(system.W)
            for edge in edges:
                _, i, j = edge
                curve = shapes.curves.get(edge)
                row = -1 if curve is None else self._row_of[id(curve)]
                cells.append(np.column_stack([start + i, start + j, np.full_like(start, row)]))
                own = [system.weight(edge), shapes.centre[i], shapes.scale[i]]
                numbers.append(np.tile(own, (len(start), 1)))
        source, target, row_of_curve = np.concatenate(cells).T
        weight, centre, scale = np.concatenate(numbers).T
        return _Edges(source, target, weight, centre, scale, row_of_curve, self._tables)

    def advance(self, shocks: FloatArray, past: FloatArray) -> FloatArray:
        """(T, R, d) paths of (T, R, d) noise after (any number, R, d) `past` rows; what lies before those does nothing."""
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


def _of_lag(group: _Group, lag: int) -> list[Edge]:
    return [edge for edge in group.system.edges if edge[0] == lag]


def _depths(system: System) -> IntArray:
    """(d,) the number of edges on the longest way within a moment that ends at a variable."""
    depth = np.zeros(len(system.W), dtype=np.int64)
    for j in system.order:
        parents = np.flatnonzero(system.W[:, j])
        if len(parents):
            depth[j] = depth[parents].max() + 1
    return depth
