"""Moments under differential privacy: choose a clipping bound, pay for it, ask for the sums, admit the noise.

A server program of two sums. The first is a noisy histogram of the units' norms, from which the bound is
chosen; the second the clipped and noisy sums themselves. A low quantile is the right choice: halving the
bound halves the noise, while shortening a recording's Gram matrix keeps its directions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from feddbn.errors import ParameterError
from feddbn.federation.programs.unit_norms import UnitNormsQuestion
from feddbn.federation.protocol.study import Privacy, Study
from feddbn.federation.protocol.task import ServerProgram, Task
from feddbn.privacy.clipping import choose_clip, norm_edges
from feddbn.privacy.gaussian import gaussian_epsilon
from feddbn.privacy.grid import SLACK
from feddbn.privacy.noise_aware import NoisyMoments, moments_of_noisy_sums
from feddbn.privacy.noise_plan import ClipRule, NoisePlan, columns_of, multiplier_for
from feddbn.privacy.policy import Unit
from feddbn.privacy.secagg import usual_threshold

__all__ = [
    "PrivateMoments",
    "guaranteed_sites",
    "private_moments",
    "private_moments_plan",
    "study_costs",
    "study_noise_plan",
]


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
    """Return the plan every site of the run uses; `bound_share` of the budget (in mu^2) pays for choosing
    the bound.
    """
    if not 0 < bound_share < 1:
        raise ParameterError(f"bound_share must lie strictly between 0 and 1, got {bound_share}.")
    if clip_bound is not None:
        return NoisePlan.for_budget(
            unit, epsilon, delta, {task: ClipRule(clip_bound, "gram")}, 1, n_colluding
        )
    # Gaussian releases compose by adding 1 / multiplier^2, so the two together cost epsilon and no more.
    multiplier = multiplier_for(epsilon - SLACK, delta)
    rules = {
        "unit-norms": ClipRule(1.0, noise_factor=bound_share**-0.5, is_count=True),
        task: ClipRule(None, "gram", noise_factor=(1 - bound_share) ** -0.5),
    }
    return NoisePlan(unit, multiplier, rules, n_colluding)


def study_noise_plan(privacy: Privacy) -> NoisePlan:
    """Return the plan that a study with noise prescribes: the same at every site and at the server."""
    if privacy.epsilon is None:
        raise ParameterError("privacy.epsilon: this study promises no noise, so it has no noise plan.")
    return private_moments_plan(
        "moments", privacy.unit, privacy.epsilon, privacy.delta, privacy.clip, privacy.n_colluding
    )


def study_costs(privacy: Privacy) -> dict[str, float]:
    """Return the epsilon of each answer that a study with noise asks for, by itself; together they cost what it promises."""
    plan = study_noise_plan(privacy)
    return {task: gaussian_epsilon(privacy.delta, plan.multiplier_of(task)) + SLACK for task in plan.rules}


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
        spread = plan.sigma("unit-norms", 1.0, True, lags)
        noise = spread * np.sqrt(len(norms.contributors) / plan.n_shares(n_guaranteed))
        bound = choose_clip(norms.value, norm_edges(), float(noise), quantile)
    clipped: Any = task.question
    answer = yield replace(task, question=replace(clipped, clip_bound=bound))
    # Every contributor adds a full share, so more sites than guaranteed make more noise than needed.
    extra = np.sqrt(len(answer.contributors) / plan.n_shares(n_guaranteed))
    sigma = float(plan.sigma(task.name, bound, True, lags) * extra)
    columns = columns_of(len(answer.value)) if q is None else q
    return PrivateMoments(moments_of_noisy_sums(answer.value, columns, sigma), bound, sigma)
