"""PFDBNL's server: a state machine that is fed with sums only, and never sees a personal graph.

Theory of operation
-------------------
A round broadcasts C and a `PersonalRound`; each participant answers with the *change* of ``T_k + U_k / kappa2``
since its last answer that counted, and a few norms. The server keeps the running total, so that

    C = mean over all sites that ever joined of (T_k + U_k / kappa2)

whoever took part in this round. With full participation this is the paper's closed form; with partial participation it
is randomised block ADMM, which converges, where the paper's mean over the participants of one round follows whoever
happened to be sampled (``average="participants"`` keeps it).
# DEVIATES [fdbnl] Algorithm 2, aggregation: see test_running_average_converges_under_partial_participation.

Time is counted in local updates per site: a round in which j of K sites take part advances every schedule by j / K.

Stages: WARM (no acyclicity), ACYCLIC (cycles get dearer), ORDER (every site in the order it arrived at), SEARCHED (every
site in an order searched on its own data), CHOSEN and LASSO (every site in the best order it knows), SUPPORT (refit: no
L1 penalty, the edges found so far, the same pull). What is left, the thresholds, is done at each site with the last C. A
site that was away when a stage began enters it when it returns. Orders and supports are each site's own business.

ORDER and SEARCHED are two starts: the path to acyclicity sees all sites but ends in a poor order where weights are
strong, a search on a site's own data is misled where these are few. A site alone rarely leaves an order that all others
pull it to, so each start first gets a C of its own. Searched orders of few rows contradict each other: before the
starts are compared, CHOSEN lets every site take the common order, or its first one. LASSO begins with the C of the start
whose objective is lower: the sum of the sites' gains says which (docs/pfdbnl.md).

Slots: with M models (clusters of sites) C is (M, q, d); a site puts its change into its own slot and zeros
elsewhere, so that it is still one sum and the server does not learn who is in which cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.fdbnl.schedules import Schedule
from feddbn.core.graphs.acyclicity import Acyclicity, expm_value_and_grad
from feddbn.core.graphs.constraints import EdgeConstraints, has_cycle
from feddbn.core.graphs.status import Status
from feddbn.core.pfdbnl.step import PersonalRound, PersonalStage

__all__ = ["NORMS", "PersonalOptions", "PersonalRecord", "PersonalRun"]

# What a participant adds after its (M, q, d) change: four residual norms, h, its objective, its gain by the second start.
NORMS = 7
# Cycles get dearer once the weights have followed the last rise, or after so many updates: rushed paths end in worse
# orders (docs/pfdbnl.md).
_FOLLOW = 0.02
_PATIENCE = 3.0
# Starts whose objectives differ by less, relatively, are equal: the way back would be for nothing.
_TIE = 1e-6
# Stages that only lead to an order.
_STARTS = (PersonalStage.ORDER, PersonalStage.SEARCHED, PersonalStage.CHOSEN)


@dataclass(frozen=True)
class PersonalOptions:
    """The problem and its limits; `penalty`, `metric`, `constraints`, `schedule` as in `ConsensusOptions`.

    Attributes
    ----------
    mu
        Pull towards the others; infinity gives one graph for all.
    is_alpha_shared
        One multiplier of h for all sites, driven by the mean of h (the paper), or one per site.
    is_running
        Average over all who ever joined, instead of this round's participants.
    """

    mu: float
    penalty: FloatArray
    metric: FloatArray
    constraints: EdgeConstraints
    schedule: Schedule
    h_tol: float = 1e-8
    tol: float = 1e-4
    max_rounds: int = 1000
    w_threshold: float = 0.0
    a_threshold: float = 0.0
    refit: bool = False
    is_alpha_shared: bool = False
    is_running: bool = True
    acyclicity: Acyclicity = expm_value_and_grad


@dataclass(frozen=True)
class PersonalRecord:
    """What is known after one round; norms are means over the participants, h is their mean too."""

    round: int
    stage: str
    h: float
    primal: float
    dual: float
    objective: float
    rho1: float
    rho2: float
    participants: int


@dataclass
class PersonalRun:
    """The run so far: broadcast `C`, `rules()`, `stage` and `serial`; feed sums to `advance` until `is_done`."""

    options: PersonalOptions
    n_sites: int
    n_slots: int = 1
    C: FloatArray = field(init=False)
    stage: PersonalStage = field(init=False)
    serial: int = 0
    alpha: float = 0.0
    status: Status | None = None
    history: list[PersonalRecord] = field(default_factory=list)
    is_done: bool = False

    def __post_init__(self) -> None:
        options = self.options
        shape = (self.n_slots, *options.penalty.shape)
        self.C, self._total = np.zeros(shape), np.zeros(shape)
        self.held = np.zeros((self.n_slots, 1, 1))
        self.rho1 = options.schedule.rho1
        self.rho2 = self.rho2_before = options.schedule.rho2
        self._unit = 1.0
        self._gains: list[float] = []
        self._time = self._stage_start = self._waited = 0.0
        if not has_cycle(options.constraints.allowed[: options.constraints.d]):
            self.stage = PersonalStage.LASSO
        else:
            self.stage = PersonalStage.WARM if options.schedule.is_adaptive else PersonalStage.ACYCLIC

    @property
    def shared(self) -> FloatArray:
        """(q, d) mean over all sites that joined, whatever their slot."""
        mean: FloatArray = self._total.sum(axis=0) / np.maximum(self.held.sum(axis=0), 1.0)
        return mean if self.options.is_running else self.C.mean(axis=0)

    @property
    def round(self) -> int:
        """Number of sums received."""
        return len(self.history)

    def rules(self) -> PersonalRound:
        """Return what this round asks of the participants."""
        options, adaptive = self.options, self.options.schedule.is_adaptive
        acyclic = self.stage is PersonalStage.ACYCLIC
        return PersonalRound(
            mu=options.mu,
            rho=2.0,
            rho1=self.rho1,
            rho2=self.rho2,
            rho2_before=self.rho2_before,
            alpha=self.alpha if options.is_alpha_shared else None,
            acyclic_steps=(10 if adaptive else 100) if acyclic else 0,
            is_exact=not adaptive and acyclic,
            in_series=adaptive,
            is_ordered=self.stage not in (PersonalStage.WARM, PersonalStage.ACYCLIC),
            tol=1e-3 if adaptive else 1e-5,
        )

    def advance(self, total: FloatArray, n_participants: int) -> None:
        """Take the sum of one round's answers and decide what comes next."""
        size = self.C.size
        self.rho2_before = self.rho2
        change = total[:size].reshape(self.C.shape)
        primal, split, moved, _, h, objective, gain = total[size : size + NORMS]
        self.held = self.held + np.round(total[size + NORMS :]).reshape(self.held.shape)
        if self.options.is_running:
            self._total = self._total + change
            C = self._total / np.maximum(self.held, 1.0)
        else:
            C = change / n_participants
        before, self.C = self.C, C
        self._time += n_participants / self.n_sites
        step = float(np.sum(self.options.metric[:, None] * (C - before) ** 2)) / self.n_slots
        h /= n_participants
        primal = float(np.sqrt(max(primal + split, 0.0) / n_participants))
        dual = float(np.sqrt(max(moved, 0.0) / n_participants + step))
        self.history.append(
            PersonalRecord(
                self.round, self.stage.value, h, primal, dual, objective, self.rho1, self.rho2, n_participants
            )
        )
        share = n_participants / self.n_sites
        scale = max(1.0, float(np.sqrt(np.sum(self.options.metric[:, None] * C * C) / self.n_slots)))
        residual = max(primal, dual) / scale
        if self.stage is PersonalStage.ACYCLIC:
            self._waited += share
            if not self.options.schedule.is_adaptive or residual <= _FOLLOW or self._waited >= _PATIENCE:
                self._waited = 0.0
                self._tighten(h, share)
        if self.stage is PersonalStage.CHOSEN:
            self._gains.append(gain)
        if self.stage is PersonalStage.WARM:
            # Acyclicity competes with what is left when nothing forbids cycles: that sets its unit.
            self._unit = objective / (n_participants * self.C.shape[2])
        if self._stage_is_finished(residual, h) and self._next_stage():
            return
        if self.round >= self.options.max_rounds:
            self._finish(Status.NOT_ACYCLIC if self.stage is PersonalStage.ACYCLIC else Status.MAX_ROUNDS)

    def _tighten(self, h: float, share: float) -> None:
        """Raise the price of cycles by what one round is worth."""
        schedule = self.options.schedule
        self.alpha += share * self.rho1 * h
        self.rho1 = min(self.rho1 * schedule.phi1**share, schedule.rho1_max)
        self.rho2 *= schedule.phi2**share

    def _stage_is_finished(self, residual: float, h: float) -> bool:
        options = self.options
        elapsed = self._time - self._stage_start
        if self.stage is PersonalStage.WARM:
            return elapsed > 5 and (residual <= 0.02 or elapsed > 40)
        if self.stage is PersonalStage.ACYCLIC and options.schedule.is_adaptive:
            return elapsed > 5 and (h <= options.schedule.h_switch or elapsed > 150)
        tol = 1e-2 if self.stage in _STARTS else options.tol
        # A sampled round sees only some sites; each must have had time to object.
        small = elapsed > 2 and residual <= tol
        return small and (self.stage is not PersonalStage.ACYCLIC or h <= options.h_tol)

    def _next_stage(self) -> bool:
        """Enter the next stage; True if the run is over."""
        options = self.options
        if self.stage is PersonalStage.WARM:
            self._enter(PersonalStage.ACYCLIC)
        elif self.stage is PersonalStage.ACYCLIC and options.schedule.is_adaptive:
            self._enter(PersonalStage.ORDER)
        elif self.stage is PersonalStage.ORDER:
            # Where all must agree, no site has an order of its own.
            is_first = not self._gains and np.isfinite(options.mu)
            self._enter(PersonalStage.SEARCHED if is_first else PersonalStage.LASSO)
        elif self.stage is PersonalStage.SEARCHED:
            self._enter(PersonalStage.CHOSEN)
        elif self.stage is PersonalStage.CHOSEN:
            # The last round, or as many as let most sites have a say.
            n_rounds = round(2 * self.n_sites / self.history[-1].participants) - 1
            gain = sum(self._gains[-n_rounds:])
            objective = sum(record.objective for record in self.history[-n_rounds:])
            self._enter(PersonalStage.ORDER if gain < -_TIE * objective else PersonalStage.LASSO)
        elif self.stage in (PersonalStage.ACYCLIC, PersonalStage.LASSO) and options.refit:
            self._enter(PersonalStage.SUPPORT)
        else:
            self._finish(Status.CONVERGED)
            return True
        return False

    def _enter(self, stage: PersonalStage) -> None:
        self.stage, self._stage_start = stage, self._time
        self.serial += 1
        if stage is PersonalStage.ACYCLIC:
            self.alpha = 0.0
            # Relative to the objective per variable without acyclicity.
            self.rho1 = self._unit * self.options.schedule.rho1
        elif not self.options.schedule.is_adaptive:
            # The paper's growing rho2 has frozen C by now; the refit is an ordinary convex problem.
            self.rho2 = self.options.schedule.rho2

    def _finish(self, status: Status) -> None:
        self.status, self.is_done = status, True
