"""Scores of marks: counted by hand, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from feddbn.errors import ParameterError
from feddbn.metrics import mark_scores
from support.saying import refused


def words(edges, d=3, n_lags=1):
    found = np.full((d, d, n_lags + 1), "", dtype="<U3")
    for (i, j, lag), mark in edges.items():
        found[i, j, lag] = mark
        if lag == 0:
            found[j, i, 0] = mark[::-1].translate(str.maketrans("<>", "><"))
    return found


TRUTH = words({(0, 1, 0): "-->", (1, 2, 0): "<->", (0, 0, 1): "-->", (2, 1, 1): "<->"})


def test_the_truth_has_full_marks():
    scores = mark_scores(TRUTH, TRUTH)
    assert {scores[name] for name in scores if not name.startswith("n_")} == {1.0}
    # Two contemporaneous edges have two ends that count, two delayed ones have one each.
    assert (scores.n_true, scores.n_ends, scores.n_claims, scores.n_right) == (4, 6, 6, 6)


def test_counts_by_hand():
    found = words({(0, 1, 0): "o->", (1, 2, 0): "-->", (0, 0, 1): "-->", (1, 0, 1): "<->"})
    scores = mark_scores(TRUTH, found)
    assert (scores.n_hits, scores.n_estimated, scores.n_true) == (3, 4, 4)
    assert scores.adjacency_f1 == 0.75
    # Claims: > at 0o->1; - and > at 1-->2 (the tail is wrong); - at 0-->0; < at the edge 1-->0, which is not there.
    assert (scores.n_claims, scores.n_right) == (5, 3)
    assert scores.orientation_precision == 3 / 5
    assert scores.orientation_recall == 3 / 6
    assert scores.orientation_f1 == pytest.approx(6 / 11)
    assert (scores.tail_precision, scores.tail_recall) == (1 / 2, 1 / 2)
    assert (scores.head_precision, scores.head_recall) == (2 / 3, 2 / 4)


def test_to_claim_nothing_is_not_wrong():
    scores = mark_scores(TRUTH, words({}))
    assert (scores.adjacency_precision, scores.adjacency_recall, scores.orientation_precision) == (1, 0, 1)
    assert mark_scores(words({}), words({})).adjacency_f1 == 1.0
    open_ends = words({(0, 1, 0): "o-o", (1, 2, 0): "x-x", (0, 0, 1): "o->", (2, 1, 1): "x->"})
    assert mark_scores(TRUTH, open_ends).n_claims == 0


def test_where_the_truth_is_open_nothing_counts():
    truth = words({(0, 1, 0): "o->"})
    for mark, n_right in (("-->", 1), ("<->", 1), ("<--", 0)):
        scores = mark_scores(truth, words({(0, 1, 0): mark}))
        assert (scores.n_ends, scores.n_claims, scores.n_right) == (1, 1, n_right)


@pytest.mark.parametrize(
    ("truth", "found", "names"),
    [
        (TRUTH, np.zeros((3, 3, 2)), ("estimate", "float64")),
        (TRUTH, TRUTH[:, :, :1], ("(3, 3, 2)", "(3, 3, 1)")),
        (TRUTH[:2], TRUTH, ("truth", "(2, 3, 2)")),
        (TRUTH, np.full((3, 3, 2), "->"), ("estimate", "'->'")),
    ],
)
def test_what_is_no_graph_is_refused(truth, found, names):
    with refused(ParameterError, *names):
        mark_scores(truth, found)
