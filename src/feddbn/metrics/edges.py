"""Counts of right and wrong edges, and the rates made of them.

Degenerate cases, stated once: with nothing estimated, ``fdr = 0`` and ``precision = 1`` (nothing claimed is
wrong); with nothing to find, ``tpr = recall = 1``; with neither, ``f1 = 1``. So ``precision = 1 - fdr`` and
``recall = tpr`` hold always.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feddbn.errors import DataError, ParameterError

__all__ = ["EdgeScores", "edge_scores", "mean_scores", "skeleton_scores"]


@dataclass(frozen=True)
class EdgeScores(Mapping[str, float]):
    """How well the edges of one part (W, or all A_l together) are recovered; also a mapping,
    ``scores["shd"]``.

    Attributes
    ----------
    shd
        Structural Hamming distance: in W the number of pairs {i, j} whose edges differ, so that a reversed
        edge counts 1; in A the number of differing entries.
    shd_paper
        FP + FN, which counts a reversed edge twice, as in the paper's tables.
    tpr, fdr
        ``TP / (TP + FN)`` and ``FP / (TP + FP)``, where a reversed edge is one FP and one FN.
    precision, recall, f1
        ``1 - fdr``, ``tpr`` and their harmonic mean ``2 TP / (2 TP + FP + FN)``.
    n_true, n_estimated
        Numbers of edges.
    n_true_positives, n_false_positives, n_false_negatives
        Counts of entries.
    n_reversed
        Pairs with i -> j only in the truth and j -> i only in the estimate.

    Examples
    --------
    >>> from feddbn.metrics import edge_scores
    >>> scores = edge_scores([[0, 1], [0, 0]], [[0, 1], [0, 0]])
    >>> scores.shd, scores["f1"]
    (0, 1.0)
    """

    shd: int
    shd_paper: int
    tpr: float
    fdr: float
    precision: float
    recall: float
    f1: float
    n_true: int
    n_estimated: int
    n_true_positives: int
    n_false_positives: int
    n_false_negatives: int
    n_reversed: int

    def __getitem__(self, name: str) -> float:
        if name not in self._names():
            raise KeyError(name)
        value: float = getattr(self, name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    @classmethod
    def _names(cls) -> list[str]:
        return [entry.name for entry in fields(cls)]


def edge_scores(truth: ArrayLike, estimate: ArrayLike, *, threshold: float = 0.0) -> EdgeScores:
    """Scores of the edges of an estimate against the truth, both ``[from, to]``.

    Parameters
    ----------
    truth, estimate
        W, shape (d, d), or the lagged part A, shape (p, d, d). Two dimensions mean one moment in time, where
        an edge can be reversed; with three, time directs every edge.
    threshold
        An entry of the estimate is an edge if its absolute value is larger; in the truth, if it is not 0.

    Examples
    --------
    >>> from feddbn.metrics import edge_scores
    >>> scores = edge_scores([[0, 1], [0, 0]], [[0, 0], [1, 0]])
    >>> scores.shd, scores.shd_paper, scores.n_reversed
    (1, 2, 1)
    """
    return _scores(*_masks(truth, estimate, threshold))


def skeleton_scores(truth: ArrayLike, estimate: ArrayLike, *, threshold: float = 0.0) -> EdgeScores:
    """Scores of the undirected pairs of W, shape (d, d): is there an edge between i and j, either way?

    Examples
    --------
    >>> from feddbn.metrics import skeleton_scores
    >>> skeleton_scores([[0, 1], [0, 0]], [[0, 0], [1, 0]]).shd
    0
    """
    masks = _masks(truth, estimate, threshold)
    if masks[0].ndim != 2:
        raise ParameterError(
            f"skeleton_scores compares matrices of shape (d, d), got shape {masks[0].shape}."
        )
    present, claimed = (np.triu(mask | mask.T, k=1) for mask in masks)
    return _scores(present, claimed)


def mean_scores(scores: Sequence[EdgeScores]) -> dict[str, float]:
    """Means over sites, each against its own truth: ``mshd, mshd_paper, mtpr, mfdr, mprecision, mf1``.

    Examples
    --------
    >>> from feddbn.metrics import edge_scores, mean_scores
    >>> one = edge_scores([[0, 1], [0, 0]], [[0, 1], [0, 0]])
    >>> other = edge_scores([[0, 1], [0, 0]], [[0, 0], [0, 0]])
    >>> mean_scores([one, other])["mshd"]
    0.5
    """
    if not scores:
        raise ParameterError("mean_scores needs the scores of at least one site, got none.")
    names = ("shd", "shd_paper", "tpr", "fdr", "precision", "f1")
    return {f"m{name}": float(np.mean([site[name] for site in scores])) for name in names}


def _masks(
    truth: ArrayLike, estimate: ArrayLike, threshold: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    if not threshold >= 0:
        raise ParameterError(f"threshold must be at least 0, got {threshold!r}.")
    first, second = np.asarray(truth, dtype=np.float64), np.asarray(estimate, dtype=np.float64)
    if first.shape != second.shape:
        raise ParameterError(
            f"truth and estimate must have the same shape, got {first.shape} and {second.shape}."
        )
    if first.ndim not in (2, 3) or first.shape[-1] != first.shape[-2]:
        raise ParameterError(f"truth and estimate must have shape (d, d) or (p, d, d), got {first.shape}.")
    for name, array in (("truth", first), ("estimate", second)):
        if not np.all(np.isfinite(array)):
            raise DataError(f"{name} contains NaN or infinity; a score needs finite weights.")
    return first != 0, np.abs(second) > threshold


def _scores(truth: NDArray[np.bool_], estimate: NDArray[np.bool_]) -> EdgeScores:
    differs = truth != estimate
    n_true, n_estimated = int(truth.sum()), int(estimate.sum())
    hits = int((truth & estimate).sum())
    false_positives, false_negatives = n_estimated - hits, n_true - hits
    shd, n_reversed = int(differs.sum()), 0
    if truth.ndim == 2:
        shd = int(np.triu(differs | differs.T).sum())
        n_reversed = int((truth & ~truth.T & estimate.T & ~estimate).sum())
    tpr = hits / n_true if n_true else 1.0
    fdr = false_positives / n_estimated if n_estimated else 0.0
    n_claims = n_true + n_estimated
    return EdgeScores(
        shd=shd,
        shd_paper=false_positives + false_negatives,
        tpr=tpr,
        fdr=fdr,
        precision=1.0 - fdr,
        recall=tpr,
        f1=2 * hits / n_claims if n_claims else 1.0,
        n_true=n_true,
        n_estimated=n_estimated,
        n_true_positives=hits,
        n_false_positives=false_positives,
        n_false_negatives=false_negatives,
        n_reversed=n_reversed,
    )
