"""Rankings of edges from one or two sums: lagged ones by model averaging, others by non-Gaussianity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from threadpoolctl import threadpool_limits

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.features import DEFAULT_KNOTS
from feddbn.core.designs.lagged import Block
from feddbn.core.graphs.constraints import Edge, EdgeConstraints
from feddbn.data.memory import ArrayRecording, MemorySite
from feddbn.errors import DataError, ParameterError
from feddbn.federation.programs.feature_statistics import pair_direction_program
from feddbn.federation.programs.lagged_posterior import (
    LaggedOptions,
    LaggedPosterior,
    feature_candidates,
    lagged_posterior_program,
)
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import Federation, Sum, Task, run_program
from feddbn.runtime.simulated.in_process import InProcessFederation

__all__ = ["ContemporaneousEdgeRanker", "LaggedEdgeRanker", "lagged_edge_table", "selection_table"]


class _Ranker(BaseEstimator):  # type: ignore[misc]
    """The shared part: from data to a federation, counting the sums that were asked."""

    def _federation(
        self, data: Any, variables: Sequence[str] | None, label: str | None
    ) -> tuple[Federation, tuple[str, ...]]:
        if hasattr(data, "sum") and hasattr(data, "sites") and not isinstance(data, (Mapping, pd.DataFrame)):
            if variables is None:
                raise ParameterError("variables must name the columns when data is a federation, got None.")
            return data, tuple(str(name) for name in variables)
        sites = {name: Site(name, site) for name, site in _memory_sites(data, variables, label).items()}
        federation = InProcessFederation(sites)
        return federation, tuple(federation.site(federation.sites[0]).data.variables)

    def _count(self, task: Task, answer: Sum) -> None:
        self.n_sums_ += 1
        self.n_numbers_ += int(answer.value.size)


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
        rows labelled 0, False, empty or missing (or `baseline`) share one mean over all sites, rows with any
        other label have a mean per recording and label. Use it for a stimulus whose effect differs between
        recordings.
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

    def fit(self, data: Any, y: None = None, *, variables: Sequence[str] | None = None) -> LaggedEdgeRanker:
        """Learn from ``dict[str, DataFrame | ndarray | list of them]``, or a federation with `variables`."""
        if isinstance(self.n_lags, bool) or not isinstance(self.n_lags, (int, np.integer)) or self.n_lags < 1:
            raise ParameterError(f"n_lags={self.n_lags!r} must be a whole number of at least 1.")
        label = None if self.center_by in (None, "recording") else str(self.center_by)
        federation, names = self._federation(data, variables, label)
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
        self.n_sums_, self.n_numbers_ = 0, 0
        with threadpool_limits(1, user_api="blas"):
            program = lagged_posterior_program(names, constraints.allowed[d:], options)
            self._report(run_program(program, federation, self._count), names, constraints.allowed[d:])
        return self

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
        self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = d
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

    Each recording is prewhitened by its own AR(1) per variable; see `feddbn.core.ranking.direction`. With Gaussian
    noise the direction is a coin toss and `direction` stays near 1/2; sub-Gaussian noise reverses it.

    Parameters
    ----------
    ridge
        Added to the diagonal of the correlation matrix before inversion.

    Attributes
    ----------
    edge_scores_
        DataFrame source, target, lag (0), score, partial_correlation, direction; highest score first.
    scores_, partial_correlations_, directions_
        (d, d), [from, to].
    n_sums_, n_numbers_
        How many sums were asked, and how many numbers they had together.
    """

    def __init__(self, ridge: float = 1e-3) -> None:
        self.ridge = ridge

    def fit(
        self, data: Any, y: None = None, *, variables: Sequence[str] | None = None
    ) -> ContemporaneousEdgeRanker:
        """Learn from ``dict[str, DataFrame | ndarray | list of them]``, or a federation with `variables`."""
        federation, names = self._federation(data, variables, None)
        self.n_sums_, self.n_numbers_ = 0, 0
        pairs = run_program(pair_direction_program(len(names), self.ridge), federation, self._count)
        self.scores_ = pairs.score
        self.partial_correlations_ = pairs.partial_correlation
        self.directions_ = pairs.direction
        self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = len(names)
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
        return self


def _memory_sites(data: Any, variables: Sequence[str] | None, label: str | None) -> dict[str, Any]:
    """Sites from frames and arrays in memory; data that are a site already pass through."""
    if not isinstance(data, Mapping):
        data = {"site-0": data}
    if not data:
        raise DataError("data has no sites; give at least one.")
    sites: dict[str, Any] = {}
    for name, value in data.items():
        if hasattr(value, "recordings"):
            sites[str(name)] = value
            continue
        items = list(value) if isinstance(value, (list, tuple)) else [value]
        frames = [item if isinstance(item, pd.DataFrame) else _frame(item, name) for item in items]
        if not frames:
            raise DataError(f"site {name!r} has no recordings; give at least one or leave the site out.")
        recordings = [_recording(f"recording-{k}", frame, label, variables) for k, frame in enumerate(frames)]
        columns = (
            tuple(str(c) for c in frames[0].columns if c != label) if variables is None else tuple(variables)
        )
        sites[str(name)] = MemorySite(columns, recordings)
    first = next(iter(sites.values())).variables
    for name, site in sites.items():
        if tuple(site.variables) != tuple(first):
            raise DataError(
                f"site {name!r} has other variables, or another order of them, than the first site."
            )
    return sites


def _frame(array: Any, site: Any) -> pd.DataFrame:
    values = np.asarray(array)
    if values.ndim != 2:
        raise DataError(f"site {site!r} has an array of {values.ndim} dimensions; give (rows, variables).")
    return pd.DataFrame(values, columns=[f"x{i}" for i in range(values.shape[1])])


def _recording(
    name: str, frame: pd.DataFrame, label: str | None, variables: Sequence[str] | None
) -> ArrayRecording:
    if label is not None and label not in frame.columns:
        raise ParameterError(
            f"center_by={label!r} is not a column; the columns are {', '.join(list(map(str, frame))[:10])}."
        )
    labels = None if label is None else frame[label].to_numpy()
    chosen = [c for c in frame.columns if c != label] if variables is None else list(variables)
    try:
        values = frame[chosen].to_numpy(dtype=np.float64)
    except (KeyError, ValueError, TypeError):
        raise DataError(
            f"{name} has columns that are missing or not numeric; leave them out with variables=."
        ) from None
    if not np.all(np.isfinite(values)):
        raise DataError(f"{name} has missing or infinite values; drop those rows first.")
    return ArrayRecording(name, (Block(values, labels=labels),))
