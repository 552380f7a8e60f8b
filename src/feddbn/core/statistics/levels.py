"""Whether recordings share their means, from two Gram matrices.

    common   x_t = c   + x_{t-1} B_1 + ... + u_t          one intercept c for all rows
    own      x_t = c_r + x_{t-1} B_1 + ... + u_t          one for each of R recordings

The residual covariances of both follow from the scatter about the common mean and from the scatter within recordings
(Frisch-Waugh-Lovell). With S the sums of squares and products of residuals over their degrees of freedom, the evidence is

    n (log det S_common - log det S_own) - d (R - 1) log n

BIC with covariances that do not shrink because more is fitted: where rows are few, those of maximum likelihood would.
Recordings that are short, or whose means hardly differ, keep a common one.
"""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.scaling import correlations

__all__ = ["evidence_for_own_levels"]

_RIDGE = 1e-10


def evidence_for_own_levels(
    common: FloatArray, within: FloatArray, n: float, n_recordings: float, d: int
) -> float:
    """Return the evidence above: positive if recordings have means of their own, 0 if there are too few rows to tell.

    Parameters
    ----------
    common, within
        (q, q) scatter of lagged rows about their mean, and about the means of their recordings.
    n, n_recordings
        Number of rows and of recordings with any.
    d
        Number of variables: the first d columns are the present moment.
    """
    n_lagged = len(common) - d
    free_common, free_own = n - 1 - n_lagged, n - n_recordings - n_lagged
    if n_recordings < 2 or free_own <= d:
        return 0.0
    ratio = _log_det_of_residuals(common, d) - _log_det_of_residuals(within, d)
    ratio -= d * float(np.log(free_common / free_own))
    return n * ratio - d * (n_recordings - 1) * float(np.log(n))


def _log_det_of_residuals(scatter: FloatArray, d: int) -> float:
    """Return log det of what is left of the present moment after a regression on all lags."""
    R, norm = correlations(scatter)
    past = R[d:, d:] + _RIDGE * np.eye(len(R) - d)
    left = R[:d, :d] - R[:d, d:] @ np.linalg.solve(past, R[d:, :d])
    return float(np.linalg.slogdet(left + _RIDGE * np.eye(d))[1] + 2.0 * np.log(norm[:d]).sum())
