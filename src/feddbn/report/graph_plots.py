"""The two graph pictures: the process graph (one node per variable) and the time-series graph (one node per time step).

Where nodes, arrows and names go is computed in Python from the weights alone, so that the same network always looks the same.
Up to `CIRCLE_LIMIT` variables stand on a circle in the order of a hierarchical clustering, which puts strongly linked
variables next to each other. Above it the labels of a circle collide and a force layout (attraction along edges, repulsion
between all nodes, a pull to the middle) with the circle as its start spreads the clusters
instead. No random numbers are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind
from feddbn.errors import ParameterError
from feddbn.model.dbn import DBN
from feddbn.model.network import check_network
from feddbn.model.strength import has_sign
from feddbn.report.canvas import (
    EDGE_COLOURS,
    HEAT_COLOURS,
    new_axes,
    shortened,
    strength_bar,
    symmetric_scale,
    weight_name,
)

__all__ = [
    "CIRCLE_LIMIT",
    "bend_of",
    "cluster_order",
    "control_of",
    "graph_positions",
    "link_strengths",
    "named_nodes",
    "on_arc",
    "plot_process_graph",
    "plot_time_series_graph",
    "process_graph",
    "time_series_edges",
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


MARKS = {"continuous": "o", "positive": "^", "count": "s", "binary": "D", "ordinal": "p", "categorical": "h"}


def draw_nodes(ax: Axes, nodes: pd.DataFrame, kinds: Sequence[Kind], size: float, norm: Normalize) -> None:
    """Draw nodes x, y in the colour of their self_effect, one shape per kind, and explain shapes if there are several."""
    names = np.array([kind.name for kind in kinds])
    shown = [name for name in MARKS if (names == name).any()]
    for name in shown:
        some = nodes[names == name]
        ax.scatter(
            some["x"], some["y"], s=size, c=some["self_effect"], cmap=HEAT_COLOURS, norm=norm, marker=MARKS[name],
            edgecolors="#333333", linewidths=1.0, zorder=3,
        )  # fmt: skip
    if shown != ["continuous"]:
        handles = [
            Line2D(
                [], [], linestyle="", marker=MARKS[name], markersize=7, markerfacecolor="#f4f4f4", label=name,
                markeredgecolor="#333333",
            )
            for name in shown
        ]  # fmt: skip
        ax.legend(
            handles=handles, frameon=False, fontsize=8, ncols=min(len(shown), 3), loc="lower center",
            bbox_to_anchor=(0.5, 1.05), handletextpad=0.2, columnspacing=1.0,
        )  # fmt: skip


REPEAT_LIMIT = 12


@dataclass(frozen=True)
class ProcessGraph:
    """What the process graph shows, before anything is drawn.

    Attributes
    ----------
    nodes
        columns variable, x, y (unit square), self_effect (the strongest ``A_l[i, i]``, 0 if none), degree.
    arrows
        columns source, target, lag (of the strongest weight), lags (text, strongest first), weight, curved, oriented.
        Contemporaneous arrows are straight; all lagged effects of one pair are one curved arrow. An arrow that is not
        oriented has no head: its direction is open.
    """

    nodes: pd.DataFrame
    arrows: pd.DataFrame


def process_graph(dbn: DBN, *, min_weight: float = 0.0, standardised: bool = False) -> ProcessGraph:
    """Nodes, positions and arrows of the process graph of `dbn`, weak arrows (``|weight| <= min_weight``)
    left out; with `standardised`, weights are in standard deviations.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import process_graph
    >>> graph = process_graph(feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"]))
    >>> graph.arrows[["source", "target", "lags"]].values.tolist(), graph.nodes["self_effect"].tolist()
    ([['x', 'y', '0']], [0.4, 0.0])
    """
    check_network(dbn, "dbn")
    _require_not_negative(min_weight)
    d = dbn.d
    stack = dbn.standardised_weights() if standardised else dbn.adjacency_matrices
    W, A = stack[0], stack[1:]
    is_open = set(dbn.open_edges)
    lagged = np.where(np.abs(A) > min_weight, A, 0.0)
    diagonal = lagged[:, np.arange(d), np.arange(d)]
    self_effect = _strongest(diagonal) if dbn.n_lags else np.zeros(d)
    rows: list[tuple[str, str, int, str, float, bool, bool]] = []
    for i, j in np.argwhere(np.abs(W) > min_weight):
        ends = dbn.variables[i], dbn.variables[j]
        rows.append((*ends, 0, "0", float(W[i, j]), False, ends not in is_open))
    for i, j in np.argwhere((lagged != 0).any(axis=0)) if dbn.n_lags else []:
        if i == j:
            continue
        by_strength = [
            int(lag) for lag in np.argsort(-np.abs(lagged[:, i, j]), kind="stable") if lagged[lag, i, j]
        ]
        text = ",".join(str(lag + 1) for lag in by_strength)
        best = by_strength[0]
        ends = dbn.variables[i], dbn.variables[j]
        rows.append((*ends, best + 1, text, float(lagged[best, i, j]), True, True))
    arrows = pd.DataFrame(rows, columns=["source", "target", "lag", "lags", "weight", "curved", "oriented"])
    positions = graph_positions(dbn)
    ends = pd.concat([arrows["source"], arrows["target"]]).value_counts()
    nodes = pd.DataFrame(
        {
            "variable": list(dbn.variables),
            "x": positions[:, 0],
            "y": positions[:, 1],
            "self_effect": self_effect,
            "degree": [int(ends.get(v, 0)) for v in dbn.variables],
        }
    )
    return ProcessGraph(nodes, arrows)


def plot_process_graph(
    dbn: DBN,
    *,
    ax: Axes | None = None,
    min_weight: float = 0.0,
    limit: float | None = None,
    max_labels: int = 40,
    standardised: bool = True,
) -> Axes:
    """The axes with one node per variable and one arrow per effect.

    Arrow colour and width are the weight, a number on an arrow its lags (strongest first; straight arrows without a
    number are contemporaneous), node colour the variable's effect on its own future. A line without a head is a link
    whose direction is open; shapes of nodes are kinds of variables, if there are several. With more than `max_labels`
    variables only the most connected ones are named.

    Parameters
    ----------
    dbn
        The network.
    ax
        Where to draw; a new figure if None.
    min_weight
        Arrows of at most this absolute weight are left out.
    limit
        End of the symmetric colour scale; the largest weight if None.
    max_labels
        Most variables that are named.
    standardised
        Draw weights in standard deviations, so that one in a large unit does not hide the others; False draws them,
        and reads `min_weight` and `limit`, in the units of the data.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import plot_process_graph
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> ax = plot_process_graph(dbn)
    >>> sorted(text.get_text() for text in ax.texts)
    ['x', 'y']
    """
    graph = process_graph(dbn, min_weight=min_weight, standardised=standardised)
    nodes, arrows = graph.nodes, graph.arrows
    d = dbn.d
    side = float(np.clip(4.2 + 0.16 * d, 5.0, 12.0))
    ax = new_axes(ax, side + 1.8, side)
    norm = symmetric_scale(arrows["weight"], limit=limit)
    colours = _colours(dbn, norm)
    auto = symmetric_scale(nodes["self_effect"], limit=1.0)
    on_circle = d <= CIRCLE_LIMIT
    width = float(np.clip(30 / np.sqrt(d) * 1.6, 7, 20))
    size = (width * 1.0) ** 2
    where = {v: (x, y) for v, x, y in zip(nodes["variable"], nodes["x"], nodes["y"], strict=True)}
    # Strong arrows last, so that they lie on top.
    drawn = arrows.iloc[np.argsort(np.abs(arrows["weight"].to_numpy(dtype=float)), kind="stable")]
    crowded = len(arrows) > 90
    pairs = {
        (str(a), str(b))
        for a, b, bent in zip(arrows["source"], arrows["target"], arrows["curved"], strict=True)
        if bent
    }
    for row in drawn.to_dict("records"):
        colour = colours(row)
        share = abs(float(row["weight"])) / float(norm.vmax or 1.0)
        bend = bend_of(where, str(row["source"]), str(row["target"]), pairs) if row["curved"] else 0.0
        ax.add_patch(
            FancyArrowPatch(
                where[row["source"]],
                where[row["target"]],
                connectionstyle=f"arc3,rad={bend}",
                arrowstyle="-|>" if row["oriented"] else "-",
                mutation_scale=8 if crowded else 12,
                shrinkA=width / 2,
                shrinkB=width / 2 + bool(row["oriented"]),
                color=colour,
                linewidth=(0.4 + 1.2 * share) if crowded else (0.9 + 2.0 * share),
                alpha=0.35 + 0.6 * min(share, 1.0) if crowded else 0.95,
                zorder=2,
            )
        )
        if row["curved"] and not crowded:
            x, y = on_arc(where[row["source"]], where[row["target"]], bend)
            ax.text(
                x, y, row["lags"], fontsize=8 if d <= 12 else 7, ha="center", va="center", zorder=4,
                color="#222222",
                bbox={"boxstyle": "round,pad=0.12", "fc": "white", "ec": "none", "alpha": 0.85},
            )  # fmt: skip
    draw_nodes(ax, nodes, dbn.kinds, size, auto)
    _name_nodes(ax, nodes, on_circle, width, max_labels)
    ax.set_xlim(-0.06, 1.06)
    ax.set_ylim(-0.06, 1.06)
    ax.set_aspect("equal")
    ax.set_axis_off()
    strength_bar(ax, auto, HEAT_COLOURS, "effect on its own future (node)", shrink=0.5)
    strength_bar(ax, norm, EDGE_COLOURS, f"{weight_name(standardised)} (arrow)", shrink=0.5)
    _explain_lines(ax, dbn, not arrows["oriented"].all(), 12)
    return ax


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
    _require_not_negative(min_weight)
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


def plot_time_series_graph(
    dbn: DBN,
    *,
    ax: Axes | None = None,
    min_weight: float = 0.0,
    limit: float | None = None,
    cluster: bool = True,
    standardised: bool = True,
) -> Axes:
    """The axes with one row per variable and one column per time step t-p, ..., t.

    Effects into time step t are drawn in full; up to `REPEAT_LIMIT` variables the same effects between earlier
    time steps are drawn faintly, because they repeat. Contemporaneous effects bow to the right of their
    column, without a head where their direction is open. `cluster` puts linked variables on neighbouring rows;
    `standardised`, `min_weight` and `limit` as in `plot_process_graph`.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import plot_time_series_graph
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> plot_time_series_graph(dbn).figure is not None
    True
    """
    _require_not_negative(min_weight)
    edges = time_series_edges(dbn)
    if standardised:
        edges = edges.assign(weight=edges["standardised"])
    edges = edges[edges["weight"].abs() > min_weight]
    edges = edges.iloc[np.argsort(edges["weight"].abs(), kind="stable")]
    d, p = dbn.d, dbn.n_lags
    order = cluster_order(link_strengths(dbn)) if cluster else list(range(d))
    row_of = {dbn.variables[v]: d - 1 - place for place, v in enumerate(order)}
    height = float(np.clip(0.42 * d, 3.0, 9.0) if d <= 40 else np.clip(0.13 * d, 9.0, 26.0))
    ax = new_axes(ax, 3.2 + 1.7 * (p + 1), height)
    norm = symmetric_scale(edges["weight"], limit=limit)
    colours = _colours(dbn, norm)
    crowded = len(edges) > 90
    radius = 9.0 if d <= 12 else 6.0 if d <= 40 else 3.5
    for row in edges.to_dict("records"):
        share = abs(float(row["weight"])) / float(norm.vmax or 1.0)
        start, stop = row_of[row["source"]], row_of[row["target"]]
        first = row["lag"] - p if d <= REPEAT_LIMIT else 0
        for step in range(first, 1):
            current = step == 0
            style: dict[str, Any] = {
                "arrowstyle": "-|>" if row["oriented"] else "-",
                "mutation_scale": 7 if crowded else 11,
                "edgecolor": colours(row),
                "linewidth": (0.5 + 1.2 * share) * (1.0 if crowded else 1.4),
                "alpha": (0.3 + 0.6 * min(share, 1.0) if crowded else 0.9) if current else 0.18,
                "zorder": 3 if current else 2,
            }
            if row["lag"] == 0:
                arc = _bow(step, start, stop, d, radius)
                ax.add_patch(FancyArrowPatch(path=arc, facecolor="none", **style))
            else:
                ends: dict[str, Any] = {"posA": (step - row["lag"], start), "posB": (step, stop)}
                ax.add_patch(
                    FancyArrowPatch(
                        **ends,
                        shrinkA=radius / 2,
                        shrinkB=radius / 2 + 1,
                        facecolor=style["edgecolor"],
                        **style,
                    )
                )
    grid_x, grid_y = np.meshgrid(np.arange(-p, 1), np.arange(d))
    ax.scatter(
        grid_x, grid_y, s=radius**2, facecolor="#f4f4f4", edgecolor="#333333", linewidths=0.8, zorder=4
    )
    ax.set_xticks(range(-p, 1), ["t" if m == 0 else f"t−{-m}" for m in range(-p, 1)])
    ax.set_yticks([row_of[v] for v in dbn.variables], [shortened(v, 18) for v in dbn.variables])
    ax.tick_params(length=0, labelsize=9 if d <= 20 else 8 if d <= 40 else 6)
    ax.tick_params(axis="x", labelsize=10, labeltop=True)
    ax.set_xlim(-p - 0.2, 0.65)
    ax.set_ylim(-0.7, d - 0.3)
    for side in ax.spines.values():
        side.set_visible(False)
    strength_bar(ax, norm, EDGE_COLOURS, weight_name(standardised), shrink=0.6 if d <= 40 else 0.25)
    _explain_lines(ax, dbn, not edges["oriented"].all(), 30)
    return ax


def _colours(dbn: DBN, norm: Normalize) -> Callable[[dict[Any, Any]], Any]:
    """The colour of an arrow: its weight, or grey if its effect goes both ways."""
    goes_one_way, place = has_sign(dbn), {name: k for k, name in enumerate(dbn.variables)}

    def colour(row: dict[Any, Any]) -> Any:
        is_signed = goes_one_way[row["lag"], place[row["source"]], place[row["target"]]]
        return EDGE_COLOURS(norm(row["weight"])) if is_signed else "#777777"

    return colour


def _explain_lines(ax: Axes, dbn: DBN, is_open: bool, below: int) -> None:
    """Say some points below the picture what a line without a head and a grey one are, if there are any."""
    words = ["line without a head: direction not known"] if is_open else []
    both = "grey: several levels, no one direction" if dbn.conditionals else "grey: the effect goes both ways"
    words += [] if (has_sign(dbn) | ~dbn.is_edge).all() else [both]
    if words:
        ax.annotate(
            "; ".join(words), (0.5, 0), xytext=(0, -below), xycoords="axes fraction", ha="center", va="top",
            textcoords="offset points", fontsize=9, color="#444444", annotation_clip=False,
        )  # fmt: skip


def _name_nodes(ax: Axes, nodes: pd.DataFrame, on_circle: bool, width: float, max_labels: int) -> None:
    d = len(nodes)
    for i in named_nodes(nodes, max_labels):
        x, y, name = float(nodes["x"][i]), float(nodes["y"][i]), shortened(str(nodes["variable"][i]), 16)
        if not on_circle:
            ax.annotate(
                name, (x, y), xytext=(0, width / 2 + 1), textcoords="offset points", ha="center", va="bottom",
                fontsize=7, zorder=6, color="#222222",
                bbox={"boxstyle": "square,pad=0.05", "fc": "white", "ec": "none", "alpha": 0.75},
            )  # fmt: skip
            continue
        angle = float(np.arctan2(y - 0.5, x - 0.5))
        if d == 1:
            angle = np.pi / 2
        reach = width / 2 + 5
        ha = "center" if abs(np.cos(angle)) < 0.25 else "left" if np.cos(angle) > 0 else "right"
        va = "center" if abs(np.sin(angle)) < 0.6 else "bottom" if np.sin(angle) > 0 else "top"
        ax.annotate(
            name, (x, y), xytext=(reach * np.cos(angle), reach * np.sin(angle)), textcoords="offset points",
            ha=ha, va=va, fontsize=10 if d <= 12 else 8.5, zorder=6, annotation_clip=False,
        )  # fmt: skip


def _bow(step: int, start: int, stop: int, d: int, radius: float) -> Path:
    """An arc from row to row right of a column, further out the longer it is, so that nested arcs stay
    apart.
    """
    out = step + 0.1 + 0.7 * (abs(stop - start) / max(d - 1, 1)) ** 0.7
    edge = step + 0.006 * radius
    points = [(edge, start), (out, start), (out, stop), (edge, stop)]
    return Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])


def _strongest(values: FloatArray) -> FloatArray:
    best = np.abs(values).argmax(axis=0)
    return np.asarray(values[best, np.arange(values.shape[1])], dtype=np.float64)


def _require_not_negative(min_weight: float) -> None:
    if not min_weight >= 0:
        raise ParameterError(f"min_weight must be 0 or larger, got {min_weight!r}.")
