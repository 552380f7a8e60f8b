"""Rows to start paths from: those that are known, or draws where cells are missing.

In a linear network missing cells have a normal distribution (`feddbn.model.state`). In others they are drawn: many rows
are simulated on from where the history was complete, present cells are put in, and rows that explain these badly are
replaced by copies of rows that explain them well, in proportion to the density of what the noise must have been (a particle
filter).
"""

from __future__ import annotations

import warnings

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import CurvesWarning, DataError
from feddbn.model.network import Network
from feddbn.model.paths import drawn_windows
from feddbn.model.state import State, last_complete
from feddbn.model.steps import draw_shocks, steps_of

__all__ = ["drawn_rows"]

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
        return _filtered(dbn, start.rows, n, rng)
    e, V = np.linalg.eigh(start.covariance)
    draws = rng.normal(size=(n, len(e))) @ (V * np.sqrt(np.maximum(e, 0.0))).T
    return np.asarray(start.rows + draws.reshape(n, *start.rows.shape)[:, ::-1])


def _filtered(dbn: Network, rows: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
    """(n, p, d) draws of the last p of rows (m, d), NaN where a cell is missing."""
    p, rows = dbn.n_lags, rows[-_MOST_ROWS:]
    begin = last_complete(np.asarray(~np.isnan(rows).any(axis=1)), p)
    past = drawn_windows(dbn, n, rng) if begin is None else np.tile(rows[begin - p : begin], (n, 1, 1))
    going, log_weights = steps_of(dbn), np.zeros(n)
    for row in rows[0 if begin is None else begin :]:
        x = going.moment(past, draw_shocks(dbn, "gaussian", (n,), rng), row)
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
