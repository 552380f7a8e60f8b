"""Site and server programs for feature rows: one sum of counts, means and cross-products per candidate map.

What leaves a site is one vector in which recordings, sites and candidates have been added up:

    gram.scales        [n, sum x, sum x^2]                 once, to make origin and scale public
    gram.features      per candidate [n_own, n_groups, n_shared, totals, triangle]   rows centred as below
    residuals.pairs    sums of prewhitened products and their asymmetry (core/ranking.py)

Centring (`centring` parameter of gram.features)
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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.design import Basis, Design, Nuisance
from feddbn.core.designs.features import DEFAULT_KNOTS, callable_map, feature_map, register_feature_map
from feddbn.core.designs.gram import Gram, gram_sums_length, recording_gram
from feddbn.core.designs.recordings import CompleteSite, SiteData
from feddbn.core.ranking import (
    DirectionSums,
    EdgePosterior,
    PairScores,
    average_parent_sets,
    direction_sums,
    score_pairs,
    score_parent_sets,
)
from feddbn.core.statistics.moments import safe_roots
from feddbn.errors import DataError, ParameterError, ProtocolError
from feddbn.federation.protocol.site import Here, register_site_task, sum_of_units
from feddbn.federation.protocol.task import (
    MOST_LAGS,
    Constant,
    Param,
    Question,
    Scope,
    ServerProgram,
    Task,
    View,
    designs,
)
from feddbn.settings import word

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

    name = "gram.features"
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

    def in_view(self, data: SiteData, site: str) -> tuple[View, ...]:
        """The complete rows of every design."""
        return tuple(View(design, CompleteSite, n_parameters=design.q) for design in self.designs)

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

    name = "gram.scales"
    purpose = "counts, sums and squares per variable"

    def in_view(self, data: SiteData, site: str) -> tuple[View, ...]:
        """The complete rows."""
        return (View(Design.linear(data.variables, 0), CompleteSite),)


@dataclass(frozen=True)
class DirectionQuestion(Question):
    """Products of prewhitened rows and their asymmetry; see `core.ranking`."""

    name = "residuals.pairs"
    purpose = "products of prewhitened rows and their asymmetry"

    def in_view(self, data: SiteData, site: str) -> tuple[View, ...]:
        """The complete rows, with those before them."""
        design = Design.linear(data.variables, self.reach)
        return (View(design, CompleteSite, n_parameters=design.q),)

    @property
    def reach(self) -> int:
        """Rows are prewhitened with those before them."""
        return 1


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
    word(*CENTRINGS).check("centring", centring)
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
                "the sum for task 'gram.features' is shorter than the asked candidates need.",
                code="bad-sum",
            )
        gram = Gram.from_sums(answer.value[start:stop], design.q)
        results.append(FeatureStatistics(candidate, design, gram.n, gram.n_nuisance, gram.scatter))
        start = stop
    return results, units


def pair_direction_program(d: int, ridge: float = 1e-3) -> ServerProgram[PairScores]:
    """Return the scores of contemporaneous ordered pairs, from one sum."""
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
            f" {tuple(here.data.variables)}; agree on the same variables in the same order",
            code="other-variables",
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
            f"it can be split by recording only, not by {unit!r}: centring and smoothing tie its rows",
            code="unit-mixed",
        )


for _kind, _units in (
    (FeatureMomentsQuestion, _feature_moment_units),
    (FeatureScaleQuestion, _scale_units),
    (DirectionQuestion, _direction_units),
):
    register_site_task(sum_of_units(_kind, _units))


# Posterior probabilities of lagged edges as a program of one or two sums.
#
# The sites send cross-products of feature rows (`feddbn.federation.sums.feature_statistics`); the server averages
# over parent sets (`feddbn.core.ranking`) for every candidate map and keeps the one with the largest
# marginal likelihood.

AUTO_FEATURES = ("linear", "quadratic", "spline")
AUTO_SMOOTHING = (1.0, 0.8, 0.6, 0.4, 0.2)


@dataclass(frozen=True)
class LaggedOptions:
    """What `lagged_posterior_program` is asked for; see `feddbn.methods.edge_ranking.LaggedEdgeRanker`."""

    n_lags: int
    candidates: tuple[Candidate, ...]
    center_by: str | None = None
    baseline: str | int | float | bool | None = None
    standardise: bool = True
    knots: tuple[float, ...] = DEFAULT_KNOTS
    edge_rate: float | None = None
    n_hub_steps: int = 5
    ridge: float = 1e-3


@dataclass(frozen=True)
class LaggedPosterior:
    """The average over parent sets for every candidate, and which candidate is best.

    Attributes
    ----------
    statistics, posteriors
        One per candidate.
    best
        Index of the candidate with the largest marginal likelihood.
    units
        (2, d) public origin and scale.
    """

    statistics: tuple[FeatureStatistics, ...]
    posteriors: tuple[EdgePosterior, ...]
    best: int
    units: FloatArray

    @property
    def chosen(self) -> FeatureStatistics:
        """Statistics of the best candidate."""
        return self.statistics[self.best]

    @property
    def posterior(self) -> EdgePosterior:
        """Posterior of the best candidate."""
        return self.posteriors[self.best]

    @property
    def reason(self) -> str:
        """Why that candidate."""
        chosen = self.chosen.candidate
        name = f"features {chosen.features!r} with smoothing {chosen.smoothing:g}"
        if len(self.statistics) == 1:
            return f"{name} were given"
        evidence = np.array([p.log_marginal_likelihood for p in self.posteriors])
        first, second = np.argsort(-evidence, kind="stable")[:2].tolist()
        other = self.statistics[second].candidate
        return (
            f"{name} have the largest log marginal likelihood of {len(evidence)} candidates,"
            f" {evidence[first] - evidence[second]:.1f}"
            f" above {other.features!r} with smoothing {other.smoothing:g}"
        )

    def weights(self) -> FloatArray:
        """(p d, d) posterior mean effects in the variables' units, [from, to].

        For a map without the value itself as first feature: target units per unit of its first feature.
        """
        statistics, design = self.chosen, self.chosen.design
        d, p = design.d, design.n_lags
        spread = safe_roots(np.diag(statistics.cross) / statistics.n)
        of_target, of_regulator = spread[:d] * self.units[1], spread[design.edge_columns[:, 0]]
        if feature_map(statistics.candidate.features).has_identity:
            of_regulator = of_regulator * np.tile(self.units[1], p)
        return np.asarray(self.posterior.weight * of_target[None, :] / of_regulator[:, None])


def lagged_posterior_program(
    variables: Sequence[str], allowed: NDArray[np.bool_], options: LaggedOptions
) -> ServerProgram[LaggedPosterior]:
    """Ask for the feature statistics of all candidates and average over parent sets; allowed is (p d, d)."""
    rate = min(0.5, 2.0 / len(variables)) if options.edge_rate is None else options.edge_rate
    statistics, units = yield from feature_statistics_program(
        variables,
        options.n_lags,
        options.candidates,
        centring={None: "shared", "recording": "recording"}.get(options.center_by, "label"),
        baseline=options.baseline,
        standardise=options.standardise,
        knots=options.knots,
    )
    posteriors = tuple(_average(item, allowed, rate, options) for item in statistics)
    best = int(np.argmax([posterior.log_marginal_likelihood for posterior in posteriors]))
    return LaggedPosterior(tuple(statistics), posteriors, best, units)


def feature_candidates(
    features: str | Callable[[FloatArray], FloatArray], smoothing: float | str | None, d: int
) -> tuple[Candidate, ...]:
    """Return the maps to compare: one, or several where `features` or `smoothing` is "auto"."""
    names: Sequence[str]
    if callable(features):
        own = callable_map(features, d)
        register_feature_map(own)
        names = (own.name,)
    elif features == "auto":
        names = AUTO_FEATURES
    else:
        names = (feature_map(str(features)).name,)
    grid: Sequence[float]
    if smoothing == "auto":
        grid = AUTO_SMOOTHING
    elif smoothing is None:
        grid = (1.0,)
    elif isinstance(smoothing, (int, float)) and 0.0 < smoothing <= 1.0:
        grid = (float(smoothing),)
    else:
        raise ParameterError(f"smoothing must be None, 'auto' or a number in (0, 1], got {smoothing!r}.")
    return tuple(Candidate(name, s) for name in names for s in grid)


def _average(
    statistics: FeatureStatistics, allowed: NDArray[np.bool_], rate: float, options: LaggedOptions
) -> EdgePosterior:
    design = statistics.design
    scores = score_parent_sets(
        statistics.cross, statistics.n, statistics.n_intercepts, design, allowed=allowed, ridge=options.ridge
    )
    # The lags of one variable share its rate.
    variable = np.tile(np.arange(design.d), design.n_lags)
    return average_parent_sets(scores, edge_rate=rate, regulator_of=variable, n_hub_steps=options.n_hub_steps)
