"""Which nuisances recordings have: means, trends and cycles of their own, from one Gram matrix for each answer.

    common   x_t = c        + x_{t-1} B_1 + ... + u_t          one intercept c for all rows
    own      x_t = b_r(t)   + x_{t-1} B_1 + ... + u_t          b_r: a mean, a line, a cycle of recording r

The residual covariances of each follow from the scatter of lagged rows off its nuisances (Frisch-Waugh-Lovell). With S the
sums of squares and products of residuals over their degrees of freedom, and r the number of nuisance parameters of one
variable over all recordings, the evidence for the second is

    n (log det S_common - log det S_own) - d (r_own - r_common) log n

BIC with covariances that do not shrink because more is fitted: where rows are few, those of maximum likelihood would.
Recordings that are short, or whose means hardly differ, keep a common one.
"""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.scaling import correlations

__all__ = ["evidence_for_nuisances", "log_det_of_residuals"]

_RIDGE = 1e-10


def evidence_for_nuisances(common: FloatArray, own: FloatArray, n: float, rank: float, d: int) -> float:
    """Return the evidence above: positive if recordings have these nuisances, 0 if there are too few rows to tell.

    Parameters
    ----------
    common, own
        (q, q) scatter of lagged rows about their common mean, and off the nuisances of their recordings.
    n, rank
        Number of rows, and of nuisance parameters of one variable over all recordings.
    d
        Number of variables: the first d columns are the present moment.
    """
    n_lagged = len(common) - d
    free_common, free_own = n - 1 - n_lagged, n - rank - n_lagged
    if rank < 2 or free_own <= d:
        return 0.0
    ratio = log_det_of_residuals(common, d) - log_det_of_residuals(own, d)
    ratio -= d * float(np.log(free_common / free_own))
    return n * ratio - d * (rank - 1) * float(np.log(n))


def log_det_of_residuals(scatter: FloatArray, d: int) -> float:
    """Return log det of what is left of the present moment after a regression on all lags."""
    R, norm = correlations(scatter)
    past = R[d:, d:] + _RIDGE * np.eye(len(R) - d)
    left = R[:d, :d] - R[:d, d:] @ np.linalg.solve(past, R[d:, :d])
    return float(np.linalg.slogdet(left + _RIDGE * np.eye(d))[1] + 2.0 * np.log(norm[:d]).sum())
