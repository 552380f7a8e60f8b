"""What sites can do alone: every site fits DYNOTEARS to its own rows; the server sees only sums over sites.

Site task ``local-fit`` keeps the site's own network in its state and answers with its weights (for an average), with
the indicators of its edges (for a vote), or with nothing but a count (when the networks are to stay at home).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.fdbnl.dynotears import solve_dynotears
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.errors import ProtocolError
from feddbn.federation.programs.fdbnl import ConsensusSettings, check_summary, consensus_options
from feddbn.federation.programs.statistics import (
    Preparation,
    Summary,
    local_moments,
    prepare,
    summary_of_moments,
)
from feddbn.federation.protocol.site import SiteData, SiteState, SiteTask, register_site_task
from feddbn.federation.protocol.task import ServerProgram, Task

__all__ = ["ANSWERS", "local_fit_of_state", "local_fits_program"]

ANSWERS = ("weights", "votes", "count")


def local_fits_program(
    settings: ConsensusSettings, variables: tuple[str, ...], constraints: EdgeConstraints, answer: str
) -> ServerProgram[tuple[FloatArray, tuple[str, ...]]]:
    """Ask every site for one local fit; the result is the sum of what they answer and who contributed."""
    params = {f.name: getattr(settings, f.name) for f in fields(settings)}
    total = yield Task(
        "local-fit",
        arrays={"allowed": constraints.allowed.astype(float), "required": constraints.required.astype(float)},
        params={**params, "variables": variables, "answer": answer},
    )
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


def _run(data: SiteData, state: SiteState, task: Task) -> tuple[SiteState, FloatArray]:
    names = {f.name for f in fields(ConsensusSettings)}
    settings = ConsensusSettings(**{k: v for k, v in task.params.items() if k in names})  # type: ignore[arg-type]
    constraints = EdgeConstraints(task.arrays["allowed"] > 0.5, task.arrays["required"] > 0.5)
    state, moments = local_moments(data, state, task)
    d = constraints.d
    preparation = prepare(summary_of_moments(moments, d), d, settings.center, settings.scale)
    check_summary(tuple(data.variables), preparation)
    options, _ = consensus_options(settings, preparation, constraints, 1)
    G = moments.about(preparation.center) / moments.n / np.outer(preparation.scale, preparation.scale)
    run = solve_dynotears(G, options)
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
    answer = task.params["answer"]
    if answer == "weights":
        return new, _in_units(run.C_raw, preparation.scale).ravel()
    if answer == "votes":
        return new, (C != 0).astype(np.float64).ravel()
    if answer == "count":
        return new, np.ones(1)
    raise ProtocolError(f"task 'local-fit' was asked to answer {answer!r}; it knows {', '.join(ANSWERS)}.")


def _in_units(C: FloatArray, scale: FloatArray) -> FloatArray:
    return C * scale[: C.shape[1]] / scale[:, None]


register_site_task(
    SiteTask("local-fit", _run, "a network fitted to this site's rows alone: its weights or its edges")
)
