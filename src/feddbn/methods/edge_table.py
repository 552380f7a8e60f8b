"""Tables of a learned network: all possible edges in the order in which they deserve belief, pairs, and penalties tried."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.orders.learn import PathPoint
from feddbn.errors import ParameterError

__all__ = ["edge_table", "pair_ranking", "path_table"]

_NEEDED = ("source", "target", "probability", "strength")
_REVERSAL = 0.2
"""What an unlikely pair inherits from its reversal; on simulated networks any value from .05 to .49 ranks alike."""


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
        (d, d) of `feddbn.core.orders.learn.explained_shares`: the strength of all edges from one source to one target.
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
    up_to_half, strength = _keys(table["probability"].to_numpy(), table["strength"].to_numpy())
    # Of the lags of one source, which share their strength, the more probable one goes first.
    order = np.lexsort((-table["probability"].to_numpy(), -strength, -up_to_half))
    return table.iloc[order].reset_index(drop=True)


def pair_ranking(table: pd.DataFrame, variables: Sequence[str]) -> FloatArray:
    """(d, d), [from, to]: the place of each ordered pair by `OneShotDBN.edge_probabilities_`, larger is higher.

    A pair is as probable as its most probable edge, at any lag. Links are better known than their directions, so an unlikely
    pair counts a fifth of its reversal. Pairs that nothing tells apart share a place.
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
    d = len(place)
    where = table["source"].map(place).to_numpy(), table["target"].map(place).to_numpy()
    probability, strength = np.zeros((d, d)), np.zeros((d, d))
    np.maximum.at(probability, where, table["probability"].to_numpy())
    strength[where] = table["strength"].to_numpy()
    turned = _REVERSAL * probability.T
    is_turned = turned > probability
    keys = _keys(np.where(is_turned, turned, probability), np.where(is_turned, strength.T, strength))
    _, rank = np.unique(np.column_stack([key.ravel() for key in keys]), axis=0, return_inverse=True)
    places: FloatArray = rank.reshape(d, d).astype(np.float64)
    return places


def _keys(probability: FloatArray, strength: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What edges are ordered by: the probability up to one half, then the strength."""
    return np.minimum(probability, 0.5), strength


def path_table(path: Sequence[PathPoint]) -> pd.DataFrame:
    """DataFrame lambda, n_present, n_lagged, score, converged, chosen: one row per penalty."""
    rows = [(p.penalty, p.n_present, p.n_lagged, p.score, p.converged) for p in path]
    table = pd.DataFrame(rows, columns=["lambda", "n_present", "n_lagged", "score", "converged"])
    table["chosen"] = table.index == table["score"].idxmin()
    return table
