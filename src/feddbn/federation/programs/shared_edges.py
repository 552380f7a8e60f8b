"""In how many sites an edge is present, from sums only.

A site answers with one indicator and one weight per possible edge of its personal graph. A site that opts out counts
only edges of the shared network, which everybody knows already: what is special about it is never counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import StateError
from feddbn.federation.protocol.site import Here, SiteState, SiteTask, one_by_one, register_site_task
from feddbn.federation.protocol.task import Question, ServerProgram, Task, array, names

__all__ = ["EdgeCounts", "edge_counts_program"]


@dataclass(frozen=True)
class EdgeCounts:
    """Per entry of the stack, (q, d): sites in which the edge is present, and their mean weight (0 if none)."""

    count: FloatArray
    mean_weight: FloatArray
    n_sites: int


def edge_counts_program(shared: FloatArray, opt_out: tuple[str, ...] = ()) -> ServerProgram[EdgeCounts]:
    """Ask every site which edges its personal graph has; `shared` is the public network's stack (q, d)."""
    answer = yield Task(EdgeCountsQuestion(shared=shared, opt_out=opt_out))
    count, weight = answer.value.reshape(2, *shared.shape)
    mean = np.divide(weight, count, out=np.zeros_like(weight), where=count > 0)
    return EdgeCounts(np.array(count), mean, len(answer.contributors))


@dataclass(frozen=True, kw_only=True)
class EdgeCountsQuestion(Question):
    """Which edges the personal graph has; sites in `opt_out` answer about the shared network's edges only."""

    name = "edge-counts"
    purpose = "which edges the personal graph has, summed over sites"
    reads_rows = False

    shared: FloatArray = array("q", "d")
    opt_out: tuple[str, ...] = names(default=())


def _answer(here: Here, question: EdgeCountsQuestion) -> tuple[SiteState, FloatArray]:
    C = here.state.get("personal.final")
    if C is None:
        raise StateError("this site has no personal network yet; fit PFDBNL first.")
    if C.shape != question.shared.shape:
        raise question.wrong(f"'shared' must have shape {C.shape}, as this site's network")
    present = C != 0
    if here.name in question.opt_out:
        present &= question.shared != 0
    return here.state, np.concatenate([present.astype(float).ravel(), np.where(present, C, 0.0).ravel()])


register_site_task(SiteTask(EdgeCountsQuestion, one_by_one(_answer)))
