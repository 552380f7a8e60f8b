"""What sums about variables of kinds may tell: no small count of a level, and no models that have few rows in view.

Why these rules
---------------
- The server chooses the coefficients of ``glm-step``. Steep ones make a logistic curve a step: its gradient is then the sum
  of the rows on one side of a plane, and two planes that differ a little show the rows in between. So the linear predictors
  of this site must not spread more than those of a model can, and the rows that weigh in an answer must be many: their
  effective number ``(sum w)^2 / sum w^2`` is at least `min_rows` for every model.
- Whatever the coefficients are, an answer is so many equations about this site's rows. Over all runs the numbers that steps
  have told, times `min_rows_per_parameter`, stay below the number of cells of its rows: as for second moments, equations are
  a few times fewer than unknowns. The same question again is no new equation.
- A count of levels is told in whole units; a unit below `min_rows` would tell small counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from feddbn.errors import SiteRefused
from feddbn.federation.guards.resample_guard import ResampleBook
from feddbn.federation.programs.glm_step import GlmStepQuestion, model_terms
from feddbn.federation.programs.mixed_moments import LevelCountsQuestion
from feddbn.federation.protocol.site import Channel, Guard, Here
from feddbn.federation.protocol.task import Task, task_digest
from feddbn.privacy.policy import SitePolicy

__all__ = ["MOST_SPREAD", "MixedGuard"]

MOST_SPREAD = 10.0
"""Largest standard deviation of a site's linear predictors: from one end of it to the other, odds change by a factor of
20,000.
"""


class MixedGuard(Guard):
    """Refuses counts and models that would show few rows.

    Parameters
    ----------
    policy
        The owner's rules.
    book
        How many numbers steps have told before, by question.
    """

    def __init__(self, policy: SitePolicy, book: ResampleBook) -> None:
        self._policy = policy
        self._book = book

    def before(self, task: Task, state: Mapping[str, np.ndarray], channel: Channel) -> None:
        """Check the unit of counts, which needs no data."""
        question, least = task.question, self._policy.min_rows
        if isinstance(question, LevelCountsQuestion) and question.unit < least:
            raise SiteRefused(
                f"task {question.name!r} asks for counts in units of {question.unit} rows; this site's policy asks for "
                f"{least} (min_rows), so use level_rows = {least} or more."
            )

    def reads(self, here: Here, task: Task) -> tuple[Here, Task]:
        """Count what is told, and look at which rows weigh."""
        question = task.question
        if isinstance(question, GlmStepQuestion):
            n_rows = self._check_weights(here, question)
            self._check_told(task, question, n_rows)
        return here, task

    def _check_weights(self, here: Here, question: GlmStepQuestion) -> int:
        k = len(question.models)
        total, squares, mean, square = (np.zeros(k) for _ in range(4))
        n_rows = 0
        for terms in model_terms(here.data, question):
            n_rows += len(terms[0].weight)
            total += [one.weight.sum() for one in terms]
            squares += [(one.weight**2).sum() for one in terms]
            mean += [one.predictor.sum() for one in terms]
            square += [(one.predictor**2).sum() for one in terms]
        spread = np.sqrt(np.maximum(square / max(n_rows, 1) - (mean / max(n_rows, 1)) ** 2, 0.0))
        if np.any(spread > MOST_SPREAD):
            raise SiteRefused(
                f"task {question.name!r}: linear predictors have a standard deviation of up to {spread.max():.3g} here, and "
                f"this site answers up to {MOST_SPREAD:g}; steeper models tell which side of a plane rows are on."
            )
        effective = total**2 / np.maximum(squares, 1e-300)
        least = self._policy.min_rows
        if n_rows and np.any(effective < least):
            raise SiteRefused(
                f"task {question.name!r}: as few as {effective.min():.1f} rows of this site would weigh in this sum; its "
                f"policy asks for {least} (min_rows)."
            )
        return n_rows

    def _check_told(self, task: Task, question: GlmStepQuestion, n_rows: int) -> None:
        kind = hashlib.sha256(task_digest(task.fields(), task.arrays).encode()).hexdigest()
        most = n_rows * question.coded.q
        per_number = self._policy.min_rows_per_parameter
        with self._book.hold():
            answered = {**self._book.answered()}
            is_new = kind not in answered
            answered[kind] = question.n_told
            told = sum(answered.values())
            if told * per_number > most:
                raise SiteRefused(
                    f"with these, steps of models would have told {told} numbers about this site's rows, which have {most} "
                    f"cells; its policy asks for {per_number:g} cells for each (min_rows_per_parameter)."
                )
            if is_new:
                self._book.add(kind, question.n_told)
