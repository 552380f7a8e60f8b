"""The page that the owner of a site's data signs: what a study is for, what leaves, who could learn what; by section.

The same findings are shown in the terminal, in the console and on paper. Their words are plain text, whose digest is part of
the approval: what was read can be proved later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from feddbn.core.designs.weights import SPREAD
from feddbn.errors import FeddbnError
from feddbn.federation.guards.study_plan import costs_in_words, plan_of
from feddbn.federation.protocol.endpoint import chosen_variables
from feddbn.federation.protocol.site import site_task
from feddbn.federation.protocol.study import Study, study_from_json
from feddbn.federation.protocol.task import Plan, most_numbers, tasks_in, usual_numbers
from feddbn.findings import Finding, Level
from feddbn.method_table import find_method
from feddbn.privacy.policy import usual_threshold
from feddbn.runtime.settings import SiteSettings, load_programs
from feddbn.runtime.site.open_site import read_data, rows_of
from feddbn.words import card

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Why": ("purpose", "legal", "lead", "recipients", "retention", "publication"),
    "What is used": ("update", "rows", "uncounted", "variables", "goal"),
    "What leaves this site": ("size", "asks", "privacy", "noise", "weights", "exact"),
    "What others can learn": ("unlearnable", "collusion", "personal"),
    "What you can do": ("withdrawal", "digest"),
}
"""Section of the page -> what is said there; the code of each begins with ``study-``."""


def about_study(study: Study, settings: SiteSettings | None) -> list[Finding]:
    """Return all that the page says, in its order; reads the site's data to count recordings and rows.

    Without `settings` there is no site, and nothing is counted.
    """
    # In the order of its canonical text: a file and what came by message are one study, with one page.
    study = study_from_json(study.to_json())
    load_programs(SiteSettings.model_fields["programs"].default if settings is None else settings.programs)
    method, about, plan = find_method(study.method), study.about, plan_of(study)
    table = getattr(study, study.goal, None)
    units = {**({} if settings is None else settings.units), **study.units}
    found = {
        "purpose": _said("purpose", text=about.purpose),
        "legal": _said("legal", text=about.legal_basis),
        "lead": _said("lead", lead=study.lead, contact=about.contact, ethics=about.ethics),
        "recipients": _said("recipients", study.sites, text=about.recipients),
        "retention": _said("retention", text=about.retention),
        "publication": _said("publication", text=about.publication),
        "update": _said("update", run=study.update_of) if study.update_of else None,
        "rows": None if settings is None else _counted(study, settings),
        "variables": _said(
            "variables",
            study.variables,
            units={name: units[name] for name in study.variables if name in units},
        ),
        "goal": _said(
            "goal",
            goal=study.goal,
            how=table.model_dump() if table else {},
            method=study.method,
            summary=method.summary if method else "",
            parameters=dict(study.parameters),
        ),
        "size": _size(plan),
        "privacy": _privacy(study),
        "unlearnable": _said("unlearnable", **_protection(study)),
        "collusion": _said("collusion", **_protection(study)),
        "personal": _said("personal"),
        "withdrawal": _said("withdrawal", name=study.name),
        "digest": _said("digest", digest=study.digest),
    }
    found["noise"] = _noise(study)
    told: list[Finding] = []
    for names in SECTIONS.values():
        for name in names:
            one = found.get(name)
            told += [_asks(task, plan) for task in tasks_in(plan)] if name == "asks" else []
            told += [] if one is None else [one]
    return told


def sections_of(told: Sequence[Finding]) -> dict[str, list[Finding]]:
    """Return what the page says, by section."""
    return {
        section: [one for one in told if one.code.removeprefix("study-") in names]
        for section, names in SECTIONS.items()
        if told
    }


def page_text(study: Study, site: str, told: Sequence[Finding]) -> str:
    """Return the page as plain text: equal pages give equal text."""
    lines = [f"Study {study.name} at site {site}"]
    for section, findings in sections_of(told).items():
        lines += ["", section]
        lines += [f"{said.question}: {said.detail}" for said in (card(one, "owner") for one in findings)]
    return "\n".join([*lines, ""])


def page_digest(study: Study, site: str, told: Sequence[Finding]) -> str:
    """Return the SHA-256 of the page's text."""
    return hashlib.sha256(page_text(study, site, told).encode()).hexdigest()


def _said(what: str, about: Sequence[str] = (), **values: Any) -> Finding:
    return Finding(f"study-{what}", "note", values, tuple(about))


def _size(plan: Plan) -> Finding:
    """How much leaves in a run: all questions of the plan together."""
    times = sum(ask.times for ask in plan)
    values = {"usual": usual_numbers(plan), "most": most_numbers(plan), "times": times}
    # A method that the table does not have is bounded by the site's policy alone.
    return Finding("study-size", "note" if plan else "error", values)


def _asks(task: str, plan: Plan) -> Finding:
    """One kind of question: what it tells, how often it is asked and how many numbers leave by it."""
    of = [planned for planned in plan if planned.task == task]
    return _said(
        "asks",
        task=task,
        purpose=_purpose(task),
        times=sum(planned.times for planned in of),
        usual=usual_numbers(of),
        most=most_numbers(of),
    )


def _purpose(task: str) -> str:
    try:
        return site_task(task).purpose(task)
    except FeddbnError:
        return ""


def _counted(study: Study, settings: SiteSettings) -> Finding:
    try:
        data = read_data(settings)
        names = chosen_variables(study, tuple(data.variables))
        return _said("rows", **rows_of(study, settings, data, names), series=settings.layout.series or "")
    except FeddbnError as error:
        return _said("uncounted", sentence=str(error))


def _privacy(study: Study) -> Finding:
    level: Level = "good" if study.privacy.secure_aggregation else "error"
    return Finding("study-privacy", level, _protection(study))


def _protection(study: Study) -> dict[str, Any]:
    """What the words about readers need; `pool` is how many other sites can work out this site's sums with the server."""
    privacy, n_sites = study.privacy, len(study.sites)
    pool = 0
    if privacy.secure_aggregation:
        # They answer for two lists of survivors, or are all others in the smallest sum that sites open.
        threshold = usual_threshold(n_sites, privacy.min_sites)
        pool = min(threshold - 1, 2 * threshold - n_sites)
    return {
        "masks": privacy.secure_aggregation,
        "min_sites": privacy.min_sites,
        "sites": n_sites,
        "pool": pool,
        "epsilon": privacy.epsilon,
        "unit": privacy.unit,
        "colluding": privacy.n_colluding,
        "hides": privacy.hides_rows,
    }


def _noise(study: Study) -> Finding:
    """What hides a patient in the sums that are opened."""
    privacy = study.privacy
    if privacy.epsilon is not None:
        values: dict[str, Any] = {"epsilon": privacy.epsilon, "delta": privacy.delta, "unit": privacy.unit}
        values["costs"] = costs_in_words(study)
        level: Level = "good" if privacy.hides_rows else "warning"
        return Finding("study-noise", level, values)
    if privacy.has_weights:
        return Finding("study-weights", "good", {"spread": SPREAD})
    return Finding("study-exact", "warning")
