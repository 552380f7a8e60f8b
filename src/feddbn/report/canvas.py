"""What every picture shares: colours that survive colour blindness, one symmetric scale, an axes without
pyplot.

Rules of the layer: a plot takes ``ax=None`` and returns the axes; without one it draws on a fresh `Figure`
that pyplot does not know, so nothing is shown, kept alive or changed globally. Red is positive and blue is
negative everywhere, and the scale is symmetric around zero. The pair red/blue of ColorBrewer's RdBu and the
qualitative palette of Okabe and Ito (2008) are distinguishable under the common forms of colour blindness.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from feddbn.settings import number, whole

__all__ = [
    "EDGE_COLOURS",
    "HEAT_COLOURS",
    "LINE_COLOURS",
    "cell_grid",
    "inline_svg",
    "new_axes",
    "open_frame",
    "panel_grid",
    "shortened",
    "strength_bar",
    "symmetric_scale",
    "thinned",
    "tidy_panel",
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
        number(above=0).check("limit", limit)
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
    whole(1).check("at_most", at_most)
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
    open_frame(ax)


def open_frame(ax: Axes) -> None:
    """Take the frame away above and at the right."""
    ax.spines["top"].set_visible(False)
    ax.spines["right"].set_visible(False)


# Ink that must turn light on a dark page. Numbers inside heat-map cells are darker (#222222) and stay as
# they are.
_INK = re.compile(r"#(?:000000|010203|333333|444444|555555|777777|999999)\b")
_GRID = re.compile(r"(stroke): #(?:e6e6e6|dddddd)\b")
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor"), "#010203"
    ),
}


def inline_svg(draw: Callable[[], Axes], name: str, description: str) -> str:
    """The picture `draw` makes, as one ``<svg role="img">`` element; the same picture gives the same text."""
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = draw().figure
        assert isinstance(figure, Figure), "a page shows whole figures, not parts of one"
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'href="#', f'href="#{name}-', text)
    text = text.replace("url(#", f"url(#{name}-")
    text = _INK.sub("currentColor", text)
    text = _GRID.sub(r"\1: currentColor; stroke-opacity: 0.15", text)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    label = description.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    width = re.search(r'viewBox="0 0 ([\d.]+)', text)
    size = f"max-width:{float(width.group(1)) * 1.25:.0f}px" if width else ""
    return text.replace("<svg", f'<svg role="img" aria-label="{label}" style="{size}"', 1)
