"""Ancestral graphs: their table, storing, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from feddbn import AncestralGraph
from feddbn.errors import ParameterError


@pytest.fixture
def graph():
    marks = np.full((3, 3, 2), "", dtype="<U3")
    marks[0, 1, 0], marks[1, 0, 0] = "<--", "-->"
    marks[1, 2, 0], marks[2, 1, 0] = "<-o", "o->"
    marks[0, 2, 0], marks[2, 0, 0] = "o-o", "o-o"
    marks[0, 0, 1], marks[2, 0, 1] = "-->", "<->"
    return AncestralGraph(marks, ("a", "b", "c"), np.full((3, 3, 2), 0.25), np.full((3, 3, 2), 0.001))


def test_every_edge_is_listed_once_with_its_arrowhead_last(graph):
    rows = [tuple(row) for row in graph.edges()[["source", "target", "lag", "mark"]].to_numpy()]
    assert sorted(rows) == [
        ("a", "a", 1, "-->"),
        ("a", "c", 0, "o-o"),
        ("b", "a", 0, "-->"),
        ("c", "a", 1, "<->"),
        ("c", "b", 0, "o->"),
    ]
    assert set(graph.edges()["value"]) == {0.25}
    assert len(str(graph).splitlines()) == 1 + len(rows)
    assert "c(t-1) <-> a: neither" in str(graph)


def test_causes_and_what_may_be_one(graph):
    assert np.argwhere(graph.definite()).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert np.argwhere(graph.possible()).tolist() == [[0, 1, 0], [0, 2, 1], [1, 0, 0]]


def test_it_can_be_stored(graph):
    stored = json.loads(json.dumps(graph.to_dict()))
    assert (stored["variables"], stored["n_lags"]) == (["a", "b", "c"], 1)
    assert stored["edges"] == graph.edges().to_dict("records")


def test_what_is_no_graph_is_refused(graph):
    for marks, sentence in (
        (graph.marks[:, :2], r"shape \(3, 3, n_lags \+ 1\)"),
        (np.full((3, 3, 1), "=>"), "marks contains '=>'; an edge is one of"),
        (np.where(graph.marks == "<->", "<--", graph.marks), "nothing causes its past"),
        (np.where(graph.marks == "<--", "", graph.marks), "must say the same from both ends"),
    ):
        with pytest.raises(ParameterError, match=sentence):
            AncestralGraph(marks, ("a", "b", "c"))
