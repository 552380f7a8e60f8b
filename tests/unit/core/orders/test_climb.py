"""Networks of resamples that are searched together."""

import numpy as np
import pytest

from feddbn.core.constraints import EdgeConstraints, has_cycle
from feddbn.core.orders.climb import climbed
from feddbn.core.orders.parents import Criterion
from feddbn.core.statistics.moments import Moments

D, N = 5, 600


def rows_of(seed):
    rng = np.random.default_rng(seed)
    W = np.triu(rng.choice([0.0, 0.7, -0.8], size=(D, D)), 1)
    past = rng.normal(size=(N, D))
    now = (0.5 * past + rng.normal(size=(N, D))) @ np.linalg.inv(np.eye(D) - W)
    return np.hstack([now, past])


def searched(is_equal, limits, criterion):
    samples = [rows_of(seed) for seed in range(4)]
    empty = np.zeros((2 * D, D), dtype=bool)
    moments = [Moments.of_rows(z) for z in samples]
    found = climbed(moments, [empty, limits.required], limits, criterion, is_equal, np.random.default_rng(0))
    return zip(samples, found, strict=True)


def score(z, support, is_equal, price):
    """By least squares of the rows themselves."""
    z = z - z.mean(axis=0)
    rss = []
    for j in range(D):
        S = np.flatnonzero(support[:, j])
        rss.append(np.square(z[:, j] - z[:, S] @ np.linalg.lstsq(z[:, S], z[:, j], rcond=None)[0]).sum())
    fit = D * np.log(np.sum(rss)) if is_equal else np.log(rss).sum()
    return N * fit + price * np.log(N) * support.sum()


@pytest.mark.parametrize("is_equal", [True, False])
def test_no_edge_more_or_less_makes_a_network_better(is_equal):
    limits, c = EdgeConstraints.none(D, 1), 2.0
    for z, support in searched(is_equal, limits, Criterion(c, order_c=c)):
        best = score(z, support, is_equal, c)
        assert support.any()
        for k, j in np.ndindex(2 * D, D):
            other = support.copy()
            other[k, j] ^= True
            if k != j and not has_cycle(other[:D]):
                assert score(z, other, is_equal, c) > best - 1e-6


def test_required_edges_stay_and_forbidden_ones_do_not_come():
    free = EdgeConstraints.none(D, 1)
    allowed, required = free.allowed.copy(), np.zeros((2 * D, D), dtype=bool)
    allowed[0, 3] = allowed[D + 1, 1] = False
    required[4, 0] = required[D + 2, 3] = True
    limits = EdgeConstraints(allowed, required)
    for _, support in searched(False, limits, Criterion()):
        assert not has_cycle(support[:D])
        assert support[required].all()
        assert not support[~allowed].any()
