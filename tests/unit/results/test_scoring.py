import json

import numpy as np
import pytest

from feddbn import simulate
from feddbn.model.dbn import DBN
from feddbn.results.scoring import score, score_sites
from support.networks import curved, make_curve, make_product

W = np.array([[0.0, 0.5, 0.0], [0.0, 0.0, -0.4], [0.0, 0.0, 0.0]])
A = np.array([np.diag([0.3, 0.3, 0.0])])
TRUTH = DBN(W, A, ["a", "b", "c"])


def test_the_truth_scores_perfectly_against_itself():
    scores = score(TRUTH, TRUTH)
    for part in ("W", "A"):
        assert scores[part]["shd"] == scores[part]["shd_paper"] == scores[part]["fdr"] == 0
        assert scores[part]["tpr"] == scores[part]["precision"] == scores[part]["f1"] == 1
    assert scores.W_error.max_abs == scores.A_error.frobenius == 0


def test_a_reversed_edge_costs_one_or_two():
    reversed_W = W.copy()
    reversed_W[0, 1], reversed_W[1, 0] = 0.0, 0.5
    scores = score(TRUTH, DBN(reversed_W, A, TRUTH.variables))
    assert (scores["W"]["shd"], scores["W"]["shd_paper"], scores.skeleton.shd) == (1, 2, 0)
    assert scores["A"]["shd"] == 0


def test_variables_are_matched_by_name():
    index = [2, 0, 1]
    shuffled = DBN(W[np.ix_(index, index)], A[:, index][:, :, index], ["c", "a", "b"])
    scores = score(TRUTH, shuffled)
    assert scores["W"]["shd"] == scores["A"]["shd"] == 0
    assert scores.W_error.max_abs == 0


def test_missing_lags_hold_no_edges():
    static = DBN(W, np.zeros((0, 3, 3)), TRUTH.variables)
    assert score(TRUTH, static)["A"]["n_false_negatives"] == 2
    assert score(static, TRUTH)["A"]["n_false_positives"] == 2
    assert score(static, static)["A"]["shd"] == 0


def test_site_scores_are_means_over_sites_against_their_own_truths():
    fed = simulate(d=6, n_sites=3, n_samples=30, heterogeneity="independent")
    empty = DBN(np.zeros((6, 6)), np.zeros((1, 6, 6)))
    estimates = {**fed.truths, "site-1": empty}
    n_missed = np.count_nonzero(fed.truths["site-1"].W)
    scores = score_sites(fed.truths, estimates)
    assert scores["W"]["mshd"] == pytest.approx(n_missed / 3)
    assert scores["W"]["mtpr"] == pytest.approx(2 / 3)
    assert scores["W"]["mfdr"] == 0
    assert scores.sites["site-0"]["W"]["shd"] == 0
    assert list(scores.to_frame().columns[:4]) == ["mshd", "mshd_paper", "mtpr", "mfdr"]
    assert set(json.loads(json.dumps(scores.to_dict()))) == {"mean", "sites"}
    assert len(scores) == 2


def test_curves_and_products_are_edges_whatever_their_weight():
    hill, pair = make_curve(0, 1, 0, 0.0, 1.0, (1.0,)), make_product(0, 1, 2, 1, 0.5, (0.0, 0.0), (1.0, 1.0))
    none = np.zeros((3, 3))
    truth = curved(none, none[None], ["a", "b", "c"], parts=[hill, pair])
    assert score(truth, truth)["W"]["shd"] == score(truth, truth)["A"]["shd"] == 0
    empty = score(truth, DBN(none, none[None], ["a", "b", "c"]))
    assert (empty["W"]["shd"], empty["A"]["shd"], empty.skeleton.shd) == (1, 2, 1)
    turned = curved(none, none[None], ["b", "a", "c"], parts=[make_curve(1, 0, 0, 0.0, 1.0, (1.0,))])
    assert score(truth, turned)["W"]["shd"] == 0
