"""Ancestral graphs as pictures: every edge is drawn once, in the colour of what it means, with its marks."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch, PathPatch

from feddbn import AncestralGraph
from feddbn.report import plot_marks


def test_edges_colours_arrowheads_and_circles():
    marks = np.full((3, 3, 3), "", dtype="<U3")
    marks[0, 1, 0], marks[1, 0, 0] = "<->", "<->"
    marks[1, 2, 0], marks[2, 1, 0] = "o-o", "o-o"
    marks[0, 0, 1], marks[2, 0, 2], marks[1, 1, 2] = "-->", "o->", "-->"
    ax = plot_marks(AncestralGraph(marks, ("a", "b", "a name that is much too long to be shown")))
    lines = [patch for patch in ax.patches if isinstance(patch, PathPatch)]
    assert sorted(to_hex(line.get_edgecolor()) for line in lines) == [
        "#0072b2", "#0072b2", "#777777", "#777777", "#d55e00",
    ]  # fmt: skip
    heads = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    assert len(heads) == 5, "two at <->, one at each --> and at o->"
    circles = [line for line in ax.lines if line.get_markersize() == 6]
    assert len(circles) == 3, "two at o-o, one at o->"
    assert [text.get_text() for text in ax.get_xticklabels()] == ["t-2", "t-1", "t"]
    assert len(ax.get_yticklabels()[2].get_text()) <= 14


def test_an_empty_graph_can_be_drawn():
    ax = plot_marks(AncestralGraph(np.full((2, 2, 1), "", dtype="<U3"), ("a", "b")))
    assert not ax.patches
