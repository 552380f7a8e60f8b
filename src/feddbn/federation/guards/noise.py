"""Differential privacy around a site's answers: clip, add a share of noise, book it, refuse over budget.

The noise of a sum is spread over the sites that are sure to be in it (`Channel.n_guaranteed`) less those
that may collude; with a plain channel one site carries all of it, because its vector is seen alone. So the
booked noise multiplier holds whatever the channel is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.federation.protocol.site import Channel, Guard, Here, SiteState, SiteTask, answer_of_one
from feddbn.federation.protocol.task import Task
from feddbn.privacy.ledger import GaussianRelease, Ledger, Release, UnprotectedRelease
from feddbn.privacy.noise_plan import NoisePlan, NoisyVector

__all__ = ["DpGuard", "Promise"]


@dataclass(frozen=True)
class Promise:
    """What a study promises to cost in this run, whatever the sites' budgets are, and what it has cost so
    far.
    """

    epsilon: float
    delta: float
    spent: Ledger = field(default_factory=Ledger)


class DpGuard(Guard):
    """Adds noise by plan and keeps the site's ledger.

    Parameters
    ----------
    plan
        What is clipped and how much noise is added; a task without a rule leaves without noise and is
        booked as unprotected.
    rng
        The site's own randomness; nobody else may know its seed.
    budget
        Largest total epsilon (`max_epsilon` of the site's policy), or None for no limit.
    delta
        Delta of every reported epsilon.
    ledger
        What was released before (after a restart, from the audit log: `Ledger.replay`).
    promise
        What this run may cost; a task without noise, or one release too many, would break it and is refused.
    """

    def __init__(
        self,
        plan: NoisePlan,
        rng: np.random.Generator,
        budget: float | None,
        delta: float,
        ledger: Ledger | None = None,
        promise: Promise | None = None,
    ) -> None:
        self._plan = plan
        self._rng = rng
        self._budget = budget
        self._delta = delta
        self.ledger = ledger or Ledger()
        self.promise = promise
        self.last: NoisyVector | None = None

    @property
    def unit(self) -> str:
        """Unit of privacy."""
        return self._plan.unit

    @property
    def delta(self) -> float:
        """Delta of the reported epsilon."""
        return self._delta

    def last_noise(self, task: Task) -> float | None:
        """Noise multiplier of an answer to `task`, or None if it leaves without noise."""
        return self._plan.multiplier_of(task.name) if task.name in self._plan.rules else None

    def epsilon(self) -> float:
        """Epsilon of everything released so far."""
        return self.ledger.epsilon(self._delta)

    def before(self, task: Task, state: Mapping[str, np.ndarray], channel: Channel) -> None:
        """Refuse a task that would exceed the budget, or what the study promises."""
        release, promise = self._release(task), self.promise
        if promise is not None:
            limit = "what the study promises"
            promise.spent.check(release, promise.delta, promise.epsilon, self.unit, limit)
        if self._budget is not None:
            self.ledger.check(release, self._delta, self._budget, self.unit)

    def make(
        self, program: SiteTask, here: Here, task: Task, channel: Channel
    ) -> tuple[SiteState, FloatArray] | None:
        """Return the clipped and noisy vector, or None if the plan has no rule for this task."""
        if task.name not in self._plan.rules:
            return None
        new_state, vector = answer_of_one(program, here, task.question)
        units = None if program.units is None else program.units(here, task.question, self.unit)
        bound = getattr(task.question, "clip_bound", None)
        self.last = self._plan.protect(
            task.name,
            vector,
            units,
            task.question.reach,
            channel.n_guaranteed,
            self._rng,
            bound,
        )
        return new_state, self.last.value

    def after(self, task: Task, vector: FloatArray, channel: Channel) -> FloatArray:
        """Book the release."""
        release = self._release(task)
        self.ledger = self.ledger.add(release)
        if self.promise is not None:
            self.promise = replace(self.promise, spent=self.promise.spent.add(release))
        return vector

    def _release(self, task: Task) -> Release:
        multiplier = self.last_noise(task)
        return UnprotectedRelease(task.name) if multiplier is None else GaussianRelease(task.name, multiplier)
