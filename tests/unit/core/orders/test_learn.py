"""Equal or free noise variances: scores decide where Bartlett's statistic alone is in doubt.

`core.orders.learn`: shares of explained variance, against regressions on rows.
"""

import itertools

import numpy as np
import pytest
from scipy import stats

import feddbn
from feddbn.core.constraints import EdgeConstraints, has_cycle
from feddbn.core.orders.learn import (
    CLEAR_ADVANTAGE,
    choose_noise,
    compelled_edges,
    explained_shares,
    needed_advantage,
    price_of_free,
    refit,
    settle_directions,
    variance_difference,
    varsortability,
)
from feddbn.core.orders.parents import Criterion
from feddbn.core.orders.search import OrderResult, OrderSearch
from feddbn.core.statistics.moments import Moments
from support.simulated_moments import lagged, simulated


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


def test_a_lone_edge_is_open_and_lags_or_what_is_known_direct_it():
    assert not compelled_edges(network(2, [(0, 1)]))[0, 1]
    assert compelled_edges(network(2, [(0, 1)], lagged=[(0, 0)]))[0, 1]
    assert compelled_edges(network(2, [(0, 1)], lagged=[(1, 1)]))[0, 1]
    assert not compelled_edges(network(2, [(0, 1)], lagged=[(0, 0), (0, 1)]))[0, 1]
    chain, known = network(3, [(0, 1), (1, 2)]), np.zeros((3, 3), bool)
    assert not compelled_edges(chain).any()
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
    search = OrderSearch(Moments.of_rows(z), EdgeConstraints.none(4, 1), Criterion(), "free")
    _, edges = settle_directions(search, search.run(2, rng))
    table = {frozenset((e.source, e.target)): e for e in edges}
    assert table[frozenset((0, 1))].score_difference == 0.0
    assert not table[frozenset((0, 1))].oriented
    directed = table[frozenset((2, 3))]
    assert (directed.source, directed.target) == (3, 2)
    assert directed.oriented


def test_asking_about_a_reversal_leaves_the_search_as_it_was():
    moments, _ = simulated(6, 300, 0)
    search = OrderSearch(moments, EdgeConstraints.none(6, 1), Criterion(), "equal")
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
        search = OrderSearch(moments, EdgeConstraints.none(6, 1), Criterion(), "equal")
        first = search.run(0, np.random.default_rng(0))
        settled, edges = settle_directions(search, first)
        assert settled.score <= first.score + 1e-9
        assert all(e.score_difference >= 0 for e in edges)
        assert {(e.source, e.target) for e in edges} == {
            tuple(e) for e in np.argwhere(settled.support[:6]).tolist()
        }
        improved += settled.score < first.score - 1e-6
    assert improved >= 1


def network_of(variances, n):
    d = len(variances)
    rss = np.asarray(variances, dtype=float) * (n - 1)
    return OrderResult(tuple(range(d)), ((),) * d, rss, 0.0, "equal", np.zeros((d, d), dtype=bool))


def test_bartletts_statistic_agrees_with_scipy():
    samples = np.random.default_rng(0).standard_normal((40, 4)) * np.array([1.0, 1.0, 1.5, 0.7])
    network = network_of(samples.var(axis=0, ddof=1), 40)
    assert variance_difference(network, 40.0) == pytest.approx(stats.bartlett(*samples.T).statistic)


@pytest.mark.parametrize(
    ("largest", "expected"), [(1.0, np.inf), (1.1, np.inf), (1.4, CLEAR_ADVANTAGE), (2.0, 0.0)]
)
def test_the_more_variances_differ_the_less_free_ones_must_gain(largest, expected):
    assert needed_advantage(network_of([1.0, 1.0, 1.0, 1.0, largest], 500), 500.0) == expected


@pytest.mark.parametrize("seed", [104, 138])
def test_scores_overrule_residual_variances_that_wrong_edges_made_alike(seed):
    fed = feddbn.simulate(
        d=10,
        n_sites=64,
        n_samples=512,
        mean_degree=2.5,
        w_range=(0.3, 0.6),
        corruptions="unit-variance",
        random_state=seed,
    )
    rows = [lagged(np.asarray(frame)) for frames in fed.sites.values() for frame in frames]
    moments = Moments.of_rows(np.vstack(rows))
    limits, rng = EdgeConstraints.none(10, 1), np.random.default_rng(0)
    searches, choice = choose_noise(moments, limits, Criterion(), "auto", 2, rng)
    truth = np.concatenate([fed.truth.W, fed.truth.A[0]]) != 0
    wrong = {kind: int((found.support != truth).sum()) for kind, (_, found) in searches.items()}
    # Bartlett's statistic alone would keep equal variances.
    assert variance_difference(searches["equal"][1], moments.n) < price_of_free(10, moments.n)
    assert choice.kind == "free"
    assert wrong["free"] <= 3 < 20 < wrong["equal"]


def test_paths_are_those_of_matrix_powers():
    rng = np.random.default_rng(0)
    W = np.triu(rng.random((12, 12)) < 0.3, 1)
    W[:, 4] = W[6] = False
    variances = rng.permutation(12).astype(float)
    n_paths = rising = 0
    for length in range(1, 12):
        causes, effects = np.nonzero(np.linalg.matrix_power(W.astype(int), length))
        n_paths += len(causes)
        rising += int((variances[effects] > variances[causes]).sum())
    assert varsortability(W, variances) == rising / n_paths


def shares_of(rows: np.ndarray, support: np.ndarray) -> np.ndarray:
    moments = Moments.of_rows(rows)
    return explained_shares(moments.scatter, refit(moments, support)[0])


def slow_network() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((401, 3)).cumsum(axis=0) * 0.3 + rng.standard_normal((401, 3))
    rows = np.hstack([x[1:], x[:-1]])
    support = np.zeros((6, 3), dtype=bool)
    support[[0, 3, 4], 1] = True
    support[[1, 5, 4], 2] = True
    return rows, support


def test_the_shares_of_a_target_add_up_to_its_r_squared_in_any_units():
    rows, support = slow_network()
    shares = shares_of(rows, support)
    for j in range(3):
        X = np.column_stack([rows[:, support[:, j]], np.ones(len(rows))])
        residual = rows[:, j] - X @ np.linalg.lstsq(X, rows[:, j], rcond=None)[0]
        assert shares[:, j].sum() == pytest.approx(1 - residual.var() / rows[:, j].var(), abs=1e-10)
    assert not shares[:, 0].any(), "a variable without parents has nothing explained"
    units = np.tile([1e-3, 10.0, 500.0], 2)
    np.testing.assert_allclose(shares_of(rows * units + 7.0 * units, support), shares, atol=1e-9)


def test_a_parent_that_only_corrects_another_has_a_negative_share():
    rng = np.random.default_rng(2)
    level = rng.standard_normal(2000)
    a = level + 0.3 * rng.standard_normal(2000)
    b = level + 0.3 * rng.standard_normal(2000)
    y = 1.5 * a - 0.5 * b + rng.standard_normal(2000)
    support = np.zeros((3, 3), dtype=bool)
    support[:2, 2] = True
    shares = shares_of(np.column_stack([a, b, y]), support)
    assert shares[1, 2] < 0 < shares[0, 2]
