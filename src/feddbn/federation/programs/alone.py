"""Is the network of all sites better for each site than its own? One question, and three counts.

A site compares the two on rows that neither was learned from (`core.alone`), keeps what it finds in its state, where its
owner reads it, and answers with a one in one of three places: better, equal, worse. What the server has is the sum of these
over sites. A site that has too few rows to tell, or stays out of sums, answers with zeros.

*What a server could do with it.* It may make up the network, and learn for how many sites some network is better than what
they have. A run asks once, so that is one of three answers of each site, added up; which site gave which is hidden as in
every other sum, by masks, and where sites are few by the least number of sites in a sum. Few rows do not show in
it: a verdict is one of three words. Sums in the clear show it of each site, as they show its second moments.

A refusal is no error: the network stays as it is, and the result says that the sites were not asked. So it is asked last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feddbn.core.alone import N_PARTS, Verdict, compared
from feddbn.core.arrays import FloatArray, IntArray
from feddbn.core.constraints import EdgeConstraints, has_cycle
from feddbn.core.designs.recordings import SiteData
from feddbn.core.penalised.pooled import PenalisedLearner
from feddbn.core.statistics.diagnostics import SCALES
from feddbn.errors import NotEnoughSites, SiteRefused
from feddbn.federation.programs.residual_checks import FittedNetwork
from feddbn.federation.protocol.rows import RowsQuestion, treated
from feddbn.federation.protocol.site import Here, SiteState, answers
from feddbn.federation.protocol.task import (
    Federation,
    Plan,
    Planned,
    ServerProgram,
    Sum,
    Task,
    View,
    array,
    choice,
    fewest_sites,
    number,
    numbers,
    wholes,
)
from feddbn.federation.sums.gram import moments_of_parts
from feddbn.federation.sums.treatment import whole_moments

TASK = "loss.alone"
MOST_HERE = 200
"""Sites times variables in one process: with more of them a comparison takes longer than the fit."""
_KEPT = "alone.verdict"


@dataclass(frozen=True)
class Alone:
    """For how many sites the network of all is better than their own, equal, or worse; zeros: they did not say.

    `sites` has what each of them found, where all of them are in this process; `is_refused` that not all answered.
    """

    better: int
    equal: int
    worse: int
    sites: Mapping[str, Verdict] = field(default_factory=dict)
    is_refused: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        counts = {"better": self.better, "equal": self.equal, "worse": self.worse}
        if not self.sites:
            return counts
        return {**counts, "sites": {name: verdict.to_dict() for name, verdict in self.sites.items()}}


@dataclass(frozen=True, kw_only=True)
class AloneQuestion(RowsQuestion):
    """Which of two networks predicts a site's rows better: this one, or one learned from the site's rows alone.

    `allowed` are the edges that may be there, `n_total` the rows that the network was learned from, `silent` variables that
    nobody predicts. A site finds its own edges by these `penalties` and thresholds (lambda_w, lambda_a, w_threshold,
    a_threshold) of variables in these units (`scale`), or without any by BIC.
    """

    name = TASK
    purpose = (
        "whether the network of all sites predicts this site's rows better than a network of its own, equally well or worse: "
        "one of these three"
    )

    weights: FloatArray = array("q", "d")
    intercept: FloatArray = array("d")
    allowed: FloatArray = array("q", "d")
    n_total: float = number(1.0)
    silent: tuple[int, ...] = wholes(0, 1_000_000, default=())
    penalties: tuple[float, ...] = numbers(0.0, default=())
    scale: str = choice(*SCALES, default="none")

    def check(self) -> None:
        """The network has an order."""
        super().check()
        if has_cycle(self.weights[: self.d] != 0):
            raise self.wrong("'weights' have a cycle within a row")
        if max(self.silent, default=0) >= self.d:
            raise self.wrong(f"'silent' is {self.silent}, but there are {self.d} variables")
        if len(self.penalties) not in (0, 4):
            raise self.wrong("'penalties' are four numbers, or none")

    @property
    def learner(self) -> PenalisedLearner | None:
        """How a site finds its own edges; None: by BIC."""
        if not self.penalties:
            return None
        center = "recording" if self.center == "recording" else "auto"
        lambda_w, lambda_a, w_threshold, a_threshold = self.penalties
        return PenalisedLearner(
            lambda_w,
            lambda_a,
            center,
            self.scale,
            self.silent,
            w_threshold=w_threshold,
            a_threshold=a_threshold,
        )

    @property
    def n_columns(self) -> int:
        """A verdict is no product of columns."""
        return 0

    def block_of(self, times: IntArray, labels: NDArray[np.generic] | None) -> IntArray:
        """The part that a row is dealt to."""
        return np.asarray(labels, dtype=np.int64)

    def in_view(self, data: SiteData, site: str) -> tuple[View, ...]:
        """The rows of every other sum; few of them do not show in one of three words."""
        return tuple(replace(view, is_rounded=True) for view in super().in_view(data, site))


def alone_plan() -> Plan:
    """One question, three numbers."""
    return (Planned(TASK, 3),)


def is_compared(federation: Federation) -> bool:
    """Whether sites are asked: there are several, they answer it, and it takes no longer than a fit does."""
    n, tasks = len(federation.sites), federation.answered_tasks
    is_here = fewest_sites(federation) is None
    # What is fitted to earlier rows only is compared on the others anyway.
    is_part = getattr(federation, "fold", None) is not None
    is_long = is_here and n * len(federation.variables) > MOST_HERE
    return n > 1 and (tasks is None or TASK in tasks) and not is_part and not is_long


def alone_program(
    network: FittedNetwork, intercept: FloatArray, n_total: float, **learner: Any
) -> ServerProgram[Alone]:
    """Ask every site; where one refuses, nobody is counted. `learner` has the question's `penalties` and `scale`, if any."""
    question = AloneQuestion(
        n_lags=network.n_lags,
        variables=network.variables,
        center=network.center,
        silent=network.inputs,
        weights=network.weights,
        intercept=intercept,
        allowed=network.constraints.allowed[: len(network.weights)].astype(np.float64),
        n_total=max(n_total, 1.0),
        **learner,
    )
    try:
        answer = yield from treated(_asked(question), network.treatment)
    except (SiteRefused, NotEnoughSites):
        return Alone(0, 0, 0, is_refused=True)
    better, equal, worse = (round(float(count)) for count in answer.value)
    return Alone(better, equal, worse)


def _asked(question: AloneQuestion) -> ServerProgram[Sum]:
    return (yield Task(question))


def verdict_of(state: Mapping[str, np.ndarray]) -> Verdict | None:
    """What a site with this state has found; None if it was not asked."""
    return Verdict.from_array(state[_KEPT]) if _KEPT in state else None


@answers(AloneQuestion)
def _compare(here: Here, question: AloneQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    if question.abstains(here.state):
        return here.state, np.zeros(3)
    allowed = question.allowed != 0
    parts, worth = moments_of_parts(here.data, question, N_PARTS)
    rank = sum(1 for _ in here.data.recordings()) * question.nuisance.n_columns
    verdict = compared(
        parts,
        worth,
        question.weights,
        None if question.center == "recording" else question.intercept,
        EdgeConstraints(allowed, np.zeros_like(allowed)),
        question.n_total,
        question.silent,
        question.learner,
        lambda moments: whole_moments(question, moments, question.d, rank),
    )
    counts = np.zeros(3)
    counts[1 - verdict.sign] = float(verdict.is_told)
    return {**here.state, _KEPT: verdict.to_array()}, counts
