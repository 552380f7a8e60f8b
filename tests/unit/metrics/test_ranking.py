import numpy as np
import pytest

from feddbn.errors import DataError, ParameterError
from feddbn.metrics import ranking_scores, weight_error
from support.saying import refused

TRUTH = np.array([[1, 1, 0], [0, 1, 0], [1, 0, 1]])


def test_a_hand_worked_ranking_has_the_scores_on_paper():
    # Off-diagonal ranking: edge .9, other .8, edge .7, others .3, .2, .1.
    scores = np.array([[5.0, 0.9, 0.8], [0.3, 5.0, 0.2], [0.7, 0.1, 5.0]])
    result = ranking_scores(TRUTH, scores)
    assert result.auroc == pytest.approx(7 / 8)
    assert result.average_precision == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    # Trapezoids from (recall 0, precision 1): (.5, 1), (.5, .5), (1, 2/3).
    assert result.aupr == pytest.approx(0.5 * 1 + 0.5 * (1 / 2 + 2 / 3) / 2)
    assert (result.n_pairs, result.n_true, result.includes_diagonal) == (6, 2, False)


def test_the_diagonal_is_ranked_only_on_request():
    scores = np.array([[0.0, 0.9, 0.1], [0.1, 0.0, 0.1], [0.9, 0.1, 0.0]])
    assert ranking_scores(TRUTH, scores).auroc == 1
    with_diagonal = ranking_scores(TRUTH, scores, include_diagonal=True)
    assert (with_diagonal.n_pairs, with_diagonal.n_true) == (9, 5)
    # 2 of 5 edges beat all 4 others; the other 3 (score 0) beat none.
    assert with_diagonal.auroc == pytest.approx(2 / 5)


def test_a_diagonal_that_is_not_ranked_may_hold_anything():
    scores = np.full((3, 3), 0.5)
    np.fill_diagonal(scores, np.nan)
    result = ranking_scores(TRUTH, scores)
    assert result.auroc == 0.5
    assert result.average_precision == pytest.approx(2 / 6)


@pytest.mark.parametrize(
    ("truth", "scores", "error", "names"),
    [
        (np.zeros((3, 3)), np.ones((3, 3)), DataError, (0, 6)),
        (np.ones((3, 3)), np.ones((3, 3)), DataError, (6,)),
        (TRUTH, np.full((3, 3), np.nan), DataError, ("NaN",)),
        (TRUTH, np.ones((4, 4)), ParameterError, ("(3, 3)", "(4, 4)")),
    ],
)
def test_a_ranking_that_cannot_be_scored_is_refused(truth, scores, error, names):
    with refused(error, *names):
        ranking_scores(truth, scores)


def test_weight_errors_are_the_three_norms():
    error = weight_error(np.zeros((2, 2)), np.array([[3.0, 0.0], [0.0, -4.0]]))
    assert (error.max_abs, error.rmse, error.frobenius) == (4, 2.5, 5)
    none = weight_error(np.zeros((0, 2, 2)), np.zeros((0, 2, 2)))
    assert (none.max_abs, none.rmse, none.frobenius) == (0, 0, 0), "without lags"
