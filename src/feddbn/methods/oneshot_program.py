"""Which program a `OneShotDBN` runs on a federation: straight lines, curves, or what the residuals are for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.statistics.moments import Moments
from feddbn.errors import ParameterError
from feddbn.federation.programs.curved import (
    CurvedMoments,
    CurvedOutcome,
    CurveOptions,
    auto_program,
    curved_program,
    learn_from_curved,
)
from feddbn.federation.programs.oneshot import (
    OneShotOptions,
    OneShotOutcome,
    checked_oneshot_program,
    learn_from_moments,
    oneshot_program,
)
from feddbn.federation.programs.residual_checks import ResidualReport
from feddbn.federation.protocol.task import Federation, ServerProgram
from feddbn.methods.oneshot_curves import named_features
from feddbn.methods.residuals import are_looked_at

__all__ = ["Fit", "fit_of_moments", "fit_program", "may_find_curves"]

Fit = tuple[OneShotOutcome, ResidualReport | None, CurvedOutcome | None]
"""What a server ends with: the network, what its residuals say, and its curves, if it has any."""


def may_find_curves(estimator: Any, federation: Federation) -> bool:
    """Whether a fit asks about curves, or may come to do so; refuses curves where sites do not answer for them."""
    tasks, features = federation.answered_tasks, estimator.features
    is_answered = tasks is None or "curved-moments" in tasks
    if _is_curved(features) and not is_answered:
        raise ParameterError(
            f"features={features!r} needs the task 'curved-moments', which this federation does not answer; where sites "
            "add noise use private_federation(..., curves=True), else features='linear'."
        )
    if isinstance(features, str) and features == "auto":
        return is_answered and estimator.search == "order" and are_looked_at(estimator, federation)
    return _is_curved(features)


def _is_curved(features: Any) -> bool:
    """Whether curves are asked for by name."""
    return not (isinstance(features, str) and features in ("linear", "auto"))


def fit_program(
    estimator: Any,
    federation: Federation,
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
) -> ServerProgram[Fit]:
    """Return the program of an estimator's arguments."""
    tasks, features = federation.answered_tasks, estimator.features
    if tasks is not None and "residual-features" not in tasks and estimator.use_nongaussian == "auto":
        # Under differential privacy every further sum, or matrix, would cost what the first one has left.
        options = replace(options, use_nongaussian=False)
    options = replace(options, prepare=estimator._rows_on(federation))
    rng, looks = np.random.default_rng(estimator.random_state), are_looked_at(estimator, federation)
    if not may_find_curves(estimator, federation):
        return _straight_program(variables, constraints, options, rng, looks)
    if not _is_curved(features):
        return auto_program(variables, constraints, options, CurveOptions(), rng)
    kind = CurveOptions(named_features(features, len(variables)), estimator.interactions)
    return curved_program(variables, constraints, options, kind, rng, looks)


def _straight_program(
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
    rng: np.random.Generator,
    looks: bool,
) -> ServerProgram[Fit]:
    if looks:
        outcome, report = yield from checked_oneshot_program(variables, constraints, options, rng)
        return outcome, report, None
    return (yield from oneshot_program(variables, constraints, options, rng)), None, None


def fit_of_moments(
    estimator: Any,
    moments: Moments | CurvedMoments,
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    options: OneShotOptions,
) -> Fit:
    """Return what the moments of lagged or of curved rows tell, without any further sum."""
    rng, features = np.random.default_rng(estimator.random_state), estimator.features
    has_curves = isinstance(moments, CurvedMoments)
    if (features == "linear") if has_curves else _is_curved(features):
        raise ParameterError(
            f"fit_moments with features={features!r} needs moments of {'lagged' if has_curves else 'curved'} rows; these are "
            f"of {'curved' if has_curves else 'lagged'} ones."
        )
    n_columns = moments.question.q if isinstance(moments, CurvedMoments) else moments.q
    if n_columns != len(constraints.allowed):
        raise ParameterError(
            f"moments have {n_columns} columns; {len(variables)} variables and n_lags={options.n_lags} "
            f"need {len(constraints.allowed)}."
        )
    if isinstance(moments, Moments):
        return learn_from_moments(moments, variables, constraints, options, rng), None, None
    if callable(features):
        # Another process does not know it yet.
        named_features(features, len(variables))
    curved = learn_from_curved(moments, variables, constraints, options, rng)
    return curved.outcome, None, curved
