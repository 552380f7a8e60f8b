"""The site's half of FDBNL's rounds: functions of its Gram matrix, its state and the broadcast C; many sites at once.

    gradient     w_k G_k (C - E)                                                          rounds
    C_k = argmin  w_k loss_k(C) + tr(U_k'(C - Cbar)) + rho2/2 |C - Cbar|_D^2              the paper's
        = (w_k G_k + rho2 D)^-1 (w_k G_k E - U_k + rho2 D Cbar)                            [fdbnl] Eq. (Local)

The paper writes the same solution, with D = I, as two Schur complements per round. One eigendecomposition of
``D^-1/2 w_k G_k D^-1/2`` serves every round and every rho2, so a round costs two small products, whatever the number of
rows was. D = diag(variances of the sources) makes a round independent of the units of the variables.

Every array has a leading axis for the sites, (K, ...); one site is K = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.backend.device import HOST, Device, product

__all__ = ["Ask", "Consensus", "Decomposed", "gradient_answers", "loss_and_grad"]


_TIMES = 80.0
"""Rounds of a fit, about."""


class Ask(Enum):
    """What the server asks of a site in one round, always about the broadcast point C.

    GRADIENT  the gradient of the site's loss (schedule "rounds", throughout)
    ZERO      the first round of a consensus whose duals start at zero (the paper's schedule)
    STEP      a consensus round: update the dual with C, then solve
    GRAM      nothing about C: the site's weighted Gram matrix (schedule "gram" with sites of equal weight)
    """

    GRADIENT = "gradient"
    ZERO = "zero"
    STEP = "step"
    GRAM = "gram"


def loss_and_grad(wG: FloatArray, C: FloatArray, device: Device = HOST) -> tuple[FloatArray, FloatArray]:
    """Return (K, d) the weighted losses of each target and (K, q, d) their gradients ``w G (C - E)`` at C, (q, d).

    The losses are the diagonal of ``w/2 (E-C)' G (E-C)``; both need one product with G, which is one for all sites.
    """
    q, d = C.shape
    R = C.copy()
    R[:d].flat[:: d + 1] -= 1.0
    gradient = product(wG.reshape(-1, q), R, device, _TIMES).reshape(-1, q, d)
    return np.einsum("ij,kij->kj", 0.5 * R, gradient), gradient


def gradient_answers(wG: FloatArray, C: FloatArray, device: Device = HOST) -> FloatArray:
    """Return (K, q d + 1 + d) the vectors to be summed when gradients are asked for: ``[gradient; 0; losses]``.

    The zero stands where a consensus round has its residual, so that all rounds of a run have the same shape.
    """
    losses, gradient = loss_and_grad(wG, C, device)
    n = len(wG)
    return np.concatenate([gradient.reshape(n, -1), np.zeros((n, 1)), losses], axis=1)


@dataclass(frozen=True)
class Decomposed:
    """``w D^-1/2 G D^-1/2 = v diag(e) v'`` of K sites with one metric D (q,): wG, V = D^-1/2 v (K, q, q), e (K, q, 1)."""

    wG: FloatArray
    V: FloatArray
    e: FloatArray
    metric: FloatArray

    @classmethod
    def of(cls, wG: FloatArray, metric: FloatArray) -> Decomposed:
        """Decompose once; tiny negative eigenvalues from rounding become zero."""
        root = np.sqrt(metric)
        e, v = np.linalg.eigh(wG / np.outer(root, root))
        return cls(wG, v / root[:, None], np.maximum(e, 0.0)[:, :, None], metric)

    def solve(self, Cbar: FloatArray, U: FloatArray, rho2: FloatArray | float) -> FloatArray:
        """Return (K, q, d) every C_k; Cbar is (q, d) or (K, q, d), rho2 a number or (K, 1, 1)."""
        right = self.wG[:, :, : U.shape[2]] - U + rho2 * self.metric[:, None] * Cbar
        solution: FloatArray = self.V @ ((self.V.transpose(0, 2, 1) @ right) / (self.e + rho2))
        return solution


@dataclass(frozen=True)
class Consensus:
    """Sites' own C_k and duals U_k, both (K, q, d)."""

    C: FloatArray
    U: FloatArray

    def answers(
        self,
        problem: Decomposed,
        ask: Ask,
        Cbar: FloatArray,
        rho2_before: float,
        rho2: float,
        relaxation: float = 1.0,
    ) -> tuple[Consensus, FloatArray]:
        """Return the states after the round and (K, q d + 1 + d) the vectors to be summed.

        A vector is ``[C_k + U_k/(rho2 D), flattened; |C_k - Cbar|_D^2; loss per variable at Cbar]``. With
        ``relaxation`` > 1 a site reports a point beyond its own solution (Boyd et al. 2011, section 3.4.3).
        """
        D, n = problem.metric[:, None], len(self.C)
        primal, U = np.zeros(n), np.zeros_like(self.U)
        if ask is Ask.STEP:
            gap = self.C - Cbar
            primal = np.einsum("kij,kij->k", D * gap, gap)
            U = self.U + rho2_before * (D * gap)  # [fdbnl] Eq. (para): beta_k and gamma_k, stacked
        C = problem.solve(Cbar, U, rho2)
        if relaxation != 1.0:
            C = relaxation * C + (1.0 - relaxation) * Cbar
        message = (C + U / (rho2 * D)).reshape(n, -1)
        losses, _ = loss_and_grad(problem.wG, Cbar)
        return Consensus(C, U), np.concatenate([message, primal[:, None], losses], axis=1)
