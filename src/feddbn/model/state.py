"""Rows to start paths from: those that are known, or draws where cells are missing.

In a linear network missing cells have a normal distribution. In others they are drawn: many rows
are simulated on from where the history was complete, present cells are put in, and rows that explain these badly are
replaced by copies of rows that explain them well, in proportion to the density of what the noise must have been (a particle
filter).
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import scipy.linalg

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.moments import correlations
from feddbn.errors import CurvesWarning, DataError, ParameterError
from feddbn.model.dynamics import (
    companion,
    impact,
    innovation_covariance,
    reduced_coefficients,
    stationary_mean,
)
from feddbn.model.network import Network
from feddbn.model.paths import drawn_windows

__all__ = ["State", "drawn_rows", "known_state", "last_complete", "last_state"]


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
        # Without a formula for missing cells: they are drawn when paths are (`drawn_rows`).
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


# What lies further back hardly matters, and would cost its time.
_MOST_ROWS = 200
_FEW = 50


def drawn_rows(dbn: Network, start: State, n: int, rng: np.random.Generator) -> FloatArray:
    """(1 or n, p, d) rows to start n paths from: all the same unless some of their cells were missing."""
    if start.is_anywhere:
        return drawn_windows(dbn, n, rng)
    if start.n_inferred == 0:
        return start.rows[None]
    if dbn.bends:
        return _particles(dbn, start.rows, n, rng)
    e, V = np.linalg.eigh(start.covariance)
    draws = rng.normal(size=(n, len(e))) @ (V * np.sqrt(np.maximum(e, 0.0))).T
    return np.asarray(start.rows + draws.reshape(n, *start.rows.shape)[:, ::-1])


def _particles(dbn: Network, rows: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
    """(n, p, d) draws of the last p of rows (m, d), NaN where a cell is missing."""
    p, rows = dbn.n_lags, rows[-_MOST_ROWS:]
    begin = last_complete(np.asarray(~np.isnan(rows).any(axis=1)), p)
    past = drawn_windows(dbn, n, rng) if begin is None else np.tile(rows[begin - p : begin], (n, 1, 1))
    going, log_weights = dbn.mechanisms, np.zeros(n)
    for row in rows[0 if begin is None else begin :]:
        x = going.step(past, going.shocks("gaussian", (n,), rng), row)
        seen = ~np.isnan(row)
        log_weights += going.log_weights(past, x, seen)
        past = np.concatenate([past[:, 1:], x[:, None]], axis=1)
        if seen.any():
            log_weights, past = _resampled(log_weights, past, rng)
    return past


def _resampled(
    log_weights: FloatArray, past: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Rows in proportion to their weights, each at distances of 1/n from a common random point."""
    top = log_weights.max()
    if not np.isfinite(top):
        raise DataError(
            "history has cells that the network says are impossible; check their units, or fill them."
        )
    weights = np.exp(log_weights - top)
    n = len(weights)
    if weights.sum() ** 2 / (weights**2).sum() < _FEW:
        warnings.warn(
            "few simulated rows agree with the present cells of the history where others are missing, so the forecast rests"
            " on few; check the history, or fill its missing cells.",
            CurvesWarning,
            stacklevel=2,
        )
    steps = (rng.random() + np.arange(n)) / n
    chosen = np.searchsorted(np.cumsum(weights) / weights.sum(), steps)
    return np.zeros(n), past[np.minimum(chosen, n - 1)]
