"""Held-out losses, summed over sites: how candidates are compared without the truth and without pooling.

A site remembers its own loss of every candidate and block. What leaves it: once per candidate its total loss and its
number of rows; and, when the best candidate is known, the sums and squares of its differences to the best, which is all
the one-standard-error rule needs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.complete import CompleteRows
from feddbn.core.designs.gram import gram_of
from feddbn.core.fdbnl.site import loss_and_grad
from feddbn.errors import DataError, StateError
from feddbn.federation.programs.folds import held_out_part
from feddbn.federation.programs.pfdbnl.entries import Entries
from feddbn.federation.programs.statistics import Preparation
from feddbn.federation.protocol.question import Question, array, whole
from feddbn.federation.protocol.rows import Fold, RowsQuestion
from feddbn.federation.protocol.site import (
    Here,
    SiteState,
    SiteTask,
    one_by_one,
    register_site_task,
)
from feddbn.federation.protocol.task import ServerProgram, Task

MOST_CANDIDATES = 10_000

__all__ = ["MOST_CANDIDATES", "Comparison", "comparison_program", "held_out_program"]


@dataclass(frozen=True)
class Comparison:
    """Held-out loss per row of each candidate and its paired standard error against the best, both (m,)."""

    loss: FloatArray
    standard_error: FloatArray
    best: int
    n_rows: float
    n_sites: int


def held_out_program(
    candidate: int,
    n_candidates: int,
    fold: Fold,
    n_lags: int,
    variables: tuple[str, ...],
    preparation: Preparation,
    center: str,
    C: FloatArray | None = None,
) -> ServerProgram[float]:
    """Ask every site for the loss of a shared C, or (None) of its own personal weights, on its held-out rows."""
    answer = yield Task(
        HeldOutQuestion(
            candidate=candidate,
            n_candidates=n_candidates,
            fold=fold,
            n_lags=n_lags,
            variables=variables,
            center=center,
            origin=preparation.center,
            scale=preparation.scale,
            C=C,
        )
    )
    return float(answer.value[0] / answer.value[1])


def comparison_program(n_candidates: int) -> ServerProgram[Comparison]:
    """Ask for the sums over all blocks: which candidate is best, and how sure that is."""
    totals = yield Task(HeldOutSumsQuestion(n_candidates=n_candidates))
    m = n_candidates
    n = float(totals.value[m])
    loss = totals.value[:m] / n
    best = int(np.argmin(loss))
    answer = yield Task(HeldOutSumsQuestion(n_candidates=m, best=best))
    k = len(answer.contributors)
    total, squares = answer.value[:m], answer.value[m : 2 * m]
    # Site totals of differences to the best are independent over sites; their spread gives the error of the sum.
    spread = np.sqrt(np.maximum(squares - total**2 / k, 0.0) * k / max(k - 1, 1))
    return Comparison(loss, spread / n, best, n, k)


@dataclass(frozen=True, kw_only=True)
class HeldOutQuestion(RowsQuestion):
    """The loss of a candidate on the rows that a fold holds out: of the shared C, or of the site's own weights."""

    name = "held-out-loss"
    purpose = "loss of a candidate on later rows that it was not fitted to"

    candidate: int = whole()
    n_candidates: int = whole(1, MOST_CANDIDATES)
    origin: FloatArray = array("q")
    scale: FloatArray = array("q")
    C: FloatArray | None = array("q", "d", default=None)

    def check(self) -> None:
        """There is a fold, and the candidate is one of them."""
        super().check()
        if not self.fold or self.candidate >= self.n_candidates:
            raise self.wrong("it needs a 'fold', and a 'candidate' below 'n_candidates'")


@dataclass(frozen=True, kw_only=True)
class HeldOutSumsQuestion(Question):
    """Total losses of all candidates or, once the `best` is known, sums and squares of the differences to it."""

    name = "held-out-sums"
    purpose = "sums and squares of held-out losses of all candidates"

    n_candidates: int = whole(1, MOST_CANDIDATES)
    best: int = whole(-1, MOST_CANDIDATES, default=-1)

    def check(self) -> None:
        """The best is one of the candidates."""
        if self.best >= self.n_candidates:
            raise self.wrong("'best' must be below 'n_candidates'")


def _loss(here: Here, question: HeldOutQuestion) -> tuple[SiteState, FloatArray]:
    state, c, m, n_lags = here.state, question.candidate, question.n_candidates, question.n_lags
    if question.abstains(state):
        return {**state, "selection.losses": np.zeros((2, m))}, np.zeros(2)
    entries = Entries.of(tuple(here.data.variables), question.variables, n_lags, n_lags)
    design = question.design_of(here.data.variables, n_lags)
    # Blocks are cut by all rows, as for training, and incomplete rows left out afterwards.
    recordings = question.treated(here.data).recordings()
    parts = (CompleteRows(held_out_part(recording, question.fold, n_lags)) for recording in recordings)
    moments = gram_of(design, parts).moments
    if moments.n == 0:
        raise DataError(
            "no held-out row of this site has its lags before it; lower n_lags or test on a larger share."
        )
    scale = entries.take(question.scale)
    scatter = moments.about(entries.take(question.origin)) / np.outer(scale, scale)
    if question.C is None and "personal.final" not in state:
        raise StateError("this site has no personal network yet; fit PFDBNL first.")
    C = entries.take(state["personal.final"] if question.C is None else question.C)
    loss = float(loss_and_grad(scatter[None], C)[0].sum())
    losses = state.get("selection.losses", np.zeros((2, m)))
    if losses.shape != (2, m) or (c == 0 and question.fold[0] == 0):
        losses = np.zeros((2, m))
    losses = losses.copy()
    losses[:, c] += (loss, moments.n)
    return {**state, "selection.losses": losses}, np.array([loss, moments.n])


def _sums(here: Here, question: HeldOutSumsQuestion) -> tuple[SiteState, FloatArray]:
    losses, best = here.state.get("selection.losses"), question.best
    if losses is None or losses.shape != (2, question.n_candidates):
        raise StateError("this site has no held-out losses of this selection; it has missed its rounds.")
    if best < 0:
        return here.state, np.append(losses[0], losses[1].max())
    difference = losses[0] - losses[0, best]
    return here.state, np.concatenate([difference, difference**2])


register_site_task(SiteTask(HeldOutQuestion, one_by_one(_loss)))
register_site_task(SiteTask(HeldOutSumsQuestion, one_by_one(_sums)))
