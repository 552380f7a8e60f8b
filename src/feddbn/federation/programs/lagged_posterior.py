"""Posterior probabilities of lagged edges as a program of one or two sums.

The sites send cross-products of feature rows (`feddbn.federation.programs.feature_statistics`); the server averages
over parent sets (`feddbn.core.ranking.edge_probability`) for every candidate map and keeps the one with the largest
marginal likelihood.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.features import DEFAULT_KNOTS, callable_map, feature_map, register_feature_map
from feddbn.core.ranking.edge_probability import EdgePosterior, average_parent_sets, score_parent_sets
from feddbn.core.statistics.scaling import safe_roots
from feddbn.errors import ParameterError
from feddbn.federation.programs.feature_statistics import (
    Candidate,
    FeatureStatistics,
    feature_statistics_program,
)
from feddbn.federation.protocol.task import ServerProgram

__all__ = ["LaggedOptions", "LaggedPosterior", "feature_candidates", "lagged_posterior_program"]

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

    def own_past(self, present: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
        """(p, d) least-squares effects of each target's own past, and (d,) residual variances.

        `present` (p d, d) says which regulators are in the model beside it.
        """
        cross, design = self.chosen.cross, self.chosen.design
        own, variances = np.zeros((design.n_lags, design.d)), np.zeros(design.d)
        for j in range(design.d):
            columns = np.concatenate([design.own(j), design.edge_columns[present[:, j]].ravel()])
            beta = np.linalg.lstsq(cross[np.ix_(columns, columns)], cross[columns, j], rcond=None)[0]
            own[:, j] = beta[: design.n_lags]
            free = max(self.chosen.n - self.chosen.n_intercepts - len(columns), 1.0)
            residual = max(float(cross[j, j] - cross[columns, j] @ beta), 0.0)
            variances[j] = residual / free * self.units[1, j] ** 2
        return own, variances


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
        statistics.cross,
        statistics.n,
        statistics.n_intercepts,
        design,
        allowed=allowed,
        ridge=options.ridge,
    )
    # The lags of one variable share its rate.
    variable = np.tile(np.arange(design.d), design.n_lags)
    return average_parent_sets(scores, edge_rate=rate, regulator_of=variable, n_hub_steps=options.n_hub_steps)
