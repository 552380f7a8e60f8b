"""The first order of a Gram matrix, by variances alone."""

import numpy as np
import pytest

from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.search import order_by_variance
from feddbn.core.pfdbnl.stages import searched_order


def rows(seed, d=5, n=400):
    """Present and past of d variables; each present one depends on the ones before it in a random order, and on its past."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(d)
    X, Y = np.zeros((n, d)), rng.normal(size=(n, d))
    for place, node in enumerate(order):
        X[:, node] = 0.5 * Y[:, node] + X[:, order[:place]].sum(axis=1) + rng.normal(size=n)
    return order.tolist(), np.hstack([X, Y])


def plain_order(Z, d):
    """The same by regressions on the rows."""
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


@pytest.mark.parametrize("seed", range(4))
def test_with_many_rows_it_is_the_true_one_where_noise_is_equal(seed):
    truth, Z = rows(seed)
    assert order_by_variance(Z.T @ Z / len(Z), 5) == truth


def test_columns_that_depend_on_each_other_have_their_place_too():
    _, Z = rows(0)
    Z[:, 4], Z[:, 9], Z[:, 2] = Z[:, 0], Z[:, 5], 0.0
    assert sorted(order_by_variance(Z.T @ Z / len(Z), 5)) == list(range(5))


def test_few_rows_or_edges_that_are_forbidden_or_required_need_the_search():
    truth, Z = rows(1)
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
    # Where rows are no more than columns every variance given all others is nothing.
    few = Z[:8]
    found = searched_order(few.T @ few / 8, 8, free, moves=False)
    assert sorted(found[:5].sum(axis=0).tolist()) == list(range(5))
