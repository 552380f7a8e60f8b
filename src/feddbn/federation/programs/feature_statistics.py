"""Site and server programs for feature rows: one sum of counts, means and cross-products per candidate map.

What leaves a site is one vector in which recordings, sites and candidates have been added up:

    feature-scale      [n, sum x, sum x^2]                 once, to make origin and scale public
    feature-moments    per candidate [n_own, n_groups, n_shared, totals, triangle]   rows centred as below
    pair-direction     sums of prewhitened products and their asymmetry (core/ranking/direction.py)

Centring (`centring` parameter of feature-moments)
--------------------------------------------------
``shared``      every row is centred by the mean over all sites.
``recording``   every row is centred by the mean of its own recording.
``label``       rows carry a label. A row whose label is the baseline (0, False, empty or missing; or the
                value given as `baseline`) is centred by the mean over all sites of baseline rows; a row with any other label
                is centred by the mean of the rows of that label in its own recording: the label marks a
                stimulus whose effect differs from recording to recording and is unknown.

The label of a feature row is the label of its own time t, not of its predecessors.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.features import DEFAULT_KNOTS, FeatureLayout, FeatureMap, feature_map, feature_rows
from feddbn.core.ranking.direction import DirectionSums, PairScores, direction_sums, score_pairs
from feddbn.core.statistics.moments import Moments, sums_length
from feddbn.errors import DataError, ParameterError, ProtocolError
from feddbn.federation.protocol.question import (
    MOST_LAGS,
    Param,
    Question,
    array,
    choice,
    numbers,
    scalar,
    texts,
    whole,
)
from feddbn.federation.protocol.site import Here, Recording, register_site_task, sum_of_units
from feddbn.federation.protocol.task import ServerProgram, Task

__all__ = [
    "CENTRINGS",
    "Candidate",
    "FeatureStatistics",
    "feature_statistics_program",
    "is_baseline",
    "pair_direction_program",
]

CENTRINGS = ("shared", "recording", "label")
_SHARED: Hashable = ("shared",)


@dataclass(frozen=True)
class Candidate:
    """One feature map with one smoothing (1 = none)."""

    features: str
    smoothing: float = 1.0


@dataclass(frozen=True)
class FeatureStatistics:
    """Centred cross-products of the feature rows of all sites.

    Attributes
    ----------
    candidate, layout
        Which map, and where its columns are.
    n
        Number of rows.
    n_intercepts
        Number of means that the centring removed.
    cross
        (q, q) centred cross-products, in public standard deviations.
    """

    candidate: Candidate
    layout: FeatureLayout
    n: float
    n_intercepts: float
    cross: FloatArray


@dataclass(frozen=True, kw_only=True)
class FeatureMomentsQuestion(Question):
    """Cross-products of the feature rows of candidate maps, each with its smoothing, in public units."""

    name = "feature-moments"
    purpose = "cross-products of feature rows"

    n_lags: int = whole(1, MOST_LAGS)
    features: tuple[str, ...] = texts()
    smoothing: tuple[float, ...] = numbers(0.0, 1.0)
    centring: str = choice(*CENTRINGS)
    baseline: Param = scalar(default=None)
    origin: FloatArray = array("d")
    scale: FloatArray = array("d")
    knots: FloatArray = array("k")

    def check(self) -> None:
        """Every map has its smoothing."""
        if len(self.features) != len(self.smoothing):
            raise self.wrong("'features' and 'smoothing' must be equally long")

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The maps with their smoothing."""
        return tuple(map(Candidate, self.features, self.smoothing))


@dataclass(frozen=True)
class FeatureScaleQuestion(Question):
    """Counts, sums and squares of the variables."""

    name = "feature-scale"
    purpose = "counts, sums and squares per variable"


@dataclass(frozen=True)
class DirectionQuestion(Question):
    """Products of prewhitened rows and their asymmetry; see `core.ranking.direction`."""

    name = "pair-direction"
    purpose = "products of prewhitened rows and their asymmetry"


def feature_statistics_program(
    d: int,
    n_lags: int,
    candidates: Sequence[Candidate],
    *,
    centring: str = "shared",
    baseline: str | int | float | bool | None = None,
    standardise: bool = True,
    knots: Sequence[float] = DEFAULT_KNOTS,
) -> ServerProgram[tuple[list[FeatureStatistics], FloatArray]]:
    """Return the statistics of every candidate and the public (2, d) origin and scale.

    Two sums with `standardise` (the first makes origin and scale public, so that knots and squares mean the
    same at every site), one without; all candidates travel in the same sum.
    """
    if centring not in CENTRINGS:
        raise ParameterError(f"centring must be one of {', '.join(CENTRINGS)}, got {centring!r}.")
    units = np.stack([np.zeros(d), np.ones(d)])
    if standardise:
        answer = yield Task(FeatureScaleQuestion())
        units = _origin_and_scale(answer.value, d)
    public = FeatureMomentsQuestion(
        n_lags=n_lags,
        features=tuple(c.features for c in candidates),
        smoothing=tuple(c.smoothing for c in candidates),
        centring=centring,
        baseline=baseline,
        origin=units[0],
        scale=units[1],
        knots=np.array(knots, dtype=float),
    )
    answer = yield Task(public)
    results, start = [], 0
    for candidate in public.candidates:
        layout = FeatureLayout(d, n_lags, feature_map(candidate.features).width(len(public.knots)))
        stop = start + 2 + sums_length(layout.q)
        if stop > len(answer.value):
            raise ProtocolError(
                "the sum for task 'feature-moments' is shorter than the asked candidates need."
            )
        results.append(_statistics(answer.value[start:stop], candidate, layout))
        start = stop
    return results, units


def pair_direction_program(d: int, ridge: float = 1e-3) -> ServerProgram[PairScores]:
    """Return the scores of ordered pairs within a moment, from one sum."""
    answer = yield Task(DirectionQuestion())
    return score_pairs(DirectionSums.from_sums(answer.value, d), ridge)


def is_baseline(labels: NDArray[np.generic], baseline: Param = None) -> NDArray[np.bool_]:
    """(n,) whether a label equals `baseline`; without one, whether it is 0, False, empty or missing."""
    if baseline is not None:
        return np.array([value == baseline for value in labels.tolist()], dtype=bool)
    return np.array([value is None or value != value or not value for value in labels.tolist()], dtype=bool)


def _origin_and_scale(sums: FloatArray, d: int) -> FloatArray:
    n = float(sums[0])
    if n < 2:
        raise DataError(f"the sites hold {n:.0f} rows together; at least 2 are needed.")
    mean = sums[1 : 1 + d] / n
    variance = np.maximum(sums[1 + d :] / n - mean**2, 0.0)
    # Differences that are rounding errors of the raw sums are no variance.
    scale = np.where(variance > 1e-14 * np.maximum(mean**2, 1e-300), np.sqrt(variance), 1.0)
    return np.stack([mean, scale])


def _statistics(vector: FloatArray, candidate: Candidate, layout: FeatureLayout) -> FeatureStatistics:
    n_own, n_groups, n_shared = (float(value) for value in vector[:3])
    q = layout.q
    totals, triangle = vector[3 : 3 + q], vector[3 + q :]
    cross = np.zeros((q, q))
    rows, columns = np.triu_indices(q)
    cross[rows, columns] = triangle
    cross[columns, rows] = triangle
    if n_shared > 0:
        cross -= np.outer(totals, totals) / n_shared
    # Own-centred rows lost one mean per group; the shared rows lost one together.
    return FeatureStatistics(candidate, layout, n_own + n_shared, n_groups + float(n_shared > 0), cross)


def _recording_moments(recording: Recording, public: FeatureMomentsQuestion, d: int) -> FloatArray:
    """One recording's contribution: candidates one after another."""
    return np.concatenate([_candidate_moments(recording, public, c, d) for c in public.candidates])


def _candidate_moments(
    recording: Recording, public: FeatureMomentsQuestion, candidate: Candidate, d: int
) -> FloatArray:
    features: FeatureMap = feature_map(candidate.features)
    q = FeatureLayout(d, public.n_lags, features.width(len(public.knots))).q
    groups: dict[Hashable, Moments] = {}
    stream = feature_rows(
        recording.blocks(),
        public.n_lags,
        features,
        smoothing=candidate.smoothing,
        origin=public.origin,
        scale=public.scale,
        knots=public.knots,
    )
    for chunk in stream:
        for key, rows in _split(chunk.rows, chunk.labels, public, recording.name):
            groups[key] = groups.get(key, Moments.empty(q)).merge(Moments.of_rows(rows))
    shared = groups.pop(_SHARED, Moments.empty(q))
    vector = shared.to_sums()
    upper = np.triu_indices(q)
    for own in groups.values():
        vector[1 + q :] += own.scatter[upper]
    n_own = sum(own.n for own in groups.values())
    return np.concatenate([[n_own, float(len(groups))], vector])


def _split(
    rows: FloatArray, labels: NDArray[np.generic] | None, public: FeatureMomentsQuestion, recording: str
) -> Iterator[tuple[Hashable, FloatArray]]:
    """Yield (group, rows) of one chunk; the group of shared rows is `_SHARED`."""
    if public.centring == "shared":
        yield _SHARED, rows
    elif public.centring == "recording":
        yield "recording", rows
    elif labels is None:
        raise DataError(
            f"recording {recording!r} has no label column, but center_by asks to centre rows by it."
        )
    else:
        baseline = is_baseline(labels, public.baseline)
        if baseline.any():
            yield _SHARED, rows[baseline]
        values = np.array([str(value) for value in labels.tolist()])
        for value in sorted(set(values[~baseline].tolist())):
            yield ("label", value), rows[~baseline & (values == value)]


def _feature_moment_units(here: Here, question: FeatureMomentsQuestion, unit: str) -> Iterator[FloatArray]:
    _only_recordings(unit, question)
    if len(question.origin) != len(here.data.variables):
        raise question.wrong(
            f"'origin' must have a number for each of the {len(here.data.variables)} variables"
        )
    for recording in here.data.recordings():
        yield _recording_moments(recording, question, len(here.data.variables))


def _scale_units(here: Here, question: FeatureScaleQuestion, unit: str) -> Iterator[FloatArray]:
    _only_recordings(unit, question)
    d = len(here.data.variables)
    for recording in here.data.recordings():
        total = np.zeros(1 + 2 * d)
        for block in recording.blocks():
            x = np.asarray(block.values, dtype=np.float64)
            total += np.concatenate([[len(x)], x.sum(axis=0), (x**2).sum(axis=0)])
        yield total


def _direction_units(here: Here, question: DirectionQuestion, unit: str) -> Iterator[FloatArray]:
    _only_recordings(unit, question)
    for recording in here.data.recordings():
        yield direction_sums(recording.blocks, len(here.data.variables)).to_sums()


def _only_recordings(unit: str, question: Question) -> None:
    if unit != "recording":
        raise question.wrong(
            f"it can be split by recording only, not by {unit!r}: centring and smoothing tie its rows"
        )


for _kind, _units in (
    (FeatureMomentsQuestion, _feature_moment_units),
    (FeatureScaleQuestion, _scale_units),
    (DirectionQuestion, _direction_units),
):
    register_site_task(sum_of_units(_kind, _units))
