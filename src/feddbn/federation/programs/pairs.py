"""Products over pairs of cells that are both there: where rows with empty cells begin.

Site task ``pairs``: how often two columns of a lagged row are present together, their totals and products there, and if
asked the products off nuisances of recordings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.gram import nuisance_basis, whole_rows
from feddbn.core.statistics.missing import (
    pair_totals,
    pairwise_scatter,
    pairwise_sums,
    products_about,
    seldom_together,
)
from feddbn.core.statistics.moments import symmetric, upper_triangle
from feddbn.federation.programs.statistics import FAR_FROM_ZERO, training_parts
from feddbn.federation.programs.trying import TryingQuestion
from feddbn.federation.protocol.question import array
from feddbn.federation.protocol.scope import Scope
from feddbn.federation.protocol.site import Here, SiteState, SiteTask, one_by_one, register_site_task
from feddbn.federation.protocol.task import ServerProgram, Task

__all__ = ["Pairs", "PairsQuestion", "pairs_program"]


@dataclass(frozen=True, kw_only=True)
class PairsQuestion(TryingQuestion):
    """Counts, totals and products over pairs of present cells about an origin."""

    name = "pairs"
    purpose = (
        "how often two values of a lagged row are present together, and their cross-products there, if asked without "
        "means, trends and cycles of recordings"
    )

    origin: FloatArray | None = array("q", default=None)

    def check_scope(self, scope: Scope) -> None:
        """Pairs are for studies that fill in empty cells."""
        super().check_scope(scope)
        scope.require(
            "fill" in scope.transformations, self.name, "the study leaves out rows with empty cells"
        )

    @property
    def transformations(self) -> tuple[str, ...]:
        """Rows with empty cells count."""
        return tuple(dict.fromkeys((*super().transformations, "fill")))

    @property
    def reads_incomplete_rows(self) -> bool:
        """They do."""
        return True


@dataclass(frozen=True)
class Pairs:
    """What pairs of cells told: one covariance about the common mean, and one off each of the nuisances tried.

    Attributes
    ----------
    n_rows
        How many rows have any cell.
    ns
        What the pairs of each covariance are worth in complete rows.
    mean
        (q,) of the cells that are there.
    covariances
        (q, q) each; the first is about the common mean.
    ranks
        Number of nuisance parameters of each.
    log_gains
        Sum of the logs of sites' gains over variables and rows.
    unseen
        For each covariance (i, j, lag) of the pairs that were hardly ever seen together (`seldom_together`).
    """

    n_rows: float
    mean: FloatArray
    covariances: tuple[FloatArray, ...]
    ns: tuple[float, ...]
    ranks: tuple[float, ...]
    log_gains: float
    unseen: tuple[tuple[tuple[int, int, int], ...], ...] = ()


def pairs_program(question: PairsQuestion) -> ServerProgram[Pairs]:
    """Ask for pairs; a second time about the means if these are far from zero."""
    total = (yield Task(question)).value
    found = _read(total, question)
    if np.any(np.abs(found.mean) > FAR_FROM_ZERO * np.sqrt(np.diag(found.covariances[0]))):
        question = replace(question, origin=found.mean)
        found = _read((yield Task(question)).value, question)
    return found


def _read(total: FloatArray, question: PairsQuestion) -> Pairs:
    q = question.q
    size = q * (q + 1) // 2
    start = 2 + q * q
    (n_rows, log_gains), totals, rest = total[:2].tolist(), total[2:start].reshape(q, q), total[start:]
    parts = rest.reshape(-1, 1 + 2 * size)
    counts, products = symmetric(parts[0, 1 : 1 + size], q), symmetric(parts[0, 1 + size :], q)
    delta = np.diag(totals) / np.maximum(np.diag(counts), 1.0)
    common = pairwise_scatter(counts, products_about(delta, counts, totals, products))
    others = [pairwise_scatter(symmetric(p[1 : 1 + size], q), symmetric(p[1 + size :], q)) for p in parts[1:]]
    mean = delta if question.origin is None else delta + question.origin
    covariances, ns = zip(common, *others, strict=True)
    unseen = tuple(seldom_together(symmetric(p[1 : 1 + size], q), question.d) for p in parts)
    return Pairs(n_rows, mean, covariances, ns, (1.0, *parts[1:, 0].tolist()), log_gains, unseen)


def _pairs(here: Here, question: PairsQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    q, tried = question.q, question.tried
    size = q * (q + 1) // 2
    total = np.zeros(2 + q * q + (1 + len(tried)) * (1 + 2 * size))
    if question.abstains(here.state):
        return here.state, total
    origin = np.zeros(q) if question.origin is None else question.origin
    log_gain = question.log_gain(here.data)
    for recording in training_parts(here.data, question):
        rows, times = whole_rows(question.design, recording)
        some = ~np.isnan(rows).all(axis=1)
        rows, times = rows[some] - origin, times[some]
        if not len(rows):
            continue
        parts = [len(rows) * np.array([1.0, log_gain]), pair_totals(rows).ravel(), _part(rows, None)]
        parts += [_part(rows, nuisance_basis(nuisance, times)) for nuisance in tried]
        total += np.concatenate(parts)
    return here.state, total


def _part(rows: FloatArray, basis: FloatArray | None) -> FloatArray:
    counts, products = pairwise_sums(rows, basis)
    rank = 0.0 if basis is None else float(min(basis.shape[1], len(rows)))
    return np.concatenate([[rank], upper_triangle(counts), upper_triangle(products)])


register_site_task(SiteTask(PairsQuestion, one_by_one(_pairs)))
