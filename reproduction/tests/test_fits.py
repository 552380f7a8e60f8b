import numpy as np
import pytest

from feddbn.methods.baselines import Average, LocalOnly
from feddbn.results.scoring import score
from feddbn.sim.simulation import simulate
from reproduction.cells import Cell
from reproduction.config import Point, connectivity_degree
from reproduction.context import forest_var, ridge_var
from reproduction.fits import (
    LocalNetworks,
    baselines_of_local_fits,
    fmri_scores,
    run_simulated,
    select_lambda,
)

SETTINGS = {"lambda_w": 0.05, "lambda_a": 0.05, "refit": False, "w_threshold": 0.3, "a_threshold": 0.3}
POINT = Point(d=4, n_sites=5, n_samples=200, mean_degree=2.0)


@pytest.fixture(scope="module")
def fed():
    return simulate(d=4, n_sites=5, n_samples=200, mean_degree=2, random_state=3)


def test_ave_from_shared_local_fits_equals_the_estimator_and_a_vote_has_the_edges_of_most_sites(fed):
    local = LocalNetworks(fed.sites, LocalOnly, SETTINGS)
    shared = baselines_of_local_fits(local, 0.3, 0.3)
    model = Average(**SETTINGS).fit(fed.sites)
    np.testing.assert_allclose(shared["Ave"][0].W, model.W_, atol=1e-12)
    np.testing.assert_allclose(shared["Ave"][0].A, model.A_, atol=1e-12)
    assert np.any(model.W_ != 0), "a test on empty graphs proves nothing"
    voted, alone = shared["Vote"][0], LocalOnly(**SETTINGS).fit(fed.sites).dbns_.values()
    counts = sum((dbn.A != 0).astype(int) for dbn in alone)
    np.testing.assert_array_equal(voted.A != 0, counts > len(alone) / 2)
    assert np.any(voted.W != 0)


def test_the_group_of_baselines_gives_what_best_and_local_give_alone():
    from reproduction.fits import draw

    cell = Cell("federation", "paper-text", POINT, "local", 0)
    results = {one["variant"]: one for one in run_simulated(cell)}
    drawn = draw(cell)
    settings = {**SETTINGS, "rounds.max_rounds": 300}
    alone = LocalOnly(**settings).fit(drawn.sites)
    scores = [score(drawn.truth, dbn) for dbn in alone.dbns_.values()]
    assert results["Best"]["W"]["shd"] + results["Best"]["A"]["shd"] == min(s.W.shd + s.A.shd for s in scores)
    mean = np.mean([score(drawn.truth, dbn).W.shd for dbn in alone.dbns_.values()])
    assert results["LocalOnly"]["W"]["shd"] == pytest.approx(mean)


def test_lambda_is_selected_from_data_alone_and_prefers_a_fitting_network(fed):
    assert select_lambda(fed, [0.02, 5.0], 1) == 0.02


def test_every_penalty_of_a_path_is_a_result_of_its_own():
    results = run_simulated(Cell("federation", "strong", POINT, "fdbnl-paper", 0, quick=True))
    assert [one["lambda_w"] for one in results] == [0.05, 0.2, 0.5]
    assert all(0 <= one[part]["tpr"] <= 1 for one in results for part in "WA")


@pytest.mark.parametrize("method", ["fdbnl", "pfdbnl-paper"])
def test_an_example_keeps_weights_and_truth(method):
    point = Point(d=3, n_lags=2, n_sites=2, n_samples=60, mean_degree=1.0)
    (result,) = run_simulated(Cell("example", "paper-text", point, method, 0))
    assert np.array(result["weights"]["A"]).shape == np.array(result["truth"]["A"]).shape == (2, 3, 3)


def test_personal_scores_are_means_over_sites_against_their_own_truths():
    point = Point(d=5, n_sites=3, n_samples=240, mean_degree=3.0, heterogeneity="independent")
    results = run_simulated(Cell("personal", "strong", point, "local", 0))
    by_name = {one["variant"]: one for one in results}
    # One network for all cannot fit three different truths as well as each site's own.
    assert by_name["LocalOnly"]["W"]["tpr"] > by_name["Vote"]["W"]["tpr"]


TRUTH = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])


def test_a_perfect_directed_ranking_scores_one_by_every_protocol():
    score = TRUTH + np.eye(3)
    assert set(fmri_scores(TRUTH, score, score > 0.5).values()) == {1.0}


def test_self_loops_alone_look_good_by_the_papers_protocol_and_like_chance_without_the_diagonal():
    only_loops = np.eye(3)
    scores = fmri_scores(TRUTH, only_loops, only_loops > 0)
    assert scores["cut_off"] == scores["off"] == 0.5
    assert scores["cut_diagonal"] == scores["diagonal"] == pytest.approx(0.8)


@pytest.mark.parametrize("method", [ridge_var, lambda r: forest_var(r, n_trees=30)], ids=["ridge", "forest"])
def test_context_methods_rank_the_one_true_lagged_edge_first(method):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    x[1:, 2] += 0.8 * x[:-1, 0]
    score = method([x[:150], x[150:]])
    np.fill_diagonal(score, 0)
    assert np.unravel_index(score.argmax(), score.shape) == (0, 2)


def test_connectivity_levels_are_those_of_the_paper():
    assert [connectivity_degree("low", d) for d in (5, 10, 15, 20)] == [1, 3, 4, 6]
    assert [connectivity_degree("high", d) for d in (5, 10, 15, 20)] == [4, 8, 12, 16]
    for d in (1, 2, 3, 4):
        assert 0 <= connectivity_degree("low", d) <= connectivity_degree("high", d) <= d - 1
