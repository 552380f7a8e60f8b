"""What a fitted `OneShotDBN` tells: from the server's outcome to its attributes and sentences."""

from __future__ import annotations

from typing import Any

import numpy as np

from feddbn.core.graphs.status import Status
from feddbn.core.orders.learn import explained_shares, refit
from feddbn.core.statistics.diagnostics import outputs_of, slow_findings
from feddbn.core.statistics.moments import safe_roots
from feddbn.errors import UnitsWarning
from feddbn.federation.programs.curved import CurvedOutcome
from feddbn.federation.programs.oneshot import OneShotOutcome
from feddbn.federation.programs.residual_checks import ResidualReport
from feddbn.methods.edge_table import edge_table, path_table
from feddbn.methods.hidden import say_hidden
from feddbn.methods.link_table import open_edges, orientation_table, with_links
from feddbn.methods.oneshot_curves import NO_SHAPES, features_name, say_curves, shapes_of
from feddbn.methods.residuals import say_residuals
from feddbn.model.dbn import DBN
from feddbn.words import say

__all__ = ["report_outcome"]


def report_outcome(
    estimator: Any,
    outcome: OneShotOutcome,
    report: ResidualReport | None = None,
    curved: CurvedOutcome | None = None,
) -> None:
    """Set the attributes of a fitted estimator, and say what has to be said."""
    learned, names, d = outcome.learned, estimator._variables, len(estimator._variables)
    if curved is None:
        C, intercept, variances = refit(outcome.moments, learned.support)
        shares, shapes = explained_shares(outcome.moments.scatter, C), NO_SHAPES
    else:
        found = curved.network
        C, intercept, variances = found.weights, found.intercept, found.variances
        shares, shapes = found.shares, shapes_of(curved)
    estimator.n_lags_ = outcome.n_lags
    estimator.lag_scores_ = None if outcome.lag_scores is None else outcome.lag_scores.tolist()
    if learned.noise.kind == "equal" and estimator.scale == "none":
        outputs = outputs_of(d, estimator._inputs)
        variances[outputs] = float(variances[outputs].mean())
    A, is_open = C[d:].reshape(outcome.n_lags, d, d), open_edges(learned.orientation, C, names)
    dbn = DBN(C[:d], A, names, intercept, variances, is_open, **shapes)
    estimator._set_network(dbn, dbn)
    estimator.status_ = Status.EXACT
    estimator.order_ = [names[j] for j in learned.order]
    estimator.noise_variance_, estimator.reason_ = learned.noise.kind, say(learned.noise.finding)
    estimator.orientation_ = orientation_table(learned.orientation, names)
    by_noise = outcome.nongaussian is not None and outcome.nongaussian.used
    table = edge_table(learned.posterior.probability, C, shares, names)
    estimator.edge_probabilities_ = with_links(table, names, learned, by_noise=by_noise)
    estimator.standard_deviations_ = safe_roots(np.diag(outcome.moments.scatter)[:d] / outcome.moments.n)
    estimator.features_ = "linear" if curved is None else features_name(curved)
    estimator.smoothing_, estimator.selection_ = 1.0, None
    estimator.lambda_path_ = path_table(learned.path) if learned.path else None
    estimator.units_, estimator.nongaussian_, estimator.score_ = (
        learned.units,
        outcome.nongaussian,
        learned.score,
    )
    estimator.n_rounds_ = outcome.n_sums
    estimator.n_samples_ = int(outcome.moments.n if curved is None else curved.told.moments.n)
    estimator._say_treatment(outcome.asked)
    estimator._say_dependent(outcome.dependent)
    estimator._tell(*slow_findings(outcome.moments, names, estimator._inputs))
    say_residuals(estimator, report)
    say_hidden(
        estimator, None if curved is not None else outcome.moments, None if report is None else report.doubts
    )
    if curved is not None:
        say_curves(estimator, curved)
    rests = None if learned.units is None else learned.units.finding
    if rests is not None and estimator.scale == "none":
        estimator._tell(rests, warn=UnitsWarning)
