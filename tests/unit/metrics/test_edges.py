import numpy as np
import pytest

from feddbn.errors import DataError, ParameterError
from feddbn.metrics import edge_scores, mean_scores, skeleton_scores, weight_error
from support.saying import refused

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
    assert scores.shd == scores.shd_paper == 2
    assert scores.n_reversed == 0


def test_a_lagged_edge_cannot_be_reversed():
    scores = edge_scores(TRUTH[None], ESTIMATE[None])
    assert scores.shd == scores.shd_paper == 4
    assert scores.n_reversed == 0


def test_all_lags_count_together():
    truth, estimate = np.zeros((2, 3, 3)), np.zeros((2, 3, 3))
    truth[0, 0, 0] = truth[1, 0, 1] = 1
    estimate[0, 0, 0] = estimate[0, 0, 1] = 1
    scores = edge_scores(truth, estimate)
    assert (scores.n_true_positives, scores.n_false_positives, scores.n_false_negatives) == (1, 1, 1)
    assert scores.shd == 2


def test_a_pair_with_edges_both_ways_is_one_difference():
    both = np.zeros((4, 4))
    both[0, 1] = both[1, 0] = 1
    one = np.zeros((4, 4))
    one[0, 1] = 1
    assert edge_scores(one, both).shd == 1
    assert edge_scores(one, both).n_reversed == 0
    assert edge_scores(np.zeros((4, 4)), both).shd == 1
    assert edge_scores(np.zeros((4, 4)), both).shd_paper == 2


def test_an_empty_estimate_claims_nothing_wrong():
    scores = edge_scores(TRUTH, np.zeros((4, 4)))
    assert (scores.tpr, scores.fdr, scores.precision, scores.f1) == (0, 0, 1, 0)
    assert scores.shd == scores.shd_paper == 3


def test_an_empty_truth_leaves_nothing_to_find():
    scores = edge_scores(np.zeros((4, 4)), ESTIMATE)
    assert (scores.tpr, scores.fdr, scores.precision, scores.f1) == (1, 1, 0, 0)


def test_two_empty_graphs_agree():
    for empty in (np.zeros((3, 3)), np.zeros((0, 3, 3))):
        scores = edge_scores(empty, empty)
        assert (scores.shd, scores.tpr, scores.fdr, scores.precision, scores.f1) == (0, 1, 0, 1, 1)


def test_a_threshold_applies_to_the_estimate_only():
    scores = edge_scores(TRUTH, ESTIMATE, threshold=0.35)
    assert (scores.n_true, scores.n_estimated, scores.n_true_positives) == (3, 1, 1)


def test_scores_read_like_a_mapping():
    scores = edge_scores(TRUTH, ESTIMATE)
    assert scores["shd"] == 3
    assert dict(scores)["fdr"] == scores.fdr
    assert len(scores) == len(list(scores)) == 13
    with pytest.raises(KeyError):
        scores["items"]


def test_means_over_sites_are_plain_means():
    means = mean_scores([edge_scores(TRUTH, ESTIMATE), edge_scores(TRUTH, TRUTH)])
    assert means == pytest.approx(
        {"mshd": 1.5, "mshd_paper": 2, "mtpr": 2 / 3, "mfdr": 1 / 3, "mprecision": 2 / 3, "mf1": 2 / 3}
    )


@pytest.mark.parametrize(
    ("call", "error", "names"),
    [
        (lambda: edge_scores(np.zeros((3, 3)), np.zeros((4, 4))), ParameterError, ("(3, 3)", "(4, 4)")),
        (lambda: edge_scores(np.zeros((3, 2)), np.zeros((3, 2))), ParameterError, ("(3, 2)",)),
        (lambda: edge_scores(TRUTH, ESTIMATE * np.nan), DataError, ("estimate", "NaN")),
        (lambda: skeleton_scores(TRUTH, ESTIMATE, threshold=-1), ParameterError, ("threshold", -1)),
        (lambda: skeleton_scores(TRUTH[None], ESTIMATE[None]), ParameterError, ("(1, 4, 4)",)),
        (lambda: mean_scores([]), ParameterError, ("mean_scores",)),
        (lambda: weight_error(TRUTH[None], TRUTH), ParameterError, ("(1, 4, 4)", "(4, 4)")),
    ],
)
def test_bad_input_is_refused_by_name(call, error, names):
    with refused(error, *names):
        call()
