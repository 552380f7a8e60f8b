"""The path both servers follow: stages, what a run is given, what it records, how cycles get dearer, and how it ended.

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

Schedules say who makes the steps, and how fast penalties grow:

`gram` (the default of FDBNL): the server makes the steps itself, on the summed Gram matrix.

`rounds` (the default of PFDBNL): every step is a sum over sites.

Both raise the weight of acyclicity only as fast as the weights follow: a homotopy whose path, and so whose local optimum,
does not depend on how the rows are split among sites; then they solve the convex rest, so that the answer is the pooled
optimum within the order found. FDBNL needs no rho2 for it; PFDBNL does.

`paper` is [fdbnl] Eq. (para): both penalties grow every round from 1 by phi1 = 1.6 and phi2 = 1.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar

from feddbn.core.arrays import FloatArray
from feddbn.core.constraints import EdgeConstraints, has_cycle
from feddbn.core.penalised.acyclicity import Acyclicity, expm_value_and_grad
from feddbn.errors import ParameterError


class Status(Enum):
    """Outcome of an iterative fit; the value is the sentence shown to the user."""

    CONVERGED = "converged: the graph is acyclic and all residuals are below their tolerances"
    MAX_ROUNDS = "stopped at the maximum number of rounds before every residual was below its tolerance"
    NOT_ACYCLIC = "stopped at the maximum number of rounds while the graph still had cycles; their weakest edges were cut"
    EXACT = "is exact: the answer has a closed form, or a finite search ended"

    @property
    def message(self) -> str:
        """The sentence shown to the user."""
        return str(self.value)

    @property
    def is_converged(self) -> bool:
        """Whether the answer can be taken as the solution of the stated problem."""
        return self in (Status.CONVERGED, Status.EXACT)


# Relative error of a product of many growths.
_ROUNDING = 1e-8


@dataclass(frozen=True)
class Schedule:
    """Starting penalties, their growth per round, and whether the staged, unit-free path is used.

    Attributes
    ----------
    rho1, rho2, phi1, phi2
        As in the paper; with `is_adaptive`, rho1 is relative to the loss per variable.
    total_weight
        Sum of the sites' weights: 1 if they are shares of the rows.
    h_switch
        Once h is below it, the adaptive path fixes the order and solves the rest as a convex problem.
    """

    is_adaptive: bool
    rho1: float
    rho2: float
    phi1: float
    phi2: float
    total_weight: float
    rho1_max: float = 1e16
    h_switch: float = 1e-3

    def has_rho2(self, value: float, rounds: int, in_turns: bool = False) -> bool:
        """Whether rho2 can have this value after at most so many rounds; `in_turns`: rounds may count in part."""
        if not value > 0:
            return False
        grown, growth = math.log(value / self.rho2), math.log(self.phi2)
        times = grown / growth if growth and not in_turns else 0.0
        is_whole = abs(times - round(times)) <= _ROUNDING
        return is_whole and -_ROUNDING <= grown <= rounds * growth + _ROUNDING


def make_schedule(
    name: str,
    n_sites: int,
    total_weight: float,
    *,
    rho1: float | None = None,
    rho2: float | None = None,
    phi1: float | None = None,
    phi2: float | None = None,
) -> Schedule:
    """Return a schedule by name; `total_weight` is the sum of the sites' weights.

    Arguments that are not None replace the schedule's own value.
    """
    if name in ("gram", "rounds"):
        # Chosen on the golden DYNOTEARS answers and simulated federations; a slower growth changes little.
        base = Schedule(True, 1.0, 2.0 * total_weight / n_sites, 1.3, 1.0, total_weight)
    elif name == "paper":
        base = Schedule(False, 1.0, 1.0, 1.6, 1.1, total_weight)
    else:
        raise ParameterError(f"schedule={name!r} is not known; choose one of gram, rounds, paper.")
    given = {
        k: float(v)
        for k, v in (("rho1", rho1), ("rho2", rho2), ("phi1", phi1), ("phi2", phi2))
        if v is not None
    }
    for key, value in given.items():
        is_growth = key.startswith("phi")
        if not (value >= 1.0 if is_growth else value > 0.0):
            raise ParameterError(f"{key}={value!r} must be {'at least 1' if is_growth else 'positive'}.")
    return replace(base, **given)  # type: ignore[arg-type]


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
        "path": the order that the path leads to; else the best order known then (`optimum`): "order" within a small
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
