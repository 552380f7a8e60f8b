"""Regressions of several columns on several: determinants of residual covariances, made directly and by updates.

Open directions are decided by what models of the variables' own kinds cost.
"""

import numpy as np
import pytest

from feddbn.core.constraints import EdgeConstraints
from feddbn.core.orders.groups import CodedRegressions, Groups
from feddbn.core.orders.learn import MOST_OPEN_OF_A_NODE, EdgeOrientation, OrderLearner, Review
from feddbn.core.orders.parents import Criterion, ParentRegressions
from feddbn.core.statistics.moments import Moments

COLUMNS = [(0,), (1, 2), (3,), (4,), (5, 6), (7,)]
"""Three variables, the second with two columns, now and a time step before."""
GROUPS = Groups(3, tuple(COLUMNS))
LEARNER = OrderLearner("free", Criterion(1.0, order_c=1.0), groups=GROUPS)


def made(seed=0, n=400):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 8))
    x[:, 1] += 0.8 * x[:, 0] - 0.5 * x[:, 4]
    x[:, 2] -= 0.6 * x[:, 0]
    x[:, 3] += 0.7 * x[:, 1] + 0.4 * x[:, 6]
    return Moments.of_rows(x * np.arange(1, 9)), x


def determinant(x, node, parents):
    """Of the residual covariance of a node's columns, over that without parents; by least squares."""
    y = x[:, COLUMNS[node]] - x[:, COLUMNS[node]].mean(axis=0)
    X = np.concatenate([np.ones((len(x), 1)), *(x[:, COLUMNS[m]] for m in parents)], axis=1)
    rest = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    return np.linalg.det(rest.T @ rest) / np.linalg.det(y.T @ y)


@pytest.mark.parametrize(("node", "parents"), [(0, ()), (1, ()), (1, (0, 3)), (2, (1, 4)), (0, (1, 2, 5))])
def test_fits_are_determinants_of_least_squares(node, parents):
    moments, x = made()
    regressions = CodedRegressions(moments.scatter, moments.n, GROUPS)
    fit = regressions.fit(node, parents)
    assert fit.rss == pytest.approx(determinant(x, node, parents), rel=1e-9)
    for m in range(6):
        if m != node and m not in parents:
            joined = determinant(x, node, (*parents, m))
            assert fit.gain[m] == pytest.approx(fit.rss - joined, rel=1e-7, abs=1e-12)
    for m, loss in zip(parents, fit.loss, strict=True):
        rest = tuple(k for k in parents if k != m)
        assert loss == pytest.approx(determinant(x, node, rest) - fit.rss, rel=1e-7)
    assert fit.gain[node] == 0
    assert not fit.gain[list(parents)].any()


def test_single_columns_are_the_usual_regressions():
    moments, _ = made()
    groups = CodedRegressions(moments.scatter, moments.n, Groups(4, tuple((k,) for k in range(8))))
    usual = ParentRegressions(moments.scatter, moments.n, 4)
    for node, parents in ((0, ()), (1, (0, 4)), (3, (1, 2, 6))):
        one, other = groups.fit(node, parents), usual.fit(node, parents)
        assert one.rss == pytest.approx(other.rss, rel=1e-10)
        np.testing.assert_allclose(one.gain, other.gain, atol=1e-12)
        np.testing.assert_allclose(one.loss, other.loss, atol=1e-12)


def test_a_copy_of_a_parent_adds_nothing_and_constants_have_no_edges():
    moments, x = made()
    x = np.c_[x[:, :7], x[:, 4] * 2 + 1]
    x[:, 3] = 5.0
    moments = Moments.of_rows(x)
    regressions = CodedRegressions(moments.scatter, moments.n, GROUPS)
    assert regressions.fit(1, (3,)).gain[5] == 0
    assert regressions.fit(1, (3, 5)).rss == pytest.approx(regressions.fit(1, (3,)).rss)
    assert not regressions.fit(2, ()).gain.any()
    assert regressions.fit(0, ()).gain[2] == 0


def test_an_edge_between_groups_costs_the_same_both_ways():
    moments, _ = made()
    regressions = CodedRegressions(moments.scatter, moments.n, GROUPS)
    price = regressions.prices(Criterion(1.0), 1, 2)
    np.testing.assert_allclose(price[:3], price[:3].T)
    assert price[1, 1] - price[0, 0] == pytest.approx(3 * np.log(moments.n))
    both = [np.log(regressions.fit(j, (i,)).rss) for i, j in ((0, 1), (1, 0))]
    assert both[0] == pytest.approx(both[1], rel=1e-9)


def test_a_network_of_groups_is_found_with_its_open_edges():
    rng = np.random.default_rng(3)
    moments, _ = made(3, 2000)
    learned = LEARNER.learn(moments, EdgeConstraints.none(3, 1), rng)
    support = np.zeros((6, 3), dtype=bool)
    support[0, 1] = support[3, 1] = support[1, 2] = support[4, 2] = True
    np.testing.assert_array_equal(learned.network.support, support)
    assert {(e.source, e.target): e.oriented for e in learned.orientation} == {(0, 1): True, (1, 2): True}


def test_what_is_forbidden_or_required_is_so():
    moments, _ = made()
    names = ("a", "b", "c")
    limits = EdgeConstraints.from_edges(names, 1, [("a", "b", 0), ("b", "a", 0)], [("c", "a", 1)])
    learned = LEARNER.learn(moments, limits, np.random.default_rng(0))
    support = learned.network.support
    assert not support[0, 1]
    assert not support[1, 0]
    assert support[5, 0]


def network_of(d, *edges):
    support = np.zeros((2 * d, d), dtype=bool)
    for i, j in edges:
        support[i, j] = True
    return support


def test_without_open_edges_there_is_one_model_for_each_node():
    review = Review(network_of(3, (0, 1), (4, 2)), [EdgeOrientation(0, 1, 50.0)])
    assert review.models == [(0, ()), (1, (0,)), (2, (4,))]
    assert review.edges == []


def test_the_cheaper_direction_is_taken_with_what_it_is_cheaper_by():
    review = Review(network_of(3, (0, 1), (3, 1)), [EdgeOrientation(0, 1, 0.5)])
    assert set(review.models) == {(0, ()), (0, (1,)), (1, (3,)), (1, (0, 3)), (2, ())}
    cost = {(0, ()): 10.0, (0, (1,)): 2.0, (1, (3,)): 5.0, (1, (0, 3)): 4.0}
    found = review.decide(lambda j, parents: cost[j, parents])
    assert found.parents == ((1,), (3,), ())
    assert found.orientation == (EdgeOrientation(1, 0, 7.0, by_shape=True),)


def test_nothing_turns_for_nothing():
    review = Review(network_of(2, (0, 1)), [EdgeOrientation(0, 1, 0.0)])
    found = review.decide(lambda j, parents: 3.0)
    assert found.parents == ((), (0,))
    assert found.orientation == (EdgeOrientation(0, 1, 0.0, by_shape=True),)


def test_directions_that_close_a_cycle_are_no_choice():
    # 0 -> 1 is firm; with 1 -> 2 and 2 -> 0 there would be a circle, which is the cheapest.
    orientation = [
        EdgeOrientation(0, 1, 50.0),
        EdgeOrientation(1, 2, 0.0),
        EdgeOrientation(0, 2, 0.0),
    ]
    review = Review(network_of(3, (0, 1), (1, 2), (0, 2)), orientation)
    cost = {(0, (2,)): -100.0, (2, (1,)): -50.0}
    found = review.decide(lambda j, parents: cost.get((j, parents), 0.0))
    assert found.parents == ((2,), (0, 2), ())


def test_a_node_with_many_open_edges_has_a_bounded_number_of_models():
    edges = [(i, 5) for i in range(5)]
    review = Review(network_of(6, *edges), [EdgeOrientation(i, j, float(i)) for i, j in edges])
    assert review.edges == edges[:MOST_OPEN_OF_A_NODE]
    assert sum(node == 5 for node, _ in review.models) == 2**MOST_OPEN_OF_A_NODE
