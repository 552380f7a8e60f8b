"""What is told of variables of any kind: a mean, the probability of 1, or a probability for every level.

Ordinal and categorical variables have one column per level, all others one. Along simulated paths a column is
not the share of paths but the mean, over paths, of what is expected given the causes on that path: closer to the truth with
the same number of paths, and exact where the causes are known.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.model.conditionals import Law, Levels
from feddbn.model.network import Network

__all__ = ["Outcome", "Outlook", "columns_of", "indicators", "outcome_columns", "outlook"]

_BY_LEVEL = ("ordinal", "categorical")


class Outcome(NamedTuple):
    """What one column tells of."""

    variable: str
    level: str = ""

    @property
    def name(self) -> str:
        """The variable, or variable=level."""
        return f"{self.variable}={self.level}" if self.level else self.variable


class Outlook(NamedTuple):
    """(steps, m) what is expected of outcomes, standard deviations, and bounds, NaN where a variable has levels."""

    mean: FloatArray
    sd: FloatArray
    lower: FloatArray
    upper: FloatArray


def outcome_columns(dbn: Network) -> tuple[Outcome, ...]:
    """The columns, variable after variable."""
    found = []
    for name, kind in zip(dbn.variables, dbn.kinds, strict=True):
        found += (
            [Outcome(name, level) for level in kind.levels] if kind.name in _BY_LEVEL else [Outcome(name)]
        )
    return tuple(found)


def columns_of(dbn: Network, variable: int) -> slice:
    """Which of these columns are those of one variable."""
    widths = [kind.n_levels if kind.name in _BY_LEVEL else 1 for kind in dbn.kinds]
    begin = sum(widths[:variable])
    return slice(begin, begin + widths[variable])


def indicators(dbn: Network, values: FloatArray) -> FloatArray:
    """(..., m) the outcomes of values (..., d): values themselves, or 1 at the level that is there."""
    parts = []
    for j, kind in enumerate(dbn.kinds):
        column = values[..., j, None]
        parts.append((column == np.arange(kind.n_levels)) * 1.0 if kind.name in _BY_LEVEL else column)
    return np.concatenate(parts, axis=-1)


def outlook(
    dbn: Network, start: FloatArray, paths: FloatArray, held: FloatArray, level: float | None
) -> Outlook:
    """What paths (n, steps, d) from `start` (1 or n, p, d) say, with variables held at `held` (steps, d), NaN where free."""
    steps, p = paths.shape[1], dbn.n_lags
    shown = indicators(dbn, paths)
    # Where a variable is held this is what it is held at.
    mean = shown.mean(axis=0)
    whole = np.concatenate([np.broadcast_to(start, (len(paths), p, dbn.d)), paths], axis=1)
    for t in range(steps):
        rows = whole[:, t : t + p + 1][:, ::-1].reshape(len(paths), -1)
        laws = dbn.mechanisms.laws(rows)
        for free in np.flatnonzero(np.isnan(held[t])).tolist():
            mean[t, columns_of(dbn, free)] = _expected(laws[free], dbn.kinds[free].name).mean(axis=0)
    sd, bounds = shown.std(axis=0), np.full((2, steps, shown.shape[2]), np.nan)
    quantiles = [0.5, 0.5] if level is None else [0.5 - level / 2, 0.5 + level / 2]
    for j, kind in enumerate(dbn.kinds):
        here = columns_of(dbn, j)
        if kind.levels:
            sd[:, here] = np.sqrt(mean[:, here] * (1 - mean[:, here]))
        else:
            # Whole numbers for counts: no value between two that can be seen.
            method: Literal["inverted_cdf", "linear"] = "inverted_cdf" if kind.name == "count" else "linear"
            bounds[:, :, here] = np.quantile(shown[:, :, here], quantiles, axis=0, method=method)
    is_held = np.repeat(~np.isnan(held), [_width(columns_of(dbn, j)) for j in range(dbn.d)], axis=1)
    return Outlook(mean, np.where(is_held, 0.0, sd), *bounds)


def _width(columns: slice) -> int:
    return int(columns.stop - columns.start)


def _expected(law: Law, kind: str) -> FloatArray:
    if kind in _BY_LEVEL and isinstance(law, Levels):
        return law.probabilities
    return law.mean[:, None]
