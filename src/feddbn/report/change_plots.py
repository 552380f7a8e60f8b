"""Edges over time: where the edges that change are, and how strong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from feddbn.core.arrays import FloatArray
from feddbn.errors import DataError
from feddbn.model.dbn import DBN
from feddbn.report.canvas import HEAT_COLOURS, new_axes, symmetric_scale

__all__ = ["edge_steps", "plot_changes", "plot_drift"]

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
    """Return what changes, from ``dbns_by_segment_`` and ``segments_`` of a fitted `ChangingDBN`.

    Examples
    --------
    >>> import feddbn, pandas as pd
    >>> from feddbn.report import edge_steps
    >>> early, late = (feddbn.DBN([[0, w], [0, 0]], [[[0, 0], [0, 0]]], ["x", "y"]) for w in (0.5, 0.0))
    >>> edge_steps([early, late], pd.DataFrame({"start": [0, 50], "stop": [50, 100]})).names
    ('x → y',)
    """
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
    edges = tuple(_days(end) if isinstance(end, str) else float(end) for end in ends)
    return EdgeSteps(names, weights, edges, n_edges - len(places), tuple(map(str, ends)))


def _days(date: str) -> float:
    """Days since 1970, which is how axes count dates."""
    return float((np.datetime64(date, "ns") - np.datetime64("1970-01-01", "ns")) / np.timedelta64(1, "D"))


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

    Examples
    --------
    >>> import feddbn, pandas as pd
    >>> from feddbn.report import plot_changes
    >>> early, late = (feddbn.DBN([[0, w], [0, 0]], [[[0, 0], [0, 0]]], ["x", "y"]) for w in (0.5, 0.0))
    >>> ax = plot_changes([early, late], pd.DataFrame({"start": [0, 50], "stop": [50, 100]}))
    >>> ax.figure is not None
    True
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
    ax.set_xlabel(_time_axis(ax, has_dates, unit) + (f" ({', '.join(told)})" if told else ""))
    if not names:
        ax.text(0.5, 0.5, "no edge changes", transform=ax.transAxes, ha="center", color="#555555")
    return ax


def plot_drift(courses: Any, *, at_most: int = 8, unit: str = "row", ax: Axes | None = None) -> Axes:
    """The axes with the weights that drift as lines over time, those that drift most first.

    Parameters
    ----------
    courses
        ``drift_courses_`` of a fitted `ChangingDBN`.
    at_most
        How many to draw.
    unit
        What blocks are counted in, if not in rows: the name of a column; dates are seen.
    ax
        Where to draw; a new figure if None.

    Examples
    --------
    >>> import pandas as pd
    >>> from feddbn.report import plot_drift
    >>> edge = {"what": "weight", "source": "x", "target": "y", "lag": 1}
    >>> courses = pd.DataFrame([{**edge, "start": k, "stop": k + 1, "weight": 0.1 * k} for k in range(4)])
    >>> plot_drift(courses).figure is not None
    True
    """
    if not len(courses):
        raise DataError("no weight drifts, so there is nothing to draw.")
    ax = new_axes(ax, 7.2, 3.6)
    lines = [
        (_name(what, source, target, lag), course)
        for (what, source, target, lag), course in courses.groupby(
            ["what", "source", "target", "lag"], sort=False
        )
    ]
    lines.sort(key=lambda line: -float(np.ptp(line[1]["weight"])))
    has_dates = isinstance(courses["start"].iloc[0], str)
    for name, course in lines[:at_most]:
        times = [_days(start) if has_dates else float(start) for start in course["start"]]
        ax.plot(times, course["weight"], label=name, linewidth=1.8)
    ax.axhline(0.0, color="#999999", linewidth=0.8)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    hidden = len(lines) - at_most
    ax.set_xlabel(_time_axis(ax, has_dates, unit) + (f" ({hidden} more drift)" if hidden > 0 else ""))
    ax.set_ylabel("weight")
    ax.legend(frameon=False, fontsize=9)
    return ax


def _name(what: str, source: str, target: str, lag: int) -> str:
    if what == "level":
        return f"level of {target}"
    return f"{source} \u2192 {target}" + (f", lag {lag}" if lag else "")


def _time_axis(ax: Axes, has_dates: bool, unit: str) -> str:
    """What the axis of time is called; dates are written as such."""
    if has_dates:
        ax.xaxis_date()
    return "date" if has_dates else "row of a recording" if unit == "row" else unit
