"""The tables of a report's section on variables of other kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from feddbn.errors import ParameterError
from feddbn.model.dbn import DBN
from feddbn.model.paths import usual

__all__ = ["coefficient_rows", "kind_rows"]

_MOST_ROWS = 200
_MOST_LEVELS = 8
_DISTRIBUTIONS = {
    "continuous": "normal",
    "positive": "log-normal",
    "count": "Poisson",
    "binary": "logistic",
    "ordinal": "cumulative logistic",
    "categorical": "multinomial logistic",
}


def kind_rows(dbn: DBN) -> list[dict[str, str]]:
    """Variable, kind, distribution and usual values of each; empty without variables of other kinds."""
    if not dbn.conditionals:
        return []
    try:
        rows = usual(dbn).rows.reshape(-1, dbn.d)
    except ParameterError:
        rows = np.zeros((0, dbn.d))
    found = []
    for j, (name, node) in enumerate(zip(dbn.variables, dbn.conditionals, strict=True)):
        law = _DISTRIBUTIONS[node.kind.name]
        if node.kind.name == "count" and node.dispersion > 0:
            law = f"negative binomial (overdispersion {node.dispersion:.3g})"
        values = _usual_values(rows[:, j], node.kind.levels)
        found.append({"variable": name, "kind": node.kind.name, "law": law, "usual": values})
    return found


def _usual_values(x: np.ndarray, levels: tuple[str, ...]) -> str:
    if not len(x):
        return "no usual level"
    if levels:
        shares = [f"{level} {np.mean(x == k):.0%}" for k, level in enumerate(levels[:_MOST_LEVELS])]
        return ", ".join(shares) + (", …" if len(levels) > _MOST_LEVELS else "")
    low, middle, high = np.quantile(x, [0.05, 0.5, 0.95])
    return f"{low:.3g} to {high:.3g}, median {middle:.3g}"


def coefficient_rows(dbn: DBN) -> list[dict[str, Any]]:
    """Every coefficient with its interval and meaning, by target, as text."""
    if not dbn.conditionals:
        return []
    table = dbn.coefficients()
    return [
        {
            "cause": _named(row["source"], row["source_level"]),
            "effect": _named(row["target"], row["target_level"]),
            "lag": int(row["lag"]),
            "coefficient": f"{row['coefficient']:.3g}",
            "interval": "–" if pd.isna(row["lower"]) else f"{row['lower']:.3g} to {row['upper']:.3g}",
            "ratio": "–" if pd.isna(row["ratio"]) else f"{row['ratio']:.3g}",
            "meaning": row["meaning"],
        }
        for row in table.head(_MOST_ROWS).to_dict("records")
    ]


def _named(variable: str, level: str) -> str:
    return f"{variable} = {level}" if level else variable
