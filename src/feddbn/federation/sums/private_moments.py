"""Moments under differential privacy: choose a clipping bound, pay for it, ask for the sums, admit the noise.

A server program of two sums. The first is a noisy histogram of the units' norms, from which the bound is
chosen; the second the clipped and noisy sums themselves. A low quantile is the right choice: halving the
bound halves the noise, while shortening a recording's Gram matrix keeps its directions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import SiteData
from feddbn.errors import ParameterError, ProtocolError
from feddbn.federation.protocol.site import Here, SiteState, answers, site_task
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import (
    Constant,
    Param,
    Question,
    Scope,
    ServerProgram,
    Task,
    View,
    choice,
)
from feddbn.privacy.gaussian import SLACK, gaussian_epsilon
from feddbn.privacy.noise_plan import (
    ClipRule,
    NoisePlan,
    NoisyMoments,
    choose_clip,
    columns_of,
    moments_of_noisy_sums,
    multiplier_for,
    norm_edges,
    norm_histogram,
)
from feddbn.privacy.policy import Unit, usual_threshold
from feddbn.settings import number

# A private look at how large the units' vectors are, to choose a clipping bound that is paid for.
#
# The task "counts.norms" sums, over all units, the indicator of the bin their norm falls into. One unit moves it
# by 1, so it is released like any other sum, with noise and an entry in the ledger. The bins are fixed and coarse.

MOMENTS = "gram.rows"
"""The task that noise is added to."""
_OWN = ("of", "unit")


@dataclass(frozen=True, kw_only=True)
class UnitNormsQuestion(Question):
    """How large the units' vectors in the answers to another question are.

    It travels as the other question with two parameters more: that one's name, and the unit.
    """

    name = "counts.norms"
    purpose = "how large the vectors of single units are, in coarse bins"

    unit: str = choice("recording", "row")
    of: Question = field(metadata={"read": lambda name, value: value, "is_array": False, "axes": ()})

    def check_scope(self, scope: Scope) -> None:
        """A histogram shows single units, so it leaves with noise only, for the unit that the noise protects."""
        scope.require(
            scope.unit is not None, self.name, "norms of units are told only with noise", "no-noise"
        )
        scope.require(
            self.unit == scope.unit, self.name, f"the noise protects each {scope.unit}", "other-unit"
        )
        scope.require(self.of.name == MOMENTS, self.name, "it is about norms of moments", "other-norm")
        scope.check_task(self.of.name)
        self.of.check_scope(scope)

    @property
    def constants(self) -> tuple[Constant, ...]:
        """The other question's."""
        return self.of.constants

    def in_view(self, data: SiteData, site: str) -> tuple[View, ...]:
        """The other question's."""
        return self.of.in_view(data, site)

    @property
    def transformations(self) -> tuple[str, ...]:
        """The other question's."""
        return self.of.transformations

    @property
    def params(self) -> dict[str, Param]:
        """The other question's, its name and the unit."""
        return {**self.of.params, "of": self.of.name, "unit": self.unit}

    @property
    def arrays(self) -> dict[str, FloatArray]:
        """The other question's."""
        return self.of.arrays

    @property
    def reach(self) -> int:
        """The other question's."""
        return self.of.reach

    @classmethod
    def read(cls, params: Mapping[str, Any], arrays: Mapping[str, Any]) -> UnitNormsQuestion:
        """Inverse of `params` and `arrays`."""
        rest = {key: value for key, value in params.items() if key not in _OWN}
        if params.get("of") == cls.name:
            raise ProtocolError("task 'counts.norms' cannot be about itself.", code="bad-question")
        inner = site_task(str(params.get("of"))).question.read(rest, arrays)
        unit: Any = params.get("unit")
        return cls(unit=unit, of=inner)


def _indicators(here: Here, question: UnitNormsQuestion, unit: str) -> Iterator[FloatArray]:
    units, edges = site_task(question.of.name).units, norm_edges()
    if units is None:
        raise question.wrong(f"task {question.of.name!r} cannot be split by unit, so its units have no norms")
    rule = ClipRule(1.0, norm="gram")
    for vector in units(here, question.of, unit):
        yield from norm_histogram([vector], edges, rule.weights(len(vector)))


@answers(UnitNormsQuestion, _indicators, lambda question: len(norm_edges()))
def _answer(here: Here, question: UnitNormsQuestion) -> tuple[SiteState, FloatArray]:
    total = np.zeros(len(norm_edges()))
    for indicator in _indicators(here, question, question.unit):
        total += indicator
    return here.state, total


@dataclass(frozen=True)
class PrivateMoments:
    """The result: moments to learn from, the bound that was chosen and the noise in each diagonal entry."""

    noisy: NoisyMoments
    clip_bound: float
    sigma: float


def private_moments_plan(
    task: str,
    unit: Unit,
    epsilon: float,
    delta: float,
    clip_bound: float | None = None,
    n_colluding: int = 0,
    bound_share: float = 0.1,
) -> NoisePlan:
    """Return the plan every site of the run uses; `bound_share` of the budget (in mu^2) pays for a bound if none is given."""
    number(above=0, below=1).check("bound_share", bound_share)
    rules, left = {}, 1.0
    if clip_bound is None:
        # In a histogram a unit counts 1.
        rules["counts.norms"] = ClipRule(1.0, noise_factor=bound_share**-0.5, is_count=True)
        left -= bound_share
    rules[task] = ClipRule(clip_bound, "gram", noise_factor=left**-0.5)
    # Gaussian releases compose by adding 1 / multiplier^2, so all of them together cost epsilon and no more.
    multiplier = multiplier_for(epsilon - (len(rules) - 1) * SLACK, delta)
    return NoisePlan(unit, multiplier, rules, n_colluding)


def study_noise_plan(study: Study) -> NoisePlan:
    """Return the plan that a study with noise prescribes: the same at every site and at the server."""
    privacy = study.privacy
    if privacy.epsilon is None:
        raise ParameterError("privacy.epsilon: this study promises no noise, so it has no noise plan.")
    return private_moments_plan(
        MOMENTS, privacy.unit, privacy.epsilon, privacy.delta, privacy.clip, privacy.n_colluding
    )


def study_costs(study: Study) -> dict[str, float]:
    """Return the epsilon of each task that a study with noise asks for, by itself; together they cost what it promises."""
    plan, delta = study_noise_plan(study), study.privacy.delta
    return {task: gaussian_epsilon(delta, plan.multiplier_of(task)) + SLACK for task in plan.rules}


def guaranteed_sites(study: Study) -> int:
    """Return how many sites are sure to be in any sum of a study, and so share its noise; 1 without masks.

    It is the threshold of secure aggregation over the sites the study names, not over those that happen to
    answer: every sum of the study then carries noise that the server can compute, also after a restart.
    """
    if not study.privacy.secure_aggregation:
        return 1
    return usual_threshold(len(study.sites), study.privacy.min_sites)


def private_moments(
    task: Task, plan: NoisePlan, n_guaranteed: int, quantile: float = 0.2
) -> ServerProgram[PrivateMoments]:
    """Yield the two tasks and return the moments.

    Parameters
    ----------
    task
        The task whose answer is (count, q totals, upper triangle).
    plan
        The plan the sites use.
    n_guaranteed
        Sites that are sure to be in every sum; each adds noise for that many.
    quantile
        Share of the units that stay unclipped.
    """
    rule = plan.rules[task.name]
    bound = rule.bound
    lags = task.question.reach
    if bound is None:
        norms = yield replace(task, question=UnitNormsQuestion(of=task.question, unit=plan.unit))
        noise = plan.noise_in_sum("counts.norms", 1.0, lags, len(norms.contributors), n_guaranteed)
        bound = choose_clip(norms.value, norm_edges(), noise, quantile)
    clipped: Any = task.question
    answer = yield replace(task, question=replace(clipped, clip_bound=bound))
    sigma = plan.noise_in_sum(task.name, bound, lags, len(answer.contributors), n_guaranteed)
    noisy = moments_of_noisy_sums(answer.value, columns_of(len(answer.value)), sigma)
    return PrivateMoments(noisy, bound, sigma)
