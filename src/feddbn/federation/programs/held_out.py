"""Held-out losses, summed over sites: how candidates are compared without the truth and without pooling.

All candidates are judged on the same rows, treated in one way: a `Judge` decides it once, before anything is fitted, from
all rows, as outliers and trends of a few held-out rows could not be told otherwise. What a candidate learns from are earlier
rows. Trends, cycles and means that are a recording's own are taken off the held-out rows themselves, so that levels that
nobody could know beforehand do not count; where all sites share one mean, intercepts do. Empty cells count as expected given
the others.

A site remembers its own loss of every candidate and block. What leaves it: once per candidate its sums of squared residuals,
one for each variable, and its number of rows; and, when the best candidate is known, the sums and squares of its differences
to the best, which is all the one-standard-error rule needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import held_out_part
from feddbn.core.statistics.moments import Moments
from feddbn.core.statistics.survey import FEWEST_SITES
from feddbn.errors import DataError, StateError
from feddbn.federation.protocol.rows import Fold, RowsQuestion, Treatment
from feddbn.federation.protocol.site import Here, SiteState, answers
from feddbn.federation.protocol.task import Plan, Planned, Question, Scope, ServerProgram, Task, array, whole
from feddbn.federation.sums.gram import recordings_moments
from feddbn.federation.sums.prepare import Prepare
from feddbn.federation.sums.treatment import asked_moments_program
from feddbn.method_table import Method

MOST_CANDIDATES = 10_000
# Simplest first: few lags and strong penalties; and sites that are left alone. Borrowing has to be
# worth it: training rows are fewer than all rows, so held-out loss asks for too much of it rather than too little.
AUTO_GRIDS: dict[str, tuple[Any, ...]] = {
    "n_lags": (0, 1, 2, 3),
    "lambda_w": (0.2, 0.1, 0.05, 0.025, 0.0125),
    "lambda_a": (0.2, 0.1, 0.05, 0.025, 0.0125),
    "mu": (0.01, 0.03, 0.1, 0.25, 0.5, 1.0, 2.0),
}


@dataclass(frozen=True)
class CandidateLosses:
    """Held-out loss per row of each candidate and its paired standard error against the best (NaN: not asked), both (m,)."""

    loss: FloatArray
    standard_error: FloatArray
    best: int
    n_rows: float
    n_sites: int


@dataclass(frozen=True)
class Weights:
    """What is judged: weights C of variables ``(z - origin) / scale``, with as many lags as it has.

    Attributes
    ----------
    origin, scale
        (q,) how the variables were prepared.
    C
        (q, d) weights; None: every site's own.
    intercept
        (d,) in the units of the rows; None: it follows from the origin.
    log_scales
        (d,) the scales that sites were brought to when C was learned, as in `Treatment`; None: their own units.
    """

    origin: FloatArray
    scale: FloatArray
    C: FloatArray | None
    intercept: FloatArray | None = None
    log_scales: FloatArray | None = None


@dataclass(frozen=True)
class Squares:
    """Sums of squared residuals (d,) over held-out rows, and how many rows that are."""

    squares: FloatArray
    n_rows: float


@dataclass(frozen=True)
class Judge:
    """How networks are judged on one fold: all on the same rows, which reach `n_lags` back and are treated in one way."""

    fold: Fold
    n_lags: int
    variables: tuple[str, ...]
    treatment: Treatment

    def asks(
        self, weights: Weights, units: FloatArray | None = None, candidate: int = 0, n_candidates: int = 1
    ) -> Question:
        """Return the question; sites remember the loss in these units (d,) for `comparison_program`."""
        q = (self.n_lags + 1) * len(self.variables)
        question = HeldOutQuestion(
            candidate=candidate,
            n_candidates=n_candidates,
            fold=self.fold,
            n_lags=self.n_lags,
            variables=self.variables,
            # Lags that the weights do not have get a weight of zero, so what is taken off them does not matter.
            origin=np.resize(weights.origin, q),
            scale=np.resize(weights.scale, q),
            C=None if weights.C is None else _with_lags(weights.C, q),
            intercept=weights.intercept,
            learned_scales=weights.log_scales,
            units=units,
        )
        return self.treatment.on(question)

    def judged(
        self, weights: Weights, units: FloatArray | None = None, candidate: int = 0, n_candidates: int = 1
    ) -> ServerProgram[Squares]:
        """Ask every site about weights that they share, or about its own."""
        answer = (yield Task(self.asks(weights, units, candidate, n_candidates))).value
        return Squares(answer[:-1], float(answer[-1]))


def judge_program(
    variables: tuple[str, ...], n_lags: int, prepare: Prepare, fold: Fold
) -> ServerProgram[Judge]:
    """Decide how the held-out rows of a fold are treated; `n_lags` is the most of all candidates."""
    treatment = Treatment(center=prepare.center)
    if not prepare.is_settled:
        asked = yield from asked_moments_program(variables, n_lags, prepare)
        treatment = asked.treatment
    return Judge(fold, n_lags, variables, replace(treatment, inputs=prepare.input_places(variables)))


def default_grid(method: Method) -> dict[str, list[Any]]:
    """Return what is chosen if nothing is asked for: what the method's row says, penalties on a short grid."""
    return {
        name: [0.1, 0.05, 0.025] if name.startswith("lambda") else list(AUTO_GRIDS[name])
        for name in method.selects
    }


def held_out_plan(d: int, n_candidates: int, n_blocks: int, *, chooses: bool = True) -> Plan:
    """What judging candidates on held-out rows asks, without learning them; `chooses` says that sums follow."""
    n = n_candidates * n_blocks
    losses = Planned("loss.rows", d + 1, n, n)
    return (
        (losses, Planned("loss.sums", max(2 * n_candidates, n_candidates + 1), 2, 2))
        if chooses
        else (losses,)
    )


def comparison_program(n_candidates: int, spread: bool = True) -> ServerProgram[CandidateLosses]:
    """Ask for the sums over all blocks: which candidate is best and, with `spread`, how sure that is."""
    totals = yield Task(HeldOutSumsQuestion(n_candidates=n_candidates))
    m = n_candidates
    n = float(totals.value[m])
    loss = totals.value[:m] / n
    best, k = int(np.argmin(loss)), len(totals.contributors)
    if not spread:
        return CandidateLosses(loss, np.full(m, np.nan), best, n, k)
    answer = yield Task(HeldOutSumsQuestion(n_candidates=m, best=best))
    k = len(answer.contributors)
    total, squares = answer.value[:m], answer.value[m : 2 * m]
    # Site totals of differences to the best are independent over sites; their spread gives the error of the sum.
    deviation = np.sqrt(np.maximum(squares - total**2 / k, 0.0) * k / max(k - 1, 1))
    return CandidateLosses(loss, deviation / n, best, n, k)


@dataclass(frozen=True, kw_only=True)
class HeldOutQuestion(RowsQuestion):
    """Squared residuals of a candidate on the rows that a fold holds out; see `Weights` and `Judge`."""

    name = "loss.rows"
    purpose = (
        "squared residuals of each variable, for a candidate network on later rows that it was not fitted to"
    )

    candidate: int = whole()
    n_candidates: int = whole(1, MOST_CANDIDATES)
    origin: FloatArray = array("q")
    scale: FloatArray = array("q")
    C: FloatArray | None = array("q", "d", default=None)
    intercept: FloatArray | None = array("d", default=None)
    learned_scales: FloatArray | None = array("d", default=None)
    units: FloatArray | None = array("d", default=None)

    def check(self) -> None:
        """There is a fold, the candidate is one of them, and nothing is divided by zero."""
        super().check()
        if not self.fold or self.candidate >= self.n_candidates:
            raise self.wrong("it needs a 'fold', and a 'candidate' below 'n_candidates'")
        if not (np.all(self.scale > 0) and (self.units is None or np.all(self.units > 0))):
            raise self.wrong("'scale' and 'units' must be positive")

    @property
    def n_columns(self) -> int:
        """Losses are no products of columns."""
        return 0


@dataclass(frozen=True, kw_only=True)
class HeldOutSumsQuestion(Question):
    """Total losses of all candidates or, once the `best` is known, sums and squares of the differences to it."""

    name = "loss.sums"
    purpose = "sums and squares of held-out losses of all candidates"
    reads_rows = False

    n_candidates: int = whole(1, MOST_CANDIDATES)
    best: int = whole(-1, MOST_CANDIDATES, default=-1)

    def check(self) -> None:
        """The best is one of the candidates."""
        if self.best >= self.n_candidates:
            raise self.wrong("'best' must be below 'n_candidates'")

    def check_scope(self, scope: Scope) -> None:
        """Squares of few sites' losses would tell the sites apart."""
        n = len(scope.sites)
        are_many = self.best < 0 or n >= FEWEST_SITES
        scope.require(are_many, self.name, f"squares of losses of {n} sites tell them apart", "few-sites")


def _with_lags(C: FloatArray, q: int) -> FloatArray:
    """Weights of more lags: zeros."""
    return np.concatenate([C, np.zeros((max(q - len(C), 0), C.shape[1]))])


@answers(HeldOutQuestion)
def _loss(here: Here, question: HeldOutQuestion) -> tuple[SiteState, FloatArray]:
    state, c, m, d = here.state, question.candidate, question.n_candidates, question.d
    if question.abstains(state):
        return {**state, "selection.losses": np.zeros((2, m))}, np.zeros(d + 1)
    question.require_variables(here.data)
    moments = _held_out_moments(here, question)
    squares = _squares(here, question, moments)
    loss = 0.5 * float(np.sum(squares if question.units is None else squares / question.units**2))
    losses = state.get("selection.losses", np.zeros((2, m)))
    if losses.shape != (2, m) or (c == 0 and question.fold[0] == 0):
        losses = np.zeros((2, m))
    losses = losses.copy()
    losses[:, c] += (loss, moments.n)
    return {**state, "selection.losses": losses}, np.append(squares, moments.n)


def _held_out_moments(here: Here, question: HeldOutQuestion) -> Moments:
    # Blocks are cut by all rows, as for training; what is missing is dealt with afterwards.
    every = question.treated(here.data).recordings()
    parts = (held_out_part(recording, question.fold, question.n_lags) for recording in every)
    total = recordings_moments(question.lagged, parts, question.row_model)
    if total.n == 0:
        raise DataError(
            "no held-out row of this site has its lags before it; lower n_lags or test on a larger share."
        )
    return total


def _squares(here: Here, question: HeldOutQuestion, moments: Moments) -> FloatArray:
    """(d,) sums of squared residuals ``x_t - intercept - z B``, in the units in which rows are judged."""
    if question.C is None and "personal.final" not in here.state:
        raise StateError("this site has no personal network yet; fit PFDBNL first.", code="no-network")
    C = _with_lags(here.state["personal.final"], question.q) if question.C is None else question.C
    scale, origin, d = question.scale, question.origin, question.d
    B = C * scale[:d] / scale[:, None]
    intercept = origin[:d] - origin @ B
    if question.intercept is not None:
        intercept = question.intercept
    # From the units in which the weights were learned to those in which rows are judged.
    learned = replace(question, log_scales=question.learned_scales)
    ratio = question.gains(here.data) / learned.gains(here.data)
    B = B * ratio / np.tile(ratio, len(B) // d)[:, None]
    residual = np.eye(len(B), d) - B
    # What is a recording's own has been taken off the rows, and with it every level.
    offset = moments.mean @ residual - intercept * ratio if question.center != "recording" else np.zeros(d)
    own_squares: FloatArray = (moments.scatter @ residual * residual).sum(axis=0)
    return np.maximum(own_squares, 0.0) + moments.n * offset**2


@answers(HeldOutSumsQuestion)
def _sums(here: Here, question: HeldOutSumsQuestion) -> tuple[SiteState, FloatArray]:
    losses, best = here.state.get("selection.losses"), question.best
    if losses is None or losses.shape != (2, question.n_candidates):
        raise StateError(
            "this site has no held-out losses of this selection; it has missed its rounds.", code="no-losses"
        )
    if best < 0:
        return here.state, np.append(losses[0], losses[1].max())
    difference = losses[0] - losses[0, best]
    return here.state, np.concatenate([difference, difference**2])
