"""Whether predicted probabilities happen as often as they say, and how good predictions are, on rows held out.

Predictions are those of each variable given its causes: the past, and causes within the moment as they were. Local:
nothing leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.lagged import Block, lagged_rows
from feddbn.errors import ParameterError
from feddbn.model.conditional_residuals import log_densities
from feddbn.model.conditional_steps import ConditionalSteps
from feddbn.model.inputs import Rows, positive_int, segments_of
from feddbn.model.laws import Levels
from feddbn.model.network import Network

__all__ = ["calibration_table", "prediction_scores", "rows_with_past"]


def rows_with_past(dbn: Network, data: Rows | Sequence[Rows]) -> FloatArray:
    """(n, (p+1) d) lagged rows ``[x_t, x_{t-1}, ..., x_{t-p}]`` of all usable stretches."""
    segments = segments_of(data, dbn.variables, dbn.n_lags, dbn.kinds)
    return np.concatenate(list(lagged_rows([Block(segment) for segment in segments], dbn.n_lags)))


def calibration_table(dbn: Network, data: Rows | Sequence[Rows], n_bins: int = 10) -> pd.DataFrame:
    """Frame variable, level, low, high, predicted, seen, error, n: predictions in bins of equal width.

    `predicted` is the mean of the probabilities in a bin, `seen` the share of rows in which the level was there, `error` the
    standard error of `seen` if the predictions hold. Empty bins are left out. Variables without levels have none.
    """
    n_bins = positive_int(n_bins, "n_bins")
    if not any(kind.levels for kind in dbn.kinds):
        raise ParameterError(
            "calibration needs a variable with levels, and this network has none; use dbn.log_likelihood(data)."
        )
    rows = rows_with_past(dbn, data)
    parts = []
    for j, (kind, law) in enumerate(zip(dbn.kinds, ConditionalSteps(dbn).laws(rows), strict=True)):
        if not isinstance(law, Levels):
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
    if not dbn.conditionals:
        raise ParameterError(
            "scores by kind need a network with conditionals, and this one has none; use dbn.log_likelihood(data)."
        )
    rows = rows_with_past(dbn, data)
    laws, density = ConditionalSteps(dbn).laws(rows), log_densities(dbn, rows).mean(axis=0)
    brier, error = np.full(dbn.d, np.nan), np.full(dbn.d, np.nan)
    for j, law in enumerate(laws):
        if isinstance(law, Levels):
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
