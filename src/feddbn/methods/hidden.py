"""Whether an edge could be something that was not measured: a verdict for every edge of a fitted network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.orders.hidden import HiddenDoubts
from feddbn.core.statistics.diagnostics import edge_robustness
from feddbn.core.statistics.moments import Moments
from feddbn.model.dbn import DBN

__all__ = ["HIDDEN", "hidden_table", "say_hidden"]

HIDDEN = ("source", "target", "lag", "robustness", "could_be_hidden")
_MOST_SHOWN = 8


def hidden_table(dbn: DBN, moments: Moments | None, doubts: HiddenDoubts | None) -> pd.DataFrame:
    """One line per edge: how strong a hidden cause would have to be, and whether hidden causes explain it as well.

    ``robustness`` is the share of what is left of both the source and the target that a hidden common cause would have to
    explain to bring the effect to nothing (Cinelli and Hazlett 2020); NaN without moments. ``could_be_hidden`` is None where
    it was not looked at.
    """
    d, names = dbn.d, dbn.variables
    support = np.concatenate([dbn.W, *dbn.A]) != 0
    strength = np.full(support.shape, np.nan) if moments is None else edge_robustness(moments, support)
    rows = [
        (
            names[m % d],
            names[j],
            int(m // d),
            float(strength[m, j]),
            None if doubts is None else bool(doubts.in_doubt[m, j]),
        )
        for m, j in np.argwhere(support)
    ]
    return pd.DataFrame(rows, columns=list(HIDDEN))


def say_hidden(estimator: Any, moments: Moments | None, doubts: HiddenDoubts | None) -> None:
    """Set `hidden_`, and say which edges hidden causes could stand for."""
    names = estimator.dbn_.variables
    table = estimator.hidden_ = hidden_table(estimator.dbn_, moments, doubts)
    doubted = table[table["could_be_hidden"].eq(True)]
    if doubts is None or not len(doubted):
        return
    shown = [
        f"{row['source']} -> {row['target']}" + (f" (lag {row['lag']})" if row["lag"] else "")
        for row in doubted.head(_MOST_SHOWN).to_dict("records")
    ]
    more = f" and {len(doubted) - _MOST_SHOWN} more" if len(doubted) > _MOST_SHOWN else ""
    causes = " and another one of ".join(", ".join(names[j] for j in one) for one in doubts.effects)
    how = "better" if doubts.gain > 0 else "about as well"
    estimator._tell(
        f"{len(doubted)} of {len(table)} edges could be something that was not measured: a hidden cause of {causes} "
        f"describes the rows {how} without {', '.join(shown)}{more}. `hidden_` has a line for each edge (docs/causal.md)."
    )
