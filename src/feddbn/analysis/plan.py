"""What is known of a study before it is sent: from its text, and from the outcome of a check of the same data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

from feddbn.analysis.power import Power, power
from feddbn.core.statistics.survey import FEWEST_SITES
from feddbn.errors import FeddbnError, StateError
from feddbn.federation.guards.study_plan import costs_in_words, plan_of
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import most_numbers, tasks_in, usual_numbers
from feddbn.findings import Finding, Findings, Level
from feddbn.method_table import find_method, make_estimator
from feddbn.privacy.policy import SitePolicy
from feddbn.settings import flat_names

_FAINT = 0.4
"""A study that finds no effect below this finds little."""


def plan_findings(study: Study, outcome: Mapping[str, Any] | None = None) -> Findings:
    """Return what is known of a study, errors first; `outcome` is that of a study with ``goal = "check"``.

    Raises
    ------
    StateError
        If the outcome is not that of a check of these variables at these sites that has finished.
    """
    return Findings([*_asked(study), *([] if outcome is None else _checked(study, outcome))])


def _asked(study: Study) -> list[Finding]:
    """What owners have to say and to allow, what leaves and what it costs."""
    found = []
    have_none = {name for name, kind in study.kinds.items() if kind.name != "continuous"}
    open_ones = tuple(name for name in study.variables if name not in study.units and name not in have_none)
    if open_ones:
        values: dict[str, Any] = {"n_sites": len(study.sites), "fewest": FEWEST_SITES}
        found.append(Finding("plan-units-open", "warning", values, open_ones))
    plan = plan_of(study)
    unusual = tuple(task for task in tasks_in(plan) if not SitePolicy().allows(task))
    if unusual:
        found.append(Finding("plan-tasks", "warning", about=unusual))
    if plan:
        values = {"usual": usual_numbers(plan), "most": most_numbers(plan), "n_sites": len(study.sites)}
        found.append(Finding("plan-leaves", "note", {**values, "masks": study.privacy.secure_aggregation}))
    if study.privacy.epsilon is not None:
        costs = {"epsilon": study.privacy.epsilon, "sentence": costs_in_words(study)}
        found.append(Finding("plan-costs", "note", costs))
    return found


def _checked(study: Study, outcome: Mapping[str, Any]) -> list[Finding]:
    """What a check has found, as far as it matters to this study, and what can be learned from so many rows."""
    checked = outcome.get("study") or {}
    same = {
        name: list(getattr(study, name)) == list(checked.get(name, ())) for name in ("variables", "sites")
    }
    if checked.get("goal") != "check" or outcome.get("state") != "finished" or not all(same.values()):
        raise StateError(
            f"run {outcome.get('run')!r} is no check of these variables at these sites that has finished.",
            code="no-check",
        )
    stored = (outcome.get("summary") or {}).get("findings") or ()
    told = {one.code: one for one in map(Finding.from_dict, stored)}
    given, rows = flat_names(study.parameters), told.pop("all-rows", None)
    levels: dict[str, Callable[[Finding], Level]] = {
        "cycles": lambda one: "note" if given.get("period", "auto") else "warning",
        "empty-share": lambda one: "warning" if given.get("missing") == "drop" else one.level,
        "kinds-somewhere": lambda one: "warning" if _lacks_kinds(study, one) else "note",
        # Scales that differ much are other units until every owner has said the unit.
        "scales": lambda one: "error" if {*one.about} - study.units.keys() else "warning",
    }
    found = [replace(one, level=levels[code](one)) if code in levels else one for code, one in told.items()]
    if rows is None:
        return found
    share = float(told["empty-share"].values["share"]) if "empty-share" in told else 0.0
    values = rows.values
    if given.get("center", "auto") == "none" and values["recordings"] > 1:
        found.append(Finding("plan-one-mean", "warning"))
    return [_power(study, rows, share), *found]


def _lacks_kinds(study: Study, one: Finding) -> bool:
    """Whether a variable has only 0 and 1; whole numbers are often measurements that were rounded."""
    return "binary" in one.values["kinds"].values() and study.method != "mixed"


def _power(study: Study, counted: Finding, share: float) -> Finding:
    """How large an effect must be to be found with these rows, `share` of whose cells are empty."""
    values = counted.values
    can_find = _can_find(study, values, share)
    smallest = can_find.smallest_effect()
    level: Level = "note"
    if counted.level == "error" or not isfinite(smallest):
        level = "error"
    elif counted.level == "warning" or smallest > _FAINT:
        level = "warning"
    said = {key: values[key] for key in ("rows", "recordings", "sites", "n_lags", "columns")}
    said |= {"n_effective": round(can_find.n_effective), "effect": smallest if isfinite(smallest) else None}
    said |= {"threshold": can_find.rule.threshold or None, "power": can_find.to_dict()["power"]}
    return Finding("plan-rows", level, said)


def _can_find(study: Study, values: Mapping[str, Any], share: float) -> Power:
    """Return what the study's method finds."""
    method = find_method(study.method)
    try:
        settings = make_estimator(
            study.method, {} if method is None else method.own(study.parameters)
        ).get_params()
    except FeddbnError:
        settings = {}
    thresholds = [settings.get(name) for name in ("w_threshold", "a_threshold")]
    numbers = [float(one) for one in thresholds if isinstance(one, (int, float))]
    columns, n_lags, usable = int(values["columns"]), int(values["n_lags"]), int(values["usable"])
    if flat_names(study.parameters).get("missing") == "drop":
        usable, share = round(usable * (1 - share) ** columns), 0.0
    return power(
        max(usable + n_lags * int(values["recordings"]), 1),
        sites=int(values["sites"]),
        recordings=int(values["recordings"]),
        variables=max(columns // (n_lags + 1), 2),
        n_lags=n_lags,
        missing=share,
        masked=study.privacy.has_weights,
        criterion="ebic" if settings.get("criterion") == "ebic" else "bic",
        threshold=max(numbers) if numbers else None,
        fdr=None if numbers else settings.get("fdr"),
    )
