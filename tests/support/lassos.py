"""Lassos by ways that share nothing with the package's own: what its answers are held against."""

from __future__ import annotations

import numpy as np

from feddbn.core.penalised.lasso import lasso_weights, prices, soft_threshold


def solve_lasso(
    G: np.ndarray,
    penalty: np.ndarray,
    allowed: np.ndarray,
    C0: np.ndarray | None = None,
    tol: float = 1e-10,
    max_sweeps: int = 10_000,
    linear: np.ndarray | None = None,
) -> np.ndarray:
    """Return the minimiser C by cyclic coordinate descent, one row of C (all targets) per step.

    Stops when no weight moves by more than `tol` in a sweep. A row of C multiplies one column of the data, so one step
    updates d separate lassos with one rank-one correction of the gradient. `linear` replaces the linear term G E, for
    problems with a proximal centre.
    """
    q, d = penalty.shape
    C = np.zeros((q, d)) if C0 is None else np.where(allowed, C0, 0.0)
    gradient = (G[:, :d] if linear is None else linear) - G @ C
    diagonal = np.diag(G)
    rows = [i for i in range(q) if allowed[i].any() and diagonal[i] > 0]
    for _ in range(max_sweeps):
        largest = 0.0
        for i in rows:
            old = C[i]
            new = soft_threshold(gradient[i] + diagonal[i] * old, penalty[i]) / diagonal[i]
            new[~allowed[i]] = 0.0
            step = new - old
            moved = float(np.abs(step).max())
            if moved > 0.0:
                gradient -= np.outer(G[:, i], step)
                C[i] = new
                largest = max(largest, moved)
        if largest <= tol:
            break
    return C


def lasso_column(
    H: np.ndarray, b: np.ndarray, penalty: np.ndarray, allowed: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """Return the (q,) minimiser, searched from `start`."""
    c = np.zeros(len(b))
    at, x = lasso_weights(H, b, penalty, prices(b, penalty, allowed), np.where(allowed, start, 0.0))
    c[at] = x
    return c
