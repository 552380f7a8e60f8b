"""The estimators as methods that a study can name; importing this module registers them.

An estimator with ``federation=`` runs anywhere sums can be made. So a study's method is the estimator itself,
fitted on the federation that the server of the study provides.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from feddbn.errors import ParameterError
from feddbn.federation.study import StudyFederation, StudyMethod, StudyResult, register_study_method
from feddbn.methods.base import DBNEstimator

__all__ = ["estimator_method"]

_ESTIMATORS = {"fdbnl": ("feddbn.methods.fdbnl", "FDBNL")}


def estimator_method(name: str, kind: type[DBNEstimator]) -> StudyMethod:
    """Return the study method that fits an estimator of this kind."""

    def make(parameters: Mapping[str, Any], federation: StudyFederation | None) -> DBNEstimator:
        known = sorted(set(inspect.signature(kind).parameters) - {"federation"})
        for key in parameters:
            if key not in known:
                raise ParameterError(f"parameters has {key!r}, but {name!r} takes: {', '.join(known)}.")
        return kind(**parameters, federation=federation)

    def check(parameters: Mapping[str, Any]) -> None:
        estimator = make(parameters, None)
        settings = getattr(estimator, "_settings", None)
        if settings is not None:
            settings()

    def run(parameters: Mapping[str, Any], federation: StudyFederation) -> StudyResult:
        fitted = make(parameters, federation).fit(None)
        arrays = {
            "W": fitted.W_,
            "A": fitted.A_,
            "W_raw": fitted.W_raw_,
            "A_raw": fitted.A_raw_,
            "intercept": fitted.dbn_.intercept,
            "noise_variances": fitted.dbn_.noise_variances,
        }
        status = getattr(fitted, "status_", None)
        summary = {
            "method": name,
            "variables": list(fitted.dbn_.variables),
            "sites": list(federation.sites),
            "n_rounds": getattr(fitted, "n_rounds_", None),
            "status": None if status is None else status.name,
            "warnings": list(fitted.warnings_),
        }
        return StudyResult(
            {key: np.asarray(value, dtype=np.float64) for key, value in arrays.items()}, summary
        )

    return StudyMethod(name, run, check)


for _name, (_module, _class) in _ESTIMATORS.items():
    register_study_method(estimator_method(_name, getattr(import_module(_module), _class)))
