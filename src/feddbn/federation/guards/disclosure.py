"""The owner's rules about rows: how many of this site must be in a sum, for how many parameters, and at what share.

Why these numbers
-----------------
- ``min_rows``: a sum of few rows is nearly these rows for whoever knows the other sites. `in_view` says which rows a number
  rests on.
- ``min_rows_per_parameter``: from second moments of n rows of q columns, rows follow up to a rotation if n < q. Three rows
  for each column is what DataSHIELD asks of a regression (``nfilter.glm``). A nonlinear function of a projection is one
  more equation about single rows, so projections of a run count as parameters, all together.
- Standardised residuals have mean 0 and variance 1 over all sites. A projection that makes the rows of a site much larger
  than that has single rows in view.

Under much noise (`Privacy.hides_rows`) these rules are not applied: it protects single rows, and a refusal that depends on
data would tell something that no noise covers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import Recording, SiteData, WithoutRows, stretches
from feddbn.core.designs.weights import WORTH
from feddbn.core.statistics.moments import Moments
from feddbn.errors import SiteRefused
from feddbn.federation.guards.study_plan import Asked
from feddbn.federation.programs.mixed import NewtonQuestion, model_terms
from feddbn.federation.programs.residual_checks import SHAPES_ASKED, ResidualsQuestion
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import Channel, Guard, Here
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Task, View, task_digest
from feddbn.federation.sums.gram import (
    design_moments,
    local_block_moments,
    local_moments,
)
from feddbn.federation.sums.in_view import CountsQuestion, parts_in_view, view_key
from feddbn.privacy.policy import SitePolicy

MOST_VARIANCE = 100.0
MOST_SHIFT = 5.0
"""Largest variance and mean of a site's standardised residuals: a site with few of all rows may be unlike the others, but a
projection that is steep, or far from most rows, has single rows in view.
"""
MOST_SCALES = 4.0
MOST_OFF = 3.0
"""Largest standard deviation, and largest distance of the mean, of a site's variable in the units of smooth functions. Curves
change within 2.4 units of their origin: by these bounds that is where a large part of the site's rows is.
"""


class DisclosureGuard(Guard):
    """Refuses sums that would show too much of this site.

    Parameters
    ----------
    study, policy
        What is asked, and the owner's rules.
    asked
        What this run has been asked so far.
    """

    def __init__(self, study: Study, policy: SitePolicy, asked: Asked | None = None) -> None:
        self._study = study
        self._policy = policy
        self._asked = asked or Asked()
        self._counts: dict[tuple[object, ...], dict[int, tuple[int, int]]] = {}

    def reads(self, here: Here, task: Task) -> tuple[Here, Task]:
        """Count what is in view; rows are enough if they are as many as the owner asks for."""
        question, policy = task.question, self._policy
        if isinstance(question, CountsQuestion):
            # A block is told whole.
            columns = question.q if question.n_blocks else 0
            least = max(question.least, policy.min_rows, math.ceil(policy.min_rows_per_parameter * columns))
            question = replace(question, least=least)
            task = replace(task, question=question)
        views, n_rows = question.in_view(here.data, here.name), 0
        if isinstance(here.data, WithoutRows) and any(view.are_pairs for view in views):
            # Of rows that were left out nothing is seen as a lag either.
            here = replace(here, data=here.data.ending_segments())
        for view in views:
            parts = self._parts(here.data, view)
            # Blocks are counted by themselves, and rows that are held out against no parameter.
            n_rows = (
                sum(n for n, _ in parts.values()) if view.part_of is not None else parts.get(0, (0, 0))[0]
            )
            policy.check_rows(n_rows, view.n_parameters)
            for k, (n, few) in parts.items():
                policy.check_rows(n, view.n_parameters if view.part_of is not None or k == 0 else 0)
                policy.check_view(few)
            if view.fold:
                policy.check_rows(parts.get(1, (0, 0))[0])
            told = getattr(question, "told_rows", None)
            # What a sum told of weighted rows is what these are worth.
            worth = WORTH if told is not None and self._study.privacy.has_weights else 1.0
            policy.check_share(worth * n_rows, self._study.rows if told is None else told)
        if isinstance(question, RowsQuestion):
            self._check_units(here, question)
        if isinstance(question, ResidualsQuestion) and not question.abstains(here.state):
            self._check_residuals(here, question, n_rows)
        return here, task

    def _parts(self, data: SiteData, view: View) -> dict[int, tuple[int, int]]:
        """Rows of each part, and the fewest that some number would rest on; counted once for each view."""
        key = view_key(view)
        if key not in self._counts:
            least = self._policy.min_rows
            found = parts_in_view(view, data, least)
            self._counts[key] = {k: (part.n, part.few(least, view)) for k, part in found.items()}
        return self._counts[key]

    def _check_residuals(self, here: Here, question: ResidualsQuestion, n_rows: int) -> None:
        """Refuse residuals that have single rows of a segment in view, by their number or by their scale."""
        if question.shapes:
            self._policy.check_rows(n_rows, self._asked.size_of(SHAPES_ASKED))
        if not question.networks:
            # Those of sites' own networks are standardised by the site.
            return
        segments = _segments(here, question)
        for moments, (coefficients, offset) in zip(segments, question.networks, strict=True):
            mean = moments.mean @ coefficients - offset
            if question.center == "recording" and not question.n_blocks:
                # Where recordings lose their own means, so do residuals.
                mean = 0.0 * offset
            if moments.n:
                _check_sizes(question, moments, coefficients, mean)

    def _check_units(self, here: Here, question: RowsQuestion) -> None:
        """Refuse functions that are steps, or change only where few rows are, as seen from this site."""
        if question.function_units is None or question.abstains(here.state):
            return
        origin, scale = question.function_units
        moments, d = local_moments(here, question)[1], question.d
        spread = np.sqrt(np.diag(moments.scatter)[:d] / max(moments.n, 1.0)) / scale
        shift = np.zeros(d) if question.center == "recording" else np.abs(moments.mean[:d] - origin) / scale
        for what, found, most, code in (
            ("a standard deviation", spread, MOST_SCALES, "steep-functions"),
            ("a mean that is off", shift, MOST_OFF, "far-functions"),
        ):
            if np.any(found > most):
                raise SiteRefused(
                    f"task {question.name!r}: in the units of its functions a variable has {what} of {found.max():.3g} here, "
                    f"and this site answers up to {most:g}; those of all sites have mean 0 and standard deviation 1.",
                    code=code,
                )


def _segments(here: Here, question: ResidualsQuestion) -> list[Moments]:
    """The moments of a site's rows in each segment."""
    if not question.n_blocks:
        return [design_moments(here, question)]
    found = [Moments.empty(question.q) for _ in question.networks]
    of_block = question.segment_of(np.arange(question.n_blocks)).tolist()
    for s, moments in zip(of_block, local_block_moments(here.data, question), strict=True):
        found[s] = found[s].merge(moments)
    return found


def _check_sizes(
    question: RowsQuestion, moments: Moments, coefficients: FloatArray, mean: FloatArray
) -> None:
    """Refuse residuals that are much larger here than standardised ones are."""
    square = np.sum(coefficients * (moments.scatter @ coefficients), axis=0) / moments.n
    for what, found, most, code in (
        ("a variance", square, MOST_VARIANCE, "steep-residuals"),
        ("a mean", np.abs(mean), MOST_SHIFT, "far-residuals"),
    ):
        if np.any(found > most):
            raise SiteRefused(
                f"task {question.name!r}: residuals have {what} of up to {found.max():.3g} here, and this site answers "
                f"up to {most:g}; those of a network have mean 0 and variance 1 over all sites.",
                code=code,
            )


def counted_rows(recordings: Iterable[Recording], n_lags: int) -> tuple[int, int]:
    """Return how many lagged rows are complete, and how many have an empty cell."""
    n_complete = n_rows = 0
    for recording in recordings:
        for part in stretches(recording.blocks(), n_lags):
            n_empty = np.concatenate([[0], np.cumsum(np.isnan(part.values).any(axis=1))])
            width = n_lags + 1
            n_complete += int((n_empty[width:] == n_empty[:-width]).sum())
            n_rows += len(part.values) - n_lags
    return n_complete, n_rows - n_complete


class StepBook(Protocol):
    """How many numbers were told of a site's rows, by question; `add` has happened when it returns."""

    def hold(self) -> AbstractContextManager[None]:
        """Keep others from reading and writing meanwhile."""
        ...

    def answered(self) -> Mapping[str, int]:
        """Return how many of each kind."""
        ...

    def add(self, kind: str, stop: int) -> None:
        """Write down how many of a kind are answered now."""
        ...


# What sums about variables of kinds may tell: no small count of a level, and no models that have few rows in view.
#
# Why these rules ---------------
# - The server chooses the coefficients of ``newton``. Steep ones make a logistic curve a step: its gradient is then
#   the sum of the rows on one side of a plane, and two planes that differ a little show the rows in between. So the
#   linear predictors of this site must not spread more than those of a model can, and the rows that weigh in an answer
#   must be many: their effective number ``(sum w)^2 / sum w^2`` is at least `min_rows` for every model, and for each of
#   its levels.
# - Coefficients that suit one site may give the rows of all others no weight, so that the sum is that site's alone. So
#   rows also weigh something: in units of the largest weight that a row can have (a quarter where levels are predicted, 1
#   where counts are), the weights of a site add up to at least `min_rows`.
# - For every coefficient of a model there are `min_rows_per_parameter` rows, as DataSHIELD asks of a regression.
# - Whatever the coefficients are, an answer is so many equations about this site's rows. Over all runs the numbers that
#   steps have told stay below half the number of its cells. Under masks an equation is about the cells of `min_sites`
#   sites or more, each of which keeps to ``told <= sites * own cells / 2``, so that this holds for all of their cells
#   together. The same question again is no new equation.
# - A count of levels is told in whole units; where a unit is below `min_rows`, a site takes units of so many.

CELLS_PER_NUMBER = 2
"""Unknown cells for each number that steps of models tell about them."""
MOST_SPREAD = 10.0
"""Largest standard deviation of a site's linear predictors: from one end of it to the other, odds change by a factor of
20,000.
"""


FULL_WEIGHT = {"logistic": 0.25, "multinomial": 0.25, "cumulative": 0.25}
"""Largest weight of a row by family; of counts, a row with a mean of 1 or more weighs in full."""


class MixedGuard(Guard):
    """Refuses counts and models that would show few rows.

    Parameters
    ----------
    policy
        The owner's rules.
    book
        How many numbers steps have told, by question.
    """

    def __init__(self, policy: SitePolicy, book: StepBook) -> None:
        self._policy = policy
        self._book = book
        self._n_sites = 1

    def before(self, task: Task, state: Mapping[str, np.ndarray], channel: Channel) -> None:
        """Remember whether only a sum over sites can be read."""
        self._n_sites = self._policy.min_sites if channel.masked else 1

    def reads(self, here: Here, task: Task) -> tuple[Here, Task]:
        """Count what is told, and look at which rows weigh."""
        question = task.question
        if isinstance(question, NewtonQuestion):
            n_rows = self._check_weights(here, question)
            self._policy.check_rows(n_rows, max(question.lengths))
            self._check_told(task, question, n_rows)
        return here, task

    def _check_weights(self, here: Here, question: NewtonQuestion) -> int:
        sums: list[np.ndarray] = []
        n_rows = 0
        for terms in model_terms(here.data, question):
            n_rows += len(terms[0].weight)
            parts = [
                np.stack([x.sum(axis=0) for x in (w, w**2, np.minimum(w / full, 1.0), e, e**2)])
                for w, e, full in (
                    (one.weight, one.predictor, FULL_WEIGHT.get(model.family, 1.0))
                    for one, model in zip(terms, question.node_models, strict=True)
                )
            ]
            sums = [a + b for a, b in zip(sums, parts, strict=True)] if sums else parts
        if not n_rows:
            return 0
        total, squares, full_rows, mean, square = np.concatenate(sums, axis=1)
        spread = np.sqrt(np.maximum(square / n_rows - (mean / n_rows) ** 2, 0.0))
        if np.any(spread > MOST_SPREAD):
            raise SiteRefused(
                f"task {question.name!r}: linear predictors have a standard deviation of up to {spread.max():.3g} here, and "
                f"this site answers up to {MOST_SPREAD:g}; steeper models tell which side of a plane rows are on.",
                code="steep-model",
            )
        effective = np.minimum(total**2 / np.maximum(squares, 1e-300), full_rows)
        least = self._policy.min_rows
        if np.any(effective < least):
            raise SiteRefused(
                f"task {question.name!r}: as few as {effective.min():.1f} rows of this site would weigh in this sum; its "
                f"policy asks for {least} (min_rows).",
                code="few-rows-weigh",
            )
        return n_rows

    def _check_told(self, task: Task, question: NewtonQuestion, n_rows: int) -> None:
        kind = hashlib.sha256(task_digest(task.fields(), task.arrays).encode()).hexdigest()
        most = n_rows * sum(question.design.widths) * self._n_sites
        with self._book.hold():
            answered = {**self._book.answered()}
            is_new = kind not in answered
            answered[kind] = question.n_told
            told = sum(answered.values())
            if told * CELLS_PER_NUMBER > most:
                raise SiteRefused(
                    f"with these, steps of models would have told {told} numbers about {most} cells of as many sites as a "
                    f"sum has at least; this site asks for {CELLS_PER_NUMBER} cells for each.",
                    code="too-many-steps",
                )
            if is_new:
                self._book.add(kind, question.n_told)
