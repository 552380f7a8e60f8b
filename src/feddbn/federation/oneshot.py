"""The one-round method as a short program of sums.

lagged-moments      count, totals and cross-products of z_t                one sum; a second one about a
public origin only where means dwarf spreads
residual-features   sums of nonlinear functions of standardised residuals  only to direct edges that second
moments leave open, when the noise may tell
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from feddbn.core.constraints import EdgeConstraints
from feddbn.core.lagged import FloatArray, lagged_rows
from feddbn.core.moments import Moments, sums_length
from feddbn.core.nongaussian import (
    N_FEATURES,
    Job,
    entropy_terms,
    jarque_bera_p,
    node_residuals,
    residual_features,
)
from feddbn.core.one_round import Learned, LearnOptions, choose_lags, learn_network
from feddbn.core.order_search import NoiseVariance, OrderResult
from feddbn.core.orientation import STRONG_EVIDENCE, EdgeOrientation
from feddbn.errors import DataError, ProtocolError
from feddbn.federation.site import SiteData, SiteState, SiteTask, register_site_task
from feddbn.federation.task import ServerProgram, Task

__all__ = ["NonGaussianReport", "OneShotOptions", "OneShotOutcome", "oneshot_program"]

LARGE_MEAN = 1e3
"""Means this many standard deviations from 0 cost six digits of the scatter: ask about a public origin."""
UNDECIDED = 20.0
"""If any direction is open, those with a smaller score difference than this are put to the noise, too."""
MAX_DIRECTION_SUMS = 8
GAUSSIAN_LEVEL = 0.01


@dataclass(frozen=True)
class OneShotOptions:
    """What `oneshot_program` is asked for.

    Attributes
    ----------
    n_lags
        Number of lags, or the largest to consider with `choose_n_lags`.
    choose_n_lags
        Choose the number of lags by the score.
    scale
        "none" or "unit": whether the search sees variables scaled to unit variance.
    use_nongaussian
        "auto": only if the residuals are clearly not Gaussian.
    learn
        How the server learns.
    """

    n_lags: int = 1
    choose_n_lags: bool = False
    scale: Literal["none", "unit"] = "none"
    use_nongaussian: bool | Literal["auto"] = "auto"
    learn: LearnOptions = field(default_factory=LearnOptions)


@dataclass(frozen=True)
class NonGaussianReport:
    """Whether the residuals are Gaussian, and what was made of it.

    Attributes
    ----------
    used
        Whether directions were decided by higher moments.
    p_value
        Smallest Jarque-Bera p-value of the residuals times d.
    n_changed
        Entries of [W; A] that changed.
    """

    used: bool
    p_value: float
    n_changed: int


@dataclass(frozen=True)
class OneShotOutcome:
    """What the server ends with: the network, the moments (original units), the number of lags and sums."""

    learned: Learned
    moments: Moments
    n_lags: int
    lag_scores: FloatArray | None
    nongaussian: NonGaussianReport | None
    n_sums: int


def oneshot_program(
    d: int,
    constraints: EdgeConstraints,
    options: OneShotOptions,
    rng: np.random.Generator,
    names: tuple[str, ...] | None = None,
) -> ServerProgram[OneShotOutcome]:
    """Ask for the moments, learn, and direct what is left open by the noise if it is not Gaussian."""
    variables = names or tuple(f"x{i}" for i in range(d))
    p = options.n_lags
    q = (p + 1) * d
    answer = yield Task("lagged-moments", {}, {"n_lags": p})
    moments = Moments.from_sums(answer.value, q)
    n_sums = 1
    _require_rows(moments, p)
    spread = np.sqrt(np.maximum(np.diag(moments.scatter), 0.0) / moments.n)
    if np.any(np.abs(moments.mean) > LARGE_MEAN * spread):
        origin = moments.mean.copy()
        answer = yield Task("lagged-moments", {"origin": origin}, {"n_lags": p})
        moments = Moments.from_sums(answer.value, q, origin)
        n_sums += 1
    _require_variance(moments, d, variables)
    working = moments
    if options.scale == "unit":
        sd = np.sqrt(np.diag(moments.scatter)[:d] / moments.n)
        working = moments.scaled(np.tile(sd, p + 1))
    lag_scores = None
    if options.choose_n_lags:
        kind: NoiseVariance = "equal" if options.learn.noise_variance == "equal" else "free"
        p, lag_scores = choose_lags(working, d, p, constraints, options.learn.criterion, kind)
        kept = np.arange((p + 1) * d)
        working, moments = working.select(kept), moments.select(kept)
        constraints = EdgeConstraints(constraints.allowed[kept], constraints.required[kept])
    learned = learn_network(working, d, p, constraints, options.learn, rng)
    report = None
    if options.use_nongaussian and learned.noise.kind == "free":
        learned, report, asked = yield from _direct_by_noise(moments, p, learned, options.use_nongaussian)
        n_sums += asked
    return OneShotOutcome(learned, moments, p, lag_scores, report, n_sums)


def _direct_by_noise(
    moments: Moments, n_lags: int, learned: Learned, use: bool | Literal["auto"]
) -> ServerProgram[tuple[Learned, NonGaussianReport | None, int]]:
    """Move to neighbouring networks that the shape of the noise favours, until none is better.

    Neighbours: for every edge whose direction second moments do not decide, the best network with its ends
    exchanged.
    """
    search = learned.search
    d = search.d
    best = search.adopt(learned.support)
    if all(e.oriented for e in learned.orientation):
        return learned, None, 0
    open_edges = [(e.source, e.target) for e in learned.orientation if e.score_difference < UNDECIDED]
    terms: dict[Job, float] = {}
    n_sums, p_value = 0, 1.0
    differences: dict[tuple[int, int], float] = {}
    while n_sums < MAX_DIRECTION_SUMS:
        others = {edge: search.best_reversed(best, *edge) for edge in open_edges}
        networks = [best, *(other for other in others.values() if other is not None)]
        jobs = sorted({job for network in networks for job in enumerate(network.parents)} - set(terms))
        if jobs:
            residuals = node_residuals(moments, jobs)
            arrays = {"coefficients": residuals.coefficients, "offset": residuals.offset}
            answer = yield Task("residual-features", arrays, {"n_lags": n_lags})
            n = float(answer.value[0])
            features = answer.value[1:].reshape(N_FEATURES, -1)
            terms.update(zip(jobs, entropy_terms(features, n).tolist(), strict=True))
            n_sums += 1
            if n_sums == 1:
                own = [jobs.index(job) for job in enumerate(best.parents)]
                p_value = min(float(jarque_bera_p(features[:, own], n).min()) * d, 1.0)
                if use == "auto" and p_value > GAUSSIAN_LEVEL:
                    return learned, NonGaussianReport(False, p_value, 0), n_sums
        here = _with_shape(best, terms)
        differences = {
            edge: np.inf if other is None else _with_shape(other, terms) - here
            for edge, other in others.items()
        }
        edge = min(differences, key=lambda e: differences[e])
        following = others[edge]
        if differences[edge] >= 0 or following is None:
            break
        best = following
        support = best.support[:d]
        open_edges = [
            (i, j) if support[i, j] else (j, i) for i, j in open_edges if support[i, j] or support[j, i]
        ]
    before = {(e.source, e.target): e.score_difference for e in learned.orientation}
    table = []
    for i, j in np.argwhere(best.support[:d]).tolist():
        # An edge that the search for directions brought in is as firm as the one asked about last: undecided
        # if never.
        difference = max(differences.get((i, j), before.get((i, j), 0.0)), 0.0)
        table.append(EdgeOrientation(i, j, float(difference), bool(difference >= STRONG_EVIDENCE)))
    n_changed = int((best.support != learned.support).sum())
    directed = replace(
        learned, support=best.support, order=best.order, orientation=tuple(table), score=best.score
    )
    return directed, NonGaussianReport(True, p_value, n_changed), n_sums


def _with_shape(network: OrderResult, terms: dict[Job, float]) -> float:
    return network.score + sum(terms[job] for job in enumerate(network.parents))


def _require_rows(moments: Moments, n_lags: int) -> None:
    if moments.n < 5:
        raise DataError(
            f"learning needs at least 5 usable rows over all sites, got {int(moments.n)}; a row is usable if "
            f"its "
            f"n_lags={n_lags} predecessors are in the same segment."
        )


def _require_variance(moments: Moments, d: int, names: tuple[str, ...]) -> None:
    variance = np.diag(moments.scatter)[:d] / moments.n
    constant = [names[j] for j in np.flatnonzero(~(variance > 1e-18 * (1 + moments.mean[:d] ** 2)))]
    if constant:
        raise DataError(
            f"the variable {constant[0]!r} is constant over all sites; leave it out"
            + (f" (also: {', '.join(constant[1:10])})." if len(constant) > 1 else ".")
        )


def _rows(site: SiteData, task: Task) -> Iterator[FloatArray]:
    n_lags = task.params["n_lags"]
    if not isinstance(n_lags, int) or n_lags < 0:
        raise ProtocolError(f"task {task.name!r} needs n_lags as a whole number >= 0, got {n_lags!r}.")
    for recording in site.recordings():
        yield from lagged_rows(recording.blocks(), n_lags)


def _run_moments(site: SiteData, state: SiteState, task: Task) -> tuple[SiteState, FloatArray]:
    n_lags = task.params["n_lags"]
    q = (int(str(n_lags)) + 1) * len(site.variables)
    vector = Moments.of_chunks(_rows(site, task), q).to_sums(task.arrays.get("origin"))
    assert len(vector) == sums_length(q)
    return state, vector


def _run_residual_features(site: SiteData, state: SiteState, task: Task) -> tuple[SiteState, FloatArray]:
    B, offset = task.arrays["coefficients"], task.arrays["offset"]
    total = np.zeros((N_FEATURES, B.shape[1]))
    n = 0.0
    for rows in _rows(site, task):
        if rows.shape[1] != len(B):
            raise ProtocolError(
                f"task 'residual-features' has coefficients for {len(B)} columns, this site has "
                f"{rows.shape[1]}."
            )
        total += residual_features(rows @ B - offset)
        n += len(rows)
    return state, np.concatenate([[n], total.ravel()])


register_site_task(
    SiteTask("lagged-moments", _run_moments, "count, totals and cross-products of lagged rows")
)
register_site_task(
    SiteTask(
        "residual-features", _run_residual_features, "sums of nonlinear functions of standardised residuals"
    )
)
