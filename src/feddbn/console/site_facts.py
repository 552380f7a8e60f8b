"""What the console of a site shows, read anew for every page, by the functions that the commands use."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from feddbn.console.study_facts import UNTOLD, Change, changes, study_facts, text_changes
from feddbn.console.words import when
from feddbn.errors import FeddbnError, ParameterError
from feddbn.federation.protocol.study import Study, parse_study
from feddbn.privacy.approval import Approval
from feddbn.privacy.audit import AuditEntry, totals
from feddbn.privacy.policy import SitePolicy
from feddbn.runtime.deployed.books import account_of
from feddbn.runtime.deployed.check import Finding
from feddbn.runtime.deployed.offered import Offered
from feddbn.runtime.deployed.owner import Owner
from feddbn.runtime.deployed.protection import describe_policy, read_policy
from feddbn.runtime.deployed.settings import SiteSettings, read_site_settings
from feddbn.runtime.deployed.site_log import RunLog, logs_of
from feddbn.runtime.deployed.store import AUDIT, iso_time
from feddbn.runtime.engines.registry import engine_of

__all__ = ["Before", "Budget", "Running", "SiteFacts"]

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

    def findings(self, study: Study | None = None) -> list[Finding]:
        """Return what `feddbn site check` finds."""
        return engine_of(self._kit).check_site(self._kit, study)
