"""The owner's rules about rows: how many of this site must be in a sum, for how many parameters, and at what share.

Why these numbers
-----------------
- ``min_rows``: a sum of few rows is nearly these rows for whoever knows the other sites. Where empty cells are filled in
  by a model that the server sends, the sums of two models differ by the rows that have empty cells: if these are fewer,
  they are left out like all rows with empty cells are where nothing is filled in.
- ``min_rows_per_parameter``: from second moments of n rows of q columns, rows follow up to a rotation if n < q. Three rows
  for each column is what DataSHIELD asks of a regression (``nfilter.glm``). A nonlinear function of a projection is one
  more equation about single rows, so projections of a run count as parameters, all together.
- Standardised residuals have mean 0 and variance 1 over all sites. A projection that makes the rows of a site much larger
  than that has single rows in view.

Under noise these rules are not applied: noise protects single rows, and a refusal that depends on data would tell something
that no noise covers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.complete import CompleteSite
from feddbn.core.designs.lagged import stretches
from feddbn.core.designs.recordings import Recording, SiteData
from feddbn.core.statistics.moments import Moments
from feddbn.core.statistics.survey import TAIL
from feddbn.errors import SiteRefused
from feddbn.federation.guards.scope_guard import Asked
from feddbn.federation.programs.block_checks import BlockChecksQuestion
from feddbn.federation.programs.block_moments import local_block_moments
from feddbn.federation.programs.curved_moments import CurvedMomentsQuestion, local_curved_moments
from feddbn.federation.programs.feature_statistics import FeatureMomentsQuestion, FeatureScaleQuestion
from feddbn.federation.programs.folds import held_out_part, training_part
from feddbn.federation.programs.held_out import HeldOutQuestion
from feddbn.federation.programs.residual_features import ResidualsQuestion
from feddbn.federation.programs.statistics import local_moments
from feddbn.federation.programs.time_blocks import BlocksQuestion, rows_of_labels
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import Guard, Here
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Task
from feddbn.privacy.policy import SitePolicy

__all__ = ["MOST_SHIFT", "MOST_VARIANCE", "DisclosureGuard", "counted_rows"]

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
    """Refuses sums that would show too much of this site, and leaves out rows that would be seen alone.

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
        self._counts: dict[tuple[object, ...], tuple[int, int]] = {}

    def reads(self, here: Here, task: Task) -> tuple[Here, Task]:
        """Count rows, and leave out the few that have empty cells."""
        question, policy = task.question, self._policy
        self._check_held(here)
        if isinstance(question, FeatureMomentsQuestion | FeatureScaleQuestion):
            n, _ = counted_rows(CompleteSite(here.data).recordings(), question.reach)
            designs = question.designs if isinstance(question, FeatureMomentsQuestion) else ()
            policy.check_rows(n, max((design.q for design in designs), default=0))
            policy.check_share(n, self._study.rows)
        if not isinstance(question, RowsQuestion):
            return here, task
        if question.fold and not question.is_look:
            # Sums with and without a block of rows differ by that block.
            policy.check_rows(self._counted(here.data, question, held_out=True)[0])
        n_complete, n_incomplete = self._counted(here.data, question, isinstance(question, HeldOutQuestion))
        n_rows = n_complete
        if question.reads_incomplete_rows and 0 < n_incomplete < policy.min_rows:
            here = replace(here, data=CompleteSite(_with_limits(question, here.data)))
            task = replace(task, question=replace(question, limits=None, far=TAIL))
        elif question.reads_incomplete_rows or question.is_look:
            n_rows += n_incomplete
        q = question.n_columns * len(here.data.variables) // question.d
        policy.check_rows(n_rows, 0 if question.is_look or isinstance(question, HeldOutQuestion) else q)
        policy.check_share(n_rows, self._study.rows if question.told_rows is None else question.told_rows)
        self._check_projections(here, question, n_rows)
        self._check_units(here, question)
        if isinstance(question, BlocksQuestion):
            # Every block is a sum of its own; one without any row of this site shows none. With labels every label is
            # counted by itself: where the first block begins is the study's choice.
            for n_block in rows_of_labels(here.data, question):
                if n_block:
                    policy.check_rows(int(n_block), q)
        if isinstance(question, BlockChecksQuestion) and not question.abstains(here.state):
            self._check_segments(here, question)
        return here, task

    def _check_segments(self, here: Here, question: BlockChecksQuestion) -> None:
        """Refuse residuals that have single rows of a segment in view."""
        blocks = local_block_moments(here.data, question)
        segments = question.segment_of(np.arange(question.n_blocks))
        for s in range(len(question.cuts) + 1):
            moments = Moments.empty(question.q)
            for b in np.flatnonzero(segments == s).tolist():
                moments = moments.merge(blocks[b])
            if moments.n:
                coefficients, offset = question.residuals_of(s)
                _check_sizes(question, moments, coefficients, moments.mean @ coefficients - offset)

    def _check_held(self, here: Here) -> None:
        """Hold the study to what it says about who holds which variables: others rely on it."""
        study = self._study
        if study.held_by and tuple(here.data.variables) != study.variables_of(here.name):
            raise SiteRefused(
                f"held_by of the study says that {here.name!r} holds {', '.join(study.variables_of(here.name))}; it holds "
                f"{', '.join(here.data.variables)}."
            )

    def _counted(self, data: SiteData, question: RowsQuestion, held_out: bool) -> tuple[int, int]:
        """How many rows are complete, and how many have empty cells; counted once for each kind of question."""
        limits = None if question.limits is None else question.limits.tobytes()
        key = (question.n_lags, question.fold, held_out, limits, question.far)
        if key not in self._counts:
            fold, n_lags = question.fold, question.n_lags
            recordings = _with_limits(question, data).recordings()
            parts = (
                held_out_part(one, fold, n_lags) if held_out else training_part(one, fold)
                for one in recordings
            )
            self._counts[key] = counted_rows(parts, n_lags)
        return self._counts[key]

    def _check_projections(self, here: Here, question: RowsQuestion, n_rows: int) -> None:
        """Refuse projections that have single rows in view, by their number or by their scale."""
        if question.projected is None or question.abstains(here.state):
            return
        if isinstance(question, ResidualsQuestion):
            self._policy.check_rows(n_rows, self._asked.size_of(question.constants[-1].what))
        coefficients, offset = question.projected
        if isinstance(question, CurvedMomentsQuestion):
            moments = local_curved_moments(here, question)
        else:
            moments = local_moments(here, question)[1]
        # Where recordings lose their own means, so do residuals.
        mean = 0.0 * offset if question.center == "recording" else moments.mean @ coefficients - offset
        _check_sizes(question, moments, coefficients, mean)

    def _check_units(self, here: Here, question: RowsQuestion) -> None:
        """Refuse functions that are steps, or change only where few rows are, as seen from this site."""
        if question.function_units is None or question.abstains(here.state):
            return
        origin, scale = question.function_units
        moments, d = local_moments(here, question)[1], question.d
        spread = np.sqrt(np.diag(moments.scatter)[:d] / max(moments.n, 1.0)) / scale
        shift = np.zeros(d) if question.center == "recording" else np.abs(moments.mean[:d] - origin) / scale
        for what, found, most in (
            ("a standard deviation", spread, MOST_SCALES),
            ("a mean that is off", shift, MOST_OFF),
        ):
            if np.any(found > most):
                raise SiteRefused(
                    f"task {question.name!r}: in the units of its functions a variable has {what} of {found.max():.3g} here, "
                    f"and this site answers up to {most:g}; those of all sites have mean 0 and standard deviation 1."
                )


def _check_sizes(
    question: RowsQuestion, moments: Moments, coefficients: FloatArray, mean: FloatArray
) -> None:
    """Refuse residuals that are much larger here than standardised ones are."""
    square = np.sum(coefficients * (moments.scatter @ coefficients), axis=0) / moments.n
    for what, found, most in (
        ("a variance", square, MOST_VARIANCE),
        ("a mean", np.abs(mean), MOST_SHIFT),
    ):
        if np.any(found > most):
            raise SiteRefused(
                f"task {question.name!r}: residuals have {what} of up to {found.max():.3g} here, and this site answers "
                f"up to {most:g}; those of a network have mean 0 and variance 1 over all sites."
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


def _with_limits(question: RowsQuestion, data: SiteData) -> SiteData:
    """The site with the cells empty that are too far out for the question, in its own units."""
    return replace(question, log_scales=None).treated(data)
