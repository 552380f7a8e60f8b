"""Whether a result rests on the units of the variables."""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray

__all__ = ["varsortability"]


def varsortability(W: BoolArray, variances: FloatArray) -> float:
    """Share of directed paths along which the variance increases (Reisach, Seiler and Weichwald 2021).

    1: the order of the variances is the order of the network, so that methods which assume equal noise
    scales can read it off the units. 0.5: the variances say nothing. NaN without edges.

    Parameters
    ----------
    W
        (d, d) True where there is an edge.
    variances
        (d,) of the variables.
    """
    edges = np.asarray(W, dtype=bool)
    sources, targets = np.nonzero(edges)
    starts = np.flatnonzero(np.r_[True, np.diff(sources) > 0][: len(sources)])
    reach = edges.copy()
    n_paths = increasing = 0.0
    tolerance = 1e-9 * variances.max(initial=0.0)
    for _ in range(len(edges)):
        if not reach.any():
            break
        causes, effects = np.nonzero(reach)
        difference = variances[effects] - variances[causes]
        n_paths += len(causes)
        increasing += float((difference > tolerance).sum()) + 0.5 * float(
            (np.abs(difference) <= tolerance).sum()
        )
        # One step more: where a variable's effects lead to.
        farther = np.logical_or.reduceat(reach[targets], starts, axis=0)
        reach = np.zeros_like(edges)
        reach[sources[starts]] = farther
    return increasing / n_paths if n_paths else float("nan")
