"""What the console of a site shows, read anew for every page, by the functions that the commands use."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feddbn.console.words import when
from feddbn.errors import FeddbnError, ParameterError
from feddbn.federation.protocol.study import Study, parse_study
from feddbn.privacy.approval import Approval
from feddbn.privacy.audit import AuditEntry, totals
from feddbn.privacy.policy import SitePolicy
from feddbn.runtime.deployed.audit import RunLog, account_of, logs_of
from feddbn.runtime.deployed.check import CheckLine, study_in_words, study_remarks, why_refused
from feddbn.runtime.deployed.open_site import read_data
from feddbn.runtime.deployed.owner import Offered, Owner
from feddbn.runtime.deployed.settings import SiteSettings, describe_policy, read_policy, read_site_settings
from feddbn.runtime.deployed.store import AUDIT, iso_time
from feddbn.runtime.engines.interface import engine_of

__all__ = [
    "UNTOLD",
    "Before",
    "Budget",
    "Change",
    "Mark",
    "Running",
    "Section",
    "SiteFacts",
    "StudyFacts",
    "changes",
    "study_facts",
    "text_changes",
]


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


SILENT_S = 600.0
"""A run that was asked nothing for so long is said to be silent."""

GONE_S = 86400.0
"""A run that was asked nothing for so long is not listed as running any more."""


@dataclass(frozen=True)
class Running:
    """A run that has begun at this site and not ended, in words."""

    run: str
    study: str
    digest: str
    words: str
    is_silent: bool


@dataclass(frozen=True)
class Budget:
    """The privacy budget: in words, and as a share of its limit if there is one that can be known."""

    words: str
    share: float | None
    is_doubtful: bool


@dataclass(frozen=True)
class Before:
    """The approval that a study is compared with, and what differs: in words, and entry by entry."""

    approval: Approval
    words: list[Change]
    text: list[Change]


class SiteFacts:
    """The facts of one site.

    Parameters
    ----------
    kit
        The site's kit.
    check
        Refuses a study that no site could take part in, as the commands do before they read it out.
    clock
        Seconds since 1970.
    """

    def __init__(
        self, kit: Path, check: Callable[[Study], None], clock: Callable[[], float] = time.time
    ) -> None:
        self._kit = Path(kit)
        self._check = check
        self._clock = clock

    @property
    def settings(self) -> SiteSettings:
        """The site's settings as they are now."""
        return read_site_settings(engine_of(self._kit).site_settings(self._kit))

    @property
    def owner(self) -> Owner:
        """What signs and takes down."""
        return Owner(self.settings)

    @property
    def policy(self) -> SitePolicy:
        """The site's policy as it is now."""
        return read_policy(self.settings.policy)

    def policy_words(self) -> str:
        """Return the policy in one line."""
        return describe_policy(self.policy)

    def waiting(self) -> list[Offered]:
        """Return the studies that wait for a decision, the newest first; none where the policy alone decides."""
        return [] if self.policy.approve_by_rule else self.owner.waiting()

    def refused(self) -> list[Offered]:
        """Return the studies that the owner has refused."""
        return [one for one in self.owner.offered.all() if one.refused]

    def approvals(self) -> list[tuple[Approval, str]]:
        """Return every approval and how it stands, the newest first; a site without a key has none."""
        owner = self.owner
        return [] if owner.identity is None else owner.approvals.all()

    def approval_of(self, study: Study) -> tuple[Approval | None, str]:
        """Return a study's approval and how it stands; None if there is none."""
        return next((one for one in self.approvals() if one[0].digest == study.digest), (None, ""))

    def damaged(self) -> list[str]:
        """Return the names of files that are no approvals of this site."""
        owner = self.owner
        return [] if owner.identity is None else [path.name for path in owner.approvals.damaged()]

    def offered(self, digest: str) -> Offered:
        """Return a study that was offered; refuse a digest that is not known."""
        found = self.owner.offered.find(digest)
        if found is None:
            raise ParameterError(
                f"the text of the study {digest[:12]} is not at this site; ask its lead for the file."
            )
        return found

    def add(self, text: str) -> Study:
        """Put the text of a study file among those that wait."""
        study = parse_study(text, "the study that was pasted")
        self._check(study)
        self._named(study)
        self.owner.offered.keep(study)
        return study

    def approve(self, digest: str, days: float, runs: int, epsilon: float | None) -> Approval:
        """Approve exactly the study of this digest, as `feddbn site approve` does."""
        study = self.offered(digest).study
        self._check(study)
        self._named(study)
        if not study_facts(study, self.settings, self.policy).is_told:
            raise ParameterError(f"the study {study.name!r}: {UNTOLD}")
        return self.owner.approve(study, days, runs, epsilon)

    def _named(self, study: Study) -> None:
        name = self.settings.name
        if name not in study.sites:
            raise ParameterError(
                f"the study {study.name!r} does not name the site {name!r}; it names {', '.join(study.sites)}."
            )

    def before(self, study: Study) -> Before | None:
        """Return what was approved last beside this study, of its name if there is one, and what differs from it."""
        offered = self.owner.offered
        known = [(approval, offered.find(approval.digest)) for approval, _ in self.approvals()]
        texts = [(approval, one.study) for approval, one in known if one is not None and one.study != study]
        texts.sort(key=lambda pair: pair[0].study == study.name, reverse=True)
        if not texts:
            return None
        approval, other = texts[0]
        settings, policy = self.settings, self.policy
        old, new = (study_facts(one, settings, policy).words for one in (other, study))
        return Before(approval, changes(old, new), text_changes(other, study))

    def running(self) -> list[Running]:
        """Return the runs that have begun and not ended, the newest first."""
        begun: dict[str, AuditEntry] = {}
        for entry in self.owner.audit.entries():
            if entry.event == "agreed":
                begun.setdefault(entry.run, entry)
            elif entry.event == "finished":
                begun.pop(entry.run, None)
        found = [self._running(entry) for entry in begun.values()]
        return [one for one in reversed(found) if one is not None]

    def _running(self, entry: AuditEntry) -> Running | None:
        last = self._last_asked(entry)
        now = self._clock()
        if last < iso_time(now - GONE_S):
            return None
        lead = entry.asked_by.removesuffix(" through the server")
        who = "" if lead == "server" else f" from lead {lead}"
        words = f"Study {entry.study}{who} began at {when(entry.time)}; it asked last at {when(last)}."
        is_silent = last < iso_time(now - SILENT_S)
        if is_silent:
            words += " It has stopped, or waits for other sites."
        return Running(entry.run, entry.study, entry.study_digest, words, is_silent)

    def _last_asked(self, begun: AuditEntry) -> str:
        times = [begun.time]
        with contextlib.suppress(FeddbnError):
            times += [entry.time for log in self.logs(begun.run) for entry in log.entries]
        # Every message of a run leaves a line in its events, those that carry no sum, too.
        with contextlib.suppress(OSError):
            times.append(iso_time((self.settings.state / begun.run / "events.jsonl").stat().st_mtime))
        return max(times)

    def logs(self, run: str = "") -> list[RunLog]:
        """Return what is logged about every run, or one, the newest first."""
        return logs_of(self.settings.state / AUDIT, run)[::-1]

    def studies_of_runs(self) -> dict[str, tuple[str, str]]:
        """Return, of every run in the logs, the name and the digest of its study."""
        return {
            entry.run: (entry.study, entry.study_digest)
            for log in self.logs()
            for entry in log.entries
            if entry.study
        }

    def left(self) -> str:
        """Return what left in all, in words."""
        count = totals([entry for log in self.logs() for entry in log.entries])
        sent, refused, n_bytes = (int(count[name]) for name in ("sent", "refused", "bytes"))
        return (
            f"{sent} answer{'' if sent == 1 else 's'} left this site ({n_bytes:,} bytes of numbers); "
            f"{refused} refusal{'' if refused == 1 else 's'}."
        )

    def budget(self) -> Budget:
        """Return how the privacy budget stands."""
        policy, account = self.policy, account_of(self.settings)
        words = account.words(policy)
        words = f"{words[0].upper()}{words[1:]}{'' if words.endswith('.') else '.'}"
        if policy.max_epsilon is None or account.doubt:
            return Budget(words, None, bool(account.doubt))
        return Budget(words, min(account.spent(policy.unit, policy.delta) / policy.max_epsilon, 1.0), False)

    def findings(self, study: Study | None = None) -> list[CheckLine]:
        """Return what `feddbn site check` finds."""
        return engine_of(self._kit).check_site(self._kit, study)
