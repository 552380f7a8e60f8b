"""Scores of a learned network against a known one.

Degenerate cases, stated once: with nothing estimated, ``fdr = 0`` and ``precision = 1`` (nothing claimed is
wrong); with nothing to find, ``tpr = recall = 1``; with neither, ``f1 = 1``. So ``precision = 1 - fdr`` and
``recall = tpr`` hold always.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feddbn.errors import DataError, ParameterError
from feddbn.settings import number

__all__ = [
    "EdgeScores",
    "MarkScores",
    "WeightError",
    "edge_scores",
    "kind_scores",
    "mark_scores",
    "mean_scores",
    "skeleton_scores",
    "weight_error",
]


class _Scores(Mapping[str, float]):
    """A dataclass of scores that is a mapping, too: ``scores["f1"]``."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __getitem__(self, name: str) -> float:
        if name not in self.__dataclass_fields__:
            raise KeyError(name)
        value: float = getattr(self, name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dataclass_fields__)

    def __len__(self) -> int:
        return len(self.__dataclass_fields__)


@dataclass(frozen=True)
class EdgeScores(_Scores):
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


def edge_scores(truth: ArrayLike, estimate: ArrayLike, *, threshold: float = 0.0) -> EdgeScores:
    """Scores of the edges of an estimate against the truth, both ``[from, to]``.

    Parameters
    ----------
    truth, estimate
        W, shape (d, d), or the lagged part A, shape (p, d, d). Two dimensions mean one time step, where
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
    number(0, finite=False).check("threshold", threshold)
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


def kind_scores(
    truth: ArrayLike, estimate: ArrayLike, kinds: Sequence[str], *, threshold: float = 0.0
) -> dict[str, EdgeScores]:
    """Scores of the edges into variables of each kind, in the order in which kinds appear.

    Parameters
    ----------
    truth, estimate, threshold
        As in `edge_scores`.
    kinds
        Of the d variables. An edge belongs to the kind of its target, so a reversed edge is a missing one of the one kind and
        a false one of the other; true, false and missing edges add up to those of `edge_scores`.

    Examples
    --------
    >>> from feddbn.metrics import kind_scores
    >>> found = kind_scores([[0, 1], [0, 0]], [[0, 1], [0, 0]], ["continuous", "count"])
    >>> {kind: scores.shd for kind, scores in found.items()}
    {'continuous': 0, 'count': 0}
    """
    first, second = np.asarray(truth, dtype=np.float64), np.asarray(estimate, dtype=np.float64)
    names = np.asarray(kinds, dtype=object)
    if first.ndim not in (2, 3) or names.shape != first.shape[-1:]:
        raise ParameterError(
            f"kinds must be one name for each of the variables, got {len(kinds)} for shape {first.shape}."
        )
    return {
        kind: edge_scores(
            np.where(names == kind, first, 0.0), np.where(names == kind, second, 0.0), threshold=threshold
        )
        for kind in dict.fromkeys(names.tolist())
    }


@dataclass(frozen=True)
class WeightError:
    """Distances between two arrays of weights.

    Attributes
    ----------
    max_abs
        ``max |estimate - truth|``.
    rmse
        ``sqrt(mean (estimate - truth)^2)`` over all entries, zeros included.
    frobenius
        ``sqrt(sum (estimate - truth)^2)``.

    Examples
    --------
    >>> from feddbn.metrics import weight_error
    >>> weight_error([[0, 0.5], [0, 0]], [[0, 0.25], [0, 0]]).max_abs
    0.25
    """

    max_abs: float
    rmse: float
    frobenius: float


def weight_error(truth: ArrayLike, estimate: ArrayLike) -> WeightError:
    """Distances between weights of any one shape; all 0 for arrays without entries (no lags).

    Examples
    --------
    >>> from feddbn.metrics import weight_error
    >>> round(weight_error([[0, 0.5], [0, 0]], [[0, 0.25], [0, 0]]).rmse, 3)
    0.125
    """
    first, second = np.asarray(truth, dtype=np.float64), np.asarray(estimate, dtype=np.float64)
    if first.shape != second.shape:
        raise ParameterError(
            f"truth and estimate must have the same shape, got {first.shape} and {second.shape}."
        )
    if first.size == 0:
        return WeightError(0.0, 0.0, 0.0)
    difference = second - first
    return WeightError(
        max_abs=float(np.abs(difference).max()),
        rmse=float(np.sqrt(np.mean(difference**2))),
        frobenius=float(np.linalg.norm(difference)),
    )


_ENDS = {"": 0, "o": 1, "x": 1, "<": 2, ">": 2, "-": 3}
_HEAD, _TAIL = 2, 3


@dataclass(frozen=True)
class MarkScores(_Scores):
    """How well an ancestral graph is recovered; also a mapping, ``scores["adjacency_f1"]``.

    An *edge* is a pair of variables and a lag; a contemporaneous pair counts once. The *ends* that count are those whose mark
    does not follow from the order of time: both of a contemporaneous edge, the earlier one of a lagged edge. A *claim* is an
    arrowhead or a tail at such an end of an estimated edge.

    Attributes
    ----------
    adjacency_precision, adjacency_recall, adjacency_f1
        Of the estimated edges, how many are true; of the true ones, how many are estimated; their harmonic mean.
    orientation_precision
        Share of claims that are true: there is such an edge, and it has that mark there.
    orientation_recall
        Of the ends of true edges, the share at which the true mark is claimed.
    orientation_f1
        Harmonic mean of the two.
    tail_precision, tail_recall, head_precision, head_recall
        The same for tails (causes) and for arrowheads (no causes) alone.
    n_true, n_estimated, n_hits
        Numbers of edges: true, estimated, both.
    n_ends, n_claims, n_right
        Ends of true edges with a known mark; claims; claims that are true.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.metrics import mark_scores
    >>> graph = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0).ancestral_truth()
    >>> mark_scores(graph.marks, graph.marks)["adjacency_f1"]
    1.0
    """

    adjacency_precision: float
    adjacency_recall: float
    adjacency_f1: float
    orientation_precision: float
    orientation_recall: float
    orientation_f1: float
    tail_precision: float
    tail_recall: float
    head_precision: float
    head_recall: float
    n_true: int
    n_estimated: int
    n_hits: int
    n_ends: int
    n_claims: int
    n_right: int


def mark_scores(truth: Any, estimate: Any) -> MarkScores:
    """Scores of the edges and marks of an estimate against the truth.

    Parameters
    ----------
    truth, estimate
        (d, d, p+1) strings as in `AncestralGraph.marks`: ``[i, j, l]`` is the edge from i, l time steps ago, to j now. Where
        the truth has a circle, nothing is counted at that end. The conflicts ``x`` of other software count as circles.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.metrics import mark_scores
    >>> truth = np.array([[["", "-->"], ["", "-->"]], [["", ""], ["", ""]]])
    >>> mark_scores(truth, truth).orientation_f1
    1.0
    """
    first, second = _ends("truth", truth), _ends("estimate", estimate)
    if first.shape != second.shape:
        raise ParameterError(
            f"truth and estimate must have the same shape, got {first.shape[:3]} and {second.shape[:3]}."
        )
    d, _, n_steps = first.shape[:3]
    once = np.ones((d, d, n_steps), dtype=bool)
    once[:, :, 0] = np.triu(once[:, :, 0], 1)
    is_true, is_claimed = ((marks[..., 0] > 0) & once for marks in (first, second))
    counts = np.stack([once, once & (np.arange(n_steps) == 0)], axis=-1)
    # Where the truth leaves an end open, no claim about it is right or wrong.
    judged = counts & ~((first == 1) & is_true[..., None])
    claims = {mark: judged & is_claimed[..., None] & (second == mark) for mark in (_HEAD, _TAIL)}
    ends = {mark: judged & is_true[..., None] & (first == mark) for mark in (_HEAD, _TAIL)}
    right = {mark: int((claims[mark] & ends[mark]).sum()) for mark in (_HEAD, _TAIL)}
    n_claims = {mark: int(claims[mark].sum()) for mark in claims}
    n_ends = {mark: int(ends[mark].sum()) for mark in ends}
    all_right, all_claims, all_ends = (sum(found.values()) for found in (right, n_claims, n_ends))
    n_hits, n_true, n_estimated = (int(found.sum()) for found in (is_true & is_claimed, is_true, is_claimed))
    return MarkScores(
        *_rates(n_hits, n_estimated, n_true),
        *_rates(all_right, all_claims, all_ends),
        *_rates(right[_TAIL], n_claims[_TAIL], n_ends[_TAIL])[:2],
        *_rates(right[_HEAD], n_claims[_HEAD], n_ends[_HEAD])[:2],
        n_true=n_true,
        n_estimated=n_estimated,
        n_hits=n_hits,
        n_ends=all_ends,
        n_claims=all_claims,
        n_right=all_right,
    )


def _rates(hits: int, claimed: int, there: int) -> tuple[float, float, float]:
    both = claimed + there
    return (
        hits / claimed if claimed else 1.0,
        hits / there if there else 1.0,
        2 * hits / both if both else 1.0,
    )


def _ends(name: str, marks: Any) -> NDArray[np.int8]:
    """(d, d, p+1, 2) numbers of the marks at the earlier and at the later end."""
    words = np.asarray(marks)
    if words.ndim != 3 or words.shape[0] != words.shape[1] or words.dtype.kind not in "UO":
        raise ParameterError(
            f"{name} must be strings of shape (d, d, n_lags + 1), got {words.dtype} of shape {words.shape}."
        )
    found = np.zeros((*words.shape, 2), dtype=np.int8)
    for place in np.argwhere(words != ""):
        word = str(words[tuple(place)])
        if len(word) != 3 or word[1] != "-" or word[0] not in "ox<-" or word[2] not in "ox>-":
            raise ParameterError(
                f"{name} contains {word!r}; an edge is '-->', '<->', 'o->', 'o-o' or the like, and '' is none."
            )
        found[tuple(place)] = _ENDS[word[0]], _ENDS[word[2]]
    return found
