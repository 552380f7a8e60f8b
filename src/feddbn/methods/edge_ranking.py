"""Rankings of edges from one or two sums: lagged ones by model averaging, others by non-Gaussianity."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from feddbn.core.arrays import FloatArray
from feddbn.core.constraints import Edge, EdgeConstraints
from feddbn.core.designs.features import DEFAULT_KNOTS
from feddbn.data import SiteData
from feddbn.errors import DataError, ParameterError
from feddbn.federation.protocol.task import Federation, Observer, ServerProgram, Sum, Task
from feddbn.federation.sums.feature_statistics import (
    LaggedOptions,
    LaggedPosterior,
    feature_candidates,
    lagged_posterior_program,
    pair_direction_program,
)
from feddbn.methods.base import FederatedEstimator
from feddbn.settings import (
    MethodSettings,
    edges,
    flag,
    function,
    increasing,
    nothing,
    number,
    setting,
    takes,
    text,
    whole,
    word,
)

__all__ = [
    "FEATURES",
    "SMOOTHING",
    "ContemporaneousEdgeRanker",
    "LaggedEdgeRanker",
    "LaggedRankerSettings",
    "PairRankerSettings",
    "lagged_edge_table",
    "selection_table",
]

T = TypeVar("T")
S = TypeVar("S", bound=MethodSettings)

FEATURES = text("the name of a feature map", "'auto'") | function("a function")
SMOOTHING = number(above=0, most=1) | word("auto") | nothing()


class _Ranker(FederatedEstimator[S]):
    """The shared part: counting the sums that were asked."""

    def _rank(self, program: ServerProgram[T], federation: Federation, observer: Observer | None) -> T:
        self.n_sums_, self.n_numbers_ = 0, 0

        def count(task: Task, answer: Sum) -> None:
            self.n_sums_ += 1
            self.n_numbers_ += int(answer.value.size)
            if observer is not None:
                observer(task, answer)

        return self._run(program, federation, count)[0]


@dataclass(frozen=True, repr=False)
class LaggedRankerSettings(MethodSettings):
    """What a person may choose of `LaggedEdgeRanker`."""

    n_lags: int = setting(1, whole(1), "Number of lags p >= 1.", kw_only=False)
    features: str | Callable[[FloatArray], FloatArray] = setting(
        "linear",
        FEATURES,
        'Shape of effects: "linear", "quadratic", "spline" (natural cubic, public knots), or a function ``(n, d) -> (n, d, '
        'm)`` of standardised values that works row by row. "auto": the one with the largest marginal likelihood.',
        kw_only=False,
    )
    smoothing: float | str | None = setting(
        None,
        SMOOTHING,
        'Weight s in (0, 1] of the newest value in a causal moving average of the regulators. None: no smoothing. "auto": '
        "the s among 1, .8, .6, .4, .2 with the largest marginal likelihood.",
        kw_only=False,
    )
    center_by: str | None = setting(
        None,
        text("the name of a column", "'recording'") | nothing(),
        'None: one mean for all rows. "recording": one mean per recording. Otherwise the name of a label column, for a '
        "stimulus whose effect differs between recordings: rows with label 0, False or empty (or `baseline`) share one "
        "mean over all sites. Other labels have one mean per recording and label. Rows without a label are left out.",
        kw_only=False,
    )
    baseline: str | int | float | bool | None = setting(
        None,
        text("a label") | number(-math.inf) | flag() | nothing(),
        'The label that means "no stimulus".',
    )
    standardise: bool = setting(
        True,
        flag(),
        "True: a first sum makes a common mean and scale public; knots and squares refer to these.",
    )
    knots: Sequence[float] = setting(
        DEFAULT_KNOTS, increasing(3), "Knots of the spline, in standard deviations."
    )
    edge_rate: float | None = setting(
        None,
        number(above=0, below=1) | nothing(),
        "Prior probability of an edge. None: min(1/2, 2/d), that is, about two regulators per target.",
    )
    n_hub_steps: int = setting(
        5, whole(0), "EM steps that give each regulator its own edge probability (hubs). 0: one for all."
    )
    forbidden_edges: Sequence[Edge] | None = setting(
        None, edges(), 'Edges ``(from, to, lag)`` to leave out; ``"*"`` means every variable.'
    )
    ridge: float = setting(1e-3, number(0), "Numerical regularisation of the regulators' correlations.")


class LaggedEdgeRanker(_Ranker[LaggedRankerSettings]):
    """Posterior probabilities of lagged edges, averaged over parent sets of size <= 2, from sums over sites.

    For target j, with e the (smoothed) regulators and phi the feature map::

        x_j(t) = group mean + sum_l a_l x_j(t-l) + sum_{(i, l) in S} b_il' phi(e_i(t-l)) + noise,   |S| <= 2

    Attributes
    ----------
    edge_probabilities_
        DataFrame source, target, lag, weight, probability; most probable first. A variable's own past is in
        every model and not listed. `weight` is the posterior mean effect in the variables' units (for a map
        without the value itself as first feature: target units per unit of its first feature).
    probabilities_
        (p, d, d) of the same probabilities, [from, to], with ones on the diagonals.
    features_, smoothing_, reason_
        What was used and why; `selection_` lists every candidate with its log marginal likelihood.
    log_marginal_likelihood_
        Of the used candidate.
    edge_rates_
        (d,) rate of each regulator after the EM steps.
    n_sums_, n_numbers_
        How many sums were asked, and how many numbers they had together.
    """

    @takes(LaggedRankerSettings)
    def __init__(self) -> None: ...

    @property
    def _largest_lag(self) -> int:
        return self._settings.n_lags

    def _label_column(self, label: str | None) -> str | None:
        center_by: str | None = self._settings.center_by
        if center_by in (None, "recording"):
            return label
        if label not in (None, center_by):
            raise ParameterError(f"label={label!r} must be the column of center_by={center_by!r}.")
        return center_by

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        names = self._variables
        d = len(names)
        if d < 2:
            raise DataError(f"edges need at least 2 variables, got {d}.")
        chosen = self._settings
        constraints = EdgeConstraints.from_edges(names, chosen.n_lags, chosen.forbidden_edges)
        options = LaggedOptions(
            chosen.n_lags,
            feature_candidates(chosen.features, chosen.smoothing, d),
            chosen.center_by,
            chosen.baseline,
            chosen.standardise,
            tuple(chosen.knots),
            chosen.edge_rate,
            chosen.n_hub_steps,
            chosen.ridge,
        )
        allowed = constraints.allowed[d:]
        with threadpool_limits(1, user_api="blas"):
            result = self._rank(lagged_posterior_program(names, allowed, options), federation, observer)
            self._report(result, names, allowed)

    def _report(self, result: LaggedPosterior, names: tuple[str, ...], allowed: np.ndarray) -> None:
        d, p = len(names), self._settings.n_lags
        self.selection_ = selection_table(result)
        chosen = result.chosen.candidate
        self.features_, self.smoothing_ = chosen.features, chosen.smoothing
        self.log_marginal_likelihood_ = result.posterior.log_marginal_likelihood
        self.n_rows_ = round(result.chosen.n)
        self.reason_ = result.reason
        self.probabilities_ = result.posterior.probability.reshape(p, d, d).copy()
        self.probabilities_[:, np.arange(d), np.arange(d)] = 1.0
        weight = result.weights()
        self.weights_ = weight.reshape(p, d, d)
        self.edge_rates_ = result.posterior.rates[:d]
        self.edge_probabilities_ = lagged_edge_table(result.posterior.probability, weight, names, allowed)


def selection_table(result: LaggedPosterior) -> pd.DataFrame:
    """DataFrame features, smoothing, log_marginal_likelihood: one row per candidate."""
    return pd.DataFrame(
        {
            "features": [s.candidate.features for s in result.statistics],
            "smoothing": [s.candidate.smoothing for s in result.statistics],
            "log_marginal_likelihood": [p.log_marginal_likelihood for p in result.posteriors],
        }
    )


def lagged_edge_table(
    probability: FloatArray, weight: FloatArray, names: tuple[str, ...], allowed: np.ndarray
) -> pd.DataFrame:
    """DataFrame source, target, lag, weight, probability of the allowed edges between different variables."""
    d = len(names)
    regulator, target = np.nonzero(allowed)
    other = regulator % d != target
    regulator, target = regulator[other], target[other]
    label = np.array(names, dtype=object)
    table = pd.DataFrame(
        {
            "source": label[regulator % d],
            "target": label[target],
            "lag": regulator // d + 1,
            "weight": weight[regulator, target],
            "probability": probability[regulator, target],
        }
    )
    return table.sort_values("probability", ascending=False, kind="stable", ignore_index=True)


@dataclass(frozen=True, repr=False)
class PairRankerSettings(MethodSettings):
    """What a person may choose of `ContemporaneousEdgeRanker`."""

    ridge: float = setting(
        1e-3,
        number(0),
        "Added to the diagonal of the correlation matrix before inversion.",
        kw_only=False,
    )


class ContemporaneousEdgeRanker(_Ranker[PairRankerSettings]):
    """Scores of directed contemporaneous edges, from one sum: partial correlation times non-Gaussian direction.

    Each recording is prewhitened by its own AR(1) per variable; see `feddbn.core.ranking`. With Gaussian
    noise the direction is a coin toss and `direction` stays near 1/2; sub-Gaussian noise reverses it.

    Attributes
    ----------
    edge_scores_
        DataFrame source, target, lag (0), score, partial_correlation, direction; highest score first.
    scores_, partial_correlations_, directions_
        (d, d), [from, to].
    n_sums_, n_numbers_
        How many sums were asked, and how many numbers they had together.
    """

    @takes(PairRankerSettings)
    def __init__(self) -> None: ...

    @property
    def _largest_lag(self) -> int:
        # Prewhitening looks one row back.
        return 1

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        names = self._variables
        pairs = self._rank(pair_direction_program(len(names), self._settings.ridge), federation, observer)
        self.scores_ = pairs.score
        self.partial_correlations_ = pairs.partial_correlation
        self.directions_ = pairs.direction
        source, target = np.nonzero(~np.eye(len(names), dtype=bool))
        table = pd.DataFrame(
            {
                "source": self.feature_names_in_[source],
                "target": self.feature_names_in_[target],
                "lag": 0,
                "score": pairs.score[source, target],
                "partial_correlation": pairs.partial_correlation[source, target],
                "direction": pairs.direction[source, target],
            }
        )
        self.edge_scores_ = table.sort_values("score", ascending=False, kind="stable", ignore_index=True)
