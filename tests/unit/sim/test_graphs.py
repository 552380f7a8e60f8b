import numpy as np
import pytest

from feddbn.core.graphs.constraints import has_cycle
from feddbn.sim.graphs import draw_dag, draw_lag_graph, draw_weights, n_scale_free_edges


def test_mean_degree_counts_edges_in_both_directions():
    rng = np.random.default_rng(0)
    d, n_draws = 10, 2000
    counts = [draw_dag("erdos-renyi", d, 4, rng)[0].sum() for _ in range(n_draws)]
    # Binomial(45, 4/9): mean 20, variance 100/9.
    assert abs(np.mean(counts) - 20) < 5 * np.sqrt(100 / 9 / n_draws)
    assert np.var(counts) == pytest.approx(100 / 9, rel=0.2)


def test_mean_degree_is_capped_at_the_complete_graph():
    rng = np.random.default_rng(0)
    for graph in ("erdos-renyi", "scale-free"):
        assert draw_dag(graph, 4, 100, rng)[0].sum() == 6
        assert draw_dag(graph, 1, 4, rng)[0].sum() == 0


@pytest.mark.parametrize("mean_degree", [0, 1, 2, 3.5, 4, 9])
def test_scale_free_graphs_have_exactly_the_edges_asked_for(mean_degree):
    rng = np.random.default_rng(1)
    for d in (2, 10, 25):
        adjacency, _ = draw_dag("scale-free", d, mean_degree, rng)
        assert (
            adjacency.sum()
            == n_scale_free_edges(d, mean_degree)
            == min(round(mean_degree * d / 2), d * (d - 1) // 2)
        )


def test_scale_free_graphs_have_hubs_that_are_causes():
    rng = np.random.default_rng(2)
    largest = {
        graph: np.mean([draw_dag(graph, 60, 4, rng)[0].sum(axis=1).max() for _ in range(50)])
        for graph in ("erdos-renyi", "scale-free")
    }
    assert largest["scale-free"] > 2 * largest["erdos-renyi"]


@pytest.mark.parametrize("graph", ["erdos-renyi", "scale-free"])
def test_every_graph_is_acyclic_and_follows_its_order(graph):
    rng = np.random.default_rng(3)
    for _ in range(50):
        adjacency, order = draw_dag(graph, 12, 6, rng)
        assert not has_cycle(adjacency)
        assert not np.tril(adjacency[np.ix_(order, order)]).any()


def test_the_causal_order_is_random():
    rng = np.random.default_rng(4)
    firsts = [draw_dag("erdos-renyi", 5, 2, rng)[1][0] for _ in range(500)]
    assert np.bincount(firsts, minlength=5).min() > 60


def test_lag_degree_is_the_mean_out_degree_and_self_edges_occur():
    rng = np.random.default_rng(5)
    graphs = np.array([draw_lag_graph(10, 1.0, rng) for _ in range(2000)])
    assert abs(graphs.sum(axis=(1, 2)).mean() - 10) < 5 * np.sqrt(9 / 2000)
    assert np.trace(graphs, axis1=1, axis2=2).mean() == pytest.approx(1.0, abs=0.12)


def test_weights_are_uniform_in_size_with_either_sign_and_zero_off_the_graph():
    rng = np.random.default_rng(6)
    mask = rng.random((200, 200)) < 0.5
    weights = draw_weights(mask, (0.3, 0.5), rng, scale=0.5)
    assert np.all(weights[~mask] == 0)
    sizes = np.abs(weights[mask])
    assert sizes.min() >= 0.15
    assert sizes.max() <= 0.25
    assert sizes.mean() == pytest.approx(0.2, abs=0.002)
    assert sizes.std() == pytest.approx(0.1 / np.sqrt(12), rel=0.03)
    assert (weights[mask] > 0).mean() == pytest.approx(0.5, abs=0.02)
