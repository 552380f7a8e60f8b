"""Edges over time, drawn from networks of segments."""

import numpy as np
import pandas as pd
import pytest

from feddbn import DBN
from feddbn.errors import DataError
from feddbn.report import edge_steps, plot_changes


def networks():
    W, A = np.zeros((3, 3)), np.zeros((1, 3, 3))
    W[0, 1], A[0, 1, 2] = 0.5, 0.3
    first = DBN(W, A, ["a", "b", "c"])
    W, A = W.copy(), A.copy()
    W[0, 1], A[0, 2, 2] = -0.5, 0.2
    return [first, DBN(W, A, ["a", "b", "c"])]


SEGMENTS = pd.DataFrame({"start": [0, 64], "stop": [64, 200], "rows": [640, 1360]})


def test_edges_that_change_most_come_first_and_the_others_are_counted():
    steps = edge_steps(networks(), SEGMENTS)
    assert steps.names == ("a → b", "c → c, lag 1")
    np.testing.assert_array_equal(steps.weights, [[0.5, -0.5], [0.0, 0.2]])
    assert steps.edges == (0, 64, 200)
    assert steps.n_constant == 1


def test_the_picture_has_a_bar_where_an_edge_is_and_says_what_is_not_drawn():
    ax = plot_changes(networks(), SEGMENTS)
    assert len(ax.patches) == 3
    assert {text.get_text() for text in ax.texts} == {"+0.50", "-0.50", "+0.20", "row 64"}
    assert "1 other" in ax.get_xlabel()
    assert "1 more" in plot_changes(networks(), SEGMENTS, at_most=1).get_xlabel()


def test_without_changes_it_says_so():
    ax = plot_changes(networks()[:1], SEGMENTS[:1])
    assert (len(ax.texts), len(ax.patches)) == (1, 0)


def test_networks_and_segments_of_different_fits_are_refused():
    with pytest.raises(DataError, match="1 networks and 2"):
        plot_changes(networks()[:1], SEGMENTS)
