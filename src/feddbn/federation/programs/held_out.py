"""Held-out losses, summed over sites: how candidates are compared without the truth and without pooling.

A site remembers its own loss of every candidate and block. What leaves it: once per candidate its total loss and its
number of rows; and, when the best candidate is known, the sums and squares of its differences to the best, which is all
the one-standard-error rule needs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.fdbnl.local_step import LocalLoss
from feddbn.core.statistics.moments import Moments
from feddbn.errors import DataError, StateError
from feddbn.federation.programs.folds import Fold, fold_of, held_out_part
from feddbn.federation.programs.pfdbnl.state import Entries
from feddbn.federation.programs.statistics import Preparation
from feddbn.federation.protocol.site import SiteData, SiteState, SiteTask, register_site_task
from feddbn.federation.protocol.task import Param, ServerProgram, Task

__all__ = ["Comparison", "comparison_program", "held_out_program"]


@dataclass(frozen=True)
class Comparison:
    """Held-out loss per row of each candidate and its paired standard error against the best, both (m,)."""

    loss: FloatArray
    standard_error: FloatArray
    best: int
    n_rows: float
    n_sites: int


def held_out_program(
    candidate: int,
    n_candidates: int,
    fold: Fold,
    n_lags: int,
    variables: tuple[str, ...],
    preparation: Preparation,
    center: str,
    C: FloatArray | None = None,
) -> ServerProgram[float]:
    """Ask every site for the loss of a shared C, or (None) of its own personal weights, on its held-out rows."""
    arrays = {"center": preparation.center, "scale": preparation.scale}
    if C is not None:
        arrays["C"] = C
    params: dict[str, Param] = {
        "candidate": candidate,
        "n_candidates": n_candidates,
        "fold": fold,
        "n_lags": n_lags,
        "variables": variables,
        "center": center,
    }
    answer = yield Task("held-out-loss", arrays, params)
    return float(answer.value[0] / answer.value[1])


def comparison_program(n_candidates: int) -> ServerProgram[Comparison]:
    """Ask for the sums over all blocks: which candidate is best, and how sure that is."""
    totals = yield Task("held-out-sums", params={"n_candidates": n_candidates, "best": -1})
    m = n_candidates
    n = float(totals.value[m])
    loss = totals.value[:m] / n
    best = int(np.argmin(loss))
    answer = yield Task("held-out-sums", params={"n_candidates": m, "best": best})
    k = len(answer.contributors)
    total, squares = answer.value[:m], answer.value[m : 2 * m]
    # Site totals of differences to the best are independent over sites; their spread gives the error of the sum.
    spread = np.sqrt(np.maximum(squares - total**2 / k, 0.0) * k / max(k - 1, 1))
    return Comparison(loss, spread / n, best, n, k)


def _run_loss(data: SiteData, state: SiteState, task: Task) -> tuple[SiteState, FloatArray]:
    variables: tuple[str, ...] = tuple(task.params["variables"])  # type: ignore[arg-type]
    n_lags, fold = int(task.params["n_lags"]), fold_of(task)  # type: ignore[arg-type]
    m, c = int(task.params["n_candidates"]), int(task.params["candidate"])  # type: ignore[arg-type]
    entries = Entries.of(tuple(data.variables), variables, n_lags, n_lags)
    moments = _held_out_moments(data, fold, n_lags, task.params["center"] == "recording")
    scale = entries.take(task.arrays["scale"])
    scatter = moments.about(entries.take(task.arrays["center"])) / np.outer(scale, scale)
    C = entries.take(task.arrays["C"] if "C" in task.arrays else state["personal.final"])
    d = len(entries.columns)
    loss = float(LocalLoss(scatter, d).target_loss(C).sum())
    losses = state.get("selection.losses", np.zeros((2, m)))
    if losses.shape != (2, m) or (c == 0 and fold[0] == 0):
        losses = np.zeros((2, m))
    losses = losses.copy()
    losses[:, c] += (loss, moments.n)
    return {**state, "selection.losses": losses}, np.array([loss, moments.n])


def _held_out_moments(data: SiteData, fold: tuple[int, ...], n_lags: int, within: bool) -> Moments:
    d = len(data.variables)
    total = Moments.empty((n_lags + 1) * d)
    for recording in data.recordings():
        moments = Moments.of_blocks(held_out_part(recording, fold, n_lags).blocks(), n_lags, d)
        total = total.merge(
            Moments(moments.n, np.zeros_like(moments.mean), moments.scatter) if within else moments
        )
    if total.n == 0:
        raise DataError(
            "no held-out row of this site has its lags before it; lower n_lags or test on a larger share."
        )
    return total


def _run_sums(data: SiteData, state: SiteState, task: Task) -> tuple[SiteState, FloatArray]:
    m, best = int(task.params["n_candidates"]), int(task.params["best"])  # type: ignore[arg-type]
    losses = state.get("selection.losses")
    if losses is None or losses.shape != (2, m):
        raise StateError("this site has no held-out losses of this selection; it has missed its rounds.")
    if best < 0:
        return state, np.append(losses[0], losses[1].max())
    difference = losses[0] - losses[0, best]
    return state, np.concatenate([difference, difference**2])


register_site_task(
    SiteTask("held-out-loss", _run_loss, "loss of a candidate on later rows that it was not fitted to")
)
register_site_task(
    SiteTask("held-out-sums", _run_sums, "sums and squares of held-out losses of all candidates")
)
