"""Networks compared by the shape of their noise, by sums of nonlinear functions of residuals.

Second moments leave some directions open. If the noise is not Gaussian, its shape decides: with standardised
residuals u_j of network k, minus twice the log-likelihood is

    sum_j [ n log RSS_j + 2 n (H(u_j) - H(gaussian)) ] + constant

(Hyvarinen and Smith 2013). H is the maximum-entropy approximation of Hyvarinen (1998) from E log cosh u and
E u exp(-u^2/2), which are means over rows: sites send their sums. A node's term depends on its parents only,
so one sum for every different (node, parents) serves all networks that are compared.

Whether that sum is worth asking for is seen from skewness and kurtosis of the variables themselves
(`shape_sums`), which travel with the moments.

Scores that count the shape of the noise beside the second moments:

    free variances    score + sum_j 2 n (H(u_j) - H(gaussian))
    equal variances   the same, and what the inequality of the residual variances costs, divided by (kurtosis - 1) / 2

The Gaussian likelihood of equal variances is a comparison of variances, and a variance of heavy-tailed values
varies more than it knows (Bartlett's test has the same flaw; Box 1953).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray, total_weight, weighted
from feddbn.core.orders.parents import Parents
from feddbn.core.orders.search import OrderSearch
from feddbn.core.statistics.moments import COLLINEAR, Moments, correlations, is_regular

Job = tuple[int, Parents]

N_FEATURES = 5
_K1, _K2, _GAMMA = 79.047, 7.4129, 0.37457
_MANY_COLUMNS = 400
_GAUSSIAN_ENTROPY = 0.5 * (1 + np.log(2 * np.pi))


@dataclass(frozen=True)
class NodeResiduals:
    """Linear maps from z to standardised residuals.

    Attributes
    ----------
    coefficients
        (q, m): residual column r is ``z @ coefficients[:, r] - offset[r]``.
    offset
        (m,).
    jobs
        The m different (node, parents).
    """

    coefficients: FloatArray
    offset: FloatArray
    jobs: tuple[Job, ...]


def node_residuals(moments: Moments, jobs: Sequence[Job]) -> NodeResiduals:
    """The standardised residuals of nodes given parents."""
    R, root = correlations(moments.scatter)
    B = np.zeros((len(R), len(jobs)))
    for r, (node, parents) in enumerate(jobs):
        B[node, r] = 1.0
        if parents:
            index = list(parents)
            B[index, r] = -_solved(R[np.ix_(index, index)], R[index, node])
        # Of many columns most have no part in it.
        part = slice(None) if len(R) <= _MANY_COLUMNS else [node, *parents]
        b = B[part, r]
        left = float(b @ R[part][:, part] @ b)
        # Of a node that follows from its parents only rounding is left, which has no shape to speak of.
        B[:, r] /= np.sqrt(left) if left > COLLINEAR else np.inf
    B *= np.sqrt(moments.n) / root[:, None]
    return NodeResiduals(B, moments.mean @ B, tuple(jobs))


def _solved(R: FloatArray, r: FloatArray) -> FloatArray:
    if is_regular(R):
        return np.asarray(np.linalg.solve(R, r))
    return np.asarray(np.linalg.lstsq(R, r, rcond=COLLINEAR)[0])


def residual_features(u: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """(N_FEATURES, m) sums over rows of log cosh u, u exp(-u^2/2), u^2, u^3 and u^4, weighted if rows have weights."""
    size = np.abs(u)
    log_cosh = size + np.log1p(np.exp(-2 * size)) - np.log(2.0)
    square = u * u
    functions = (log_cosh, u * np.exp(-square / 2), square, square * u, square * square)
    return np.stack([weighted(one, weights).sum(axis=0) for one in functions])


def entropies(features: FloatArray, n: float) -> FloatArray:
    """(m,) approximate differential entropies of standardised columns; at most that of a Gaussian."""
    mean = features / n
    return np.asarray(_GAUSSIAN_ENTROPY - _K1 * (mean[0] - _GAMMA) ** 2 - _K2 * mean[1] ** 2)


def gaussian_p(features: FloatArray, n: float) -> FloatArray:
    """(m,) p-values of the test that a column is Gaussian: minus `entropy_terms` is then chi-squared of 2 degrees.

    Its two means are of functions that hardly grow, so the tail of the test is what it should be even where one of a
    hundred residuals is looked at; that of a test by skewness and kurtosis is far too light.
    """
    # The upper tail of chi-squared with 2 degrees of freedom is exp(-x/2).
    return np.asarray(np.exp(entropy_terms(features, n) / 2))


def shape_sums(x: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """(2 d + 1,) number of rows m and, for every column, the sums of u^3 and of u^4 minus what Gaussian rows give.

    Columns are standardised by themselves, so that no scale has to be agreed on; of m Gaussian rows the mean of u^4
    is then 3 (m - 1) / (m + 1). Weighted rows count as their weights say, number and sums alike.
    """
    m, deviation = len(x), x.std(axis=0)
    varies = deviation > 0
    u = (x - x.mean(axis=0)) / np.where(varies, deviation, 1.0)
    square, n = u * u, total_weight(m, weights)
    excess = weighted(square * square, weights).sum(axis=0) - np.where(
        varies, 3.0 * n * (m - 1) / (m + 1), 0.0
    )
    return np.concatenate([[n], weighted(square * u, weights).sum(axis=0), excess])


def shape_p_value(sums: FloatArray) -> float:
    """Smallest Jarque-Bera p-value of the columns of `shape_sums` times their number, at most 1."""
    n, d = float(sums[0]), len(sums) // 2
    skewness, excess = sums[1 : 1 + d] / n, sums[1 + d :] / n
    return min(float(np.exp(-n / 12 * (skewness**2 + excess**2 / 4)).min()) * d, 1.0)


def entropy_terms(features: FloatArray, n: float) -> FloatArray:
    """(m,) 2 n (H - H(gaussian)) <= 0: what each residual's shape adds to minus twice the log-likelihood."""
    terms = 2 * n * (entropies(features, n) - _GAUSSIAN_ENTROPY)
    return np.where(_has_shape(features, n), terms, 0.0)


def tail_weight(features: FloatArray, n: float) -> float:
    """How much more a variance of n such values varies than one of n Gaussian values: (kurtosis - 1) / 2, at least 1."""
    mean = features[:, _has_shape(features, n)] / n
    if not mean.size:
        return 1.0
    return max(1.0, (float((mean[4] / mean[2] ** 2).mean()) - 1) / 2)


def _has_shape(features: FloatArray, n: float) -> BoolArray:
    """(m,) whether there is a residual: the mean square of a standardised one is 1, of one that is all zero 0."""
    return np.asarray(features[2] > 0.1 * n)


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
