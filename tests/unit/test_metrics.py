"""Scores of marks: counted by hand, and what is refused."""

import numpy as np
import pytest

from feddbn.metrics import (
    edge_scores,
    mark_scores,
    mean_scores,
    skeleton_scores,
    weight_error,
)

# Truth: 0 -> 1, 0 -> 2, 1 -> 3. Estimate: 0 -> 1 (right), 2 -> 0 (reversed), 2 -> 3 (extra), 1 -> 3 missing.
TRUTH = np.zeros((4, 4))
TRUTH[0, 1], TRUTH[0, 2], TRUTH[1, 3] = 0.4, -0.3, 0.5
ESTIMATE = np.zeros((4, 4))
ESTIMATE[0, 1], ESTIMATE[2, 0], ESTIMATE[2, 3] = 0.38, -0.2, 0.1


def test_a_hand_worked_graph_has_the_scores_on_paper():
    scores = edge_scores(TRUTH, ESTIMATE)
    assert (scores.n_true, scores.n_estimated) == (3, 3)
    assert (scores.n_true_positives, scores.n_false_positives, scores.n_false_negatives) == (1, 2, 2)
    assert scores.n_reversed == 1
    assert scores.shd == 3
    assert scores.shd_paper == 4
    assert scores.tpr == scores.recall == pytest.approx(1 / 3)
    assert scores.fdr == pytest.approx(2 / 3)
    assert scores.precision == pytest.approx(1 / 3)
    assert scores.f1 == pytest.approx(1 / 3)


def test_the_skeleton_forgives_a_reversal():
    scores = skeleton_scores(TRUTH, ESTIMATE)
    assert (scores.n_true_positives, scores.n_false_positives, scores.n_false_negatives) == (2, 1, 1)
    assert (scores.shd, scores.shd_paper, scores.n_reversed) == (2, 2, 0)


NOTHING, ONE, BOTH = np.zeros((4, 4)), np.zeros((4, 4)), np.zeros((4, 4))
ONE[0, 1] = BOTH[0, 1] = BOTH[1, 0] = 1


@pytest.mark.parametrize(
    ("truth", "estimate", "expected"),
    [
        # A lagged edge cannot be reversed, and all lags count together.
        (TRUTH[None], ESTIMATE[None], {"shd": 4, "shd_paper": 4, "n_reversed": 0}),
        (np.stack([ONE, NOTHING]), np.stack([NOTHING, ONE]), {"shd": 2, "n_true_positives": 0}),
        # A pair with edges both ways is one difference.
        (ONE, BOTH, {"shd": 1, "n_reversed": 0}),
        (NOTHING, BOTH, {"shd": 1, "shd_paper": 2}),
        # To claim nothing is not wrong, and where nothing is nothing can be found.
        (TRUTH, NOTHING, {"tpr": 0, "fdr": 0, "precision": 1, "f1": 0, "shd": 3, "shd_paper": 3}),
        (NOTHING, ESTIMATE, {"tpr": 1, "fdr": 1, "precision": 0, "f1": 0}),
        (NOTHING, NOTHING, {"shd": 0, "tpr": 1, "fdr": 0, "precision": 1, "f1": 1}),
        (NOTHING[None][:0], NOTHING[None][:0], {"shd": 0, "tpr": 1, "fdr": 0, "precision": 1, "f1": 1}),
    ],
)
def test_scores_at_the_edges_are_those_of_their_definitions(truth, estimate, expected):
    scores = edge_scores(truth, estimate)
    assert {name: scores[name] for name in expected} == expected


def test_a_threshold_applies_to_the_estimate_only():
    scores = edge_scores(TRUTH, ESTIMATE, threshold=0.35)
    assert (scores.n_true, scores.n_estimated, scores.n_true_positives) == (3, 1, 1)


def test_means_over_sites_are_plain_means():
    means = mean_scores([edge_scores(TRUTH, ESTIMATE), edge_scores(TRUTH, TRUTH)])
    assert means == pytest.approx(
        {"mshd": 1.5, "mshd_paper": 2, "mtpr": 2 / 3, "mfdr": 1 / 3, "mprecision": 2 / 3, "mf1": 2 / 3}
    )


def test_weight_errors_are_the_three_norms():
    error = weight_error(np.zeros((2, 2)), np.array([[3.0, 0.0], [0.0, -4.0]]))
    assert (error.max_abs, error.rmse, error.frobenius) == (4, 2.5, 5)
    none = weight_error(np.zeros((0, 2, 2)), np.zeros((0, 2, 2)))
    assert (none.max_abs, none.rmse, none.frobenius) == (0, 0, 0), "without lags"


def words(edges, d=3, n_lags=1):
    found = np.full((d, d, n_lags + 1), "", dtype="<U3")
    for (i, j, lag), mark in edges.items():
        found[i, j, lag] = mark
        if lag == 0:
            found[j, i, 0] = mark[::-1].translate(str.maketrans("<>", "><"))
    return found


MARKS = words({(0, 1, 0): "-->", (1, 2, 0): "<->", (0, 0, 1): "-->", (2, 1, 1): "<->"})


def test_the_truth_has_full_marks():
    scores = mark_scores(MARKS, MARKS)
    assert {scores[name] for name in scores if not name.startswith("n_")} == {1.0}
    # Two contemporaneous edges have two ends that count, two delayed ones have one each.
    assert (scores.n_true, scores.n_ends, scores.n_claims, scores.n_right) == (4, 6, 6, 6)


def test_counts_by_hand():
    found = words({(0, 1, 0): "o->", (1, 2, 0): "-->", (0, 0, 1): "-->", (1, 0, 1): "<->"})
    scores = mark_scores(MARKS, found)
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
    scores = mark_scores(MARKS, words({}))
    assert (scores.adjacency_precision, scores.adjacency_recall, scores.orientation_precision) == (1, 0, 1)
    assert mark_scores(words({}), words({})).adjacency_f1 == 1.0
    open_ends = words({(0, 1, 0): "o-o", (1, 2, 0): "x-x", (0, 0, 1): "o->", (2, 1, 1): "x->"})
    assert mark_scores(MARKS, open_ends).n_claims == 0


def test_where_the_truth_is_open_nothing_counts():
    truth = words({(0, 1, 0): "o->"})
    for mark, n_right in (("-->", 1), ("<->", 1), ("<--", 0)):
        scores = mark_scores(truth, words({(0, 1, 0): mark}))
        assert (scores.n_ends, scores.n_claims, scores.n_right) == (1, 1, n_right)
