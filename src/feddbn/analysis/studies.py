"""The estimators as methods that a study can name; importing this module registers those of the method table.

An estimator with ``federation=`` runs anywhere sums can be made. So a study's method is the estimator itself,
fitted on the federation that the server of the study provides. `register_method` adds one of another package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from feddbn.analysis.comparison import check_compared, compare_on
from feddbn.analysis.data_check import check_data
from feddbn.analysis.monitor import Monitor
from feddbn.core.statistics.survey import FEWEST_SITES
from feddbn.errors import InputError, ParameterError
from feddbn.federation.protocol.study import Study, StudyMethod, StudyResult, Way, register_study_method
from feddbn.federation.protocol.task import Federation
from feddbn.findings import Finding
from feddbn.method_table import METHODS, Method, add_method, find_method, make_estimator
from feddbn.methods.base import unwarned
from feddbn.methods.fdbnl import PooledEstimator
from feddbn.methods.selection import AUTO_GRIDS, check_grid, default_grid, select
from feddbn.methods.updating import UpdatedEstimator
from feddbn.results.result import Result, plain
from feddbn.settings import flat_names

__all__ = ["Method", "register_method"]


_UNSAID = object()
_UNLESS_SAID = {"prepare.on_disagreement": "ignore", "use_nongaussian": False, "features": "linear"}


def _register_for_studies(method: Method) -> None:
    """Let studies name the method: its estimator is fitted on the study's federation."""

    def check(parameters: Mapping[str, Any]) -> None:
        make_estimator(method.name, parameters).check_parameters()

    def fitted_in_a_study(parameters: Mapping[str, Any]) -> Any:
        # What it finds travels in the result; nobody reads warnings inside a server.
        return unwarned(make_estimator(method.name, _among_strangers(method, parameters)))

    def run(parameters: Mapping[str, Any], federation: Federation) -> StudyResult:
        estimator = fitted_in_a_study(parameters)
        return told(parameters, federation, estimator.set_params(federation=federation).fit(None))

    def update(parameters: Mapping[str, Any], federation: Federation, kept: Mapping[str, Any]) -> StudyResult:
        estimator = fitted_in_a_study(parameters)
        sites = pd.DataFrame(index=pd.Index(federation.sites, name="site"))
        where = "the run that is updated"
        estimator.take_up(kept["sums"], sites, int(kept["n_rounds"]), where)
        monitor: Monitor | None = None
        why = ""
        try:
            monitor = Monitor.from_dict(kept["monitor"], where) if "monitor" in kept else Monitor(estimator)
        except InputError as error:
            why = str(error)
        fitted = estimator.set_params(federation=federation).update(None)
        if monitor is not None:
            try:
                # The difference of sums that the server has shows it nothing new.
                monitor.look_at_update(fitted._tally)
            except InputError as error:
                why = str(error)
        found = monitor.alarms if monitor is not None else ()
        if why:
            found = (*found, Finding("not-monitored", "unknown", {"why": why}))
        fitted._tell(*found)
        result = told(parameters, federation, fitted)
        if monitor is None:
            return result
        kept = {**result.kept, "monitor": plain(monitor.to_dict())}
        return replace(_with_table(result, "monitor", monitor.told()), kept=kept)

    def told(parameters: Mapping[str, Any], federation: Federation, fitted: Any) -> StudyResult:
        fitted._tell(*getattr(federation, "findings", ()))
        if (
            method.has("prepare.on_disagreement")
            and not _is_said("prepare.on_disagreement", parameters)
            and len(federation.sites) >= FEWEST_SITES
        ):
            fitted._tell(Finding("sites-not-compared", "unknown", cure={"prepare.on_disagreement": "warn"}))
        is_open = method.has("use_nongaussian") and bool(fitted.dbn_.open_edges)
        if is_open and not _is_said("use_nongaussian", parameters):
            fitted._tell(Finding("noise-shape-not-looked-at", "unknown", cure={"use_nongaussian": "auto"}))
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
        kept = {}
        if getattr(fitted, "_tally", None) is not None:
            kept = {"sums": plain(fitted.sums_to_dict()), "n_rounds": int(fitted.n_rounds_)}
        return StudyResult(
            {key: np.asarray(value, dtype=np.float64) for key, value in arrays.items() if value is not None},
            summary,
            kept,
        )

    def check_confidence(study: Study) -> None:
        check(study.parameters)
        estimator = make_estimator(method.name, study.parameters)
        why_not = estimator._why_not_moments() if isinstance(estimator, PooledEstimator) else None
        if why_not is not None:
            raise why_not
        if study.parameters.get("n_lags") == "auto":
            raise ParameterError(
                "goal = 'confidence' needs a number of lags; set n_lags to the one that was chosen."
            )

    def resample(study: Study, federation: Federation) -> StudyResult:
        # Imported here: only some studies ask for it.
        from feddbn.analysis.confidence import confidence

        how = study.confidence
        table = confidence(
            fitted_in_a_study(study.parameters),
            federation,
            how.replicates,
            random_state=how.seed,
            level=how.level,
        )
        edges = [plain(row) for row in table.to_dict("records")]
        told = {key: table.attrs[key] for key in ("residuals", "findings")}
        told["findings"] = [*_left_out(federation), *told["findings"]]
        about = {"method": method.name, "variables": list(federation.variables), "how": how.model_dump()}
        return StudyResult({}, {**about, "edges": edges, **told})

    def check_select(study: Study) -> None:
        check(study.parameters)
        check_grid(make_estimator(method.name, study.parameters), _grid(study, method), study.select.n_blocks)

    def choose(study: Study, federation: Federation) -> StudyResult:
        how = study.select
        estimator = fitted_in_a_study(study.parameters).set_params(federation=federation)
        options: dict[str, Any] = {"n_blocks": how.n_blocks, "share": how.share, "rule": how.rule}
        found = select(estimator, None, _grid(study, method), **options)
        result = run({**study.parameters, **found.chosen}, federation)
        return _with_table(result, "selection", {**found.to_dict(), **options})

    def compare(study: Study, federation: Federation) -> StudyResult:
        methods, how = _methods(study), study.compare
        unsaid = {
            name: value
            for name, value in _UNLESS_SAID.items()
            if any(one.has(name) for one in methods) and not _is_said(name, study.parameters)
        }
        parameters = {**unsaid, **study.parameters}
        lines = compare_on(federation, methods, parameters, how.share)
        # How long it took says nothing about the methods, and a resumed run would tell another time.
        rows = [{key: value for key, value in line.to_dict().items() if key != "seconds"} for line in lines]
        mine = method.own(study.parameters)
        table = {"held_out_share": how.share, "methods": rows}
        return _with_table(run(mine, federation), "comparison", table)

    def look(study: Study, federation: Federation) -> StudyResult:
        findings = [
            plain(found.to_dict()) for found in check_data(fitted_in_a_study(study.parameters), federation)
        ]
        names, findings = list(federation.variables), [*_left_out(federation), *findings]
        return StudyResult({}, {"method": method.name, "variables": names, "findings": findings})

    ways = {"compare": Way(compare, _check_compare)}
    if method.name not in ("changing", "mixed") and method.has("prepare.missing"):
        ways["check"] = Way(look, lambda study: check(study.parameters))
    if method.resamples:
        ways["confidence"] = Way(resample, check_confidence)
    if method.selects:
        ways["select"] = Way(choose, check_select)
    again = update if issubclass(method.load(), UpdatedEstimator) else None
    register_study_method(StudyMethod(method.name, run, check, method.takes_noise, ways, again))


def _left_out(federation: Federation) -> list[Any]:
    """Which variables had to be left out, and why."""
    return [plain(one.to_dict()) for one in getattr(federation, "findings", ())]


def _grid(study: Study, method: Method) -> Mapping[str, Any]:
    return study.select.grid or default_grid(method)


def _methods(study: Study) -> list[Method]:
    """The methods of a comparison, the study's own first."""
    found = []
    for name in study.methods:
        method = find_method(name)
        if method is None or not method.in_studies:
            able = ", ".join(row.name for row in METHODS.values() if row.in_studies)
            raise ParameterError(f"compare.against: {name!r} is no method of studies; it may name {able}.")
        if method in found:
            raise ParameterError(f"compare.against names {name!r}, which is compared already; leave it out.")
        found.append(method)
    return found


# What held-out rows cannot judge, and the value that leaves it out.
_NOT_JUDGED = {
    "features": "linear",
    "participation": 1,
}


def _check_compare(study: Study) -> None:
    if not study.compare.against:
        raise ParameterError(
            "goal = 'compare' needs other methods; name them, for example [compare] against = [\"fdbnl\"]."
        )
    methods = _methods(study)
    check_compared(methods, study.parameters, study.compare.share)
    for name, plain_value in _NOT_JUDGED.items():
        if study.parameters.get(name, plain_value) != plain_value:
            raise ParameterError(
                f"goal = 'compare': {name} = {study.parameters[name]!r} cannot be judged on held-out rows; leave it out."
            )
    for method in methods:
        mine = method.own(study.parameters)
        for name in AUTO_GRIDS:
            if method.selects and mine.get(name) == "auto":
                raise ParameterError(
                    f"goal = 'compare': {name} = 'auto' is chosen on held-out rows itself; give a number, a study with "
                    "goal = 'select' finds one."
                )
        make_estimator(method.name, mine).check_parameters()


def _with_table(result: StudyResult, name: str, table: Mapping[str, Any]) -> StudyResult:
    """The result of a fit, with a table of held-out rows beside it and in what is stored of it."""
    stored = dict(result.summary["result"])
    stored["diagnostics"] = {**stored["diagnostics"], name: plain(table)}
    return replace(result, summary={**result.summary, "result": stored, name: plain(table)})


def _among_strangers(method: Method, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a study: sites compare themselves, and tell the shape of their noise, only if it says so and
    their owners allow it.

    In one process nobody can misuse it. Between institutions a server that makes up the sums that sites compare themselves
    with decides who answers the next question with zeros, until one site is left.
    """
    default = {
        name: value
        for name, value in _UNLESS_SAID.items()
        if method.has(name) and not _is_said(name, parameters)
    }
    decided = {name.rpartition(".")[2] for name in default}
    said = method.named(parameters)
    return default | {name: value for name, value in said.items() if name.rpartition(".")[2] not in decided}


def _is_said(name: str, parameters: Mapping[str, Any]) -> bool:
    """Whether a study decides about it; that sites compare themselves is never left to what is usual."""
    found = flat_names(parameters).get(name.rpartition(".")[2], _UNSAID)
    return found is not _UNSAID and not (name == "prepare.on_disagreement" and found == "auto")


for _method in METHODS.values():
    if _method.in_studies and _method.is_installed:
        _register_for_studies(_method)


def register_method(method: Method) -> None:
    """Add a method to the table and, if a study may name it, to the methods of studies; see docs/extending.md.

    Examples
    --------
    >>> from feddbn.method_table import METHODS, get_method
    >>> from feddbn.analysis.studies import register_method
    >>> register_method(get_method("oneshot"))  # a row of your own, see docs/extending.md
    >>> "oneshot" in METHODS
    True
    """
    add_method(method)
    if method.in_studies:
        _register_for_studies(method)
