"""Evidence over time: how strongly each look at new rows speaks for a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from feddbn.analysis.monitor import Monitor
from feddbn.report.canvas import LINE_COLOURS, new_axes, open_frame, shortened
from feddbn.words import counted
from feddbn.words.tables import change_in_words

__all__ = ["plot_evidence"]

_LEAST, _MOST = 0.1, 1e8
_MOST_NAMED = 7
_APART = 0.055
"""How far apart names are, as a share of the height."""


def plot_evidence(monitor: Monitor | Mapping[str, Any], *, ax: Axes | None = None) -> Axes:
    """The axes with the evidence after each look that a variable depends on the others in another way than before.

    One line for each variable whose evidence ever exceeds 1, on a logarithmic scale. Variables with an alarm are coloured,
    and what changed is named at the right; a dot is the look of the alarm. The dashed line is where the first alarm comes;
    later ones may come a little below it. Values below 0.1 or above 10^8 are drawn at the border.

    Parameters
    ----------
    monitor
        A `Monitor`, or what `Monitor.told` gives.
    ax
        Where to draw; a new figure if None.

    Examples
    --------
    >>> from feddbn.report import plot_evidence
    >>> looks = [{"number": k, "n_rows": 100, "alarms": []} for k in (1, 2)]
    >>> evidence = [{"look": k, "target": "x", "e_value": 3.0**k} for k in (1, 2)]
    >>> plot_evidence({"bar": 40.0, "looks": looks, "evidence": evidence}).get_yscale()
    'log'
    """
    told = monitor.told() if isinstance(monitor, Monitor) else monitor
    evidence = pd.DataFrame(told["evidence"], columns=["look", "target", "e_value"])
    alarms = {
        one["values"]["target"]: (look["number"], change_in_words(one, lambda name: shortened(name, 12)))
        for look in told["looks"]
        for one in look["alarms"]
    }
    lines = [
        (name, line) for name, line in evidence.groupby("target", sort=False) if line["e_value"].max() > 1.0
    ]
    lines.sort(key=lambda one: (one[0] not in alarms, -one[1]["e_value"].iloc[-1]))
    named = [name for name, _ in lines if name in alarms][:_MOST_NAMED]
    ax = new_axes(ax, 7.2, 3.8)
    names = []
    for name, line in lines:
        values = line["e_value"].clip(_LEAST, _MOST)
        if name not in named:
            colour = "#444444" if name in alarms else "#999999"
            ax.plot(line["look"], values, color=colour, linewidth=0.8, alpha=0.6, zorder=1)
            continue
        colour, (at, words) = LINE_COLOURS[named.index(name)], alarms[name]
        ax.plot(line["look"], values, color=colour, linewidth=1.8, zorder=2)
        ax.plot(at, values[line["look"] == at].iloc[0], "o", color=colour, zorder=3)
        names.append((float(values.iloc[-1]), words, colour))
    bar, top = told["bar"], evidence["e_value"].max() if len(evidence) else 1.0
    ax.set_yscale("log")
    ax.set_ylim(_LEAST, min(max(4.0 * bar, 2.0 * top), 2.0 * _MOST))
    ax.set_xlim(0.7, max(len(told["looks"]), 2) + 0.1)
    ax.axhline(bar, color="#555555", linewidth=1.0, linestyle=(0, (4, 3)))
    ax.annotate(
        f"alarm at {bar:g}", (1.0, bar), xycoords=("axes fraction", "data"), xytext=(0, -3), ha="right", va="top",
        textcoords="offset points", fontsize=8.5, color="#444444", bbox={"color": "white", "alpha": 0.7, "pad": 1}, zorder=4,
    )  # fmt: skip
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("look")
    ax.set_ylabel("evidence (e-value)")
    n_grey = sum(name not in alarms for name, _ in lines)
    if n_grey:
        ax.set_title(
            f"grey: {counted(n_grey, 'variable')} without alarm", fontsize=8.5, color="#555555", loc="left"
        )
    open_frame(ax)
    _write_names(ax, sorted(names, reverse=True), sum(name in alarms for name, _ in lines) - len(names))
    return ax


def _write_names(ax: Axes, names: Sequence[tuple[float, str, str]], n_more: int) -> None:
    """Write names at the right where their lines end, the first at the top and no two over each other."""
    to_share = ax.transData + ax.transAxes.inverted()
    lowest = [_APART * (len(names) - k + (n_more > 0)) for k in range(len(names))]
    place = 1.0 + _APART
    for (value, name, colour), low in zip(names, lowest, strict=True):
        place = min(max(float(to_share.transform((1.0, value))[1]), low), place - _APART)
        ax.annotate(name, (1.02, place), xycoords="axes fraction", fontsize=8.5, color=colour, va="center")
    if n_more > 0:
        ax.annotate(
            f"and {n_more} more",
            (1.02, place - _APART),
            xycoords="axes fraction",
            fontsize=8.5,
            color="#444444",
            va="center",
        )
