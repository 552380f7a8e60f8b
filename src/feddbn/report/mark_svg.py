"""An ancestral graph as SVG inside another page: the picture of `plot_marks`, named after what it shows."""

from __future__ import annotations

from hashlib import sha256

from markupsafe import Markup

from feddbn.model.ancestral import AncestralGraph
from feddbn.report.figures import inline_svg
from feddbn.report.mark_plots import plot_marks

__all__ = ["mark_svg"]


def mark_svg(graph: AncestralGraph) -> Markup:
    """One ``<svg>`` element; its identifiers are those of this graph alone, so two of them fit into one page."""
    words = "\n".join((*graph.variables, *graph.marks.ravel().tolist()))
    name = f"marks-{sha256(words.encode()).hexdigest()[:10]}"
    text = f"Edges with marks among {len(graph.variables)} variables"
    return Markup(inline_svg(lambda: plot_marks(graph), name, text))
