"""Consensus ADMM as a pair of state machines: the server's `Consensus`, fed with sums only, and the site's `SiteMember`.

Theory of operation
-------------------
Round t broadcasts C_t. A site first updates its dual with the C_t it just learned, then solves its own problem, and
answers with ``[C_k + U_k/(rho2 D); |C_k - C_t|^2; |U_k|^2; loss per variable at C_t]``. Norms are in the metric D. The
server only ever sees the sum of these vectors; what it learns about C_t's residuals it learns one round later.

    WARM      the lasso without acyclicity; rho2 is balanced here, so that every later round is well conditioned
    ACYCLIC   the problem with h, [fdbnl] Algorithm 1
    ORDER     h is small: W keeps the order it has found; what is left is convex and is solved roughly
              (ACYCLIC and ORDER are repeated for each pass of the schedule; the order with the lowest objective stays)
    LASSO     the convex problem within the best order, solved to tolerance
    SUPPORT   (refit) no penalty, only the edges found so far
    FINAL     (refit) no penalty, only the edges above their thresholds

The paper's schedule starts in ACYCLIC and stays there until h and the residuals are small. Stopping on h alone would
accept the first iterate W = 0, which is acyclic and has learned nothing.
# DEVIATES [fdbnl] stopping: h AND residuals; see test_zero_is_not_an_answer.

Known weakness: the acyclic stage is a local method; its answer depends on the penalty path.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from feddbn.core.acyclicity import Acyclicity, expm_value_and_grad
from feddbn.core.constraints import EdgeConstraints, has_cycle
from feddbn.core.global_step import solve_acyclic_prox
from feddbn.core.graph import DroppedEdge, break_cycles, threshold, topological_order
from feddbn.core.lagged import FloatArray
from feddbn.core.lasso import penalty_value, soft_threshold
from feddbn.core.local_step import LocalProblem
from feddbn.core.schedules import Schedule
from feddbn.core.status import Status

__all__ = ["Consensus", "ConsensusOptions", "RoundRecord", "SiteMember", "Stage"]

BoolArray = NDArray[np.bool_]
RELAX = 1.6


class Stage(Enum):
    """What the rounds are solving at the moment."""

    WARM = "warm"
    ACYCLIC = "acyclic"
    ORDER = "order"
    LASSO = "lasso"
    SUPPORT = "support"
    FINAL = "final"


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
        Cbar: FloatArray,
        rho2_before: float,
        rho2: float,
        is_first: bool,
        relaxation: float = 1.0,
    ) -> tuple[SiteMember, FloatArray]:
        """Return the state after the round and the vector to be summed.

        With ``relaxation`` > 1 the site reports a point beyond its own solution (Boyd et al. 2011, section 3.4.3).
        """
        weight = problem.metric[:, None]
        gap = self.C - Cbar
        primal = float(np.sum(weight * gap * gap))
        # [fdbnl] Eq. (para): beta_k, gamma_k stacked; the first broadcast is the common starting point, not a consensus.
        U = self.U if is_first else self.U + rho2_before * weight * gap
        C = problem.solve(Cbar, U, rho2)
        if relaxation != 1.0:
            C = relaxation * C + (1.0 - relaxation) * Cbar
        dual_norm = float(np.sum(U * U / weight))
        message = (C + U / (rho2 * weight)).ravel()
        return SiteMember(C, U), np.concatenate([message, [primal, dual_norm], problem.target_loss(Cbar)])


@dataclass(frozen=True)
class ConsensusOptions:
    """The problem and its limits.

    Attributes
    ----------
    penalty
        (q, d) L1 weights.
    metric
        (q,) diagonal of D: variances of the sources, or ones.
    """

    penalty: FloatArray
    metric: FloatArray
    constraints: EdgeConstraints
    schedule: Schedule
    h_tol: float = 1e-8
    tol: float = 1e-6
    max_rounds: int = 1000
    w_threshold: float = 0.0
    a_threshold: float = 0.0
    refit: bool = False
    acyclicity: Acyclicity = expm_value_and_grad


@dataclass(frozen=True)
class RoundRecord:
    """What is known about the consensus of one round."""

    round: int
    stage: str
    h: float
    primal: float
    dual: float
    objective: float
    rho1: float
    rho2: float


@dataclass
class Consensus:
    """The run so far. Broadcast `C`, `rho2_before`, `rho2`; feed the sum to `advance` until `is_done`."""

    options: ConsensusOptions
    C: FloatArray = field(init=False)
    C_raw: FloatArray | None = None
    stage: Stage = field(init=False)
    rho1: float = field(init=False)
    rho2: float = field(init=False)
    rho2_before: float = field(init=False)
    alpha: float = 0.0
    h: float = 0.0
    status: Status | None = None
    dropped: list[DroppedEdge] = field(default_factory=list)
    history: list[RoundRecord] = field(default_factory=list)
    target_loss: FloatArray | None = None
    n_evaluations: int = 0
    is_done: bool = False

    def __post_init__(self) -> None:
        options = self.options
        self.C = self._C_before = np.zeros(options.penalty.shape)
        self.rho1 = options.schedule.rho1
        self.rho2 = self.rho2_before = options.schedule.rho2
        self._allowed: BoolArray = options.constraints.allowed
        self._penalty = options.penalty
        self._curvature = 0.0
        self._stage_start = 0
        self._pass = 0
        self._unit = 1.0
        self._raw_objective = float("nan")
        self._candidates: list[tuple[float, BoolArray, FloatArray]] = []
        if not has_cycle(options.constraints.allowed[: options.constraints.d]):
            self.stage = Stage.LASSO
        else:
            self.stage = Stage.WARM if options.schedule.is_adaptive else Stage.ACYCLIC

    @property
    def round(self) -> int:
        """Number of sums received."""
        return len(self.history)

    @property
    def is_first(self) -> bool:
        """Whether the next broadcast is the starting point."""
        return not self.history

    @property
    def relaxation(self) -> float:
        """How far sites overshoot: convex stages converge faster with it, the acyclic path is not disturbed by it."""
        return 1.0 if self.stage is Stage.ACYCLIC or not self.options.schedule.is_adaptive else RELAX

    @property
    def raw_objective(self) -> float:
        """Penalised objective of `C_raw`."""
        return self._raw_objective

    def graph(self) -> FloatArray:
        """Return the final weights: refitted if asked for, thresholded, without cycles."""
        if self.stage is Stage.FINAL or self.C_raw is None:
            return self.C
        # Without refit this is the paper's rule: threshold the penalised weights.
        constraints, d = self.options.constraints, self.options.constraints.d
        C = threshold(self.C_raw, constraints.required, self.options.w_threshold, self.options.a_threshold)
        C[:d], dropped = break_cycles(C[:d], constraints.required[:d])
        self.dropped += [edge for edge in dropped if edge not in self.dropped]
        return C

    def advance(self, total: FloatArray, n_sites: int) -> None:
        """Take the sum of one round's vectors (see `SiteMember.answer`) and decide what comes next."""
        q, d = self.C.shape
        V = total[: q * d].reshape(q, d) / n_sites
        scale = max(self._norm(self.C), 1e-12)
        primal = float(np.sqrt(max(total[q * d], 0.0) / n_sites))
        dual = self._norm(self.C - self._C_before)
        dual_norm = float(np.sqrt(max(total[q * d + 1], 0.0) / n_sites))
        self.target_loss = np.array(total[q * d + 2 :])
        objective = float(self.target_loss.sum()) + penalty_value(self.C, self.options.penalty)
        if self.is_first:
            # Nothing has been agreed yet; the residuals of the starting point mean nothing.
            primal = dual = float("inf")
        self.history.append(
            RoundRecord(self.round, self.stage.value, self.h, primal, dual, objective, self.rho1, self.rho2)
        )
        if self._stage_is_finished(primal, dual, scale) and self._next_stage():
            return
        if self.round >= self.options.max_rounds:
            self._give_up()
            return
        rho2 = self.rho2
        self._global_step(V, n_sites)
        self.rho2_before = rho2
        if self.options.schedule.is_adaptive and self.stage is not Stage.ACYCLIC:
            self._balance(primal / scale, rho2 * dual / max(dual_norm, 1e-12))

    def _balance(self, primal: float, dual: float) -> None:
        """Keep the relative residuals within a factor of each other (Wohlberg 2017), every few rounds."""
        in_stage = self.round - self._stage_start
        if in_stage < 2 or in_stage % 3 or in_stage > 60:
            return
        if primal > 4.0 * dual:
            self.rho2 *= 2.0
        elif dual > 4.0 * primal:
            self.rho2 /= 2.0

    def _global_step(self, V: FloatArray, n_sites: int) -> None:
        d = self.options.constraints.d
        kappa = (n_sites * self.rho2) * self.options.metric[:, None]
        C = self._allowed * soft_threshold(V, self._penalty / kappa)
        schedule = self.options.schedule
        if self.stage is Stage.ACYCLIC:
            step = solve_acyclic_prox(
                V[:d],
                kappa[:d],
                self._penalty[:d],
                self._allowed[:d],
                self.alpha,
                self.rho1,
                self.C[:d],
                self.options.acyclicity,
                curvature=self._curvature,
                # Early rounds only have to follow the path; exactness is bought in the convex stages.
                tol=1e-3 if schedule.is_adaptive else 1e-5,
                max_steps=10 if schedule.is_adaptive else 50,
            )
            C[:d] = step.W
            self.h, self._curvature = step.h, step.curvature
            self.n_evaluations += step.n_evaluations
            self.alpha += self.rho1 * step.h
            growth = schedule.passes[self._pass][1] if schedule.is_adaptive else schedule.phi1
            self.rho1 = min(self.rho1 * growth, schedule.rho1_max)
            self.rho2 *= schedule.phi2
        self._C_before, self.C = self.C, C

    def _stage_is_finished(self, primal: float, dual: float, scale: float) -> bool:
        options = self.options
        in_stage = self.round - self._stage_start
        residual = max(primal, dual)
        if self.stage is Stage.WARM:
            return in_stage > 5 and (residual <= 0.02 * scale or in_stage > 40)
        if self.stage is Stage.ACYCLIC and options.schedule.is_adaptive:
            return in_stage > 5 and self.h <= options.schedule.h_switch
        tol = 1e-3 if self.stage in (Stage.ORDER, Stage.SUPPORT) else options.tol
        small = in_stage > 2 and residual <= tol * max(1.0, scale)
        return small and (self.stage is not Stage.ACYCLIC or self.h <= options.h_tol)

    def _next_stage(self) -> bool:
        """Enter the next stage; True if the run is over."""
        options = self.options
        if self.stage is Stage.WARM:
            # The acyclicity competes with the loss that is left when nothing forbids cycles: that sets its unit.
            assert self.target_loss is not None
            self._unit = float(self.target_loss.sum()) / len(self.target_loss)
            self._enter(Stage.ACYCLIC)
            return False
        if self.stage is Stage.ACYCLIC and options.schedule.is_adaptive:
            self._enter(Stage.ORDER)
            return False
        if self.stage is Stage.ORDER:
            self._candidates.append((self.history[-1].objective, self._allowed, self.C))
            self._pass += 1
            self._enter(Stage.ACYCLIC if self._pass < len(options.schedule.passes) else Stage.LASSO)
            return False
        if self.stage in (Stage.ACYCLIC, Stage.LASSO):
            self._keep_raw()
            if options.refit:
                self._enter(Stage.SUPPORT)
                return False
        elif self.stage is Stage.SUPPORT:
            self._enter(Stage.FINAL)
            return False
        return self._finish(Status.CONVERGED)

    def _enter(self, stage: Stage) -> None:
        options, d = self.options, self.options.constraints.d
        constraints = options.constraints
        if stage is Stage.ACYCLIC:
            self._allowed, self.alpha, self._curvature = constraints.allowed, 0.0, 0.0
            self.rho1 = options.schedule.passes[self._pass][0] * self._unit
        elif stage is Stage.ORDER:
            W, _ = break_cycles(self.C[:d], constraints.required[:d])
            edges = (W != 0) | constraints.required[:d]
            self._allowed = constraints.within_order(topological_order(edges)).allowed
            self.h = 0.0
        elif stage is Stage.LASSO:
            _, self._allowed, self.C = min(self._candidates, key=lambda candidate: candidate[0])
        elif stage in (Stage.SUPPORT, Stage.FINAL):
            W, dropped = break_cycles(self.C[:d], constraints.required[:d])
            self.dropped += dropped
            support = self.C != 0
            support[:d] = W != 0
            if stage is Stage.FINAL:
                support &= threshold(self.C, constraints.required, options.w_threshold, options.a_threshold) != 0
            self._allowed = support | constraints.required
            self._penalty = np.zeros_like(options.penalty)
        self.stage, self._stage_start = stage, self.round

    def _give_up(self) -> None:
        if self.C_raw is None:
            self._keep_raw()
        self._finish(Status.NOT_ACYCLIC if self.stage is Stage.ACYCLIC else Status.MAX_ROUNDS)

    def _keep_raw(self) -> None:
        self.C_raw, self._raw_objective = self.C, self.history[-1].objective

    def _finish(self, status: Status) -> bool:
        self.status, self.is_done = status, True
        return True

    def _norm(self, C: FloatArray) -> float:
        """Frobenius norm in the metric, relative to the mean metric, so that it reads like a plain norm."""
        return float(np.sqrt(np.sum(self.options.metric[:, None] * C * C)))
