"""Where nodes go: computed once, in Python, from the weights alone, so that the same network always looks
the same.

Up to `CIRCLE_LIMIT` variables stand on a circle in the order of a hierarchical clustering, which puts
strongly linked variables next to each other. Above it the labels of a circle collide and a force layout
(attraction along edges, repulsion between all nodes, a pull to the middle) with the circle as its start
spreads the clusters instead. No random numbers are used.
"""

from __future__ import annotations

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model.dbn import DBN

__all__ = ["CIRCLE_LIMIT", "cluster_order", "graph_positions", "link_strengths"]

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
