"""The first order of a Gram matrix, by variances alone.

Searches over many variables: shortcuts find what the long way finds.
"""

import numpy as np
import pytest

from feddbn.core.constraints import EdgeConstraints
from feddbn.core.orders import learn
from feddbn.core.orders import parents as regression
from feddbn.core.orders import search as searches
from feddbn.core.orders.learn import settle_directions
from feddbn.core.orders.parents import Criterion, ParentRegressions, ScreenedRegressions, regressions_of
from feddbn.core.orders.search import OrderSearch, evident_support, order_by_variance, search_order
from feddbn.core.penalised.personal_site import searched_order
from support.simulated_moments import lagged_moments, simulated


def searched(moments, d, n_lags=1, limits=None, **options):
    return search_order(moments, limits or EdgeConstraints.none(d, n_lags), **options)


def wrong(result, truth):
    return int((result.support != truth).sum())


@pytest.mark.slow
@pytest.mark.parametrize("noise_variance", ["equal", "free"])
def test_the_network_is_recovered_from_512_rows(noise_variance):
    mistakes = []
    for seed in range(6):
        moments, truth = simulated(10, 512, seed)
        mistakes.append(wrong(searched(moments, 10, 1, noise_variance=noise_variance, n_restarts=3), truth))
    # A reversal counts twice; free variances may leave an edge or two open.
    assert np.mean(mistakes) <= (1.0 if noise_variance == "equal" else 2.5)


def test_the_reported_score_is_that_of_the_reported_network():
    moments, _ = simulated(6, 200, 0)
    for kind in ("equal", "free"):
        result = searched(moments, 6, 1, noise_variance=kind, criterion=Criterion(1.5))
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
        search = OrderSearch(moments, EdgeConstraints.none(8, 1), Criterion(), kind)
        at_truth = search.adopt(truth).score
        assert search.run(3, np.random.default_rng(0)).score <= at_truth + 1e-6


@pytest.mark.slow
def test_free_variances_ignore_the_units_and_equal_ones_do_not():
    for seed in range(4):
        factors = np.random.default_rng(seed).uniform(0.01, 100, 8)
        found = [
            searched(simulated(8, 150, seed, factors=by)[0], 8, 1, noise_variance="free", n_restarts=2)
            for by in (None, factors)
        ]
        assert np.array_equal(found[0].support, found[1].support)
    moments, truth = simulated(10, 512, 0, factors=np.random.default_rng(0).uniform(0.5, 2, 10))
    equal = searched(moments, 10, 1, noise_variance="equal")
    free = searched(moments, 10, 1, noise_variance="free", n_restarts=3)
    assert wrong(free, truth) < wrong(equal, truth)


def test_required_edges_are_in_forbidden_edges_are_out_and_all_follow_the_order():
    moments, truth = simulated(8, 512, 1)
    i, j = np.argwhere(truth[:8])[0]
    names = [f"x{k}" for k in range(8)]
    limits = EdgeConstraints.from_edges(
        names, 1, forbidden=[(int(i), int(j), 0)], required=[(0, 1, 1), (7, 0, 0)]
    )
    result = searched(moments, 8, 1, limits, n_restarts=2)
    assert not result.support[i, j]
    assert result.support[8 + 0, 1]
    assert result.support[7, 0]
    rank = np.argsort(result.order)
    sources, targets = np.nonzero(result.support[:8])
    assert (rank[sources] < rank[targets]).all()
    nothing = EdgeConstraints(np.zeros((16, 8), bool), np.zeros((16, 8), bool))
    assert not searched(moments, 8, 1, nothing).support.any()


def test_the_same_seed_gives_the_same_network_and_restarts_never_worsen_it():
    moments, _ = simulated(10, 60, 3)
    results = [searched(moments, 10, 1, n_restarts=4, rng=np.random.default_rng(5)) for _ in range(2)]
    assert results[0].order == results[1].order
    assert np.array_equal(results[0].support, results[1].support)
    scores = [searched(moments, 10, 1, n_restarts=k).score for k in (0, 2, 8)]
    assert scores[0] >= scores[1] >= scores[2]


def test_fewer_rows_than_columns_gives_a_finite_answer():
    moments, _ = simulated(12, 16, 0)
    for kind in ("equal", "free"):
        result = searched(moments, 12, 1, noise_variance=kind)
        assert np.isfinite(result.score)
        assert max(len(p) for p in result.parents) <= 8


def test_extended_bic_charges_for_the_number_of_networks():
    plain, extended = Criterion(1.0), Criterion(1.0, 0.5)
    assert extended.total(100, 5, 1, 3, 0) - plain.total(100, 5, 1, 3, 0) == pytest.approx(np.log(120))
    sparse = extended.marginal(100, 20, 1, 5, 5)
    dense = extended.marginal(100, 20, 1, 150, 200)
    assert (sparse > dense).all()


FOUR = 4
W = np.zeros((FOUR, FOUR))
W[0, 1], W[1, 2], W[0, 3] = 0.6, -0.5, 0.15
A = np.zeros((FOUR, FOUR))
A[2, 2], A[3, 0], A[1, 3] = 0.5, 0.4, 0.12
TRUTH = np.concatenate([W, A]) != 0


def chain_moments(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    x = np.zeros((n, FOUR))
    for t in range(1, n):
        x[t] = (x[t - 1] @ A + rng.standard_normal(FOUR)) @ np.linalg.inv(np.eye(FOUR) - W)
    return lagged_moments(x)


def bic_of(found, support):
    """By hand: n log RSS of every node, and log n for each edge."""
    G, total = found.scatter, 0.0
    for j in range(FOUR):
        S = np.flatnonzero(support[:, j])
        left = G[j, j] - G[j, S] @ np.linalg.solve(G[np.ix_(S, S)], G[S, j]) if len(S) else G[j, j]
        total += found.n * np.log(left) + len(S) * np.log(found.n)
    return total


def pairs(support):
    return support[:FOUR] | support[:FOUR].T


@pytest.mark.parametrize("start", ["empty", "thresholded", "turned", "true"])
def test_weak_effects_that_a_network_leaves_out_are_found_from_anywhere(start):
    weights = np.concatenate([W, A])
    given = {
        "empty": np.zeros_like(TRUTH),
        "thresholded": np.abs(weights) > 0.2,
        "turned": TRUTH.copy(),
        "true": TRUTH,
    }[start]
    if start == "turned":
        given[0, 1], given[1, 0] = False, True
    found = evident_support(chain_moments(), given, EdgeConstraints.none(FOUR, 1))
    np.testing.assert_array_equal(pairs(found), pairs(TRUTH))
    assert bic_of(chain_moments(), found) <= bic_of(chain_moments(), TRUTH) + 1e-6


def test_no_edge_appears_that_is_forbidden_and_none_goes_that_is_required():
    limits = EdgeConstraints.from_edges(
        tuple("abcd"), 1, [("d", "a", 1), ("a", "b", 0), ("b", "a", 0)], [("c", "d", 0)]
    )
    found = evident_support(chain_moments(), np.zeros_like(TRUTH), limits)
    assert not (found & ~limits.allowed).any()
    assert found[2, 3]


def present_and_past(seed, d=5, n=400):
    """Present and past of d variables; each present one depends on the ones before it in a random order, and on its past."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(d)
    X, Y = np.zeros((n, d)), rng.normal(size=(n, d))
    for place, node in enumerate(order):
        X[:, node] = 0.5 * Y[:, node] + X[:, order[:place]].sum(axis=1) + rng.normal(size=n)
    return order.tolist(), np.hstack([X, Y])


def plain_order(Z, d):
    """The same by regressions on the present_and_past."""
    order, waiting = [], list(range(d))
    while waiting:
        given = Z[:, [*order, *range(d, Z.shape[1])]]

        def left(j, given=given):
            return np.sum((Z[:, j] - given @ np.linalg.lstsq(given, Z[:, j], rcond=None)[0]) ** 2)

        order.append(min(waiting, key=left))
        waiting.remove(order[-1])
    return order


@pytest.mark.parametrize("seed", range(4))
def test_it_is_that_of_regressions_on_everything_before(seed):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(60, 8)) @ rng.normal(size=(8, 8))
    assert order_by_variance(Z.T @ Z / 60, 4) == plain_order(Z, 4)
    assert order_by_variance(Z.T @ Z / 60, 8) == plain_order(Z, 8)


def test_with_many_rows_it_is_the_true_one_where_noise_is_equal_also_of_dependent_columns():
    for seed in range(4):
        truth, Z = present_and_past(seed)
        assert order_by_variance(Z.T @ Z / len(Z), 5) == truth
    Z[:, 4], Z[:, 9], Z[:, 2] = Z[:, 0], Z[:, 5], 0.0
    assert sorted(order_by_variance(Z.T @ Z / len(Z), 5)) == list(range(5))


def test_few_rows_or_edges_that_are_forbidden_or_required_need_the_search():
    truth, Z = present_and_past(1)
    G, free = Z.T @ Z / len(Z), EdgeConstraints.none(5, 1)
    assert free.is_free
    assert np.array_equal(searched_order(G, len(Z), free, moves=False), free.within_order(truth).allowed)
    # Required against the truth: the last comes first.
    first, last = truth[0], truth[-1]
    required = EdgeConstraints.from_edges(list("abcde"), 1, required=[(last, first, 0)])
    forbidden = EdgeConstraints.from_edges(list("abcde"), 1, forbidden=[(first, last, 1)])
    assert not required.is_free
    assert not forbidden.is_free
    assert searched_order(G, len(Z), required, moves=False)[last, first]
    # Where present_and_past are no more than columns every variance given all others is nothing.
    few = Z[:8]
    found = searched_order(few.T @ few / 8, 8, free, moves=False)
    assert sorted(found[:5].sum(axis=0).tolist()) == list(range(5))


@pytest.fixture
def few_are_many(monkeypatch):
    for module in (regression, searches, learn):
        monkeypatch.setattr(module, "MANY_NODES", 4)


def step_by_step(search, node, here, step, past=None):
    """The scan of an insertion that looks at every place."""
    select, order = search.selection.select, search.order
    own = search.parents[node]
    start = cost = search._moves(node).cost
    others, changes, best = 0.0, {}, (0.0 if past is None else np.inf, here, {})
    for place in range(here + step, search.d if step > 0 else -1, step):
        passed = order[place]
        follower, leader = (node, passed) if step < 0 else (passed, node)
        if search._must_follow[follower] >> leader & 1:
            break
        rest = [j for j in order if j != node]
        before = set(rest[:place])
        candidates = search._may_have[node] & (sum(search._bits[j] for j in before) | search._lags)
        own, cost = select(node, own, candidates)
        other = search._candidates(passed) ^ (search._may_have[passed] & search._bits[node])
        parents, its_cost = select(passed, search.parents[passed], other)
        if parents != search.parents[passed]:
            others += its_cost - search._moves(passed).cost
            changes[passed] = parents
        if past is not None and (place - past) * step < 0:
            continue
        if cost - start + others < best[0] - 1e-9:
            best = (cost - start + others, place, {**changes, node: own})
    return best


@pytest.mark.parametrize("kind", ["equal", "free"])
@pytest.mark.parametrize("seed", range(2))
def test_a_travelling_node_stops_wherever_something_changes(kind, seed):
    d, (moments, _) = 9, simulated(9, 150, seed)
    required = np.zeros((2 * d, d), dtype=bool)
    required[1, 5] = required[d + 2, 3] = True
    limits = EdgeConstraints(EdgeConstraints.none(d, 1).allowed, required)
    search = OrderSearch(moments, limits, Criterion(0.6), kind)
    search.start_top_down(False)
    search._shake(np.random.default_rng(seed))
    search._update_objective()
    search.parents = [
        search.selection.select(j, search.parents[j], search._candidates(j))[0] for j in range(d)
    ]
    n_moves = 0
    for node in range(d):
        here = search.order.index(node)
        for step in (-1, 1):
            for past in (None, here + 2 * step):
                if past is not None and not 0 <= past < d:
                    continue
                cost, place, changes = search._scan(node, here, step, past)
                expected = step_by_step(search, node, here, step, past)
                assert cost == pytest.approx(expected[0], abs=1e-6)
                assert place == expected[1]
                same = {j: p for j, p in changes.items() if p != search.parents[j]}
                assert same == {j: p for j, p in expected[2].items() if p != search.parents[j]}
                n_moves += place != here
    assert n_moves > 10


def test_screened_fits_are_those_of_all_columns_where_they_look():
    moments, _ = simulated(12, 400, 0)
    plain, some = (kind(moments.scatter, moments.n, 12) for kind in (ParentRegressions, ScreenedRegressions))
    n_left_out = 0
    for node, parents in [(0, ()), (3, (1, 14)), (7, (2, 5, 19))]:
        a, b = plain.fit(node, parents), some.fit(node, parents)
        assert set(parents) <= set(some.columns(node).tolist())
        np.testing.assert_allclose(a.rss, b.rss)
        np.testing.assert_allclose(a.loss, b.loss)
        np.testing.assert_allclose(a.gain[b.columns], b.gain, atol=1e-15)
        left_out = np.setdiff1d(np.arange(24), b.columns)
        np.testing.assert_allclose(some.missed(node, parents)[left_out], a.gain[left_out])
        n_left_out += len(left_out) - 1
    assert n_left_out > 10
    assert type(regressions_of(np.eye(10), 50.0, 5)) is ParentRegressions
    assert type(regressions_of(np.eye(402), 5000.0, 201)) is ScreenedRegressions


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["equal", "free"])
@pytest.mark.parametrize("seed", range(2))
def test_screened_searches_find_the_same_network(kind, seed, few_are_many, monkeypatch):
    moments, truth = simulated(15, 600, seed)
    given = (moments, EdgeConstraints.none(15, 1), Criterion(), kind)
    screened = OrderSearch(*given)
    assert isinstance(screened.regressions, ScreenedRegressions)
    network, firmness = settle_directions(screened, screened.run(1, np.random.default_rng(0)))
    monkeypatch.undo()
    whole = OrderSearch(*given)
    expected, firm = settle_directions(whole, whole.run(1, np.random.default_rng(0)))
    assert network.score == pytest.approx(expected.score, rel=1e-9)
    assert (network.support != truth).sum() <= (expected.support != truth).sum()
    # A few reversals start from other neighbours; what is decided is the same.
    assert [e.oriented for e in firmness] == [e.oriented for e in firm]


@pytest.mark.parametrize("which", range(4))
def test_a_parent_that_screening_left_out_is_taken_up(which, few_are_many):
    moments, truth = simulated(8, 800, 1)
    search = OrderSearch(moments, EdgeConstraints.none(8, 1), Criterion(), "equal")
    m, j = np.argwhere(truth)[5 * which]
    known = search.regressions
    known._columns[j] = np.setdiff1d(known._columns[j], [m])
    search.start_top_down(False)
    search._improve()
    assert not search.regressions.support_of(search.parents)[m, j]
    search.improve()
    assert search.regressions.support_of(search.parents)[m, j]
    # Every column has been looked at, or is of no use.
    for node, parents in enumerate(search.parents):
        every = ParentRegressions(moments.scatter, moments.n, 8).fit(node, parents)
        useful = np.flatnonzero(search.selection.objective.add_deltas(node, every) < -1e-9)
        assert {*useful.tolist()} <= {*known.columns(node).tolist(), node}


@pytest.mark.parametrize("kind", ["equal", "free"])
def test_a_search_is_where_it_was_after_a_reversal(kind, few_are_many):
    moments, _ = simulated(12, 300, 3)
    search = OrderSearch(moments, EdgeConstraints.none(12, 1), Criterion(), kind)
    found = search.run(0, np.random.default_rng(0))
    for i, j in np.argwhere(found.support[:12]).tolist():
        turned = search.best_reversed(found, i, j)
        assert turned.score == search.score_of(turned.parents)
        assert tuple(search.order) == found.order
        assert tuple(search.parents) == found.parents
