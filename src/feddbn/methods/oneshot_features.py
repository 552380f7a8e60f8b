"""OneShotDBN with features, smoothing or labels: a model of lagged effects through feature maps."""

from __future__ import annotations

from typing import Any

import numpy as np

from feddbn.core.graphs.status import Status
from feddbn.errors import DataError
from feddbn.federation.programs.feature_statistics import (
    LaggedOptions,
    feature_candidates,
    lagged_posterior_program,
)
from feddbn.federation.protocol.task import Federation, Observer
from feddbn.methods.edge_ranking import lagged_edge_table, selection_table
from feddbn.methods.link_table import orientation_table, with_links
from feddbn.model.dbn import DBN

__all__ = ["fit_features"]


def fit_features(model: Any, federation: Federation, observer: Observer | None) -> None:
    """Fit an estimator so and set its attributes: the average over parent sets is the model."""
    names, d = model._variables, len(model._variables)
    if d < 2:
        raise DataError(f"edges need at least 2 variables, got {d}.")
    allowed = model._constraints().allowed[d:]
    candidates = feature_candidates(model.features, model.smoothing, d)
    options = LaggedOptions(model.n_lags, candidates, model.center_by)
    result, seconds = model._run(lagged_posterior_program(names, allowed, options), federation, observer)
    probability, weight = result.posterior.probability, result.weights()
    present = (probability > 0.5) & allowed
    A = np.where(present, weight, 0.0).reshape(model.n_lags, d, d)
    own, variances = result.own_past(present)
    A[:, np.arange(d), np.arange(d)] = own
    dbn = DBN(np.zeros((d, d)), A, names, np.zeros(d), variances)
    model._set_network(dbn, dbn)
    model.status_ = Status.EXACT
    model.n_lags_, model.lag_scores_, model.lambda_path_ = model.n_lags, None, None
    model.order_ = list(names)
    model.noise_variance_, model.reason_ = "free", result.reason
    model.orientation_ = orientation_table((), names)
    model.features_, model.smoothing_ = result.chosen.candidate.features, result.chosen.candidate.smoothing
    model.selection_ = selection_table(result)
    model.edge_probabilities_ = with_links(lagged_edge_table(probability, weight, names, allowed), names)
    model.units_ = model.nongaussian_ = model.residuals_ = None
    model.score_ = -2 * result.posterior.log_marginal_likelihood
    model.n_rounds_, model.n_samples_ = len(seconds), round(result.chosen.n)
