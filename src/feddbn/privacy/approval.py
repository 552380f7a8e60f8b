"""The owner's word that one study may run at a site: for how long, how often, for how much epsilon; signed.

A study is named by the SHA-256 of its whole text, so an approval is for this study and no other. The runs that used
it are part of what is signed. A run that is resumed under its own name is the same run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from feddbn.errors import FileError
from feddbn.privacy.audit import Signer


@dataclass(frozen=True)
class Approval:
    """One approval.

    Attributes
    ----------
    site
        Who approves.
    study, digest, lead
        The study's name, the SHA-256 of its text, and who leads it as it says itself.
    version
        Version of feddbn whose questions were approved.
    given, expires
        ISO times; after `expires` the site answers nothing more.
    runs
        How many runs may be begun; one begins when its first numbers leave the site.
    epsilon
        What all runs together may cost, None for a study without noise.
    used
        The runs that were begun.
    revoked
        When it was taken back, otherwise empty.
    page
        SHA-256 of the text of the page that the owner read, empty if it was not shown.
    signature
        Of all the rest, by the site's identity.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    site: str
    study: str
    digest: str
    lead: str
    version: str
    given: str
    expires: str
    runs: int
    epsilon: float | None
    used: tuple[str, ...] = ()
    revoked: str = ""
    page: str = ""
    signature: str = ""

    def to_text(self) -> str:
        """Return it as JSON, for a file."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    def is_signed(self, key: bytes) -> bool:
        """Whether the owner of the public key signed it as it is."""
        from feddbn.privacy.keys import verify_signature

        try:
            return verify_signature(key, bytes.fromhex(self.signature), _statement(self))
        except ValueError:
            return False

    def state(self, now: str) -> str:
        """Return how it stands at the time `now`: valid, revoked, expired or used up."""
        if self.revoked:
            return "revoked"
        if now >= self.expires:
            return "expired"
        return "used up" if len(self.used) >= self.runs else "valid"

    def why_not(self, run_id: str, epsilon: float | None, version: str, now: str) -> tuple[str, str] | None:
        """Return why a run that costs `epsilon` may not go on or begin, as a code and the rest of a sentence, or None."""
        if self.revoked:
            return "approval-revoked", f"was revoked on {self.revoked}"
        if now >= self.expires:
            return "approval-expired", f"was approved until {self.expires}"
        if self.version != version:
            return "approval-other-version", f"was approved for feddbn {self.version}, and this is {version}"
        if run_id in self.used:
            return None
        if len(self.used) >= self.runs:
            return "approval-used-up", f"was approved for {_runs(self.runs)}; used by {_few(self.used)}"
        if self.epsilon is not None:
            total = (len(self.used) + 1) * (float("inf") if epsilon is None else epsilon)
            # Sums of the same number differ in their last digit.
            if total > self.epsilon * (1 + 1e-9):
                said = f"was approved for epsilon {self.epsilon:g} in all, and this run would take it to {total:g}"
                return "approval-over-epsilon", said
        return None


def seal_approval(identity: Signer, approval: Approval, **changes: Any) -> Approval:
    """Return the approval with these changes, signed."""
    changed = replace(approval, **changes, signature="")
    return replace(changed, signature=identity.sign(_statement(changed)).hex())


_APPROVAL = TypeAdapter(Approval)


def read_approval(text: str | bytes) -> Approval:
    """Inverse of `Approval.to_text`; anything else is refused."""
    try:
        return _APPROVAL.validate_json(text, strict=True)
    except ValidationError:
        raise FileError("this is not an approval, or it is damaged.", code="no-approval") from None


def _statement(approval: Approval) -> bytes:
    values = {**asdict(approval), "signature": ""}
    if not approval.page:
        # As it was signed before pages had digests.
        del values["page"]
    return b"approval 1 " + json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


def _runs(n: int) -> str:
    return "1 run" if n == 1 else f"{n} runs"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
