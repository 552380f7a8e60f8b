"""Effects as pictures: one panel for each edge, what its target gains or is expected to be against its cause."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model.dbn import DBN
from feddbn.model.effects import Effect
from feddbn.model.network import check_network
from feddbn.report.canvas import LINE_COLOURS, panel_grid, shortened, tidy_panel
from feddbn.settings import whole

__all__ = ["effect_panels", "plot_effects"]

_EFFECT, _TRUTH = LINE_COLOURS[0], LINE_COLOURS[1]
_STRAIGHT, _BEYOND = "#777777", "#999999"
_MOST_LEVELS = 6


@dataclass(frozen=True)
class Panel:
    """One panel: the effect, its table by value of the cause with lower and upper, and how strong it is in standard
    deviations.
    """

    effect: Effect
    table: pd.DataFrame
    strength: float


def effect_panels(dbn: DBN, *, at_most: int = 24, level: float = 0.95, n: int = 81) -> list[Panel]:
    """Return the `at_most` strongest effects that are curved, or, with variables of other kinds, of all; those on the same
    target together.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import effect_panels
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, kinds={"x2": "count"}, random_state=0)
    >>> len(effect_panels(data.truth)) == int(data.truth.is_edge.sum())
    True
    """
    check_network(dbn, "dbn")
    whole(1).check("at_most", at_most)
    place = {name: k for k, name in enumerate(dbn.variables)}
    curved = {(part.target, part.term.edge) for part in dbn.parts}
    rows = [
        row
        for row in ([] if dbn.is_linear else dbn.edges().to_dict("records"))
        if dbn.has_kinds or (place[row["target"]], (place[row["source"]], row["lag"])) in curved
    ]
    panels = []
    for row in sorted(rows, key=lambda row: -abs(row["standardised"]))[:at_most]:
        effect = dbn.effect(row["source"], row["target"], row["lag"])
        panels.append(Panel(effect, effect.to_frame(n, level), abs(float(row["standardised"]))))
    return sorted(panels, key=lambda panel: (place[panel.effect.target], -panel.strength))


def plot_effects(
    dbn: DBN, *, truth: DBN | None = None, at_most: int = 24, level: float = 0.95, ax: Axes | None = None
) -> Axes:
    """The axes with one panel per effect. In a network of numbers: what the target gains against the source at its origin, of
    curved effects. With variables of other kinds: the mean of the target, or the probabilities of its levels (of a binary one
    the second), other causes as they usually are (`feddbn.model.effects.Effect`).

    Parameters
    ----------
    dbn
        A network with curves, or with variables of other kinds.
    truth
        The network behind simulated data; its curves are drawn beside those found.
    at_most
        How many effects to draw, the strongest ones. Panels of the same target are together; gains share their scale.
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
            "dbn has no curved effect, and none on variables of other kinds, to draw; plot_weights shows straight ones."
        )
    ax, insets = panel_grid(ax, len(panels))
    limits = _limits(panels, truth)
    for k, (panel, (inset, is_first)) in enumerate(zip(panels, insets, strict=True)):
        _draw(inset, panel, truth)
        if is_first or panels[k - 1].effect.target != panel.effect.target:
            inset.set_ylabel(_label(panel.effect), fontsize=8, labelpad=2)
        if panel.effect.target in limits:
            inset.set_ylim(limits[panel.effect.target])
    n_drawn = int(dbn.is_edge.sum()) if dbn.has_kinds else len({p[:2] for p in dbn.parts if p.term.edge})
    hidden = n_drawn - len(panels)
    _legend(ax, panels, truth, level, f"{hidden} weaker not shown" if hidden else None)
    return ax


def _label(effect: Effect) -> str:
    name = shortened(effect.target, 12)
    if effect.origin is not None:
        return f"change of {name}"
    if effect.kind.name == "binary":
        return f"P({name}={shortened(effect.kind.levels[1], 6)})"
    return f"P({name})" if effect.kind.levels else f"mean of {name}"


def _draw(ax: Axes, panel: Panel, truth: DBN | None) -> None:
    effect, table = panel.effect, panel.table
    outcomes = effect.outcomes[:_MOST_LEVELS]
    by_level = effect.cause.levels
    for k, outcome in enumerate(outcomes):
        part = table[table["outcome"] == outcome]
        colour = LINE_COLOURS[k % len(LINE_COLOURS)]
        y, low, high = (part[name].to_numpy(dtype=float) for name in ("effect", "lower", "upper"))
        if by_level:
            beside = np.arange(len(part)) + 0.08 * (k - (len(outcomes) - 1) / 2)
            ax.vlines(beside, low, high, color=colour, linewidth=1.2, alpha=0.6)
            ax.plot(beside, y, color=colour, marker="o", markersize=3.5, linewidth=0.8, linestyle=(0, (1, 2)))
            continue
        x = part["value"].to_numpy(dtype=float)
        if np.isfinite(low).any():
            ax.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
        inside = part["inside"].to_numpy()
        if not inside.all():
            ax.plot(x, y, color=colour, linewidth=1.1, linestyle=(0, (3, 2)))
        ax.plot(x, np.where(inside, y, np.nan), color=colour, linewidth=1.8)
    tidy_panel(
        ax,
        f"{shortened(effect.source, 12)} → {shortened(effect.target, 12)}"
        + (f", lag {effect.lag}" if effect.lag else ""),
        shortened(effect.source, 24),
    )
    if by_level:
        step = max(1, -(-len(by_level) // 6))
        places = list(range(0, len(by_level), step))
        ax.set_xticks(places, [shortened(by_level[k], 9) for k in places])
        ax.set_xlim(-0.4, len(by_level) - 0.6)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(4, integer=effect.cause.name == "count"))
    if effect.origin is not None:
        _draw_around(ax, effect, x, truth)
    if effect.kind.levels:
        # Room above 1 for the names of levels.
        ax.set_ylim(-0.03, 1.03 + 0.15 * math.ceil((len(outcomes) - 1) / 3))
        ax.set_yticks([0.0, 0.5, 1.0])
    if len(outcomes) > 1:
        _name_outcomes(ax, outcomes, len(effect.outcomes) - len(outcomes))


def _draw_around(ax: Axes, effect: Effect, x: FloatArray, truth: DBN | None) -> None:
    """What a gain is seen against: zero, its straight part, what lies beyond the range seen, the truth."""
    low, high = effect.range_seen
    for begin, end in ((x[0], low), (high, x[-1])):
        ax.axvspan(begin, end, color=_BEYOND, alpha=0.16, linewidth=0)
    ax.axhline(0.0, color=_STRAIGHT, linewidth=0.6)
    ax.plot(
        x, effect.weight * (x - (effect.origin or 0.0)), color=_STRAIGHT, linewidth=0.9, linestyle=(0, (1, 2))
    )
    true = _true_effect(effect, truth, x)
    if true is not None:
        ax.plot(x, true, color=_TRUTH, linewidth=1.2, linestyle=(0, (5, 2)))
    ax.set_xlim(x[0], x[-1])


def _true_effect(effect: Effect, truth: DBN | None, x: FloatArray) -> FloatArray | None:
    """The true effect, 0 where the learned one is; a straight 0 where there is none."""
    if truth is None or effect.origin is None or not {effect.source, effect.target} <= set(truth.variables):
        return None
    i, j = truth.variables.index(effect.source), truth.variables.index(effect.target)
    if effect.lag > truth.n_lags or not truth.is_edge[effect.lag, i, j]:
        return np.zeros_like(x)
    true = truth.effect(i, j, effect.lag)
    return np.asarray(true.at(x)[:, 0] - true.at([effect.origin])[0, 0])


def _limits(panels: list[Panel], truth: DBN | None) -> dict[str, tuple[float, float]]:
    """Of every target that gains, from the smallest to the largest effect on it; very wide bands run out of the picture."""
    limits: dict[str, tuple[float, float]] = {}
    for panel in panels:
        if panel.effect.origin is None:
            continue
        x, y = panel.table["value"].to_numpy(), panel.table["effect"].to_numpy()
        true = _true_effect(panel.effect, truth, x)
        reach = 1.5 * float(np.ptp(y))
        band = panel.table.loc[panel.table["inside"], ["lower", "upper"]].to_numpy().ravel()
        shown = [y, np.clip(band[np.isfinite(band)], y.min() - reach, y.max() + reach)]
        values = np.concatenate(shown if true is None else [*shown, true])
        low, high = limits.get(panel.effect.target, (0.0, 0.0))
        limits[panel.effect.target] = min(low, float(values.min())), max(high, float(values.max()))
    pads = {name: 0.06 * (high - low) or 1.0 for name, (low, high) in limits.items()}
    return {name: (low - pads[name], high + pads[name]) for name, (low, high) in limits.items()}


def _legend(ax: Axes, panels: list[Panel], truth: DBN | None, level: float, rest: str | None) -> None:
    is_gain = panels[0].effect.origin is not None
    name = "effect" if is_gain else "expected value or probability, other causes as usual"
    handles: list[Line2D | Patch] = [Line2D([], [], color=_EFFECT, linewidth=1.8, label=name)]
    if any(panel.table["lower"].notna().any() for panel in panels):
        handles.append(Patch(facecolor=_EFFECT, alpha=0.18, label=f"{level:.0%} band"))
    if is_gain:
        line = Line2D([], [], color=_STRAIGHT, linewidth=0.9, linestyle=(0, (1, 2)), label="average slope")
        handles += [line, Patch(facecolor=_BEYOND, alpha=0.16, label="beyond the range seen")]
    if is_gain and truth is not None:
        handles.append(Line2D([], [], color=_TRUTH, linewidth=1.2, linestyle=(0, (5, 2)), label="truth"))
    ax.legend(
        handles=handles, frameon=False, fontsize=8, ncols=len(handles) if len(panels) > 2 else 2, loc="lower left",
        bbox_to_anchor=(0.0, 1.0), borderaxespad=0.3, handlelength=1.6, columnspacing=1.2, title=rest,
        title_fontsize=7.5, alignment="left",
    )  # fmt: skip


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
