"""Rankings of edges: lagged ones by model averaging, others by non-Gaussianity; see `ranking`.

Each site is a list of recordings, one DataFrame each; a row without a value ends a segment and is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from scipy.signal import lfilter
from threadpoolctl import threadpool_limits

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.features import natural_spline
from feddbn.core.statistics.moments import safe_roots
from feddbn.errors import DataError
from feddbn.settings import number, whole, word
from reproduction.ranking import (
    EdgePosterior,
    average_parent_sets,
    direction_sums,
    regulator_columns,
    score_pairs,
    score_parent_sets,
)

# The 5, 35, 65 and 95 % points of a normal.
KNOTS = np.array([-1.645, -0.385, 0.385, 1.645])
FEATURES = ("linear", "quadratic", "spline")
SMOOTHING = (1.0, 0.8, 0.6, 0.4, 0.2)
Sites = Mapping[str, Sequence[pd.DataFrame]]


@dataclass(frozen=True)
class Segment:
    """Consecutive complete rows (n, d) of one recording, and their labels if there are any."""

    recording: int
    values: FloatArray
    labels: FloatArray | None = None


def segments(sites: Sites, label: str | None = None) -> tuple[list[str], list[Segment]]:
    """Return the variables and the segments of all recordings; `label` names a column that is no variable."""
    frames = [frame for recordings in sites.values() for frame in recordings]
    names = [str(name) for name in frames[0].columns if name != label]
    if len(names) < 2:
        raise DataError(f"edges need at least 2 variables, got {len(names)}.")
    found = []
    for recording, frame in enumerate(frames):
        values = frame[names].to_numpy(dtype=np.float64)
        labels = None if label is None else frame[label].to_numpy(dtype=np.float64)
        there = np.isfinite(values).all(axis=1)
        for piece in np.split(np.arange(len(values)), np.flatnonzero(np.diff(there)) + 1):
            if len(piece) and there[piece[0]]:
                found.append(Segment(recording, values[piece], None if labels is None else labels[piece]))
    return names, found


class LaggedEdgeRanker:
    """Posterior probabilities of lagged edges, averaged over parent sets of size <= 2.

    For target j, with e the (smoothed) regulators and phi the feature map::

        x_j(t) = group mean + sum_l a_l x_j(t-l) + sum_{(i, l) in S} b_il' phi(e_i(t-l)) + noise,   |S| <= 2

    Parameters
    ----------
    n_lags
        Number of lags p >= 1.
    features
        "linear", "quadratic" or "spline" of standardised values; "auto": the one with the largest marginal likelihood.
    smoothing
        Weight s in (0, 1] of the newest value in a causal moving average of the regulators; "auto": of 1, .8, .6, .4, .2
        the one with the largest marginal likelihood.
    center_by
        None: one mean for all rows. Otherwise a column of numbers that marks a stimulus whose effect differs between
        recordings: rows with 0 share one mean, rows with another number have one mean per recording and number.
    n_hub_steps
        EM steps that give each regulator its own edge probability. 0: one for all.

    Attributes
    ----------
    edge_probabilities_
        DataFrame source, target, lag, weight, probability; most probable first. A variable's own past is in every model
        and not listed. `weight` is the posterior mean effect in the variables' units.
    probabilities_, weights_
        (p, d, d), [from, to]; probabilities have ones on the diagonals.
    features_, smoothing_
        What was used; `selection_` lists every candidate with its log marginal likelihood.
    """

    def __init__(
        self,
        n_lags: int = 1,
        features: str = "linear",
        smoothing: float | str = 1.0,
        center_by: str | None = None,
        n_hub_steps: int = 5,
    ) -> None:
        self.n_lags = whole(1).check("n_lags", n_lags)
        self.features = word(*FEATURES, "auto").check("features", features)
        self.smoothing = (number(above=0, most=1) | word("auto")).check("smoothing", smoothing)
        self.center_by = center_by
        self.n_hub_steps = n_hub_steps

    def fit(self, sites: Sites) -> Self:
        """Rank the edges of the sites' recordings."""
        with threadpool_limits(1, user_api="blas"):
            names, rows = segments(sites, self.center_by)
            d, p = len(names), self.n_lags
            values = np.concatenate([one.values for one in rows])
            # Differences that are rounding errors of the values are no variance.
            mean, sd = values.mean(axis=0), values.std(axis=0)
            scale = np.where(sd > 1e-7 * np.abs(mean), sd, 1.0)
            scaled = [Segment(one.recording, (one.values - mean) / scale, one.labels) for one in rows]
            maps = FEATURES if self.features == "auto" else (self.features,)
            grid = SMOOTHING if self.smoothing == "auto" else (float(self.smoothing),)
            best: tuple[EdgePosterior, str, float, FloatArray] | None = None
            lines = []
            for features in maps:
                for smoothing in grid:
                    posterior, weights = self._posterior(scaled, d, features, smoothing, scale)
                    evidence = posterior.log_marginal_likelihood
                    lines.append((features, smoothing, evidence))
                    if best is None or evidence > best[0].log_marginal_likelihood:
                        best = (posterior, features, smoothing, weights)
        assert best is not None
        posterior, self.features_, self.smoothing_, weight = best
        self.selection_ = pd.DataFrame(lines, columns=["features", "smoothing", "log_marginal_likelihood"])
        self.log_marginal_likelihood_ = posterior.log_marginal_likelihood
        self.edge_rates_ = posterior.rates[:d]
        self.weights_ = weight.reshape(p, d, d)
        self.probabilities_ = posterior.probability.reshape(p, d, d).copy()
        self.probabilities_[:, np.arange(d), np.arange(d)] = 1.0
        lag, source, target = np.nonzero(np.broadcast_to(~np.eye(d, dtype=bool), (p, d, d)))
        self.edge_probabilities_ = _table(
            names,
            source,
            target,
            "probability",
            lag=lag + 1,
            weight=self.weights_[lag, source, target],
            probability=self.probabilities_[lag, source, target],
        )
        return self

    def _posterior(
        self, rows: Sequence[Segment], d: int, features: str, smoothing: float, scale: FloatArray
    ) -> tuple[EdgePosterior, FloatArray]:
        """The posterior under one feature map and one smoothing, and (p d, d) mean effects in the variables' units."""
        p, groups = (
            self.n_lags,
            [np.concatenate(group) for group in _grouped(rows, self.n_lags, features, smoothing)],
        )
        n = sum(len(group) for group in groups)
        centred = np.concatenate([group - group.mean(axis=0) for group in groups])
        cross = centred.T @ centred
        scores = score_parent_sets(cross, n, len(groups), d, p)
        posterior = average_parent_sets(
            scores,
            edge_rate=min(0.5, 2.0 / d),
            # The lags of one variable share its rate.
            regulator_of=np.tile(np.arange(d), p),
            n_hub_steps=self.n_hub_steps,
        )
        spread = safe_roots(np.diag(cross) / n)
        of_regulator = spread[regulator_columns(len(cross), d, p)[:, 0]] * np.tile(scale, p)
        return posterior, posterior.weight * (spread[:d] * scale) / of_regulator[:, None]


def _grouped(rows: Iterable[Segment], p: int, features: str, smoothing: float) -> Iterable[list[FloatArray]]:
    """Feature rows in groups that share their mean."""
    groups: dict[tuple[int, float], list[FloatArray]] = {}
    for one in rows:
        found = _feature_rows(one.values, p, features, smoothing)
        labels = np.zeros(len(found)) if one.labels is None else one.labels[p:]
        for label in np.unique(labels):
            key = (-1, 0.0) if label == 0 else (one.recording, float(label))
            groups.setdefault(key, []).append(found[labels == label])
    return groups.values()


def _feature_rows(x: FloatArray, p: int, features: str, smoothing: float) -> FloatArray:
    """(n - p, q) rows ``[x_t | x_{t-1} ... x_{t-p} | phi(e_{t-1}) ... phi(e_{t-p})]`` of one segment."""
    n = len(x)
    if n <= p:
        d = x.shape[1]
        return np.empty((0, (p + 1) * d + p * _mapped(x, features).shape[1]))
    e = (
        x
        if smoothing == 1.0
        else lfilter([smoothing], [1.0, smoothing - 1.0], x, axis=0, zi=(1 - smoothing) * x[:1])[0]
    )
    phi = _mapped(e, features)
    return np.hstack(
        [*(x[p - k : n - k] for k in range(p + 1)), *(phi[p - k : n - k] for k in range(1, p + 1))]
    )


def _mapped(x: FloatArray, features: str) -> FloatArray:
    """(n, d m) features; the first of each variable is its value."""
    if features == "linear":
        return x
    mapped = np.stack([x, x**2], axis=-1) if features == "quadratic" else natural_spline(x, KNOTS)
    return np.asarray(mapped).reshape(len(x), -1)


class ContemporaneousEdgeRanker:
    """Scores of directed contemporaneous edges: partial correlation times non-Gaussian direction.

    Each recording is prewhitened by its own AR(1) per variable; see `ranking`. With Gaussian noise the direction is a coin
    toss and `direction` stays near 1/2; sub-Gaussian noise reverses it.

    Attributes
    ----------
    edge_scores_
        DataFrame source, target, lag (0), score, partial_correlation, direction; highest score first.
    scores_, partial_correlations_, directions_
        (d, d), [from, to].
    """

    def fit(self, sites: Sites) -> Self:
        """Rank the edges of the sites' recordings."""
        names, rows = segments(sites)
        recordings: dict[int, list[FloatArray]] = {}
        for one in rows:
            recordings.setdefault(one.recording, []).append(one.values)
        first, *rest = (direction_sums(parts) for parts in recordings.values())
        pairs = score_pairs(sum(rest, first))
        self.scores_ = pairs.score
        self.partial_correlations_ = pairs.partial_correlation
        self.directions_ = pairs.direction
        source, target = np.nonzero(~np.eye(len(names), dtype=bool))
        self.edge_scores_ = _table(
            names,
            source,
            target,
            "score",
            lag=0,
            score=pairs.score[source, target],
            partial_correlation=pairs.partial_correlation[source, target],
            direction=pairs.direction[source, target],
        )
        return self


def _table(
    names: Sequence[str], source: FloatArray, target: FloatArray, by: str, **columns: object
) -> pd.DataFrame:
    """Edges by name, those with the highest number in the column `by` first."""
    label = np.array(names, dtype=object)
    table = pd.DataFrame({"source": label[source], "target": label[target], **columns})
    return table.sort_values(by, ascending=False, kind="stable", ignore_index=True)
