"""The site's half of a round: pure functions of its own problem, its state and the broadcast."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.fdbnl.local_step import LocalLoss, LocalProblem

__all__ = ["Ask", "SiteMember", "gradient_answer"]


class Ask(Enum):
    """What the server asks of a site in one round, always about the broadcast point C.

    GRADIENT  the gradient of the site's loss (the adaptive schedule, throughout)
    ZERO      the first round of a consensus whose duals start at zero (the paper's schedule)
    STEP      a consensus round: update the dual with C, then solve
    """

    GRADIENT = "gradient"
    ZERO = "zero"
    STEP = "step"


def gradient_answer(loss: LocalLoss, C: FloatArray) -> FloatArray:
    """Return the vector to be summed when gradients are asked for: ``[gradient, flattened; 0; loss per variable]``.

    The zero stands where a consensus round has its residual, so that all rounds of a run have the same shape.
    """
    losses, gradient = loss.loss_and_grad(C)
    return np.concatenate([gradient.ravel(), [0.0], losses])


@dataclass(frozen=True)
class SiteMember:
    """A site's consensus state: its own C_k and its dual U_k, both (q, d)."""

    C: FloatArray
    U: FloatArray

    @classmethod
    def start(cls, q: int, d: int) -> SiteMember:
        """State before the first round."""
        return cls(np.zeros((q, d)), np.zeros((q, d)))

    def answer(
        self,
        problem: LocalProblem,
        ask: Ask,
        Cbar: FloatArray,
        rho2_before: float,
        rho2: float,
        relaxation: float = 1.0,
    ) -> tuple[SiteMember, FloatArray]:
        """Return the state after the round and the vector to be summed.

        The vector is ``[C_k + U_k/(rho2 D), flattened; |C_k - Cbar|_D^2; loss per variable at Cbar]``. With
        ``relaxation`` > 1 the site reports a point beyond its own solution (Boyd et al. 2011, section 3.4.3).
        """
        D = problem.metric[:, None]
        primal = 0.0
        if ask is Ask.ZERO:
            U = np.zeros_like(self.U)
        else:
            gap = self.C - Cbar
            primal = float(np.sum(D * gap * gap))
            U = self.U + rho2_before * D * gap  # [fdbnl] Eq. (para): beta_k and gamma_k, stacked
        C = problem.solve(Cbar, U, rho2)
        if relaxation != 1.0:
            C = relaxation * C + (1.0 - relaxation) * Cbar
        message = (C + U / (rho2 * D)).ravel()
        return SiteMember(C, U), np.concatenate([message, [primal], problem.target_loss(Cbar)])
