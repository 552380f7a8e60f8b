"""Differential privacy around a site's answers: clip, add a share of noise, book it, refuse over budget.

The noise of a sum is spread over the sites that are sure to be in it (`Channel.n_guaranteed`) less those
that may collude; with a plain channel one site carries all of it, because its vector is seen alone. So the
booked noise multiplier holds whatever the channel is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import BudgetExceeded, ParameterError
from feddbn.federation.protocol.site import Channel, Guard, Here, SiteState, SiteTask
from feddbn.federation.protocol.task import Task
from feddbn.privacy.gaussian import RandomBytes
from feddbn.privacy.ledger import GaussianRelease, Ledger, Release, UnprotectedRelease
from feddbn.privacy.noise_plan import NoisePlan, NoisyVector
from feddbn.privacy.policy import Unit


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
    random_bytes
        The site's own randomness: ``os.urandom``, or ``Generator.bytes`` in a simulation.
    budget
        Largest total epsilon (`max_epsilon` of the site's policy), or None for no limit.
    delta
        Delta of every reported epsilon.
    ledger
        What was released before (after a restart, from the audit log: `Ledger.replay`).
    doubt
        Why it is not known what was released before, as a sentence; with a budget nothing is answered then.
    promise
        What this run may cost; a task without noise, or one release too many, would break it and is refused.
    """

    label = "noise"

    def __init__(
        self,
        plan: NoisePlan,
        random_bytes: RandomBytes,
        budget: float | None,
        delta: float,
        ledger: Ledger | None = None,
        promise: Promise | None = None,
        doubt: str | None = None,
    ) -> None:
        self._plan = plan
        self._random_bytes = random_bytes
        self._budget = budget
        self._delta = delta
        self.ledger = ledger or Ledger()
        self.promise = promise
        self.doubt = doubt
        self.last: NoisyVector | None = None

    @property
    def unit(self) -> Unit:
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
        """Epsilon of everything released so far, for one unit; infinite if that is not known."""
        return math.inf if self.doubt else self.ledger.for_unit(self.unit).epsilon(self._delta)

    def before(self, task: Task, state: Mapping[str, np.ndarray], channel: Channel) -> None:
        """Refuse a task that would exceed the budget, or what the study promises."""
        release, promise = self._release(task), self.promise
        about = getattr(task.question, "of", None)
        if about is not None and about.name not in self._plan.rules:
            raise ParameterError(
                f"task {task.name!r} about {about.name!r}: this study adds no noise to {about.name!r}."
            )
        if promise is not None:
            limit = "what the study promises"
            promise.spent.check(release, promise.delta, promise.epsilon, self.unit, limit)
        if self._budget is None:
            return
        if self.doubt:
            raise BudgetExceeded(
                f"what this site has spent of its budget of {self._budget:g} is not known: {self.doubt} Nothing was sent.",
                code="budget-unknown",
            )
        self.ledger.for_unit(self.unit).check(release, self._delta, self._budget, self.unit)

    def make(
        self, program: SiteTask, here: Here, task: Task, channel: Channel
    ) -> tuple[SiteState, FloatArray] | None:
        """Return the clipped and noisy vector, or None if the plan has no rule for this task.

        Of an answer that can be split by unit nothing else is computed: a program may refuse for what it finds in the
        data, and such a refusal would leave without noise.
        """
        if task.name not in self._plan.rules:
            return None
        question, state = task.question, here.state
        if program.units is None or program.length is None:
            state, whole = program.answer(here, question)
            vectors: Iterable[FloatArray] = [whole]
            is_split, length = False, len(whole)
        else:
            vectors, is_split = program.units(here, question, self.unit), True
            length = program.length(question)
        bound = getattr(question, "clip_bound", None)
        self.last = self._plan.protect(
            task.name,
            vectors,
            is_split,
            length,
            question.reach,
            channel.n_guaranteed,
            self._random_bytes,
            bound,
        )
        return state, self.last.value

    def after(self, task: Task, vector: FloatArray, channel: Channel) -> FloatArray:
        """Book the release."""
        release = self._release(task)
        self.ledger = self.ledger.add(release)
        if self.promise is not None:
            self.promise = replace(self.promise, spent=self.promise.spent.add(release))
        return vector

    def _release(self, task: Task) -> Release:
        multiplier = self.last_noise(task)
        if multiplier is None:
            return UnprotectedRelease(task.name)
        return GaussianRelease(task.name, multiplier, self.unit)
