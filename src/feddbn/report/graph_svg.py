"""The process graph as a few kilobytes of SVG that live inside another page, such as a notebook.

The picture is that of `plot_process_graph`, from the same nodes, arrows and bows; it is written here and not drawn by
matplotlib because a cell of a notebook should take milliseconds, and because names and weights stay text: they can be
selected, read aloud and hovered over. Ink is the page's own colour, and the two colours of weights are readable on light and
on dark pages, so nothing has to be known about the page.
"""

from __future__ import annotations

from math import atan2, cos, hypot, pi, sin
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from feddbn.model.dbn import DBN
from feddbn.model.strength import has_sign
from feddbn.report.canvas import shortened
from feddbn.report.graph_plots import CIRCLE_LIMIT, bend_of, control_of, named_nodes, on_arc, process_graph

__all__ = ["BOTH", "NEGATIVE", "POSITIVE", "graph_svg"]

# The middles of both arms of ColorBrewer's RdBu: at least 3 to 1 against white and against black.
POSITIVE, NEGATIVE, BOTH = "#d6604d", "#4393c3", "#888888"
_CROWDED = 90
Point = tuple[float, float]


def graph_svg(dbn: DBN, *, max_labels: int = 40, max_arrows: int = 400) -> Markup:
    """One ``<svg>`` element with a node per variable and an arrow per effect; the same network gives the same text.

    Red is positive, blue negative, grey goes both ways; width is the weight in standard deviations, a number the lags,
    the filling of a node its effect on its own future, and a line without a head a link whose direction is open. Of more than
    `max_arrows` only the strongest are drawn, and the picture says so.
    """
    graph = process_graph(dbn, standardised=True)
    nodes, arrows = graph.nodes, graph.arrows
    side = float(np.clip(190 + 9 * dbn.d, 220, 640))
    radius = float(np.clip(26 / np.sqrt(max(dbn.d, 1)) * 1.5, 4.5, 11))
    on_circle = dbn.d <= CIRCLE_LIMIT
    wide, high = (95.0, 26.0) if on_circle else (30.0, 20.0)
    width, height = side + 2 * wide, side + 2 * high

    def at(x: float, y: float) -> Point:
        return wide + x * side, high + (1 - y) * side

    spots = {
        str(v): (float(x), float(y))
        for v, x, y in zip(nodes["variable"], nodes["x"], nodes["y"], strict=True)
    }
    rows = arrows.assign(size=np.nan_to_num(np.abs(arrows["weight"].to_numpy(dtype=float)))).sort_values(
        "size", kind="stable"
    )
    n_arrows, rows = len(rows), rows.tail(max_arrows)
    largest = float(rows["size"].max()) if len(rows) and rows["size"].max() > 0 else 1.0
    one_way, place = has_sign(dbn), {name: k for k, name in enumerate(dbn.variables)}
    pairs = {
        (str(a), str(b)) for a, b in rows.loc[rows["curved"].astype(bool), ["source", "target"]].to_numpy()
    }
    parts: list[Markup] = []
    for row in rows.to_dict("records"):
        source, target = str(row["source"]), str(row["target"])
        bend = bend_of(spots, source, target, pairs) if row["curved"] else 0.0
        signed = one_way[row["lag"], place[source], place[target]]
        colour = BOTH if not signed else POSITIVE if row["weight"] > 0 else NEGATIVE
        ends = at(*spots[source]), at(*spots[target])
        middle = at(*control_of(spots[source], spots[target], bend))
        share = float(row["size"]) / largest
        parts.append(_arrow(row, ends, middle, radius, colour, share, len(rows) > _CROWDED))
        if row["curved"] and len(rows) <= _CROWDED:
            # Beside the line: a box behind it would need the page's colour.
            spot = _towards(at(*on_arc(spots[source], spots[target], bend)), middle, 7)
            parts.append(_text(spot, row["lags"], 9, "middle", "label"))
    for v, own in zip(nodes["variable"], nodes["self_effect"], strict=True):
        parts.append(_node(str(v), at(*spots[str(v)]), radius, float(own)))
    for k in named_nodes(nodes, max_labels):
        name = str(nodes["variable"][k])
        parts.append(_svg_name(name, at(*spots[name]), radius, at(0.5, 0.5), on_circle, dbn.d))
    if n_arrows > len(rows):
        words = f"the strongest {len(rows)} of {n_arrows:,} arrows"
        parts.append(_text((width / 2, height - 4), words, 10, "middle", "above"))
    label = f"Network of {dbn.d} variables and {len(dbn.edges())} effects"
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{}" viewBox="0 0 {:.0f} {:.0f}" '
        'style="width:100%;max-width:{:.0f}px;height:auto" font-family="system-ui,sans-serif">{}</svg>'
    ).format(label, width, height, width, Markup("").join(parts))


def _arrow(
    row: dict[Any, Any],
    ends: tuple[Point, Point],
    middle: Point,
    radius: float,
    colour: str,
    share: float,
    crowded: bool,
) -> Markup:
    """A line from node to node, its head, and what it says when one points at it."""
    line = (0.4 + 1.2 * share) if crowded else (0.9 + 2.0 * share)
    head = (4.0 if crowded else 6.0) + line if row["oriented"] else 0.0
    start = _towards(ends[0], middle, radius)
    tip = _towards(ends[1], middle, radius + 1 * bool(head))
    neck = _towards(tip, middle, head)
    says = f"{row['source']} {'→' if row['oriented'] else '—'} {row['target']}, lag {row['lags']}: {row['weight']:.3g} sd"
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
    opacity = 0.35 + 0.6 * share if crowded else 0.95
    return Markup('<g opacity="{:.2f}"><title>{}</title>{}</g>').format(opacity, says, out)


def _node(name: str, at: Point, radius: float, own: float) -> Markup:
    says = f"{name}: {own:.3g} on its own future" if own else name
    filling = Markup('<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" fill="{}" fill-opacity="{:.2f}"/>')
    colour, depth = POSITIVE if own > 0 else NEGATIVE, min(abs(own), 1.0) if own == own else 0.0
    ring = Markup('<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" fill="none" stroke="currentColor"/>')
    return Markup("<g><title>{}</title>{}{}</g>").format(
        says, filling.format(*at, radius, colour, depth), ring.format(*at, radius)
    )


def _svg_name(name: str, at: Point, radius: float, centre: Point, on_circle: bool, d: int) -> Markup:
    """A variable's name, outside of the circle or above its node."""
    if not on_circle:
        return _text((at[0], at[1] - radius - 3), shortened(name, 16), 9, "middle", "above")
    angle = -pi / 2 if d == 1 else atan2(at[1] - centre[1], at[0] - centre[0])
    x, y = at[0] + (radius + 5) * cos(angle), at[1] + (radius + 5) * sin(angle)
    anchor = "middle" if abs(cos(angle)) < 0.25 else "start" if cos(angle) > 0 else "end"
    side = "middle" if abs(sin(angle)) < 0.6 else "below" if sin(angle) > 0 else "above"
    return _text((x, y), shortened(name, 16), 12 if d <= 12 else 10, anchor, side)


def _text(at: Point, words: str, size: int, anchor: str, side: str) -> Markup:
    """Words at a point: beside, above or below it, or as a label on an arrow."""
    down = {"middle": 0.35, "label": 0.35, "below": 0.75, "above": 0.0}[side] * size
    form = '<text x="{:.1f}" y="{:.1f}" font-size="{}" text-anchor="{}" fill="currentColor">{}</text>'
    return Markup(form).format(at[0], at[1] + down, size, anchor, escape(words))


def _towards(start: Point, stop: Point, length: float) -> Point:
    """The point `length` away from start on the way to stop, or halfway if that is nearer."""
    dx, dy = stop[0] - start[0], stop[1] - start[1]
    whole = hypot(dx, dy)
    share = min(length / whole, 0.5) if whole else 0.0
    return start[0] + share * dx, start[1] + share * dy
