"""Scores of networks that count the shape of the noise beside the second moments.

    free variances    score + sum_j 2 n (H(u_j) - H(gaussian))
    equal variances   the same, and what the inequality of the residual variances costs, divided by (kurtosis - 1) / 2

The Gaussian likelihood of equal variances is a comparison of variances, and a variance of heavy-tailed values
varies more than it knows (Bartlett's test has the same flaw; Box 1953). Entropies are those of `core.orders.nongaussian`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.orders.nongaussian import Job, entropy_terms
from feddbn.core.orders.parents import Parents
from feddbn.core.orders.search import OrderSearch

__all__ = ["Edge", "Network", "ShapedScores", "without_one_edge"]

Edge = tuple[int, int]
Network = Sequence[Parents]


class ShapedScores:
    """Scores of networks over one search's moments, as far as the shape of their residuals is known.

    Attributes
    ----------
    tails
        What the inequality of equal variances is divided by.
    """

    def __init__(self, search: OrderSearch) -> None:
        self._search = search
        self._terms: dict[Job, float] = {}
        self.tails = 1.0

    def unknown(self, networks: Iterable[Network]) -> list[Job]:
        """The (node, parents) of networks whose residuals have not been asked about."""
        return sorted({job for network in networks for job in enumerate(network)} - set(self._terms))

    def learn(self, jobs: Sequence[Job], features: FloatArray, n: float) -> None:
        """Take the summed `residual_features` of jobs over n rows."""
        self._terms.update(zip(jobs, entropy_terms(features, n).tolist(), strict=True))

    def of(self, network: Network) -> float:
        """The score of a network; lower is better."""
        search = self._search
        value = search.score_of(network) + sum(self._terms[job] for job in enumerate(network))
        if search.noise_variance == "equal":
            n, d, rss = search.n, search.d, search.rss_of(network)
            unequal = n * (d * float(np.log(rss.mean())) - float(np.log(rss).sum()))
            value -= unequal * (1.0 - 1.0 / self.tails)
        return value


def without_one_edge(network: Network) -> dict[Edge, Network]:
    """The network without each of its edges, by edge: (column of z, node)."""
    shorter: dict[Edge, Network] = {}
    for j, parents in enumerate(network):
        for i in parents:
            rest = tuple(m for m in parents if m != i)
            shorter[i, j] = (*network[:j], rest, *network[j + 1 :])
    return shorter
