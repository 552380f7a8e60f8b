"""What a change of one variable does later in a network with curves: it depends on the value, so it is simulated.

Pairs of paths share their start and all their noise. In the one the source is set to `at` for one moment, in the other to
``at + by``; what differs later is the effect.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.errors import CurvesWarning, ParameterError
from feddbn.model.edge_effects import origin_and_scale
from feddbn.model.inputs import (
    RandomState,
    Rows,
    is_number,
    positive_int,
    random_generator,
    rows_of,
    variable_index,
)
from feddbn.model.network import Network
from feddbn.model.noise import draw_noise
from feddbn.model.particles import drawn_rows
from feddbn.model.paths import curved_paths, drawn_windows, ranges_seen
from feddbn.model.state import last_state

__all__ = ["Changes", "changes_table", "expected_changes"]


class Changes(NamedTuple):
    """Expected changes (horizon+1, d) of all variables, their Monte-Carlo standard errors, and from where to where."""

    mean: FloatArray
    error: FloatArray
    at: float
    by: float


def expected_changes(
    dbn: Network,
    source: str | int,
    horizon: int,
    *,
    at: float | None = None,
    by: float | None = None,
    n_paths: int = 2000,
    random_state: RandomState = None,
    history: Rows | None = None,
) -> Changes:
    """Return what setting `source` to ``at + by`` instead of `at`, for one moment, changes in every variable.

    Parameters
    ----------
    at, by
        In the units of the source; by default the origin and the scale of its functions.
    history
        Rows before that moment. Without them, pairs begin in states that the process visits by itself.
    """
    horizon = positive_int(horizon, "horizon", 0)
    n = positive_int(n_paths, "n_paths", 2)
    i = variable_index(source, dbn.variables, "source")
    origin, scale = origin_and_scale(dbn, i)
    begin = origin if at is None else _finite(at, "at")
    step = scale if by is None else _finite(by, "by")
    low, high = (bound[i] for bound in ranges_seen(dbn))
    if not low <= begin <= high or not low <= begin + step <= high:
        warnings.warn(
            f"{dbn.variables[i]!r} from {begin:.4g} to {begin + step:.4g} is not within the range seen,"
            f" {low:.4g} to {high:.4g}; the effect rests on straight lines drawn further.",
            CurvesWarning,
            stacklevel=4,
        )
    rng = random_generator(random_state)
    start = _starts(dbn, history, n, rng)
    shocks = draw_noise("gaussian", dbn.noise_variances, (n, horizon + 1), rng)
    held = np.full((horizon + 1, dbn.d), np.nan)
    held[0, i] = begin
    before = curved_paths(dbn, start, held, shocks)
    held[0, i] = begin + step
    change = curved_paths(dbn, start, held, shocks) - before
    return Changes(change.mean(axis=0), change.std(axis=0) / np.sqrt(n), begin, step)


def changes_table(dbn: Network, target: str | int, changes: Changes) -> pd.DataFrame:
    """One row per horizon: at, by, total, error (Monte-Carlo standard error of the total) and cumulated total."""
    j = variable_index(target, dbn.variables, "target")
    return pd.DataFrame(
        {
            "horizon": np.arange(len(changes.mean)),
            "at": changes.at,
            "by": changes.by,
            "total": changes.mean[:, j],
            "error": changes.error[:, j],
            "cumulative": np.cumsum(changes.mean[:, j]),
        }
    )


def _starts(dbn: Network, history: Rows | None, n: int, rng: np.random.Generator) -> FloatArray:
    """(1 or n, p, d) rows before the moment in which the source is set."""
    p = dbn.n_lags
    if history is not None:
        return drawn_rows(dbn, last_state(dbn, rows_of(history, dbn.variables, "history")), n, rng)
    return drawn_windows(dbn, n, rng) if p else np.zeros((1, 0, dbn.d))


def _finite(value: object, argument: str) -> float:
    if not is_number(value):
        raise ParameterError(f"{argument} must be a finite number or None, got {value!r}.")
    return float(value)  # type: ignore[arg-type]
