"""What sums about variables of kinds may tell: no small count of a level, and no models that have few rows in view.

Why these rules
---------------
- The server chooses the coefficients of ``glm-step``. Steep ones make a logistic curve a step: its gradient is then the sum
  of the rows on one side of a plane, and two planes that differ a little show the rows in between. So the linear predictors
  of this site must not spread more than those of a model can, and the rows that weigh in an answer must be many: their
  effective number ``(sum w)^2 / sum w^2`` is at least `min_rows` for every model, and for each of its levels.
- For every coefficient of a model there are `min_rows_per_parameter` rows, as DataSHIELD asks of a regression.
- Whatever the coefficients are, an answer is so many equations about this site's rows. Over all runs the numbers that steps
  have told stay below half the number of its cells. Under masks an equation is about the cells of `min_sites` sites or more,
  each of which keeps to ``told <= sites * own cells / 2``, so that this holds for all of their cells together. The same
  question again is no new equation.
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

__all__ = ["CELLS_PER_NUMBER", "MOST_SPREAD", "MixedGuard"]

CELLS_PER_NUMBER = 2
"""Unknown cells for each number that steps of models tell about them."""
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
        self._n_sites = 1

    def before(self, task: Task, state: Mapping[str, np.ndarray], channel: Channel) -> None:
        """Check the unit of counts, which needs no data; remember whether only a sum over sites can be read."""
        self._n_sites = self._policy.min_sites if channel.masked else 1
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
            self._policy.check_rows(n_rows, max(question.lengths))
            self._check_told(task, question, n_rows)
        return here, task

    def _check_weights(self, here: Here, question: GlmStepQuestion) -> int:
        sums: list[np.ndarray] = []
        n_rows = 0
        for terms in model_terms(here.data, question):
            n_rows += len(terms[0].weight)
            parts = [
                np.concatenate([x.sum(axis=0) for x in (w, w**2, e, e**2)]).reshape(4, -1)
                for w, e in ((one.weight, one.predictor) for one in terms)
            ]
            sums = [a + b for a, b in zip(sums, parts, strict=True)] if sums else parts
        if not n_rows:
            return 0
        total, squares, mean, square = np.concatenate(sums, axis=1)
        spread = np.sqrt(np.maximum(square / n_rows - (mean / n_rows) ** 2, 0.0))
        if np.any(spread > MOST_SPREAD):
            raise SiteRefused(
                f"task {question.name!r}: linear predictors have a standard deviation of up to {spread.max():.3g} here, and "
                f"this site answers up to {MOST_SPREAD:g}; steeper models tell which side of a plane rows are on."
            )
        effective = total**2 / np.maximum(squares, 1e-300)
        least = self._policy.min_rows
        if np.any(effective < least):
            raise SiteRefused(
                f"task {question.name!r}: as few as {effective.min():.1f} rows of this site would weigh in this sum; its "
                f"policy asks for {least} (min_rows)."
            )
        return n_rows

    def _check_told(self, task: Task, question: GlmStepQuestion, n_rows: int) -> None:
        kind = hashlib.sha256(task_digest(task.fields(), task.arrays).encode()).hexdigest()
        most = n_rows * sum(question.coded.widths) * self._n_sites
        with self._book.hold():
            answered = {**self._book.answered()}
            is_new = kind not in answered
            answered[kind] = question.n_told
            told = sum(answered.values())
            if told * CELLS_PER_NUMBER > most:
                raise SiteRefused(
                    f"with these, steps of models would have told {told} numbers about {most} cells of as many sites as a "
                    f"sum has at least; this site asks for {CELLS_PER_NUMBER} cells for each."
                )
            if is_new:
                self._book.add(kind, question.n_told)
