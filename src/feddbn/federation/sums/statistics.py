"""What methods decide from the first sums: folds of held-out rows, centre and scale.

A fold has every question about rows answered from its training rows only, so that every server program
can be run on a fold without knowing about it. Two folds differ by the rows of a block. Where a site has no row in it the
difference is about the other sites alone, and with many small blocks about one: so there are few blocks, and a site that has
none of the rows does not answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.diagnostics import ColumnStatistics, Units, autocorrelation, units_of
from feddbn.errors import ParameterError
from feddbn.federation.protocol.rows import MOST_BLOCKS, UNTREATED, Fold, RowsQuestion, Treatment
from feddbn.federation.protocol.site import site_tasks
from feddbn.federation.protocol.task import (
    FederationView,
    Question,
    ServerProgram,
    Sum,
    Task,
    asking,
)
from feddbn.federation.sums.gram import GramQuestion
from feddbn.settings import number

T = TypeVar("T")


def make_fold(block: int, n_blocks: int, share: float) -> Fold:
    """Return the fold of a question; `share` of each recording is tested on in `n_blocks` blocks."""
    number(above=0.0, below=1.0).check("share", share)
    if not 1 <= n_blocks <= MOST_BLOCKS or not 0 <= block < n_blocks:
        raise ParameterError(f"n_blocks={n_blocks!r} must be between 1 and {MOST_BLOCKS}.")
    return block, n_blocks, min(max(round(1000 * share), 1), 999)


def on_fold(program: ServerProgram[T], fold: Fold) -> ServerProgram[T]:
    """Run a server program on the training rows of a fold."""
    return asking(program, lambda question: _folded(question, fold))


def _folded(question: Question, fold: Fold) -> Question:
    if not isinstance(question, RowsQuestion):
        if question.reads_rows:
            raise ParameterError(
                f"the task {question.name!r} cannot be asked about earlier rows only, so what needs it (features, noise) "
                "cannot be judged on held-out rows; leave that out."
            )
        return question
    if question.fold:
        raise ParameterError(
            "a parameter is 'auto', which is chosen on held-out rows itself; give a number, `feddbn select` finds one."
        )
    return replace(question, fold=fold)


@dataclass(frozen=True)
class EarlierRows(FederationView):
    """A federation whose sites answer from the training rows of a fold: what is fitted on it does not learn from the others.

    What is looked for first (cycles, outliers, scales of sites) is looked for in all rows, alike for all that is fitted.
    """

    fold: Fold

    @property
    def answered_tasks(self) -> frozenset[str] | None:
        """Parts are of all rows."""
        known = self.federation.answered_tasks
        return (frozenset(site_tasks()) if known is None else known) - {"gram.parts"}

    def sum(self, task: Task) -> Sum:
        """Return the sum over the training rows."""
        return self.federation.sum(replace(task, question=_folded(task.question, self.fold)))


# Beyond this ratio of mean to standard deviation, sums of squares about zero lose too many digits.
FAR_FROM_ZERO = 1e3


@dataclass(frozen=True)
class Preparation(Units):
    """What every site does to z before a fit; `treatment` is what it does to its rows before that."""

    treatment: Treatment = UNTREATED


def prepare(
    summary: ColumnStatistics, d: int, center: str, scale: str, treatment: Treatment = UNTREATED
) -> Preparation:
    """Choose centre and scale from sums only (`units_of`) for rows that are treated so."""
    return Preparation(**vars(units_of(summary, d, center, scale)), treatment=treatment)


def summary_program(
    variables: tuple[str, ...], n_lags: int, center: str = "none"
) -> ServerProgram[ColumnStatistics]:
    """Ask for counts, means and variances; a second time about the means if these are far from zero."""
    d = len(variables)
    question = GramQuestion(n_lags=n_lags, variables=variables, center=center, diagonal=True)
    total = (yield Task(question)).value
    summary = _summary(total, d, np.zeros((n_lags + 1) * d))
    if np.any(np.abs(summary.mean) > FAR_FROM_ZERO * np.sqrt(np.maximum(summary.variance, 0.0))):
        origin = summary.mean
        total = (yield Task(replace(question, origin=origin))).value
        summary = _summary(total, d, origin)
    return summary


def _summary(total: FloatArray, d: int, origin: FloatArray) -> ColumnStatistics:
    q = len(origin)
    n = float(total[0])
    delta = total[1 : 1 + q] / n
    variance = total[1 + q : 1 + 2 * q] / n - delta * delta
    lagged = total[1 + 2 * q :] / n - (delta[:d] * delta[d : 2 * d] if q > d else 0.0)
    return ColumnStatistics(n, delta + origin, variance, autocorrelation(lagged, variance[:d]))
