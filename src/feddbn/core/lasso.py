"""L1-penalised least squares on a Gram matrix, every target at once.

    min_C  1/2 tr((E - C)' G (E - C)) + sum(L o |C|)   with C zero where not allowed,   E = [I; 0; ...; 0]

With W restricted to an order this is convex; its columns are separate lassos that share one G.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from feddbn.core.lagged import FloatArray

__all__ = ["loss_value", "penalty_value", "soft_threshold", "solve_by_signs", "solve_lasso"]


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


def solve_by_signs(
    B: FloatArray, linear: FloatArray, penalty: FloatArray, allowed: NDArray[np.bool_], C0: FloatArray
) -> FloatArray:
    """Return the minimiser of ``1/2 tr(C'BC) - tr(linear'C) + sum(penalty o |C|)`` for a positive definite B, exactly.

    Feature-sign search (Lee, Battle, Raina and Ng 2007): once the signs of the weights are known, they are the solution
    of linear equations; a wrong guess is left on a line along which the objective falls. It does not slow down when the
    columns of the data are nearly dependent, where coordinate descent takes thousands of sweeps.
    """
    C = np.where(allowed, C0, 0.0)
    for j in range(C.shape[1]):
        rows = np.flatnonzero(allowed[:, j])
        if len(rows):
            C[rows, j] = _column_by_signs(
                B[np.ix_(rows, rows)], linear[rows, j], penalty[rows, j], C[rows, j]
            )
    return C


def _column_by_signs(B: FloatArray, b: FloatArray, penalty: FloatArray, c: FloatArray) -> FloatArray:
    free = penalty == 0
    sign = np.sign(c)
    is_active = (c != 0) | free
    slack = 1e-12 * (1.0 + float(np.abs(b).max()))
    # The objective falls in every step, so no set of signs comes twice; the bound only guards against rounding.
    for _ in range(20 * len(b) + 20):
        active = np.flatnonzero(is_active)
        if len(active):
            target = np.zeros_like(c)
            right = b[active] - penalty[active] * sign[active]
            target[active] = np.linalg.solve(B[np.ix_(active, active)], right)
            crossing = np.flatnonzero(is_active & ~free & (target * sign < 0))
            if len(crossing):
                c = _lowest_on_the_way(B, b, penalty, c, target, crossing)
                sign = np.sign(c)
                is_active = (c != 0) | free
                continue
            c = target
        excess = np.where(is_active, -np.inf, np.abs(b - B @ c) - penalty)
        worst = int(np.argmax(excess))
        if excess[worst] <= slack:
            break
        is_active[worst] = True
        sign[worst] = np.sign(b[worst] - B[worst] @ c)
    return c


def _lowest_on_the_way(
    B: FloatArray,
    b: FloatArray,
    penalty: FloatArray,
    c: FloatArray,
    target: FloatArray,
    crossing: NDArray[np.intp],
) -> FloatArray:
    """The best of the points between c and `target` where a weight changes its sign, and `target` itself."""
    lowest, best = np.inf, target
    for i in [*crossing, -1]:
        share = 1.0 if i < 0 else c[i] / (c[i] - target[i])
        point = c + share * (target - c)
        if i >= 0:
            point[i] = 0.0
        value = float(0.5 * point @ B @ point - b @ point + penalty @ np.abs(point))
        if value < lowest:
            lowest, best = value, point
    return best
