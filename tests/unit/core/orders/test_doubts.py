"""Which links lead to a common effect, by moments that are known exactly."""

import numpy as np
import pytest

from feddbn.core.orders.doubts import common_effects
from feddbn.core.statistics.moments import Moments

pytestmark = pytest.mark.promise

LINKED = np.array([[0, 0, 1], [0, 0, 1], [1, 1, 0]], dtype=bool)


def moments(W, n=500.0):
    """Of the variables and of what was before them, for x = x W + .5 x_before + e with noises of variance 1."""
    d = len(W)
    through = np.linalg.inv(np.eye(d) - W)
    A = 0.5 * through
    C = np.eye(d)
    for _ in range(200):
        C = A.T @ C @ A + through.T @ through
    whole = np.block([[C, A.T @ C], [C @ A, C]])
    return Moments(n, np.zeros(2 * d), n * whole)


@pytest.mark.parametrize(
    ("edges", "found"),
    [
        ([(0, 2), (1, 2)], [(0, 2), (1, 2)]),
        ([(0, 2), (2, 1)], []),
        ([(2, 0), (2, 1)], []),
    ],
)
def test_links_of_what_is_uncorrelated_lead_to_a_common_effect(edges, found):
    W = np.zeros((3, 3))
    for i, j in edges:
        W[i, j] = 0.7
    assert np.argwhere(common_effects(LINKED, moments(W))).tolist() == [list(edge) for edge in found]


def test_few_rows_do_not_tell_a_common_effect_from_a_chain():
    W = np.zeros((3, 3))
    W[0, 2] = W[1, 2] = 0.7
    assert not common_effects(LINKED, moments(W, n=40.0)).any()
