"""Moments under differential privacy: choose a clipping bound, pay for it, ask for the sums, admit the noise.

A server program of two sums. The first is a noisy histogram of the units' norms, from which the bound is
chosen; the second the clipped and noisy sums themselves. A low quantile is the right choice: halving the
bound halves the noise, while shortening a recording's Gram matrix keeps its directions. For curved effects it
is run again, about the curved rows in the units that the first two sums told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

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
from feddbn.federation.sums.lags import LagsQuestion, noise_weights
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

_OWN = ("of", "unit", "norm")
_NORMS: Mapping[str, Literal["flat", "gram"]] = {
    "gram.rows": "gram",
    "gram.functions": "gram",
    "gram.lags": "flat",
}
"""By which norm the vectors of units are bounded."""
_BY_NOISE = 4.0
"""Counts of pairs up to so many standard deviations of their noise may be noise."""


@dataclass(frozen=True, kw_only=True)
class UnitNormsQuestion(Question):
    """How large the units' vectors in the answers to another question are.

    It travels as the other question with three parameters more: that one's name, the unit, and which norm is meant.
    """

    name = "counts.norms"
    purpose = "how large the vectors of single units are, in coarse bins"

    unit: str = choice("recording", "row")
    of: Question = field(metadata={"read": lambda name, value: value, "is_array": False, "axes": ()})
    norm: str = choice("flat", "gram", default="flat")

    def check_scope(self, scope: Scope) -> None:
        """A histogram shows single units, so it leaves with noise only, for the unit that the noise protects."""
        scope.require(
            scope.unit is not None, self.name, "norms of units are told only with noise", "no-noise"
        )
        scope.require(
            self.unit == scope.unit, self.name, f"the noise protects each {scope.unit}", "other-unit"
        )
        is_usual = (self.of.name, self.norm) in _NORMS.items()
        scope.require(is_usual, self.name, "it is about norms of moments", "other-norm")
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
    def feature_maps(self) -> tuple[str, ...]:
        """The other question's."""
        return self.of.feature_maps

    @property
    def params(self) -> dict[str, Param]:
        """The other question's, its name and the norm."""
        return {**self.of.params, "of": self.of.name, "unit": self.unit, "norm": self.norm}

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
        own = {key: params[key] for key in ("unit", "norm") if key in params}
        return cls(**{"unit": None, **own}, of=inner)


def _indicators(here: Here, question: UnitNormsQuestion, unit: str) -> Iterator[FloatArray]:
    units, edges = site_task(question.of.name).units, norm_edges()
    if units is None:
        raise question.wrong(f"task {question.of.name!r} cannot be split by unit, so its units have no norms")
    rule = ClipRule(1.0, norm="gram" if question.norm == "gram" else "flat")
    for vector in units(here, question.of, unit):
        yield from norm_histogram([vector], edges, rule.weights(len(vector)))


@answers(UnitNormsQuestion, _indicators, lambda question: len(norm_edges()))
def _answer(here: Here, question: UnitNormsQuestion) -> tuple[SiteState, FloatArray]:
    total = np.zeros(len(norm_edges()))
    for indicator in _indicators(here, question, question.unit):
        total += indicator
    return here.state, total


CURVES_SHARE = 0.8
"""Share of what bounds and scales leave that goes into the sum of curved rows; the rest tells their origin and scale."""


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
    curves_share: float = 0.0,
) -> NoisePlan:
    """Return the plan every site of the run uses.

    `bound_share` of the budget (in mu^2) pays for choosing bounds where none is given, `curves_share` of what
    that leaves for the sum of curved rows; 0: there is none. A bound for curved rows is always chosen: they are in units that
    nobody knows before.
    """
    number(above=0, below=1).check("bound_share", bound_share)
    number(0, below=1).check("curves_share", curves_share)
    n_bounds = (clip_bound is None) + (curves_share > 0)
    rules, left = {}, 1.0
    if n_bounds:
        # In a histogram a unit counts 1.
        factor = (bound_share / n_bounds) ** -0.5
        rules["counts.norms"] = ClipRule(1.0, noise_factor=factor, is_count=True, n_answers=n_bounds)
        left -= bound_share
    rules[task] = ClipRule(
        clip_bound, _NORMS.get(task, "gram"), noise_factor=(left * (1 - curves_share)) ** -0.5
    )
    if curves_share:
        rules["gram.functions"] = ClipRule(None, "gram", noise_factor=(left * curves_share) ** -0.5)
    # Gaussian releases compose by adding 1 / multiplier^2, so all of them together cost epsilon and no more.
    n_answers = sum(rule.n_answers for rule in rules.values())
    multiplier = multiplier_for(epsilon - (n_answers - 1) * SLACK, delta)
    return NoisePlan(unit, multiplier, rules, n_colluding)


def study_noise_plan(study: Study) -> NoisePlan:
    """Return the plan that a study with noise prescribes: the same at every site and at the server."""
    privacy = study.privacy
    if privacy.epsilon is None:
        raise ParameterError("privacy.epsilon: this study promises no noise, so it has no noise plan.")
    return private_moments_plan(
        "gram.lags" if study.method == "continuous" else "gram.rows",
        privacy.unit,
        privacy.epsilon,
        privacy.delta,
        privacy.clip,
        privacy.n_colluding,
        curves_share=CURVES_SHARE if study.has_curves else 0.0,
    )


def study_costs(study: Study) -> dict[str, float]:
    """Return the epsilon of each task that a study with noise asks for, by itself; together they cost what it promises."""
    plan, delta = study_noise_plan(study), study.privacy.delta
    counts = {task: rule.n_answers for task, rule in plan.rules.items()}
    return {
        task: gaussian_epsilon(delta, plan.multiplier_of(task) / n**0.5) + n * SLACK
        for task, n in counts.items()
    }


def guaranteed_sites(study: Study) -> int:
    """Return how many sites are sure to be in any sum of a study, and so share its noise; 1 without masks.

    It is the threshold of secure aggregation over the sites the study names, not over those that happen to
    answer: every sum of the study then carries noise that the server can compute, also after a restart.
    """
    if not study.privacy.secure_aggregation:
        return 1
    return usual_threshold(len(study.sites), study.privacy.min_sites)


@dataclass(frozen=True)
class PrivateLags:
    """The result for pairs of readings: an answer whose counts admit the noise, the bound and the noise in each number."""

    value: FloatArray
    clip_bound: float
    sigma: float


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
    value, bound, sigma = yield from _noisy_sum(task, plan, n_guaranteed, quantile)
    noisy = moments_of_noisy_sums(value, columns_of(len(value)), sigma)
    return PrivateMoments(noisy, bound, sigma)


def private_lags(
    task: Task, plan: NoisePlan, n_guaranteed: int, quantile: float = 0.2
) -> ServerProgram[PrivateLags]:
    """The same for products of readings by the time between them.

    In public units products and counts are of one size, and a mean of products over n pairs has the noise of both sums, 2
    sigma^2 / n^2, beside a sampling variance of 1 / n. So it counts as n / (1 + 2 sigma^2 / n) pairs, and where noise alone
    may make so many, as none.
    """
    value, bound, sigma = yield from _noisy_sum(task, plan, n_guaranteed, quantile)
    question = task.question
    assert isinstance(question, LagsQuestion)
    shape, d, weights = question.lag_design.shape, question.d, noise_weights(question.lag_design)
    counts, noise = (one[: shape[0] * d * d].reshape(shape) for one in (value / weights, sigma / weights))
    seen = counts > _BY_NOISE * noise
    worth = np.where(seen, 1.0 / (1.0 + 2.0 * noise**2 / np.where(seen, counts, 1.0)), 0.0)
    each = np.concatenate([np.tile(worth.ravel(), 3), np.diagonal(worth[0]), np.ones(2)])
    return PrivateLags(each * value, bound, sigma)


def _noisy_sum(
    task: Task, plan: NoisePlan, n_guaranteed: int, quantile: float
) -> ServerProgram[tuple[FloatArray, float, float]]:
    """Choose a bound where none is given, ask for the sum, and say how much noise is in it."""
    rule = plan.rules[task.name]
    bound = rule.bound
    lags = task.question.reach
    if bound is None:
        norms = yield replace(
            task, question=UnitNormsQuestion(of=task.question, unit=plan.unit, norm=rule.norm)
        )
        noise = plan.noise_in_sum("counts.norms", 1.0, lags, len(norms.contributors), n_guaranteed)
        bound = choose_clip(norms.value, norm_edges(), noise, quantile)
    clipped: Any = task.question
    answer = yield replace(task, question=replace(clipped, clip_bound=bound))
    sigma = plan.noise_in_sum(task.name, bound, lags, len(answer.contributors), n_guaranteed)
    return answer.value, bound, sigma
