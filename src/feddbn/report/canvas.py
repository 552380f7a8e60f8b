"""What every picture shares: colours that survive colour blindness, one symmetric scale, an axes without
pyplot.

Rules of the layer: a plot takes ``ax=None`` and returns the axes; without one it draws on a fresh `Figure`
that pyplot does not know, so nothing is shown, kept alive or changed globally. Red is positive and blue is
negative everywhere, and the scale is symmetric around zero. The pair red/blue of ColorBrewer's RdBu and the
qualitative palette of Okabe and Ito (2008) are distinguishable under the common forms of colour blindness.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import ArrayLike

from feddbn.errors import ParameterError

__all__ = [
    "EDGE_COLOURS",
    "HEAT_COLOURS",
    "LINE_COLOURS",
    "cell_grid",
    "new_axes",
    "shortened",
    "strength_bar",
    "symmetric_scale",
    "thinned",
    "weight_name",
]

# Okabe and Ito's palette without yellow, which vanishes on white paper.
LINE_COLOURS: tuple[str, ...] = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")

HEAT_COLOURS: Colormap = colormaps["RdBu_r"]


def _edge_colours() -> ListedColormap:
    # An edge is never zero, and the white middle of a diverging map would hide weak edges on white paper.
    ends = np.concatenate([np.linspace(0.02, 0.30, 128), np.linspace(0.70, 0.98, 128)])
    return ListedColormap(colormaps["RdBu_r"](ends), name="feddbn_edges")


EDGE_COLOURS: Colormap = _edge_colours()


def new_axes(ax: Axes | None, width: float, height: float) -> Axes:
    """`ax` itself, or the axes of a new figure of `width` x `height` inches that pyplot does not track."""
    if ax is not None:
        return ax
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08))
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def symmetric_scale(*values: ArrayLike, limit: float | None = None) -> Normalize:
    """A normalisation from -m to m, where m is `limit` or the largest finite absolute value (1 if there is
    none).
    """
    if limit is not None:
        if not (np.isfinite(limit) and limit > 0):
            raise ParameterError(f"limit must be a positive number, got {limit!r}.")
        return Normalize(-limit, limit)
    largest = 0.0
    for value in values:
        array = np.abs(np.asarray(value, dtype=np.float64))
        array = array[np.isfinite(array)]
        if array.size:
            largest = max(largest, float(array.max()))
    return Normalize(-largest, largest) if largest > 0 else Normalize(-1.0, 1.0)


def strength_bar(
    ax: Axes, norm: Normalize, cmap: Colormap, label: str, *, shrink: float = 0.8
) -> Colorbar | None:
    """A colour bar at the right of `ax`; None if the axes sits in a subfigure that cannot take one."""
    figure = ax.get_figure()
    if figure is None:
        return None
    bar = figure.colorbar(ScalarMappable(norm=norm, cmap=cmap), ax=ax, shrink=shrink, pad=0.02, aspect=28)
    bar.set_label(label)
    bar.outline.set_visible(False)
    return bar


def cell_grid(ax: Axes, n_rows: int, n_columns: int, colour: str, first_column: int = 0) -> None:
    """Lines between the cells of an image; as collections, because a minor tick per line costs seconds."""
    style: dict[str, Any] = {"colors": colour, "linewidths": 0.6}
    left = first_column - 0.5
    ax.hlines(np.arange(1, n_rows) - 0.5, left, left + n_columns, **style)
    ax.vlines(np.arange(1, n_columns) + left, -0.5, n_rows - 0.5, **style)


def weight_name(standardised: bool) -> str:
    """What a colour bar calls the weights it explains."""
    return "standardised weight" if standardised else "weight"


def thinned(n: int, at_most: int) -> list[int]:
    """Positions 0, k, 2k, ... below `n` with the smallest k that leaves at most `at_most` of them."""
    if at_most < 1:
        raise ParameterError(f"at_most must be at least 1, got {at_most!r}.")
    return list(range(0, n, max(1, -(-n // at_most))))


def shortened(name: object, at_most: int) -> str:
    """`name`, its middle replaced by an ellipsis if it is longer than `at_most`: numbered names differ at
    their ends.
    """
    text = str(name)
    if len(text) <= at_most:
        return text
    tail = min(4, (at_most - 1) // 2)
    return f"{text[: at_most - 1 - tail]}…{text[-tail:]}"
