"""What the owner of a site's data signs and reads: approvals, studies on offer, the site's log, heads of others' logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from feddbn.errors import ParameterError, SiteRefused
from feddbn.federation.protocol.endpoint import SiteEvent
from feddbn.federation.protocol.study import Study
from feddbn.runtime.deployed.approvals import Approvals
from feddbn.runtime.deployed.audit_files import SiteAudit
from feddbn.runtime.deployed.offered import Offered, OfferedStudies
from feddbn.runtime.deployed.peer_heads import PeerHeads
from feddbn.runtime.deployed.settings import SiteSettings

if TYPE_CHECKING:
    from feddbn.privacy.approval import Approval
    from feddbn.privacy.keys import Identity

__all__ = ["Owner"]


class Owner:
    """A site's settings, and what follows from its identity key.

    Parameters
    ----------
    settings
        The site's settings.
    warn
        Told what the owner should know.
    """

    def __init__(self, settings: SiteSettings, warn: Callable[[str], None] = lambda sentence: None) -> None:
        self._settings = settings
        self._warn = warn

    @cached_property
    def identity(self) -> Identity | None:
        """The site's key, None if its settings name none."""
        if self._settings.identity is None:
            return None
        from feddbn.runtime.deployed.masking import read_identity

        return read_identity(self._settings.identity)

    @cached_property
    def keys(self) -> Mapping[str, bytes]:
        """Public keys of all sites, as pinned; empty if the settings name no list."""
        if self._settings.peers is None:
            return {}
        from feddbn.runtime.deployed.masking import read_peers

        return read_peers(self._settings.peers)

    @cached_property
    def audit(self) -> SiteAudit:
        """The site's own log."""
        return SiteAudit(self._settings.state, self._settings.name, self.identity)

    @cached_property
    def heads(self) -> PeerHeads:
        """What is held of other sites' logs."""
        return PeerHeads(self.audit, self.keys, self._warn)

    @cached_property
    def approvals(self) -> Approvals:
        """The site's approvals; refused to a site without a key."""
        if self.identity is None:
            raise SiteRefused(
                "this site has no key to sign approvals with: name a file of 32 random bytes as `identity` in its "
                "settings, or set approve_by_rule = true in its policy."
            )
        return Approvals(self._settings.state, self._settings.name, self.identity, begun=self._begun)

    @cached_property
    def offered(self) -> OfferedStudies:
        """The texts of studies that came here."""
        return OfferedStudies(self._settings.state)

    def _begun(self, digest: str) -> set[str]:
        """Return the runs of a study that the site's own log says were begun since it was last approved."""
        runs: set[str] = set()
        for entry in self.audit.entries():
            if entry.study_digest == digest and entry.event == "approved":
                runs.clear()
            elif entry.study_digest == digest and entry.event == "agreed":
                runs.add(entry.run)
        return runs

    def approve(self, study: Study, days: float, runs: int, epsilon: float | None) -> Approval:
        """Approve a study and take it down."""
        given = self.approvals.give(study, days, runs, epsilon)
        often = "1 run" if runs == 1 else f"{runs} runs"
        cost = "" if given.epsilon is None else f", epsilon {given.epsilon:g} in all"
        self._decided("approved", f"{often} until {given.expires}{cost}", given, study)
        self.offered.decide(study, approved=True)
        return given

    def waiting(self) -> list[Offered]:
        """Return the studies that came and that the owner has neither approved nor refused, the newest first."""
        decided = (
            set() if self.identity is None else {approval.digest for approval, _ in self.approvals.all()}
        )
        return [one for one in self.offered.all() if not one.refused and one.study.digest not in decided]

    def refuse(self, study: Study, why: str = "") -> None:
        """Take down that a study that waits is not approved; it stops waiting. Without an approval nothing runs anyway."""
        found = self.approvals.find(study)
        if found is not None and found[1] == "valid":
            raise ParameterError(
                f"the study {study.name!r} ({study.digest[:12]}) is approved; take the approval back instead (revoke)."
            )
        self.offered.decide(study, approved=False)
        self.audit.note(
            "declined",
            study.method,
            why or "not approved",
            asked_by="the site's owner",
            study=study.name,
            study_digest=study.digest,
        )

    def revoke(self, which: str) -> Approval:
        """Take an approval back and take that down."""
        taken = self.approvals.revoke(which)
        self._decided("revoked", f"used by {', '.join(taken.used) or 'no run'}", taken, None)
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
