"""Masks of forbidden and required edges."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse.csgraph import connected_components

from feddbn.core.constraints import EdgeConstraints, break_cycles, has_cycle
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


def one_by_one(W, required):
    """The rule itself: while there is a cycle, drop the weakest edge inside a strongly connected component."""
    W, dropped = W.copy(), []
    while has_cycle(W != 0):
        _, component = connected_components(W != 0, directed=True, connection="strong")
        inside = (component[:, None] == component[None, :]) & (W != 0) & ~required
        i, j = np.unravel_index(np.argmin(np.where(inside, np.abs(W), np.inf)), W.shape)
        dropped.append((int(i), int(j), float(W[i, j])))
        W[i, j] = 0.0
    return W, dropped


@pytest.mark.parametrize("seed", range(30))
def test_one_pass_drops_the_same_edges_in_the_same_order_as_the_rule(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 12))
    # Few distinct sizes: ties must fall the same way too.
    W = rng.choice([-0.9, -0.5, -0.2, 0.2, 0.5, 0.7], (d, d)) * (rng.random((d, d)) < rng.uniform(0.1, 0.9))
    required = np.triu(rng.random((d, d)) < 0.1, 1) & (W != 0)
    expected, dropped_expected = one_by_one(W, required)
    acyclic, dropped = break_cycles(W, required)
    np.testing.assert_array_equal(acyclic, expected)
    assert dropped == dropped_expected
    assert not has_cycle(acyclic != 0)
