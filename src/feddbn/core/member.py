"""The site's half of a round: pure functions of its own problem, its state and the broadcast."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from feddbn.core.lagged import FloatArray
from feddbn.core.local_step import LocalProblem

__all__ = ["Ask", "SiteMember"]


class Ask(Enum):
    """What the server asks of a site in one round, always about the broadcast point C.

    GRADIENT  the gradient of the site's loss
    ZERO      the first round of a consensus whose duals start at zero, as in the paper
    JOIN      the first round of a consensus that continues from C: the duals make C stationary
    STEP      a consensus round: update the dual with C, then solve
    """

    GRADIENT = "gradient"
    ZERO = "zero"
    JOIN = "join"
    STEP = "step"


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

        The vector is ``[M, flattened; |C_k - Cbar|_D^2; |U_k|_{1/D}^2; loss per variable at Cbar]``, where M is the
        gradient, or ``C_k + U_k/(rho2 D)`` in a consensus round. With ``relaxation`` > 1 the site reports a point
        beyond its own solution (Boyd et al. 2011, section 3.4.3).
        """
        loss, gradient = problem.loss_and_grad(Cbar)
        if ask is Ask.GRADIENT:
            return self, np.concatenate([gradient.ravel(), [0.0, 0.0], loss])
        D = problem.metric[:, None]
        primal = 0.0
        if ask is Ask.ZERO:
            U = np.zeros_like(self.U)
        elif ask is Ask.JOIN:
            U = -gradient
        else:
            gap = self.C - Cbar
            primal = float(np.sum(D * gap * gap))
            U = self.U + rho2_before * D * gap  # [fdbnl] Eq. (para): beta_k and gamma_k, stacked
        C = problem.solve(Cbar, U, rho2)
        if relaxation != 1.0:
            C = relaxation * C + (1.0 - relaxation) * Cbar
        message = (C + U / (rho2 * D)).ravel()
        return SiteMember(C, U), np.concatenate([message, [primal, float(np.sum(U * U / D))], loss])
