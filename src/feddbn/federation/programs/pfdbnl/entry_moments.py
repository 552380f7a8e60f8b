"""Moments where sites hold different variables or lags: every entry has its own sum and its own count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.moments import Moments, nearest_positive
from feddbn.errors import DataError
from feddbn.federation.programs.pfdbnl.entries import Entries, PartialQuestion
from feddbn.federation.programs.statistics import (
    ColumnStatistics,
    Preparation,
    ScaleChoice,
    autocorrelation,
    choose_scale,
    local_moments,
    prepare,
)
from feddbn.federation.protocol.site import Here, SiteState, answers
from feddbn.federation.protocol.task import ServerProgram, Task

__all__ = ["EntryMomentsQuestion", "entry_moments_program"]


@dataclass(frozen=True, kw_only=True)
class EntryMomentsQuestion(PartialQuestion):
    """Totals, cross-products and counts of the entries a site holds, among zeros."""

    name = "entry-moments"
    purpose = "means and cross-products of the variables a site holds"


def entry_moments_program(
    variables: tuple[str, ...],
    sites: tuple[str, ...],
    lags: Mapping[str, int],
    center: str,
    scale: str,
    inputs: tuple[int, ...] = (),
) -> ServerProgram[tuple[Preparation, FloatArray, ScaleChoice]]:
    """Return the preparation, the federation's (q, q) second moments of prepared variables, entry by entry, and the scale.

    `inputs` are positions of variables that only act on others.

    Raises
    ------
    DataError
        If no site holds some pair of entries together: nothing can then be said about an edge between them.
    """
    n_lags, d = max(lags.values()), len(variables)
    q = (n_lags + 1) * d
    question = EntryMomentsQuestion(
        n_lags=n_lags,
        variables=variables,
        center="recording" if center == "recording" else "none",
        sites=sites,
        lags=tuple(lags[name] for name in sites),
    )
    total = (yield Task(question)).value
    rows = float(total[0])
    totals, cross, counts = total[1 : 1 + q], *total[1 + q :].reshape(2, q, q)
    if np.any(counts == 0):
        i, j = (int(k) for k in np.argwhere(counts == 0)[0])
        first, second = _entry(i, variables), _entry(j, variables)
        raise DataError(
            f"no site holds {first} and {second} together, so an edge between them cannot be learned; leave one of "
            "the variables out, or lower n_lags."
        )
    n = np.diag(counts)
    mean = totals / n
    variance = np.diag(cross) / n - mean * mean
    lagged = (
        np.diag(cross, k=d)[:d] / np.diag(counts, k=d)[:d] - mean[:d] * mean[d : 2 * d]
        if n_lags
        else np.zeros(d)
    )
    summary = ColumnStatistics(rows, mean, variance, autocorrelation(lagged, variance[:d]))
    covariance = nearest_positive(cross / counts - np.outer(mean, mean))
    known = Moments(rows, mean, rows * covariance)
    chosen = choose_scale(scale, d, known, one_network=False, inputs=inputs)
    preparation = prepare(summary, d, center, chosen.rule)
    c, s = preparation.center, preparation.scale
    F = (cross / counts - np.outer(mean, c) - np.outer(c, mean) + np.outer(c, c)) / np.outer(s, s)
    return preparation, nearest_positive(F), chosen


def _entry(i: int, variables: tuple[str, ...]) -> str:
    lag, k = divmod(i, len(variables))
    return repr(variables[k]) + (f" at lag {lag}" if lag else "")


@answers(EntryMomentsQuestion)
def _answer(here: Here, question: EntryMomentsQuestion) -> tuple[SiteState, FloatArray]:
    own_lags = question.lags_of(here.name)
    entries = Entries.of(tuple(here.data.variables), question.variables, own_lags, question.n_lags)
    state, moments = local_moments(here, question, question.design_of(here.data.variables, own_lags))
    q = question.q
    totals, cross, counts = np.zeros(q), np.zeros((q, q)), np.zeros((q, q))
    block = np.ix_(entries.rows, entries.rows)
    totals[entries.rows] = moments.n * moments.mean
    cross[block] = moments.about(np.zeros(moments.q))
    counts[block] = moments.n
    return state, np.concatenate([[moments.n], totals, cross.ravel(), counts.ravel()])
