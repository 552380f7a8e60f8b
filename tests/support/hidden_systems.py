"""Random stable systems of which some variables are hidden, and the exact covariances of what is seen."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_discrete_lyapunov


def draw_system(rng, n, n_lags, n_links=None, memory=1.0):
    """W, A ``[from, to]`` of n variables: most remember themselves; about 1.3 n links, two in five within a moment."""
    pairs = [(i, j) for i in range(n) for j in range(i)]
    while True:
        W, A = np.zeros((n, n)), np.zeros((n_lags, n, n))
        A[0][np.diag_indices(n)] = np.where(rng.random(n) < memory, rng.uniform(0.3, 0.8, n), 0.0)
        rank = rng.permutation(n)
        for k in rng.choice(len(pairs), min(n_links or round(1.3 * n), len(pairs)), replace=False):
            later, earlier = rank[list(pairs[k])]
            weight = rng.uniform(0.2, 0.8) * rng.choice([-1, 1])
            if rng.random() < 0.4:
                W[earlier, later] = weight
            else:
                a, b = (earlier, later) if rng.random() < 0.5 else (later, earlier)
                A[rng.integers(n_lags), a, b] = weight
        if np.abs(np.linalg.eigvals(companion(W, A))).max() < 0.95:
            return W, A


def companion(W, A, n_blocks=None):
    n, p = len(W), len(A)
    through = np.linalg.inv(np.eye(n) - W)
    found = np.eye(n * (n_blocks or p), k=-n)
    found[:n, : n * p] = np.concatenate([(one @ through).T for one in A], axis=1)
    return found


def exact_correlations(W, A, seen, n_lags, scales):
    """Correlations of the seen variables at lags 0 to `n_lags`, of the process itself."""
    n, m = len(W), max(len(A), n_lags + 1)
    through = np.linalg.inv(np.eye(n) - W)
    noise = np.zeros((n * m, n * m))
    noise[:n, :n] = through.T @ np.diag(np.asarray(scales) ** 2) @ through
    S = solve_discrete_lyapunov(companion(W, A, m), noise)
    index = [lag * n + v for lag in range(n_lags + 1) for v in seen]
    S = S[np.ix_(index, index)]
    root = np.sqrt(np.diag(S))
    return S / np.outer(root, root)
