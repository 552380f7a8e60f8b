"""Paths of systems with curved edges and products, step by step; many recordings at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.sim.curves import GRID, REACH
from feddbn.sim.shapes import Shapes
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
        row_of = {key: row for row, key in enumerate(curves)}
        tables = np.array([curve.table for curve in curves.values()] or [np.zeros(len(GRID))])
        parts = [_edges_of(group, row_of) for group in self._groups]
        lag, depth = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
        columns = [np.concatenate([part[k] for part in parts]) for k in range(2, 8)]

        def chosen(these: BoolArray) -> _Edges:
            source, target, weight, centre, scale, row = (column[these] for column in columns)
            return _Edges(source, target, weight, centre, scale, row, tables)

        # Edges within a moment by the depth of their targets: their causes are complete when they act.
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
    """(d,) the number of edges on the longest way within a moment that ends at a variable."""
    depth = np.zeros(len(system.W), dtype=np.int64)
    for j in system.order:
        parents = np.flatnonzero(system.W[:, j])
        if len(parents):
            depth[j] = depth[parents].max() + 1
    return depth
