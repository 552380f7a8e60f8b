"""FDBNL by the paper's schedule: the server's half as a state machine, fed with sums only, and the site's half.

Theory of operation
-------------------
Broadcast `C` (with `ask`, `rho2_before`, `rho2`, `relaxation`); feed the sum of the sites' vectors to `advance`; repeat
until `is_done`. What the server learns about a broadcast point's residuals it learns from the next sum.

The schedule is [fdbnl] Algorithm 1: consensus ADMM with h in the global step throughout (stage ACYCLIC, then the refits if
asked for). Stopping on h alone would accept the first iterate W = 0, which is acyclic and has learned nothing.
# DEVIATES [fdbnl] stopping: h AND residuals; see test_zero_is_not_an_answer.

The site's half: functions of its Gram matrix, its state and the broadcast C; many sites at once.

    C_k = argmin  w_k loss_k(C) + tr(U_k'(C - Cbar)) + rho2/2 |C - Cbar|_D^2
        = (w_k G_k + rho2 D)^-1 (w_k G_k E - U_k + rho2 D Cbar)                            [fdbnl] Eq. (Local)

The paper writes the same solution, with D = I, as two Schur complements per round. One eigendecomposition of
``D^-1/2 w_k G_k D^-1/2`` serves every round and every rho2, so a round costs two small products, whatever the number of
rows was. D = diag(variances of the sources) makes a round independent of the units of the variables.

The site's arrays have a leading axis for the sites, (K, ...); one site is K = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.penalised.path import RunOptions, Stage
from feddbn.core.penalised.pooled import PooledRun, loss_and_grad

_RELAXATION = 1.6


class ConsensusRun(PooledRun):
    """The run so far: broadcast `C`, `ask` and the numbers that go with it; feed sums to `advance` until `is_done`."""

    def __init__(self, options: RunOptions) -> None:
        super().__init__(options)
        self._joined = False

    @property
    def ask(self) -> Ask:
        """What to ask of the sites about `C`."""
        return Ask.STEP if self._joined else Ask.ZERO

    @property
    def relaxation(self) -> float:
        """How far sites overshoot: convex problems converge faster with it."""
        return 1.0 if self.stage is Stage.ACYCLIC else _RELAXATION

    def advance(self, total: FloatArray, n_sites: int) -> None:
        """Take the sum of one round's vectors (see `Consensus.answers`) and decide what comes next."""
        q, d = self.C.shape
        message, gap = total[: q * d].reshape(q, d), float(total[q * d])
        self.target_loss = np.array(total[q * d + 1 :])
        scale = max(self._norm(self.C), 1e-12)
        primal, dual = float("inf"), float("inf")
        if self._joined:
            primal = float(np.sqrt(max(gap, 0.0) / n_sites))
            dual = self._norm(self._iterate - self._iterate_before)
        self._record(primal, dual)
        self._joined = True
        if self._stage_is_finished(max(primal, dual), scale) and self._next_stage():
            return
        if not self._gave_up():
            self._step(message / n_sites, n_sites)

    def _step(self, V: FloatArray, n_sites: int) -> None:
        rho2 = self.rho2
        new = self._proximal_step(V, n_sites * rho2 * self.options.metric[:, None])
        self._iterate_before, self._iterate = self.C, new
        self.C = new
        self.rho2_before = rho2
        if self.stage is Stage.ACYCLIC:
            self._tighten(self.h, True)

    def _stage_is_finished(self, residual: float, scale: float) -> bool:
        tol = 1e-3 if self.stage is Stage.SUPPORT else self.options.tol
        small = residual <= tol * max(1.0, scale) and self.round - self._stage_start > 2
        return small and (self.stage is not Stage.ACYCLIC or self.h <= self.options.h_tol)


class Ask(Enum):
    """What the server asks of a site in one round.

    ZERO      the first round of a consensus whose duals start at zero, about the broadcast point C
    STEP      a later round: update the dual with C, then solve
    GRAM      nothing about C: the site's weighted Gram matrix (schedule "gram" with sites of equal weight)
    """

    ZERO = "zero"
    STEP = "step"
    GRAM = "gram"


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
