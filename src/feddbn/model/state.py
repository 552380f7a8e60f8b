"""Where a history ends: its last n_lags rows, inferred where cells are missing.

The rows follow a Gaussian process that the network describes, so that missing cells have an exact distribution given all
present ones: the Kalman filter of the companion form, with present cells seen without error. It starts at the last n_lags
rows in a row that lack nothing, before which nothing matters; where there are none, from the stationary distribution
before the first row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.scaling import correlations
from feddbn.errors import DataError, ParameterError
from feddbn.model.dynamics import (
    companion,
    impact,
    innovation_covariance,
    reduced_coefficients,
    stationary_mean,
)
from feddbn.model.network import Network

__all__ = ["State", "known_state", "last_complete", "last_state"]


class State(NamedTuple):
    """The last p rows (p, d), oldest first; the (pd, pd) covariance of what is inferred, newest row first; cells inferred.

    With curves and missing cells, all rows as they are instead, NaN where a cell is missing.
    """

    rows: FloatArray
    covariance: FloatArray
    n_inferred: int = 0

    @property
    def is_anywhere(self) -> bool:
        """Whether nothing is known, so that paths begin where the process usually is."""
        return self.rows.size > 0 and bool(np.isnan(self.rows).all())


def known_state(rows: FloatArray) -> State:
    """The state of rows (p, d) that lack nothing; without lags there is nothing to know."""
    size = max(len(rows), 1) * rows.shape[1]
    return State(rows, np.zeros((size, size)))


def last_state(dbn: Network, rows: FloatArray) -> State:
    """Return the state after rows (n, d), oldest first, NaN where a cell is missing."""
    p = dbn.n_lags
    if len(rows) < p:
        raise DataError(f"history needs at least n_lags={p} rows, got {len(rows)}.")
    if np.any(np.isinf(rows)):
        raise DataError("history contains an infinite value; remove it or mark it as missing (NaN).")
    last = rows[len(rows) - p :]
    if not np.any(np.isnan(last)):
        return known_state(last)
    if np.all(np.isnan(rows)):
        raise DataError("history has no value at all; give rows of which at least some cells are present.")
    if dbn.bends:
        # Without a formula for missing cells: they are drawn when paths are (`feddbn.model.particles`).
        return State(rows, np.zeros((0, 0)), int(np.isnan(last).sum()))
    return _filtered(dbn, rows)


def _filtered(dbn: Network, rows: FloatArray) -> State:
    p, d = dbn.n_lags, dbn.d
    coefficients = reduced_coefficients(dbn)
    F = companion(coefficients)
    Q = np.zeros_like(F)
    Q[:d, :d] = innovation_covariance(dbn)
    constant = np.zeros(p * d)
    constant[:d] = dbn.intercept @ impact(dbn.W)
    begin = last_complete(np.asarray(~np.isnan(rows).any(axis=1)), p)
    if begin is None:
        try:
            mean = np.tile(stationary_mean(dbn), p)
        except ParameterError:
            whole = "one complete row" if p == 1 else f"{p} complete rows after each other"
            raise DataError(
                f"history lacks cells at its end and nowhere has {whole}, and the network is not stationary, so nothing "
                "says where it was before; fill the missing cells."
            ) from None
        P = np.asarray(scipy.linalg.solve_discrete_lyapunov(F.T, Q))
        begin = 0
    else:
        mean = rows[begin - p : begin][::-1].ravel()
        P = np.zeros_like(F)
    for row in rows[begin:]:
        mean = mean @ F + constant
        P = F.T @ P @ F + Q
        seen = np.flatnonzero(~np.isnan(row))
        if len(seen):
            gain = _gain(P, seen)
            mean = mean + (row[seen] - mean[seen]) @ gain
            P = P - P[:, seen] @ gain
            # Exactly so, also where noise_variances say that it could not have been.
            mean[seen] = row[seen]
            P[seen] = 0.0
            P[:, seen] = 0.0
            P = (P + P.T) / 2
    inferred = int(np.isnan(rows[len(rows) - p :]).sum())
    return State(mean.reshape(p, d)[::-1].copy(), np.asarray(P, dtype=np.float64), inferred)


def last_complete(complete: np.ndarray, p: int) -> int | None:
    """Where the last p complete rows in a row end; None if there are none."""
    missing_before = np.concatenate([[0], np.cumsum(~complete)])
    ends = np.flatnonzero(missing_before[p:] == missing_before[: len(missing_before) - p])
    return int(ends[-1]) + p if len(ends) else None


def _gain(P: FloatArray, seen: np.ndarray) -> FloatArray:
    """(m, pd) regression of the state on its cells `seen`; directions without variance tell nothing."""
    R, root = correlations(P[np.ix_(seen, seen)])
    inverse = np.linalg.pinv(R, rcond=1e-12, hermitian=True) / np.outer(root, root)
    return np.asarray(inverse @ P[seen])
