"""PFDBNL over sums: [fdbnl] Algorithm 2 as a server program.

What leaves a site in a round is said in `site`; the state machine that this program drives is
`core.pfdbnl.server.PersonalRun`.

A site may be away for some rounds, or for good, or join late. With every question the server says which answer of each site
was the last to count. If one got lost, its part is in the next change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.graphs.constraints import EdgeConstraints, has_cycle
from feddbn.core.graphs.pruning import break_cycles, threshold
from feddbn.core.orders.search import search_order
from feddbn.core.pfdbnl.server import PersonalOptions, PersonalRun
from feddbn.core.pfdbnl.step import PersonalRound
from feddbn.core.statistics.moments import Moments
from feddbn.errors import ParameterError
from feddbn.federation.programs.fdbnl import ConsensusSettings, check_summary, prepared_program, run_options
from feddbn.federation.programs.pfdbnl.clusters import cluster_program
from feddbn.federation.programs.pfdbnl.entry_moments import entry_moments_program
from feddbn.federation.programs.pfdbnl.questions import AVERAGES, FinishQuestion, StepQuestion
from feddbn.federation.programs.statistics import Preparation, ScaleChoice
from feddbn.federation.programs.treatment import AskedMoments
from feddbn.federation.protocol.rows import treated
from feddbn.federation.protocol.task import ServerProgram, Task

__all__ = ["PersonalFit", "PersonalSettings", "personal_program", "sample_sites"]

ALPHAS = ("site", "shared")
_COMMON = (
    "n_lags",
    "weighting",
    "mu",
    "lambda_w",
    "lambda_a",
    "w_threshold",
    "a_threshold",
    "acyclicity",
    "average",
    "is_proven",
)
_RULES = tuple(item.name for item in fields(PersonalRound) if item.name != "mu")


@dataclass(frozen=True)
class PersonalSettings(ConsensusSettings):
    """What the user chose; see `feddbn.PFDBNL`."""

    schedule: str = "rounds"
    mu: float = 0.5
    participation: float | int = 1.0
    n_clusters: int = 1
    alpha: str = "site"
    average: str = "running"
    is_proven: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.mu, (bool, str)) or not self.mu > 0:
            raise ParameterError(
                f"mu={self.mu!r} must be positive (infinity gives one graph for all), or 'auto'."
            )
        if self.alpha not in ALPHAS:
            raise ParameterError(f"alpha={self.alpha!r} is not known; choose 'site' or 'shared'.")
        if self.average not in AVERAGES:
            raise ParameterError(
                f"average={self.average!r} is not known; choose 'running' or 'participants'."
            )
        if np.isinf(self.mu) and self.schedule == "paper":
            raise ParameterError("mu=inf needs schedule='rounds'; the paper's alternation cannot move then.")
        n_participants(self.participation, 1)
        if isinstance(self.n_clusters, bool) or not isinstance(self.n_clusters, int) or self.n_clusters < 1:
            raise ParameterError(
                f"n_clusters={self.n_clusters!r} must be a whole number of at least 1, or 'auto'."
            )
        if self.average == "participants" and self.n_clusters > 1:
            raise ParameterError(
                "average='participants' is the paper's rule for one model; use 'running' with n_clusters."
            )


def n_participants(participation: float | int, n_sites: int) -> int:
    """Return how many of `n_sites` take part in a round: a share in (0, 1], or a whole number."""
    value = participation
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if is_whole and value >= 1:
        return min(int(value), n_sites)
    if isinstance(value, (float, np.floating)) and 0.0 < value <= 1.0:
        return max(1, round(float(value) * n_sites))
    raise ParameterError(
        f"participation={value!r} must be a share in (0, 1] (as 0.5) or a whole number of sites (as 3)."
    )


def sample_sites(sites: tuple[str, ...], n: int, rng: np.random.Generator) -> tuple[str, ...]:
    """Return n of the sites, uniformly, sorted."""
    return tuple(sorted(sites[i] for i in rng.choice(len(sites), size=n, replace=False)))


@dataclass(frozen=True)
class PersonalFit:
    """A finished run: the shared weights (and those of each cluster), how it went, and which sites never took part."""

    run: PersonalRun
    preparation: Preparation
    shared: FloatArray
    clusters: FloatArray
    objective: float
    target_loss: FloatArray
    never_joined: tuple[str, ...]
    asked: AskedMoments | None = None
    scale: ScaleChoice | None = None


def personal_options(
    settings: PersonalSettings, preparation: Preparation, constraints: EdgeConstraints
) -> PersonalOptions:
    """Return the options of the core solver."""
    schedule = settings.make_schedule(1, 1.0)
    if schedule.is_adaptive and settings.rho2 is None:
        # A site's loss has a curvature of about 2 D, its pull one of 2 mu.
        schedule = replace(schedule, rho2=2.0)
    return PersonalOptions(
        **vars(run_options(settings, preparation, constraints, schedule)),
        mu=float(settings.mu),
        is_alpha_shared=settings.alpha == "shared",
        is_running=settings.average == "running",
    )


def personal_program(
    settings: PersonalSettings,
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    sites: tuple[str, ...],
    rng: np.random.Generator,
    *,
    run_number: int = 0,
    site_lags: Mapping[str, int] | None = None,
    is_partial: bool = False,
) -> ServerProgram[PersonalFit]:
    """Yield the tasks of one PFDBNL run; the result is a `PersonalFit`.

    `site_lags` has the lags of sites that use fewer. `is_partial`: some sites measure only some of the variables.
    """
    d = len(variables)
    center = "recording" if settings.center == "recording" else "none"
    if is_partial and settings.n_clusters > 1:
        raise ParameterError(
            "n_clusters cannot be combined with sites that hold different variables or lags."
        )
    lags = {name: (site_lags or {}).get(name, settings.n_lags) for name in sites}
    common: dict[str, Any] = {
        **{name: getattr(settings, name) for name in _COMMON},
        # The paper's schedule has its own path.
        "optimum": settings.optimum if settings.schedule != "paper" else "path",
        "variables": variables,
        "center": center,
        "sites": sites,
        "lags": tuple(lags.values()),
        "n_slots": settings.n_clusters,
    }
    if not is_partial:
        prepared = yield from prepared_program(settings, variables, len(sites), one_network=False)
        setup = _Setup(settings, constraints, prepared.preparation, {**common, "center": prepared.center})
        fit = yield from treated(_fit_program(setup, rng, run_number), prepared.preparation.treatment)
        return replace(fit, preparation=prepared.reported, asked=prepared.asked, scale=prepared.scale)
    preparation, fill, scale = yield from entry_moments_program(
        variables, sites, lags, settings.center, settings.scale, settings.wishes.input_places(variables)
    )
    check_summary(variables, preparation)
    setup = _Setup(settings, constraints, preparation, {**common, "fill": fill})
    if settings.schedule == "paper" or not has_cycle(constraints.allowed[:d]):
        fit = yield from _fit_program(setup, rng, run_number)
        return replace(fit, scale=scale)
    # Completed moments are noisier, and the path to acyclicity ends in worse orders. The server holds the summed
    # moments anyway: an order searched on them is a second start, and the objective decides. Runs in a given order
    # are convex and quick; the last run is the one that sites keep.
    n = preparation.summary.n
    moments = Moments(n, np.zeros(len(fill)), n * fill)
    found = search_order(moments, d, settings.n_lags, constraints)
    ordered = replace(setup, constraints=constraints.within_order(found.order))
    first = yield from _fit_program(ordered, rng, 3 * run_number)
    free = yield from _fit_program(setup, rng, 3 * run_number + 1)
    if free.objective > first.objective:
        free = yield from _fit_program(ordered, rng, 3 * run_number + 2)
    return replace(free, scale=scale)


@dataclass(frozen=True)
class _Setup:
    """What one run needs: the problem, and what every question of it carries."""

    settings: PersonalSettings
    constraints: EdgeConstraints
    preparation: Preparation
    common: Mapping[str, Any]


def _fit_program(setup: _Setup, rng: np.random.Generator, run_number: int) -> ServerProgram[PersonalFit]:
    """Yield the rounds of one run and its end."""
    settings, constraints, preparation = setup.settings, setup.constraints, setup.preparation
    options = personal_options(settings, preparation, constraints)
    sites: tuple[str, ...] = setup.common["sites"]
    run = PersonalRun(options, len(sites), settings.n_clusters)
    counted = dict.fromkeys(sites, -1)
    n = n_participants(settings.participation, len(sites))
    common: dict[str, Any] = {
        **setup.common,
        "run": run_number,
        "mean_rows": preparation.summary.n / len(sites),
        "origin": preparation.center,
        "scale": preparation.scale,
        "metric": options.metric,
    }
    if not constraints.is_free:
        common |= {"allowed": constraints.allowed, "required": constraints.required}
    if settings.n_clusters > 1:
        yield from cluster_program(common, rng)
    while not run.is_done:
        # Sites that the runtime cannot reach are missing from the answer, and simply have not taken part.
        asked = sample_sites(sites, n, rng) if n < len(sites) else sites
        rules = run.rules()
        question = StepQuestion(
            **common,
            **{name: getattr(rules, name) for name in _RULES},
            round=run.round,
            stage=run.stage.value,
            serial=run.serial,
            counted=tuple(counted.values()),
            C=run.C,
        )
        answer = yield Task(question, asked, run.note)
        counted |= dict.fromkeys(answer.contributors, run.round)
        run.advance(answer.value, len(answer.contributors))
    return (yield from _finish(setup, run, common, counted))


def _finish(
    setup: _Setup, run: PersonalRun, common: Mapping[str, Any], counted: Mapping[str, int]
) -> ServerProgram[PersonalFit]:
    settings, constraints = setup.settings, setup.constraints
    d = constraints.d

    def graph(C: FloatArray) -> FloatArray:
        C = threshold(C, constraints.required, settings.w_threshold, settings.a_threshold)
        C[:d], _ = break_cycles(C[:d], constraints.required[:d])
        return C

    shared = graph(run.shared)
    answer = yield Task(
        FinishQuestion(
            **common, counted=tuple(counted.values()), refit=settings.refit, C=run.C, shared=shared
        )
    )
    target_loss = answer.value[2:] / answer.value[1]
    never = tuple(name for name, last in counted.items() if last < 0)
    clusters = np.array([graph(C) for C in run.C])
    return PersonalFit(run, setup.preparation, shared, clusters, float(answer.value[0]), target_loss, never)
