"""Site and server programs for feature rows: one sum of counts, means and cross-products per candidate map.

What leaves a site is one vector in which recordings, sites and candidates have been added up:

    feature-scale      [n, sum x, sum x^2]                                           once, to make origin and
    scale public feature-moments    per candidate [n_own, n_groups, n_shared, totals, triangle]   rows centred
    as below pair-direction     sums of prewhitened products and their asymmetry (core/ranking/direction.py)

Centring (`centring` parameter of feature-moments)
--------------------------------------------------
``shared``      every row is centred by the mean over all sites.
``recording``   every row is centred by the mean of its own recording.
``label``       rows carry a label. A row whose label is the baseline (0, False, empty or missing; or the
value given as
                `baseline`) is centred by the mean over all sites of baseline rows; a row with any other label
                is centred by the mean of the rows of that label in its own recording: the label marks a
                stimulus whose effect differs from recording to recording and is unknown.

The label of a feature row is the label of its own time t, not of its predecessors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.design import Basis, Design
from feddbn.core.designs.features import DEFAULT_KNOTS
from feddbn.core.designs.gram import Gram, gram_sums_length, recording_gram
from feddbn.core.designs.nuisance import Nuisance
from feddbn.core.ranking.direction import DirectionSums, PairScores, direction_sums, score_pairs
from feddbn.errors import DataError, ParameterError, ProtocolError
from feddbn.federation.protocol.site import Recording, SiteData, SiteState, SiteTask, register_site_task
from feddbn.federation.protocol.task import Param, ServerProgram, Task

__all__ = [
    "CENTRINGS",
    "Candidate",
    "FeatureStatistics",
    "feature_statistics_program",
    "pair_direction_program",
]

CENTRINGS = ("shared", "recording", "label")


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
    candidate, design
        Which map, and where its columns are.
    n
        Number of rows.
    n_intercepts
        Number of means that the centring removed.
    cross
        (q, q) centred cross-products, in public standard deviations.
    """

    candidate: Candidate
    design: Design
    n: float
    n_intercepts: float
    cross: FloatArray


@dataclass(frozen=True)
class _Public:
    """What every site is told before it computes feature rows."""

    n_lags: int
    candidates: tuple[Candidate, ...]
    centring: str
    baseline: Param
    origin: FloatArray
    scale: FloatArray
    knots: FloatArray

    def task(self) -> Task:
        return Task(
            "feature-moments",
            {"origin": self.origin, "scale": self.scale, "knots": self.knots},
            {
                "n_lags": self.n_lags,
                "features": tuple(c.features for c in self.candidates),
                "smoothing": tuple(float(c.smoothing) for c in self.candidates),
                "centring": self.centring,
                "baseline": self.baseline,
            },
        )

    def designs(self, variables: Sequence[str]) -> list[Design]:
        """One design per candidate."""
        scope = {"shared": "all"}.get(self.centring, self.centring)
        nuisance = Nuisance(scope, baseline=self.baseline if scope == "label" else None)  # type: ignore[arg-type]
        knots, origin, scale = (tuple(a.tolist()) for a in (self.knots, self.origin, self.scale))
        return [
            Design.features(
                variables, self.n_lags, Basis(c.features, knots, c.smoothing), nuisance, origin, scale
            )
            for c in self.candidates
        ]

    @classmethod
    def of(cls, task: Task) -> _Public:
        names, smoothing = task.params["features"], task.params["smoothing"]
        n_lags, centring = task.params["n_lags"], task.params["centring"]
        if not isinstance(names, (tuple, list)) or not isinstance(smoothing, (tuple, list)):
            raise ProtocolError("task 'feature-moments' must name features and smoothing as lists.")
        if (
            not isinstance(n_lags, int)
            or n_lags < 1
            or centring not in CENTRINGS
            or len(names) != len(smoothing)
        ):
            raise ProtocolError(
                f"task 'feature-moments' needs n_lags >= 1, as many smoothings as features and a centring"
                f" among {', '.join(CENTRINGS)};"
                f" got {n_lags!r}, {len(smoothing)} for {len(names)}, {centring!r}."
            )
        candidates = tuple(Candidate(str(f), float(str(s))) for f, s in zip(names, smoothing, strict=True))
        arrays = task.arrays
        baseline = task.params.get("baseline")
        return cls(
            n_lags, candidates, str(centring), baseline, arrays["origin"], arrays["scale"], arrays["knots"]
        )


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
        answer = yield Task("feature-scale")
        units = _origin_and_scale(answer.value, d)
    public = _Public(
        n_lags, tuple(candidates), centring, baseline, units[0], units[1], np.array(knots, dtype=float)
    )
    answer = yield public.task()
    results, start = [], 0
    for candidate, design in zip(public.candidates, public.designs([f"x{i}" for i in range(d)]), strict=True):
        stop = start + gram_sums_length(design.q)
        if stop > len(answer.value):
            raise ProtocolError(
                "the sum for task 'feature-moments' is shorter than the asked candidates need."
            )
        gram = Gram.from_sums(answer.value[start:stop], design.q)
        results.append(FeatureStatistics(candidate, design, gram.n, gram.n_nuisance, gram.scatter))
        start = stop
    return results, units


def pair_direction_program(d: int, ridge: float = 1e-3) -> ServerProgram[PairScores]:
    """Return the scores of ordered pairs within a moment, from one sum."""
    answer = yield Task("pair-direction")
    return score_pairs(DirectionSums.from_sums(answer.value, d), ridge)


def _origin_and_scale(sums: FloatArray, d: int) -> FloatArray:
    n = float(sums[0])
    if n < 2:
        raise DataError(f"the sites hold {n:.0f} rows together; at least 2 are needed.")
    mean = sums[1 : 1 + d] / n
    variance = np.maximum(sums[1 + d :] / n - mean**2, 0.0)
    # Differences that are rounding errors of the raw sums are no variance.
    scale = np.where(variance > 1e-14 * np.maximum(mean**2, 1e-300), np.sqrt(variance), 1.0)
    return np.stack([mean, scale])


def _recording_moments(recording: Recording, designs: Sequence[Design]) -> FloatArray:
    """One recording's contribution: candidates one after another."""
    return np.concatenate([recording_gram(design, recording).to_sums() for design in designs])


def _feature_moment_units(site: SiteData, state: SiteState, task: Task, unit: str) -> Iterator[FloatArray]:
    _only_recordings(unit, task)
    designs = _Public.of(task).designs(site.variables)
    for recording in site.recordings():
        yield _recording_moments(recording, designs)


def _feature_moments(site: SiteData, state: SiteState, task: Task) -> tuple[SiteState, FloatArray]:
    designs = _Public.of(task).designs(site.variables)
    total = np.zeros(sum(gram_sums_length(design.q) for design in designs))
    for vector in _feature_moment_units(site, state, task, "recording"):
        total += vector
    return state, total


def _scale_units(site: SiteData, state: SiteState, task: Task, unit: str) -> Iterator[FloatArray]:
    _only_recordings(unit, task)
    d = len(site.variables)
    for recording in site.recordings():
        total = np.zeros(1 + 2 * d)
        for block in recording.blocks():
            x = np.asarray(block.values, dtype=np.float64)
            total += np.concatenate([[len(x)], x.sum(axis=0), (x**2).sum(axis=0)])
        yield total


def _scale(site: SiteData, state: SiteState, task: Task) -> tuple[SiteState, FloatArray]:
    total = np.zeros(1 + 2 * len(site.variables))
    for vector in _scale_units(site, state, task, "recording"):
        total += vector
    return state, total


def _direction_units(site: SiteData, state: SiteState, task: Task, unit: str) -> Iterator[FloatArray]:
    _only_recordings(unit, task)
    for recording in site.recordings():
        yield direction_sums(recording.blocks, len(site.variables)).to_sums()


def _direction(site: SiteData, state: SiteState, task: Task) -> tuple[SiteState, FloatArray]:
    total = DirectionSums.empty(len(site.variables)).to_sums()
    for vector in _direction_units(site, state, task, "recording"):
        total += vector
    return state, total


def _only_recordings(unit: str, task: Task) -> None:
    if unit != "recording":
        raise ProtocolError(
            f"task {task.name!r} can be split by recording only, not by {unit!r}:"
            " centring and smoothing tie its rows."
        )


register_site_task(SiteTask("feature-scale", _scale, "counts, sums and squares per variable", _scale_units))
register_site_task(
    SiteTask("feature-moments", _feature_moments, "cross-products of feature rows", _feature_moment_units)
)
register_site_task(
    SiteTask(
        "pair-direction", _direction, "products of prewhitened rows and their asymmetry", _direction_units
    )
)
