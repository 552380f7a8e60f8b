"""Scores of learned networks against known ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.metrics import (
    EdgeScores,
    WeightError,
    edge_scores,
    kind_scores,
    mean_scores,
    skeleton_scores,
    weight_error,
)
from feddbn.model.dbn import DBN
from feddbn.model.network import check_network
from feddbn.shown import Shown

__all__ = ["Scores", "SiteScores", "score", "score_by_kind", "score_sites"]


@dataclass(frozen=True)
class Scores(Mapping[str, EdgeScores], Shown):
    """Scores of one network; a mapping of the parts, ``scores["W"]["shd"]``, which are attributes too.

    Attributes
    ----------
    W, A
        Contemporaneous edges, and lagged edges (all lags together); see `feddbn.metrics.EdgeScores`.
    skeleton
        Contemporaneous edges regardless of their direction.
    W_error, A_error
        Distances between the weights.

    Examples
    --------
    >>> import feddbn
    >>> truth = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]])
    >>> scores = feddbn.score(truth, feddbn.DBN([[0, 0], [0, 0]], truth.A))
    >>> scores["W"]["recall"], scores["A"]["recall"]
    (0.0, 1.0)
    """

    W: EdgeScores
    A: EdgeScores
    skeleton: EdgeScores
    W_error: WeightError
    A_error: WeightError

    def __getitem__(self, part: str) -> EdgeScores:
        if part == "W":
            return self.W
        if part == "A":
            return self.A
        raise KeyError(part)

    def __iter__(self) -> Iterator[str]:
        return iter(("W", "A"))

    def __len__(self) -> int:
        return 2

    def to_frame(self) -> pd.DataFrame:
        """One row per part, one column per score."""
        return (
            pd.DataFrame({part: dict(scores) for part, scores in self.items()})
            .T.rename_axis("part")
            .infer_objects()
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class SiteScores(Mapping[str, dict[str, float]], Shown):
    """Scores of personal networks; a mapping of the parts to means over sites, ``scores["W"]["mshd"]``.

    Attributes
    ----------
    sites
        Site name -> the scores of its network against its own truth.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> scores = feddbn.score_sites(data.truths, data.truth)
    >>> scores["W"]["mshd"], sorted(scores.sites)
    (0.0, ['site-0', 'site-1'])
    """

    sites: dict[str, Scores]

    def __getitem__(self, part: str) -> dict[str, float]:
        return mean_scores([scores[part] for scores in self.sites.values()])

    def __iter__(self) -> Iterator[str]:
        return iter(("W", "A"))

    def __len__(self) -> int:
        return 2

    def to_frame(self) -> pd.DataFrame:
        """One row per part: mshd, mshd_paper, mtpr, mfdr, mprecision, mf1."""
        return pd.DataFrame(dict(self)).T.rename_axis("part")

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON: the means, and every site's scores."""
        return {"mean": dict(self), "sites": {site: scores.to_dict() for site, scores in self.sites.items()}}


def score(truth: DBN, estimate: DBN) -> Scores:
    """Scores of an estimated network against the true one, per part (W and A).

    Variables are matched by name. If one network has fewer lags, its missing lags hold no edges. A curve and a part in a
    product are edges, too; errors are those of average slopes.

    Examples
    --------
    >>> import feddbn, numpy as np
    >>> truth = feddbn.DBN([[0, 0.5], [0, 0]], np.zeros((0, 2, 2)))
    >>> reversed_edge = feddbn.DBN(truth.W.T, truth.A)
    >>> scores = feddbn.score(truth, reversed_edge)
    >>> scores["W"]["shd"], scores["W"]["shd_paper"], scores.skeleton.shd
    (1, 2, 0)
    """
    check_network(truth, "truth")
    check_network(estimate, "estimate")
    W, A = _aligned(truth, estimate, estimate.adjacency_matrices)
    n_lags = max(truth.n_lags, estimate.n_lags)
    true_A, estimated_A = _padded(truth.A, n_lags), _padded(A, n_lags)
    # An effect that only bends is an edge without a weight.
    is_true = truth.is_edge.astype(np.float64)
    found_W, found_A = _aligned(truth, estimate, estimate.is_edge.astype(np.float64))
    return Scores(
        W=edge_scores(is_true[0], found_W),
        A=edge_scores(_padded(is_true[1:], n_lags), _padded(found_A, n_lags)),
        skeleton=skeleton_scores(is_true[0], found_W),
        W_error=weight_error(truth.W, W),
        A_error=weight_error(true_A, estimated_A),
    )


def score_by_kind(truth: DBN, estimate: DBN) -> pd.DataFrame:
    """Scores of the edges into variables of each kind: one row per part (W, A) and kind of the true network.

    Numbers of edges add up to those of `score`; see `feddbn.metrics.kind_scores`.

    Examples
    --------
    >>> import feddbn
    >>> truth = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]])
    >>> feddbn.score_by_kind(truth, truth)["shd"].tolist()
    [0, 0]
    """
    check_network(truth, "truth")
    check_network(estimate, "estimate")
    n_lags = max(truth.n_lags, estimate.n_lags)
    is_true = truth.is_edge.astype(np.float64)
    found_W, found_A = _aligned(truth, estimate, estimate.is_edge.astype(np.float64))
    kinds = [kind.name for kind in truth.kinds]
    parts = {
        "W": kind_scores(is_true[0], found_W, kinds),
        "A": kind_scores(_padded(is_true[1:], n_lags), _padded(found_A, n_lags), kinds),
    }
    rows = [
        {"part": part, "kind": kind, **found}
        for part, by_kind in parts.items()
        for kind, found in by_kind.items()
    ]
    return pd.DataFrame(rows).set_index(["part", "kind"])


def score_sites(truths: Mapping[str, DBN], estimates: Mapping[str, DBN] | DBN) -> SiteScores:
    """Scores of every site's network against its own truth, and their means (the paper's mSHD, mTPR, mFDR).

    A single DBN as `estimates` is one shared network, scored against the truth of every site.

    Examples
    --------
    >>> import feddbn
    >>> truth = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]])
    >>> empty = feddbn.DBN([[0, 0], [0, 0]], truth.A)
    >>> feddbn.score_sites({"a": truth, "b": truth}, {"a": truth, "b": empty})["W"]["mshd"]
    0.5
    """
    for name, given in (("truths", truths), ("estimates", estimates)):
        if not isinstance(given, Mapping) and (name == "truths" or not isinstance(given, DBN)):
            raise ParameterError(
                f"{name} must be a dict from site to DBN, got {type(given).__name__}; for one network use feddbn.score."
            )
    if not truths:
        raise ParameterError("truths must name at least one site, got none.")
    if isinstance(estimates, DBN):
        estimates = dict.fromkeys(truths, estimates)
    if set(truths) != set(estimates):
        odd = sorted(set(truths) ^ set(estimates))
        raise ParameterError(
            f"truths and estimates must have the same sites; only one of them has {', '.join(odd[:5])}."
        )
    return SiteScores({site: score(truths[site], estimates[site]) for site in truths})


def _aligned(truth: DBN, estimate: DBN, stack: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The first (d, d) of the estimate's stack (p+1, d, d) and the others, in the truth's order of variables."""
    if set(truth.variables) != set(estimate.variables):
        odd = sorted(set(truth.variables) ^ set(estimate.variables))
        raise ParameterError(
            f"truth and estimate must have the same variables; only one of them has {', '.join(odd[:5])}."
        )
    index = np.array([estimate.variables.index(name) for name in truth.variables], dtype=np.intp)
    ordered = stack[:, index][:, :, index]
    return ordered[0], ordered[1:]


def _padded(A: FloatArray, n_lags: int) -> FloatArray:
    missing = n_lags - len(A)
    return np.concatenate([A, np.zeros((missing, *A.shape[1:]))]) if missing else A
