"""PFDBNL over sums: [fdbnl] Algorithm 2 as site tasks and a server program.

What leaves a site in a round: the change of ``T_k + U_k / kappa2`` since its last counted answer, four residual
norms, h(W_k), its objective, its gain by the second start and whether it is new; always added up with the other
participants. A personal graph, an order or a support never leaves; `personal_arrays` reads them from the site's own
state.

A site may be away for any number of rounds, for good, or join late. The server says in every broadcast which round's
answer of which site was the last to count, so an answer lost on the way is simply part of the next change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.fdbnl.dynotears import penalty_matrix
from feddbn.core.fdbnl.schedules import make_schedule
from feddbn.core.graphs.acyclicity import get_acyclicity
from feddbn.core.graphs.constraints import EdgeConstraints, has_cycle
from feddbn.core.graphs.pruning import break_cycles, threshold
from feddbn.core.orders.search import search_order
from feddbn.core.pfdbnl.server import PersonalOptions, PersonalRun
from feddbn.core.pfdbnl.step import objective_given
from feddbn.core.statistics.moments import Moments
from feddbn.errors import ParameterError
from feddbn.federation.programs.entry_moments import entry_moments_program
from feddbn.federation.programs.fdbnl import ConsensusSettings, check_summary
from feddbn.federation.programs.pfdbnl.asked import Asked, remember
from feddbn.federation.programs.pfdbnl.clusters import cluster_program
from feddbn.federation.programs.pfdbnl.state import pack
from feddbn.federation.programs.statistics import Preparation, prepare, summary_program
from feddbn.federation.protocol.site import SiteData, SiteState, SiteTask, register_site_task
from feddbn.federation.protocol.study import register_personal_result
from feddbn.federation.protocol.task import Param, ServerProgram, Task

__all__ = ["PersonalFit", "PersonalSettings", "personal_arrays", "personal_program", "sample_sites"]

ALPHAS = ("site", "shared")
AVERAGES = ("running", "participants")


@dataclass(frozen=True)
class PersonalSettings(ConsensusSettings):
    """What the user chose; see `feddbn.PFDBNL`."""

    mu: float = 0.5
    participation: float | int = 1.0
    n_clusters: int = 1
    alpha: str = "site"
    average: str = "running"

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
            raise ParameterError(
                "mu=inf needs schedule='adaptive'; the paper's alternation cannot move then."
            )
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


def personal_options(
    settings: PersonalSettings, preparation: Preparation, constraints: EdgeConstraints
) -> PersonalOptions:
    """Return the options of the core solver."""
    schedule = make_schedule(
        settings.schedule,
        1,
        1.0,
        rho1=settings.rho1,
        rho2=settings.rho2,
        phi1=settings.phi1,
        phi2=settings.phi2,
    )
    metric = preparation.metric if schedule.is_adaptive else np.ones(len(constraints.allowed))
    if schedule.is_adaptive and settings.rho2 is None:
        # A site's loss has a curvature of about 2 D, its pull one of 2 mu.
        schedule = replace(schedule, rho2=2.0)
    return PersonalOptions(
        mu=float(settings.mu),
        penalty=penalty_matrix(constraints, settings.lambda_w, settings.lambda_a),
        metric=metric,
        constraints=constraints,
        schedule=schedule,
        h_tol=settings.h_tol,
        tol=settings.tol,
        max_rounds=settings.max_rounds,
        w_threshold=settings.w_threshold,
        a_threshold=settings.a_threshold,
        refit=settings.refit,
        is_alpha_shared=settings.alpha == "shared",
        is_running=settings.average == "running",
        acyclicity=get_acyclicity(settings.acyclicity),
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

    `site_lags` gives some sites fewer lags; `is_partial` says that some sites hold only some of the variables.
    """
    d = len(variables)
    center = "recording" if settings.center == "recording" else "none"
    if is_partial and settings.n_clusters > 1:
        raise ParameterError(
            "n_clusters cannot be combined with sites that hold different variables or lags."
        )
    lags = {name: (site_lags or {}).get(name, settings.n_lags) for name in sites}
    constant: dict[str, Param] = {
        "n_lags": settings.n_lags,
        "variables": variables,
        "center": center,
        "weighting": settings.weighting,
        "mu": float(settings.mu),
        "lambda_w": settings.lambda_w,
        "lambda_a": settings.lambda_a,
        "w_threshold": settings.w_threshold,
        "a_threshold": settings.a_threshold,
        "acyclicity": settings.acyclicity,
        "average": settings.average,
        "names": sites,
        "lags": tuple(lags[name] for name in sites),
        "n_slots": settings.n_clusters,
    }
    if not is_partial:
        summary = yield from summary_program(variables, settings.n_lags, center)
        preparation = prepare(summary, d, settings.center, settings.scale)
        check_summary(variables, preparation)
        setup = _Setup(settings, constraints, preparation, sites, {}, constant)
        return (yield from _fit_program(setup, rng, run_number))
    preparation, fill = yield from entry_moments_program(
        variables, sites, lags, settings.center, settings.scale
    )
    check_summary(variables, preparation)
    setup = _Setup(settings, constraints, preparation, sites, {"fill": fill}, constant)
    if settings.schedule != "adaptive" or not has_cycle(constraints.allowed[:d]):
        return (yield from _fit_program(setup, rng, run_number))
    # Completed moments are noisier, and the path to acyclicity ends in worse orders. The server holds the summed
    # moments anyway: an order searched on them is a second start, and the objective decides. Runs in a given order
    # are convex and quick; the last run is the one that sites keep.
    n = preparation.summary.n
    moments = Moments(n, np.zeros(len(fill)), n * fill)
    found = search_order(moments, d, settings.n_lags, constraints)
    ordered = replace(setup, constraints=constraints.within_order(found.order))
    first = yield from _fit_program(ordered, rng, 3 * run_number)
    free = yield from _fit_program(setup, rng, 3 * run_number + 1)
    if free.objective <= first.objective:
        return free
    return (yield from _fit_program(ordered, rng, 3 * run_number + 2))


@dataclass(frozen=True)
class _Setup:
    """What one run needs: the problem, the sites, and what every task of it carries."""

    settings: PersonalSettings
    constraints: EdgeConstraints
    preparation: Preparation
    sites: tuple[str, ...]
    arrays: Mapping[str, FloatArray]
    params: Mapping[str, Param]


def _fit_program(setup: _Setup, rng: np.random.Generator, run_number: int) -> ServerProgram[PersonalFit]:
    """Yield the rounds of one run and its end."""
    settings, constraints, preparation, sites = (
        setup.settings,
        setup.constraints,
        setup.preparation,
        setup.sites,
    )
    options = personal_options(settings, preparation, constraints)
    run = PersonalRun(options, len(sites), settings.n_clusters)
    counted = dict.fromkeys(sites, -1)
    n = n_participants(settings.participation, len(sites))
    arrays = {
        **setup.arrays,
        "center": preparation.center,
        "scale": preparation.scale,
        "metric": options.metric,
    }
    if (
        not (constraints.allowed == EdgeConstraints.none(constraints.d, settings.n_lags).allowed).all()
        or constraints.required.any()
    ):
        arrays |= {
            "allowed": constraints.allowed.astype(float),
            "required": constraints.required.astype(float),
        }
    constant: dict[str, Param] = {
        **setup.params,
        "mean_rows": preparation.summary.n / len(sites),
        "run": run_number,
    }
    if settings.n_clusters > 1:
        yield from cluster_program(arrays, constant, rng)
    while not run.is_done:
        # Sites that the runtime cannot reach are missing from the answer, and simply have not taken part.
        asked = sample_sites(sites, n, rng) if n < len(sites) else sites
        rules = run.rules()
        stage: dict[str, Param] = {
            **constant,
            "round": run.round,
            "stage": run.stage.value,
            "serial": run.serial,
            "counted": tuple(counted[name] for name in sites),
            **{key: value for key, value in vars(rules).items() if key != "mu"},
        }
        answer = yield Task(
            "personal-step", {**arrays, "C": run.C}, stage, participants=asked, note=_progress(run)
        )
        for name in answer.contributors:
            counted[name] = run.round
        run.advance(answer.value, len(answer.contributors))
    return (
        yield from _finish(settings, run, preparation, constraints, {**arrays, "C": run.C}, stage, counted)
    )


def _finish(
    settings: PersonalSettings,
    run: PersonalRun,
    preparation: Preparation,
    constraints: EdgeConstraints,
    arrays: dict[str, FloatArray],
    params: dict[str, Param],
    counted: dict[str, int],
) -> ServerProgram[PersonalFit]:
    d = constraints.d

    def graph(C: FloatArray) -> FloatArray:
        C = threshold(C, constraints.required, settings.w_threshold, settings.a_threshold)
        C[:d], _ = break_cycles(C[:d], constraints.required[:d])
        return C

    shared = graph(run.shared)
    finish = {**params, "counted": tuple(counted.values()), "refit": settings.refit}
    answer = yield Task("personal-finish", {**arrays, "shared": shared}, finish)
    target_loss = answer.value[2:] / answer.value[1]
    never = tuple(name for name, last in counted.items() if last < 0)
    clusters = np.array([graph(C) for C in run.C])
    return PersonalFit(run, preparation, shared, clusters, float(answer.value[0]), target_loss, never)


def _progress(run: PersonalRun) -> dict[str, float]:
    note = {"round": float(run.round), "max_rounds": float(run.options.max_rounds)}
    if run.history:
        last = run.history[-1]
        note |= {"h": last.h, "primal": last.primal, "dual": last.dual, "objective": last.objective}
    return note


def _run_step(data: SiteData, state: SiteState, task: Task) -> tuple[SiteState, FloatArray]:
    asked = Asked.of(task)
    state, memory = remember(data, state, task, asked)
    state, memory = asked.entered(state, memory)
    rules, acyclicity = asked.rules(), get_acyclicity(str(task.params["acyclicity"]))
    L, C = asked.penalty(), asked.centre(memory.slot)
    member, norms = memory.site.member.step(
        memory.problem, memory.weight, L, memory.site.allowed, C, rules, acyclicity
    )
    offered = member.T + member.U / (rules.rho2 * rules.agreement(memory.problem.metric))
    change = offered - memory.sent if task.params["average"] == "running" else offered
    whole = np.zeros((asked.n_slots, *change.shape))
    whole[memory.slot] = change
    objective = objective_given(memory.problem, rules.mu, C, memory.weight * L, member.C)
    memory = replace(
        memory,
        site=replace(memory.site, member=member),
        offered=offered,
        offered_round=int(asked.number("round")),
    )
    numbers = [member.h, objective, memory.site.gain(asked.stage, objective)]
    vector = np.concatenate([whole.ravel(), norms, numbers, asked.new_member(memory.slot)])
    return pack(state, memory), vector


def _run_finish(data: SiteData, state: SiteState, task: Task) -> tuple[SiteState, FloatArray]:
    """Close the run at the site: its personal graph in its own state; what leaves is about the shared one."""
    asked = Asked.of(task)
    state, memory = remember(data, state, task, asked)
    shared = task.arrays["shared"]
    mu, L = asked.number("mu"), memory.weight * asked.L
    limits = (asked.number("w_threshold"), asked.number("a_threshold"))
    has_joined = asked.counted >= 0
    C = asked.centre(memory.slot)
    if has_joined:
        final, raw, objective = memory.site.finished(
            memory.problem, L, asked.constraints, mu, C, limits, bool(task.params["refit"])
        )
    else:
        # A site that never took part has nothing of its own: it gets the consensus model.
        final, raw, objective = shared, C, 0.0
    # The problem carries the weight; n / weight turns it into a sum over the site's rows.
    rows = memory.n / memory.weight
    losses = rows * memory.problem.target_loss(shared)
    new = {
        **pack(state, memory),
        "personal.final": final,
        "personal.final_raw": raw,
        "personal.final_loss": memory.problem.target_loss(final) / memory.weight,
        "personal.has_joined": np.array(float(has_joined)),
        "personal.columns": asked.columns(data.variables),
    }
    return new, np.concatenate([[objective, memory.n], losses])


def personal_arrays(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a site's own result from its own state: C (q, d), C_raw, target_loss (d,), has_joined, and `columns`: the
    positions of the variables it holds.
    """
    names = {"C": "final", "C_raw": "final_raw", "target_loss": "final_loss"}
    names |= {name: name for name in ("has_joined", "columns")}
    return {name: state["personal." + key] for name, key in names.items() if "personal." + key in state}


register_site_task(
    SiteTask(
        "personal-step", _run_step, "one round of PFDBNL: change of the auxiliary weights", needs_name=True
    )
)
register_site_task(
    SiteTask("personal-finish", _run_finish, "end of PFDBNL: loss of the shared network", needs_name=True)
)
register_personal_result("pfdbnl", lambda state, result: personal_arrays(state))
