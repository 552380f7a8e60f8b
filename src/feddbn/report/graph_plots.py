"""Graphs as pictures: the process graph (one node per variable), the time-series graph (one node per variable and time
step), and graphs with marks.

The process graph has two hands. Matplotlib draws it for figures. `graph_svg` writes it as a few kilobytes of SVG that live
inside another page, such as a notebook, in milliseconds; names and weights stay text there, so that they can be selected,
read aloud and hovered over. Ink is then the page's own colour, and the two colours of weights are readable on light and on
dark pages, so nothing has to be known about the page. Both take the same layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from math import atan2, cos, hypot, sin
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, PathPatch
from matplotlib.path import Path

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind
from feddbn.model.dbn import DBN
from feddbn.model.graph import AncestralGraph
from feddbn.report.canvas import (
    EDGE_COLOURS,
    HEAT_COLOURS,
    LINE_COLOURS,
    inline_svg,
    new_axes,
    shortened,
    strength_bar,
    symmetric_scale,
    weight_name,
)
from feddbn.report.graph_layout import (
    CROWDED,
    Point,
    ProcessGraph,
    cluster_order,
    control_of,
    link_strengths,
    process_graph,
    require_not_negative,
    time_series_edges,
)

__all__ = [
    "BOTH",
    "MOST_DRAWN",
    "NEGATIVE",
    "POSITIVE",
    "graph_svg",
    "mark_svg",
    "plot_marks",
    "plot_process_graph",
    "plot_time_series_graph",
]


_BOTH_WAYS = "#777777"
_UNTOLD = "grey: these data do not tell"


def plot_process_graph(
    dbn: DBN,
    *,
    ax: Axes | None = None,
    min_weight: float = 0.0,
    limit: float | None = None,
    max_labels: int = 40,
    standardised: bool = True,
    grey: bool = False,
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
    grey
        Draw it without colours and say that these data do not tell, as results with that finding are drawn.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import plot_process_graph
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> ax = plot_process_graph(dbn)
    >>> sorted(text.get_text() for text in ax.texts)
    ['x', 'y']
    """
    graph = process_graph(
        dbn, min_weight=min_weight, standardised=standardised, limit=limit, max_labels=max_labels
    )
    nodes, d = graph.nodes, dbn.d
    side = float(np.clip(4.2 + 0.16 * d, 5.0, 12.0))
    ax = new_axes(ax, side + 1.8, side)
    norm = Normalize(-graph.largest, graph.largest)
    auto = symmetric_scale(nodes["self_effect"], limit=1.0)
    width = float(np.clip(30 / np.sqrt(d) * 1.6, 7, 20))
    where = dict(zip(nodes["variable"], zip(nodes["x"], nodes["y"], strict=True), strict=True))
    for row in graph.arrows.to_dict("records"):
        ax.add_patch(
            FancyArrowPatch(
                where[row["source"]],
                where[row["target"]],
                connectionstyle=f"arc3,rad={row['bend']}",
                arrowstyle="-|>" if row["oriented"] else "-",
                mutation_scale=8 if graph.is_crowded else 12,
                shrinkA=width / 2,
                shrinkB=width / 2 + bool(row["oriented"]),
                color=EDGE_COLOURS(norm(row["weight"])) if row["signed"] and not grey else _BOTH_WAYS,
                linewidth=row["width"],
                alpha=row["opacity"],
                zorder=2,
            )
        )
        if row["number"]:
            ax.text(
                row["x"], row["y"], row["number"], fontsize=8 if d <= 12 else 7, ha="center", va="center", zorder=4,
                color="#222222",
                bbox={"boxstyle": "round,pad=0.12", "fc": "white", "ec": "none", "alpha": 0.85},
            )  # fmt: skip
    _draw_nodes(ax, nodes.assign(self_effect=0.0) if grey else nodes, dbn.kinds, width**2, auto)
    _name_nodes(ax, graph, width)
    ax.set_xlim(-0.06, 1.06)
    ax.set_ylim(-0.06, 1.06)
    ax.set_aspect("equal")
    ax.set_axis_off()
    if not grey:
        strength_bar(ax, auto, HEAT_COLOURS, "effect on its own future (node)", shrink=0.5)
        strength_bar(ax, norm, EDGE_COLOURS, f"{weight_name(standardised)} (arrow)", shrink=0.5)
    _explain_lines(ax, dbn, not graph.arrows["oriented"].all(), 12, grey)
    return ax


_SHAPES = {
    "continuous": "o",
    "positive": "^",
    "count": "s",
    "binary": "D",
    "ordinal": "p",
    "categorical": "h",
}


def _draw_nodes(ax: Axes, nodes: pd.DataFrame, kinds: Sequence[Kind], size: float, norm: Normalize) -> None:
    """Draw nodes x, y in the colour of their self_effect, one shape per kind, and explain shapes if there are several."""
    names = np.array([kind.name for kind in kinds])
    shown = [name for name in _SHAPES if (names == name).any()]
    for name in shown:
        some = nodes[names == name]
        ax.scatter(
            some["x"], some["y"], s=size, c=some["self_effect"], cmap=HEAT_COLOURS, norm=norm, marker=_SHAPES[name],
            edgecolors="#333333", linewidths=1.0, zorder=3,
        )  # fmt: skip
    if shown != ["continuous"]:
        handles = [
            Line2D(
                [], [], linestyle="", marker=_SHAPES[name], markersize=7, markerfacecolor="#f4f4f4", label=name,
                markeredgecolor="#333333",
            )
            for name in shown
        ]  # fmt: skip
        ax.legend(
            handles=handles, frameon=False, fontsize=8, ncols=min(len(shown), 3), loc="lower center",
            bbox_to_anchor=(0.5, 1.05), handletextpad=0.2, columnspacing=1.0,
        )  # fmt: skip


def _name_nodes(ax: Axes, graph: ProcessGraph, width: float) -> None:
    d = len(graph.nodes)
    boxed: dict[str, Any] = {
        "fontsize": 7, "color": "#222222", "bbox": {"boxstyle": "square,pad=0.05", "fc": "white", "ec": "none", "alpha": 0.75}
    }  # fmt: skip
    plain: dict[str, Any] = {"fontsize": 10 if d <= 12 else 8.5, "annotation_clip": False}
    reach = width / 2 + (5 if graph.on_circle else 1)
    for node in graph.nodes[graph.nodes["is_named"]].to_dict("records"):
        x, y = _sides(node["angle"])
        ax.annotate(
            shortened(node["variable"], 16), (node["x"], node["y"]), textcoords="offset points", zorder=6,
            xytext=(reach * cos(node["angle"]), reach * sin(node["angle"])),
            ha=("center", "left", "right")[x], va=("center", "bottom", "top")[y],
            **(plain if graph.on_circle else boxed),
        )  # fmt: skip


def _sides(angle: float) -> tuple[int, int]:
    """On which side of a node its name stands, across and up: 1, 0 (in the middle) or -1."""
    across = 0 if abs(cos(angle)) < 0.25 else 1 if cos(angle) > 0 else -1
    return across, 0 if abs(sin(angle)) < 0.6 else 1 if sin(angle) > 0 else -1


def _explain_lines(ax: Axes, dbn: DBN, is_open: bool, below: int, grey: bool) -> None:
    """Say some points below the picture what a line without a head and a grey one are, if there are any."""
    words = [_UNTOLD] if grey else []
    words += ["line without a head: direction not known"] if is_open else []
    both = "grey: several levels, no one direction" if dbn.has_kinds else "grey: the effect goes both ways"
    words += [] if grey or (dbn.signs() | ~dbn.is_edge).all() else [both]
    if words:
        ax.annotate(
            "; ".join(words), (0.5, 0), xytext=(0, -below), xycoords="axes fraction", ha="center", va="top",
            textcoords="offset points", fontsize=9, color="#444444", annotation_clip=False,
        )  # fmt: skip


# The middles of both arms of ColorBrewer's RdBu: at least 3 to 1 against white and against black.
POSITIVE, NEGATIVE, BOTH = "#d6604d", "#4393c3", "#888888"
MOST_DRAWN = 120
"""Variables; a picture of more is a cloud, and the page grows by a hundred kilobytes."""


def graph_svg(dbn: DBN, *, max_labels: int = 40, max_arrows: int = 400, grey: bool = False) -> Markup:
    """One ``<svg>`` element with a node per variable and an arrow per effect; the same network gives the same text.

    Red is positive, blue negative, grey goes both ways; width is the weight in standard deviations, a number the lags,
    the filling of a node its effect on its own future, and a line without a head a link whose direction is open. Of more than
    `max_arrows` only the strongest are drawn, and the picture says so; likewise `grey`, which the data do not tell.
    """
    graph = process_graph(dbn, standardised=True, max_labels=max_labels, max_arrows=max_arrows)
    side = float(np.clip(190 + 9 * dbn.d, 220, 640))
    radius = float(np.clip(26 / np.sqrt(max(dbn.d, 1)) * 1.5, 4.5, 11))
    wide, high = (95.0, 26.0) if graph.on_circle else (30.0, 20.0)
    width, height = side + 2 * wide, side + 2 * high

    def at(x: float, y: float) -> Point:
        return wide + x * side, high + (1 - y) * side

    nodes = graph.nodes.to_dict("records")
    spots = {node["variable"]: (node["x"], node["y"]) for node in nodes}
    parts: list[Markup] = []
    for row in graph.arrows.to_dict("records"):
        ends = spots[row["source"]], spots[row["target"]]
        middle = at(*control_of(*ends, row["bend"]))
        row["signed"] = row["signed"] and not grey
        parts.append(_arrow(row, (at(*ends[0]), at(*ends[1])), middle, radius, graph.is_crowded))
        if row["number"]:
            # Beside the line: a box behind it would need the page's colour.
            parts.append(_text(_towards(at(row["x"], row["y"]), middle, 7), row["number"], 9))
    parts += [
        _node(node["variable"], at(*spots[node["variable"]]), radius, 0.0 if grey else node["self_effect"])
        for node in nodes
    ]
    size, reach = (12 if dbn.d <= 12 else 10, radius + 5) if graph.on_circle else (9, radius + 3)
    for node in nodes:
        if node["is_named"]:
            x, y = at(node["x"], node["y"])
            spot = x + reach * cos(node["angle"]), y - reach * sin(node["angle"])
            parts.append(_text(spot, shortened(node["variable"], 16), size, *_sides(node["angle"])))
    if graph.n_left_out or grey:
        n = len(graph.arrows)
        of_all = f"the strongest {n} of {n + graph.n_left_out:,} arrows" if graph.n_left_out else ""
        words = "; ".join(filter(None, [_UNTOLD if grey else "", of_all]))
        parts.append(_text((width / 2, height - 4), words, 10, 0, 1))
    label = f"Network of {dbn.d} variables and {len(dbn.edges())} effects"
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{}" viewBox="0 0 {:.0f} {:.0f}" '
        'style="width:100%;max-width:{:.0f}px;height:auto" font-family="system-ui,sans-serif">{}</svg>'
    ).format(label, width, height, width, Markup("").join(parts))


def _arrow(
    row: dict[Any, Any], ends: tuple[Point, Point], middle: Point, radius: float, crowded: bool
) -> Markup:
    """A line from node to node, its head, and what it says when one points at it."""
    line = row["width"]
    colour = BOTH if not row["signed"] else POSITIVE if row["weight"] > 0 else NEGATIVE
    head = (4.0 if crowded else 6.0) + line if row["oriented"] else 0.0
    start = _towards(ends[0], middle, radius)
    tip = _towards(ends[1], middle, radius + 1 * bool(head))
    neck = _towards(tip, middle, head)
    line_or_arrow = "→" if row["oriented"] else "—"
    says = f"{row['source']} {line_or_arrow} {row['target']}, lag {row['lags']}: {row['weight']:.3g} sd"
    shape = Markup(
        '<path d="M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}" fill="none" stroke="{}" stroke-width="{:.1f}"/>'
    )
    out = shape.format(*start, *middle, *neck, colour, line)
    if head:
        angle = atan2(tip[1] - neck[1], tip[0] - neck[0])
        across = 0.42 * head * sin(angle), -0.42 * head * cos(angle)
        corners = (*tip, neck[0] + across[0], neck[1] + across[1], neck[0] - across[0], neck[1] - across[1])
        out += Markup('<path d="M{:.1f} {:.1f}L{:.1f} {:.1f}L{:.1f} {:.1f}Z" fill="{}"/>').format(
            *corners, colour
        )
    return Markup('<g opacity="{:.2f}"><title>{}</title>{}</g>').format(row["opacity"], says, out)


def _node(name: str, at: Point, radius: float, own: float) -> Markup:
    says = f"{name}: {own:.3g} on its own future" if own else name
    filling = Markup('<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" fill="{}" fill-opacity="{:.2f}"/>')
    colour = POSITIVE if own > 0 else NEGATIVE if own < 0 else BOTH
    depth = min(abs(own), 1.0) if own == own else 0.0
    ring = Markup('<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" fill="none" stroke="currentColor"/>')
    return Markup("<g><title>{}</title>{}{}</g>").format(
        says, filling.format(*at, radius, colour, depth), ring.format(*at, radius)
    )


def _text(at: Point, words: str, size: int, across: int = 0, up: int = 0) -> Markup:
    """Words in the middle of a point, or on one side of it."""
    form = '<text x="{:.1f}" y="{:.1f}" font-size="{}" text-anchor="{}" fill="currentColor">{}</text>'
    down = (0.35, 0.0, 0.75)[up] * size
    return Markup(form).format(at[0], at[1] + down, size, ("middle", "start", "end")[across], words)


def _towards(start: Point, stop: Point, length: float) -> Point:
    """The point `length` away from start on the way to stop, or halfway if that is nearer."""
    dx, dy = stop[0] - start[0], stop[1] - start[1]
    whole = hypot(dx, dy)
    share = min(length / whole, 0.5) if whole else 0.0
    return start[0] + share * dx, start[1] + share * dy


REPEAT_LIMIT = 12


def plot_time_series_graph(
    dbn: DBN,
    *,
    ax: Axes | None = None,
    min_weight: float = 0.0,
    limit: float | None = None,
    cluster: bool = True,
    standardised: bool = True,
    grey: bool = False,
) -> Axes:
    """The axes with one row per variable and one column per time step t-p, ..., t.

    Effects into time step t are drawn in full; up to `REPEAT_LIMIT` variables the same effects between earlier
    time steps are drawn faintly, because they repeat. Contemporaneous effects bow to the right of their
    column, without a head where their direction is open. `cluster` puts linked variables on neighbouring rows;
    `standardised`, `min_weight`, `limit` and `grey` as in `plot_process_graph`.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import plot_time_series_graph
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> plot_time_series_graph(dbn).figure is not None
    True
    """
    require_not_negative(min_weight)
    edges = time_series_edges(dbn)
    if standardised:
        edges = edges.assign(weight=edges["standardised"])
    edges = edges[edges["weight"].abs() > min_weight]
    edges = edges.iloc[np.argsort(edges["weight"].abs(), kind="stable")]
    d, p = dbn.d, dbn.n_lags
    order = cluster_order(link_strengths(dbn)) if cluster else list(range(d))
    row_of = {dbn.variables[v]: place for place, v in enumerate(order)}
    height = float(np.clip(0.42 * d, 3.0, 9.0) if d <= 40 else np.clip(0.13 * d, 9.0, 26.0))
    ax = new_axes(ax, 3.2 + 1.7 * (p + 1), height)
    norm = symmetric_scale(edges["weight"], limit=limit)
    signed, place = dbn.signs(), {name: k for k, name in enumerate(dbn.variables)}
    crowded = len(edges) > CROWDED
    radius = 9.0 if d <= 12 else 6.0 if d <= 40 else 3.5
    for row in edges.to_dict("records"):
        share = abs(float(row["weight"])) / float(norm.vmax or 1.0)
        start, stop = row_of[row["source"]], row_of[row["target"]]
        one_way = signed[row["lag"], place[row["source"]], place[row["target"]]]
        first = row["lag"] - p if d <= REPEAT_LIMIT else 0
        for step in range(first, 1):
            current = step == 0
            style: dict[str, Any] = {
                "arrowstyle": "-|>" if row["oriented"] else "-",
                "mutation_scale": 7 if crowded else 11,
                "edgecolor": EDGE_COLOURS(norm(row["weight"])) if one_way and not grey else _BOTH_WAYS,
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
    _steps(ax, [dbn.variables[v] for v in order], p, radius, "#f4f4f4")
    ax.tick_params(labelsize=9 if d <= 20 else 8 if d <= 40 else 6)
    ax.tick_params(axis="x", labelsize=10, labeltop=True)
    ax.set_xlim(-p - 0.2, 0.65)
    ax.set_ylim(d - 0.3, -0.7)
    if not grey:
        strength_bar(ax, norm, EDGE_COLOURS, weight_name(standardised), shrink=0.6 if d <= 40 else 0.25)
    _explain_lines(ax, dbn, not edges["oriented"].all(), 30, grey)
    return ax


def _steps(ax: Axes, names: Sequence[str], p: int, radius: float, filling: str) -> None:
    """A row of nodes for each name, the first on top; a column for each time step, the present at the right."""
    x, y = np.meshgrid(np.arange(-p, 1), np.arange(len(names)))
    ax.scatter(x, y, s=radius**2, facecolor=filling, edgecolor="#333333", linewidths=0.8, zorder=4)
    ax.set_xticks(range(-p, 1), ["t" if m == 0 else f"t−{-m}" for m in range(-p, 1)])
    ax.set_yticks(range(len(names)), [shortened(name, 18) for name in names])
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)


def _bow(step: int, start: int, stop: int, d: int, radius: float) -> Path:
    """An arc from row to row right of a column, further out the longer it is, so that nested arcs stay
    apart.
    """
    out = step + 0.1 + 0.7 * (abs(stop - start) / max(d - 1, 1)) ** 0.7
    edge = step + 0.006 * radius
    points = [(edge, start), (out, start), (out, stop), (edge, stop)]
    return Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])


_CAUSE, _HIDDEN, _OPEN = LINE_COLOURS[0], LINE_COLOURS[1], "#777777"
_LEGEND = (("a cause", _CAUSE), ("a hidden cause of both", _HIDDEN), ("not known which", _OPEN))
_REACH = 0.11
"""How far from the middle of a node an edge ends, where neighbouring nodes are 1 apart."""


def plot_marks(graph: AncestralGraph, *, ax: Axes | None = None) -> Axes:
    """The axes with one row per variable and one column per time step; edges end in the present.

    An arrowhead says that this end is no cause of the other, a plain end (tail) that it is one, a circle that it is not
    known. Blue edges are causes, orange ones are due to a hidden cause of both ends, grey ones may be either.

    Parameters
    ----------
    graph
        `LatentDBN.ancestral_graph_`, or the truth of a simulation.
    ax
        Where to draw; None makes a new figure.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import plot_marks
    >>> graph = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0).ancestral_truth()
    >>> [label.get_text() for label in plot_marks(graph).get_yticklabels()]
    ['x0', 'x1', 'x2']
    """
    d, p = len(graph.variables), graph.n_lags
    axes = new_axes(ax, 2.2 + 2.0 * (p + 1), 1.2 + 0.8 * d)
    axes.set_xlim(-p - 0.7, 0.9)
    axes.set_ylim(d - 0.5, -0.5)
    axes.set_aspect("auto")
    _steps(axes, graph.variables, p, 15, "white")
    for edge in graph.edges().to_dict("records"):
        i, j = graph.variables.index(edge["source"]), graph.variables.index(edge["target"])
        _draw_mark(axes, str(edge["mark"]), (-int(edge["lag"]), i), (0, j))
    handles = [Line2D([], [], color=colour, lw=2, label=words) for words, colour in _LEGEND]
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.06), ncol=3, frameon=False)
    return axes


def _draw_mark(axes: Axes, mark: str, start: tuple[int, int], stop: tuple[int, int]) -> None:
    first, last = np.array(start, dtype=float), np.array(stop, dtype=float)
    length = float(np.linalg.norm(last - first))
    middle = (first + last) / 2
    if start[0] == stop[0]:
        middle[0] += 0.35 + 0.15 * length
    elif start[1] == stop[1] and length > 1:
        middle[1] -= 0.5
    colour = _CAUSE if mark == "-->" else _HIDDEN if mark == "<->" else _OPEN
    share = min(0.3, _REACH / max(length, 0.5))
    points = np.array([_at(first, middle, last, t) for t in np.linspace(share, 1 - share, 25)])
    axes.add_patch(PathPatch(Path(points), fill=False, ec=colour, lw=1.8, zorder=2))
    for sign, end, inner in ((mark[0], points[0], points[2]), (mark[2], points[-1], points[-3])):
        if sign in "<>":
            head = FancyArrowPatch(
                (inner[0], inner[1]),
                (end[0], end[1]),
                arrowstyle="-|>",
                mutation_scale=15,
                shrinkA=0,
                shrinkB=0,
                color=colour,
                lw=1.2,
                zorder=4,
            )
            axes.add_patch(head)
        elif sign == "o":
            axes.plot(*end, "o", ms=6, mfc="white", mec=colour, mew=1.6, zorder=4)


def _at(first: FloatArray, middle: FloatArray, last: FloatArray, t: float) -> FloatArray:
    """A point of the curve from first to last that is drawn towards middle."""
    return np.asarray((1 - t) ** 2 * first + 2 * t * (1 - t) * middle + t**2 * last)


def mark_svg(graph: AncestralGraph) -> Markup:
    """One ``<svg>`` element; its identifiers are those of this graph alone, so two of them fit into one page."""
    words = "\n".join((*graph.variables, *graph.marks.ravel().tolist()))
    name = f"marks-{sha256(words.encode()).hexdigest()[:10]}"
    text = f"Edges with marks among {len(graph.variables)} variables"
    return Markup(inline_svg(lambda: plot_marks(graph), name, text))
