"""Scores of rankings: hand-worked, by their definition on random ones with ties, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from feddbn.errors import InputError
from reproduction.ranking_scores import ranking_scores

RANKED = np.array([[1, 1, 0], [0, 1, 0], [1, 0, 1]])


def test_a_hand_worked_ranking_has_the_scores_on_paper():
    # Off-diagonal ranking: edge .9, other .8, edge .7, others .3, .2, .1.
    scores = np.array([[5.0, 0.9, 0.8], [0.3, 5.0, 0.2], [0.7, 0.1, 5.0]])
    result = ranking_scores(RANKED, scores)
    assert result.auroc == pytest.approx(7 / 8)
    assert result.average_precision == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    # Trapezoids from (recall 0, precision 1): (.5, 1), (.5, .5), (1, 2/3).
    assert result.aupr == pytest.approx(0.5 * 1 + 0.5 * (1 / 2 + 2 / 3) / 2)
    assert (result.n_pairs, result.n_true, result.includes_diagonal) == (6, 2, False)


def test_the_diagonal_is_ranked_only_on_request():
    scores = np.array([[0.0, 0.9, 0.1], [0.1, 0.0, 0.1], [0.9, 0.1, 0.0]])
    assert ranking_scores(RANKED, scores).auroc == 1
    with_diagonal = ranking_scores(RANKED, scores, include_diagonal=True)
    assert (with_diagonal.n_pairs, with_diagonal.n_true) == (9, 5)
    # 2 of 5 edges beat all 4 others; the other 3 (score 0) beat none.
    assert with_diagonal.auroc == pytest.approx(2 / 5)


def test_a_diagonal_that_is_not_ranked_may_hold_anything():
    scores = np.full((3, 3), 0.5)
    np.fill_diagonal(scores, np.nan)
    result = ranking_scores(RANKED, scores)
    assert result.auroc == 0.5
    assert result.average_precision == pytest.approx(2 / 6)


@pytest.mark.parametrize("include_diagonal", [True, False])
def test_auroc_is_the_share_of_rightly_ordered_pairs(include_diagonal):
    rng = np.random.default_rng(0)
    for _ in range(20):
        truth, scores = rng.integers(0, 2, (4, 4)), rng.integers(0, 5, (4, 4)).astype(float)
        cells = [(i, j) for i in range(4) for j in range(4) if include_diagonal or i != j]
        edges, others = ([scores[c] for c in cells if bool(truth[c]) == is_edge] for is_edge in (True, False))
        if edges and others:
            wins = sum((e > o) + 0.5 * (e == o) for e in edges for o in others)
            result = ranking_scores(truth, scores, include_diagonal=include_diagonal)
            assert result.auroc == pytest.approx(wins / (len(edges) * len(others)))
            assert ranking_scores(truth, 3 * scores + 7, include_diagonal=include_diagonal) == result


@pytest.mark.parametrize(
    ("truth", "scores"),
    [(np.zeros((3, 3)), np.ones((3, 3))), (np.eye(3), np.ones((4, 4))), (np.eye(3), np.full((3, 3), np.nan))],
)
def test_what_cannot_be_ranked_is_refused(truth, scores):
    with pytest.raises(InputError):
        ranking_scores(truth, scores)
