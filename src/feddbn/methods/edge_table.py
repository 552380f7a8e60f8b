"""The table of all possible edges, in the order in which they deserve belief, and the ranking of pairs it gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError

__all__ = ["edge_table", "pair_ranking"]

_NEEDED = ("source", "target", "probability", "strength")


def edge_table(
    probability: FloatArray, C: FloatArray, shares: FloatArray, names: tuple[str, ...]
) -> pd.DataFrame:
    """DataFrame source, target, lag, weight, probability, strength of all edges but those of a variable on itself at lag 0.

    Edges above one half come first, the strongest first; then the others, the most probable first. With many rows nearly
    all probabilities are 0 or 1 and say nothing about the order.

    Parameters
    ----------
    probability, C
        (q, d) probabilities and weights of ``[W; A_1; ...]``.
    shares
        (d, d) of `feddbn.core.orders.strength.explained_shares`: the strength of all edges from one source to one target.
    """
    d = len(names)
    column, target = np.nonzero(np.arange(len(C))[:, None] != np.arange(d))
    label = np.array(names, dtype=object)
    table = pd.DataFrame(
        {
            "source": label[column % d],
            "target": label[target],
            "lag": column // d,
            "weight": C[column, target],
            "probability": probability[column, target],
            "strength": shares[column % d, target],
        }
    )
    # Of the lags of one source, which share their strength, the more probable one goes first.
    keys = np.lexsort((-probability[column, target], *(-key for key in _keys(table)[::-1])))
    return table.iloc[keys].reset_index(drop=True)


def pair_ranking(table: pd.DataFrame, variables: Sequence[str]) -> FloatArray:
    """(d, d), [from, to]: the place of each ordered pair in `OneShotDBN.edge_probabilities_`, larger is higher.

    A pair stands where its highest edge stands, at any lag; pairs that nothing tells apart share a place.
    `feddbn.metrics.ranking_scores` compares it with a known network.
    """
    missing = [name for name in _NEEDED if name not in table]
    if missing:
        raise ParameterError(
            f"table has no column {missing[0]!r}; pass the edge_probabilities_ of a linear OneShotDBN."
        )
    place = {str(name): k for k, name in enumerate(variables)}
    unknown = sorted({*table["source"], *table["target"]} - place.keys())
    if unknown:
        raise ParameterError(
            f"variables lacks {unknown[0]!r}, which the table names; pass the names of all variables."
        )
    _, rank = np.unique(np.column_stack(_keys(table)), axis=0, return_inverse=True)
    scores = np.zeros((len(place), len(place)))
    source, target = table["source"].map(place).to_numpy(), table["target"].map(place).to_numpy()
    np.maximum.at(scores, (source, target), rank.ravel() + 1.0)
    return scores


def _keys(table: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
    """What edges are ordered by: the probability up to one half, then the strength."""
    return np.minimum(table["probability"].to_numpy(), 0.5), table["strength"].to_numpy()
