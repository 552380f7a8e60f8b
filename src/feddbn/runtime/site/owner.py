"""What the owner of a site's data signs and reads: approvals, studies on offer, the site's log.

An *approval* is in the site's store by the digest of its study, signed and replaced whole. A run is written into its study's
approval before its first numbers leave the site; what was not signed by the site's key approves nothing.

A *study* that came here is in the store by its digest, as text: when its greeting was refused, when its owner put it here, or
when it was approved. It stays, so that the next one can be compared with it. Being here allows nothing. A text is believed to
be the study of its name only if its digest says so.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from feddbn._version import __version__
from feddbn.errors import FeddbnError, FileError, ParameterError, SiteRefused
from feddbn.federation.protocol.endpoint import SiteEvent
from feddbn.federation.protocol.study import Study, study_from_json
from feddbn.privacy.approval import Approval, read_approval, seal_approval
from feddbn.runtime.settings import SiteSettings, read_site_settings
from feddbn.runtime.site.audit import SiteAudit
from feddbn.runtime.store import Store, iso_time, write_atomically
from feddbn.words import one_line

if TYPE_CHECKING:
    from feddbn.privacy.approval import Approval
    from feddbn.privacy.keys import Identity

APPROVALS = "_approvals"
MOST_GREETED = 20
"""Runs of an approved study that may be greeted and compute nothing: greetings without end would fill the site's disk."""
DEFAULT_DAYS = 30.0
MOST_DAYS = 3650.0
_HOW = "owner approves it with `feddbn site approve study.toml --kit KIT`"


class Approvals:
    """The approvals of one site, signed by its key.

    `begun` gives the runs of a study (by digest) whose numbers left since it was last approved, as another record says: an
    older approval put back in its place does not win runs back.
    """

    def __init__(
        self,
        state: Path,
        site: str,
        identity: Identity,
        clock: Callable[[], float] = time.time,
        begun: Callable[[str], Collection[str]] = lambda digest: (),
    ) -> None:
        self._store = Store(state)
        self._site = site
        self._identity = identity
        self._clock = clock
        self._begun = begun
        self._seen: dict[str, tuple[bytes, Approval]] = {}
        self._digest: tuple[Study, str] | None = None

    def give(
        self,
        study: Study,
        days: float = DEFAULT_DAYS,
        runs: int = 1,
        epsilon: float | None = None,
        page: str = "",
    ) -> Approval:
        """Approve a study; an earlier approval of the same study is replaced and its runs are forgotten.

        `epsilon` is what all runs together may cost; by default what the study promises, for each run. `page` is the
        digest of the page that was read.
        """
        if not 0 < days <= MOST_DAYS:
            raise ParameterError(f"--days must lie above 0 and be at most {MOST_DAYS:g}, got {days:g}.")
        if runs < 1:
            raise ParameterError(f"--runs must be at least 1, got {runs}.")
        promised = study.privacy.epsilon
        if epsilon is not None and promised is None:
            raise ParameterError(
                f"--epsilon {epsilon:g}: the study promises no noise, so no epsilon bounds what it tells; leave "
                "--epsilon out, or ask the lead for privacy.epsilon."
            )
        if epsilon is None and promised is not None:
            epsilon = runs * promised
        if epsilon is not None and promised is not None and not (promised <= epsilon < math.inf):
            raise ParameterError(
                f"--epsilon {epsilon:g} does not allow one run: the study promises {promised:g} for each run."
            )
        now = self._clock()
        approval = Approval(
            self._site,
            study.name,
            study.digest,
            study.lead,
            __version__,
            iso_time(now),
            iso_time(now + 86400 * days),
            runs,
            epsilon,
            page=page,
        )
        return self._write(seal_approval(self._identity, approval))

    def all(self) -> list[tuple[Approval, str]]:
        """Return every approval with how it stands, the newest first; a damaged one is left out."""
        now, found = iso_time(self._clock()), []
        for digest in self._store.names(APPROVALS):
            with contextlib.suppress(FileError):
                approval = self._read(digest)
                found.append((approval, approval.state(now)))
        return sorted(found, key=lambda one: one[0].given, reverse=True)

    def damaged(self) -> list[str]:
        """Return the digests under which there are no approvals of this site; they approve nothing."""
        good = {approval.digest for approval, _ in self.all()}
        return [digest for digest in self._store.names(APPROVALS) if digest not in good]

    def revoke(self, which: str) -> Approval:
        """Take back the approval of the study of this name, or whose digest begins so; it stays as a record."""
        known = {one.digest: one.study for one, state in self.all() if state != "revoked"}
        digest = named_digest(which, known, "approval that can be revoked", "which-approval")
        with self._store.hold():
            approval = self._read(digest)
            return self._write(seal_approval(self._identity, approval, revoked=iso_time(self._clock())))

    def find(self, study: Study) -> tuple[Approval, str] | None:
        """Return the study's approval and how it stands, or None."""
        return next((one for one in self.all() if one[0].digest == study.digest), None)

    def check(self, run_id: str, study: Study, begins: bool = True) -> None:
        """Refuse a run that is not approved; a new one that begins is counted, on disk, before this returns."""
        approval = self._known(study)
        self._allow(approval, run_id, study)
        if run_id in approval.used or not begins:
            return
        # Two processes that count runs at the same time could count one of two.
        with self._store.hold():
            approval = self._known(study)
            self._allow(approval, run_id, study)
            if run_id not in approval.used:
                self._write(seal_approval(self._identity, approval, used=(*approval.used, run_id)))

    def _known(self, study: Study) -> Approval:
        # Every message of a run brings the same object.
        if self._digest is None or self._digest[0] is not study:
            self._digest = (study, study.digest)
        if self._store.get(APPROVALS, self._digest[1]) is None:
            raise SiteRefused(
                f"the study {study.name!r} ({study.digest[:12]}) is not approved at this site yet; its {_HOW}.",
                code="not-approved",
            )
        try:
            return self._read(self._digest[1])
        except FileError as error:
            raise SiteRefused(
                f"the study {study.name!r} is not approved at this site: {error} Its {_HOW}.",
                code="bad-approval",
            ) from None

    def _allow(self, approval: Approval, run_id: str, study: Study) -> None:
        now = iso_time(self._clock())
        if run_id not in approval.used:
            used = dict.fromkeys((*approval.used, *self._begun(approval.digest)))
            approval = replace(approval, used=tuple(used))
        reason = approval.why_not(run_id, study.privacy.epsilon, __version__, now)
        if reason is not None:
            code, said = reason
            raise SiteRefused(f"the study {study.name!r} {said}. Its {_HOW}.", code=code)

    def _read(self, digest: str) -> Approval:
        """Return a signed approval; what was read before is checked again only if it has changed."""
        stored = self._store.get(APPROVALS, digest) or b""
        if digest in self._seen and self._seen[digest][0] == stored:
            return self._seen[digest][1]
        approval = read_approval(stored)
        if approval.digest != digest or approval.site != self._site:
            raise FileError(
                f"the approval {digest[:12]} is one of another study or another site.",
                code="foreign-approval",
            )
        if not approval.is_signed(self._identity.public):
            raise FileError(
                f"the approval {digest[:12]} was not signed by this site's key.", code="not-signed"
            )
        self._seen[digest] = (stored, approval)
        return approval

    def _write(self, approval: Approval) -> Approval:
        self._store.put(APPROVALS, approval.digest, approval.to_text().encode())
        return approval


STUDIES = "_studies"
MOST_STUDIES = 50
_WORDS = ("sender", "came", "approved", "refused", "reason")
MOST_REASON = 300
"""Characters of a reason that the lead is told."""


@dataclass(frozen=True)
class Offered:
    """A study as it came: its text, who sent it as the engine says, when it first came, and how its owner decided when."""

    study: Study
    sender: str
    came: str
    approved: str = ""
    refused: str = ""
    reason: str = ""


class OfferedStudies:
    """The studies that one site was offered; of more than `MOST_STUDIES` the oldest that was never approved is forgotten."""

    def __init__(self, state: Path, clock: Callable[[], float] = time.time) -> None:
        self._store = Store(state)
        self._clock = clock

    def keep(self, study: Study, sender: str = "") -> None:
        """Keep a study; one that is here stays as it came, but that it came again after its approval is noted once."""
        known = self.find(study.digest)
        if known is None:
            self._write(Offered(study, sender[:200], self._now()))
        elif known.came <= known.approved < self._now():
            self._write(replace(known, came=self._now()))

    def decide(self, study: Study, approved: bool, reason: str = "") -> None:
        """Keep a study and how its owner decided; the lead reads why it was refused."""
        known = self.find(study.digest) or Offered(study, "", self._now())
        now = self._now()
        if approved:
            self._write(replace(known, approved=now, refused="", reason=""))
        else:
            self._write(replace(known, refused=now, reason=one_line(reason, MOST_REASON)))

    def _write(self, one: Offered) -> None:
        values = {name: getattr(one, name) for name in _WORDS} | {"study": one.study.to_json()}
        self._store.put(STUDIES, one.study.digest, json.dumps(values).encode())
        # Somebody who sends one study after the other does not fill the disk, nor push out what was approved.
        ranked = sorted(
            self.all(), key=lambda other: (other.study == one.study, bool(other.approved)), reverse=True
        )
        for old in ranked[MOST_STUDIES:]:
            self._store.drop(STUDIES, old.study.digest)

    def _now(self) -> str:
        return iso_time(self._clock())

    def all(self) -> list[Offered]:
        """Return them, the newest first; what is no study is left out."""
        found = [one for one in map(self.find, self._store.names(STUDIES)) if one is not None]
        return sorted(found, key=lambda one: (one.came, one.study.digest), reverse=True)

    def find(self, digest: str) -> Offered | None:
        """Return the study of this digest, or None."""
        stored = self._store.get(STUDIES, digest)
        with contextlib.suppress(ValueError, TypeError, KeyError, FeddbnError):
            values = json.loads(stored or b"")
            study = study_from_json(values["study"])
            if study.digest == digest:
                return Offered(study, **{name: str(values.get(name, "")) for name in _WORDS})
        return None

    def named(self, which: str) -> Offered:
        """Return the one study of this name, or whose digest begins so; refuse what names none or several."""
        known = {one.study.digest: one for one in self.all()}
        names = {digest: one.study.name for digest, one in known.items()}
        return known[named_digest(which, names, "study that was offered", "which-study")]


def named_digest(which: str, known: Mapping[str, str], what: str, code: str) -> str:
    """Return the one digest of a study of this name, or that begins so; `known` are digests and names."""
    found = [
        digest for digest, name in known.items() if name == which or (which and digest.startswith(which))
    ]
    if len(found) != 1:
        listed = ", ".join(f"{name} ({digest[:12]})" for digest, name in known.items()) or "none"
        raise ParameterError(
            f"{which!r} names {'more than one' if found else 'no'} {what}; name the study or the beginning of its digest: "
            f"{listed}.",
            code=code,
        )
    return found[0]


class Owner:
    """A site's settings, and what follows from its identity key; `warn` is told what the owner should know."""

    def __init__(self, settings: SiteSettings, warn: Callable[[str], None] = lambda sentence: None) -> None:
        self.settings = settings
        self._warn = warn

    @cached_property
    def identity(self) -> Identity | None:
        """The site's key, None if its settings name none."""
        if self.settings.identity is None:
            return None
        from feddbn.runtime.site.kit_files import read_identity

        return read_identity(self.settings.identity)

    @cached_property
    def keys(self) -> Mapping[str, bytes]:
        """Public keys of all sites, as pinned; empty if the settings name no list."""
        if self.settings.peers is None:
            return {}
        from feddbn.runtime.site.kit_files import read_peers

        return read_peers(self.settings.peers)

    @cached_property
    def audit(self) -> SiteAudit:
        """The site's own log."""
        return SiteAudit(self.settings.state, self.settings.name, self.identity)

    @cached_property
    def approvals(self) -> Approvals:
        """The site's approvals; refused to a site without a key."""
        if self.identity is None:
            raise SiteRefused(
                "this site has no key to sign approvals with: name a file of 32 random bytes as `identity` in its "
                "settings, or set approve_by_rule = true in its policy.",
                code="no-key",
            )
        return Approvals(self.settings.state, self.settings.name, self.identity, begun=self._begun)

    @cached_property
    def offered(self) -> OfferedStudies:
        """The texts of studies that came here."""
        return OfferedStudies(self.settings.state)

    def _begun(self, digest: str) -> set[str]:
        """Return the runs of a study that count since it was last approved, as the site's logs say.

        These are those whose numbers left, and of those that were only greeted all but the first `MOST_GREETED`.
        """
        runs: set[str] = set()
        greeted: dict[str, None] = {}
        for entry in self.audit.about(digest):
            if entry.event == "approved":
                runs.clear()
                greeted.clear()
            elif entry.event == "sent":
                runs.add(entry.run)
            elif entry.event == "agreed":
                greeted[entry.run] = None
        return {*runs, *list(greeted)[MOST_GREETED:]}

    def approve(
        self, study: Study, days: float, runs: int, epsilon: float | None, page: str = ""
    ) -> Approval:
        """Approve a study and take it down; `page` is the digest of the page that was read."""
        given = self.approvals.give(study, days, runs, epsilon, page)
        often = "1 run" if runs == 1 else f"{runs} runs"
        cost = "" if given.epsilon is None else f", epsilon {given.epsilon:g} in all"
        read = f"; page {page[:12]}" if page else ""
        self._decided("approved", f"{often} until {given.expires}{cost}{read}", given, study)
        self.offered.decide(study, approved=True)
        return given

    def waiting(self) -> list[Offered]:
        """Return the studies that came and wait for the owner, the newest first.

        One that was approved waits again if it came again when its approval had ended; one that was refused or taken back
        does not.
        """
        given = {} if self.identity is None else {one[0].digest: one for one in self.approvals.all()}

        def is_open(one: Offered) -> bool:
            if one.refused or one.study.digest not in given:
                return not one.refused
            approval, state = given[one.study.digest]
            has_ended = state in ("expired", "used up") or approval.version != __version__
            return has_ended and not approval.revoked and one.came > approval.given

        return [one for one in self.offered.all() if is_open(one)]

    def check(self, run_id: str, study: Study, begins: bool = True) -> None:
        """Refuse a run that is not approved; of a study that the owner has refused, the lead is told so, and why."""
        try:
            self.approvals.check(run_id, study, begins)
        except SiteRefused as error:
            known = self.offered.find(study.digest)
            if known is None or not known.refused:
                raise
            why = f": {known.reason.rstrip('.')}" if known.reason else ", without a reason"
            raise SiteRefused(
                f"the owner of the data refused the study {study.name!r} on {known.refused[:10]}{why}.",
                code=error.code if error.code == "approval-revoked" else "owner-refused",
            ) from None

    def refuse(self, study: Study, reason: str = "") -> None:
        """Take down that a study that waits is not approved, and why; it stops waiting."""
        found = self.approvals.find(study)
        if found is not None and found[1] == "valid":
            raise ParameterError(
                f"the study {study.name!r} ({study.digest[:12]}) is approved; take the approval back instead (revoke).",
                code="is-approved",
            )
        self.offered.decide(study, approved=False, reason=reason)
        self.audit.note(
            "declined",
            study.method,
            one_line(reason, MOST_REASON) or "not approved",
            asked_by="the site's owner",
            study=study.name,
            study_digest=study.digest,
        )

    def revoke(self, which: str, reason: str = "") -> Approval:
        """Take an approval back and take that down, and why."""
        taken = self.approvals.revoke(which)
        why = one_line(reason, MOST_REASON)
        used = f"used by {', '.join(taken.used) or 'no run'}"
        self._decided("revoked", f"{used}: {why}" if why else used, taken, None)
        offered = self.offered.find(taken.digest)
        if offered is not None:
            self.offered.decide(offered.study, approved=False, reason=why)
        return taken

    def _decided(self, event: str, note: str, approval: Approval, study: Study | None) -> None:
        self.audit.note(
            event,
            "" if study is None else study.method,
            note,
            asked_by="the site's owner",
            study=approval.study,
            study_digest=approval.digest,
        )

    def take_down(self, event: SiteEvent, submitter: str) -> None:
        """Write a greeting or the end of a run into the site's own log."""
        study = event.study
        lead = submitter or ("" if study is None else study.lead)
        self.audit.note(
            event.what,
            event.kind,
            event.sentence,
            code=event.code,
            run=event.run_id,
            study="" if study is None else study.name,
            study_digest="" if study is None else study.digest,
            asked_by=f"{lead} through the server" if lead else "server",
            asked="" if study is None else _asked(study),
        )
        if study is not None and event.what == "refused":
            self.offered.keep(study, submitter)


def _asked(study: Study) -> str:
    names = ", ".join(study.variables[:8]) + (", ..." if len(study.variables) > 8 else "")
    values = ", ".join(f"{name}={value}" for name, value in study.parameters.items())
    return f"{' and '.join(study.methods)} of {names}; {values}"[:500]


def admit(kit: Path, name: str, key: str) -> bool:
    """Write the public key of a new site into a kit's list; return whether it was new. The site's own log tells of it first.

    No key is changed, no site taken away, and no key is under two names, which would be one site counted twice.
    """
    from feddbn.runtime.site.kit_files import PEERS, SITE_SETTINGS, check_names, peer_lines, read_peers

    own = Path(kit) / SITE_SETTINGS
    settings = read_site_settings(own) if own.exists() else None
    peers = Path(kit) / PEERS if settings is None else settings.peers
    if peers is None or not peers.exists():
        raise ParameterError(f"--kit {kit} keeps no list of sites' keys.", code="no-peers")
    check_names([name])
    if not re.fullmatch("[0-9a-f]{64}", key):
        raise ParameterError(f"{key!r} is no public key; one has 64 of 0-9 and a-f.", code="bad-key")
    known = {site: one.hex() for site, one in read_peers(peers).items()}
    if known.get(name) == key:
        return False
    if name in known:
        raise FileError(
            f"this kit has another key of {name!r}; nothing was changed. Ask that site which key is its own.",
            code="other-key",
        )
    if key in known.values():
        raise FileError(
            "this kit has this key under another name, which would be one site counted twice; nothing was changed.",
            code="same-key",
        )
    if settings is not None:
        Owner(settings).audit.note("admitted", note=f"{name} (key {key[:12]})", asked_by="the site's owner")
    now = {site: bytes.fromhex(one) for site, one in {**known, name: key}.items()}
    write_atomically(peers, peer_lines(now).encode())
    return True
