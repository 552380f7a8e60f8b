"""Marks of variables by kind in pictures of graphs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D

from feddbn.core.kinds import Kind
from feddbn.report.canvas import HEAT_COLOURS

__all__ = ["MARKS", "draw_nodes"]

MARKS = {"continuous": "o", "positive": "^", "count": "s", "binary": "D", "ordinal": "p", "categorical": "h"}


def draw_nodes(ax: Axes, nodes: pd.DataFrame, kinds: Sequence[Kind], size: float, norm: Normalize) -> None:
    """Draw nodes x, y in the colour of their self_effect, one shape per kind, and explain shapes if there are several."""
    names = np.array([kind.name for kind in kinds])
    shown = [name for name in MARKS if (names == name).any()]
    for name in shown:
        some = nodes[names == name]
        ax.scatter(
            some["x"], some["y"], s=size, c=some["self_effect"], cmap=HEAT_COLOURS, norm=norm, marker=MARKS[name],
            edgecolors="#333333", linewidths=1.0, zorder=3,
        )  # fmt: skip
    if shown != ["continuous"]:
        handles = [
            Line2D(
                [], [], linestyle="", marker=MARKS[name], markersize=7, markerfacecolor="#f4f4f4", label=name,
                markeredgecolor="#333333",
            )
            for name in shown
        ]  # fmt: skip
        ax.legend(
            handles=handles, frameon=False, fontsize=8, ncols=min(len(shown), 3), loc="lower center",
            bbox_to_anchor=(0.5, 1.05), handletextpad=0.2, columnspacing=1.0,
        )  # fmt: skip
