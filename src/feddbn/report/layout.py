"""Where nodes, arrows and names go: computed once, in Python, from the weights alone, so that the same network always looks
the same.

Up to `CIRCLE_LIMIT` variables stand on a circle in the order of a hierarchical clustering, which puts
strongly linked variables next to each other. Above it the labels of a circle collide and a force layout
(attraction along edges, repulsion between all nodes, a pull to the middle) with the circle as its start
spreads the clusters instead. No random numbers are used.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model.dbn import DBN

__all__ = [
    "CIRCLE_LIMIT",
    "bend_of",
    "cluster_order",
    "control_of",
    "graph_positions",
    "link_strengths",
    "named_nodes",
    "on_arc",
]

CIRCLE_LIMIT = 36


def link_strengths(dbn: DBN) -> FloatArray:
    """(d, d) symmetric: ``max over lags of |standardised weight|`` between two variables in either direction, zero
    diagonal; so the picture does not depend on units.
    """
    strength = np.nan_to_num(np.abs(dbn.standardised_weights())).max(axis=0)
    strength = np.maximum(strength, strength.T)
    np.fill_diagonal(strength, 0.0)
    return np.asarray(strength, dtype=np.float64)


def cluster_order(strength: FloatArray) -> list[int]:
    """The order of the variables along a dendrogram of average linkage, strongly linked ones adjacent.

    Distance between two variables is ``1 - s/(2 max s)`` when linked, plus 1 when not; ties fall back on
    position.
    """
    d = len(strength)
    if strength.shape != (d, d):
        raise ParameterError(f"strength must be square, got shape {strength.shape}.")
    top = float(strength.max()) if d else 0.0
    if d < 3 or top == 0.0:
        return list(range(d))
    distance = np.where(strength > 0, 1.0 - 0.5 * strength / top, 2.0)
    np.fill_diagonal(distance, 0.0)
    tree = linkage(squareform(distance, checks=False), method="average", optimal_ordering=d <= 200)
    return [int(i) for i in leaves_list(tree)]


def graph_positions(dbn: DBN) -> FloatArray:
    """(d, 2) positions in the unit square, y pointing up."""
    strength = link_strengths(dbn)
    order = cluster_order(strength)
    circle = _circle(order)
    if dbn.d <= CIRCLE_LIMIT:
        return circle
    return _into_unit_square(_spread(circle, strength > 0))


def named_nodes(nodes: pd.DataFrame, at_most: int) -> list[int]:
    """Positions of the nodes that are named: all, or the most connected ones whose names have room beside one another.

    Greedy: a name is kept if its box on a page of unit width meets none kept before it.
    """
    d = len(nodes)
    if d <= at_most:
        return list(range(d))
    ranked = np.lexsort((np.arange(d), -nodes["degree"].to_numpy()))[: 2 * at_most]
    kept: list[tuple[float, float, float]] = []
    chosen: set[int] = set()
    for i in map(int, ranked):
        x, y = float(nodes["x"][i]), float(nodes["y"][i])
        half = 0.0045 * min(len(str(nodes["variable"][i])), 16) + 0.005
        if len(chosen) < at_most and all(abs(x - u) > half + h or abs(y - v) > 0.022 for u, v, h in kept):
            kept.append((x, y, half))
            chosen.add(i)
    return sorted(chosen)


def bend_of(
    where: dict[str, tuple[float, float]], source: str, target: str, pairs: set[tuple[str, str]]
) -> float:
    """Bow towards the middle of the page, where no node of a circle is; the second of two opposite arrows
    bows more.
    """
    (x0, y0), (x1, y1) = where[source], where[target]
    to_middle = (0.5 - (x0 + x1) / 2) * (y1 - y0) - (0.5 - (y0 + y1) / 2) * (x1 - x0)
    size = 0.4 if (target, source) in pairs and target < source else 0.2
    return size if to_middle >= 0 else -size


def control_of(start: tuple[float, float], stop: tuple[float, float], bend: float) -> tuple[float, float]:
    """The middle point of the quadratic curve by which matplotlib's arc3 bows from start to stop."""
    (x0, y0), (x1, y1) = start, stop
    return (x0 + x1) / 2 + bend * (y1 - y0), (y0 + y1) / 2 - bend * (x1 - x0)


def on_arc(start: tuple[float, float], stop: tuple[float, float], bend: float) -> tuple[float, float]:
    """A point of matplotlib's arc3 curve; past the middle, so that i -> j and j -> i are labelled apart."""
    (x0, y0), (x1, y1) = start, stop
    control = control_of(start, stop, bend)
    s = 0.56
    return (
        (1 - s) ** 2 * x0 + 2 * s * (1 - s) * control[0] + s**2 * x1,
        (1 - s) ** 2 * y0 + 2 * s * (1 - s) * control[1] + s**2 * y1,
    )


def _circle(order: list[int]) -> FloatArray:
    d = len(order)
    positions = np.empty((d, 2))
    # Clockwise from the top, as one reads a clock.
    angles = np.pi / 2 - 2 * np.pi * np.arange(d) / max(d, 1)
    positions[order] = np.column_stack([np.cos(angles), np.sin(angles)])
    return 0.5 + 0.5 * positions if d > 1 else np.full((d, 2), 0.5)


def _spread(start: FloatArray, linked: np.ndarray, n_steps: int = 300) -> FloatArray:
    """Fruchterman and Reingold's (1991) forces with gravity; the step length cools linearly."""
    d = len(start)
    ideal = 1.0 / np.sqrt(d)
    x = start.copy()
    for step in range(n_steps):
        gap = x[:, None] - x[None, :]
        length = np.maximum(np.hypot(gap[..., 0], gap[..., 1]), 1e-3)
        push = (ideal / length) ** 2 - np.where(linked, 0.35 * length / ideal, 0.0)
        np.fill_diagonal(push, 0.0)
        # Nodes without edges feel only repulsion; gravity keeps them on the page.
        force = (push[..., None] * gap).sum(axis=1) - 4.0 * (x - 0.5)
        size = np.maximum(np.hypot(force[:, 0], force[:, 1]), 1e-12)
        reach = 0.1 * (1 - step / n_steps) + 1e-3
        x = x + force / size[:, None] * np.minimum(size, reach)[:, None]
    return _separate(x)


def _separate(x: FloatArray, n_sweeps: int = 60) -> FloatArray:
    """Move overlapping nodes apart until no two are nearer than a fixed share of the page."""
    nearest = 0.55 * float(np.ptp(x, axis=0).max()) / np.sqrt(len(x))
    for _ in range(n_sweeps):
        gap = x[:, None] - x[None, :]
        length = np.hypot(gap[..., 0], gap[..., 1])
        np.fill_diagonal(length, np.inf)
        short = np.maximum(nearest - length, 0.0)
        if not short.any():
            break
        x = x + 0.5 * ((short / np.maximum(length, 1e-6))[..., None] * gap).sum(axis=1)
    return x


def _into_unit_square(x: FloatArray) -> FloatArray:
    low, high = x.min(axis=0), x.max(axis=0)
    return np.asarray((x - low) / np.maximum(high - low, 1e-12))
