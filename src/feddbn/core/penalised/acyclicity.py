"""How far weighted graphs are from being acyclic, as a smooth function with its gradient; and a proximal step on it.

Both forms are zero exactly on acyclic W, positive otherwise, and invariant under relabelling:

    expm      h(W) = tr exp(W o W) - d                      gradient  2 W o exp(W o W)'        [fdbnl] h(W), Zheng 2018
    logdet    h(W) = -log det(s I - W o W) + d log s        gradient  2 W o (s I - W o W)^-T   Bello et al. 2022

Graphs come as a stack (K, d, d), because a small graph costs a few microseconds of arithmetic and fifty of calls; each
gets its own answer, whatever the others are.

The proximal step, for one graph or many at once:

    W = argmin  1/2 |W - V|_kappa^2 + sum(L o |W|) + alpha h(W) + rho1/2 h(W)^2              [fdbnl] Eq. (Global)

FDBNL's server solves it for the common W, with kappa the curvature of the summed loss; PFDBNL's sites each for their own.
The quadratic is diagonal, so W needs only a proximal gradient on the acyclicity term: the quadratic and the L1 norm are
handled exactly in every step, and the step length adapts to the curvature of h alone. That curvature depends on the units
of W: with kappa_i / kappa_j in front of the squared step from i to j, one step length serves variables of any scale.
Warm-started, a handful of steps per round suffice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lu_factor, lu_solve
from scipy.linalg.lapack import dgebal

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.penalised.lasso import soft_threshold
from feddbn.settings import word

Acyclicity = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""From (K, d, d) weights to (K,) h and (K, d, d) its gradients."""

# Degree and largest 1-norm for which the Taylor polynomial of exp is accurate to double precision; the terms of a
# non-negative matrix do not cancel, so the remainder theta^(m+1)/(m+1)! relative to 1 is the whole story.
_THETA = 0.8
# exp(S) - I = low + X4 (middle + X4 high): coefficients of X, X^2, X^3, X^4 in each; X^4's own 1/4! sits on middle's
# diagonal.
_TAYLOR = np.array(
    [
        [1.0, 1.0 / 2.0, 1.0 / 6.0, 0.0],
        [1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0, 1.0 / 40320.0],
        [1.0 / 362880.0, 1.0 / 3628800.0, 1.0 / 39916800.0, 1.0 / 479001600.0],
    ]
)
# Entries of exp(S) are at most exp(norm); beyond this they could overflow.
_LARGEST_NORM = 300.0
# Below this norm, balancing would cost more than the squarings it saves.
_BALANCE_FROM = 30.0
# From a larger h no step length leads back: its square and its curvature leave the range of double precision.
_LARGEST_START = 1e6


def expm_value_and_grad(W: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return h(W) = tr exp(W o W) - d and its gradient; infinity, which a line search backs off from, where too large."""
    S = W * W
    norms = S.sum(axis=1).max(axis=1, initial=0.0)
    far, units, largest = None, None, float(norms.max(initial=0.0))
    if not largest <= _BALANCE_FROM:  # Also where a weight is not a number.
        S, norms, units = _balanced(S, norms)
        far = ~(norms <= _LARGEST_NORM)
        S[far], norms[far] = 0.0, 0.0
    exponential = _expm_minus_identity(S, norms, largest)
    diagonal = exponential.reshape(len(W), -1)[:, :: W.shape[1] + 1]
    h = diagonal.sum(axis=1)
    if units is not None:
        exponential *= units[:, :, None] / units[:, None, :]
    diagonal += 1.0
    if far is None:
        return h, 2.0 * W * exponential.transpose(0, 2, 1)
    with np.errstate(invalid="ignore"):
        grad = 2.0 * W * exponential.transpose(0, 2, 1)
    h[far], grad[far] = np.inf, 0.0
    return h, grad


def _balanced(S: FloatArray, norms: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return every S of large norm in units that balance it, the norms then, and the units, (K, d).

    Variables in other units have other weights but the same cycles. LAPACK without the checks of ``matrix_balance``, which
    take ten times as long; units are powers of two.
    """
    units = np.ones(S.shape[:2])
    for k in np.flatnonzero((norms > _BALANCE_FROM) & np.isfinite(norms)):
        S[k], _, _, units[k], _ = dgebal(S[k], scale=1, permute=0)
        norms[k] = S[k].sum(axis=0).max(initial=0.0)
    return S, norms, units


def _expm_minus_identity(S: FloatArray, norms: FloatArray, largest: float) -> FloatArray:
    """Return exp(S) - I for non-negative matrices; small traces keep their relative accuracy without the identity.

    Scaling and squaring of X = exp(S/2^s) - I: (I + X)^2 - I = 2X + X^2. Taylor of degree 12 in Paterson-Stockmeyer
    form costs five products. A general-purpose expm spends most of its time on norms and Pade systems at these sizes;
    here most of it would go into adding up small matrices, so the three polynomials are one product with their
    coefficients.
    """
    n, d = S.shape[:2]
    powers, n_squarings, most = np.empty((4, n, d, d)), norms, 0
    if largest <= _THETA:
        powers[0] = S
    else:
        n_squarings = np.ceil(np.log2(np.maximum(norms / _THETA, 1.0)))
        most = int(n_squarings.max())
        np.multiply(S, np.exp2(-n_squarings)[:, None, None], out=powers[0])
    np.matmul(powers[0], powers[0], out=powers[1])
    np.matmul(powers[1], powers[:2], out=powers[2:])
    low, middle, total = (_TAYLOR @ powers.reshape(4, -1)).reshape(3, n, d, d)
    middle.reshape(n, -1)[:, :: d + 1] += 1.0 / 24.0
    for lower in (middle, low):
        total = powers[3] @ total
        total += lower
    for squared in range(most):
        more = n_squarings > squared
        X = total if more.all() else total[more]
        square = X @ X
        X *= 2.0
        X += square
        if X is not total:
            total[more] = X
    return np.asarray(total)


def logdet_value_and_grad(W: FloatArray, s: float = 1.0) -> tuple[FloatArray, FloatArray]:
    """Return h(W) = d log s - log det(s I - W o W) and its gradient; infinite outside the domain of M-matrices."""
    h, grad = np.empty(len(W)), np.zeros(W.shape)
    for k, one in enumerate(W):
        h[k], grad[k] = _logdet_of_one(one, s)
    return h, grad


def _logdet_of_one(W: FloatArray, s: float) -> tuple[float, FloatArray]:
    d = len(W)
    M = -W * W
    M.flat[:: d + 1] += s
    lu, pivots = lu_factor(M, check_finite=False)
    diagonal = np.diag(lu)
    inverse = lu_solve((lu, pivots), np.eye(d), check_finite=False) if np.all(diagonal != 0) else None
    # M is an M-matrix exactly where its inverse is non-negative; outside, log det means nothing.
    if inverse is None or inverse.min() < -1e-10 * max(1.0, np.abs(inverse).max()):
        return float("inf"), np.zeros_like(W)
    return float(d * np.log(s) - np.sum(np.log(np.abs(diagonal)))), 2.0 * W * inverse.T


def start_within_reach(W: FloatArray, acyclicity: Acyclicity) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return W, or parts of it from which a descent can start, with h there and its gradient.

    Weights between variables in very different units can be so large that h overflows. A solver's starting point is
    free, and halving keeps its graph.
    """
    h, grad_h = acyclicity(W)
    far = ~(h <= _LARGEST_START)
    while far.any():
        W = np.where(far[:, None, None], 0.5 * W, W)
        h, grad_h = acyclicity(W)
        far = ~(h <= _LARGEST_START)
    return W, h, grad_h


ACYCLICITIES: dict[str, Acyclicity] = {"expm": expm_value_and_grad, "logdet": logdet_value_and_grad}


def get_acyclicity(name: str) -> Acyclicity:
    """Look an acyclicity up by name."""
    word(*ACYCLICITIES).check("acyclicity", name)
    return ACYCLICITIES[name]


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
        taken = phi_new <= phi + dot(g + 0.5 * near * step, step) + 1e-12 * np.maximum(1.0, np.abs(phi))
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


def dot(X: FloatArray, Y: FloatArray) -> FloatArray:
    """(K,) sum of the products of corresponding entries, per graph."""
    product: FloatArray = np.einsum("kij,kij->k", X, Y)
    return product
