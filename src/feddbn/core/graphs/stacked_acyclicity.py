"""Acyclicity of many graphs at once: the formulas of `acyclicity` and `global_step` with a leading axis.

A small graph costs a few microseconds of arithmetic and fifty of calls. Every graph keeps its own step length and stops
by itself; those that are done leave the stack, so that the answer for each is its own, up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.core.graphs.acyclicity import (
    BALANCE_FROM,
    LARGEST_NORM,
    LARGEST_START,
    TAYLOR,
    THETA,
    Acyclicity,
    balanced,
    expm_value_and_grad,
    start_within_reach,
)
from feddbn.core.solvers.lasso import soft_threshold

__all__ = ["StackedSteps", "acyclic_prox_of_all", "starts_within_reach", "values_and_grads"]


def values_and_grads(W: FloatArray, acyclicity: Acyclicity) -> tuple[FloatArray, FloatArray]:
    """Return (K,) h and (K, d, d) its gradients at (K, d, d) weights."""
    if acyclicity is not expm_value_and_grad:
        found = [acyclicity(one) for one in W]
        return np.array([h for h, _ in found]), np.array([grad for _, grad in found]).reshape(W.shape)
    S = W * W
    norms = S.sum(axis=1).max(axis=1, initial=0.0)
    large = np.flatnonzero((norms > BALANCE_FROM) & np.isfinite(norms))
    units = np.ones((len(large), W.shape[1]))
    for i, k in enumerate(large):
        S[k], units[i] = balanced(S[k])
    norms[large] = S[large].sum(axis=1).max(axis=1, initial=0.0)
    far = ~(norms <= LARGEST_NORM)
    S[far], norms[far] = 0.0, 0.0
    exponential = _expm_minus_identity(S, norms)
    h = np.trace(exponential, axis1=1, axis2=2)
    exponential[large] *= units[:, :, None] / units[:, None, :]
    diagonal = np.einsum("kii->ki", exponential)
    diagonal += 1.0
    with np.errstate(invalid="ignore"):
        grad = 2.0 * W * exponential.transpose(0, 2, 1)
    # As one graph by itself: too cyclic to represent.
    h[far], grad[far] = np.inf, 0.0
    return h, grad


def _expm_minus_identity(S: FloatArray, norms: FloatArray) -> FloatArray:
    """Return exp(S_k) - I; see `acyclicity`."""
    n, d = S.shape[:2]
    n_squarings = np.ceil(np.log2(np.maximum(norms / THETA, 1.0))).astype(int)
    powers = np.empty((4, n, d, d))
    np.multiply(S, (0.5**n_squarings)[:, None, None], out=powers[0])
    np.matmul(powers[0], powers[0], out=powers[1])
    np.matmul(powers[1], powers[:2], out=powers[2:])
    low, middle, total = (TAYLOR @ powers.reshape(4, -1)).reshape(3, n, d, d)
    diagonal = np.einsum("kii->ki", middle)
    diagonal += 1.0 / 24.0
    for lower in (middle, low):
        total = powers[3] @ total
        total += lower
    for squared in range(int(n_squarings.max(initial=0))):
        more = np.flatnonzero(n_squarings > squared)
        X = total[more]
        total[more] = 2.0 * X + X @ X
    return total


def starts_within_reach(W: FloatArray, acyclicity: Acyclicity) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return `acyclicity.start_within_reach` of every graph: (K, d, d) weights, (K,) h, (K, d, d) gradients."""
    h, grad = values_and_grads(W, acyclicity)
    far = np.flatnonzero(~(h <= LARGEST_START))
    if len(far):
        W = W.copy()
        for k in far:
            W[k], h[k], grad[k] = start_within_reach(W[k], acyclicity)
    return W, h, grad


@dataclass(frozen=True)
class StackedSteps:
    """`global_step.AcyclicStep` of every graph."""

    W: FloatArray
    h: FloatArray
    grad_h: FloatArray
    curvature: FloatArray


def acyclic_prox_of_all(
    V: FloatArray,
    kappa: FloatArray,
    penalty: FloatArray,
    allowed: NDArray[np.bool_],
    alpha: FloatArray,
    rho1: float,
    start: StackedSteps,
    acyclicity: Acyclicity,
    *,
    tol: float,
    max_steps: int,
) -> StackedSteps:
    """Return `global_step.solve_acyclic_prox` of every graph; `kappa` is (K, d, 1), `start` knows h and its gradient.

    One turn is one trial step of every graph that is not done.
    """
    out = StackedSteps(start.W.copy(), start.h.copy(), start.grad_h.copy(), start.curvature.copy())
    pull = kappa * V
    units = kappa / kappa.transpose(0, 2, 1)
    floor = 1e-3 * (kappa / units).mean(axis=(1, 2))
    # Of the graphs that are not done: their numbers and, in this order, everything of theirs.
    live = np.arange(len(V))
    kept: list[Any] = [
        pull,
        kappa,
        units,
        penalty,
        allowed,
        alpha,
        floor,
        start.W,
        start.h,
        start.grad_h,
    ]
    M, n_steps = np.maximum(start.curvature, floor), np.zeros(len(V), dtype=int)
    while len(live):
        pull, kappa, units, penalty, allowed, alpha, floor, W, h, grad_h = kept
        g = (alpha + rho1 * h)[:, None, None] * grad_h
        phi = alpha * h + 0.5 * rho1 * h * h
        near = M[:, None, None] * units
        total = kappa + near
        new = allowed * soft_threshold((pull + near * W - g) / total, penalty / total)
        step = new - W
        h_new, grad_new = values_and_grads(new, acyclicity)
        phi_new = alpha * h_new + 0.5 * rho1 * h_new * h_new
        bound = phi + np.einsum("kij,kij->k", g, step) + 0.5 * np.einsum("kij,kij->k", near * step, step)
        taken = (phi_new <= bound + 1e-12 * np.maximum(1.0, np.abs(phi))) | (M > 1e20)
        at = taken[:, None, None]
        W, h, grad_h = np.where(at, new, W), np.where(taken, h_new, h), np.where(at, grad_new, grad_h)
        n_steps = n_steps + taken
        still = taken & ((units * step * step).max(axis=(1, 2), initial=0.0) <= tol * tol)
        M = np.where(taken, np.where(still, M, np.maximum(M / 2.0, floor)), 4.0 * M)
        done = still | (n_steps >= max_steps)
        kept[-3:] = W, h, grad_h
        if done.any():
            at_done = live[done]
            out.W[at_done], out.h[at_done], out.grad_h[at_done] = W[done], h[done], grad_h[done]
            out.curvature[at_done] = M[done]
            rest = ~done
            live, M, n_steps = live[rest], M[rest], n_steps[rest]
            kept = [array[rest] for array in kept]
    return out
