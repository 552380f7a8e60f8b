"""How strong a hidden cause would have to be to explain an effect away (Cinelli and Hazlett 2020).

A regression weight with t statistic t and `left` degrees of freedom has ``f^2 = t^2 / left``. A hidden common cause that
explains a share RV of what is left of both the cause and the target, and no less, brings it to nothing:

    RV = (sqrt(f^4 + 4 f^2) - f^2) / 2
"""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.statistics.moments import Moments

__all__ = ["edge_robustness", "robustness_value"]

_COLLINEAR = 1e-10
_LARGEST = 1e100


def robustness_value(t: FloatArray | float, left: float) -> FloatArray:
    """Share of what is left of cause and target that a hidden cause must explain, from a t statistic."""
    # The same as the formula above, without its cancellation and overflow for large t.
    f = np.minimum(np.abs(np.asarray(t, dtype=np.float64)) / np.sqrt(left), _LARGEST)
    return np.where(f > 0, 2.0 / (1.0 + np.sqrt(1.0 + np.square(2.0 / np.maximum(f, 1.0 / _LARGEST)))), 0.0)


def edge_robustness(moments: Moments, support: BoolArray) -> FloatArray:
    """(q, d) robustness values of the edges of a network: regressions of every variable on its causes; 0 elsewhere."""
    S, found = moments.scatter, np.zeros(support.shape)
    for j in range(support.shape[1]):
        on = np.flatnonzero(support[:, j])
        left = moments.n - 1 - len(on)
        if not len(on) or left < 1:
            continue
        inverse = np.linalg.pinv(S[np.ix_(on, on)], rcond=_COLLINEAR, hermitian=True)
        beta = inverse @ S[on, j]
        rss = max(float(S[j, j] - beta @ S[on, j]), 1e-300)
        t = beta / np.sqrt(np.maximum(np.diag(inverse) * rss / left, 1e-300))
        found[on, j] = robustness_value(t, left)
    return found
