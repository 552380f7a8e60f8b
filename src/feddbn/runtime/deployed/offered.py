"""The texts of studies that a site was offered: ``<state>/_studies/<digest>.json``, for its owner to read and decide on.

A study comes here when its greeting was refused, when its owner put it here, or when it was approved; it stays, so that the
next one can be compared with it. Being here allows nothing: approvals are signed (approvals.py), these files are not. A file
is believed to be the study of its name only if the digest of its text says so.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from feddbn.errors import FeddbnError, ParameterError
from feddbn.federation.protocol.study import Study, study_from_json
from feddbn.runtime.deployed.store import iso_time, private_directory, write_atomically

__all__ = ["STUDIES", "Offered", "OfferedStudies"]

STUDIES = "_studies"
MOST_STUDIES = 50
MOST_BYTES = 256 * 1024
_WORDS = ("sender", "came", "approved", "refused")


@dataclass(frozen=True)
class Offered:
    """A study as it came: its text, who sent it as the engine says, when it first came, and when its owner decided how."""

    study: Study
    sender: str
    came: str
    approved: str = ""
    refused: str = ""


class OfferedStudies:
    """The studies that one site was offered; of more than `MOST_STUDIES` the oldest that was never approved is forgotten."""

    def __init__(self, state: Path, clock: Callable[[], float] = time.time) -> None:
        self._directory = Path(state) / STUDIES
        self._clock = clock

    def keep(self, study: Study, sender: str = "") -> None:
        """Keep a study; one that is here stays as it came, but that it came again after its approval is noted once."""
        known = self.find(study.digest)
        if known is None:
            self._write(Offered(study, sender[:200], self._now()))
        elif known.came <= known.approved < self._now():
            self._write(replace(known, came=self._now()))

    def decide(self, study: Study, approved: bool) -> None:
        """Keep a study and how its owner decided."""
        known = self.find(study.digest) or Offered(study, "", self._now())
        now = self._now()
        self._write(replace(known, approved=now, refused="") if approved else replace(known, refused=now))

    def _write(self, one: Offered) -> None:
        values = {name: getattr(one, name) for name in _WORDS} | {"study": one.study.to_json()}
        content = json.dumps(values).encode()
        if len(content) > MOST_BYTES:
            return
        private_directory(self._directory)
        write_atomically(self._directory / f"{one.study.digest}.json", content)
        # Somebody who sends one study after the other does not fill the disk, nor push out what was approved.
        ranked = sorted(
            self.all(), key=lambda other: (other.study == one.study, bool(other.approved)), reverse=True
        )
        for old in ranked[MOST_STUDIES:]:
            (self._directory / f"{old.study.digest}.json").unlink(missing_ok=True)

    def _now(self) -> str:
        return iso_time(self._clock())

    def all(self) -> list[Offered]:
        """Return them, the newest first; files that hold no study are left out."""
        digests = [path.stem for path in self._directory.glob("*.json") if not path.name.startswith(".")]
        found = [one for one in map(self.find, digests) if one is not None]
        return sorted(found, key=lambda one: (one.came, one.study.digest), reverse=True)

    def find(self, digest: str) -> Offered | None:
        """Return the study of this digest, or None."""
        if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
            return None
        with contextlib.suppress(OSError, UnicodeDecodeError, ValueError, TypeError, KeyError, FeddbnError):
            values = json.loads((self._directory / f"{digest}.json").read_text(encoding="utf-8"))
            study = study_from_json(values["study"])
            if study.digest == digest:
                return Offered(study, **{name: str(values[name]) for name in _WORDS})
        return None

    def named(self, which: str) -> Offered:
        """Return the one study of this name, or whose digest begins so; refuse what names none or several."""
        found = [
            one
            for one in self.all()
            if one.study.name == which or (which and one.study.digest.startswith(which))
        ]
        if len(found) != 1:
            known = ", ".join(f"{one.study.name} ({one.study.digest[:12]})" for one in self.all()) or "none"
            what = "no study" if not found else "more than one study"
            raise ParameterError(
                f"{which!r} names {what} that was offered; name the study or the beginning of its digest: {known}."
            )
        return found[0]
