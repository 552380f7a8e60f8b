"""Where nodes, arrows and names of a graph go, before anything is drawn: one layout for figures, notebooks and pages.

All of it is computed from the weights alone, so that the same network always looks the same. Up to `CIRCLE_LIMIT` variables
stand on a circle in the order of a hierarchical clustering, which puts strongly linked variables next to each other. Above
it the labels of a circle collide and a force layout (attraction along edges, repulsion between all nodes, a pull to the
middle) with the circle as its start spreads the clusters instead. No random numbers are used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model.dbn import DBN
from feddbn.model.network import check_network
from feddbn.report.canvas import symmetric_scale
from feddbn.settings import number

__all__ = [
    "CIRCLE_LIMIT",
    "ProcessGraph",
    "cluster_order",
    "control_of",
    "graph_positions",
    "link_strengths",
    "process_graph",
    "require_not_negative",
    "time_series_edges",
]

CIRCLE_LIMIT = 36
CROWDED = 90
"""More arrows than this are drawn thinner, and without numbers."""
Point = tuple[float, float]


@dataclass(frozen=True)
class ProcessGraph:
    """What the process graph shows, before anything is drawn.

    Attributes
    ----------
    nodes
        columns variable, x, y (unit square, y pointing up), self_effect (the strongest ``A_l[i, i]``, 0 if none), degree,
        is_named, angle (in which its name stands).
    arrows
        weakest first; columns source, target, lag (of the strongest weight), lags (text, strongest first), weight, curved,
        oriented, signed, share (of the largest weight), width, opacity, bend, and x, y of the number on it, which is empty
        on straight arrows and where there are too many. Contemporaneous arrows are straight; all lagged effects of one pair
        are one curved arrow. An arrow that is not oriented has no head: its direction is open.
    largest
        The weight that has the full width and colour.
    n_left_out
        How many weaker arrows there are.
    """

    nodes: pd.DataFrame
    arrows: pd.DataFrame
    largest: float = 1.0
    n_left_out: int = 0

    @property
    def on_circle(self) -> bool:
        """Whether nodes stand on a circle, and their names outside of it."""
        return len(self.nodes) <= CIRCLE_LIMIT

    @property
    def is_crowded(self) -> bool:
        """Whether there are too many arrows for numbers on them."""
        return len(self.arrows) > CROWDED


def process_graph(
    dbn: DBN,
    *,
    min_weight: float = 0.0,
    standardised: bool = False,
    limit: float | None = None,
    max_labels: int = 40,
    max_arrows: int | None = None,
) -> ProcessGraph:
    """Nodes, positions and arrows of the process graph of `dbn`, weak arrows (``|weight| <= min_weight``)
    left out; with `standardised`, weights are in standard deviations.

    `limit` is the weight that has the full width, the largest if None; at most `max_labels` variables are named and
    `max_arrows` arrows kept, the strongest.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import process_graph
    >>> graph = process_graph(feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"]))
    >>> graph.arrows[["source", "target", "lags"]].values.tolist(), graph.nodes["self_effect"].tolist()
    ([['x', 'y', '0']], [0.4, 0.0])
    """
    check_network(dbn, "dbn")
    require_not_negative(min_weight)
    d = dbn.d
    stack = dbn.standardised_weights() if standardised else dbn.adjacency_matrices
    lagged = np.where(np.abs(stack[1:]) > min_weight, stack[1:], 0.0)
    nodes = pd.DataFrame(graph_positions(dbn), columns=["x", "y"])
    nodes.insert(0, "variable", list(dbn.variables))
    nodes["self_effect"] = _strongest(lagged[:, np.arange(d), np.arange(d)]) if dbn.n_lags else np.zeros(d)
    where = [(float(x), float(y)) for x, y in zip(nodes["x"], nodes["y"], strict=True)]
    straight = [(int(i), int(j), [0]) for i, j in np.argwhere(np.abs(stack[0]) > min_weight)]
    curved = []
    for i, j in np.argwhere((lagged != 0).any(axis=0)) if dbn.n_lags else ():
        by_strength = np.argsort(-np.abs(lagged[:, i, j]), kind="stable")
        lags = [int(lag) + 1 for lag in by_strength if lagged[lag, i, j]]
        curved += [(int(i), int(j), lags)] if i != j else []
    found = sorted([*straight, *curved], key=lambda one: np.nan_to_num(abs(stack[one[2][0], one[0], one[1]])))
    shown = found[-max_arrows:] if max_arrows is not None else found
    sizes = [float(np.nan_to_num(abs(stack[lags[0], i, j]))) for i, j, lags in shown]
    largest = float(symmetric_scale(sizes, limit=limit).vmax or 1.0)
    crowded = len(shown) > CROWDED
    bent = {(i, j) for i, j, lags in shown if lags[0]}
    is_open, signed = set(dbn.open_edges), dbn.signs()
    rows = []
    for (i, j, lags), size in zip(shown, sizes, strict=True):
        ends = dbn.variables[i], dbn.variables[j]
        share = size / largest
        bend = _bend_of(where[i], where[j], (j, i) in bent and ends[1] < ends[0]) if lags[0] else 0.0
        rows.append(
            {
                "source": ends[0],
                "target": ends[1],
                "lag": lags[0],
                "lags": ",".join(map(str, lags)),
                "weight": float(stack[lags[0], i, j]),
                "curved": lags[0] > 0,
                "oriented": lags[0] > 0 or ends not in is_open,
                "signed": bool(signed[lags[0], i, j]),
                "share": share,
                "width": 0.4 + 1.2 * share if crowded else 0.9 + 2.0 * share,
                "opacity": 0.35 + 0.6 * min(share, 1.0) if crowded else 0.95,
                "bend": bend,
                "number": ",".join(map(str, lags)) if lags[0] and not crowded else "",
                **dict(zip(("x", "y"), _on_arc(where[i], where[j], bend), strict=True)),
            }
        )
    arrows = pd.DataFrame(rows, columns=_ARROW)
    degree = pd.concat([arrows["source"], arrows["target"]]).value_counts()
    nodes["degree"] = [int(degree.get(v, 0)) for v in dbn.variables]
    named = _named(nodes, max_labels)
    nodes["is_named"] = [k in named for k in range(d)]
    outwards = np.arctan2(nodes["y"] - 0.5, nodes["x"] - 0.5)
    nodes["angle"] = outwards if 1 < d <= CIRCLE_LIMIT else np.pi / 2
    return ProcessGraph(nodes, arrows, largest, len(found) - len(shown))


_ARROW = [
    "source", "target", "lag", "lags", "weight", "curved", "oriented", "signed", "share", "width", "opacity", "bend",
    "number", "x", "y",
]  # fmt: skip


def time_series_edges(dbn: DBN, *, min_weight: float = 0.0) -> pd.DataFrame:
    """The arrows of the unrolled graph: source, target, lag, weight, standardised, oriented, one row per
    effect, weakest first.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import time_series_edges
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> time_series_edges(dbn)[["source", "target", "lag", "weight"]].values.tolist()
    [['x', 'x', 1, 0.4], ['x', 'y', 0, 0.5]]
    """
    check_network(dbn, "dbn")
    require_not_negative(min_weight)
    stack = dbn.adjacency_matrices
    # An effect that only bends is an arrow, too.
    index = np.argwhere((np.abs(stack) > min_weight) | ((stack == 0) & dbn.is_edge & (min_weight == 0)))
    weights = stack[tuple(index.T)] if len(index) else np.zeros(0)
    frame = pd.DataFrame(
        {
            "source": [dbn.variables[i] for i in index[:, 1]],
            "target": [dbn.variables[j] for j in index[:, 2]],
            "lag": index[:, 0].astype(int),
            "weight": weights,
            "standardised": dbn.standardised_weights()[tuple(index.T)],
            "oriented": dbn.is_oriented[tuple(index.T)],
        }
    )
    return frame.iloc[np.argsort(np.abs(weights), kind="stable")].reset_index(drop=True)


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


def _named(nodes: pd.DataFrame, at_most: int) -> set[int]:
    """Positions of the nodes that are named: all, or the most connected ones whose names have room beside one another.

    Greedy: a name is kept if its box on a page of unit width meets none kept before it.
    """
    d = len(nodes)
    if d <= at_most:
        return set(range(d))
    ranked = np.lexsort((np.arange(d), -nodes["degree"].to_numpy()))[: 2 * at_most]
    kept: list[tuple[float, float, float]] = []
    chosen: set[int] = set()
    for i in map(int, ranked):
        x, y = float(nodes["x"][i]), float(nodes["y"][i])
        half = 0.0045 * min(len(str(nodes["variable"][i])), 16) + 0.005
        if len(chosen) < at_most and all(abs(x - u) > half + h or abs(y - v) > 0.022 for u, v, h in kept):
            kept.append((x, y, half))
            chosen.add(i)
    return chosen


def _bend_of(start: Point, stop: Point, is_second: bool) -> float:
    """Bow towards the middle of the page, where no node of a circle is; the second of two opposite arrows
    bows more.
    """
    (x0, y0), (x1, y1) = start, stop
    to_middle = (0.5 - (x0 + x1) / 2) * (y1 - y0) - (0.5 - (y0 + y1) / 2) * (x1 - x0)
    size = 0.4 if is_second else 0.2
    return size if to_middle >= 0 else -size


def control_of(start: Point, stop: Point, bend: float) -> Point:
    """The middle point of the quadratic curve by which matplotlib's arc3 bows from start to stop."""
    (x0, y0), (x1, y1) = start, stop
    return (x0 + x1) / 2 + bend * (y1 - y0), (y0 + y1) / 2 - bend * (x1 - x0)


def _on_arc(start: Point, stop: Point, bend: float) -> Point:
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


def _strongest(values: FloatArray) -> FloatArray:
    best = np.abs(values).argmax(axis=0)
    return np.asarray(values[best, np.arange(values.shape[1])], dtype=np.float64)


def require_not_negative(min_weight: float) -> None:
    """Refuse a negative weight."""
    number(0, finite=False).check("min_weight", min_weight)
