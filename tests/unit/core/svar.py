"""A tiny structural VAR generator, independent of the package's simulator."""

from __future__ import annotations

import numpy as np


def random_svar(rng, d, n_lags=1, mean_degree=4.0, lag_degree=1.0, w_range=(0.3, 0.5)):
    """W (d, d) acyclic and A (p, d, d), stationary, all [from, to]."""
    n_edges = min(round(mean_degree * d / 2), d * (d - 1) // 2)
    while True:
        rows, columns = np.triu_indices(d, 1)
        chosen = rng.choice(len(rows), n_edges, replace=False)
        W = np.zeros((d, d))
        W[rows[chosen], columns[chosen]] = rng.uniform(*w_range, n_edges) * rng.choice([-1, 1], n_edges)
        permutation = rng.permutation(d)
        W = W[np.ix_(permutation, permutation)]
        A = np.zeros((n_lags, d, d))
        for lag in range(n_lags):
            mask = rng.random((d, d)) < lag_degree / d
            A[lag] = mask * rng.uniform(*w_range, (d, d)) * rng.choice([-1, 1], (d, d)) / 1.5**lag
        inverse = np.linalg.inv(np.eye(d) - W)
        companion = np.zeros((max(n_lags, 1) * d, max(n_lags, 1) * d))
        for lag in range(n_lags):
            companion[lag * d : (lag + 1) * d, :d] = A[lag] @ inverse
            if lag + 1 < n_lags:
                companion[lag * d : (lag + 1) * d, (lag + 1) * d : (lag + 2) * d] = np.eye(d)
        if np.abs(np.linalg.eigvals(companion)).max() < 0.95:
            return W, A


def sample_svar(rng, W, A, n, noise="gaussian", scales=None, burn_in=200):
    """(n + p, d) rows of one stationary series, so that n lagged rows are usable."""
    p, d = len(A), len(W)
    draws = rng.standard_normal if noise == "gaussian" else lambda size: rng.exponential(size=size) - 1
    u = draws((n + p + burn_in, d))
    if scales is not None:
        u = u * scales
    inverse = np.linalg.inv(np.eye(d) - W)
    x = np.zeros_like(u)
    for t in range(len(u)):
        lagged = sum((x[t - lag - 1] @ A[lag] for lag in range(p) if t > lag), np.zeros(d))
        x[t] = (lagged + u[t]) @ inverse
    return x[burn_in:]


def lagged(x, p):
    """(n, (p+1) d) rows z_t of one series."""
    n = len(x) - p
    return np.hstack([x[p - lag : p - lag + n] for lag in range(p + 1)])
