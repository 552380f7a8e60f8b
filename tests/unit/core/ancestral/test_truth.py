"""The true ancestral graph: against all sets of conditions, one after the other, by another package's d-separation."""

from __future__ import annotations

from itertools import chain, combinations

import networkx as nx
import numpy as np
import pytest

from feddbn.core.ancestral.marks import true_marks, unrolled
from support.hidden_systems import draw_system


def by_all_sets(W, A, seen, n_lags, n_steps=14):
    """Edges and marks by definition: no set of seen nodes in the window separates the two."""
    n = len(W)
    graph = nx.from_numpy_array(unrolled(W, A, n_steps).astype(int), create_using=nx.DiGraph)
    window = [lag * n + v for lag in range(n_lags + 1) for v in seen]
    words = np.full((len(seen), len(seen), n_lags + 1), "", dtype="<U3")
    for lag in range(n_lags + 1):
        for i, a in enumerate(seen):
            for j, b in enumerate(seen):
                x, y = lag * n + a, b
                if x == y:
                    continue
                rest = [node for node in window if node not in (x, y)]
                sets = chain.from_iterable(combinations(rest, k) for k in range(len(rest) + 1))
                if any(nx.is_d_separator(graph, {x}, {y}, set(given)) for given in sets):
                    continue
                near = "-" if nx.has_path(graph, x, y) else "<"
                far = "-" if nx.has_path(graph, y, x) else ">"
                words[i, j, lag] = f"{near}-{far}"
    return words


@pytest.mark.parametrize("seed", range(6))
def test_it_is_what_all_sets_of_conditions_say(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 6))
    W, A = draw_system(rng, n, 1, memory=0.7)
    seen = sorted(rng.choice(n, n - int(rng.integers(0, 2)), replace=False)[:3].tolist())
    assert true_marks(W, A, seen, 1).tolist() == by_all_sets(W, A, seen, 1).tolist()


def test_a_hidden_cause_of_two_is_an_edge_with_two_arrowheads():
    W = np.zeros((3, 3))
    W[2, 0] = W[2, 1] = 1.0
    words = true_marks(W, np.zeros((1, 3, 3)), [0, 1], 1)
    assert words[0, 1, 0] == words[1, 0, 0] == "<->"
    assert (words[:, :, 1] == "").all()


def test_what_acts_through_a_hidden_variable_is_a_cause():
    A = np.zeros((1, 3, 3))
    A[0, 0, 2] = A[0, 2, 1] = 1.0
    words = true_marks(np.zeros((3, 3)), A, [0, 1], 2)
    assert words[0, 1, 2] == "-->"
    assert (words != "").sum() == 1


def test_a_variable_before_the_window_is_not_seen():
    A = np.zeros((2, 2, 2))
    A[0, 0, 0], A[1, 0, 1] = 0.5, 1.0
    assert true_marks(np.zeros((2, 2)), A, [0, 1], 2)[0, 1].tolist() == ["", "", "-->"]
    # With one lag, x two time steps ago is hidden: it acts on x one time step ago and on y now.
    assert true_marks(np.zeros((2, 2)), A, [0, 1], 1)[0, 1].tolist() == ["", "<->"]


def test_without_hidden_variables_it_is_the_network():
    rng = np.random.default_rng(5)
    W, A = draw_system(rng, 5, 2)
    words = true_marks(W, A, range(5), 2)
    causes = np.stack([W, *A]) != 0
    assert (np.moveaxis(words == "-->", 2, 0) == causes).all()


def test_looking_further_back_changes_nothing():
    for seed in range(4):
        W, A = draw_system(np.random.default_rng(seed), 6, 2, memory=0.5)
        seen = [0, 2, 3, 5]
        assert (true_marks(W, A, seen, 2) == true_marks(W, A, seen, 2, depth=60)).all()
