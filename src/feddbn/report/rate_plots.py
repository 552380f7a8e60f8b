"""Continuous time as pictures: what a change adds after any time, and how well rates describe pairs of readings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from feddbn.errors import ParameterError
from feddbn.model.network import variable_index
from feddbn.model.rates import RateNetwork
from feddbn.report.canvas import LINE_COLOURS, panel_grid, shortened, tidy_panel
from feddbn.settings import number, whole

__all__ = ["FIT", "plot_fit", "plot_horizons", "usual_horizon"]

FIT = ("source", "target", "steps", "observed", "error", "expected")
"""Columns of the table that `plot_fit` draws."""
_LEARNED, _TRUTH, _ZERO = LINE_COLOURS[0], LINE_COLOURS[1], "#777777"
_POINTS = 61
# A panel ends where less than this share of the largest effect is left.
_GONE = 0.03


def usual_horizon(network: RateNetwork) -> float:
    """Steps after which most of every change is gone: three times the slowest decay, at most the longest delay seen."""
    slowest = -1.0 / float(np.linalg.eigvals(network.rates).real.max())
    return 3 * slowest if network.longest is None else min(3 * slowest, network.longest)


def plot_horizons(
    network: RateNetwork,
    pairs: Sequence[tuple[str, str]] | None = None,
    *,
    horizon: float | None = None,
    truth: RateNetwork | None = None,
    at_most: int = 12,
    level: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """The axes with one panel per pair: what a change of the source by 1 adds to the target, against the time since.

    Parameters
    ----------
    network
        `ContinuousDBN.rate_network_`.
    pairs
        ``(source, target)``; the strongest edges between variables if None.
    horizon
        Longest time of every panel, in steps; until the effect is gone, or as long as delays were seen, if None.
    truth
        The network behind simulated data, drawn beside it.
    at_most
        How many edges to draw if no pairs are named.
    level
        Coverage of the bands, at one time each.
    ax
        Where to draw; a new figure if None.

    Examples
    --------
    >>> from feddbn.model.rates import RateNetwork
    >>> from feddbn.report import plot_horizons
    >>> network = RateNetwork.driven([[-0.5, 0.3], [0, -1.0]], noise=[1.0, 1.0], variables=["x", "y"], step="1h")
    >>> plot_horizons(network).figure is not None
    True
    """
    table, most = network.to_frame(), whole(1).check("at_most", at_most)
    if pairs is None:
        between = table[table["source"] != table["target"]].head(most)
        chosen = list(zip(between["source"], between["target"], strict=True))
    else:
        names = network.variables
        chosen = [tuple(names[variable_index(one, names, "pairs")] for one in pair) for pair in pairs]  # type: ignore[misc]
    if not chosen:
        raise ParameterError("network has no rate between two variables to draw; name pairs=.")
    longest = usual_horizon(network) if horizon is None else number(above=0).check("horizon", horizon)
    # Closer where effects rise.
    every = longest * np.linspace(0.0, 1.0, _POINTS) ** 2
    unit, per_step = network.clock
    ax, insets = panel_grid(ax, len(chosen))
    for (source, target), (inset, is_first) in zip(chosen, insets, strict=True):
        found = network.effects(source, target, every, level)
        if horizon is None:
            size = found["effect"].abs().to_numpy()
            n_shown = max(int(np.flatnonzero(size >= _GONE * size.max())[-1]) + 2, 3)
            found = network.effects(
                source, target, every[min(n_shown, _POINTS) - 1] * (every / longest), level
            )
        steps = found["steps"].to_numpy()
        inset.axhline(0.0, color=_ZERO, linewidth=0.6)
        if network.errors is not None:
            inset.fill_between(
                steps * per_step, found["lower"], found["upper"], color=_LEARNED, alpha=0.18, linewidth=0
            )
        inset.plot(steps * per_step, found["effect"], color=_LEARNED, linewidth=1.8)
        if truth is not None:
            true = truth.effects(source, target, steps)["effect"]
            inset.plot(steps * per_step, true, color=_TRUTH, linewidth=1.2, linestyle=(0, (5, 2)))
        tidy_panel(inset, f"{shortened(source, 12)} → {shortened(target, 12)}", unit)
        inset.set_xlim(0.0, float(steps[-1]) * per_step)
        if is_first:
            inset.set_ylabel("effect of one unit", fontsize=8, labelpad=2)
    handles: list[Line2D | Patch] = [Line2D([], [], color=_LEARNED, linewidth=1.8, label="total effect")]
    if network.errors is not None:
        handles.append(Patch(facecolor=_LEARNED, alpha=0.18, label=f"{level:.0%} band"))
    if truth is not None:
        handles.append(Line2D([], [], color=_TRUTH, linewidth=1.2, linestyle=(0, (5, 2)), label="truth"))
    _legend(ax, handles)
    return ax


def plot_fit(fit: pd.DataFrame, network: RateNetwork, *, at_most: int = 12, ax: Axes | None = None) -> Axes:
    """The axes with one panel per pair: correlations of readings by the time between them, and what the rates say they are.

    Parameters
    ----------
    fit
        Frame source, target, steps, observed, error, expected: ``ContinuousDBN.fit_``. The source is read first.
    network
        `ContinuousDBN.rate_network_`.
    at_most
        How many pairs to draw, the first ones of the table.
    ax
        Where to draw; a new figure if None.

    Examples
    --------
    >>> import pandas as pd
    >>> from feddbn.model.rates import RateNetwork
    >>> from feddbn.report import plot_fit
    >>> network = RateNetwork.driven([[-0.5, 0.3], [0, -1.0]], noise=[1.0, 1.0], variables=["x", "y"], step="1h")
    >>> pair = {"source": "x", "target": "y", "steps": [1.0, 2.0], "observed": 0.2, "error": 0.05, "expected": 0.25}
    >>> plot_fit(pd.DataFrame(pair), network).figure is not None
    True
    """
    missing = [name for name in FIT if name not in fit]
    if missing:
        raise ParameterError(f"fit has no column {missing[0]!r}; pass the fit_ of a ContinuousDBN.")
    pairs = list(fit.groupby(["source", "target"], sort=False))[: whole(1).check("at_most", at_most)]
    if not pairs:
        raise ParameterError("fit has no rows to draw.")
    unit, per_step = network.clock
    ax, insets = panel_grid(ax, len(pairs))
    for ((source, target), part), (inset, is_first) in zip(pairs, insets, strict=True):
        steps = part["steps"].to_numpy() * per_step
        inset.axhline(0.0, color=_ZERO, linewidth=0.6)
        inset.errorbar(
            steps,
            part["observed"],
            2 * part["error"],
            fmt="o",
            color="#555555",
            markersize=2.6,
            elinewidth=0.8,
        )
        inset.plot(steps, part["expected"], color=_LEARNED, linewidth=1.6)
        ends = (
            f"{shortened(source, 12)} → {shortened(target, 12)}"
            if source != target
            else shortened(source, 24)
        )
        tidy_panel(inset, ends, unit)
        inset.set_xscale("log")
        inset.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        inset.tick_params(which="both", labelsize=7.5, length=2.5, pad=2)
        if is_first:
            inset.set_ylabel("correlation", fontsize=8, labelpad=2)
    points = Line2D(
        [],
        [],
        color="#555555",
        marker="o",
        markersize=2.6,
        linestyle="",
        label="readings, two standard errors",
    )
    _legend(ax, [points, Line2D([], [], color=_LEARNED, linewidth=1.6, label="what the rates say")])
    return ax


def _legend(ax: Axes, handles: list[Line2D | Patch]) -> None:
    ax.legend(
        handles=handles, frameon=False, fontsize=8, ncols=len(handles), loc="lower left", bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.3, handlelength=1.6, columnspacing=1.2,
    )  # fmt: skip
