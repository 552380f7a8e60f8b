import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from feddbn.metrics import edge_scores, ranking_scores, skeleton_scores


@st.composite
def graph_pairs(draw, acyclic=False):
    d = draw(st.integers(1, 6))
    graphs = [draw(hnp.arrays(np.int8, (d, d), elements=st.integers(0, 1))).astype(float) for _ in range(2)]
    if acyclic:
        orders = [np.array(draw(st.permutations(range(d)))) for _ in range(2)]
        graphs = [
            np.triu(graph, k=1)[np.ix_(order, order)] for graph, order in zip(graphs, orders, strict=True)
        ]
    return graphs


def _shd_by_pairs(truth, estimate):
    """The definition, one pair at a time."""
    d = len(truth)
    total = sum(truth[i, i] != estimate[i, i] for i in range(d))
    for i in range(d):
        for j in range(i):
            total += (truth[i, j], truth[j, i]) != (estimate[i, j], estimate[j, i])
    return total


@given(graph_pairs())
def test_shd_is_symmetric_and_zero_only_for_equal_graphs(pair):
    first, second = pair
    scores, swapped = edge_scores(first, second), edge_scores(second, first)
    assert scores.shd == swapped.shd == _shd_by_pairs(first, second)
    assert scores.shd_paper == swapped.shd_paper
    assert scores.n_reversed == swapped.n_reversed
    assert (scores.shd == 0) == np.array_equal(first, second)


@given(graph_pairs(acyclic=True))
def test_between_dags_the_two_distances_differ_by_the_reversals(pair):
    scores = edge_scores(*pair)
    assert scores.shd_paper == scores.shd + scores.n_reversed
    assert skeleton_scores(*pair).shd == scores.shd - scores.n_reversed


@given(graph_pairs())
def test_rates_fit_together_and_stay_between_zero_and_one(pair):
    truth, estimate = pair
    scores = edge_scores(truth, estimate)
    assert skeleton_scores(truth, estimate).shd <= scores.shd <= scores.shd_paper
    assert scores.precision == 1 - scores.fdr
    assert scores.recall == scores.tpr
    assert all(0 <= scores[name] <= 1 for name in ("tpr", "fdr", "precision", "recall", "f1"))
    assert scores.n_true_positives + scores.n_false_negatives == scores.n_true == truth.sum()
    assert scores.n_true_positives + scores.n_false_positives == scores.n_estimated == estimate.sum()
    if scores.n_true and scores.n_estimated and scores.precision + scores.recall > 0:
        harmonic = 2 * scores.precision * scores.recall / (scores.precision + scores.recall)
        assert scores.f1 == pytest.approx(harmonic)


@given(graph_pairs(), st.randoms(use_true_random=False))
def test_scores_do_not_depend_on_the_labels_of_the_variables(pair, random):
    index = list(range(len(pair[0])))
    random.shuffle(index)
    relabelled = [graph[np.ix_(index, index)] for graph in pair]
    assert edge_scores(*relabelled) == edge_scores(*pair)
    assert skeleton_scores(*relabelled) == skeleton_scores(*pair)


@given(graph_pairs(), st.booleans(), st.data())
def test_auroc_is_the_share_of_rightly_ordered_pairs(pair, include_diagonal, data):
    truth = pair[0]
    d = len(truth)
    # Few different values, so that ties occur.
    scores = data.draw(hnp.arrays(np.int8, (d, d), elements=st.integers(0, 4))).astype(float)
    cells = [(i, j) for i in range(d) for j in range(d) if include_diagonal or i != j]
    edges = [scores[c] for c in cells if truth[c]]
    others = [scores[c] for c in cells if not truth[c]]
    assume(edges and others)
    wins = sum((e > o) + 0.5 * (e == o) for e in edges for o in others)
    result = ranking_scores(truth, scores, include_diagonal=include_diagonal)
    assert result.auroc == pytest.approx(wins / (len(edges) * len(others)))
    rescaled = ranking_scores(truth, 3 * scores + 7, include_diagonal=include_diagonal)
    assert rescaled == result
