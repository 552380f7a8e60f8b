"""Noise that remembers itself, taken off second moments.

If ``x_t = x_t W + sum_l x_{t-l} A_l + u_t`` and every noise has the same memory, ``u_t = rho u_{t-1} + v_t``, then
``y_t = x_t - rho x_{t-1}`` follows the same network with the white noise v (Cochrane and Orcutt 1949). The moments of
``[y_t, ..., y_{t-p}]`` are linear in those of ``[x_t, ..., x_{t-p-1}]``, so a server can change to y without any row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize_scalar

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.known_inputs import output_columns
from feddbn.core.statistics.moments import Moments
from feddbn.core.statistics.scaling import correlations

__all__ = ["memory_filter", "memory_of_noise", "without_memory"]

_LARGEST = 0.98
_RIDGE = 1e-10


def memory_filter(rho: float, n_lags: int, d: int) -> FloatArray:
    """((p+2) d, (p+1) d) matrix F: ``[y_t, ..., y_{t-p}] = [x_t, ..., x_{t-p-1}] F``."""
    lags = np.eye(n_lags + 2, n_lags + 1) - rho * np.eye(n_lags + 2, n_lags + 1, k=-1)
    return np.asarray(np.kron(lags, np.eye(d)), dtype=np.float64)


def without_memory(moments: Moments, rho: float, d: int) -> Moments:
    """Moments of y over lags 0..p from those of x over lags 0..p+1."""
    F = memory_filter(rho, moments.q // d - 2, d)
    scatter = F.T @ moments.scatter @ F
    return Moments(moments.n, moments.mean @ F, (scatter + scatter.T) / 2)


def memory_of_noise(moments: Moments, d: int, inputs: Sequence[int] = ()) -> float:
    """The rho of largest likelihood if every variable depends on all earlier ones, from moments over lags 0..p+1.

    `inputs` are positions of variables that only act on others: the likelihood is that of the others given them.
    """
    R, root = correlations(moments.scatter)
    plain = Moments(
        moments.n, np.zeros(len(R)), R * np.outer(root, root) / np.outer(_tiled(root, d), _tiled(root, d))
    )

    def loss(rho: float) -> float:
        S, m = output_columns(without_memory(plain, rho, d).scatter, d, inputs)
        past = S[m:, m:] + _RIDGE * np.trace(S[m:, m:]) / len(S) * np.eye(len(S) - m)
        left = S[:m, :m] - S[:m, m:] @ np.linalg.solve(past, S[m:, :m]) if len(S) > m else S[:m, :m]
        return float(np.linalg.slogdet(left + _RIDGE * np.trace(left) / m * np.eye(m))[1])

    grid = np.linspace(-0.9, 0.9, 19)
    start = float(grid[int(np.argmin([loss(rho) for rho in grid]))])
    low, high = max(start - 0.1, -_LARGEST), min(start + 0.1, _LARGEST)
    return float(minimize_scalar(loss, bounds=(low, high), method="bounded").x)


def _tiled(root: FloatArray, d: int) -> FloatArray:
    """The scale of each variable, the same at every lag: a filter mixes lags, so they must be in the same units."""
    return np.tile(np.maximum(root[:d], 1e-300), len(root) // d)
