"""What is known of a study before it is sent, in red, yellow and green.

A *dry round* is a study of its own: the check of data with which such a study begins anyway, over the same sites, under the
same masks. Owners approve it as they approve any study, and the same guards and registers apply, so that planning shows
nobody more than a check does. It insists on all sites: a sum without one of them would make sites refuse the study itself.
What sites say at its greeting is about rules only: approvals, units, kinds, variables. What is said about rows comes from its
sums.

The dry round has only those parameters that the first look depends on. So a study that is changed in others has the same
dry round, and what was found is used again. Its sums are not those of the study, which asks for them anew: they are two
messages, and owners approve the two apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from feddbn.core.statistics.power import (
    EFFECTS,
    Rule,
    discovery_rule,
    known_share,
    priced_rule,
    stable,
    usual_network,
)
from feddbn.core.statistics.survey import FEWEST_SITES
from feddbn.errors import FeddbnError
from feddbn.federation.guards.sampling_noise import few_rows
from feddbn.federation.guards.study_plan import costs_in_words, plan_of
from feddbn.federation.protocol.study import Attendance, Compare, Confidence, Select, Study, study_method
from feddbn.federation.protocol.task import most_numbers, tasks_in, usual_numbers
from feddbn.findings import Finding, Level
from feddbn.method_table import find_method, make_estimator
from feddbn.privacy.noise_plan import SHARE_OF_ERROR
from feddbn.privacy.policy import SitePolicy
from feddbn.privacy.register import must_differ_by
from feddbn.runtime.server.results import read_outcome
from feddbn.runtime.settings import load_programs
from feddbn.runtime.store import EventLog
from feddbn.settings import flat_names
from feddbn.words import card

__all__ = ["PlanRow", "dry_round", "plan_rows", "red_rows"]

COLOURS: Mapping[Level, str] = {
    "error": "red",
    "warning": "yellow",
    "unknown": "yellow",
    "note": "green",
    "good": "green",
}
_LOOKED_AT = ("on_disagreement", "gains", "exogenous", "empty_values", "made_up", "definitions")
"""What the first look at rows depends on, beside the number of lags."""
_UNIT_CODES = ("other-units", "units-unsaid")
_FAINT = 0.4
"""A study that finds no effect below this finds little."""


@dataclass(frozen=True)
class PlanRow:
    """One line of a plan: what it is about, its colour, a sentence, and the numbers and names in it."""

    code: str
    colour: str
    about: str
    sentence: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


def dry_round(study: Study) -> Study | None:
    """Return the check of data that a study of this kind begins with; None where nothing can be asked beforehand.

    Sums that carry noise cost epsilon, an update is about rows that are not known yet, and some methods have no first look.
    """
    load_programs(("feddbn.analysis.studies",))
    if study.privacy.epsilon is not None or study.update_of:
        return None
    method = _looks_by(study)
    if method is None:
        return None
    given = flat_names(study.parameters)
    parameters: dict[str, Any] = {"prepare": {name: given[name] for name in _LOOKED_AT if name in given}}
    if isinstance(given.get("n_lags"), int):
        parameters["n_lags"] = given["n_lags"]
    collects = study.attendance.collects
    return study.model_copy(
        update={
            "name": f"plan-{study.name}"[:40].rstrip("-"),
            "method": method,
            "goal": "check",
            "parameters": parameters,
            "attendance": study.attendance if collects else Attendance(when_missing="abort"),
            "confidence": Confidence(),
            "select": Select(),
            "compare": Compare(),
            "despite": "",
        }
    )


def _looks_by(study: Study) -> str | None:
    """The method whose first look is asked for: the study's own, or one that looks at the same rows and numbers."""
    if "check" in study_method(study.method).goals:
        return study.method
    # Levels with names have to be declared, which only this method does.
    has_names = any(kind.levels != tuple(map(str, range(kind.n_levels))) for kind in study.kinds.values())
    return "oneshot" if study.method in ("mixed", "changing") and not has_names else None


def plan_rows(
    study: Study,
    folder: Path | None = None,
    earlier: Mapping[str, Study] | None = None,
    finished: Collection[str] = (),
    why_not_asked: str = "",
) -> list[PlanRow]:
    """Return what is known of a study, red first.

    Parameters
    ----------
    study
        The study that is to be sent.
    folder
        Where ``outcome.json`` and ``events.jsonl`` of its dry round are; None if there was none.
    earlier
        Run -> study, of all runs that this lead has sent, None if that is not known; `finished` are those that have ended
        with a result.
    why_not_asked
        Why there was no dry round, where that is known.
    """
    outcome, refused = _heard(folder)
    found = [
        *_sites(study, outcome, refused, why_not_asked),
        *_units(study, outcome, refused),
        *_earlier(study, earlier, finished, refused),
        *_rows(study, outcome),
        *_data(study, outcome),
        *_asked(study),
    ]
    rows = [_row(*one) for one in found]
    return sorted(rows, key=lambda row: ("red", "yellow", "green").index(row.colour))


def red_rows(rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Return those that speak against sending the study."""
    return [row for row in rows if row.colour == "red"]


_Topic = tuple[str, Finding]


def _row(about: str, finding: Finding) -> PlanRow:
    said = card(finding, "lead")
    sentence = " ".join(part for part in (said.answer, said.detail, said.advice) if part)
    numbers = {**finding.values, **({"about": list(finding.about)} if finding.about else {})}
    return PlanRow(finding.code, COLOURS[finding.level], about, sentence, numbers)


def _heard(folder: Path | None) -> tuple[Mapping[str, Any], dict[str, tuple[str, str]]]:
    """How a dry round ended, and site -> the code and the sentence with which it refused."""
    if folder is None or not (folder / "outcome.json").exists():
        return {}, {}
    outcome, events = read_outcome(folder), list(EventLog(folder / "events.jsonl").read())
    outcome["greeted"] = any(event.get("what") == "agreed" for event in events)
    if outcome.get("state") == "finished":
        return outcome, {}
    # The last word of each site; who is not concerned now may have spoken in an attempt before this one.
    last = {str(event["site"]): event for event in events if event.get("site")}
    now = {*outcome.get("reasons", ()), *(outcome.get("awaited") or ())}
    said = {site: one for site, one in last.items() if one.get("what") == "refused" and site in now}
    if not said and outcome.get("state") == "stopped":
        said = {site: one for site, one in last.items() if one.get("what") == "silent"}
    return outcome, {
        site: (str(one.get("code") or "silent"), str(one.get("sentence", ""))) for site, one in said.items()
    }


def _sites(
    study: Study, outcome: Mapping[str, Any], refused: Mapping[str, tuple[str, str]], why: str
) -> Iterator[_Topic]:
    state = outcome.get("state")
    if not outcome:
        if not why:
            why = _no_round(study) if dry_round(study) is None else "`feddbn study plan` asks them."
        yield "sites", Finding("plan-not-asked", "unknown", {"why": why})
    elif state == "finished" or (outcome["greeted"] and not refused):
        yield "sites", Finding("plan-agreed", "good", {"n": len(study.sites)}, tuple(study.sites))
    if state == "collecting":
        yield "sites", Finding("plan-awaited", "unknown", about=tuple(outcome.get("awaited") or ()))
    elif outcome and state != "finished" and not refused:
        yield "sites", Finding("plan-stopped", "unknown", {"sentence": str(outcome.get("sentence") or state)})
    for code in sorted({one for one, _ in refused.values()} - {*_UNIT_CODES}):
        sites = tuple(site for site, (one, _) in sorted(refused.items()) if one == code)
        waits = code in ("not-approved", "silent")
        sentence = refused[sites[0]][1]
        yield (
            "sites",
            Finding(
                "plan-waits" if waits else "plan-refused",
                "unknown" if waits else "error",
                {"why": code, "sentence": sentence},
                sites,
            ),
        )


def _no_round(study: Study) -> str:
    if study.privacy.epsilon is not None:
        return "the study promises noise, and every sum that is asked beforehand would cost epsilon."
    if study.update_of:
        return "an update is about rows that sites do not have yet."
    return f"method {study.method!r} has no check of data that could be asked for."


def _units(
    study: Study, outcome: Mapping[str, Any], refused: Mapping[str, tuple[str, str]]
) -> Iterator[_Topic]:
    wrong = {site: said for site, said in sorted(refused.items()) if said[0] in _UNIT_CODES}
    for site, (code, sentence) in wrong.items():
        yield "units", Finding("plan-units-refused", "error", {"why": code, "sentence": sentence}, (site,))
    have_none = {name for name, kind in study.kinds.items() if kind.name != "continuous"}
    open_ones = tuple(name for name in study.variables if name not in study.units and name not in have_none)
    few = {"n_sites": len(study.sites), "fewest": FEWEST_SITES}
    if open_ones:
        yield "units", Finding("plan-units-open", "warning", few, open_ones)
    elif not wrong:
        is_known = bool(outcome.get("greeted"))
        yield "units", Finding("plan-units-said", "good" if is_known else "unknown", {"known": is_known})


def _earlier(
    study: Study,
    earlier: Mapping[str, Study] | None,
    finished: Collection[str],
    refused: Mapping[str, tuple[str, str]],
) -> Iterator[_Topic]:
    """Whether sites refuse this set of sites because of sums that were made before; by what this lead has sent."""
    if earlier is None or any(code == "shows-few-sites" for code, _ in refused.values()):
        return
    new = _set_of(study)
    if new is None:
        return
    sets = {run: found for run, one in earlier.items() if (found := _set_of(one)) is not None}
    done = {run: found for run, found in sets.items() if run in finished}
    least = max(study.privacy.min_sites, SitePolicy().min_sites)
    judged: tuple[tuple[Level, dict[str, frozenset[str]]], ...] = (("error", done), ("warning", sets))
    for level, known in judged:
        if fewest := must_differ_by(new, known.values(), least):
            # Those that other studies had; dry rounds of theirs last.
            other = [run for run in known if known[run] & new and known[run] != new]
            other.sort(key=lambda run: run.startswith("plan-"))
            values = {"sites": {run: list(earlier[run].sites) for run in other}, "fewest": fewest}
            yield "earlier runs", Finding("plan-earlier", level, values, tuple(other))
            return
    yield "earlier runs", Finding("plan-earlier-none", "good", {"n": len(earlier)})


def _set_of(study: Study) -> frozenset[str] | None:
    """The sites of a study as their registers compare them, if no data change; None where noise covers every set."""
    if not study.privacy.is_protected or study.privacy.hides_rows:
        return None
    return frozenset(f"{site}:" for site in study.sites)


def _told(outcome: Mapping[str, Any]) -> dict[str, Finding]:
    """Code -> what the sums of the dry round showed."""
    if outcome.get("state") != "finished":
        return {}
    stored = (outcome.get("summary") or {}).get("findings") or ()
    return {one.code: one for one in map(Finding.from_dict, stored)}


def _rows(study: Study, outcome: Mapping[str, Any]) -> Iterator[_Topic]:
    """How many rows there are, and how large an effect must be to be found with them."""
    told = _told(outcome)
    few = few_rows(study, study.rows)
    counted = told.get("all-rows")
    if counted is None:
        if few is not None:
            yield "rows", few
        return
    values, given = counted.values, flat_names(study.parameters)
    share = float(told["empty-share"].values["share"]) if "empty-share" in told else 0.0
    drops = given.get("missing") == "drop"
    columns, n_lags = int(values["columns"]), int(values["n_lags"])
    network, rng = partial(usual_network, columns // (n_lags + 1), n_lags), np.random.default_rng(0)
    # Rows that lack a cell count for the pairs of cells that they have.
    worth = (1 - share) ** columns if drops else known_share(stable(network, rng)[2], share, rng)
    n = max(values["usable"] - values["recordings"], 0) * worth
    n /= 1 + SHARE_OF_ERROR**2 if study.privacy.has_sampling_noise else 1
    rule = _rule(study, columns, n_lags)
    effect = rule.smallest(n)
    level: Level = "note"
    if counted.level == "error" or not isfinite(effect):
        level = "error"
    elif counted.level == "warning" or effect > _FAINT:
        level = "warning"
    keys = ("rows", "recordings", "sites", "n_lags")
    said = {key: values[key] for key in keys} | {"n_effective": round(n), "columns": values["columns"]}
    said |= {"effect": effect if isfinite(effect) else None, "threshold": rule.threshold or None}
    said |= {"power": {f"{size:g}": rule.power(size, n) for size in EFFECTS}}
    yield "rows", Finding("plan-rows", level, said)
    few = few_rows(study, int(values["rows"]))
    if few is not None:
        yield "rows", few


def _rule(study: Study, columns: int, n_lags: int) -> Rule:
    """When the study's method takes an edge."""
    method = find_method(study.method)
    try:
        own = make_estimator(study.method, {} if method is None else method.own(study.parameters))
        settings = own.get_params()
    except FeddbnError:
        settings = {}
    thresholds = [settings.get(name) for name in ("w_threshold", "a_threshold")]
    numbers = [float(one) for one in thresholds if isinstance(one, (int, float))]
    if numbers:
        return Rule(threshold=max(numbers))
    d, fdr, said = columns // (n_lags + 1), settings.get("fdr"), settings.get("penalty")
    if fdr is not None:
        return discovery_rule(
            float(fdr), partial(usual_network, d, n_lags), max(d // 2, 1), np.random.default_rng(0)
        )
    factor = float(said) if isinstance(said, (int, float)) else None
    return priced_rule(str(settings.get("criterion", "bic")), d, n_lags, factor)


def _data(study: Study, outcome: Mapping[str, Any]) -> Iterator[_Topic]:
    """Levels, cycles, gaps, kinds, scales and odd cells, as far as sums of the dry round tell."""
    given, told = flat_names(study.parameters), _told(outcome)
    if not told:
        return
    rows = told.pop("all-rows", None)
    n_recordings = int(rows.values["recordings"]) if rows is not None else 2
    center = str(given.get("center", "auto"))
    is_open = center == "none" and n_recordings > 1
    yield "levels", Finding("plan-levels", "warning" if is_open else "good", {"center": center})
    topics: dict[str, tuple[tuple[str, ...], Callable[[Finding], Level]]] = {
        "cycles": (("cycles",), lambda one: "note" if given.get("period", "auto") else "warning"),
        "gaps": (("empty-share",), lambda one: "warning" if given.get("missing") == "drop" else one.level),
        # Whole numbers are often measurements that were rounded.
        "kinds": (
            ("kinds-somewhere",),
            lambda one: "warning" if _has_yes_no(one) and study.method != "mixed" else "note",
        ),
        "scales": (
            ("scales", "disagreement", "not-compared"),
            lambda one: _scales_level(study, one),
        ),
    }
    for topic, (codes, level) in topics.items():
        of_topic = [told.pop(code) for code in codes if code in told]
        for one in of_topic:
            yield (
                topic,
                Finding(one.code, level(one), one.values, one.about, one.cure),
            )
        if not of_topic:
            yield topic, Finding("plan-nothing-seen", "good", {"topic": topic})
    yield from (("cells", one) for one in told.values())


def _has_yes_no(one: Finding) -> bool:
    return "binary" in one.values["kinds"].values()


def _scales_level(study: Study, one: Finding) -> Level:
    """Scales that differ much are other units until every owner has said the unit."""
    if one.code == "scales":
        return "error" if {*one.about} - study.units.keys() else "warning"
    return "unknown" if one.code == "not-compared" else one.level


def _asked(study: Study) -> Iterator[_Topic]:
    """What has to be allowed, what leaves and what it costs."""
    plan = plan_of(study)
    unusual = tuple(task for task in tasks_in(plan) if not SitePolicy().allows(task))
    if unusual:
        yield "tasks", Finding("plan-tasks", "warning", about=unusual)
    if plan:
        values = {"usual": usual_numbers(plan), "most": most_numbers(plan), "n_sites": len(study.sites)}
        yield "what leaves", Finding("plan-leaves", "note", {**values, "masks": study.privacy.is_protected})
    if study.privacy.epsilon is not None:
        costs = {"epsilon": study.privacy.epsilon, "sentence": costs_in_words(study)}
        yield "privacy budget", Finding("plan-costs", "note", costs)
    else:
        yield "privacy budget", Finding("plan-costs-none", "note")
