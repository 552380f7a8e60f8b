"""Effects on the scales of links as a table, with what one unit of each means."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import ndtri

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind
from feddbn.model.conditionals import Conditional
from feddbn.model.inputs import interval_level
from feddbn.model.network import Network

__all__ = ["coefficient_table", "link_scale", "meaning"]

_COLUMNS = (
    "source",
    "source_level",
    "target",
    "target_level",
    "lag",
    "coefficient",
    "error",
    "lower",
    "upper",
    "ratio",
    "scale",
    "meaning",
)
_SCALES = {
    "continuous": "value",
    "positive": "log value",
    "count": "log rate",
    "binary": "log odds",
    "ordinal": "log odds",
    "categorical": "log odds",
}


def link_scale(kind: Kind) -> str:
    """On which scale causes add up: value, log value, log rate or log odds."""
    return _SCALES[kind.name]


def meaning(source: str, cause: Kind, row: int, target: str, kind: Kind, column: int) -> str:
    """What a coefficient says, in words: row and column are its place in the matrix of effects."""
    per = {
        "continuous": f"per unit of {source}",
        "positive": f"per factor e of {source}",
        "count": f"per factor e of 1 + {source}",
        "ordinal": f"per level of {source}",
    }.get(cause.name)
    if per is None:
        per = f"for {source}={cause.levels[row + 1]} against {cause.levels[0]}"
    what = {
        "continuous": f"change of {target}",
        "positive": f"log of the factor on {target}",
        "count": f"log of the rate ratio of {target}",
        "binary": f"log odds ratio of {target}={kind.levels[-1] if kind.levels else ''}",
        "ordinal": f"log odds ratio of a higher {target}",
    }.get(kind.name)
    if what is None:
        what = f"log odds ratio of {target}={kind.levels[column + 1]} against {kind.levels[0]}"
    return f"{what} {per}"


def coefficient_table(dbn: Network, level: float = 0.95) -> pd.DataFrame:
    """Frame source, source_level, target, target_level, lag, coefficient, error, lower, upper, ratio, scale, meaning.

    `ratio` is ``exp(coefficient)``: an odds ratio, a rate ratio or a factor; NaN where the target is continuous. `error`
    and the bounds are NaN where it is not known how sure the numbers are.
    """
    reach = float(ndtri(0.5 + interval_level(level, "level") / 2))
    rows = []
    for j, node in enumerate(dbn.conditionals):
        with np.errstate(over="ignore"):
            ratios = [np.exp(effect) for effect in node.effects]
        errors = _errors(node)
        for (i, lag), effect, error, ratio in zip(node.parents, node.effects, errors, ratios, strict=True):
            cause = dbn.kinds[i]
            for (r, c), b in np.ndenumerate(effect):
                rows.append(
                    {
                        "source": dbn.variables[i],
                        "source_level": cause.levels[r + 1]
                        if cause.name in ("binary", "categorical")
                        else "",
                        "target": dbn.variables[j],
                        "target_level": node.kind.levels[c + 1] if node.kind.name == "categorical" else "",
                        "lag": lag,
                        "coefficient": float(b),
                        "error": float(error[r, c]),
                        "lower": float(b - reach * error[r, c]),
                        "upper": float(b + reach * error[r, c]),
                        "ratio": np.nan if node.kind.name == "continuous" else float(ratio[r, c]),
                        "scale": link_scale(node.kind),
                        "meaning": meaning(dbn.variables[i], cause, r, dbn.variables[j], node.kind, c),
                    }
                )
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def _errors(node: Conditional) -> list[FloatArray]:
    """Standard errors in the shapes of the effects; NaN if unknown."""
    if not node.has_covariance or node.covariance is None:
        return [np.full(effect.shape, np.nan) for effect in node.effects]
    variances = np.maximum(np.diag(node.covariance), 0.0)[node.n_intercepts :]
    ends = np.cumsum([effect.size for effect in node.effects])
    parts = np.split(np.sqrt(variances), ends[:-1]) if len(ends) else []
    return [part.reshape(effect.shape) for part, effect in zip(parts, node.effects, strict=True)]
