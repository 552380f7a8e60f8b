"""Edges over time: where the edges that change are, and how strong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import date2num

from feddbn.core.arrays import FloatArray
from feddbn.errors import DataError
from feddbn.model.dbn import DBN
from feddbn.report.canvas import HEAT_COLOURS, new_axes, symmetric_scale

__all__ = ["EdgeSteps", "edge_steps", "plot_changes"]

_PALE = 0.3
"""Colours this near to the middle of the scale need dark letters."""


@dataclass(frozen=True)
class EdgeSteps:
    """Weights of edges by segment, those that change most first.

    Attributes
    ----------
    names
        "source -> target", with the lag if there is one.
    weights
        (edges, segments).
    edges, places
        (segments + 1,) rows at which segments begin, and where the last ends; dates as days since 1970. How they are called.
    n_constant
        Edges that never change.
    """

    names: tuple[str, ...]
    weights: FloatArray
    edges: tuple[float, ...]
    n_constant: int
    places: tuple[str, ...] = ()


def edge_steps(networks: Sequence[DBN], segments: Any) -> EdgeSteps:
    """Return what changes, from ``dbns_by_segment_`` and ``segments_`` of a fitted `ChangingDBN`."""
    if len(networks) != len(segments) or not len(networks):
        raise DataError(
            f"got {len(networks)} networks and {len(segments)} segments; take dbns_by_segment_ and segments_ of one fit."
        )
    stacked = np.stack([dbn.adjacency_matrices for dbn in networks])
    spread = stacked.max(axis=0) - stacked.min(axis=0)
    places = [(lag, i, j) for lag, i, j in np.argwhere(spread > 0).tolist()]
    places.sort(key=lambda place: -spread[place])
    variables = networks[0].variables
    names = tuple(
        f"{variables[i]} \u2192 {variables[j]}" + (f", lag {lag}" if lag else "") for lag, i, j in places
    )
    found = [stacked[:, lag, i, j] for lag, i, j in places]
    weights = np.array(found).reshape(len(places), len(networks))
    n_edges = int(np.count_nonzero(np.abs(stacked).max(axis=0)))
    ends = [*segments["start"], segments["stop"].iloc[-1]]
    edges = tuple(float(date2num(np.datetime64(end))) if isinstance(end, str) else float(end) for end in ends)
    return EdgeSteps(names, weights, edges, n_edges - len(places), tuple(map(str, ends)))


def plot_changes(
    networks: Sequence[DBN], segments: Any, *, at_most: int = 12, unit: str = "row", ax: Axes | None = None
) -> Axes:
    """The axes with one line per edge that changes, over the rows of a recording or over dates: where it is, and how strong.

    Parameters
    ----------
    networks, segments
        ``dbns_by_segment_`` and ``segments_`` of a fitted `ChangingDBN`.
    at_most
        How many edges to draw, those that change most first.
    unit
        What segments are counted in, if not in rows: the name of a column; dates are seen.
    ax
        Where to draw; a new figure if None.
    """
    data = edge_steps(networks, segments)
    names = data.names[:at_most]
    ax = new_axes(ax, 7.2, 1.4 + 0.34 * max(len(names), 3))
    norm = symmetric_scale(data.weights[: len(names)]) if names else None
    for k, weights in enumerate(data.weights[: len(names)]):
        for weight, start, stop in zip(weights, data.edges[:-1], data.edges[1:], strict=True):
            if weight == 0:
                continue
            assert norm is not None
            colour = HEAT_COLOURS(norm(weight))
            ax.barh(k, stop - start, left=start, height=0.72, color=colour)
            strong = abs(float(norm(weight)) - 0.5) > _PALE
            ax.text(
                (start + stop) / 2, k, f"{weight:+.2f}", ha="center", va="center", fontsize=9,
                color="white" if strong else "#222222",
            )  # fmt: skip
    has_dates = isinstance(segments["start"].iloc[0], str)
    for row, place in zip(data.edges[1:-1], data.places[1:-1], strict=True):
        ax.axvline(row, color="#444444", linewidth=1.0, linestyle=(0, (2, 2)))
        ax.annotate(
            place if has_dates else f"{unit} {place}",
            (row, 1.01),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="bottom",
            fontsize=9,
        )
    ax.set_xlim(data.edges[0], data.edges[-1])
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(max(len(names), 1) - 0.5, -0.5)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.tick_params(axis="y", length=0)
    hidden = len(data.names) - len(names)
    told = [f"{hidden} more change"] if hidden else []
    told += [f"{data.n_constant} other edges stay as they are"] if data.n_constant else []
    if has_dates:
        ax.xaxis_date()
    axis = "date" if has_dates else "row of a recording" if unit == "row" else unit
    ax.set_xlabel(axis + (f" ({', '.join(told)})" if told else ""))
    if not names:
        ax.text(0.5, 0.5, "no edge changes", transform=ax.transAxes, ha="center", color="#555555")
    return ax
