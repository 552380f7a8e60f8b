"""What sites can do alone: every site fits DYNOTEARS to its own rows; the server sees only sums over sites.

Site task ``local-fit`` keeps the site's own network in its state and answers with its weights (for an average), with
the indicators of its edges (for a vote), or with nothing but a count (when the networks are to stay at home).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.fdbnl.dynotears import solve_dynotears
from feddbn.core.graphs.acyclicity import ACYCLICITIES
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.federation.programs.fdbnl import WEIGHTINGS, ConsensusSettings, check_summary, consensus_options
from feddbn.federation.programs.statistics import (
    CENTERS,
    Preparation,
    Summary,
    asked_moments,
    prepare,
    summary_of_moments,
)
from feddbn.federation.protocol.question import array, choice, flag, number, whole
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import Here, SiteState, SiteTask, one_by_one, register_site_task
from feddbn.federation.protocol.task import ServerProgram, Task

__all__ = ["ANSWERS", "LocalFitQuestion", "local_fit_of_state", "local_fits_program"]

ANSWERS = ("weights", "votes", "count")


@dataclass(frozen=True, kw_only=True)
class LocalFitQuestion(RowsQuestion):
    """A fit of `ConsensusSettings` to the site's own rows, and what to answer of it."""

    name = "local-fit"
    purpose = "a network fitted to this site's rows alone: its weights or its edges"

    answer: str = choice(*ANSWERS)
    lambda_w: float = number(0.0)
    lambda_a: float = number(0.0)
    schedule: str = choice("adaptive", "paper")
    weighting: str = choice(*WEIGHTINGS)
    rho1: float | None = number(0.0, default=None)
    rho2: float | None = number(0.0, default=None)
    phi1: float | None = number(0.0, default=None)
    phi2: float | None = number(0.0, default=None)
    max_rounds: int = whole(1, 1_000_000)
    h_tol: float = number(0.0)
    tol: float = number(0.0)
    w_threshold: float = number(0.0)
    a_threshold: float = number(0.0)
    refit: bool = flag()
    center: str = choice(*CENTERS)
    scale: str = choice("none", "federated")
    acyclicity: str = choice(*ACYCLICITIES)
    allowed: FloatArray = array("q", "d")
    required: FloatArray = array("q", "d")


def local_fits_program(
    settings: ConsensusSettings, variables: tuple[str, ...], constraints: EdgeConstraints, answer: str
) -> ServerProgram[tuple[FloatArray, tuple[str, ...]]]:
    """Ask every site for one local fit; the result is the sum of what they answer and who contributed."""
    known = {item.name for item in fields(LocalFitQuestion)}
    given = {item.name: getattr(settings, item.name) for item in fields(settings) if item.name in known}
    if settings.wishes.has_time:
        # Trends and cycles given by name; nothing is found out from sums, as every site is on its own.
        degree, periods = settings.detrend, settings.wishes.period
        given |= {
            "center": "recording",
            "degree": 0 if isinstance(degree, str) else degree,
            "periods": () if isinstance(periods, str) else periods,
        }
    question = LocalFitQuestion(
        **given,
        variables=variables,
        answer=answer,
        allowed=constraints.allowed.astype(float),
        required=constraints.required.astype(float),
    )
    total = yield Task(question)
    return total.value, total.contributors


def local_fit_of_state(
    state: Mapping[str, np.ndarray],
) -> tuple[FloatArray, FloatArray, FloatArray, Preparation]:
    """Return (C, C_raw, per-variable loss, preparation) of a site's own fit; for use at the site or in a simulation."""
    n = float(state["moments.n"])
    q = len(state["local.center"])
    nothing = Summary(n, np.zeros(q), np.ones(q), np.zeros(0))
    preparation = Preparation(state["local.center"], state["local.scale"], "site", nothing)
    return state["local.C"], state["local.C_raw"], state["local.loss"], preparation


def _fit(here: Here, question: LocalFitQuestion) -> tuple[SiteState, FloatArray]:
    names = {item.name for item in fields(question)}
    settings = ConsensusSettings(
        **{
            item.name: getattr(question, item.name)
            for item in fields(ConsensusSettings)
            if item.name in names
        }
    )
    constraints = EdgeConstraints(question.allowed > 0.5, question.required > 0.5)
    state, moments = asked_moments(here, question)
    d = constraints.d
    preparation = prepare(summary_of_moments(moments, d), d, settings.center, settings.scale)
    check_summary(question.variables, preparation)
    options, _ = consensus_options(settings, preparation, constraints, 1)
    run = solve_dynotears(moments.standardised(preparation.center, preparation.scale), options)
    C = run.graph()
    assert run.C_raw is not None
    assert run.target_loss is not None
    new = {
        **state,
        "local.C": C,
        "local.C_raw": run.C_raw,
        "local.loss": run.target_loss,
        "local.center": preparation.center,
        "local.scale": preparation.scale,
    }
    if question.answer == "weights":
        scale = preparation.scale
        return new, (run.C_raw * scale[:d] / scale[:, None]).ravel()
    if question.answer == "votes":
        return new, (C != 0).astype(np.float64).ravel()
    return new, np.ones(1)


register_site_task(SiteTask(LocalFitQuestion, one_by_one(_fit)))
