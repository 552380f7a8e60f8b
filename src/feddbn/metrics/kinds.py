"""Recovery of edges by the kind of variable that they point to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from feddbn.errors import ParameterError
from feddbn.metrics.edges import EdgeScores, edge_scores

__all__ = ["kind_scores"]


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
