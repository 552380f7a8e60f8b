"""Searches over many variables: shortcuts find what the long way finds."""

import numpy as np
import pytest

from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders import learn
from feddbn.core.orders import parents as regression
from feddbn.core.orders import search as searches
from feddbn.core.orders.learn import settle_directions
from feddbn.core.orders.parents import ParentRegressions, ScreenedRegressions, regressions_of
from feddbn.core.orders.search import Criterion, OrderSearch
from feddbn.core.statistics.moments import Moments
from support.simulated_moments import simulated


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
@pytest.mark.parametrize("seed", range(3))
def test_a_travelling_node_stops_wherever_something_changes(kind, seed):
    d, (moments, _) = 9, simulated(9, 150, seed)
    required = np.zeros((2 * d, d), dtype=bool)
    required[1, 5] = required[d + 2, 3] = True
    limits = EdgeConstraints(EdgeConstraints.none(d, 1).allowed, required)
    search = OrderSearch(moments, d, 1, limits, Criterion(0.6), kind)
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


def test_a_copy_of_a_parent_adds_nothing():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 6))
    z[:, 2] = z[:, 1]
    z[:, 0] += z[:, 1]
    moments = Moments.of_rows(z)
    plain, some = (kind(moments.scatter, moments.n, 3) for kind in (ParentRegressions, ScreenedRegressions))
    a, b = plain.fit(0, (1, 2)), some.fit(0, (1, 2))
    np.testing.assert_allclose((a.rss, *a.loss), (b.rss, *b.loss))
    assert b.gain[np.searchsorted(b.columns, [1, 2])].tolist() == [0.0, 0.0]


def test_only_many_variables_are_screened():
    assert type(regressions_of(np.eye(10), 50.0, 5)) is ParentRegressions
    assert type(regressions_of(np.eye(402), 5000.0, 201)) is ScreenedRegressions


@pytest.mark.parametrize("kind", ["equal", "free"])
@pytest.mark.parametrize("seed", range(2))
def test_screened_searches_find_the_same_network(kind, seed, few_are_many, monkeypatch):
    moments, truth = simulated(15, 600, seed)
    given = (moments, 15, 1, EdgeConstraints.none(15, 1), Criterion(), kind)
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
    search = OrderSearch(moments, 8, 1, EdgeConstraints.none(8, 1), Criterion(), "equal")
    m, j = np.argwhere(truth)[5 * which]
    known = search.regressions
    known._columns[j] = np.setdiff1d(known._columns[j], [m])
    known._places[j] = regression._places(known._columns[j])
    search.start_top_down(False)
    search._improve()
    assert not search.support_of(search.parents)[m, j]
    search.improve()
    assert search.support_of(search.parents)[m, j]
    # Every column has been looked at, or is of no use.
    for node, parents in enumerate(search.parents):
        every = ParentRegressions(moments.scatter, moments.n, 8).fit(node, parents)
        useful = np.flatnonzero(search.selection.objective.add_deltas(node, every) < -1e-9)
        assert {*useful.tolist()} <= {*known.columns(node).tolist(), node}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_network_of_many_is_learned_with_all_that_belongs_to_it(seed, few_are_many, monkeypatch):
    moments, truth = simulated(8, 800, seed)
    limits, options = EdgeConstraints.none(8, 1), learn.LearnOptions(average=False)
    found = learn.learn_network(moments, 8, 1, limits, options, np.random.default_rng(0))
    assert isinstance(found.search.regressions, ScreenedRegressions)
    assert (found.support == truth).all()
    monkeypatch.undo()
    expected = learn.learn_network(moments, 8, 1, limits, options, np.random.default_rng(0))
    assert found.units == expected.units
    assert [e.oriented for e in found.orientation] == [e.oriented for e in expected.orientation]


@pytest.mark.parametrize("kind", ["equal", "free"])
def test_the_score_of_a_reversal_is_that_of_its_network(kind, few_are_many):
    moments, _ = simulated(12, 300, 3)
    search = OrderSearch(moments, 12, 1, EdgeConstraints.none(12, 1), Criterion(), kind)
    found = search.run(0, np.random.default_rng(0))
    for i, j in np.argwhere(found.support[:12]).tolist():
        turned = search.best_reversed(found, i, j)
        assert search.score_reversed(found, i, j) == turned.score
        assert tuple(search.order) == found.order
        assert tuple(search.parents) == found.parents


def test_places_and_predecessors_follow_any_change_of_the_order():
    moments, _ = simulated(10, 100, 0)
    search = OrderSearch(moments, 10, 1, EdgeConstraints.none(10, 1), Criterion(), "equal")
    rng = np.random.default_rng(1)
    for k in range(30):
        order = rng.permutation(10).tolist() if k % 3 == 0 else list(search.order)
        order.insert(int(rng.integers(10)), order.pop(int(rng.integers(10))))
        search._place_all(order)
        assert [search._rank[j] for j in order] == list(range(10))
        assert all(search._before[j] == sum(1 << m for m in order[:place]) for place, j in enumerate(order))


def test_a_search_that_has_ended_looks_only_at_what_changed_since(few_are_many):
    moments, _ = simulated(15, 600, 1)
    search = OrderSearch(moments, 15, 1, EdgeConstraints.none(15, 1), Criterion(), "equal")
    best = search.run(0, np.random.default_rng(0))
    search._improve()
    assert search._unsettled() == []
    # A child in front of its parent: both, and whoever else is passed and matters to them.
    parent, child = np.argwhere(best.support[:15])[0].tolist()
    order = [j for j in search.order if j != child]
    search._place_all([*order[: order.index(parent)], child, *order[order.index(parent) :]])
    assert {parent, child} <= set(search._unsettled())
    search._restore(best)
    # So are a node that looks at more columns, and those around it.
    search._settled[1][child] = None
    assert child in search._unsettled()
    # Under another noise variance every node is looked at.
    search._use(search._objective_for(0.5, 30, 15))
    assert len(search._unsettled()) == 15


def test_who_could_use_whom_is_found_again_when_more_columns_are_looked_at(few_are_many):
    moments, truth = simulated(8, 800, 1)
    search = OrderSearch(moments, 8, 1, EdgeConstraints.none(8, 1), Criterion(), "equal")
    m, j = np.argwhere(truth[:8])[0].tolist()
    known = search.regressions
    known._columns[j] = np.setdiff1d(known._columns[j], [m])
    known._places[j] = regression._places(known._columns[j])
    search._place_all(range(8))
    search._neighbours.update(search.selection, search.parents)
    assert j not in search._neighbours.wanted_by[m]
    known.take_up(j, [m])
    search._forget([j])
    search._neighbours.update(search.selection, search.parents)
    assert j in search._neighbours.wanted_by[m]
