"""Edges that lines only seem to need: where effects are curved, or meet in a common effect.

Where residuals are curved and no network of curves is clearly better, lines stay, and make up for what they cannot say by
edges between causes, or effects, of the same variables. So each edge is held against more than lines:

beside curves    what one end tells of the other, as a line or as a curve, given the other causes of both as lines, curves and
                 products. Where it does not pay for itself (BIC), the edge is in doubt.
shadows          ends that go along with each other neither plainly nor given all that came before do so only because a common
                 effect is in the model: such a link is in doubt, too.
"""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.orders.groups import Groups
from feddbn.core.statistics.moments import Moments, correlations

_NOTHING = 2.0
_RIDGE = 1e-6


def doubtful_edges_of(support: BoolArray, curved: Moments, groups: Groups) -> tuple[BoolArray, BoolArray]:
    """(d, d) links, symmetric, and (p d, d) delayed edges of a network that are in doubt.

    Parameters
    ----------
    support
        ((p+1) d, d) the network.
    curved
        Moments of lines and curves, counted as evidence.
    groups
        Which columns are the curve of which edge.
    """
    q, d = support.shape
    R, n = correlations(curved.scatter)[0], curved.n
    links, lagged = np.zeros((d, d), dtype=bool), np.zeros((q - d, d), dtype=bool)
    assert groups.edges is not None
    products = [(set(groups.edges[t]), groups.columns[t]) for t in range(2 * q, len(groups.columns))]
    shadows = _shadows(R[:q, :q], n, d)
    for m, j in np.argwhere(support).tolist():
        ends = (m, j)
        others = {int(k) for end in ends if end < d for k in np.flatnonzero(support[:, end])} - {*ends}
        columns = [c for k in sorted(others) for t in (k, q + k) for c in groups.columns[t]]
        columns += [c for causes, place in products if causes <= others for c in place]
        is_weak = _gain(R, n, j, [m], columns) < 0.0
        for end, source in ((j, m), (m, j)):
            block = [*groups.columns[source], *groups.columns[q + source]]
            is_weak &= end >= d or _gain(R, n, end, block, columns) < 0.0
        if m >= d:
            lagged[m - d, j] = is_weak
        elif is_weak or shadows[m, j]:
            links[m, j] = links[j, m] = True
    return links, lagged


def _gain(R: FloatArray, n: float, end: int, columns: list[int], given: list[int]) -> float:
    """By how much columns pay for themselves in the regression of an end on them and others, by BIC."""
    both = [end, *columns]
    left = R[np.ix_(both, both)]
    if given:
        M = R[np.ix_(given, given)] + _RIDGE * np.eye(len(given))
        left = left - R[np.ix_(both, given)] @ np.linalg.solve(M, R[np.ix_(given, both)])
    left = left + _RIDGE * np.eye(len(both))
    share = float(left[0, 1:] @ np.linalg.solve(left[1:, 1:], left[1:, 0])) / left[0, 0]
    return -n * float(np.log1p(-min(share, 1 - 1e-12))) - len(columns) * float(np.log(n))


def _shadows(R: FloatArray, n: float, d: int) -> BoolArray:
    """(d, d) pairs that go along with each other neither plainly nor given all lags."""
    left = R[:d, :d]
    if len(R) > d:
        past = R[d:, d:] + _RIDGE * np.eye(len(R) - d)
        left = left - R[:d, d:] @ np.linalg.solve(past, R[d:, :d])
    plain, given = (np.sqrt(n) * np.abs(correlations(one)[0]) for one in (R[:d, :d], left))
    return np.asarray((plain < _NOTHING) & (given < _NOTHING))
