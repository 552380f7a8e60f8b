import numpy as np
import pytest

from feddbn.core.graphs.constraints import EdgeConstraints, has_cycle
from feddbn.core.orders.search import Criterion, OrderSearch, search_order
from support.simulated_moments import simulated


def wrong(result, truth):
    return int((result.support != truth).sum())


@pytest.mark.parametrize("noise_variance", ["equal", "free"])
def test_the_network_is_recovered_from_512_rows(noise_variance):
    mistakes = []
    for seed in range(6):
        moments, truth = simulated(10, 512, seed)
        mistakes.append(
            wrong(search_order(moments, 10, 1, noise_variance=noise_variance, n_restarts=3), truth)
        )
    # A reversal counts twice; free variances may leave an edge or two open.
    assert np.mean(mistakes) <= (1.0 if noise_variance == "equal" else 2.5)


def test_the_reported_score_is_that_of_the_reported_network():
    moments, _ = simulated(6, 200, 0)
    for kind in ("equal", "free"):
        result = search_order(moments, 6, 1, noise_variance=kind, criterion=Criterion(1.5))
        rss = []
        for j in range(6):
            S = list(result.parents[j])
            G = moments.scatter
            rss.append(G[j, j] - G[j, S] @ np.linalg.solve(G[np.ix_(S, S)], G[S, j]))
        n, edges = moments.n, result.support.sum()
        fit = n * 6 * np.log(sum(rss) / (n * 6)) if kind == "equal" else n * np.log(np.array(rss) / n).sum()
        assert result.score == pytest.approx(fit + 1.5 * np.log(n) * edges)
        np.testing.assert_allclose(result.rss, rss)


@pytest.mark.parametrize("kind", ["equal", "free"])
def test_search_never_ends_above_the_true_network(kind):
    for seed in range(5):
        moments, truth = simulated(8, 600, seed)
        search = OrderSearch(moments, 8, 1, EdgeConstraints.none(8, 1), Criterion(), kind)
        at_truth = search.adopt(truth).score
        assert search.run(3, np.random.default_rng(0)).score <= at_truth + 1e-6


def test_edges_follow_the_order():
    moments, _ = simulated(12, 100, 0)
    result = search_order(moments, 12, 1, criterion=Criterion(0.5))
    rank = np.argsort(result.order)
    sources, targets = np.nonzero(result.support[:12])
    assert (rank[sources] < rank[targets]).all()
    assert not has_cycle(result.support[:12])


def test_free_variances_ignore_the_units():
    for seed in range(4):
        factors = np.random.default_rng(seed).uniform(0.01, 100, 8)
        plain, _ = simulated(8, 150, seed)
        scaled, _ = simulated(8, 150, seed, factors=factors)
        first = search_order(plain, 8, 1, noise_variance="free", n_restarts=2)
        second = search_order(scaled, 8, 1, noise_variance="free", n_restarts=2)
        assert np.array_equal(first.support, second.support)


def test_equal_variances_depend_on_the_units():
    factors = np.random.default_rng(0).uniform(0.5, 2, 10)
    moments, truth = simulated(10, 512, 0, factors=factors)
    equal = search_order(moments, 10, 1, noise_variance="equal")
    free = search_order(moments, 10, 1, noise_variance="free", n_restarts=3)
    assert wrong(free, truth) < wrong(equal, truth)


def test_required_edges_are_in_and_forbidden_edges_are_out():
    moments, truth = simulated(8, 512, 1)
    i, j = np.argwhere(truth[:8])[0]
    names = [f"x{k}" for k in range(8)]
    limits = EdgeConstraints.from_edges(
        names, 1, forbidden=[(int(i), int(j), 0)], required=[(0, 1, 1), (7, 0, 0)]
    )
    result = search_order(moments, 8, 1, limits, n_restarts=2)
    assert not result.support[i, j]
    assert result.support[8 + 0, 1]
    assert result.support[7, 0]
    assert not has_cycle(result.support[:8])


def test_everything_forbidden_leaves_the_required_edges_only():
    moments, _ = simulated(4, 100, 0)
    limits = EdgeConstraints(np.zeros((8, 4), bool), np.zeros((8, 4), bool))
    assert not search_order(moments, 4, 1, limits).support.any()


def test_the_same_seed_gives_the_same_network():
    moments, _ = simulated(10, 60, 3)
    results = [search_order(moments, 10, 1, n_restarts=4, rng=np.random.default_rng(5)) for _ in range(2)]
    assert results[0].order == results[1].order
    assert np.array_equal(results[0].support, results[1].support)


def test_restarts_never_worsen_the_score():
    moments, _ = simulated(10, 60, 3)
    scores = [search_order(moments, 10, 1, n_restarts=k).score for k in (0, 2, 8)]
    assert scores[0] >= scores[1] >= scores[2]


def test_no_lags_and_several_lags_work():
    moments, truth = simulated(6, 800, 0, n_lags=0)
    assert wrong(search_order(moments, 6, 0, n_restarts=2), truth) <= 2
    moments, truth = simulated(5, 1500, 0, n_lags=2)
    assert wrong(search_order(moments, 5, 2, n_restarts=2), truth) <= 2


def test_fewer_rows_than_columns_gives_a_finite_answer():
    moments, _ = simulated(12, 16, 0)
    for kind in ("equal", "free"):
        result = search_order(moments, 12, 1, noise_variance=kind)
        assert np.isfinite(result.score)
        assert max(len(p) for p in result.parents) <= 8


def test_extended_bic_charges_for_the_number_of_networks():
    plain, extended = Criterion(1.0), Criterion(1.0, 0.5)
    assert extended.total(100, 5, 1, 3, 0) - plain.total(100, 5, 1, 3, 0) == pytest.approx(np.log(120))
    sparse = extended.marginal(100, 20, 1, 5, 5)
    dense = extended.marginal(100, 20, 1, 150, 200)
    assert (sparse > dense).all()
