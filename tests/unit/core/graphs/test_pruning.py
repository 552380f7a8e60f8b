import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from feddbn.core.graphs.constraints import break_cycles, has_cycle


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
