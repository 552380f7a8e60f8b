"""Effects as functions: one small panel per curved edge, with its band and the range in which it was learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from feddbn.errors import ParameterError
from feddbn.model.dbn import DBN
from feddbn.model.effects import EdgeEffect
from feddbn.model.network import check_network
from feddbn.report.canvas import LINE_COLOURS, shortened
from feddbn.report.panels import panel_grid, tidy_panel

__all__ = ["CurvePanel", "curve_panels", "plot_curves"]

_EFFECT, _TRUTH = LINE_COLOURS[0], LINE_COLOURS[1]
_STRAIGHT, _BEYOND = "#777777", "#999999"


@dataclass(frozen=True)
class CurvePanel:
    """One panel: the effect, its table (value, effect, lower, upper, inside), and how strong it is in standard deviations."""

    effect: EdgeEffect
    table: pd.DataFrame
    strength: float


def curve_panels(dbn: DBN, *, at_most: int = 24, level: float = 0.95, n: int = 161) -> list[CurvePanel]:
    """Return the `at_most` strongest curved effects, those on the same target together.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.model.curves import Curve
    >>> from feddbn.report import curve_panels
    >>> bend = Curve(0, 1, 1, origin=0.0, scale=1.0, coefficients=(0.3,), basis="quadratic")
    >>> dbn = feddbn.DBN([[0, 0], [0, 0]], [[[0.4, 0.5], [0, 0]]], ["x", "y"], curves=[bend])
    >>> len(curve_panels(dbn))
    1
    """
    check_network(dbn, "dbn")
    if isinstance(at_most, bool) or not isinstance(at_most, int) or at_most < 1:
        raise ParameterError(f"at_most must be a whole number of at least 1, got {at_most!r}.")
    edges = dbn.edges()
    if dbn.conditionals:
        return []
    if dbn.bends:
        edges = edges[edges["shape"] != "linear"]
    panels = []
    for row in edges.to_dict("records"):
        effect = dbn.effect(row["source"], row["target"], row["lag"])
        if isinstance(effect, EdgeEffect) and (effect.curve is not None or effect.squares):
            panels.append(CurvePanel(effect, effect.table(n, level), abs(float(row["standardised"]))))
    strongest = sorted(panels, key=lambda panel: -panel.strength)[:at_most]
    place = {name: k for k, name in enumerate(dbn.variables)}
    return sorted(strongest, key=lambda panel: (place[panel.effect.target], -panel.strength))


def plot_curves(
    dbn: DBN,
    *,
    truth: DBN | None = None,
    at_most: int = 24,
    level: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """The axes with one panel per curved effect: what the target gains against the source at its origin.

    Parameters
    ----------
    dbn
        A network with curves.
    truth
        The network behind simulated data, drawn beside it.
    at_most
        How many effects to draw, the strongest ones. Panels of the same target are together and share their scale.
    level
        Coverage of the bands, pointwise; there is none where a network does not know how sure it is.
    ax
        Where to draw; a new figure if None.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.model.curves import Curve
    >>> from feddbn.report import plot_curves
    >>> bend = Curve(0, 1, 1, origin=0.0, scale=1.0, coefficients=(0.3,), basis="quadratic")
    >>> dbn = feddbn.DBN([[0, 0], [0, 0]], [[[0.4, 0.5], [0, 0]]], ["x", "y"], curves=[bend])
    >>> plot_curves(dbn).figure is not None
    True
    """
    panels = curve_panels(dbn, at_most=at_most, level=level)
    if not panels:
        raise ParameterError("dbn has no curved effect to draw; plot_weights shows straight ones.")
    ax, insets = panel_grid(ax, len(panels))
    limits = _limits(panels, truth)
    for k, (panel, (inset, is_first)) in enumerate(zip(panels, insets, strict=True)):
        _draw(inset, panel, truth)
        if is_first or panels[k - 1].effect.target != panel.effect.target:
            inset.set_ylabel(f"change of {shortened(panel.effect.target, 12)}", fontsize=8, labelpad=2)
        inset.set_ylim(limits[panel.effect.target])
    hidden = _n_curved(dbn) - len(panels)
    _legend(ax, panels, truth, level, f"{hidden} weaker not shown" if hidden else None)
    return ax


def _draw(ax: Axes, panel: CurvePanel, truth: DBN | None) -> None:
    effect, table = panel.effect, panel.table
    x, y, inside = table["value"].to_numpy(), table["effect"].to_numpy(), table["inside"].to_numpy()
    low, high = effect.range_seen
    for begin, end in ((x[0], low), (high, x[-1])):
        ax.axvspan(begin, end, color=_BEYOND, alpha=0.16, linewidth=0)
    ax.axhline(0.0, color=_STRAIGHT, linewidth=0.6)
    ax.plot(x, effect.weight * (x - effect.origin), color=_STRAIGHT, linewidth=0.9, linestyle=(0, (1, 2)))
    if effect.has_band:
        ax.fill_between(x, table["lower"], table["upper"], color=_EFFECT, alpha=0.18, linewidth=0)
    ax.plot(x, y, color=_EFFECT, linewidth=1.1, linestyle=(0, (3, 2)))
    ax.plot(x, np.where(inside, y, np.nan), color=_EFFECT, linewidth=1.8)
    true = _true_effect(effect, truth, x)
    if true is not None:
        ax.plot(x, true, color=_TRUTH, linewidth=1.2, linestyle=(0, (5, 2)))
    lag = "" if effect.lag == 0 else f", lag {effect.lag}"
    ends = f"{shortened(effect.source, 12)} → {shortened(effect.target, 12)}"
    tidy_panel(ax, ends + lag, shortened(effect.source, 24))
    ax.set_xlim(x[0], x[-1])
    ax.xaxis.set_major_locator(MaxNLocator(4))


def _true_effect(effect: EdgeEffect, truth: DBN | None, x: np.ndarray) -> np.ndarray | None:
    """The true effect, 0 where the learned one is; a straight 0 where there is none."""
    if truth is None or not {effect.source, effect.target} <= set(truth.variables):
        return None
    i, j = truth.variables.index(effect.source), truth.variables.index(effect.target)
    if effect.lag > truth.n_lags or not truth.is_edge[effect.lag, i, j]:
        return np.zeros_like(x)
    true: Any = truth.effect(i, j, effect.lag)
    # The functions of a simulated network are called themselves.
    function = getattr(true, "at", true)
    return np.asarray(function(x) - function(np.array([effect.origin])))


def _limits(panels: list[CurvePanel], truth: DBN | None) -> dict[str, tuple[float, float]]:
    """Of every target, from the smallest to the largest effect on it; very wide bands run out of the picture."""
    limits: dict[str, tuple[float, float]] = {}
    for panel in panels:
        x, y = panel.table["value"].to_numpy(), panel.table["effect"].to_numpy()
        true = _true_effect(panel.effect, truth, x)
        shown = [y] if true is None else [y, true]
        if panel.effect.has_band:
            reach = 1.5 * float(np.ptp(y))
            band = panel.table.loc[panel.table["inside"], ["lower", "upper"]].to_numpy().ravel()
            shown.append(np.clip(band, y.min() - reach, y.max() + reach))
        values = np.concatenate(shown)
        low, high = limits.get(panel.effect.target, (0.0, 0.0))
        limits[panel.effect.target] = min(low, float(values.min())), max(high, float(values.max()))
    padded = {}
    for name, (low, high) in limits.items():
        pad = 0.06 * (high - low) or 1.0
        padded[name] = low - pad, high + pad
    return padded


def _legend(ax: Axes, panels: list[CurvePanel], truth: DBN | None, level: float, rest: str | None) -> None:
    handles: list[Line2D | Patch] = [Line2D([], [], color=_EFFECT, linewidth=1.8, label="effect")]
    if any(panel.effect.has_band for panel in panels):
        handles.append(Patch(facecolor=_EFFECT, alpha=0.18, label=f"{level:.0%} band"))
    handles.append(
        Line2D([], [], color=_STRAIGHT, linewidth=0.9, linestyle=(0, (1, 2)), label="average slope")
    )
    handles.append(Patch(facecolor=_BEYOND, alpha=0.16, label="beyond the range seen"))
    if truth is not None:
        handles.append(Line2D([], [], color=_TRUTH, linewidth=1.2, linestyle=(0, (5, 2)), label="truth"))
    ax.legend(
        handles=handles, frameon=False, fontsize=8, ncols=len(handles) if len(panels) > 2 else 2, loc="lower left",
        bbox_to_anchor=(0.0, 1.0), borderaxespad=0.3, handlelength=1.6, columnspacing=1.2, title=rest,
        title_fontsize=7.5, alignment="left",
    )  # fmt: skip


def _n_curved(dbn: DBN) -> int:
    places = {(c.source, c.target, c.lag) for c in dbn.curves}
    return len(places | {(p.first, p.target, p.lag) for p in dbn.products if p.first == p.second})
