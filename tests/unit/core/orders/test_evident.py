import numpy as np
import pytest

from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.search import evident_support
from feddbn.core.statistics.moments import Moments

D = 4
W = np.zeros((D, D))
W[0, 1], W[1, 2], W[0, 3] = 0.6, -0.5, 0.15
A = np.zeros((D, D))
A[2, 2], A[3, 0], A[1, 3] = 0.5, 0.4, 0.12
TRUTH = np.concatenate([W, A]) != 0


def moments(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    x = np.zeros((n, D))
    for t in range(1, n):
        x[t] = (x[t - 1] @ A + rng.standard_normal(D)) @ np.linalg.inv(np.eye(D) - W)
    return Moments.of_rows(np.hstack([x[1:], x[:-1]]))


def bic(found, support):
    """By hand: n log RSS of every node, and log n for each edge."""
    G, total = found.scatter, 0.0
    for j in range(D):
        S = np.flatnonzero(support[:, j])
        left = G[j, j] - G[j, S] @ np.linalg.solve(G[np.ix_(S, S)], G[S, j]) if len(S) else G[j, j]
        total += found.n * np.log(left) + len(S) * np.log(found.n)
    return total


def pairs(support):
    return support[:D] | support[:D].T


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
    found = evident_support(moments(), given, EdgeConstraints.none(D, 1))
    np.testing.assert_array_equal(pairs(found), pairs(TRUTH))
    assert bic(moments(), found) <= bic(moments(), TRUTH) + 1e-6


def test_no_edge_appears_that_is_forbidden_and_none_goes_that_is_required():
    limits = EdgeConstraints.from_edges(
        tuple("abcd"), 1, [("d", "a", 1), ("a", "b", 0), ("b", "a", 0)], [("c", "d", 0)]
    )
    found = evident_support(moments(), np.zeros_like(TRUTH), limits)
    assert not (found & ~limits.allowed).any()
    assert found[2, 3]
