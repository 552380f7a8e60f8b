"""Scores of a ranking of edges against a known graph: areas under curves, as tables of rankings have them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score

from feddbn.errors import DataError, ParameterError

__all__ = ["RankingScores", "ranking_scores"]


@dataclass(frozen=True)
class RankingScores:
    """How well true edges are ranked above the other pairs.

    Attributes
    ----------
    auroc
        The probability that a random true edge scores above a random other pair (a tie counts one half).
    average_precision
        ``sum_k (R_k - R_{k-1}) P_k`` over the thresholds; no interpolation.
    aupr
        Area under the precision-recall curve by trapezoids, the looser convention of older tables.
    n_pairs, n_true
        Ordered pairs ranked, and how many of them are edges; ``n_true / n_pairs`` is the average precision of
        chance.
    includes_diagonal
        Whether pairs (i, i) were ranked.

    Examples
    --------
    >>> from reproduction.ranking_scores import ranking_scores
    >>> ranking_scores([[0, 1], [0, 0]], [[0, 0.9], [0.1, 0]]).auroc
    1.0
    """

    auroc: float
    average_precision: float
    aupr: float
    n_pairs: int
    n_true: int
    includes_diagonal: bool


def ranking_scores(truth: ArrayLike, scores: ArrayLike, *, include_diagonal: bool = False) -> RankingScores:
    """Ranking scores of a matrix of edge scores.

    Parameters
    ----------
    truth
        (d, d), ``[from, to]``; not 0 where there is an edge.
    scores
        (d, d), larger means likelier. Signs are not dropped: pass absolute values to rank weights by size.
    include_diagonal
        Whether to rank the pairs (i, i) too; without them, they are left out of both classes.

    Raises
    ------
    DataError
        If all ranked pairs are edges or none is: no ranking can then be scored.

    Examples
    --------
    >>> from reproduction.ranking_scores import ranking_scores
    >>> ranking_scores([[0, 1], [0, 0]], [[0, 0.2], [0.8, 0]]).auroc
    0.0
    """
    edges, values = np.asarray(truth, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    if edges.ndim != 2 or edges.shape[0] != edges.shape[1] or edges.shape != values.shape:
        raise ParameterError(
            f"truth and scores must be square matrices of one shape, got {edges.shape} and {values.shape}."
        )
    is_ranked = np.ones(edges.shape, dtype=bool)
    if not include_diagonal:
        np.fill_diagonal(is_ranked, False)
    labels, ranked = edges[is_ranked] != 0, values[is_ranked]
    if not np.all(np.isfinite(ranked)) or not np.all(np.isfinite(edges[is_ranked])):
        raise DataError("truth or scores contain NaN or infinity; a ranking needs finite scores.")
    n_true = int(labels.sum())
    if n_true in (0, labels.size):
        raise DataError(
            f"a ranking needs edges and non-edges, but truth has {n_true} edges among {labels.size} pairs."
        )
    precision, recall, _ = precision_recall_curve(labels, ranked)
    return RankingScores(
        auroc=float(roc_auc_score(labels, ranked)),
        average_precision=float(average_precision_score(labels, ranked)),
        aupr=float(auc(recall, precision)),
        n_pairs=int(labels.size),
        n_true=n_true,
        includes_diagonal=include_diagonal,
    )
