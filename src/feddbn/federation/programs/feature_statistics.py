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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.complete import CompleteSite
from feddbn.core.designs.design import Basis, Design
from feddbn.core.designs.features import DEFAULT_KNOTS
from feddbn.core.designs.gram import Gram, gram_sums_length, recording_gram
from feddbn.core.designs.nuisance import Nuisance
from feddbn.core.ranking.direction import DirectionSums, PairScores, direction_sums, score_pairs
from feddbn.errors import DataError, ParameterError, ProtocolError
from feddbn.federation.protocol.question import MOST_LAGS, Constant, Param, Question, designs
from feddbn.federation.protocol.scope import Scope
from feddbn.federation.protocol.site import Here, register_site_task, sum_of_units
from feddbn.federation.protocol.task import ServerProgram, Task

__all__ = [
    "CENTRINGS",
    "Candidate",
    "FeatureStatistics",
    "feature_statistics_program",
    "pair_direction_program",
]

MOST_DESIGNS = 15
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


@dataclass(frozen=True, kw_only=True)
class FeatureMomentsQuestion(Question):
    """Cross-products of the rows of several designs; see `core.designs.gram.Gram.to_sums`."""

    name = "feature-moments"
    purpose = "cross-products of feature rows"

    designs: tuple[Design, ...] = designs()

    def check(self) -> None:
        """The designs are about the same variables and do not reach too far back."""
        if len({design.variables for design in self.designs}) > 1:
            raise self.wrong("'designs' must be about the same variables")
        if self.reach > MOST_LAGS:
            raise self.wrong(f"'designs' must have at most {MOST_LAGS} lags")

    def check_scope(self, scope: Scope) -> None:
        """Variables and lags are the study's; knots are where they always are, as rows between two could be read."""
        first = self.designs[0]
        usual = all(
            len(design.terms) == 2 and design.n_lags == self.reach and not design.nuisance.has_time
            for design in self.designs
        )
        scope.require(usual, self.name, "its designs are not of lagged rows and features of them")
        scope.require(first.variables == scope.variables, self.name, "it is about other variables")
        scope.require(self.reach in scope.lags, self.name, f"it reaches {self.reach} rows back")
        scope.require(len(self.designs) <= MOST_DESIGNS, self.name, f"it has {len(self.designs)} designs")
        knots = {term.basis.knots for design in self.designs for term in design.terms}
        scope.require(knots <= {(), DEFAULT_KNOTS}, self.name, "its knots are not the usual ones")
        units = {(design.origin, design.scale) for design in self.designs}
        scope.require(len(units) == 1, self.name, "its designs differ in origin or scale")

    @property
    def constants(self) -> tuple[Constant, ...]:
        """A run asks for one set of designs: others would have their knots between other rows."""
        return (Constant("designs of feature rows", tuple(design.digest for design in self.designs)),)

    @property
    def reach(self) -> int:
        """The largest number of lags."""
        return max(design.n_lags for design in self.designs)

    @property
    def feature_maps(self) -> tuple[str, ...]:
        """Names of the maps of all designs; the first term of each is the values themselves."""
        return tuple(sorted({term.basis.name for design in self.designs for term in design.terms[1:]}))

    @property
    def params(self) -> dict[str, Param]:
        """The designs as their descriptions."""
        return {"designs": tuple(design.to_dict() for design in self.designs)}


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
    variables: Sequence[str],
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
    d = len(variables)
    units = np.stack([np.zeros(d), np.ones(d)])
    if standardise:
        answer = yield Task(FeatureScaleQuestion())
        units = _origin_and_scale(answer.value, d)
    scope = {"shared": "all"}.get(centring, centring)
    nuisance = Nuisance(scope, baseline=baseline if scope == "label" else None)
    asked = tuple(
        Design.features(variables, n_lags, Basis(c.features, tuple(knots), c.smoothing), nuisance, *units)
        for c in candidates
    )
    answer = yield Task(FeatureMomentsQuestion(designs=asked))
    results, start = [], 0
    for candidate, design in zip(candidates, asked, strict=True):
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
    answer = yield Task(DirectionQuestion())
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


def _feature_moment_units(here: Here, question: FeatureMomentsQuestion, unit: str) -> Iterator[FloatArray]:
    _only_recordings(unit, question)
    if tuple(here.data.variables) != question.designs[0].variables:
        raise question.wrong(
            f"it is about the variables {question.designs[0].variables}, but this site has"
            f" {tuple(here.data.variables)}; agree on the same variables in the same order"
        )
    for recording in CompleteSite(here.data).recordings():
        yield np.concatenate([recording_gram(design, recording).to_sums() for design in question.designs])


def _scale_units(here: Here, question: FeatureScaleQuestion, unit: str) -> Iterator[FloatArray]:
    _only_recordings(unit, question)
    d = len(here.data.variables)
    for recording in CompleteSite(here.data).recordings():
        total = np.zeros(1 + 2 * d)
        for block in recording.blocks():
            x = np.asarray(block.values, dtype=np.float64)
            total += np.concatenate([[len(x)], x.sum(axis=0), (x**2).sum(axis=0)])
        yield total


def _direction_units(here: Here, question: DirectionQuestion, unit: str) -> Iterator[FloatArray]:
    _only_recordings(unit, question)
    for recording in CompleteSite(here.data).recordings():
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
