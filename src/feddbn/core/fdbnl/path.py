"""The path both servers follow: stages, what a run is given, what it records, and how cycles get dearer.

The non-convex part is a homotopy. It begins with the lasso without acyclicity (WARM), whose loss sets the unit of what
follows; then acyclicity gains weight, but only as fast as the weights follow (ACYCLIC). Once h is small, the order of the
variables is fixed and what is left is convex:

    stage      who     problem
    WARM       both    the lasso; cycles cost nothing yet
    ACYCLIC    both    cycles get dearer
    ORDER      PFDBNL  every site in the order it arrived at
    SEARCHED   PFDBNL  every site in an order searched on its own data
    CHOSEN     PFDBNL  every site in the best order it knows
    LASSO      both    the convex problem within the order found
    SUPPORT    both    (refit) no penalty, only edges whose penalised weight comes near their threshold
    FINAL      FDBNL   (refit) no penalty, only the edges above their thresholds
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from feddbn.core.arrays import FloatArray
from feddbn.core.fdbnl.schedules import Schedule
from feddbn.core.graphs.acyclicity import Acyclicity, expm_value_and_grad
from feddbn.core.graphs.constraints import EdgeConstraints, has_cycle
from feddbn.core.graphs.status import Status

__all__ = ["FOLLOW", "RoundRecord", "RunOptions", "Stage", "StagedPath"]

FOLLOW = 0.02
"""Weights that move by less than this, relatively, have followed the last rise."""


class Stage(Enum):
    """What the rounds are solving at the moment."""

    WARM = "warm"
    ACYCLIC = "acyclic"
    ORDER = "order"
    SEARCHED = "searched"
    CHOSEN = "chosen"
    LASSO = "lasso"
    SUPPORT = "support"
    FINAL = "final"


@dataclass(frozen=True)
class RunOptions:
    """The problem and its limits.

    Attributes
    ----------
    penalty
        (q, d) L1 weights.
    metric
        (q,) diagonal of D: variances of the sources, or ones.
    optimum
        "path": the order that the path leads to; else the best order known then (`core.optimum`): "order" within a small
        budget of work, "exact" within a large one. The paper's schedule has its path only.
    n_rows
        Rows of all sites, for the search of OneShotDBN, whose order is one of those that are begun with; None: it is not.
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
    optimum: str = "path"
    n_rows: float | None = None


@dataclass(frozen=True)
class RoundRecord:
    """What is known about the broadcast point of one round."""

    round: int
    stage: str
    h: float
    primal: float
    dual: float
    objective: float
    rho1: float
    rho2: float


class StagedPath:
    """A run so far; a subclass says what is broadcast and what a sum means.

    Attributes
    ----------
    patience
        StagedPath after which cycles get dearer even if the weights have not followed: rushed paths end in worse orders.
    most_acyclic
        StagedPath after which the order is taken as it is.
    """

    patience: ClassVar[float]
    most_acyclic: float = float("inf")

    def __init__(self, options: RunOptions) -> None:
        schedule, constraints = options.schedule, options.constraints
        self.rho1 = schedule.rho1
        self.rho2 = self.rho2_before = schedule.rho2
        self.alpha = 0.0
        self.status: Status | None = None
        self.history: list[RoundRecord] = []
        self.is_done = False
        self._limits = options
        self._stage_start = self._waited = 0.0
        if not has_cycle(constraints.allowed[: constraints.d]):
            self.stage = Stage.LASSO
        else:
            self.stage = Stage.WARM if schedule.is_adaptive else Stage.ACYCLIC

    @property
    def round(self) -> int:
        """Number of sums received."""
        return len(self.history)

    @property
    def note(self) -> dict[str, float]:
        """Progress for people."""
        note = {"round": float(self.round), "max_rounds": float(self._limits.max_rounds)}
        if self.history:
            last = self.history[-1]
            note |= {"h": last.h, "primal": last.primal, "dual": last.dual, "objective": last.objective}
        return note

    def _tighten(self, h: float, has_caught_up: bool, share: float = 1.0) -> None:
        """Raise the price of cycles by what a round is worth: [fdbnl] Eq. (para) for alpha, rho1 and rho2.

        The adaptive path waits until the weights have followed. `share` is the part of the sites that took part.
        """
        schedule = self._limits.schedule
        self._waited += share
        if schedule.is_adaptive and not has_caught_up and self._waited < self.patience:
            return
        self._waited = 0.0
        self.alpha += share * self.rho1 * h
        self.rho1 = min(self.rho1 * schedule.phi1**share, schedule.rho1_max)
        self.rho2 *= schedule.phi2**share

    def _has_led_on(self, elapsed: float, moved: float, h: float) -> bool | None:
        """Whether a stage that only leads on has done so; None in other stages. `moved` is relative."""
        if self.stage is Stage.WARM:
            return elapsed > 5 and (moved <= FOLLOW or elapsed > 40)
        if self.stage is Stage.ACYCLIC and self._limits.schedule.is_adaptive:
            return elapsed > 5 and (h <= self._limits.schedule.h_switch or elapsed > self.most_acyclic)
        return None

    def _is_over(self) -> bool:
        """End a run that has used up its rounds; whether it had."""
        if self.round >= self._limits.max_rounds:
            self._finish(Status.NOT_ACYCLIC if self.stage is Stage.ACYCLIC else Status.MAX_ROUNDS)
        return self.is_done

    def _finish(self, status: Status) -> None:
        self.status, self.is_done = status, True
