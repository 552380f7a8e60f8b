from __future__ import annotations

import numpy as np
import pytest

from feddbn.errors import ParameterError
from feddbn.model.dbn import DBN
from feddbn.report.canvas import shortened, symmetric_scale, thinned
from feddbn.report.graph_plots import CIRCLE_LIMIT, cluster_order, graph_positions, link_strengths
from support.report_results import random_dbn


def test_clustering_puts_two_separate_groups_side_by_side():
    W = np.zeros((6, 6))
    for i, j in ((0, 2), (2, 4), (1, 3), (3, 5)):
        W[i, j] = 0.5
    order = cluster_order(link_strengths(DBN(W, np.zeros((1, 6, 6)))))
    assert sorted(order) == list(range(6))
    assert {frozenset(order[:3]), frozenset(order[3:])} == {frozenset({0, 2, 4}), frozenset({1, 3, 5})}


def test_order_of_an_empty_network_is_the_given_one():
    assert cluster_order(np.zeros((4, 4))) == [0, 1, 2, 3]


def test_small_networks_stand_on_a_circle():
    x = graph_positions(random_dbn(12))
    np.testing.assert_allclose(np.hypot(*(x - 0.5).T), 0.5)


@pytest.mark.parametrize("d", [1, 2, CIRCLE_LIMIT + 1, 100])
def test_positions_are_in_the_unit_square_and_always_the_same(d):
    dbn = random_dbn(d)
    first, second = graph_positions(dbn), graph_positions(dbn)
    np.testing.assert_array_equal(first, second)
    assert first.shape == (d, 2)
    assert first.min() >= 0
    assert first.max() <= 1


def test_no_two_of_a_hundred_nodes_overlap():
    x = graph_positions(random_dbn(100))
    gap = np.hypot(*(x[:, None] - x[None, :]).transpose(2, 0, 1))
    assert gap[np.triu_indices(100, 1)].min() > 0.03


def test_the_scale_is_symmetric_and_ignores_what_is_not_finite():
    norm = symmetric_scale(np.array([-0.2, np.nan]), [0.7, -0.9])
    assert (norm.vmin, norm.vmax) == (-0.9, 0.9)
    assert symmetric_scale(np.zeros(3)).vmax == 1.0


def test_a_bad_limit_is_named():
    with pytest.raises(ParameterError, match="limit"):
        symmetric_scale([1.0], limit=0)


def test_thinning_keeps_at_most_the_allowed_number():
    assert thinned(10, 10) == list(range(10))
    assert len(thinned(100, 26)) <= 26


def test_shortened_names_keep_their_ends():
    assert shortened("heart rate 17", 10) == "heart…e 17"
    assert shortened("x1", 10) == "x1"
