"""What sites can do alone: every site fits DYNOTEARS to its own rows; the server sees only sums over sites.

Site task ``local.fit`` keeps the site's own network in its state and answers with its weights, means and noise variances
(for an average), or with nothing else (when the networks are to stay at home), and with the number of networks: a site
that stays out has none.

What is done to the rows first is decided from sums over the sites that are asked: over all of them for an average.
A site alone is a federation of one (`federation.protocol.task.asked_of`), and decides by its own numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.penalised.acyclicity import ACYCLICITIES
from feddbn.core.penalised.path import make_schedule
from feddbn.core.penalised.pooled import OPTIMA, PenalisedLearner
from feddbn.core.statistics.diagnostics import CENTERS, SCALES, ColumnStatistics, summary_of_moments
from feddbn.federation.programs.fdbnl import PenalisedSettings, check_summary
from feddbn.federation.protocol.rows import RowsQuestion, Treatment
from feddbn.federation.protocol.site import Here, SiteState, SiteTask, register_site_task
from feddbn.federation.protocol.task import ServerProgram, Task, array, choice, flag, number, whole, wholes
from feddbn.federation.sums.gram import asked_moments
from feddbn.federation.sums.statistics import Preparation
from feddbn.federation.sums.treatment import AskedMoments, asked_moments_program, whole_moments

ANSWERS = ("weights", "count")
_ROUNDS = ("rho1", "phi1", "max_rounds", "h_tol", "tol", "acyclicity")


@dataclass(frozen=True, kw_only=True)
class LocalFitQuestion(RowsQuestion):
    """A fit of `PenalisedLearner` to the site's own rows, and what to answer of it.

    `middle` is the rule for the site's mean (`units_of`) where recordings keep theirs; `outside` are positions of
    variables that only act on others, which have no noise to be scaled by.
    """

    name = "local.fit"
    purpose = "a network fitted to this site's rows alone: its weights"

    answer: str = choice(*ANSWERS)
    lambda_w: float = number(0.0)
    lambda_a: float = number(0.0)
    rho1: float | None = number(0.0, default=None)
    phi1: float | None = number(0.0, default=None)
    max_rounds: int = whole(1, 1_000_000)
    h_tol: float = number(0.0)
    tol: float = number(0.0)
    w_threshold: float = number(0.0)
    a_threshold: float = number(0.0)
    refit: bool = flag()
    middle: str = choice(*CENTERS)
    outside: tuple[int, ...] = wholes(0, 1_000_000, default=())
    scale: str = choice(*SCALES)
    acyclicity: str = choice(*ACYCLICITIES)
    optimum: str = choice(*OPTIMA, default="order")
    allowed: FloatArray = array("q", "d")
    required: FloatArray = array("q", "d")

    def learner(self) -> PenalisedLearner:
        """The learner that the site fits by."""
        names = ("lambda_w", "lambda_a", "w_threshold", "a_threshold", "refit", "optimum", "scale")
        return PenalisedLearner(
            **{name: getattr(self, name) for name in (*names, "h_tol", "tol", "max_rounds", "acyclicity")},
            center=self.middle if self.center == "none" else "recording",
            inputs=self.outside,
            schedule=make_schedule("gram", 1, 1.0, rho1=self.rho1, phi1=self.phi1),
        )


@dataclass(frozen=True)
class LocalFits:
    """What local fits gave.

    Attributes
    ----------
    total
        Sum of what sites answered.
    n_sites
        How many networks are in it.
    asked
        What was decided about the rows before; None if nothing was open.
    """

    total: FloatArray
    n_sites: int
    asked: AskedMoments | None = None


def local_fits_program(
    settings: PenalisedSettings,
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    answer: str,
    n_sites: int,
) -> ServerProgram[LocalFits]:
    """Decide what is done to the rows of the sites that are asked, `n_sites` of them, and ask each for one local fit."""
    rows, center = settings.rows.among(n_sites), settings.prepare.center
    asked, treatment = None, Treatment(center="recording" if center == "recording" else "none")
    if not rows.is_settled:
        asked = yield from asked_moments_program(variables, int(settings.n_lags), rows)
        treatment = asked.treatment
    known = {item.name for item in fields(LocalFitQuestion)}
    given = {item.name: getattr(settings, item.name) for item in fields(settings) if item.name in known}
    question = LocalFitQuestion(
        **given,
        **{name: getattr(settings.rounds, name) for name in _ROUNDS},
        variables=variables,
        answer=answer,
        middle=center,
        scale=settings.prepare.scale,
        outside=rows.input_places(variables),
        allowed=constraints.allowed.astype(float),
        required=constraints.required.astype(float),
    )
    total = (yield Task(treatment.on(question))).value
    return LocalFits(total[:-1], round(float(total[-1])), asked)


def local_fit_of_state(
    state: Mapping[str, np.ndarray],
) -> tuple[FloatArray, FloatArray, FloatArray, Preparation]:
    """Return (C, C_raw, per-variable loss, preparation) of a site's own fit; for use at the site or in a simulation."""
    n = float(state["moments.n"])
    q = len(state["local.center"])
    nothing = ColumnStatistics(n, np.zeros(q), np.ones(q), np.zeros(0))
    preparation = Preparation(state["local.center"], state["local.scale"], "site", nothing)
    return state["local.C"], state["local.C_raw"], state["local.loss"], preparation


def _fit(here: Here, question: LocalFitQuestion) -> tuple[SiteState, FloatArray]:
    size = question.allowed.size + sum(question.allowed.shape) if question.answer == "weights" else 0
    if question.abstains(here.state):
        return here.state, np.zeros(size + 1)
    constraints = EdgeConstraints(question.allowed > 0.5, question.required > 0.5)
    state, moments = asked_moments(here, question)
    rank = sum(1.0 for _ in here.data.recordings()) * question.nuisance.n_columns
    moments = whole_moments(question, moments, constraints.d, rank)
    check_summary(question.variables, summary_of_moments(moments, constraints.d))
    found = question.learner().learn(moments, constraints, np.random.default_rng(0))
    run, units, d = found.run, found.units, constraints.d
    C = run.graph()
    assert run.C_raw is not None
    assert run.target_loss is not None
    new = {
        **state,
        "local.C": C,
        "local.C_raw": run.C_raw,
        "local.loss": run.target_loss,
        "local.center": units.center,
        "local.scale": units.scale,
    }
    numbers = np.empty(0)
    if question.answer == "weights":
        B = run.C_raw * units.scale[:d] / units.scale[:, None]
        misses = np.eye(len(B), d) - B
        noise = (misses * (moments.scatter @ misses)).sum(axis=0) / moments.n
        numbers = np.concatenate([B.ravel(), moments.mean, np.maximum(noise, 0.0)])
    return new, np.append(numbers, 1.0)


register_site_task(SiteTask(LocalFitQuestion, _fit))
