"""Sorting sites into clusters by sums, without the server learning who is where.

Every site has a signature: each variable regressed on all others and the lags, with a small ridge. Clusters start from
repeated splits of the most spread-out cluster along its leading direction, found by power iteration on sums; then, as
in iterative federated clustering (Ghosh et al. 2022), every site picks the broadcast model with the lowest loss on its
own data and adds its signature into that model's slot, zeros elsewhere.

A cluster of one site would show that site's signature. So where sites have to be hidden, it is counted first how many sites a
cluster would have, and one with too few is not made: its sites choose among the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.penalised.lasso import loss_value
from feddbn.errors import ParameterError, StateError
from feddbn.federation.programs.pfdbnl.questions import ClusterQuestion
from feddbn.federation.programs.pfdbnl.site import own_gram
from feddbn.federation.protocol.site import Here, SiteState, SiteTask, register_site_task
from feddbn.federation.protocol.task import Plan, Planned, ServerProgram, Task

_POWER_STEPS = 6
_LLOYD_STEPS = 8
_RIDGE = 0.1


def cluster_program(
    common: Mapping[str, Any], rng: np.random.Generator, fewest_sites: int | None = None
) -> ServerProgram[FloatArray]:
    """Put every site into one of ``n_slots`` clusters, in its own state; the result is the cluster sizes (M,).

    `common` is what every question of the fit carries. A cluster has at least `fewest_sites` sites, or none.
    """
    n_sites, m = int(common["n_sites"]), int(common["n_slots"])
    if m > n_sites:
        raise ParameterError(f"n_clusters={m} is more than the {n_sites} sites.")
    q, d = len(common["origin"]), len(common["variables"])
    closed: tuple[int, ...] = ()

    def ask(mode: str, **more: Any) -> ServerProgram[FloatArray]:
        answer = yield Task(ClusterQuestion(**common, mode=mode, closed=closed, **more))
        return answer.value

    def too_few(mode: str, **more: Any) -> ServerProgram[list[int]]:
        """Clusters that would have few sites, the smallest first."""
        if fewest_sites is None:
            return []
        n = np.round((yield from ask(mode, only_counts=True, **more)))
        return [int(k) for k in np.argsort(n, kind="stable") if 0 < n[k] < fewest_sites]

    def means(total: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        counts, squares = total[-2 * m : -m], total[-m:]
        C = total[: -2 * m].reshape(m, q, d) / np.maximum(counts, 1.0)[:, None, None]
        scatter = squares - counts * np.sum(C * C, axis=(1, 2))
        return C, counts, scatter

    C, counts, scatter = means((yield from ask("start")))
    for new in range(1, m):
        old = int(np.argmax(np.where(counts > 1, scatter, -np.inf)))
        v = rng.standard_normal((q, d))
        for _ in range(_POWER_STEPS):
            total = yield from ask("power", v=v, middle=C[old], slot=old)
            v = total[: q * d].reshape(q, d)
            v = v / max(float(np.linalg.norm(v)), 1e-300)
        split: dict[str, Any] = {"v": v, "middle": C[old], "slot": old, "new": new}
        if (yield from too_few("split", **split)):
            closed = (*closed, *range(new, m))
            break
        C, counts, scatter = means((yield from ask("split", **split)))
    for _ in range(_LLOYD_STEPS):
        before = C
        while few := (yield from too_few("assign", models=C)):
            closed = (*closed, few[0])
        C, counts, scatter = means((yield from ask("assign", models=C)))
        # An empty cluster keeps its model, so that a site may still choose it.
        C = np.where(counts[:, None, None] > 0, C, before)
        if np.array_equal(C, before):
            break
    return counts


def cluster_plan(q: int, d: int, n_clusters: int) -> Plan:
    """What `cluster_program` may ask; one cluster needs no sorting."""
    splits, m = n_clusters - 1, n_clusters
    # Clusters are counted before they are made, and each may be closed once.
    times = 1 + splits * (_POWER_STEPS + 2) + 2 * _LLOYD_STEPS + splits
    return (Planned("step.clusters", m * (q * d + 2), times, times),) if splits else ()


def _signature(G: FloatArray, d: int) -> FloatArray:
    """Return (q, d): each variable regressed on all other columns, with a ridge relative to their variances."""
    q = len(G)
    C = np.zeros((q, d))
    H = G + _RIDGE * np.diag(np.diag(G))
    for j in range(d):
        others = np.delete(np.arange(q), j)
        C[others, j] = np.linalg.solve(H[np.ix_(others, others)], G[others, j])
    return C


def _answer(here: Here, question: ClusterQuestion) -> tuple[SiteState, FloatArray]:
    mode, m, run = question.mode, question.n_slots, float(question.run)
    state, G, _ = own_gram(here, question)
    signature = _signature(G, question.d)
    slot = 0
    if mode != "start":
        known = state.get("cluster.slot")
        if known is None or known[0] != run:
            raise StateError("this site was not there when the clusters were started; it gets the first one.")
        slot = int(known[1])
    if question.v is not None and question.middle is not None:
        offset = signature - question.middle
        projection = float(np.sum(offset * question.v))
        is_meant = slot == question.slot
        if mode == "power":
            vector = projection * offset if is_meant else np.zeros_like(offset)
            return state, np.concatenate([vector.ravel(), np.zeros(2 * m)])
        if is_meant and projection > 0:
            slot = question.new
    elif question.models is not None:
        losses = [loss_value(G, C) for C in question.models]
        slot = int(np.argmin([np.inf if k in question.closed else loss for k, loss in enumerate(losses)]))
    if question.only_counts:
        return here.state, (np.arange(m) == slot).astype(np.float64)
    vector = np.zeros((m, *signature.shape))
    tallies = np.zeros((2, m))
    vector[slot] = signature
    tallies[:, slot] = 1.0, float(np.sum(signature * signature))
    new = {**state, "cluster.slot": np.array([run, float(slot)])}
    return new, np.concatenate([vector.ravel(), tallies.ravel()])


register_site_task(SiteTask(ClusterQuestion, _answer))
