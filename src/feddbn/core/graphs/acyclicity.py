"""How far weighted graphs are from being acyclic, as a smooth function with its gradient.

Both forms are zero exactly on acyclic W, positive otherwise, and invariant under relabelling:

    expm      h(W) = tr exp(W o W) - d                      gradient  2 W o exp(W o W)'        [fdbnl] h(W), Zheng 2018
    logdet    h(W) = -log det(s I - W o W) + d log s        gradient  2 W o (s I - W o W)^-T   Bello et al. 2022

Graphs come as a stack (K, d, d), because a small graph costs a few microseconds of arithmetic and fifty of calls; each
gets its own answer, whatever the others are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from scipy.linalg import lu_factor, lu_solve
from scipy.linalg.lapack import dgebal

from feddbn.core.arrays import FloatArray
from feddbn.core.backend.device import HOST, Device
from feddbn.settings import word

__all__ = [
    "ACYCLICITIES",
    "Acyclicity",
    "expm_value_and_grad",
    "get_acyclicity",
    "logdet_value_and_grad",
    "start_within_reach",
]

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
# How often a fit evaluates h, about.
_TIMES = 300.0
# From a larger h no step length leads back: its square and its curvature leave the range of double precision.
_LARGEST_START = 1e6


def expm_value_and_grad(W: FloatArray, device: Device = HOST) -> tuple[FloatArray, FloatArray]:
    """Return h(W) = tr exp(W o W) - d and its gradient; infinity, which a line search backs off from, where too large.

    `device` multiplies if the graphs are large.
    """
    S = W * W
    norms = S.sum(axis=1).max(axis=1, initial=0.0)
    far, units, largest = None, None, float(norms.max(initial=0.0))
    if not largest <= _BALANCE_FROM:  # Also where a weight is not a number.
        S, norms, units = _balanced(S, norms)
        far = ~(norms <= _LARGEST_NORM)
        S[far], norms[far] = 0.0, 0.0
    chosen = device.of(_flops(W, largest), 16.0 * W.size, _TIMES)
    exponential = _expm_minus_identity(S, norms, largest, chosen)
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


def _flops(W: FloatArray, largest: float) -> float:
    """Operations of the products below, up to one squaring."""
    n_squarings = float(np.log2(min(max(largest / _THETA, 1.0), _LARGEST_NORM)))
    return 2.0 * W.size * int(W.shape[1]) * (5.0 + n_squarings)


def _expm_minus_identity(S: FloatArray, norms: FloatArray, largest: float, device: Device) -> FloatArray:
    """Return exp(S) - I for non-negative matrices; small traces keep their relative accuracy without the identity.

    Scaling and squaring of X = exp(S/2^s) - I: (I + X)^2 - I = 2X + X^2. Taylor of degree 12 in Paterson-Stockmeyer
    form costs five products. A general-purpose expm spends most of its time on norms and Pade systems at these sizes;
    here most of it would go into adding up small matrices, so the three polynomials are one product with their
    coefficients. The lines are those of numpy and torch alike.
    """
    n, d = S.shape[:2]
    xp, powers, n_squarings, most = device.xp, device.empty((4, n, d, d)), norms, 0
    if largest <= _THETA:
        powers[0] = device.put(S)
    else:
        n_squarings = np.ceil(np.log2(np.maximum(norms / _THETA, 1.0)))
        most = int(n_squarings.max())
        xp.multiply(device.put(S), device.put(np.exp2(-n_squarings)[:, None, None]), out=powers[0])
    xp.matmul(powers[0], powers[0], out=powers[1])
    xp.matmul(powers[1], powers[:2], out=powers[2:])
    low, middle, total = (device.put(_TAYLOR) @ powers.reshape(4, -1)).reshape(3, n, d, d)
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
    return device.get(total)


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


def get_acyclicity(name: str, device: Device = HOST) -> Acyclicity:
    """Look an acyclicity up by name; `device` multiplies for "expm", "logdet" takes one graph after the other."""
    word(*ACYCLICITIES).check("acyclicity", name)
    if name == "expm" and device is not HOST:
        return functools.partial(expm_value_and_grad, device=device)
    return ACYCLICITIES[name]
