"""A page of small panels: rows of insets with room for their labels."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from feddbn.report.canvas import new_axes

__all__ = ["panel_grid", "tidy_panel"]

# Inches: the inside of a panel, and the room for its labels.
_WIDTH, _HEIGHT, _LEFT, _BELOW, _ABOVE = 1.75, 1.25, 0.72, 0.7, 0.28
_COLUMNS = 4


def panel_grid(ax: Axes | None, n: int) -> tuple[Axes, list[tuple[Axes, bool]]]:
    """The axes that hold n panels, up to four in a row, and each panel with whether it begins a row."""
    n_columns = min(_COLUMNS, n)
    n_rows = math.ceil(n / n_columns)
    width, height = n_columns * (_WIDTH + _LEFT), n_rows * (_HEIGHT + _BELOW)
    ax = new_axes(ax, width + 0.2, height + 0.35)
    ax.set_axis_off()
    panels = []
    for k in range(n):
        row, column = divmod(k, n_columns)
        left = column * (_WIDTH + _LEFT) + _LEFT / 2
        bottom = height - row * (_HEIGHT + _BELOW) - _ABOVE - _HEIGHT
        inset = ax.inset_axes((left / width, bottom / height, _WIDTH / width, _HEIGHT / height))
        panels.append((inset, column == 0))
    return ax, panels


def tidy_panel(ax: Axes, title: str, below: str) -> None:
    """Small letters, few ticks, and no frame above and at the right."""
    ax.set_title(title, fontsize=8.5, loc="left", pad=3)
    ax.set_xlabel(below, fontsize=8, labelpad=1.5)
    ax.tick_params(labelsize=7.5, length=2.5, pad=2)
    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.spines["top"].set_visible(False)
    ax.spines["right"].set_visible(False)
