import numpy as np
import pytest

from feddbn import DBN
from feddbn.console.two_networks import compared


def test_edges_are_in_both_in_one_or_of_other_signs():
    first = DBN([[0, 0.5, 0], [0, 0, 2.0], [0, 0, 0]], [np.zeros((3, 3))], ["x", "y", "z"])
    second = DBN([[0, -0.5, 0], [0, 0, 0], [0, 0, 0]], [np.diag([0.4, 0, 0])], ["x", "y", "w"])
    found = compared(first, second)
    assert found.finding.values == {"both": 1, "first": 2, "second": 2}
    assert {(e.source, e.target, e.lag): (e.first, e.second, e.where) for e in found.edges} == {
        ("x", "y", 0): (0.5, -0.5, "opposite"),
        ("y", "z", 0): (2.0, 0.0, "first"),
        ("x", "x", 1): (0.0, 0.4, "second"),
    }
    gaps = [abs(edge.first_share - edge.second_share) for edge in found.edges]
    assert gaps == sorted(gaps, reverse=True)


def test_units_do_not_decide_what_differs_most():
    def network(unit, lagged):
        return DBN(
            [[0, 0.5 * unit], [0, 0]], [[[lagged, 0], [0, 0]]], ["x", "y"], noise_variances=[1, unit**2]
        )

    shares = [
        {(e.source, e.target): e.first_share for e in compared(network(u, 0.4), network(u, 0.1)).edges}
        for u in (1.0, 1000.0)
    ]
    assert shares[0] == pytest.approx(shares[1])
