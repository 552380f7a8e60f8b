"""A study in plain words for its page: what is asked, what leaves, what it costs, who is in it, what is new."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from feddbn.errors import FeddbnError
from feddbn.federation.protocol.study import Study
from feddbn.privacy.policy import SitePolicy
from feddbn.runtime.deployed.open_site import read_data
from feddbn.runtime.deployed.settings import SiteSettings
from feddbn.runtime.deployed.study_check import study_remarks, why_refused
from feddbn.runtime.deployed.study_words import study_in_words

__all__ = ["UNTOLD", "Change", "Mark", "Section", "StudyFacts", "changes", "study_facts", "text_changes"]

Words = list[tuple[str, str]]
Parts = list[tuple[str, bool]]

_SECTIONS = {
    "What is asked": ("new rows of", "goal", "method", "parameters", "variables", "units", "rows"),
    "What leaves this site": ("asks for", "size"),
    "Protection and cost": ("privacy", "noise costs"),
    "Who is in it": ("lead", "sites", "missing sites"),
}
_LEFT_OUT = ("study", "digest")


UNTOLD = "it cannot be told in plain words, so it cannot be approved here; ask its lead for another."


@dataclass(frozen=True)
class Mark:
    """A short verdict: good, caution, bad or unknown, and words."""

    level: str
    text: str


@dataclass(frozen=True)
class Section:
    """Some of the words, under one heading."""

    heading: str
    rows: Words


@dataclass(frozen=True)
class Change:
    """What differs from another study, in parts that are (text, whether only this side has it); a side may be empty."""

    what: str
    before: Parts
    now: Parts


@dataclass(frozen=True)
class StudyFacts:
    """Everything that the page of a study says about it."""

    headline: str
    marks: list[Mark]
    sections: list[Section]
    refused: list[str]
    remarks: list[str]
    words: Words

    @property
    def is_told(self) -> bool:
        """Whether it can be told in words at all; what nobody can read is not approved."""
        return bool(self.words)


def study_facts(study: Study, settings: SiteSettings, policy: SitePolicy) -> StudyFacts:
    """Return a study in words, and what this site would do with it; reads the site's data, and nothing leaves."""
    refused, remarks = _judged(study, settings, policy)
    words = _words(study, settings)
    if words is None:
        refused = [UNTOLD, *refused]
    told = words or []
    return StudyFacts(_headline(study), _marks(study), _sections(told), refused, remarks, told)


def changes(before: Words, now: Words) -> list[Change]:
    """Return what differs between two studies in words, in the order of the second, then what is gone."""
    old, new = dict(before), dict(now)
    keys = [*new, *(key for key in old if key not in new)]
    return [
        Change(key, _parts(old.get(key, ""), new.get(key, "")), _parts(new.get(key, ""), old.get(key, "")))
        for key in keys
        if key not in _LEFT_OUT and old.get(key) != new.get(key)
    ]


def text_changes(before: Study, now: Study) -> list[Change]:
    """Return every entry of the two texts that differs: what words leave out is here."""
    old, new = (_flat("", json.loads(one.to_json())) for one in (before, now))
    return [
        Change(key, _parts(old.get(key, ""), new.get(key, "")), _parts(new.get(key, ""), old.get(key, "")))
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]


def _flat(above: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not value:
        return {above: json.dumps(value, ensure_ascii=False)}
    inner = (_flat(f"{above}.{key}" if above else str(key), part) for key, part in value.items())
    return {key: text for part in inner for key, text in part.items()}


def _parts(text: str, other: str) -> Parts:
    """Split a list or a sentence at commas and semicolons; what the other side has, too, is no news."""
    cut = re.compile(r"(?<=[,;:]) ")
    known = {part.rstrip(",;:") for part in cut.split(other)}
    return [(part, part.rstrip(",;:") not in known) for part in cut.split(text) if part]


def _words(study: Study, settings: SiteSettings) -> Words | None:
    """Return the study in words; None for one that cannot be told, whatever its lead has put into it."""
    try:
        return study_in_words(study, settings)
    except Exception:
        return None


def _judged(study: Study, settings: SiteSettings, policy: SitePolicy) -> tuple[list[str], list[str]]:
    """Return why the site would refuse it, and what its owner should know if it would not."""
    if settings.name not in study.sites:
        return [f"the study does not name this site ({settings.name}), so it cannot be approved here."], []
    try:
        variables = tuple(read_data(settings).variables)
        refused = why_refused(settings, policy, variables, study)
        return refused, [] if refused else list(study_remarks(settings, policy, variables, study))
    except FeddbnError as error:
        return [str(error)], []
    except Exception as error:
        return [f"it cannot be judged: unexpected {type(error).__name__}."], []


def _headline(study: Study) -> str:
    goals = {
        "network": "a network",
        "confidence": "how far the edges of a network can be trusted",
        "select": "a network whose parameters are chosen on held-out rows",
        "compare": "a network and a comparison of methods",
    }
    lead = study.lead or "Somebody who is not named"
    n = len(study.variables)
    return (
        f"{lead} asks for {goals.get(study.goal, study.goal)} of {n} variable{'' if n == 1 else 's'} "
        f"from the rows of {len(study.sites)} site{'' if len(study.sites) == 1 else 's'}."
    )


def _marks(study: Study) -> list[Mark]:
    privacy = study.privacy
    if privacy.secure_aggregation:
        masks = Mark("good", f"Only sums of at least {privacy.min_sites} sites can be opened.")
    else:
        masks = Mark("bad", "The server sees this site's own sums: there is no secure aggregation.")
    if privacy.epsilon is None:
        noise = Mark("caution", "The sums are exact: no noise is added, and no budget is spent.")
    else:
        noise = Mark(
            "good", f"Noise is added; a run costs epsilon {privacy.epsilon:g} for each {privacy.unit}."
        )
    return [masks, noise]


def _sections(words: Words) -> list[Section]:
    left = [row for row in words if row[0] not in _LEFT_OUT]
    found = []
    for heading, keys in _SECTIONS.items():
        rows = _picked(left, keys)
        left = [row for row in left if row not in rows]
        if rows:
            found.append(Section(heading, rows))
    return [*found, Section("Also", left)] if left else found


def _picked(rows: Words, keys: Sequence[str]) -> Words:
    """Return the rows about these, in their order; a key stands for all that begin with it and go on with a space."""
    return [
        row
        for key in keys
        for row in rows
        if row[0] == key or (key == "asks for" and row[0].startswith("asks for "))
    ]
