"""A proximal step on acyclicity, for one graph or many at once.

    W = argmin  1/2 |W - V|_kappa^2 + sum(L o |W|) + alpha h(W) + rho1/2 h(W)^2              [fdbnl] Eq. (Global)

FDBNL's server solves it for the common W, with kappa the curvature of the summed loss; PFDBNL's sites each for their own.
The quadratic is diagonal, so W needs only a proximal gradient on the acyclicity term: the quadratic and the L1 norm are
handled exactly in every step, and the step length adapts to the curvature of h alone. That curvature depends on the units
of W: with kappa_i / kappa_j in front of the squared step from i to j, one step length serves variables of any scale.
Warm-started, a handful of steps per round suffice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.graphs.acyclicity import Acyclicity
from feddbn.core.solvers.lasso import soft_threshold

__all__ = ["AcyclicStart", "solve_acyclic_prox"]


@dataclass(frozen=True)
class AcyclicStart:
    """(K, d, d) weights, (K,) h, (K, d, d) its gradients and (K,) the curvatures the last step ended with."""

    W: FloatArray
    h: FloatArray
    grad_h: FloatArray
    curvature: FloatArray


def solve_acyclic_prox(
    V: FloatArray,
    kappa: FloatArray,
    penalty: FloatArray,
    allowed: BoolArray,
    alpha: FloatArray,
    rho1: float,
    start: AcyclicStart,
    acyclicity: Acyclicity,
    *,
    tol: float = 1e-6,
    max_steps: int = 100,
) -> tuple[AcyclicStart, int]:
    """Return where proximal gradient with backtracking leads from `start`, and the evaluations of h that it took.

    V, penalty and allowed are (K, d, d), kappa (K, d, 1), alpha (K,). One turn is one trial step of every graph that is
    not done. A graph is done when a step moves none of its weights by more than `tol`.
    """
    if len(V) == 1:
        return _of_one(
            V[0], kappa[0], penalty[0], allowed[0], alpha[0], rho1, start, acyclicity, tol, max_steps
        )
    out = AcyclicStart(start.W.copy(), start.h.copy(), start.grad_h.copy(), start.curvature.copy())
    units = kappa / kappa.transpose(0, 2, 1)
    floor = 1e-3 * (kappa / units).mean(axis=(1, 2))
    W, h, grad_h, M = start.W, start.h, start.grad_h, np.maximum(start.curvature, floor)
    pull, live, n_steps, n_evaluations = kappa * V, np.arange(len(V)), np.zeros(len(V), dtype=int), 0
    g, phi = _slope_and_price(alpha, rho1, h, grad_h)
    while True:
        near = M[:, None, None] * units
        total = kappa + near
        new = allowed * soft_threshold((pull + near * W - g) / total, penalty / total)
        step = new - W
        h_new, grad_new = acyclicity(new)
        n_evaluations += len(live)
        g_new, phi_new = _slope_and_price(alpha, rho1, h_new, grad_new)
        # What the quadratic model promises, up to rounding.
        taken = phi_new <= phi + _dot(g + 0.5 * near * step, step) + 1e-12 * np.maximum(1.0, np.abs(phi))
        if np.count_nonzero(taken) == len(taken):
            W, h, grad_h, g, phi = new, h_new, grad_new, g_new, phi_new
        else:
            taken |= M > 1e20
            at = taken[:, None, None]
            W, grad_h, g = np.where(at, new, W), np.where(at, grad_new, grad_h), np.where(at, g_new, g)
            h, phi = np.where(taken, h_new, h), np.where(taken, phi_new, phi)
        n_steps = n_steps + taken
        moved = (units * step * step).reshape(len(live), -1).max(axis=1, initial=0.0)
        still = taken & (moved <= tol * tol)
        M = np.where(still, M, np.where(taken, np.maximum(0.5 * M, floor), 4.0 * M))
        done = still | (n_steps >= max_steps)
        if not np.count_nonzero(done):
            continue
        at_done, rest = live[done], ~done
        out.W[at_done], out.h[at_done], out.grad_h[at_done] = W[done], h[done], grad_h[done]
        out.curvature[at_done] = M[done]
        if not rest.any():
            return out, n_evaluations
        # The graphs that are done leave the stack.
        live, M, n_steps, W, h, grad_h = live[rest], M[rest], n_steps[rest], W[rest], h[rest], grad_h[rest]
        pull, kappa, units, penalty = pull[rest], kappa[rest], units[rest], penalty[rest]
        allowed, alpha, floor, g, phi = allowed[rest], alpha[rest], floor[rest], g[rest], phi[rest]


def _of_one(
    V: FloatArray,
    kappa: FloatArray,
    penalty: FloatArray,
    allowed: BoolArray,
    alpha: float,
    rho1: float,
    start: AcyclicStart,
    acyclicity: Acyclicity,
    tol: float,
    max_steps: int,
) -> tuple[AcyclicStart, int]:
    """The same for one graph: plain numbers where arrays of one number would take half of the time."""
    W, h, grad_h = start.W[0], float(start.h[0]), start.grad_h[0]
    pull, units = kappa * V, kappa / kappa[:, 0]
    floor = 1e-3 * float((kappa / units).mean())
    M, n_evaluations = max(float(start.curvature[0]), floor), 0
    for _ in range(max_steps):
        g, phi = (alpha + rho1 * h) * grad_h, alpha * h + 0.5 * rho1 * h * h
        while True:
            near = M * units
            total = kappa + near
            new = allowed * soft_threshold((pull + near * W - g) / total, penalty / total)
            step = new - W
            values, gradients = acyclicity(new[None])
            h_new, n_evaluations = float(values[0]), n_evaluations + 1
            promised = phi + float(np.vdot(g, step)) + 0.5 * float(np.vdot(near * step, step))
            if (
                alpha * h_new + 0.5 * rho1 * h_new * h_new <= promised + 1e-12 * max(1.0, abs(phi))
                or M > 1e20
            ):
                break
            M *= 4.0
        W, h, grad_h = new, h_new, gradients[0]
        if (units * step * step).max(initial=0.0) <= tol * tol:
            break
        M = max(0.5 * M, floor)
    return AcyclicStart(W[None], np.array([h]), grad_h[None], np.array([M])), n_evaluations


def _slope_and_price(
    alpha: FloatArray, rho1: float, h: FloatArray, grad_h: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the gradient (K, d, d) and the value (K,) of ``alpha h + rho1/2 h^2``."""
    rise = alpha + rho1 * h
    return rise[:, None, None] * grad_h, 0.5 * h * (alpha + rise)


def _dot(X: FloatArray, Y: FloatArray) -> FloatArray:
    """(K,) sum of the products of corresponding entries, per graph."""
    product: FloatArray = np.einsum("kij,kij->k", X, Y)
    return product
