"""Moments under differential privacy: choose a clipping bound, pay for it, ask for the sums, admit the noise.

A server program of two sums. The first is a noisy histogram of the units' norms, from which the bound is
chosen; the second the clipped and noisy sums themselves. A low quantile is the right choice: halving the
bound halves the noise, while shortening a recording's Gram matrix keeps its directions. For curved effects it
is run again, about the curved rows in the units that the first two sums told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from feddbn.errors import ParameterError
from feddbn.federation.programs.curved_moments import CurvedMomentsQuestion
from feddbn.federation.programs.deviation_shares import DeviationSharesQuestion
from feddbn.federation.programs.unit_norms import UnitNormsQuestion
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import ServerProgram, Task
from feddbn.privacy.clipping import choose_clip, norm_edges
from feddbn.privacy.gaussian import gaussian_epsilon
from feddbn.privacy.grid import SLACK
from feddbn.privacy.noise_aware import NoisyMoments, moments_of_noisy_sums
from feddbn.privacy.noise_plan import ClipRule, NoisePlan, columns_of, multiplier_for
from feddbn.privacy.policy import Unit
from feddbn.privacy.secagg import usual_threshold

__all__ = [
    "CURVES_SHARE",
    "SPIKES_SHARE",
    "PrivateMoments",
    "guaranteed_sites",
    "private_moments",
    "private_moments_plan",
    "study_costs",
    "study_noise_plan",
]

SPIKES_SHARE = 0.1
"""Share of the budget that scales cost where far cells are to be left out."""
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
    spikes_share: float = 0.0,
    curves_share: float = 0.0,
) -> NoisePlan:
    """Return the plan every site of the run uses.

    `bound_share` of the budget (in mu^2) pays for choosing bounds where none is given, `spikes_share` for the scales
    beyond which cells are left out, `curves_share` of what these leave for the sum of curved rows; 0: there is none. A bound
    for curved rows is always chosen: they are in units that nobody knows before.
    """
    if not 0 < bound_share < 1:
        raise ParameterError(f"bound_share must lie strictly between 0 and 1, got {bound_share}.")
    if not 0 <= spikes_share < 1 - bound_share:
        raise ParameterError(
            f"spikes_share must be at least 0 and less than 1 - bound_share = {1 - bound_share:g}, got {spikes_share}."
        )
    if not 0 <= curves_share < 1:
        raise ParameterError(f"curves_share must be at least 0 and less than 1, got {curves_share}.")
    if spikes_share and unit != "recording":
        raise ParameterError(
            f"unit={unit!r}: spikes='remove' tells what is far by the rows around it; protect unit='recording', or use "
            "spikes='keep'."
        )
    n_bounds = (clip_bound is None) + (curves_share > 0)
    rules, left = {}, 1.0
    if spikes_share:
        rules[DeviationSharesQuestion.name] = _counting(spikes_share)
        left -= spikes_share
    if n_bounds:
        rules[UnitNormsQuestion.name] = _counting(bound_share, n_bounds)
        left -= bound_share
    rules[task] = ClipRule(clip_bound, "gram", noise_factor=(left * (1 - curves_share)) ** -0.5)
    if curves_share:
        rules[CurvedMomentsQuestion.name] = ClipRule(None, "gram", noise_factor=(left * curves_share) ** -0.5)
    # Gaussian releases compose by adding 1 / multiplier^2, so all of them together cost epsilon and no more.
    n_answers = sum(rule.n_answers for rule in rules.values())
    multiplier = multiplier_for(epsilon - (n_answers - 1) * SLACK, delta)
    return NoisePlan(unit, multiplier, rules, n_colluding)


def _counting(share: float, n_answers: int = 1) -> ClipRule:
    """The rule of histograms in which a unit counts 1, for a share of the budget in all."""
    return ClipRule(1.0, noise_factor=(share / n_answers) ** -0.5, is_count=True, n_answers=n_answers)


def study_noise_plan(study: Study) -> NoisePlan:
    """Return the plan that a study with noise prescribes: the same at every site and at the server."""
    privacy = study.privacy
    if privacy.epsilon is None:
        raise ParameterError("privacy.epsilon: this study promises no noise, so it has no noise plan.")
    return private_moments_plan(
        "moments",
        privacy.unit,
        privacy.epsilon,
        privacy.delta,
        privacy.clip,
        privacy.n_colluding,
        spikes_share=SPIKES_SHARE if study.parameters.get("spikes") == "remove" else 0.0,
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


def private_moments(
    task: Task, q: int | None, plan: NoisePlan, n_guaranteed: int, quantile: float = 0.2
) -> ServerProgram[PrivateMoments]:
    """Yield the two tasks and return the moments.

    Parameters
    ----------
    task
        The task whose answer is (count, q totals, upper triangle).
    q
        Columns; None reads it off the length of the answer.
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
        norms = yield replace(task, question=UnitNormsQuestion(of=task.question, unit=plan.unit, norm="gram"))
        noise = plan.noise_in_sum("unit-norms", 1.0, lags, len(norms.contributors), n_guaranteed)
        bound = choose_clip(norms.value, norm_edges(), noise, quantile)
    clipped: Any = task.question
    answer = yield replace(task, question=replace(clipped, clip_bound=bound))
    sigma = plan.noise_in_sum(task.name, bound, lags, len(answer.contributors), n_guaranteed)
    columns = columns_of(len(answer.value)) if q is None else q
    return PrivateMoments(moments_of_noisy_sums(answer.value, columns, sigma), bound, sigma)
