import numpy as np
import pandas as pd
import pytest

from feddbn.errors import MissingExtra
from feddbn.experiments.context import forest_var, pcmci, ridge_var, var_lingam
from feddbn.experiments.fits import PERSONAL_SUBJECTS, fmri_scores, split_subject

TRUTH = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])


def test_a_perfect_directed_ranking_scores_one_by_every_protocol():
    score = TRUTH + np.eye(3)
    assert set(fmri_scores(TRUTH, score, score > 0.5).values()) == {1.0}


def test_self_loops_alone_look_good_by_the_papers_protocol_and_like_chance_without_the_diagonal():
    only_loops = np.eye(3)
    scores = fmri_scores(TRUTH, only_loops, only_loops > 0)
    assert scores["cut_off"] == scores["off"] == 0.5
    assert scores["cut_diagonal"] == scores["diagonal"] == pytest.approx(0.8)


def test_reversed_edges_are_a_perfect_skeleton_and_a_bad_ranking():
    scores = fmri_scores(TRUTH, TRUTH.T.astype(float), None)
    assert scores["skeleton"] == 1.0
    assert scores["off"] < 0.5
    assert "cut_off" not in scores


def test_a_subject_is_split_into_five_clients_of_forty_steps_in_time_order():
    frame = pd.DataFrame({"a": np.arange(200.0)})
    parts = split_subject(frame)
    assert [len(part[0]) for part in parts.values()] == [40] * 5
    assert np.concatenate([part[0]["a"] for part in parts.values()]).tolist() == frame["a"].tolist()


def test_the_personal_subjects_are_the_papers():
    assert PERSONAL_SUBJECTS == {1: (2, 4, 6, 8, 10), 2: (1, 3, 5, 7, 9), 3: (1, 3, 5, 7, 9)}


@pytest.mark.parametrize("method", [ridge_var, lambda r: forest_var(r, n_trees=30)], ids=["ridge", "forest"])
def test_context_methods_rank_the_one_true_lagged_edge_first(method):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    x[1:, 2] += 0.8 * x[:-1, 0]
    score = method([x[:150], x[150:]])
    np.fill_diagonal(score, 0)
    assert np.unravel_index(score.argmax(), score.shape) == (0, 2)


@pytest.mark.parametrize(("method", "package"), [(var_lingam, "lingam"), (pcmci, "tigramite")])
def test_a_context_method_without_its_package_says_what_to_install(method, package, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(MissingExtra, match=package):
        method([np.zeros((10, 2))])
