"""Drawn axes as SVG text that lives inside a page: it follows the page's colours and its identifiers do not
clash.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["inline_svg"]

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
