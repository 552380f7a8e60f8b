"""Courses: convergence of a run, paths over a tuning value, responses to a shock, forecasts; edges and weights over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from feddbn.core.arrays import FloatArray
from feddbn.errors import DataError, ParameterError
from feddbn.model.dbn import DBN
from feddbn.model.forecast import Forecast
from feddbn.report.canvas import HEAT_COLOURS, LINE_COLOURS, new_axes, open_frame, shortened, symmetric_scale

__all__ = [
    "edge_steps",
    "plot_changes",
    "plot_convergence",
    "plot_forecast",
    "plot_outlook",
    "plot_responses",
    "strongest_responses",
]

_DASHES = ("-", "--", "-.", ":")


def plot_convergence(history: pd.DataFrame, *, ax: Axes | None = None, tol: float | None = None) -> Axes:
    """The axes with h and the residuals per round (upper panel, logarithmic) and the objective (lower panel).

    `history` has the column ``round`` (or rounds as its index) and any of ``h, primal, dual, objective``.
    Zeros cannot be shown on a logarithmic scale; they, and what is only rounding, are drawn at the lower edge.
    `tol` is drawn as a line.
    Where the column ``stage`` changes its value, a vertical line marks the start of the new stage.

    Examples
    --------
    >>> import pandas as pd
    >>> from feddbn.report import plot_convergence
    >>> ax = plot_convergence(pd.DataFrame({"round": [1, 2, 3], "primal": [1.0, 0.1, 0.01]}))
    >>> ax.get_yscale()
    'log'
    """
    if not isinstance(history, pd.DataFrame):
        raise DataError(f"history must be a DataFrame, got {type(history).__name__}; pass a fitted history_.")
    curves = [name for name in ("primal", "dual", "h") if name in history and history[name].notna().any()]
    has_objective = "objective" in history and history["objective"].notna().any()
    if not curves and not has_objective:
        raise DataError(
            "history has none of the columns h, primal, dual and objective; pass a fitted history_."
        )
    rounds = (history["round"] if "round" in history else pd.Series(history.index)).to_numpy(dtype=float)
    ax = new_axes(ax, 6.4, 4.6 if curves and has_objective else 3.2)
    upper, lower = ax, ax
    if curves and has_objective:
        ax.set_axis_off()
        upper, lower = (
            ax.inset_axes((0.0, 0.42, 1.0, 0.58)),
            ax.inset_axes((0.0, 0.0, 1.0, 0.36), sharex=None),
        )
        upper.tick_params(labelbottom=False)
        upper.set_xlim(_padded(rounds))
    mark = "o" if len(rounds) <= 30 else ""
    if curves:
        positive = np.concatenate([history[c].to_numpy(dtype=float) for c in curves])
        positive = positive[np.isfinite(positive) & (positive > 0)]
        # What is a billionth of the largest value is rounding, and would press the rest of the curves flat.
        floor = max(float(positive.min()) / 3, 1e-9 * float(positive.max())) if positive.size else 1e-12
        names = {"primal": "primal residual", "dual": "dual residual", "h": "acyclicity h"}
        for k, name in enumerate(curves):
            values = history[name].to_numpy(dtype=float)
            shown = np.where(np.isfinite(values), np.maximum(values, floor), np.nan)
            upper.plot(
                rounds, shown, color=LINE_COLOURS[k], linestyle=_DASHES[k], marker=mark, markersize=3.5,
                linewidth=1.7, label=names[name],
            )  # fmt: skip
        if tol is not None:
            upper.axhline(
                tol, color="#777777", linewidth=0.9, linestyle=(0, (1, 2)), label=f"tolerance {tol:g}"
            )
        upper.set_yscale("log")
        upper.set_ylabel("residual")
        upper.legend(
            frameon=False, fontsize=9, ncols=4, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2
        )
        _tidy(upper)
    if has_objective:
        lower.plot(
            rounds,
            history["objective"].to_numpy(dtype=float),
            color=LINE_COLOURS[6],
            linewidth=1.5,
            marker=mark,
            markersize=3.5,
        )
        lower.set_ylabel("objective")
        _tidy(lower)
    for panel in dict.fromkeys((upper, lower)):
        for start in _stage_starts(history, rounds):
            panel.axvline(start - 0.5, color="#999999", linewidth=0.7, linestyle=(0, (2, 2)), zorder=0)
    lower.set_xlim(_padded(rounds))
    lower.set_xlabel("round")
    lower.xaxis.set_major_locator(MaxNLocator(integer=True))
    return ax


@dataclass(frozen=True)
class Responses:
    """Responses of some variables to one shock: names, values (horizon+1, n), bands of the same shape or
    None.
    """

    names: tuple[str, ...]
    values: FloatArray
    low: FloatArray | None
    high: FloatArray | None


def strongest_responses(
    responses: ArrayLike,
    variables: Sequence[str],
    *,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    at_most: int = 6,
) -> Responses:
    """The `at_most` variables that move most, strongest peak first; `responses` is (horizon+1, d).

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import strongest_responses
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> strongest_responses(dbn.impulse_responses(5)[:, 0], dbn.variables, at_most=1).names
    ('x',)
    """
    values = np.asarray(responses, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != len(variables):
        raise ParameterError(
            f"responses must have shape (horizon + 1, {len(variables)}), got {values.shape}."
        )
    bands = []
    for name, band in (("low", low), ("high", high)):
        array = None if band is None else np.asarray(band, dtype=np.float64)
        if array is not None and array.shape != values.shape:
            raise ParameterError(
                f"{name} must have the shape of responses {values.shape}, got {array.shape}."
            )
        bands.append(array)
    peak = np.nanmax(np.abs(values), axis=0)
    best = [int(i) for i in np.argsort(-peak, kind="stable")[:at_most] if peak[i] > 0]
    low_part, high_part = (None if b is None else b[:, best] for b in bands)
    return Responses(tuple(variables[i] for i in best), values[:, best], low_part, high_part)


def plot_responses(
    responses: ArrayLike,
    variables: Sequence[str],
    *,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    shock: str = "",
    at_most: int = 6,
    ax: Axes | None = None,
) -> Axes:
    """The axes with the response of each variable over the steps after a shock; only the `at_most`
    strongest are drawn.

    Parameters
    ----------
    responses
        (horizon+1, d): row h is the response h steps after the shock.
    variables
        d names.
    low, high
        Bands of the same shape.
    shock
        What was shocked, for the title.
    at_most
        How many variables to draw.
    ax
        Where to draw; a new figure if None.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import plot_responses
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> plot_responses(dbn.impulse_responses(5)[:, 0], dbn.variables, shock="x").figure is not None
    True
    """
    data = strongest_responses(responses, variables, low=low, high=high, at_most=at_most)
    ax = new_axes(ax, 6.4, 3.6)
    steps = np.arange(len(data.values))
    for k, name in enumerate(data.names):
        colour = LINE_COLOURS[k % 6]
        if data.low is not None and data.high is not None:
            ax.fill_between(steps, data.low[:, k], data.high[:, k], color=colour, alpha=0.15, linewidth=0)
        ax.plot(
            steps,
            data.values[:, k],
            color=colour,
            linestyle=_DASHES[k % 4],
            marker="o",
            markersize=3,
            linewidth=1.7,
            label=name,
        )
    ax.axhline(0.0, color="#777777", linewidth=0.8)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("steps after the shock")
    ax.set_ylabel("response")
    hidden = len(variables) - len(data.names)
    if shock:
        ax.set_title(f"a unit shock to {shock}", loc="left", fontsize=10)
    _tidy(ax)
    if data.names:
        _legend(ax, f"{hidden} weaker not shown" if hidden else None)
    else:
        ax.text(0.5, 0.6, "nothing moves", transform=ax.transAxes, ha="center", color="#555555")
    return ax


def plot_forecast(
    mean: ArrayLike,
    *,
    low: ArrayLike | Sequence[ArrayLike],
    high: ArrayLike | Sequence[ArrayLike],
    history: ArrayLike | None = None,
    levels: Sequence[float] = (0.9,),
    name: str = "",
    ax: Axes | None = None,
) -> Axes:
    """The axes with the past of one variable, its forecast and a fan of prediction intervals.

    Parameters
    ----------
    mean
        (steps,) forecast.
    low, high
        (steps,) for one level or (levels, steps), in the order of `levels`.
    history
        (n,) observed values before the forecast.
    levels
        Coverage of each band.
    name
        The variable.
    ax
        Where to draw; a new figure if None.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import plot_forecast
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> ahead = dbn.forecast(None, steps=3, interval=0.9)
    >>> ax = plot_forecast(ahead.mean["y"], low=ahead.lower["y"], high=ahead.upper["y"], name="y")
    >>> len(ax.lines)
    1
    """
    centre = np.asarray(mean, dtype=np.float64)
    lows, highs = (
        np.atleast_2d(np.asarray(low, dtype=np.float64)),
        np.atleast_2d(np.asarray(high, dtype=np.float64)),
    )
    if centre.ndim != 1 or lows.shape != (len(levels), len(centre)) or highs.shape != lows.shape:
        raise ParameterError(
            f"mean must be (steps,) and low, high (levels, steps) with {len(levels)} levels, "
            f"got {centre.shape}, {lows.shape} and {highs.shape}."
        )
    ax = new_axes(ax, 6.4, 3.2)
    steps = np.arange(1, len(centre) + 1)
    past = np.asarray([] if history is None else history, dtype=np.float64)
    last = past[-1:] if past.size else np.zeros(0)
    joined = np.concatenate([np.zeros(last.size), steps])
    for k in np.argsort(levels)[::-1]:
        ax.fill_between(
            joined, np.concatenate([last, lows[k]]), np.concatenate([last, highs[k]]),
            color=LINE_COLOURS[0], alpha=0.18, linewidth=0, label=f"{levels[k]:.0%} interval",
        )  # fmt: skip
    if past.size:
        ax.plot(np.arange(1 - past.size, 1), past, color="#333333", linewidth=1.4, label="observed")
        ax.axvline(0, color="#999999", linewidth=0.8, linestyle=(0, (2, 2)))
    ax.plot(joined, np.concatenate([last, centre]), color=LINE_COLOURS[0], linewidth=1.9, label="forecast")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("steps from the last observation")
    ax.set_ylabel(name)
    _tidy(ax)
    _legend(ax)
    return ax


def plot_outlook(
    forecast: Forecast,
    variable: str,
    *,
    history: ArrayLike | None = None,
    name: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The axes with the past of one variable of any kind and its forecast.

    Of a variable with levels the forecast is the probability of each (of the second, if it is binary); of others
    the mean, with the interval if one was asked for; counts have bars that end at whole numbers.

    Parameters
    ----------
    forecast
        What `DBN.forecast` or `DBN.do` returned.
    variable
        Its name.
    history
        (n,) observed values before the forecast; positions of levels.
    name
        What the axis is called; the variable if None.
    ax
        Where to draw; a new figure if None.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import plot_outlook
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, kinds={"x2": "count"}, random_state=0)
    >>> ahead = data.truth.forecast(None, steps=3, interval=0.9, n_paths=50, random_state=0)
    >>> plot_outlook(ahead, "x2").figure is not None
    True
    """
    columns = [k for k, o in enumerate(forecast.outcomes) if o.variable == variable]
    if not forecast.outcomes and variable in forecast.mean.columns:
        columns = [list(forecast.mean.columns).index(variable)]
    if not columns:
        known = list(dict.fromkeys(o.variable for o in forecast.outcomes)) or list(forecast.mean.columns)
        raise ParameterError(
            f"variable={variable!r} is not in this forecast, which has {', '.join(map(str, known[:10]))}."
        )
    mean = forecast.mean.to_numpy()[:, columns]
    label = variable if name is None else name
    past = np.asarray([] if history is None else history, dtype=np.float64)
    if len(columns) > 1:
        levels = [forecast.outcomes[k].level for k in columns]
        return _plot_levels(mean, levels, past, label, ax)
    bounds = [None if b is None else b.to_numpy()[:, columns[0]] for b in (forecast.lower, forecast.upper)]
    low, high = bounds
    if low is None or high is None or np.isnan(low).any():
        return _plot_probability(mean[:, 0], past, label, ax, bool(forecast.outcomes))
    level = forecast.interval or 0.9
    if forecast.outcomes and np.array_equal(low, np.floor(low)) and np.array_equal(high, np.floor(high)):
        return _plot_counts(mean[:, 0], low, high, past, label, level, ax)
    return plot_forecast(mean[:, 0], low=low, high=high, history=past, levels=(level,), name=label, ax=ax)


def _plot_levels(mean: FloatArray, levels: list[str], past: FloatArray, name: str, ax: Axes | None) -> Axes:
    """Stacked shares of levels at every step; the level that was there before."""
    ax = new_axes(ax, 6.4, 3.2)
    before = (past[:, None] == np.arange(len(levels))) * 1.0
    shares = np.concatenate([before, mean])
    x = np.arange(1 - len(past), len(mean) + 1)
    bottom = np.zeros(len(shares))
    for k, level in enumerate(levels):
        for here, alpha, label in ((x > 0, 0.9, shortened(level, 16)), (x <= 0, 0.35, None)):
            ax.bar(
                x[here], shares[here, k], bottom=bottom[here], width=0.9, color=LINE_COLOURS[k % len(LINE_COLOURS)],
                linewidth=0, alpha=alpha, label=label,
            )  # fmt: skip
        bottom += shares[:, k]
    ax.set_ylim(0, 1)
    return _finish(ax, f"P({name})", len(past) > 0)


def _plot_probability(
    mean: FloatArray, past: FloatArray, name: str, ax: Axes | None, is_probability: bool
) -> Axes:
    ax = new_axes(ax, 6.4, 3.2)
    if past.size:
        ax.plot(
            np.arange(1 - past.size, 1),
            past,
            color="#333333",
            marker="o",
            markersize=3,
            linestyle="",
            label="observed",
        )
    ax.plot(
        np.arange(1, len(mean) + 1), mean, color=LINE_COLOURS[0], marker="o", markersize=4, linewidth=1.4,
        label="probability of the second level" if is_probability else "forecast",
    )  # fmt: skip
    if is_probability and mean.size and mean.min() >= 0 and mean.max() <= 1 and set(past) <= {0.0, 1.0}:
        ax.set_ylim(-0.05, 1.05)
    return _finish(ax, name, past.size > 0)


def _plot_counts(
    mean: FloatArray,
    low: FloatArray,
    high: FloatArray,
    past: FloatArray,
    name: str,
    level: float,
    ax: Axes | None,
) -> Axes:
    ax = new_axes(ax, 6.4, 3.2)
    steps = np.arange(1, len(mean) + 1)
    if past.size:
        ax.step(
            np.arange(1 - past.size, 1), past, where="mid", color="#333333", linewidth=1.3, label="observed"
        )
    ax.bar(
        steps, high - low + 1, bottom=low - 0.5, width=0.7, color=LINE_COLOURS[0], alpha=0.2, linewidth=0,
        label=f"{level:.0%} interval",
    )  # fmt: skip
    ax.plot(
        steps,
        mean,
        color=LINE_COLOURS[0],
        marker="_",
        markersize=9,
        linestyle="",
        markeredgewidth=2,
        label="mean",
    )
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    return _finish(ax, name, past.size > 0)


def _finish(ax: Axes, name: str, has_past: bool) -> Axes:
    if has_past:
        ax.axvline(0.5, color="#999999", linewidth=0.8, linestyle=(0, (2, 2)))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("steps from the last observation")
    ax.set_ylabel(name)
    open_frame(ax)
    _legend(ax)
    return ax


def _legend(ax: Axes, title: str | None = None) -> None:
    """A legend at the right of the axes, where it hides nothing."""
    ax.legend(
        frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5), title=title, title_fontsize=8
    )


def _tidy(ax: Axes) -> None:
    open_frame(ax)
    ax.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    ax.set_axisbelow(True)


def _stage_starts(history: pd.DataFrame, rounds: FloatArray) -> list[float]:
    if "stage" not in history:
        return []
    stage = history["stage"].astype(str).to_numpy()
    return [float(rounds[k]) for k in range(1, len(stage)) if stage[k] != stage[k - 1]]


def _padded(values: FloatArray) -> tuple[float, float]:
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    pad = 0.02 * (high - low) or 0.5
    return low - pad, high + pad


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
    open_frame(ax)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    hidden = len(data.names) - len(names)
    told = [f"{hidden} more change"] if hidden else []
    told += [f"{data.n_constant} other edges stay as they are"] if data.n_constant else []
    ax.set_xlabel(_time_axis(ax, has_dates, unit) + (f" ({', '.join(told)})" if told else ""))
    if not names:
        ax.text(0.5, 0.5, "no edge changes", transform=ax.transAxes, ha="center", color="#555555")
    return ax


def _time_axis(ax: Axes, has_dates: bool, unit: str) -> str:
    """What the axis of time is called; dates are written as such."""
    if has_dates:
        ax.xaxis_date()
    return "date" if has_dates else "row of a recording" if unit == "row" else unit
