"""The site's half of a consensus round, in closed form.

    C_k = argmin  w_k loss_k(C) + tr(U_k'(C - Cbar)) + rho2/2 |C - Cbar|_D^2
        = (w_k G_k + rho2 D)^-1 (w_k G_k E - U_k + rho2 D Cbar)                            [fdbnl] Eq. (Local)

The paper writes the same solution, with D = I, as two Schur complements per round. One eigendecomposition of
``D^-1/2 G_k D^-1/2`` serves every round and every rho2, so a round costs two small products, whatever the number of
rows was. D = diag(variances of the sources) makes a round independent of the units of the variables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray

__all__ = ["LocalLoss", "LocalProblem"]


@dataclass(frozen=True)
class LocalLoss:
    """A site's weighted quadratic ``w/2 tr((E-C)' G (E-C))``; wG is (q, q), d the number of targets."""

    wG: FloatArray
    d: int

    def loss_and_grad(self, C: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return (d,) the weighted loss of each target, and (q, d) its gradient ``w G (C - E)``.

        The losses are the diagonal of ``w/2 (E-C)' G (E-C)``; both need one product with G.
        """
        R = C.copy()
        R[: self.d].flat[:: self.d + 1] -= 1.0
        gradient: FloatArray = self.wG @ R
        return 0.5 * np.einsum("ij,ij->j", R, gradient), gradient

    def gradient(self, C: FloatArray) -> FloatArray:
        """Return (q, d) the gradient of the weighted loss, ``w G (C - E)``."""
        return self.loss_and_grad(C)[1]

    def target_loss(self, C: FloatArray) -> FloatArray:
        """Return (d,) the weighted loss of each target."""
        return self.loss_and_grad(C)[0]


@dataclass(frozen=True)
class LocalProblem(LocalLoss):
    """The loss, decomposed as ``w D^-1/2 G D^-1/2 = V diag(e) V'`` for consensus rounds; V is ``D^-1/2`` times it."""

    V: FloatArray
    e: FloatArray
    metric: FloatArray

    @classmethod
    def from_gram(
        cls, G: FloatArray, weight: float, d: int, metric: FloatArray | None = None
    ) -> LocalProblem:
        """Decompose once; `metric` (q,) is the diagonal of D. Tiny negative eigenvalues from rounding become zero."""
        wG = weight * G
        D = np.ones(len(G)) if metric is None else metric
        root = np.sqrt(D)
        e, V = np.linalg.eigh(wG / np.outer(root, root))
        return cls(wG, d, V / root[:, None], np.maximum(e, 0.0), D)

    def solve(self, Cbar: FloatArray, U: FloatArray, rho2: float) -> FloatArray:
        """Return C_k."""
        right = self.wG[:, : self.d] - U + (rho2 * self.metric)[:, None] * Cbar
        solution: FloatArray = self.V @ ((self.V.T @ right) / (self.e + rho2)[:, None])
        return solution
