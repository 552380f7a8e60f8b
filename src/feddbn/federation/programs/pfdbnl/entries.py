"""Moments where sites hold different variables or lags: every entry has its own sum and its own count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray, IntArray
from feddbn.core.designs.recordings import SiteData
from feddbn.core.statistics.diagnostics import (
    ColumnStatistics,
    ScaleChoice,
    autocorrelation,
    choose_scale,
)
from feddbn.core.statistics.moments import Moments, nearest_positive
from feddbn.errors import DataError, ProtocolError
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import Here, SiteState, answers
from feddbn.federation.protocol.task import MOST_LAGS, Scope, ServerProgram, Task, View, names, wholes
from feddbn.federation.sums.gram import local_moments
from feddbn.federation.sums.statistics import Preparation, prepare

__all__ = ["Entries", "EntryMomentsQuestion", "PartialQuestion", "entry_moments_program", "own_lags"]


@dataclass(frozen=True, kw_only=True)
class PartialQuestion(RowsQuestion):
    """A question to sites that may lack variables or lags.

    Attributes
    ----------
    sites, lags
        Sites of one process and how many lags each uses, at most `n_lags`. Empty: all use `n_lags`, as in every study: a
        question of a study means the same at every site.
    """

    sites: tuple[str, ...] = names(default=())
    lags: tuple[int, ...] = wholes(0, MOST_LAGS, default=())

    def check(self) -> None:
        """Every site has its lags, none more than there are."""
        super().check()
        if len(self.lags) != len(self.sites) or max(self.lags, default=0) > self.n_lags:
            raise self.wrong("'lags' must have one number for each of 'sites', at most n_lags")

    def check_scope(self, scope: Scope) -> None:
        """All sites have the study's number of lags."""
        super().check_scope(scope)
        scope.require(not self.sites, self.name, "it names sites", "names-sites")

    def in_view(self, data: SiteData, site: str) -> tuple[View, ...]:
        """Rows of the variables and lags that a site has."""
        return (self.view(self.design_of(data.variables, self.lags_of(site))),)

    def lags_of(self, site: str) -> int:
        """Return the site's own number of lags."""
        return self._lags.get(site, self.n_lags)

    @cached_property
    def _lags(self) -> dict[str, int]:
        return dict(zip(self.sites, self.lags, strict=True))


@dataclass(frozen=True)
class Entries:
    """Which rows (of q) and columns (of d) of the federation's stack a site holds."""

    rows: IntArray
    columns: IntArray
    q: int

    @classmethod
    def of(cls, own: tuple[str, ...], variables: tuple[str, ...], own_lags: int, n_lags: int) -> Entries:
        """Positions of a site's variables and lags among the federation's."""
        unknown = [name for name in own if name not in variables]
        if unknown:
            raise ProtocolError(
                f"this site has the variable {unknown[0]!r}, which the study does not name; add it to variables="
                " or leave the column out."
            )
        d = len(variables)
        columns = np.array([variables.index(name) for name in own])
        rows = np.concatenate([lag * d + columns for lag in range(own_lags + 1)])
        return cls(rows, columns, (n_lags + 1) * d)

    @property
    def is_whole(self) -> bool:
        """Whether the site holds every entry, in the federation's order."""
        return len(self.rows) == self.q and bool(np.all(self.rows == np.arange(self.q)))

    def take(self, C: FloatArray) -> FloatArray:
        """Return the site's part of a (q, d) or (q,) array."""
        if self.is_whole:
            return C
        part: FloatArray = C[self.rows] if C.ndim == 1 else C[np.ix_(self.rows, self.columns)]
        return part


@dataclass(frozen=True, kw_only=True)
class EntryMomentsQuestion(PartialQuestion):
    """Totals, cross-products and counts of the entries a site holds, among zeros."""

    name = "gram.entries"
    purpose = "means and cross-products of the variables a site holds"


def own_lags(lags: Mapping[str, int], n_lags: int) -> dict[str, Any]:
    """What questions say of sites' lags; nothing where all have as many."""
    return {"sites": tuple(lags), "lags": tuple(lags.values())} if {*lags.values()} != {n_lags} else {}


def entry_moments_program(
    variables: tuple[str, ...],
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
        **own_lags(lags, n_lags),
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
