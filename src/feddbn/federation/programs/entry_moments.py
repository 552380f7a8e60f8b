"""Moments where sites hold different variables or lags: every entry has its own sum and its own count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.completion import nearest_positive
from feddbn.errors import DataError
from feddbn.federation.programs.pfdbnl.asked import own_number
from feddbn.federation.programs.pfdbnl.state import Entries
from feddbn.federation.programs.statistics import Preparation, Summary, local_moments, prepare
from feddbn.federation.protocol.site import SiteData, SiteState, SiteTask, register_site_task
from feddbn.federation.protocol.task import ServerProgram, Task

__all__ = ["entry_moments_program"]


def entry_moments_program(
    variables: tuple[str, ...], sites: tuple[str, ...], lags: Mapping[str, int], center: str, scale: str
) -> ServerProgram[tuple[Preparation, FloatArray]]:
    """Return the preparation and the federation's (q, q) second moments of prepared variables, entry by entry.

    Raises
    ------
    DataError
        If no site holds some pair of entries together: nothing can then be said about an edge between them.
    """
    n_lags, d = max(lags.values()), len(variables)
    q = (n_lags + 1) * d
    params = {
        "n_lags": n_lags,
        "variables": variables,
        "center": "recording" if center == "recording" else "none",
        "names": sites,
        "lags": tuple(lags[name] for name in sites),
    }
    total = (yield Task("entry-moments", params=params)).value  # type: ignore[arg-type]
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
    with np.errstate(divide="ignore", invalid="ignore"):
        r = np.where(variance[:d] > 0, lagged / variance[:d], 0.0)
    preparation = prepare(Summary(rows, mean, variance, np.clip(r, -0.99, 0.99)), d, center, scale)
    c, s = preparation.center, preparation.scale
    F = (cross / counts - np.outer(mean, c) - np.outer(c, mean) + np.outer(c, c)) / np.outer(s, s)
    return preparation, nearest_positive(F)


def _entry(i: int, variables: tuple[str, ...]) -> str:
    lag, k = divmod(i, len(variables))
    return repr(variables[k]) + (f" at lag {lag}" if lag else "")


def _run(data: SiteData, state: SiteState, task: Task) -> tuple[SiteState, FloatArray]:
    variables: tuple[str, ...] = tuple(task.params["variables"])  # type: ignore[arg-type]
    own_lags, n_lags = own_number(task.params, "lags"), int(task.params["n_lags"])  # type: ignore[arg-type]
    entries = Entries.of(tuple(data.variables), variables, own_lags, n_lags)
    own = replace(task, params={**task.params, "variables": tuple(data.variables), "n_lags": own_lags})
    state, moments = local_moments(data, state, own)
    q = entries.q
    totals, cross, counts = np.zeros(q), np.zeros((q, q)), np.zeros((q, q))
    block = np.ix_(entries.rows, entries.rows)
    totals[entries.rows] = moments.n * moments.mean
    cross[block] = moments.about(np.zeros(moments.q))
    counts[block] = moments.n
    return state, np.concatenate([[moments.n], totals, cross.ravel(), counts.ravel()])


register_site_task(
    SiteTask("entry-moments", _run, "means and cross-products of the variables a site holds", needs_name=True)
)
