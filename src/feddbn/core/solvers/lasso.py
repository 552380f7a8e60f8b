"""L1-penalised least squares on a Gram matrix, every target at once.

    min_C  1/2 tr((E - C)' G (E - C)) + sum(L o |C|)   with C zero where not allowed,   E = [I; 0; ...; 0]

With W restricted to an order this is convex; its columns are separate lassos that share one G.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray

__all__ = ["loss_value", "penalty_value", "soft_threshold", "solve_lasso"]


def soft_threshold(x: FloatArray, threshold: FloatArray | float) -> FloatArray:
    """Return sign(x) max(|x| - threshold, 0), elementwise."""
    shrunk: FloatArray = x - np.minimum(np.maximum(x, -threshold), threshold)
    return shrunk


def loss_value(G: FloatArray, C: FloatArray) -> float:
    """Return 1/2 tr((E - C)' G (E - C))."""
    R = -C
    d = C.shape[1]
    R[:d].flat[:: d + 1] += 1.0
    return 0.5 * float(np.vdot(R, G @ R))


def penalty_value(C: FloatArray, penalty: FloatArray) -> float:
    """Return sum(penalty o |C|)."""
    return float(np.vdot(penalty, np.abs(C)))


def solve_lasso(
    G: FloatArray,
    penalty: FloatArray,
    allowed: NDArray[np.bool_],
    C0: FloatArray | None = None,
    tol: float = 1e-10,
    max_sweeps: int = 10_000,
    linear: FloatArray | None = None,
) -> FloatArray:
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
