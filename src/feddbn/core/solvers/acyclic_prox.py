"""The server's half of a consensus round.

    A = soft(V_A, lambda_a / kappa)                                                       exact
    W = argmin  1/2 |W - V_W|_kappa^2 + sum(L o |W|) + alpha h(W) + rho1/2 h(W)^2              [fdbnl] Eq. (Global)

with V = (1/K) sum_k (C_k + U_k / (rho2 D)) and kappa = K rho2 D. The quadratic is diagonal, so W needs only a proximal
gradient on the acyclicity term: the quadratic and the L1 norm are handled exactly in every step, and the step length
adapts to the curvature of h alone. That curvature depends on the units of W: with D_i / D_j in front of the squared step
from i to j, one step length serves variables of any scale. Warm-started, a handful of steps per round suffice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.core.graphs.acyclicity import Acyclicity, start_within_reach
from feddbn.core.solvers.lasso import soft_threshold

__all__ = ["AcyclicStep", "solve_acyclic_prox"]


@dataclass(frozen=True)
class AcyclicStep:
    """W, h(W) and its gradient, the curvature estimate to start the next call with, and the evaluations of h used."""

    W: FloatArray
    h: float
    grad_h: FloatArray
    curvature: float
    n_evaluations: int


def solve_acyclic_prox(
    V: FloatArray,
    kappa: FloatArray,
    penalty: FloatArray,
    allowed: NDArray[np.bool_],
    alpha: float,
    rho1: float,
    W0: FloatArray,
    acyclicity: Acyclicity,
    *,
    curvature: float = 0.0,
    tol: float = 1e-6,
    max_steps: int = 100,
    known: tuple[float, FloatArray] | None = None,
) -> AcyclicStep:
    """Return W from W0 by proximal gradient with backtracking on the curvature of ``alpha h + rho1/2 h^2``.

    Stops when a step moves no weight by more than `tol`. `known` is h and its gradient at W0, if that is where the last
    call ended.
    """
    W, h, grad_h = start_within_reach(W0, acyclicity) if known is None else (W0, *known)
    n_evaluations = 1 if known is None else 0
    pull = kappa * V
    units = kappa / kappa[:, 0]
    floor = 1e-3 * float((kappa / units).mean())
    M = max(curvature, floor)
    for _ in range(max_steps):
        g = (alpha + rho1 * h) * grad_h
        phi = alpha * h + 0.5 * rho1 * h * h
        while True:
            near = M * units
            total = kappa + near
            W_new = allowed * soft_threshold((pull + near * W - g) / total, penalty / total)
            step = W_new - W
            h_new, grad_new = acyclicity(W_new)
            n_evaluations += 1
            phi_new = alpha * h_new + 0.5 * rho1 * h_new * h_new
            bound = phi + float(np.vdot(g, step)) + 0.5 * float(np.vdot(near * step, step))
            if phi_new <= bound + 1e-12 * max(1.0, abs(phi)) or M > 1e20:
                break
            M *= 4.0
        W, h, grad_h = W_new, h_new, grad_new
        if np.max(units * step * step, initial=0.0) <= tol * tol:
            break
        M = max(M / 2.0, floor)
    return AcyclicStep(W, h, grad_h, M, n_evaluations)
