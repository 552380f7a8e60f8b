"""Rankings of edges from one or two sums: lagged ones by model averaging, others by non-Gaussianity."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.features import DEFAULT_KNOTS
from feddbn.core.graphs.constraints import Edge, EdgeConstraints
from feddbn.data import SiteData
from feddbn.errors import DataError
from feddbn.federation.programs.feature_statistics import (
    LaggedOptions,
    LaggedPosterior,
    feature_candidates,
    lagged_posterior_program,
    pair_direction_program,
)
from feddbn.federation.protocol.task import Federation, Observer, ServerProgram, Sum, Task
from feddbn.methods.base import FederatedEstimator, label_column
from feddbn.settings import (
    Rule,
    a_federation,
    edges,
    flag,
    function,
    increasing,
    nothing,
    number,
    text,
    whole,
    word,
)

__all__ = [
    "FEATURES",
    "SMOOTHING",
    "ContemporaneousEdgeRanker",
    "LaggedEdgeRanker",
    "lagged_edge_table",
    "selection_table",
]

T = TypeVar("T")

FEATURES = text("the name of a feature map", "'auto'") | function("a function")
SMOOTHING = number(above=0, most=1) | word("auto") | nothing()


class _Ranker(FederatedEstimator[Any]):
    """The shared part: counting the sums that were asked."""

    def _rank(self, program: ServerProgram[T], federation: Federation, observer: Observer | None) -> T:
        self.n_sums_, self.n_numbers_ = 0, 0

        def count(task: Task, answer: Sum) -> None:
            self.n_sums_ += 1
            self.n_numbers_ += int(answer.value.size)
            if observer is not None:
                observer(task, answer)

        return self._run(program, federation, count)[0]


class LaggedEdgeRanker(_Ranker):
    """Posterior probabilities of lagged edges, averaged over parent sets of size <= 2, from sums over sites.

    For target j, with e the (smoothed) regulators and phi the feature map::

        x_j(t) = group mean + sum_l a_l x_j(t-l) + sum_{(i, l) in S} b_il' phi(e_i(t-l)) + noise,   |S| <= 2

    Parameters
    ----------
    n_lags
        Number of lags p >= 1.
    features
        "linear", "quadratic", "spline" (natural cubic, public knots), a function ``(n, d) -> (n, d, m)`` of
        standardised values that works row by row, or "auto": the one with the largest marginal likelihood.
    smoothing
        Weight s in (0, 1] of the newest value in the regulators' causal moving average, None for none, or
        "auto": the s among 1, .8, .6, .4, .2 with the largest marginal likelihood.
    center_by
        None: one mean for all rows. "recording": a mean per recording. Otherwise the name of a label column:
        rows labelled 0, False or empty (or `baseline`) share one mean over all sites, rows with any other
        label have a mean per recording and label, rows without a label are left out. Use it for a stimulus
        whose effect differs between recordings.
    baseline
        The label that counts as "no stimulus".
    standardise
        Make a common origin and scale public by a first sum; knots and squares are relative to them.
    knots
        Knots of the spline, in public standard deviations.
    edge_rate
        Prior probability of an edge; by default min(1/2, 2/d), which expects about two regulators.
    n_hub_steps
        EM steps that let each regulator have its own rate (hubs); 0 for one rate.
    forbidden_edges
        ``(from, to, lag)`` that must not be considered; ``"*"`` stands for every variable.
    ridge
        Numerical regularisation of the regulators' correlations.
    federation
        Where the sums are made; None simulates the sites in this process.

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

    rules: ClassVar[Mapping[str, Rule]] = {
        "n_lags": whole(1),
        "features": FEATURES,
        "smoothing": SMOOTHING,
        "center_by": text("the name of a column", "'recording'") | nothing(),
        "baseline": text("a label") | number(-math.inf) | flag() | nothing(),
        "standardise": flag(),
        "knots": increasing(3),
        "edge_rate": number(above=0, below=1) | nothing(),
        "n_hub_steps": whole(0),
        "forbidden_edges": edges(),
        "ridge": number(0),
        "federation": a_federation(),
    }

    def __init__(
        self,
        n_lags: int = 1,
        features: str | Callable[[FloatArray], FloatArray] = "linear",
        smoothing: float | str | None = None,
        center_by: str | None = None,
        baseline: str | int | float | bool | None = None,
        standardise: bool = True,
        knots: Sequence[float] = DEFAULT_KNOTS,
        edge_rate: float | None = None,
        n_hub_steps: int = 5,
        forbidden_edges: Sequence[Edge] | None = None,
        ridge: float = 1e-3,
        federation: Federation | None = None,
    ) -> None:
        self.n_lags = n_lags
        self.features = features
        self.smoothing = smoothing
        self.center_by = center_by
        self.baseline = baseline
        self.standardise = standardise
        self.knots = knots
        self.edge_rate = edge_rate
        self.n_hub_steps = n_hub_steps
        self.forbidden_edges = forbidden_edges
        self.ridge = ridge
        self.federation = federation

    @property
    def _largest_lag(self) -> int:
        return int(self.n_lags)

    def _label_column(self, label: str | None) -> str | None:
        return label_column(self.center_by, label)

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        names = self._variables
        d = len(names)
        if d < 2:
            raise DataError(f"edges need at least 2 variables, got {d}.")
        constraints = EdgeConstraints.from_edges(names, int(self.n_lags), self.forbidden_edges)
        options = LaggedOptions(
            int(self.n_lags),
            feature_candidates(self.features, self.smoothing, d),
            self.center_by,
            self.baseline,
            self.standardise,
            tuple(self.knots),
            self.edge_rate,
            self.n_hub_steps,
            self.ridge,
        )
        allowed = constraints.allowed[d:]
        with threadpool_limits(1, user_api="blas"):
            result = self._rank(lagged_posterior_program(names, allowed, options), federation, observer)
            self._report(result, names, allowed)

    def _report(self, result: LaggedPosterior, names: tuple[str, ...], allowed: np.ndarray) -> None:
        d, p = len(names), int(self.n_lags)
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


class ContemporaneousEdgeRanker(_Ranker):
    """Scores of directed edges within a moment, from one sum: partial correlation times non-Gaussian
    direction.

    Each recording is prewhitened by its own AR(1) per variable; see `feddbn.core.ranking`. With Gaussian
    noise the direction is a coin toss and `direction` stays near 1/2; sub-Gaussian noise reverses it.

    Parameters
    ----------
    ridge
        Added to the diagonal of the correlation matrix before inversion.
    federation
        Where the sums are made; None simulates the sites in this process.

    Attributes
    ----------
    edge_scores_
        DataFrame source, target, lag (0), score, partial_correlation, direction; highest score first.
    scores_, partial_correlations_, directions_
        (d, d), [from, to].
    n_sums_, n_numbers_
        How many sums were asked, and how many numbers they had together.
    """

    rules: ClassVar[Mapping[str, Rule]] = {"ridge": number(0), "federation": a_federation()}

    def __init__(self, ridge: float = 1e-3, federation: Federation | None = None) -> None:
        self.ridge = ridge
        self.federation = federation

    @property
    def _largest_lag(self) -> int:
        # Prewhitening looks one row back.
        return 1

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        names = self._variables
        pairs = self._rank(pair_direction_program(len(names), self.ridge), federation, observer)
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
