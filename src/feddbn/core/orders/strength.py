"""How much of each variable its parents explain: an effect size that orders edges whose probabilities all are 1.

With b the least-squares weights of the parents of j in standard deviations and r their correlations with x_j,

    R^2 = sum_m b_m r_m

so that ``b_m r_m`` is the share of the variance of x_j that column m explains (Pratt 1987). Shares of the lags of one source
are added: weights of neighbouring lags that cancel explain nothing together. A share below 0 belongs to a source that acts
against its correlation with the target and only corrects what other parents have in common; slow variables have many of
these. Shares depend neither on units nor on the number of rows.
"""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import FloatArray

__all__ = ["explained_shares"]


def explained_shares(scatter: FloatArray, C: FloatArray) -> FloatArray:
    """Return (d, d), [from, to]: the share of each target's variance that each source explains over all lags.

    The shares of a target add up to its R^2.

    Parameters
    ----------
    scatter
        (q, q) sums of squares and products of ``[x_t, ..., x_{t-p}]`` about their means.
    C
        (q, d) least-squares weights of a network on the same rows.
    """
    d = C.shape[1]
    variance = np.diag(scatter)[:d]
    shares = np.divide(C * scatter[:, :d], variance, out=np.zeros_like(C), where=variance > 0)
    total: FloatArray = shares.reshape(-1, d, d).sum(axis=0)
    return total
