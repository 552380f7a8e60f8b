"""Shares of networks, and what takes their place where many variables make networks of resamples too long to find."""

import numpy as np
import pytest

from feddbn.core.orders.shares import Shares
from feddbn.core.statistics.moments import Moments


def test_one_network_counts_an_edge_by_the_bic_of_regressions_with_and_without_it():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 4)) @ np.array(
        [[1, 0, 0.2, 0.1], [0, 1, 0.3, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    )
    x -= x.mean(axis=0)
    support = np.zeros((4, 2), dtype=bool)
    support[[1, 2, 3], 0] = support[[2], 1] = True
    settled = np.zeros((2, 2), dtype=bool)
    shares = Shares.of_one(support, Moments.of_rows(x), 2.0, settled)

    def rss(j, parents):
        return np.square(
            x[:, j] - x[:, parents] @ np.linalg.lstsq(x[:, parents], x[:, j], rcond=None)[0]
        ).sum()

    for k, j in np.argwhere(support).tolist():
        parents = np.flatnonzero(support[:, j]).tolist()
        without = [m for m in parents if m != k]
        gain = 300 * np.log(rss(j, without) / rss(j, parents)) - 2 * np.log(300)
        assert shares.edges[k, j] == pytest.approx(1 / (1 + np.exp(-gain / 2)), rel=1e-9)
    assert (shares.edges[~support] == 0).all()
    assert shares.probability[1, 0] == shares.probability[0, 1] == shares.links[0, 1] / 2
