"""How far a weighted graph is from being acyclic, as a smooth function with its gradient.

Both forms are zero exactly on acyclic W, positive otherwise, and invariant under relabelling:

    expm      h(W) = tr exp(W o W) - d                      gradient  2 W o exp(W o W)'        [fdbnl] h(W), Zheng 2018
    logdet    h(W) = -log det(s I - W o W) + d log s        gradient  2 W o (s I - W o W)^-T   Bello et al. 2022
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lu_factor, lu_solve
from scipy.linalg.lapack import dgebal

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError

__all__ = [
    "ACYCLICITIES",
    "BALANCE_FROM",
    "LARGEST_NORM",
    "LARGEST_START",
    "TAYLOR",
    "THETA",
    "Acyclicity",
    "balanced",
    "expm_value_and_grad",
    "get_acyclicity",
    "logdet_value_and_grad",
    "start_within_reach",
]

Acyclicity = Callable[[FloatArray], tuple[float, FloatArray]]

# Degree and largest 1-norm for which the Taylor polynomial of exp is accurate to double precision; the terms of a
# non-negative matrix do not cancel, so the remainder theta^(m+1)/(m+1)! relative to 1 is the whole story.
THETA = 0.8
# exp(S) - I = low + X4 (middle + X4 high): coefficients of X, X^2, X^3, X^4 in each; X^4's own 1/4! sits on middle's
# diagonal.
TAYLOR = np.array(
    [
        [1.0, 1.0 / 2.0, 1.0 / 6.0, 0.0],
        [1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0, 1.0 / 40320.0],
        [1.0 / 362880.0, 1.0 / 3628800.0, 1.0 / 39916800.0, 1.0 / 479001600.0],
    ]
)
# Entries of exp(S) are at most exp(norm); beyond this they could overflow.
LARGEST_NORM = 300.0
# Below this norm, balancing would cost more than the squarings it saves.
BALANCE_FROM = 30.0
# From a larger h no step length leads back: its square and its curvature leave the range of double precision.
LARGEST_START = 1e6


def balanced(S: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return S in units that balance it, and these: ``S = units[:, None] * balanced / units``.

    Variables in other units have other weights but the same cycles. LAPACK without the checks of ``matrix_balance``, which
    take ten times as long; units are powers of two.
    """
    found, _, _, units, _ = dgebal(S, scale=1, permute=0)
    return found, units


def expm_value_and_grad(W: FloatArray) -> tuple[float, FloatArray]:
    """Return h(W) = tr exp(W o W) - d and its gradient."""
    S = W * W
    norm = float(S.sum(axis=0).max(initial=0.0))
    units = None
    if norm > BALANCE_FROM and np.isfinite(norm):
        S, units = balanced(S)
        norm = float(S.sum(axis=0).max())
    if not norm <= LARGEST_NORM:
        # Far too cyclic to represent; a line search backs off from infinity.
        return float("inf"), np.zeros_like(W)
    exponential = _expm_minus_identity(S, norm)
    value = float(np.trace(exponential))
    if units is not None:
        exponential *= units[:, None] / units
    exponential.flat[:: len(W) + 1] += 1.0
    return value, 2.0 * W * exponential.T


def _expm_minus_identity(S: FloatArray, norm: float) -> FloatArray:
    """Return exp(S) - I for a non-negative matrix; small traces keep their relative accuracy without the identity.

    Scaling and squaring of X = exp(S/2^s) - I: (I + X)^2 - I = 2X + X^2. Taylor of degree 12 in Paterson-Stockmeyer
    form costs five products. A general-purpose expm spends most of its time on norms and Pade systems at these sizes;
    here most of it would go into adding up small matrices, so the three polynomials are one product with their
    coefficients.
    """
    d = len(S)
    n_squarings = max(0, int(np.ceil(np.log2(norm / THETA)))) if norm > THETA else 0
    powers = np.empty((4, d, d))
    np.multiply(S, 0.5**n_squarings, out=powers[0])
    np.matmul(powers[0], powers[0], out=powers[1])
    np.matmul(powers[1], powers[:2], out=powers[2:])
    low, middle, total = (TAYLOR @ powers.reshape(4, -1)).reshape(3, d, d)
    middle.flat[:: d + 1] += 1.0 / 24.0
    for lower in (middle, low):
        total = powers[3] @ total
        total += lower
    for _ in range(n_squarings):
        square = total @ total
        total *= 2.0
        total += square
    return total


def logdet_value_and_grad(W: FloatArray, s: float = 1.0) -> tuple[float, FloatArray]:
    """Return h(W) = d log s - log det(s I - W o W) and its gradient; infinite outside the domain of M-matrices."""
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


def start_within_reach(W: FloatArray, acyclicity: Acyclicity) -> tuple[FloatArray, float, FloatArray]:
    """Return W, or a part of it from which a descent can start, with h there and its gradient.

    Weights between variables in very different units can be so large that h overflows. A solver's starting point is
    free, and halving keeps its graph.
    """
    h, grad_h = acyclicity(W)
    while not h <= LARGEST_START:
        W = 0.5 * W
        h, grad_h = acyclicity(W)
    return W, h, grad_h


ACYCLICITIES: dict[str, Acyclicity] = {"expm": expm_value_and_grad, "logdet": logdet_value_and_grad}


def get_acyclicity(name: str) -> Acyclicity:
    """Look an acyclicity up by name."""
    try:
        return ACYCLICITIES[name]
    except KeyError:
        raise ParameterError(
            f"acyclicity={name!r} is not known; choose one of {', '.join(ACYCLICITIES)}."
        ) from None
