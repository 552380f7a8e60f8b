"""In how many sites an edge is present, from sums only.

A site answers with one indicator and one weight per possible edge of its personal graph. A site that opts out counts
only edges of the shared network, which everybody knows already: what is special about it is never counted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import StateError
from feddbn.federation.protocol.site import Here, SiteState, SiteTask, register_site_task
from feddbn.federation.protocol.task import Question, ServerProgram, Task, array, flag


@dataclass(frozen=True)
class EdgeCounts:
    """Per entry of the stack, (q, d): sites in which the edge is present, and their mean weight (0 if none)."""

    count: FloatArray
    mean_weight: FloatArray
    n_sites: int


def edge_counts_program(
    shared: FloatArray, sites: Collection[str], opt_out: Collection[str] = ()
) -> ServerProgram[EdgeCounts]:
    """Ask every site which edges its personal graph has; `shared` is the public network's stack (q, d).

    Those who opt out are asked about the shared edges only.
    """
    parts = [tuple(name for name in sites if (name in opt_out) is is_out) for is_out in (False, True)]
    total, n_sites = np.zeros((2, *shared.shape)), 0
    for names, only_shared in zip(parts, (False, True), strict=True):
        if names:
            answer = yield Task(EdgeCountsQuestion(shared=shared, only_shared=only_shared), names)
            total, n_sites = total + answer.value.reshape(total.shape), n_sites + len(answer.contributors)
    count, weight = total
    mean = np.divide(weight, count, out=np.zeros_like(weight), where=count > 0)
    return EdgeCounts(np.array(count), mean, n_sites)


@dataclass(frozen=True, kw_only=True)
class EdgeCountsQuestion(Question):
    """Which edges the personal graph has; with `only_shared` of those that the shared network has, too."""

    name = "local.edges"
    purpose = "which edges the personal graph has, summed over sites"
    reads_rows = False

    shared: FloatArray = array("q", "d")
    only_shared: bool = flag(default=False)


def _answer(here: Here, question: EdgeCountsQuestion) -> tuple[SiteState, FloatArray]:
    C = here.state.get("personal.final")
    if C is None:
        raise StateError("this site has no personal network yet; fit PFDBNL first.")
    if C.shape != question.shared.shape:
        raise question.wrong(f"'shared' must have shape {C.shape}, as this site's network")
    present = C != 0
    if question.only_shared:
        present &= question.shared != 0
    return here.state, np.concatenate([present.astype(float).ravel(), np.where(present, C, 0.0).ravel()])


register_site_task(SiteTask(EdgeCountsQuestion, _answer))
