"""Directions from non-Gaussian noise, by sums of nonlinear functions of residuals.

For a covered edge i -> j (the parents of j are i and the parents of i) second moments cannot tell i -> j from j -> i.
Both directions have the same Gaussian likelihood, so their log-likelihoods differ only by the entropies of the four
standardised residuals:

    D = 2 n [H(x_j | pa) + H(x_i | pa, x_j) - H(x_i | pa) - H(x_j | pa, x_i)],   D > 0 favours i -> j

(Hyvarinen and Smith 2013). H is the maximum-entropy approximation of Hyvarinen (1998) from E log cosh u and
E u exp(-u^2/2), which are means over rows: sites send their sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from feddbn.core.lagged import FloatArray
from feddbn.core.parents import BoolArray

__all__ = [
    "N_FEATURES",
    "EdgeResiduals",
    "direction_scores",
    "edge_residuals",
    "entropies",
    "jarque_bera_p",
    "residual_features",
]

N_FEATURES = 5
_K1, _K2, _GAMMA = 79.047, 7.4129, 0.37457


@dataclass(frozen=True)
class EdgeResiduals:
    """Linear maps from z to standardised residuals.

    Attributes
    ----------
    coefficients
        (q, m): residual column r is ``z @ coefficients[:, r] - offset[r]``; the first d are the network's own.
    offset
        (m,).
    edges
        The covered edges; four columns each after the first d: x_i | pa, x_j | pa, x_i; x_j | pa, x_i | pa, x_j.
    """

    coefficients: FloatArray
    offset: FloatArray
    edges: tuple[tuple[int, int], ...]


def edge_residuals(
    scatter: FloatArray, mean: FloatArray, n: float, support: BoolArray, edges: list[tuple[int, int]]
) -> EdgeResiduals:
    """The residuals of the network and of both directions of each covered edge."""
    d = support.shape[1]
    jobs: list[tuple[int, list[int]]] = [(j, np.flatnonzero(support[:, j]).tolist()) for j in range(d)]
    for i, j in edges:
        parents = np.flatnonzero(support[:, i]).tolist()
        jobs += [(i, parents), (j, [*parents, i]), (j, parents), (i, [*parents, j])]
    B = np.zeros((len(scatter), len(jobs)))
    for r, (node, parents) in enumerate(jobs):
        B[node, r] = 1.0
        if parents:
            B[parents, r] = -np.linalg.solve(scatter[np.ix_(parents, parents)], scatter[parents, node])
        variance = float(B[:, r] @ scatter @ B[:, r]) / n
        B[:, r] /= np.sqrt(max(variance, 1e-300))
    return EdgeResiduals(B, mean @ B, tuple(edges))


def residual_features(u: FloatArray) -> FloatArray:
    """(N_FEATURES, m) sums over rows of log cosh u, u exp(-u^2/2), u^2, u^3 and u^4."""
    size = np.abs(u)
    log_cosh = size + np.log1p(np.exp(-2 * size)) - np.log(2.0)
    square = u * u
    return np.stack(
        [
            log_cosh.sum(axis=0),
            (u * np.exp(-square / 2)).sum(axis=0),
            square.sum(axis=0),
            (square * u).sum(axis=0),
            (square * square).sum(axis=0),
        ]
    )


def entropies(features: FloatArray, n: float) -> FloatArray:
    """(m,) approximate differential entropies of standardised columns; at most that of a Gaussian."""
    mean = features / n
    gaussian = 0.5 * (1 + np.log(2 * np.pi))
    return np.asarray(gaussian - _K1 * (mean[0] - _GAMMA) ** 2 - _K2 * mean[1] ** 2)


def jarque_bera_p(features: FloatArray, n: float) -> FloatArray:
    """(m,) p-values of the test that a column is Gaussian, from its skewness and kurtosis."""
    mean = features / n
    skewness = mean[3] / mean[2] ** 1.5
    excess = mean[4] / mean[2] ** 2 - 3
    return np.asarray(stats.chi2.sf(n / 6 * (skewness**2 + excess**2 / 4), 2))


def direction_scores(features: FloatArray, n: float, d: int, n_edges: int) -> FloatArray:
    """(n_edges,) D of each covered edge: positive favours its present direction."""
    H = entropies(features[:, d:], n).reshape(n_edges, 4)
    return np.asarray(2 * n * (H[:, 2] + H[:, 3] - H[:, 0] - H[:, 1]))
