"""What a change of one variable does later in a network that bends: it depends on the value, so it is simulated.

Pairs of paths share their start and all their noise. In the one the source is set to `at` for one moment, in the other to
``at + by``; what differs later is the effect.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind
from feddbn.errors import CurvesWarning, ParameterError
from feddbn.model.edge_effects import origin_and_scale
from feddbn.model.inputs import (
    RandomState,
    Rows,
    is_number,
    level_position,
    positive_int,
    random_generator,
    rows_of,
    variable_index,
)
from feddbn.model.network import Network
from feddbn.model.outcomes import columns_of, indicators, outcome_columns
from feddbn.model.particles import drawn_rows
from feddbn.model.paths import curved_paths, drawn_windows, ranges_seen
from feddbn.model.state import last_state
from feddbn.model.steps import draw_shocks

__all__ = ["Changes", "changes_by_variable", "changes_table", "expected_changes", "from_and_by"]


class Changes(NamedTuple):
    """Expected changes (horizon+1, m) of all outcomes (`feddbn.model.outcomes`: all variables, if none has several levels),
    their Monte-Carlo standard errors, and from where to where.
    """

    mean: FloatArray
    error: FloatArray
    at: float
    by: float


def expected_changes(
    dbn: Network,
    source: str | int,
    horizon: int,
    *,
    at: float | str | None = None,
    by: float | str | None = None,
    n_paths: int = 2000,
    random_state: RandomState = None,
    history: Rows | None = None,
) -> Changes:
    """Return what setting `source` to ``at + by`` instead of `at`, for one moment, changes in every variable.

    Parameters
    ----------
    at, by
        In the units of the source; by default the origin and the scale of its functions. Levels may be named: from `at` (by
        default the first) to `by` (by default the next); numbers are their positions in `dbn.kinds`. A count changes by 1
        unless said otherwise.
    history
        Rows before that moment. Without them, pairs begin in states that the process visits by itself.
    """
    horizon = positive_int(horizon, "horizon", 0)
    n = positive_int(n_paths, "n_paths", 2)
    i = variable_index(source, dbn.variables, "source")
    begin, step = from_and_by(dbn, i, at, by)
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
    shocks = draw_shocks(dbn, "gaussian", (n, horizon + 1), rng)
    held = np.full((horizon + 1, dbn.d), np.nan)
    held[0, i] = begin
    before = indicators(dbn, curved_paths(dbn, start, held, shocks))
    held[0, i] = begin + step
    change = indicators(dbn, curved_paths(dbn, start, held, shocks)) - before
    return Changes(change.mean(axis=0), change.std(axis=0) / np.sqrt(n), begin, step)


def changes_table(dbn: Network, target: str | int, changes: Changes) -> pd.DataFrame:
    """One row per horizon: at, by, total, error (Monte-Carlo standard error of the total) and cumulated total.

    Of a target with several levels one for each level, too: what changes is the probability of the `level`.
    """
    here = columns_of(dbn, variable_index(target, dbn.variables, "target"))
    mean, error = changes.mean[:, here], changes.error[:, here]
    levels = [outcome.level for outcome in outcome_columns(dbn)[here]]
    table = pd.DataFrame(
        {
            "horizon": np.repeat(np.arange(len(mean)), len(levels)),
            "at": changes.at,
            "by": changes.by,
            "total": mean.ravel(),
            "error": error.ravel(),
            "cumulative": np.cumsum(mean, axis=0).ravel(),
        }
    )
    if levels != [""]:
        table.insert(1, "level", levels * len(mean))
    return table


def changes_by_variable(dbn: Network, changes: Changes) -> FloatArray:
    """(horizon+1, d) one number per variable: the change of its value, of its mean position if it is ordinal; of a
    categorical one how much probability moves from some levels to others, which has no sign.
    """
    found = []
    for j, kind in enumerate(dbn.kinds):
        part = changes.mean[:, columns_of(dbn, j)]
        if kind.name == "categorical":
            found.append(np.abs(part).sum(axis=1) / 2)
        else:
            found.append(part @ np.arange(part.shape[1]) if kind.name == "ordinal" else part[:, 0])
    return np.stack(found, axis=1)


def from_and_by(dbn: Network, i: int, at: float | str | None, by: float | str | None) -> tuple[float, float]:
    """From which value a variable is changed, and by how much; levels may be named."""
    kind, name = dbn.kinds[i], dbn.variables[i]
    origin, scale = origin_and_scale(dbn, i) if not kind.levels else (0.0, 1.0)
    if kind.name == "count":
        origin, scale = float(round(origin)), 1.0
    place, to = level_position(at, kind), level_position(by, kind)
    begin = place if place is not None else origin if at is None else _finite(at, "at", kind)
    step = to - begin if to is not None else scale if by is None else _finite(by, "by", kind)
    if to is None and by is None and kind.levels and begin + step > kind.n_levels - 1:
        step = -1.0
    misfits = kind.misfits(np.array([begin, begin + step]))
    if len(misfits):
        choice = f"; its levels are {', '.join(kind.levels)}" if kind.levels else ""
        raise ParameterError(
            f"at={at!r} and by={by!r} set {name!r} to {misfits[0]:g}, which no {kind.name} variable can have{choice}."
        )
    return begin, step


def _starts(dbn: Network, history: Rows | None, n: int, rng: np.random.Generator) -> FloatArray:
    """(1 or n, p, d) rows before the moment in which the source is set."""
    p = dbn.n_lags
    if history is not None:
        rows = rows_of(history, dbn.variables, "history", dbn.kinds)
        return drawn_rows(dbn, last_state(dbn, rows), n, rng)
    return drawn_windows(dbn, n, rng) if p else np.zeros((1, 0, dbn.d))


def _finite(value: object, argument: str, kind: Kind) -> float:
    if not is_number(value):
        choice = f", one of its levels {', '.join(kind.levels)}" if kind.levels else ""
        raise ParameterError(f"{argument} must be a finite number{choice} or None, got {value!r}.")
    return float(value)  # type: ignore[arg-type]
