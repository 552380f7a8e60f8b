"""FDBNL over sums: [fdbnl] Algorithm 1 as a site task and a server program.

One sum per round. The server program drives `core.fdbnl.server.Consensus` and never needs more than the sum of the sites'
gradients (adaptive schedule) or of ``C_k + U_k / (rho2 D)`` (the paper's). A site keeps its Gram matrix in its state,
and for the paper's schedule its eigendecomposition, C_k and U_k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.fdbnl.dynotears import penalty_matrix
from feddbn.core.fdbnl.local_step import LocalLoss, LocalProblem
from feddbn.core.fdbnl.schedules import make_schedule
from feddbn.core.fdbnl.server import Consensus, ConsensusOptions
from feddbn.core.fdbnl.site import Ask, SiteMember, gradient_answer
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.errors import ParameterError, StateError
from feddbn.federation.programs.statistics import Preparation, local_moments, prepare, summary_program
from feddbn.federation.protocol.site import SiteData, SiteState, SiteTask, register_site_task
from feddbn.federation.protocol.task import Param, ServerProgram, Task

__all__ = [
    "ConsensusFit",
    "ConsensusSettings",
    "check_summary",
    "consensus_options",
    "fdbnl_program",
    "weighted_gram",
]

WEIGHTINGS = ("samples", "sites")


@dataclass(frozen=True)
class ConsensusSettings:
    """What the user chose; names as in the public contract."""

    n_lags: int
    lambda_w: float
    lambda_a: float
    schedule: str = "adaptive"
    weighting: str = "samples"
    rho1: float | None = None
    rho2: float | None = None
    phi1: float | None = None
    phi2: float | None = None
    max_rounds: int = 1000
    h_tol: float = 1e-8
    tol: float = 1e-6
    w_threshold: float = 0.0
    a_threshold: float = 0.0
    refit: bool = True
    center: str = "auto"
    scale: str = "none"
    acyclicity: str = "expm"

    def __post_init__(self) -> None:
        for name in ("lambda_w", "lambda_a", "w_threshold", "a_threshold"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise ParameterError(f"{name}={value!r} must be a number of at least 0.")
        for name in ("h_tol", "tol"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise ParameterError(f"{name}={value!r} must be positive.")
        if isinstance(self.max_rounds, bool) or not isinstance(self.max_rounds, int) or self.max_rounds < 1:
            raise ParameterError(f"max_rounds={self.max_rounds!r} must be a whole number of at least 1.")
        if isinstance(self.n_lags, bool) or not isinstance(self.n_lags, (int, np.integer)) or self.n_lags < 0:
            raise ParameterError(f"n_lags={self.n_lags!r} must be a whole number of at least 0.")
        for name in ("rho2", "phi2"):
            if self.schedule == "adaptive" and getattr(self, name) is not None:
                raise ParameterError(
                    f"{name}={getattr(self, name)!r} has no use with schedule='adaptive'; leave it out or choose "
                    "schedule='paper'."
                )
        if self.weighting not in WEIGHTINGS:
            raise ParameterError(f"weighting={self.weighting!r} is not known; choose 'samples' or 'sites'.")


@dataclass(frozen=True)
class ConsensusFit:
    """A finished run with the preparation of its data; weights are those of the prepared variables."""

    run: Consensus
    preparation: Preparation
    total_weight: float


def consensus_options(
    settings: ConsensusSettings, preparation: Preparation, constraints: EdgeConstraints, n_sites: int
) -> tuple[ConsensusOptions, float]:
    """Return the options of the core solver and the sum of the sites' weights."""
    from feddbn.core.graphs.acyclicity import get_acyclicity

    total_weight = 1.0 if settings.weighting == "samples" else float(n_sites)
    schedule = make_schedule(
        settings.schedule,
        n_sites,
        total_weight,
        rho1=settings.rho1,
        rho2=settings.rho2,
        phi1=settings.phi1,
        phi2=settings.phi2,
    )
    # The paper's proximal term is unweighted; the adaptive one is in units of the sources' variances.
    metric = preparation.metric if schedule.is_adaptive else np.ones(len(constraints.allowed))
    options = ConsensusOptions(
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
        acyclicity=get_acyclicity(settings.acyclicity),
    )
    return options, total_weight


def check_summary(variables: tuple[str, ...], preparation: Preparation) -> None:
    """Raise if a variable is constant over the whole federation, or the federation has a single row."""
    from feddbn.data.checks import check_variances

    d = len(variables)
    # The summary was taken about the means where these are large, so only a true constant is left with this little.
    summary = preparation.summary
    check_variances(variables, summary.variance[:d], summary.mean[:d], rtol=1e-28)


def fdbnl_program(
    settings: ConsensusSettings, variables: tuple[str, ...], constraints: EdgeConstraints, n_sites: int
) -> ServerProgram[ConsensusFit]:
    """Yield the tasks of one FDBNL run; the result is a `ConsensusFit`."""
    d = len(variables)
    center = "recording" if settings.center == "recording" else "none"
    summary = yield from summary_program(variables, settings.n_lags, center)
    preparation = prepare(summary, d, settings.center, settings.scale)
    check_summary(variables, preparation)
    options, total_weight = consensus_options(settings, preparation, constraints, n_sites)
    run = Consensus(options)
    constant: dict[str, Param] = {
        "n_lags": settings.n_lags,
        "variables": variables,
        "center": center,
        "weighting": settings.weighting,
    }
    while not run.is_done:
        answer = yield Task(
            "fdbnl-step",
            arrays={
                "C": run.C,
                "center": preparation.center,
                "scale": preparation.scale,
                "metric": options.metric,
            },
            params={
                **constant,
                "round": run.round,
                "ask": run.ask.value,
                "rho2_before": run.rho2_before,
                "rho2": run.rho2,
                "relaxation": run.relaxation,
                "n_total": summary.n,
            },
            note=_progress(run),
        )
        run.advance(answer.value, len(answer.contributors), answer.contributors)
    return ConsensusFit(run, preparation, total_weight)


def _progress(run: Consensus) -> dict[str, float]:
    note = {"round": float(run.round), "max_rounds": float(run.options.max_rounds)}
    if run.history:
        last = run.history[-1]
        note |= {"h": last.h, "primal": last.primal, "dual": last.dual, "objective": last.objective}
    return note


def weighted_gram(data: SiteData, state: SiteState, task: Task) -> tuple[SiteState, FloatArray]:
    """Return the site's ``w_k G_k`` (q, q) about the federation's centre, in its scale; the state keeps the moments."""
    state, moments = local_moments(data, state, task)
    scale = task.arrays["scale"]
    G = moments.about(task.arrays["center"]) / moments.n / np.outer(scale, scale)
    weight = moments.n / float(task.params["n_total"]) if task.params["weighting"] == "samples" else 1.0  # type: ignore[arg-type]
    return state, weight * G


def _run_step(data: SiteData, state: SiteState, task: Task) -> tuple[SiteState, FloatArray]:
    C, metric = task.arrays["C"], task.arrays["metric"]
    q, d = C.shape
    if task.params["round"] == 0:
        state, wG = weighted_gram(data, state, task)
        state = {**state, "fdbnl.wG": wG}
    ask = Ask(task.params["ask"])
    if ("fdbnl.C" if ask is Ask.STEP else "fdbnl.wG") not in state:
        raise StateError("this site has no state of this run; a run starts with round 0.")
    wG = state["fdbnl.wG"]
    if ask is Ask.GRADIENT:
        return state, gradient_answer(LocalLoss(wG, d), C)
    if ask is Ask.ZERO:
        problem, member = LocalProblem.from_gram(wG, 1.0, d, metric), SiteMember.start(q, d)
        state = {**state, "fdbnl.V": problem.V, "fdbnl.e": problem.e}
    else:
        problem = LocalProblem(wG, d, state["fdbnl.V"], state["fdbnl.e"], metric)
        member = SiteMember(state["fdbnl.C"], state["fdbnl.U"])
    rho2_before, rho2, relaxation = (float(task.params[k]) for k in ("rho2_before", "rho2", "relaxation"))  # type: ignore[arg-type]
    member, vector = member.answer(problem, ask, C, rho2_before, rho2, relaxation)
    return {**state, "fdbnl.C": member.C, "fdbnl.U": member.U}, vector


register_site_task(
    SiteTask(
        "fdbnl-step", _run_step, "one round of FDBNL: gradients, or local weights plus scaled multipliers"
    )
)
