"""PFDBNL over sums: [fdbnl] Algorithm 2 as site tasks and a server program.

What leaves a site in a round: the change of ``T_k + U_k / (rho2 D)`` since its last counted answer, four residual norms,
h(W_k), its objective and whether it is new; always added up with the other participants. A personal graph, an order or a
support never leaves; `personal_arrays` reads them from the site's own state.

A site may be away for any number of rounds, for good, or join late. The server says in every broadcast which round's
answer of which site was the last to count, so an answer lost on the way is simply part of the next change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.acyclicity import get_acyclicity
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.dynotears import penalty_matrix
from feddbn.core.graph import break_cycles, threshold
from feddbn.core.lagged import FloatArray
from feddbn.core.local_step import LocalProblem
from feddbn.core.personal import PersonalOptions, PersonalRun
from feddbn.core.personal_site import PersonalSite
from feddbn.core.personal_step import (
    PersonalMember,
    PersonalRound,
    PersonalStage,
    objective_given,
    solve_given,
)
from feddbn.core.schedules import make_schedule
from feddbn.errors import ParameterError
from feddbn.federation.admm import ConsensusSettings, check_summary
from feddbn.federation.personal_state import Entries, SiteMemory, pack, unpack
from feddbn.federation.site import SiteData, SiteState, SiteTask, register_site_task
from feddbn.federation.statistics import Preparation, local_moments, prepare, summary_program
from feddbn.federation.task import Param, ServerProgram, Task

__all__ = ["PersonalFit", "PersonalSettings", "personal_arrays", "personal_program", "sample_sites"]

ALPHAS = ("site", "shared")
AVERAGES = ("running", "participants")


@dataclass(frozen=True)
class PersonalSettings(ConsensusSettings):
    """What the user chose; see `feddbn.PFDBNL`."""

    mu: float = 0.5
    participation: float | int = 1.0
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
        n_participants(self.participation, 1)


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
    """A finished run: the shared weights, how it went, and which sites never took part."""

    run: PersonalRun
    preparation: Preparation
    shared: FloatArray
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
    if schedule.is_adaptive and settings.rho2 is None:
        # Two springs in series: the site's loss (about 2 in the metric D) and the pull 2 mu.
        schedule = replace(
            schedule, rho2=2.0 if np.isinf(settings.mu) else 2.0 * settings.mu / (1.0 + settings.mu)
        )
    floor = 1e-9 * float(preparation.variance.mean())
    metric = (
        np.maximum(preparation.variance, floor) if schedule.is_adaptive else np.ones(len(constraints.allowed))
    )
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
        passes=((schedule.rho1, schedule.phi1),),
    )


def personal_program(
    settings: PersonalSettings,
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    sites: tuple[str, ...],
    rng: np.random.Generator,
    *,
    preparation: Preparation | None = None,
    run_number: int = 0,
) -> ServerProgram[PersonalFit]:
    """Yield the tasks of one PFDBNL run; the result is a `PersonalFit`."""
    d = len(variables)
    center = "recording" if settings.center == "recording" else "none"
    if preparation is None:
        summary = yield from summary_program(variables, settings.n_lags, center)
        preparation = prepare(summary, d, settings.center, settings.scale)
    check_summary(variables, preparation)
    options = personal_options(settings, preparation, constraints)
    run = PersonalRun(options, len(sites))
    counted = dict.fromkeys(sites, -1)
    n = n_participants(settings.participation, len(sites))
    arrays = {"center": preparation.center, "scale": preparation.scale, "metric": options.metric}
    if (
        not (constraints.allowed == EdgeConstraints.none(d, settings.n_lags).allowed).all()
        or constraints.required.any()
    ):
        arrays |= {
            "allowed": constraints.allowed.astype(float),
            "required": constraints.required.astype(float),
        }
    constant: dict[str, Param] = {
        "n_lags": settings.n_lags,
        "variables": variables,
        "center": center,
        "weighting": settings.weighting,
        "mean_rows": preparation.summary.n / len(sites),
        "run": run_number,
        "mu": float(settings.mu),
        "lambda_w": settings.lambda_w,
        "lambda_a": settings.lambda_a,
        "w_threshold": settings.w_threshold,
        "a_threshold": settings.a_threshold,
        "acyclicity": settings.acyclicity,
        "average": settings.average,
        "names": sites,
    }
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
    shared = threshold(run.C, constraints.required, settings.w_threshold, settings.a_threshold)
    shared[:d], _ = break_cycles(shared[:d], constraints.required[:d])
    finish = {**params, "counted": tuple(counted.values()), "refit": settings.refit}
    answer = yield Task("personal-finish", {**arrays, "shared": shared}, finish)
    n, losses = answer.value[1 : 1 + d], answer.value[1 + d : 1 + 2 * d]
    with np.errstate(invalid="ignore", divide="ignore"):
        target_loss = np.where(n > 0, losses / n, 0.5)
    never = tuple(name for name, last in counted.items() if last < 0)
    return PersonalFit(run, preparation, shared, float(answer.value[0]), target_loss, never)


def _progress(run: PersonalRun) -> dict[str, float]:
    note = {"round": float(run.round), "max_rounds": float(run.options.max_rounds)}
    if run.history:
        last = run.history[-1]
        note |= {"h": last.h, "primal": last.primal, "dual": last.dual, "objective": last.objective}
    return note


@dataclass(frozen=True)
class _Asked:
    """A task as the site understands it: its own part of every array."""

    entries: Entries
    C: FloatArray
    constraints: EdgeConstraints
    L: FloatArray
    params: Mapping[str, Param]

    @classmethod
    def of(cls, data: SiteData, task: Task) -> _Asked:
        params = task.params
        variables: tuple[str, ...] = tuple(params["variables"])  # type: ignore[arg-type]
        n_lags = int(params["n_lags"])  # type: ignore[arg-type]
        entries = Entries.of(tuple(data.variables), variables, n_lags, n_lags)
        if "allowed" in task.arrays:
            constraints = EdgeConstraints(
                entries.take(task.arrays["allowed"]) != 0, entries.take(task.arrays["required"]) != 0
            )
        else:
            constraints = EdgeConstraints.none(len(entries.columns), n_lags)
        L = penalty_matrix(constraints, float(params["lambda_w"]), float(params["lambda_a"]))  # type: ignore[arg-type]
        return cls(entries, entries.take(task.arrays["C"]), constraints, L, params)

    def number(self, name: str) -> float:
        return float(self.params[name])  # type: ignore[arg-type]

    @property
    def stage(self) -> PersonalStage:
        return PersonalStage(self.params["stage"])

    @property
    def counted(self) -> int:
        """The last round in which this site's answer was counted; -1 if it never was."""
        names, rounds = tuple(self.params["names"]), tuple(self.params["counted"])  # type: ignore[arg-type]
        return int(rounds[names.index(self.params["site"])])

    def penalty(self, weight: float) -> FloatArray:
        """The stage's penalty: none while refitting."""
        return (
            np.zeros_like(self.L)
            if self.stage in (PersonalStage.SUPPORT, PersonalStage.FINAL)
            else weight * self.L
        )

    def rules(self) -> PersonalRound:
        alpha = self.params["alpha"]
        return PersonalRound(
            mu=self.number("mu"),
            rho=self.number("rho"),
            rho1=self.number("rho1"),
            rho2=self.number("rho2"),
            rho2_before=self.number("rho2_before"),
            alpha=None if alpha is None else float(alpha),  # type: ignore[arg-type]
            acyclic_steps=int(self.number("acyclic_steps")),
            is_exact=bool(self.params["is_exact"]),
            tol=self.number("tol"),
        )

    def entered(self, memory: SiteMemory) -> SiteMemory:
        """Return the memory in the stage the server is in."""
        serial = int(self.number("serial"))
        if memory.serial == serial:
            return memory
        site = memory.site.enter(
            self.stage,
            memory.problem,
            memory.weight * self.L,
            self.constraints,
            self.number("mu"),
            self.C,
            (self.number("w_threshold"), self.number("a_threshold")),
        )
        return replace(memory, site=site, serial=serial)


def _join(data: SiteData, state: SiteState, task: Task, asked: _Asked) -> tuple[SiteState, SiteMemory]:
    """Return a site's memory before its first round: its Gram matrix decomposed, itself at the consensus."""
    own = replace(task, params={**task.params, "variables": tuple(data.variables)})
    state, moments = local_moments(data, state, own)
    scale, d = asked.entries.take(task.arrays["scale"]), len(asked.entries.columns)
    G = moments.about(asked.entries.take(task.arrays["center"])) / moments.n / np.outer(scale, scale)
    weight = moments.n / asked.number("mean_rows") if task.params["weighting"] == "samples" else 1.0
    problem = LocalProblem.from_gram(G, weight, d, asked.entries.take(task.arrays["metric"]))
    site = PersonalSite(PersonalMember.start(asked.C), asked.constraints.allowed)
    nothing = np.zeros_like(asked.C)
    run = int(asked.number("run"))
    return state, SiteMemory(site, problem, weight, moments.n, -1, run, nothing, nothing, -1)


def _remember(data: SiteData, state: SiteState, task: Task, asked: _Asked) -> tuple[SiteState, SiteMemory]:
    if "personal.C" in state:
        memory = unpack(state)
        if memory.run == int(asked.number("run")):
            return state, memory.acknowledged(asked.counted)
    return _join(data, state, task, asked)


def _run_step(data: SiteData, state: SiteState, task: Task) -> tuple[SiteState, FloatArray]:
    asked = _Asked.of(data, task)
    state, memory = _remember(data, state, task, asked)
    memory = asked.entered(memory)
    rules, acyclicity = asked.rules(), get_acyclicity(str(task.params["acyclicity"]))
    L = asked.penalty(1.0)
    member, norms = memory.site.member.step(
        memory.problem, memory.weight, L, memory.site.allowed, asked.C, rules, acyclicity
    )
    offered = member.T + member.U / (rules.rho2 * memory.problem.metric[:, None])
    change = offered - memory.sent if task.params["average"] == "running" else offered
    objective = objective_given(memory.problem, rules.mu, asked.C, memory.weight * L, member.C)
    is_new = float(asked.counted < 0)
    memory = replace(
        memory,
        site=replace(memory.site, member=member),
        offered=offered,
        offered_round=int(asked.number("round")),
    )
    vector = np.concatenate([asked.entries.put(change).ravel(), norms, [member.h, objective, is_new]])
    return pack(state, memory), vector


def _run_finish(data: SiteData, state: SiteState, task: Task) -> tuple[SiteState, FloatArray]:
    """Close the run at the site: its personal graph in its own state; what leaves is about the shared one."""
    asked = _Asked.of(data, task)
    state, memory = _remember(data, state, task, asked)
    shared = asked.entries.take(task.arrays["shared"])
    mu, L = asked.number("mu"), memory.weight * asked.L
    limits = (asked.number("w_threshold"), asked.number("a_threshold"))
    has_joined = asked.counted >= 0
    if has_joined:
        last = PersonalStage.FINAL if task.params["refit"] else PersonalStage.LASSO
        site = memory.site.enter(last, memory.problem, L, asked.constraints, mu, asked.C, limits)
        if not task.params["refit"]:
            site = site.polished(memory.problem, L, mu, asked.C)
            final = site.member.C
        else:
            final = solve_given(memory.problem, mu, asked.C, np.zeros_like(L), site.allowed, site.member.C)
        final = threshold(final, asked.constraints.required, *limits)
        raw = site.raw if site.raw is not None else final
        objective = objective_given(memory.problem, mu, asked.C, L, raw)
    else:
        # A site that never took part has nothing of its own: it gets the consensus model.
        final, raw, objective = shared, asked.C, 0.0
    # The problem carries the weight; n / weight turns it into a sum over the site's rows.
    rows = memory.n / memory.weight
    columns = asked.entries.columns
    sums = np.zeros((2, asked.entries.d))
    sums[0, columns] = memory.n
    sums[1, columns] = rows * memory.problem.target_loss(shared)
    new = {
        **pack(state, memory),
        "personal.final": final,
        "personal.final_raw": raw,
        "personal.final_loss": memory.problem.target_loss(final) / memory.weight,
        "personal.has_joined": np.array(float(has_joined)),
    }
    return new, np.concatenate([[objective], sums.ravel()])


def personal_arrays(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a site's own result from its own state: C (q_k, d_k), C_raw, target_loss (d_k,), has_joined."""
    names = {"C": "final", "C_raw": "final_raw", "target_loss": "final_loss", "has_joined": "has_joined"}
    return {name: state["personal." + key] for name, key in names.items() if "personal." + key in state}


register_site_task(
    SiteTask(
        "personal-step", _run_step, "one round of PFDBNL: change of the auxiliary weights", needs_name=True
    )
)
register_site_task(
    SiteTask("personal-finish", _run_finish, "end of PFDBNL: loss of the shared network", needs_name=True)
)
