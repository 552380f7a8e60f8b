"""The estimators as methods that a study can name; importing this module registers those of the method table.

An estimator with ``federation=`` runs anywhere sums can be made. So a study's method is the estimator itself,
fitted on the federation that the server of the study provides.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from feddbn.core.statistics.agreement import FEWEST_SITES
from feddbn.errors import ResultWarning
from feddbn.federation.protocol.study import Confidence, StudyMethod, StudyResult, register_study_method
from feddbn.federation.protocol.task import Federation
from feddbn.method_table import METHODS, Method
from feddbn.methods.registry import make_estimator
from feddbn.methods.result import Result, plain

__all__ = ["register_for_studies"]


_NOT_COMPARED = (
    "whether one site has other units, exchanged columns or other relations than the rest was not looked at; "
    "on_disagreement='warn' has sites compare themselves, if their owners allow the task 'agreement'."
)
_NO_SHAPES = (
    "some directions within a moment stay open, and whether the shape of the noise decides them was not looked at; "
    "use_nongaussian='auto' has sites tell it, if their owners allow the task 'residual-features'."
)
_UNLESS_SAID = {"on_disagreement": "ignore", "use_nongaussian": False}


def register_for_studies(method: Method) -> None:
    """Let studies name the method: its estimator is fitted on the study's federation."""

    def check(parameters: Mapping[str, Any]) -> None:
        make_estimator(method.name, parameters).check_parameters()

    def run(parameters: Mapping[str, Any], federation: Federation) -> StudyResult:
        estimator = make_estimator(method.name, _among_strangers(method, parameters))
        fitted = estimator.set_params(federation=federation).fit(None)
        if "on_disagreement" not in parameters and len(federation.sites) >= FEWEST_SITES:
            fitted.warnings_.append(_NOT_COMPARED)
        is_open = "use_nongaussian" in method.parameters() and bool(fitted.dbn_.open_edges)
        if is_open and "use_nongaussian" not in parameters:
            fitted.warnings_.append(_NO_SHAPES)
        arrays = {
            "W": fitted.W_,
            "A": fitted.A_,
            "W_raw": fitted.W_raw_,
            "A_raw": fitted.A_raw_,
            "intercept": fitted.dbn_.intercept,
            "noise_variances": fitted.dbn_.noise_variances,
        }
        if method.is_personal:
            # A site's own network is in these units; with them it can read what it kept.
            arrays |= {"center": fitted.center_values_, "scale": fitted.scale_values_}
        summary = {
            "method": method.name,
            "variables": list(fitted.dbn_.variables),
            "n_rounds": int(fitted.n_rounds_),
            "status": fitted.status_.name,
            "result": Result.from_estimator(fitted).to_dict(),
        }
        return StudyResult(
            {key: np.asarray(value, dtype=np.float64) for key, value in arrays.items()}, summary
        )

    def confidence(parameters: Mapping[str, Any], how: Confidence, federation: Federation) -> StudyResult:
        estimator = make_estimator(method.name, _among_strangers(method, parameters))
        return _edges(estimator, how, federation, method.name)

    tried = confidence if method.resamples else None
    register_study_method(
        StudyMethod(method.name, run, check, takes_noise=method.takes_noise, confidence=tried)
    )


def _among_strangers(method: Method, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a study: sites compare themselves, and tell the shape of their noise, only if it says so and
    their owners allow it.

    In one process nobody can misuse it. Between institutions a server that makes up the sums that sites compare themselves
    with decides who answers the next question with zeros, until one site is left.
    """
    default = {name: value for name, value in _UNLESS_SAID.items() if name in method.parameters()}
    return {**default, **parameters}


def _edges(estimator: Any, how: Confidence, federation: Federation, method: str) -> StudyResult:
    """Return how far each edge can be trusted: a table, from resamples that every site draws by itself."""
    # Imported here: only some studies ask for it.
    from feddbn.methods.confidence import edge_confidence

    with warnings.catch_warnings():
        # A study of the network gives this advice; a table of probabilities cannot act on it.
        warnings.simplefilter("ignore", ResultWarning)
        table = edge_confidence(
            estimator,
            n_replicates=how.replicates,
            block_length=how.block_length,
            method=how.resampling,
            random_state=how.seed,
            federation=federation,
            unit=how.unit,
            level=how.level,
        )
    edges = [plain(row) for row in table.to_dict("records")]
    names = list(federation.variables)
    return StudyResult({}, {"method": method, "variables": names, "edges": edges, "how": how.model_dump()})


for _method in METHODS.values():
    if _method.in_studies and _method.is_installed:
        register_for_studies(_method)
