"""A study in plain words, for the person who decides whether it may run on a site's data."""

from __future__ import annotations

from collections.abc import Sequence

from feddbn.data.checks import summary
from feddbn.errors import FeddbnError
from feddbn.federation.guards.study_scope import costs_in_words, size_in_words, tasks_of
from feddbn.federation.protocol.endpoint import chosen_variables
from feddbn.federation.protocol.site import site_task
from feddbn.federation.protocol.study import Attendance, Privacy, Study
from feddbn.method_table import find_method
from feddbn.runtime.deployed.open_site import read_data
from feddbn.runtime.deployed.protection import read_policy
from feddbn.runtime.deployed.settings import SiteSettings, load_programs

__all__ = ["study_in_words"]

_GOALS = {
    "network": "a network",
    "confidence": "how far each edge can be trusted",
    "select": "a network whose parameters are chosen on held-out rows",
    "compare": "a network, and how well this and other methods predict held-out rows",
    "check": "what is wrong with the data of all sites together; nothing is learned from them",
}


def study_in_words(study: Study, settings: SiteSettings) -> list[tuple[str, str]]:
    """Return (what, words) about all that a study says; reads the site's data to count rows, and sends nothing."""
    load_programs(settings.programs)
    method = find_method(study.method)
    about = "" if method is None else f": {method.summary}"
    table = getattr(study, study.goal, None)
    how = {} if table is None else table.model_dump()
    more = ", ".join(f"{name} = {value}" for name, value in how.items())
    values = ", ".join(f"{name} = {value}" for name, value in study.parameters.items())
    tasks = [(f"asks for {task}", _told(task)) for task in tasks_of(study)]
    costs = [] if study.privacy.epsilon is None else [("noise costs", costs_in_words(study))]
    units = ", ".join(f"{name} in {unit}" for name, unit in study.units.items())
    return [
        ("study", study.name),
        *(
            [("new rows of", f"run {study.update_of}, whose rows this site must not offer again")]
            if study.update_of
            else []
        ),
        ("lead", study.lead or "not named"),
        ("method", f"{study.method}{about}"),
        ("goal", f"{_GOALS[study.goal]}{f' ({more})' if more else ''}"),
        ("parameters", values or "the method's defaults"),
        ("variables", _listed(study.variables)),
        *([("units", units)] if units else []),
        ("rows", _rows(study, settings)),
        *tasks,
        ("size", size_in_words(study, read_policy(settings.policy))),
        ("sites", _listed(study.sites)),
        ("privacy", _privacy(study.privacy)),
        *costs,
        ("missing sites", _attendance(study.attendance)),
        ("digest", study.digest),
    ]


def _listed(names: Sequence[str]) -> str:
    return f"{len(names)}: {', '.join(names)}"


def _told(task: str) -> str:
    try:
        return site_task(task).question.purpose
    except FeddbnError:
        return "not known at this site"


def _rows(study: Study, settings: SiteSettings) -> str:
    n_lags = 1 if study.n_lags is None else study.n_lags
    try:
        whole = read_data(settings)
        names = chosen_variables(study, tuple(whole.variables))
        rows = summary({settings.name: read_data(settings, names)}, n_lags).iloc[0]
    except FeddbnError as error:
        return f"cannot be counted: {error}"
    all_rows, recordings = int(rows["rows"] + rows["dropped_rows"]), int(rows["recordings"])
    return (
        f"{int(rows['usable_rows'])} of {all_rows} rows of {_counted(recordings, 'recording')} can be used with "
        f"{_counted(n_lags, 'lag')}"
    )


def _privacy(privacy: Privacy) -> str:
    masks = (
        f"secure aggregation, sums of at least {privacy.min_sites} sites are opened"
        if privacy.secure_aggregation
        else "NO secure aggregation: the server sees this site's own sums"
    )
    if privacy.epsilon is None:
        return f"{masks}; no noise is added"
    return f"{masks}; noise: epsilon {privacy.epsilon:g}, delta {privacy.delta:g} for each {privacy.unit}, in each run"


def _attendance(rules: Attendance) -> str:
    if rules.collects:
        all_or = "all sites" if rules.enough is None else f"all sites, or {rules.enough} of them in the end,"
        return f"each message waits up to {rules.window_h:g} hours until {all_or} have come and answered it"
    late = f"a site is missing after {rules.timeout_s:g} s"
    then = {
        "wait": f"the run waits for it up to {rules.max_wait_s:g} s",
        "continue": f"the run goes on with at least {rules.min_sites} sites",
        "abort": "the run stops",
    }
    return f"{late}; then {then[rules.when_missing]}"


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
