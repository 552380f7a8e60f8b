"""How well edges with marks are recovered: which pairs have one, and what is said at their ends.

Scores are made of counts as in `feddbn.metrics.edges`: with nothing claimed precision is 1, with nothing to find recall is 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feddbn.errors import ParameterError

__all__ = ["MarkScores", "mark_scores"]

_ENDS = {"": 0, "o": 1, "x": 1, "<": 2, ">": 2, "-": 3}
_HEAD, _TAIL = 2, 3


@dataclass(frozen=True)
class MarkScores(Mapping[str, float]):
    """How well an ancestral graph is recovered; also a mapping, ``scores["adjacency_f1"]``.

    An *edge* is a pair of variables and a lag; within a moment a pair counts once. The *ends* that count are those whose mark
    does not follow from the order of time: both within a moment, the earlier one across moments. A *claim* is an arrowhead
    or a tail at such an end of an estimated edge.

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

    def __getitem__(self, name: str) -> float:
        if name not in list(self):
            raise KeyError(name)
        value: float = getattr(self, name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(entry.name for entry in fields(self))

    def __len__(self) -> int:
        return len(fields(self))


def mark_scores(truth: Any, estimate: Any) -> MarkScores:
    """Scores of the edges and marks of an estimate against the truth.

    Parameters
    ----------
    truth, estimate
        (d, d, p+1) strings as in `AncestralGraph.marks`: ``[i, j, l]`` is the edge from i, l moments ago, to j now. Where the
        truth has a circle, nothing is counted at that end. The conflicts ``x`` of other software count as circles.

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
    d, _, n_moments = first.shape[:3]
    once = np.ones((d, d, n_moments), dtype=bool)
    once[:, :, 0] = np.triu(once[:, :, 0], 1)
    is_true, is_claimed = ((marks[..., 0] > 0) & once for marks in (first, second))
    counts = np.stack([once, once & (np.arange(n_moments) == 0)], axis=-1)
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
