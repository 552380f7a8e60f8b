"""Effects as pictures: panels of curves and of what causes do to means and probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
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
from feddbn.model.effects import Effect
from feddbn.model.network import check_network
from feddbn.report.canvas import LINE_COLOURS, panel_grid, shortened, tidy_panel
from feddbn.settings import whole

__all__ = ["curve_panels", "effect_panels", "plot_curves", "plot_effects"]

_EFFECT, _TRUTH = LINE_COLOURS[0], LINE_COLOURS[1]
_STRAIGHT, _BEYOND = "#777777", "#999999"


@dataclass(frozen=True)
class Panel:
    """One panel: the effect, its table by value of the cause with lower and upper, and how strong it is in standard
    deviations.
    """

    effect: Effect
    table: pd.DataFrame
    strength: float


def _in_order(dbn: DBN, panels: Iterable[Panel]) -> list[Panel]:
    """Those on the same target together, the strongest first."""
    place = {name: k for k, name in enumerate(dbn.variables)}
    return sorted(panels, key=lambda panel: (place[panel.effect.target], -panel.strength))


def _check(dbn: DBN, at_most: int) -> None:
    check_network(dbn, "dbn")
    whole(1).check("at_most", at_most)


_CURVED = ("curved", "product")


def _edges_of(dbn: DBN, wanted: Callable[[str], bool]) -> list[dict[Hashable, Any]]:
    """Rows of `dbn.edges()` whose effects have a shape that is wanted."""
    shapes, place = dbn.shapes(), list(dbn.variables).index
    return [
        row
        for row in dbn.edges().to_dict("records")
        if wanted(shapes[row["lag"], place(row["source"]), place(row["target"])])
    ]


def curve_panels(dbn: DBN, *, at_most: int = 24, level: float = 0.95, n: int = 161) -> list[Panel]:
    """Return the `at_most` strongest curved effects, those on the same target together.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.model.nodes import Part, Term
    >>> from feddbn.report import curve_panels
    >>> dbn = feddbn.DBN([[0, 0], [0, 0]], [[[0.4, 0.5], [0, 0]]], ["x", "y"])
    >>> dbn = dbn.with_parts([Part(1, Term(((0, 1),), "quadratic", (0.0,), (1.0,)), [0.3])])
    >>> len(curve_panels(dbn))
    1
    """
    _check(dbn, at_most)
    panels = []
    for row in _edges_of(dbn, lambda shape: shape in _CURVED):
        effect = dbn.effect(row["source"], row["target"], row["lag"])
        if effect.is_curved:
            panels.append(Panel(effect, effect.to_frame(n, level), abs(float(row["standardised"]))))
    return _in_order(dbn, sorted(panels, key=lambda panel: -panel.strength)[:at_most])


def plot_curves(
    dbn: DBN, *, truth: DBN | None = None, at_most: int = 24, level: float = 0.95, ax: Axes | None = None
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
    >>> from feddbn.model.nodes import Part, Term
    >>> from feddbn.report import plot_curves
    >>> dbn = feddbn.DBN([[0, 0], [0, 0]], [[[0.4, 0.5], [0, 0]]], ["x", "y"])
    >>> dbn = dbn.with_parts([Part(1, Term(((0, 1),), "quadratic", (0.0,), (1.0,)), [0.3])])
    >>> plot_curves(dbn).figure is not None
    True
    """
    panels = curve_panels(dbn, at_most=at_most, level=level)
    if not panels:
        raise ParameterError("dbn has no curved effect to draw; plot_weights shows straight ones.")
    ax, insets = panel_grid(ax, len(panels))
    limits = _limits(panels, truth)
    for k, (panel, (inset, is_first)) in enumerate(zip(panels, insets, strict=True)):
        _draw_curve(inset, panel, truth)
        if is_first or panels[k - 1].effect.target != panel.effect.target:
            inset.set_ylabel(f"change of {shortened(panel.effect.target, 12)}", fontsize=8, labelpad=2)
        inset.set_ylim(limits[panel.effect.target])
    hidden = _n_curved(dbn) - len(panels)
    _legend(ax, panels, truth, level, f"{hidden} weaker not shown" if hidden else None)
    return ax


def _draw_curve(ax: Axes, panel: Panel, truth: DBN | None) -> None:
    effect, table = panel.effect, panel.table
    x, y, inside = table["value"].to_numpy(), table["effect"].to_numpy(), table["inside"].to_numpy()
    low, high = effect.range_seen
    for begin, end in ((x[0], low), (high, x[-1])):
        ax.axvspan(begin, end, color=_BEYOND, alpha=0.16, linewidth=0)
    ax.axhline(0.0, color=_STRAIGHT, linewidth=0.6)
    ax.plot(
        x, effect.weight * (x - (effect.origin or 0.0)), color=_STRAIGHT, linewidth=0.9, linestyle=(0, (1, 2))
    )
    if effect.has_band:
        ax.fill_between(x, table["lower"], table["upper"], color=_EFFECT, alpha=0.18, linewidth=0)
    ax.plot(x, y, color=_EFFECT, linewidth=1.1, linestyle=(0, (3, 2)))
    ax.plot(x, np.where(inside, y, np.nan), color=_EFFECT, linewidth=1.8)
    true = _true_effect(effect, truth, x)
    if true is not None:
        ax.plot(x, true, color=_TRUTH, linewidth=1.2, linestyle=(0, (5, 2)))
    _entitle(ax, effect)
    ax.set_xlim(x[0], x[-1])
    ax.xaxis.set_major_locator(MaxNLocator(4))


def _entitle(ax: Axes, effect: Effect) -> None:
    lag = "" if effect.lag == 0 else f", lag {effect.lag}"
    ends = f"{shortened(effect.source, 12)} → {shortened(effect.target, 12)}"
    tidy_panel(ax, ends + lag, shortened(effect.source, 24))


def _true_effect(effect: Effect, truth: DBN | None, x: np.ndarray) -> np.ndarray | None:
    """The true effect, 0 where the learned one is; a straight 0 where there is none."""
    if truth is None or not {effect.source, effect.target} <= set(truth.variables):
        return None
    i, j = truth.variables.index(effect.source), truth.variables.index(effect.target)
    if effect.lag > truth.n_lags or not truth.is_edge[effect.lag, i, j]:
        return np.zeros_like(x)
    true = truth.effect(i, j, effect.lag)
    return np.asarray(true.at(x)[:, 0] - true.at([effect.origin or 0.0])[0, 0])


def _limits(panels: list[Panel], truth: DBN | None) -> dict[str, tuple[float, float]]:
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


def _legend(ax: Axes, panels: list[Panel], truth: DBN | None, level: float, rest: str | None) -> None:
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
    return len({(part.term.edge, part.target) for part in dbn.parts if part.term.edge})


_MOST_LEVELS = 6


def effect_panels(dbn: DBN, *, at_most: int = 24, level: float = 0.95, n: int = 41) -> list[Panel]:
    """Return the `at_most` strongest effects of a network of variables of other kinds, those on the same target together.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import effect_panels
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, kinds={"x2": "count"}, random_state=0)
    >>> len(effect_panels(data.truth)) == int(data.truth.is_edge.sum())
    True
    """
    _check(dbn, at_most)
    rows = _edges_of(dbn, lambda shape: shape not in (*_CURVED, "linear"))
    panels = []
    for row in sorted(rows, key=lambda row: -abs(row["standardised"]))[:at_most]:
        effect = dbn.effect(row["source"], row["target"], row["lag"])
        panels.append(Panel(effect, effect.to_frame(n, level), abs(float(row["standardised"]))))
    return _in_order(dbn, panels)


def plot_effects(dbn: DBN, *, at_most: int = 24, level: float = 0.95, ax: Axes | None = None) -> Axes:
    """The axes with one panel per effect: the mean of the target, or the probabilities of its levels, against the cause.

    All other causes are as they usually are (`feddbn.model.effects.Effect`). A binary target has one line, the
    probability of its second level.

    Parameters
    ----------
    dbn
        A network of variables of other kinds.
    at_most
        How many effects to draw, the strongest ones; those on the same target are together.
    level
        Coverage of the bands, pointwise; there is none where a network does not know how sure it is.
    ax
        Where to draw; a new figure if None.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import plot_effects
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, kinds={"x2": "count"}, random_state=0)
    >>> plot_effects(data.truth).figure is not None
    True
    """
    panels = effect_panels(dbn, at_most=at_most, level=level)
    if not panels:
        raise ParameterError(
            "dbn has no effects on variables of other kinds to draw; plot_weights shows straight ones."
        )
    ax, insets = panel_grid(ax, len(panels))
    for k, (panel, (inset, is_first)) in enumerate(zip(panels, insets, strict=True)):
        _draw(inset, panel)
        if is_first or panels[k - 1].effect.target != panel.effect.target:
            inset.set_ylabel(_label(panel.effect), fontsize=8, labelpad=2)
    hidden = int(dbn.is_edge.sum()) - len(panels)
    bands = " with 95% bands" if level == 0.95 else f" with {level:.0%} bands"
    known = any(panel.table["lower"].notna().any() for panel in panels)
    words = f"expected value or probability{bands if known else ''}, other causes as usual"
    ax.annotate(
        words + (f"; {hidden} weaker not shown" if hidden else ""), (0.0, 1.0), xytext=(2, 4), fontsize=8,
        xycoords="axes fraction", textcoords="offset points", va="bottom", color="#444444",
    )  # fmt: skip
    return ax


def _label(effect: Effect) -> str:
    name = shortened(effect.target, 12)
    if effect.kind.name == "binary":
        return f"P({name}={shortened(effect.kind.levels[1], 6)})"
    return f"P({name})" if effect.kind.levels else f"mean of {name}"


def _draw(ax: Axes, panel: Panel) -> None:
    effect, table = panel.effect, panel.table
    outcomes = effect.outcomes[:_MOST_LEVELS]
    by_level = bool(effect.cause.levels)
    for k, outcome in enumerate(outcomes):
        part = table[table["outcome"] == outcome]
        colour = LINE_COLOURS[k % len(LINE_COLOURS)]
        y, low, high = (part[name].to_numpy(dtype=float) for name in ("effect", "lower", "upper"))
        x = np.arange(len(part), dtype=float) if by_level else part["value"].to_numpy(dtype=float)
        if by_level:
            beside = x + 0.08 * (k - (len(outcomes) - 1) / 2)
            ax.vlines(beside, low, high, color=colour, linewidth=1.2, alpha=0.6)
            ax.plot(beside, y, color=colour, marker="o", markersize=3.5, linewidth=0.8, linestyle=(0, (1, 2)))
        else:
            ax.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
            ax.plot(x, y, color=colour, linewidth=1.6)
    if by_level:
        _name_levels(ax, effect.cause.levels)
    _entitle(ax, effect)
    if not by_level:
        ax.xaxis.set_major_locator(MaxNLocator(4, integer=effect.cause.name == "count"))
    if effect.kind.levels:
        # Room above 1 for the names of levels.
        ax.set_ylim(-0.03, 1.03 + 0.15 * math.ceil((len(outcomes) - 1) / 3))
        ax.set_yticks([0.0, 0.5, 1.0])
    if len(outcomes) > 1:
        _name_outcomes(ax, outcomes, len(effect.outcomes) - len(outcomes))


def _name_levels(ax: Axes, levels: tuple[str, ...]) -> None:
    step = max(1, -(-len(levels) // 6))
    places = list(range(0, len(levels), step))
    ax.set_xticks(places, [shortened(levels[k], 9) for k in places])
    ax.set_xlim(-0.4, len(levels) - 0.6)


def _name_outcomes(ax: Axes, outcomes: tuple[str, ...], n_hidden: int) -> None:
    """The levels of the target in their colours, three in a row at the top of the panel."""
    for k, outcome in enumerate(outcomes):
        row, column = divmod(k, 3)
        name = shortened(outcome.removeprefix("P(").removesuffix(")"), 9)
        ax.text(
            0.02 + 0.34 * column, 0.99 - 0.11 * row, name, transform=ax.transAxes, fontsize=6.5, va="top",
            color=LINE_COLOURS[k % len(LINE_COLOURS)],
        )  # fmt: skip
    if n_hidden:
        ax.text(0.98, 0.02, f"{n_hidden} levels not shown", transform=ax.transAxes, fontsize=6, ha="right")
