"""PFDBNL's server: a state machine that is fed with sums only, and never sees a personal graph.

Theory of operation
-------------------
**A round.** The server sends C and a `PersonalRound`. Each participant answers with the *change* of
``T_k + U_k / kappa2`` since its last answer that counted, and with a few norms. The server adds the changes up, so that

    C = mean over all sites that ever joined of (T_k + U_k / kappa2)

also if only some took part in this round. If all take part, this is the paper's closed form. If some do, it is randomised
block ADMM, which converges. The paper takes the mean over this round's participants instead, which follows whoever was
sampled; ``average="participants"`` does so.
# DEVIATES [fdbnl] Algorithm 2, aggregation: see test_running_average_converges_under_partial_participation.

**Time** is counted in updates per site: a round with j of K sites moves every schedule on by j / K.

**Stages**, in order:

    WARM       cycles are allowed
    ACYCLIC    cycles get dearer and dearer
    ORDER      every site keeps to the order it has arrived at
    SEARCHED   every site keeps to an order that was searched on its own data
    CHOSEN     every site takes the best order it knows
    LASSO      the same, solved to the end
    SUPPORT    refit: only the edges found so far, no L1 penalty, the same pull

Thresholds come last, at each site, with the last C. A site that was away when a stage began enters it when it returns. No
order and no support leaves a site.

**Why two orders.** The path through ACYCLIC uses all sites, but ends in a poor order if weights are strong. A search on a
site's own data does not, but it errs if these are few. So both are tried. A single site rarely leaves an order that all
others pull it to; therefore ORDER and SEARCHED each have a C of their own. Orders that were searched on few rows
contradict each other; therefore, before the two are compared, CHOSEN lets every site take the common order or its first
one instead. LASSO goes on with whichever has the lower objective: the sum of the sites' gains tells (docs/pfdbnl.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.penalised.path import FOLLOW, RoundRecord, RunOptions, Stage, StagedPath, Status
from feddbn.core.penalised.personal_site import PersonalRound

# What a participant adds after its (q, d) change: three residual norms, h, its objective, its gain by the second start.
N_NUMBERS = 6
# Starts whose objectives differ by less, relatively, are equal: the way back would be for nothing.
_TIE = 1e-6
# Stages that only lead to an order.
_STARTS = (Stage.ORDER, Stage.SEARCHED, Stage.CHOSEN)


@dataclass(frozen=True, kw_only=True)
class PersonalOptions(RunOptions):
    """The problem and its limits.

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
    is_alpha_shared: bool = False
    is_running: bool = True


@dataclass(frozen=True)
class PersonalRecord(RoundRecord):
    """What is known after one round; norms and h are means over its participants."""

    participants: int


class PersonalRun(StagedPath):
    """The run so far: broadcast `C`, `rules()`, `stage` and `serial`; feed sums to `advance` until `is_done`."""

    patience = 3.0
    most_acyclic = 150.0

    def __init__(self, options: PersonalOptions, n_sites: int) -> None:
        super().__init__(options)
        self.options = options
        self.n_sites = n_sites
        self.C, self._total = np.zeros_like(options.penalty), np.zeros_like(options.penalty)
        self.held = 0.0
        self.serial = 0
        self._unit = 1.0
        self._gains: list[float] = []
        self._time = 0.0

    @property
    def shared(self) -> FloatArray:
        """(q, d) mean over all sites that joined."""
        return self._total / max(self.held, 1.0) if self.options.is_running else self.C

    def rules(self) -> PersonalRound:
        """Return what this round asks of the participants."""
        options, adaptive = self.options, self.options.schedule.is_adaptive
        acyclic = self.stage is Stage.ACYCLIC
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
            is_ordered=self.stage not in (Stage.WARM, Stage.ACYCLIC),
            tol=1e-3 if adaptive else 1e-5,
        )

    def advance(self, total: FloatArray, n_participants: int) -> None:
        """Take the sum of one round's answers and decide what comes next."""
        size, share = self.C.size, n_participants / self.n_sites
        self.rho2_before = self.rho2
        primal, split, moved, h, objective, gain = total[size : size + N_NUMBERS].tolist()
        self.held += round(float(total[size + N_NUMBERS]))
        before = self.C
        self.C = self._averaged(total[:size].reshape(before.shape), n_participants)
        self._time += share
        step = float(np.sum(self.options.metric[:, None] * (self.C - before) ** 2))
        h /= n_participants
        primal = float(np.sqrt(max(primal + split, 0.0) / n_participants))
        dual = float(np.sqrt(max(moved, 0.0) / n_participants + step))
        self.history.append(
            PersonalRecord(
                self.round, self.stage.value, h, primal, dual, objective, self.rho1, self.rho2, n_participants
            )
        )
        scale = float(np.sqrt(np.sum(self.options.metric[:, None] * self.C * self.C)))
        residual = max(primal, dual) / max(1.0, scale)
        if self.stage is Stage.ACYCLIC:
            self._tighten(h, residual <= FOLLOW, share)
        elif self.stage is Stage.CHOSEN:
            self._gains.append(gain)
        elif self.stage is Stage.WARM:
            # Acyclicity competes with what is left when nothing forbids cycles: that sets its unit.
            self._unit = objective / (n_participants * self.C.shape[1])
        if self._stage_is_finished(residual, h):
            self._next_stage()
        if not self.is_done:
            self._is_over()

    def _averaged(self, change: FloatArray, n_participants: int) -> FloatArray:
        if not self.options.is_running:
            return change / n_participants
        self._total = self._total + change
        return self.shared

    def _stage_is_finished(self, residual: float, h: float) -> bool:
        options = self.options
        elapsed = self._time - self._stage_start
        led_on = self._has_led_on(elapsed, residual, h)
        if led_on is not None:
            return led_on
        tol = 1e-2 if self.stage in _STARTS else options.tol
        # A sampled round sees only some sites; each must have had time to object.
        small = elapsed > 2 and residual <= tol
        return small and (self.stage is not Stage.ACYCLIC or h <= options.h_tol)

    def _next_stage(self) -> None:
        options = self.options
        if self.stage is Stage.WARM:
            self._enter(Stage.ACYCLIC)
        elif self.stage is Stage.ACYCLIC and options.schedule.is_adaptive:
            self._enter(Stage.ORDER)
        elif self.stage is Stage.ORDER:
            # Where all must agree, no site has an order of its own.
            is_first = not self._gains and np.isfinite(options.mu)
            self._enter(Stage.SEARCHED if is_first else Stage.LASSO)
        elif self.stage is Stage.SEARCHED:
            self._enter(Stage.CHOSEN)
        elif self.stage is Stage.CHOSEN:
            self._enter(Stage.LASSO if self._second_start_is_better() else Stage.ORDER)
        elif self.stage in (Stage.ACYCLIC, Stage.LASSO) and options.refit:
            self._enter(Stage.SUPPORT)
        else:
            self._finish(Status.CONVERGED)

    def _second_start_is_better(self) -> bool:
        """Whether the searched orders end lower, by the last rounds: so many that most sites have taken part."""
        last = self.history[-1]
        assert isinstance(last, PersonalRecord)
        n_rounds = round(2 * self.n_sites / last.participants) - 1
        gain = sum(self._gains[-n_rounds:])
        objective = sum(record.objective for record in self.history[-n_rounds:])
        return not gain < -_TIE * objective

    def _enter(self, stage: Stage) -> None:
        self.stage, self._stage_start = stage, self._time
        self.serial += 1
        if stage is Stage.ACYCLIC:
            self.alpha = 0.0
            # Relative to the objective per variable without acyclicity.
            self.rho1 = self._unit * self.options.schedule.rho1
        elif not self.options.schedule.is_adaptive:
            # The paper's growing rho2 has frozen C by now; the refit is an ordinary convex problem.
            self.rho2 = self.options.schedule.rho2
