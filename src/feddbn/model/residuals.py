"""How well a network fits rows it is shown: residuals, likelihood, checks. Local: nothing leaves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import Block, lagged_rows
from feddbn.errors import ParameterError
from feddbn.model.inputs import Rows, segments_of
from feddbn.model.network import Network
from feddbn.settings import whole

__all__ = [
    "calibration_table",
    "log_likelihood",
    "normal_segments",
    "prediction_scores",
    "residual_diagnostics",
    "residual_segments",
    "rows_with_past",
]


def stretches_with_past(dbn: Network, data: Rows | Sequence[Rows]) -> list[FloatArray]:
    """(n - p, (p+1) d) rows with their past ``[x_t, x_{t-1}, ..., x_{t-p}]`` of each usable stretch."""
    segments = segments_of(data, dbn.variables, dbn.n_lags, dbn.kinds)
    return [np.concatenate(list(lagged_rows([Block(segment)], dbn.n_lags))) for segment in segments]


def rows_with_past(dbn: Network, data: Rows | Sequence[Rows]) -> FloatArray:
    """(n, (p+1) d) those of all usable stretches."""
    return np.concatenate(stretches_with_past(dbn, data))


def calibration_table(dbn: Network, data: Rows | Sequence[Rows], n_bins: int = 10) -> pd.DataFrame:
    """Frame variable, level, low, high, predicted, seen, error, n: predictions in bins of equal width.

    `predicted` is the mean of the probabilities in a bin, `seen` the share of rows in which the level was there, `error` the
    standard error of `seen` if the predictions hold. Empty bins are left out. Variables without levels have none.
    """
    n_bins = whole(1).check("n_bins", n_bins)
    if not any(kind.levels for kind in dbn.kinds):
        raise ParameterError(
            "calibration needs a variable with levels, and this network has none; use dbn.log_likelihood(data)."
        )
    rows = rows_with_past(dbn, data)
    parts = []
    for j, (kind, law) in enumerate(zip(dbn.kinds, dbn.mechanisms.laws(rows), strict=True)):
        if law.probabilities is None:
            continue
        for k in range(1 if kind.name == "binary" else 0, kind.n_levels):
            p, there = law.probabilities[:, k], rows[:, j] == k
            part = _binned(p, there, n_bins)
            part.insert(0, "variable", dbn.variables[j])
            part.insert(1, "level", kind.levels[k])
            parts.append(part)
    return pd.concat(parts, ignore_index=True)


def _binned(p: FloatArray, there: np.ndarray, n_bins: int) -> pd.DataFrame:
    place = np.minimum((p * n_bins).astype(int), n_bins - 1)
    n = np.bincount(place, minlength=n_bins)
    used = np.flatnonzero(n)

    def mean(values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(place, weights=values, minlength=n_bins)[used] / n[used])

    return pd.DataFrame(
        {
            "low": used / n_bins,
            "high": (used + 1) / n_bins,
            "predicted": mean(p),
            "seen": mean(there * 1.0),
            "error": np.sqrt(mean(p * (1 - p)) / n[used]),
            "n": n[used],
        }
    )


def prediction_scores(dbn: Network, data: Rows | Sequence[Rows]) -> pd.DataFrame:
    """One row per variable: kind, n, log_score, brier, error.

    `log_score` is the mean log density of the values (higher is better); `brier` the mean squared distance of P(1) from a
    binary value, summed over all levels of other variables with levels; `error` the root mean square of value less mean.
    """
    rows = rows_with_past(dbn, data)
    laws, density = dbn.mechanisms.laws(rows), dbn.mechanisms.log_densities(rows).mean(axis=0)
    brier, error = np.full(dbn.d, np.nan), np.full(dbn.d, np.nan)
    for j, law in enumerate(laws):
        if law.probabilities is not None:
            there = rows[:, j, None] == np.arange(law.probabilities.shape[1])
            total = ((law.probabilities - there) ** 2).sum(axis=1).mean()
            brier[j] = total / 2 if dbn.kinds[j].name == "binary" else total
        else:
            error[j] = np.sqrt(((rows[:, j] - law.mean) ** 2).mean())
    return pd.DataFrame(
        {
            "kind": [kind.name for kind in dbn.kinds],
            "n": len(rows),
            "log_score": density,
            "brier": brier,
            "error": error,
        },
        index=pd.Index(dbn.variables, name="variable"),
    )


def residual_segments(dbn: Network, data: Rows | Sequence[Rows]) -> list[FloatArray]:
    """Residuals ``u_t = x_t - c - x_t W - sum_l x_{t-l} A_l``, less curves and products if there are any, one (n - p, d)
    array per usable stretch.
    """
    return [dbn.mechanisms.residuals(rows) for rows in stretches_with_past(dbn, data)]


def normal_segments(dbn: Network, data: Rows | Sequence[Rows], rng: np.random.Generator) -> list[FloatArray]:
    """Residuals that are standard normal if the network holds, one (n - p, d) array per usable stretch.

    Those of counts and levels are drawn from the part of the quantiles that a value stands for; others are divided by
    their standard deviation.
    """
    return [dbn.mechanisms.normal_residuals(rows, rng) for rows in stretches_with_past(dbn, data)]


def log_likelihood(dbn: Network, data: Rows | Sequence[Rows]) -> float:
    """Log-likelihood of every usable row given the n_lags rows before it: Gaussian, or that of `conditionals`.

    ``sum_t [ log|det(I - W)| - 1/2 sum_j (log 2 pi v_j + u_tj^2 / v_j) ]``; the determinant is 1 for an
    acyclic W, also with curves.
    """
    if not dbn.mechanisms.has_density:
        raise ParameterError(
            "log_likelihood needs positive noise_variances, but one of this network's is 0 or less."
        )
    rows = rows_with_past(dbn, data)
    return float(len(rows) * dbn.mechanisms.log_jacobian + dbn.mechanisms.log_densities(rows).sum())


def residual_diagnostics(dbn: Network, data: Rows | Sequence[Rows], n_lags: int = 10) -> pd.DataFrame:
    """One row per variable: are its residuals centred, of the stated variance, and free of memory?

    Columns: n, mean, mean_p (t test of mean 0), variance, variance_ratio (to the network's),
    autocorrelation (lag 1), ljung_box and ljung_box_p (lags 1..n_lags, products within stretches only),
    normality_p (D'Agostino; NaN below 20 rows). A small p-value says the network misses something; degrees
    of freedom are not reduced for fitted weights. With variables of other kinds the residuals are those of
    `normal_segments`, drawn always with the same random numbers, and the network's variance is 1.
    """
    n_lags = whole(1).check("n_lags", n_lags)
    going, rng = dbn.mechanisms, np.random.default_rng(0)
    segments = [going.checked_residuals(rows, rng) for rows in stretches_with_past(dbn, data)]
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
        ratio = variance / going.residual_variances
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
