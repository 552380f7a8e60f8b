"""Ancestral graphs as pictures: variables above each other, time steps beside each other, a mark at each end of an edge."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, PathPatch
from matplotlib.path import Path

from feddbn.core.arrays import FloatArray
from feddbn.model.ancestral import AncestralGraph
from feddbn.report.canvas import LINE_COLOURS, inline_svg, new_axes, shortened

__all__ = ["mark_svg", "plot_marks"]

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
    for i in range(d):
        axes.plot(np.arange(-p, 1), np.full(p + 1, i), "o", ms=15, mfc="white", mec="#333333", zorder=3)
    for edge in graph.edges().to_dict("records"):
        i, j = graph.variables.index(edge["source"]), graph.variables.index(edge["target"])
        _draw(axes, str(edge["mark"]), (-int(edge["lag"]), i), (0, j))
    axes.set_yticks(range(d), [shortened(name, 14) for name in graph.variables])
    axes.set_xticks(range(-p, 1), [f"t-{-lag}" if lag else "t" for lag in range(-p, 1)])
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    handles = [Line2D([], [], color=colour, lw=2, label=words) for words, colour in _LEGEND]
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.06), ncol=3, frameon=False)
    return axes


def _draw(axes: Axes, mark: str, start: tuple[int, int], stop: tuple[int, int]) -> None:
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
