"""What the console of a site shows, read anew for every page, by the functions that the commands use."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from feddbn.analysis.data_check import check
from feddbn.errors import FeddbnError, ParameterError, StateError
from feddbn.federation.programs.alone import verdict_of
from feddbn.federation.protocol.study import Study, check_about, parse_study
from feddbn.findings import Finding, Level
from feddbn.privacy.approval import Approval
from feddbn.privacy.audit import AuditEntry, totals
from feddbn.privacy.policy import SitePolicy
from feddbn.runtime.files.kit import check_site
from feddbn.runtime.settings import SiteSettings, read_policy, read_site_settings
from feddbn.runtime.site.audit import RunLog, budget_finding, logs_of
from feddbn.runtime.site.check import study_remarks, why_refused
from feddbn.runtime.site.kit_files import SITE_SETTINGS
from feddbn.runtime.site.open_site import read_data
from feddbn.runtime.site.owner import Offered, Owner
from feddbn.runtime.site.page import about_study, page_digest, sections_of
from feddbn.runtime.store import FileStore, iso_time, run_directory
from feddbn.words import card, say, told

Parts = list[tuple[str, bool]]

SILENT_S = 600.0
"""A run that was asked nothing for so long is said to be silent."""
GONE_S = 86400.0
"""A run that was asked nothing for so long is not listed as running any more."""
_OF_ITSELF = ("study-digest",)
"""These stand above, and differ between any two studies."""


@dataclass(frozen=True)
class Change:
    """What differs from another study, in parts that are (text, whether only this side has it); a side may be empty."""

    what: str
    before: Parts
    now: Parts


@dataclass(frozen=True)
class Before:
    """The approval that a study is compared with, and what differs: in words, and entry by entry."""

    approval: Approval
    words: list[Change]
    text: list[Change]


@dataclass(frozen=True)
class RunHere:
    """A run whose result is at this site; `verdict` is None if the run did not compare, or its record is gone."""

    run: str
    ended: str
    study: str
    verdict: Finding | None


@dataclass(frozen=True)
class StudyFacts:
    """A study for its page: all that it says, why the site would refuse it, what its owner should know otherwise."""

    study: Study
    site: str
    told: list[Finding]
    refused: list[Finding]
    remarks: list[Finding]

    @property
    def is_told(self) -> bool:
        """Whether it can be told in words at all; what nobody can read is not approved."""
        return bool(self.told)

    def require_told(self) -> None:
        """Refuse what cannot be told."""
        if not self.is_told:
            untold = say(Finding("study-untold", "error"), "owner")
            raise ParameterError(f"the study {self.study.name!r}: {untold}", code="study-untold")

    @property
    def headline(self) -> Finding:
        """Who asks for what, of how many."""
        study = self.study
        counts = {"n_variables": len(study.variables), "n_sites": len(study.sites)}
        return Finding("study-headline", "note", {"lead": study.lead, "goal": study.goal, **counts})

    @property
    def sections(self) -> dict[str, list[Finding]]:
        """What the page says, by section."""
        return sections_of(self.told)

    @property
    def digest(self) -> str:
        """SHA-256 of the page as plain text; part of an approval."""
        return page_digest(self.study, self.site, self.told)

    def html(self) -> str:
        """Return the page as one file for a browser, which prints it; refuse what cannot be told."""
        self.require_told()
        place = PackageLoader("feddbn.console", "templates")
        template = Environment(loader=place, autoescape=True, trim_blocks=True).get_template(
            "signed_page.html"
        )
        sections = {
            name: [(one.level, card(one, "owner")) for one in told] for name, told in self.sections.items()
        }
        return template.render(facts=self, headline=say(self.headline, "owner"), sections=sections)


def study_facts(study: Study, settings: SiteSettings, policy: SitePolicy) -> StudyFacts:
    """Return a study, and what this site would do with it; reads the site's data, and nothing leaves."""
    refused, remarks = _judged(study, settings, policy)
    try:
        told = about_study(study, settings)
        for one in told:
            say(one, "owner")
    except Exception:
        # It cannot be told, whatever its lead has put into it.
        return StudyFacts(study, settings.name, [], [Finding("study-untold", "error"), *refused], remarks)
    return StudyFacts(study, settings.name, told, refused, remarks)


def _judged(study: Study, settings: SiteSettings, policy: SitePolicy) -> tuple[list[Finding], list[Finding]]:
    """Return why the site would refuse it, and what its owner should know if it would not."""
    if settings.name not in study.sites:
        return [Finding("study-unnamed", "error", {"site": settings.name})], []
    try:
        data = read_data(settings)
        refused = why_refused(settings, policy, data, study)
        return refused, [] if refused else list(study_remarks(settings, policy, data, study))
    except FeddbnError as error:
        said = told(error.parts, "owner")
        return [Finding("study-refused", "error", {"why": error.code, "sentence": said})], []
    except Exception as error:
        return [Finding("study-unjudged", "error", {"error": type(error).__name__})], []


def changes(before: Sequence[Finding], now: Sequence[Finding]) -> list[Change]:
    """Return what differs between two studies in words, in the order of the second, then what is gone."""
    old, new = (
        {(said := card(one, "owner")).question: said.detail for one in told if one.code not in _OF_ITSELF}
        for told in (before, now)
    )
    return _differing(old, new, [*new, *(key for key in old if key not in new)])


def text_changes(before: Study, now: Study) -> list[Change]:
    """Return every entry of the two texts that differs: what words leave out is here."""
    old, new = (_flat("", json.loads(one.to_json())) for one in (before, now))
    return _differing(old, new, sorted({*old, *new}))


def _differing(old: dict[str, str], new: dict[str, str], keys: Sequence[str]) -> list[Change]:
    pairs = [(key, old.get(key, ""), new.get(key, "")) for key in keys]
    return [Change(key, _parts(then, now), _parts(now, then)) for key, then, now in pairs if then != now]


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


def verdict_here(settings: SiteSettings, run: str) -> Finding | None:
    """What this site found when it compared a run's network with its own; None if it did not, or its record is gone."""
    try:
        record = FileStore(settings.state, settings.name).load(run)
    except FeddbnError:
        return None
    found = None if record is None else verdict_of(record.current.state)
    if found is None:
        return None
    level: Level = "warning" if found.sign < 0 else "good" if found.is_told else "unknown"
    return Finding("alone-here", level, found.to_dict())


class SiteFacts:
    """The facts of one site.

    `check` refuses a study that no site could take part in; `tell` is told what the owner should know.
    """

    def __init__(
        self,
        kit: Path,
        check: Callable[[Study], None],
        clock: Callable[[], float] = time.time,
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._kit = Path(kit)
        self._check = check
        self._clock = clock
        self._tell = tell

    @property
    def settings(self) -> SiteSettings:
        """The site's settings as they are now."""
        return read_site_settings(self._kit / SITE_SETTINGS)

    @property
    def owner(self) -> Owner:
        """What signs and takes down."""
        return Owner(self.settings, self._tell)

    @property
    def policy(self) -> SitePolicy:
        """The site's policy as it is now."""
        return read_policy(self.settings.policy)

    def waiting(self) -> list[Offered]:
        """Return the studies that wait for a decision, the newest first; none where the policy alone decides."""
        return [] if self.policy.approve_by_rule else self.owner.waiting()

    def approvals(self) -> list[tuple[Approval, str]]:
        """Return every approval and how it stands, the newest first; a site without a key has none."""
        owner = self.owner
        return [] if owner.identity is None else owner.approvals.all()

    def damaged(self) -> list[str]:
        """Return the names of files that are no approvals of this site."""
        owner = self.owner
        return [] if owner.identity is None else owner.approvals.damaged()

    def offered(self, digest: str) -> Offered:
        """Return a study that was offered; refuse a digest that is not known."""
        found = self.owner.offered.find(digest)
        if found is None:
            raise ParameterError(
                f"the text of the study {digest[:12]} is not at this site; ask its lead for the file.",
                code="unknown-study",
            )
        return found

    def add(self, text: str) -> Study:
        """Put the text of a study file among those that wait."""
        study = self.possible(parse_study(text, "the study that was pasted"))
        self.owner.offered.keep(study)
        return study

    def approve(self, digest: str, days: float, runs: int, epsilon: float | None, read: str = "") -> Approval:
        """Approve exactly the study of this digest, as `feddbn site approve` does; `read` is the page that was shown."""
        study = self.possible(self.offered(digest).study)
        page = study_facts(study, self.settings, self.policy)
        if read and read != page.digest:
            raise ParameterError(
                f"the page of the study {study.name!r} has changed since you read it, because the data or settings of this "
                "site have changed; read it again.",
                code="page-changed",
            )
        return self.sign(page, days, runs, epsilon)

    def sign(self, page: StudyFacts, days: float, runs: int, epsilon: float | None) -> Approval:
        """Approve a study by its page, as it was shown."""
        page.require_told()
        return self.owner.approve(page.study, days, runs, epsilon, page.digest)

    def possible(self, study: Study) -> Study:
        """Return a study that this site could take part in; refuse any other."""
        check_about(study, f"the study {study.name!r}")
        self._check(study)
        name = self.settings.name
        if name not in study.sites:
            raise ParameterError(
                f"the study {study.name!r} does not name the site {name!r}; it names {', '.join(study.sites)}.",
                code="not-named",
            )
        return study

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
        old, new = (study_facts(one, settings, policy).told for one in (other, study))
        return Before(approval, changes(old, new), text_changes(other, study))

    def running(self) -> list[Finding]:
        """Return the runs that have begun and not ended, the newest first."""
        begun: dict[str, AuditEntry] = {}
        for entry in self.owner.audit.entries():
            if entry.event == "agreed":
                begun.setdefault(entry.run, entry)
            elif entry.event == "finished":
                begun.pop(entry.run, None)
        now, found = self._clock(), []
        for entry in reversed(begun.values()):
            last = self._last_asked(entry)
            if last < iso_time(now - GONE_S):
                continue
            lead = entry.asked_by.removesuffix(" through the server")
            is_silent = last < iso_time(now - SILENT_S)
            values = {"run": entry.run, "study": entry.study, "lead": "" if lead == "server" else lead}
            sent = totals([one for log in self.logs(entry.run) for one in log.entries])["sent"]
            times = {"began": entry.time, "last": last, "is_silent": is_silent, "answers": int(sent)}
            found.append(Finding("run-here", "warning" if is_silent else "good", {**values, **times}))
        return found

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
        return logs_of(self.settings.state, run)[::-1]

    def studies_of_runs(self) -> dict[str, tuple[str, str]]:
        """Return, of every run in the logs, the name and the digest of its study."""
        return {
            entry.run: (entry.study, entry.study_digest)
            for log in self.logs()
            for entry in log.entries
            if entry.study
        }

    def results(self) -> list[RunHere]:
        """Return the runs with a result at this site, the newest first."""
        settings, studies = self.settings, self.studies_of_runs()
        found = [
            RunHere(
                run,
                iso_time(path.stat().st_mtime),
                studies.get(run, ("", ""))[0],
                verdict_here(settings, run),
            )
            for path in settings.state.glob("*/result.feddbn")
            for run in (path.parent.name,)
        ]
        return sorted(found, key=lambda run: run.ended, reverse=True)

    def report(self, run: str) -> str:
        """Return the report on a run as HTML: the site's own network where it has one, otherwise the federation's."""
        from feddbn.report import render_report
        from feddbn.results.result import Result

        place = run_directory(self.settings.state, run, create=False)
        if not (place / "result.feddbn").exists():
            raise StateError(f"no result of run {run!r} is at this site.", code="no-result")
        own = place / "personal.feddbn"
        stored = Result.load(own if own.exists() else place / "result.feddbn").to_dict()
        offered = self.owner.offered.find(self.studies_of_runs().get(run, ("", ""))[1])
        if offered is not None:
            stored["privacy"] = offered.study.privacy.model_dump(mode="json")
        sent = [asdict(entry) for log in self.logs(run) for entry in log.entries]
        return render_report(stored, audit=sent or None, audience="owner")

    def left(self) -> Finding:
        """Return what left in all."""
        count = totals([entry for log in self.logs() for entry in log.entries])
        return Finding(
            "left-in-all", "note", {name: int(count[name]) for name in ("sent", "refused", "bytes")}
        )

    def budget(self) -> Finding:
        """Return how the privacy budget stands."""
        return budget_finding(self.owner.audit.account(), self.policy)

    def findings(self, study: Study | None = None) -> list[Finding]:
        """Return what `feddbn site check` finds, also of a study."""
        n_lags = 1 if study is None or study.n_lags is None else study.n_lags
        return [
            *check_site(self._kit, study),
            *own_findings(self._kit / SITE_SETTINGS, n_lags),
        ]


def own_findings(path: Path, n_lags: int = 1) -> list[Finding]:
    """Return what a check of a site's rows alone finds (`feddbn.check`); `path` is its settings file."""
    try:
        settings = read_site_settings(path)
        found = check({settings.name: settings.data}, n_lags, layout=settings.layout)
    except FeddbnError:
        # The data cannot be opened, which is said already.
        return []
    # Only a refusal keeps a site from taking part; everything else is for its owner to judge. Limits are told with variables.
    told = [one for one in found if one.code not in ("refused", "beyond-limits")]
    return [Finding("own-data", "note", {"finding": one.to_dict()}, one.about) for one in told]
