"""Open directions are decided by what models of the variables' own kinds cost."""

import numpy as np

from feddbn.core.orders.groups import MOST_OPEN_OF_A_NODE, Review
from feddbn.core.orders.learn import EdgeOrientation


def network(d, *edges):
    support = np.zeros((2 * d, d), dtype=bool)
    for i, j in edges:
        support[i, j] = True
    return support


def test_without_open_edges_there_is_one_model_for_each_node():
    review = Review(network(3, (0, 1), (4, 2)), [EdgeOrientation(0, 1, 50.0, True)])
    assert review.models == [(0, ()), (1, (0,)), (2, (4,))]
    assert review.edges == []


def test_the_cheaper_direction_is_taken_with_what_it_is_cheaper_by():
    review = Review(network(3, (0, 1), (3, 1)), [EdgeOrientation(0, 1, 0.5, False)])
    assert set(review.models) == {(0, ()), (0, (1,)), (1, (3,)), (1, (0, 3)), (2, ())}
    cost = {(0, ()): 10.0, (0, (1,)): 2.0, (1, (3,)): 5.0, (1, (0, 3)): 4.0}
    found = review.decide(lambda j, parents: cost[j, parents])
    assert found.parents == ((1,), (3,), ())
    assert found.orientation == (EdgeOrientation(1, 0, 7.0, True),)


def test_nothing_turns_for_nothing():
    review = Review(network(2, (0, 1)), [EdgeOrientation(0, 1, 0.0, False)])
    found = review.decide(lambda j, parents: 3.0)
    assert found.parents == ((), (0,))
    assert found.orientation == (EdgeOrientation(0, 1, 0.0, False),)


def test_directions_that_close_a_cycle_are_no_choice():
    # 0 -> 1 is firm; with 1 -> 2 and 2 -> 0 there would be a circle, which is the cheapest.
    orientation = [
        EdgeOrientation(0, 1, 50.0, True),
        EdgeOrientation(1, 2, 0.0, False),
        EdgeOrientation(0, 2, 0.0, False),
    ]
    review = Review(network(3, (0, 1), (1, 2), (0, 2)), orientation)
    cost = {(0, (2,)): -100.0, (2, (1,)): -50.0}
    found = review.decide(lambda j, parents: cost.get((j, parents), 0.0))
    assert found.parents == ((2,), (0, 2), ())


def test_a_node_with_many_open_edges_has_a_bounded_number_of_models():
    edges = [(i, 5) for i in range(5)]
    review = Review(network(6, *edges), [EdgeOrientation(i, j, float(i), False) for i, j in edges])
    assert review.edges == edges[:MOST_OPEN_OF_A_NODE]
    assert sum(node == 5 for node, _ in review.models) == 2**MOST_OPEN_OF_A_NODE
