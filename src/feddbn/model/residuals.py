"""How well a network fits rows it is shown: residuals, likelihood, checks. Local: nothing leaves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.lagged import Block, lagged_rows
from feddbn.errors import ParameterError
from feddbn.model.additive import additive
from feddbn.model.calibration import rows_with_past
from feddbn.model.conditional_residuals import log_densities, quantile_residuals
from feddbn.model.inputs import Rows, positive_int, segments_of
from feddbn.model.network import Network

__all__ = ["log_likelihood", "normal_segments", "residual_diagnostics", "residual_segments"]


def residual_segments(dbn: Network, data: Rows | Sequence[Rows]) -> list[FloatArray]:
    """Residuals ``u_t = x_t - c - x_t W - sum_l x_{t-l} A_l``, less curves and products if there are any, one (n - p, d)
    array per usable stretch.
    """
    if dbn.conditionals:
        raise ParameterError(
            "variables of other kinds have no additive residuals; use dbn.quantile_residuals(data), standard normal if the"
            " network holds."
        )
    d = dbn.d
    C = dbn.adjacency_matrices.reshape(-1, d)
    curved = None if not dbn.bends else additive(dbn)
    found = []
    for segment in segments_of(data, dbn.variables, dbn.n_lags):
        rows = np.concatenate(list(lagged_rows([Block(segment)], dbn.n_lags)))
        u = rows[:, :d] - dbn.intercept - rows @ C
        found.append(u if curved is None else u - curved.of_rows(rows))
    return found


def normal_segments(dbn: Network, data: Rows | Sequence[Rows], rng: np.random.Generator) -> list[FloatArray]:
    """Residuals that are standard normal if the network holds, one (n - p, d) array per usable stretch.

    Those of variables of other kinds are `feddbn.model.conditional_residuals.quantile_residuals`; others are divided by their
    standard deviation.
    """
    if not dbn.conditionals:
        with np.errstate(divide="ignore", invalid="ignore"):
            return [u / np.sqrt(dbn.noise_variances) for u in residual_segments(dbn, data)]
    segments = segments_of(data, dbn.variables, dbn.n_lags, dbn.kinds)
    rows = (np.concatenate(list(lagged_rows([Block(segment)], dbn.n_lags))) for segment in segments)
    return [quantile_residuals(dbn, some, rng) for some in rows]


def log_likelihood(dbn: Network, data: Rows | Sequence[Rows]) -> float:
    """Log-likelihood of every usable row given the n_lags rows before it: Gaussian, or that of `conditionals`.

    ``sum_t [ log|det(I - W)| - 1/2 sum_j (log 2 pi v_j + u_tj^2 / v_j) ]``; the determinant is 1 for an
    acyclic W, also with curves.
    """
    if dbn.conditionals:
        return float(log_densities(dbn, rows_with_past(dbn, data)).sum())
    if np.any(dbn.noise_variances <= 0):
        raise ParameterError(
            "log_likelihood needs positive noise_variances, but one of this network's is 0 or less."
        )
    u = np.concatenate(residual_segments(dbn, data))
    log_det = np.linalg.slogdet(np.eye(dbn.d) - dbn.W)[1]
    quadratic = np.log(2 * np.pi * dbn.noise_variances) + u**2 / dbn.noise_variances
    return float(len(u) * log_det - 0.5 * quadratic.sum())


def residual_diagnostics(dbn: Network, data: Rows | Sequence[Rows], n_lags: int = 10) -> pd.DataFrame:
    """One row per variable: are its residuals centred, of the stated variance, and free of memory?

    Columns: n, mean, mean_p (t test of mean 0), variance, variance_ratio (to the network's),
    autocorrelation (lag 1), ljung_box and ljung_box_p (lags 1..n_lags, products within stretches only),
    normality_p (D'Agostino; NaN below 20 rows). A small p-value says the network misses something; degrees
    of freedom are not reduced for fitted weights. With variables of other kinds the residuals are those of
    `normal_segments`, drawn always with the same random numbers, and the network's variance is 1.
    """
    n_lags = positive_int(n_lags, "n_lags")
    expected = dbn.noise_variances
    if dbn.conditionals:
        segments, expected = normal_segments(dbn, data, np.random.default_rng(0)), np.ones(dbn.d)
    else:
        segments = residual_segments(dbn, data)
    u = np.concatenate(segments)
    # Imported here: it takes longer than the rest of the package, and commands that only read a network wait for it.
    from scipy import stats

    n = len(u)
    mean = u.mean(axis=0)
    variance = ((u - mean) ** 2).mean(axis=0)
    n_lags = min(n_lags, max(n - 1, 1))
    correlations = np.zeros((n_lags, dbn.d))
    with np.errstate(divide="ignore", invalid="ignore"):
        for lag in range(1, n_lags + 1):
            products = sum(
                ((s[lag:] - mean) * (s[:-lag] - mean)).sum(axis=0) for s in segments if len(s) > lag
            )
            correlations[lag - 1] = np.where(variance > 0, products / (n * variance), 0.0)
        weights = 1.0 / np.maximum(n - np.arange(1, n_lags + 1), 1)
        q = n * (n + 2) * (weights[:, None] * correlations**2).sum(axis=0)
        t = np.where(variance > 0, mean / np.sqrt(variance / max(n - 1, 1)), np.where(mean == 0, 0.0, np.inf))
        ratio = variance / expected
    normality = np.full(dbn.d, np.nan)
    if n >= 20:
        normality[variance > 0] = stats.normaltest(u[:, variance > 0]).pvalue
    return pd.DataFrame(
        {
            "n": n,
            "mean": mean,
            "mean_p": 2 * stats.t.sf(np.abs(t), max(n - 1, 1)),
            "variance": variance,
            "variance_ratio": ratio,
            "autocorrelation": correlations[0],
            "ljung_box": q,
            "ljung_box_p": stats.chi2.sf(q, n_lags),
            "normality_p": normality,
        },
        index=pd.Index(dbn.variables, name="variable"),
    )
