"""Masks of forbidden and required edges."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from feddbn.core.graphs.constraints import EdgeConstraints, has_cycle
from feddbn.errors import ParameterError
from support.saying import refused

NAMES = ["a", "b", "c"]


def test_only_self_loops_within_a_slice_are_forbidden_at_first() -> None:
    none = EdgeConstraints.none(3, 2)
    assert (none.d, none.n_lags) == (3, 2)
    assert none.allowed.shape == (9, 3)
    np.testing.assert_array_equal(~none.allowed[:3], np.eye(3, dtype=bool))
    assert none.allowed[3:].all()
    assert not none.required.any()


def test_edges_land_at_from_to_and_lag() -> None:
    made = EdgeConstraints.from_edges(NAMES, 2, forbidden=[("a", "c", 2)], required=[(1, "a", 0)])
    expected = EdgeConstraints.none(3, 2).allowed.copy()
    expected[2 * 3 + 0, 2] = False
    np.testing.assert_array_equal(made.allowed, expected)
    assert np.argwhere(made.required).tolist() == [[1, 0]]


def test_star_stands_for_every_variable() -> None:
    made = EdgeConstraints.from_edges(NAMES, 1, forbidden=[("*", "b", 1), ("c", "*", 0)])
    assert not made.allowed[3:, 1].any()
    assert not made.allowed[2].any()
    assert made.allowed[3:, [0, 2]].all()


def test_a_variable_called_star_is_itself() -> None:
    made = EdgeConstraints.from_edges(["*", "b"], 1, forbidden=[("*", "b", 1)])
    assert np.argwhere(~made.allowed).tolist() == [[0, 0], [1, 1], [2, 1]]


def test_within_an_order_only_forward_edges_remain() -> None:
    ordered = EdgeConstraints.none(3, 1).within_order([2, 0, 1])
    assert np.argwhere(ordered.allowed[:3]).tolist() == [[0, 1], [2, 0], [2, 1]]
    assert ordered.allowed[3:].all()


@pytest.mark.parametrize(
    ("edge", "name"),
    [
        (("a", "b"), "('a', 'b')"),
        (7, "7"),
        (("a", "b", 3), "lag 3"),
        (("a", "b", True), "lag True"),
        (("a", "z", 1), "'z'"),
        ((-1, "b", 1), "-1"),
        ((True, "b", 1), "True"),
    ],
)
@pytest.mark.parametrize("argument", ["forbidden", "required"])
def test_impossible_edges_are_named(edge: object, name: str, argument: str) -> None:
    with refused(ParameterError, f"{argument}_edges", name):
        EdgeConstraints.from_edges(NAMES, 2, **{argument: [edge]})  # type: ignore[arg-type]


def test_contradictions_are_refused() -> None:
    with refused(ParameterError, "required_edges", "('a', 'b', 1)"):
        EdgeConstraints.from_edges(NAMES, 1, forbidden=[("a", "b", 1)], required=[("a", "b", 1)])
    with refused(ParameterError, "required_edges", "('a', 'a', 0)"):
        EdgeConstraints.from_edges(NAMES, 1, required=[("a", "a", 0)])
    with refused(ParameterError, "required_edges", "cycle"):
        EdgeConstraints.from_edges(NAMES, 1, required=[("a", "b", 0), ("b", "c", 0), ("c", "a", 0)])
    EdgeConstraints.from_edges(NAMES, 1, required=[("a", "b", 0), ("b", "a", 1), ("a", "a", 1)])


@given(st.integers(1, 6).flatmap(lambda d: hnp.arrays(bool, (d, d))))
def test_cycles_are_found_as_networkx_finds_them(adjacency: np.ndarray) -> None:
    graph = nx.from_numpy_array(adjacency.astype(int), create_using=nx.DiGraph)
    before = adjacency.copy()
    assert has_cycle(adjacency) == (not nx.is_directed_acyclic_graph(graph))
    np.testing.assert_array_equal(adjacency, before)
