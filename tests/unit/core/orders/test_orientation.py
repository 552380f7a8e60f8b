import itertools

import numpy as np
import pytest

from feddbn.core.graphs.constraints import EdgeConstraints, has_cycle
from feddbn.core.orders.learn import compelled_edges, settle_directions
from feddbn.core.orders.search import Criterion, OrderSearch
from feddbn.core.statistics.moments import Moments
from support.simulated_moments import simulated


def network(d, edges, lagged=()):
    support = np.zeros((2 * d, d), dtype=bool)
    for i, j in edges:
        support[i, j] = True
    for i, j in lagged:
        support[d + i, j] = True
    return support


def key(support):
    """Adjacencies and unshielded colliders, lags included: what defines an equivalence class."""
    d = support.shape[1]
    W = support[:d]
    adjacent = W | W.T
    colliders = set()
    for j in range(d):
        for a, b in itertools.combinations(np.flatnonzero(support[:, j]), 2):
            if b < d:
                shielded = adjacent[a, b]
            elif a < d:
                shielded = support[b, a]
            else:
                shielded = True
            if not shielded:
                colliders.add((int(a), int(b), j))
    return adjacent.tobytes(), support[d:].tobytes(), frozenset(colliders)


def equivalent_networks(support):
    d = support.shape[1]
    edges = np.argwhere(support[:d])
    for flips in itertools.product((False, True), repeat=len(edges)):
        other = support.copy()
        other[:d] = False
        for (i, j), flip in zip(edges, flips, strict=True):
            other[(j, i) if flip else (i, j)] = True
        if not has_cycle(other[:d]) and key(other) == key(support):
            yield other


@pytest.mark.parametrize("seed", range(30))
def test_compelled_edges_are_those_common_to_all_equivalent_networks(seed):
    rng = np.random.default_rng(seed)
    d = 4
    support = np.zeros((2 * d, d), dtype=bool)
    support[:d] = np.triu(rng.random((d, d)) < 0.6, 1)
    support[d:] = rng.random((d, d)) < 0.12
    common = np.all([other[:d] for other in equivalent_networks(support)], axis=0)
    assert np.array_equal(compelled_edges(support), common)


def test_a_lone_edge_is_open_and_a_lag_parent_directs_it():
    assert not compelled_edges(network(2, [(0, 1)]))[0, 1]
    assert compelled_edges(network(2, [(0, 1)], lagged=[(0, 0)]))[0, 1]
    assert compelled_edges(network(2, [(0, 1)], lagged=[(1, 1)]))[0, 1]
    assert not compelled_edges(network(2, [(0, 1)], lagged=[(0, 0), (0, 1)]))[0, 1]


def test_what_is_known_directs_more():
    chain = network(3, [(0, 1), (1, 2)])
    assert not compelled_edges(chain).any()
    known = np.zeros((3, 3), bool)
    known[0, 1] = True
    assert compelled_edges(chain, known)[1, 2]


def test_open_edges_score_the_same_and_directed_edges_do_not():
    rng = np.random.default_rng(0)
    n = 2000
    # x0 -> x1 with no past at all cannot be directed; x3 -> x2 with x3's own past can.
    x = rng.standard_normal((n + 1, 4))
    x[:, 1] += 0.8 * x[:, 0]
    for t in range(1, n + 1):
        x[t, 3] += 0.7 * x[t - 1, 3]
    x[:, 2] += 0.8 * x[:, 3]
    z = np.hstack([x[1:], x[:-1]])
    search = OrderSearch(Moments.of_rows(z), 4, 1, EdgeConstraints.none(4, 1), Criterion(), "free")
    _, edges = settle_directions(search, search.run(2, rng))
    table = {frozenset((e.source, e.target)): e for e in edges}
    assert table[frozenset((0, 1))].score_difference == 0.0
    assert not table[frozenset((0, 1))].oriented
    directed = table[frozenset((2, 3))]
    assert (directed.source, directed.target) == (3, 2)
    assert directed.oriented


def test_asking_about_a_reversal_leaves_the_search_as_it_was():
    moments, _ = simulated(6, 300, 0)
    search = OrderSearch(moments, 6, 1, EdgeConstraints.none(6, 1), Criterion(), "equal")
    result = search.run(1, np.random.default_rng(0))
    for i, j in np.argwhere(result.support[:6])[:3]:
        other = search.best_reversed(result, int(i), int(j))
        assert other.order.index(j) < other.order.index(i)
        assert not has_cycle(other.support[:6])
    assert search.result().parents == result.parents
    assert search.result().order == result.order


def test_a_better_network_met_while_asking_is_kept():
    improved = 0
    for seed in range(6):
        moments, _ = simulated(6, 300, seed)
        search = OrderSearch(moments, 6, 1, EdgeConstraints.none(6, 1), Criterion(), "equal")
        first = search.run(0, np.random.default_rng(0))
        settled, edges = settle_directions(search, first)
        assert settled.score <= first.score + 1e-9
        assert all(e.score_difference >= 0 for e in edges)
        assert {(e.source, e.target) for e in edges} == {
            tuple(e) for e in np.argwhere(settled.support[:6]).tolist()
        }
        improved += settled.score < first.score - 1e-6
    assert improved >= 1
