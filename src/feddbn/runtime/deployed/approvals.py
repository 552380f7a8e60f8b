"""The approvals of a site on disk: ``<state>/_approvals/<digest of the study>.json``, each signed and replaced whole.

A run is written into its study's approval before the site answers anything of it; a file that was not signed by the
site's key approves nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from feddbn._version import __version__
from feddbn.errors import FileError, ParameterError, SiteRefused, StateError
from feddbn.federation.protocol.study import Study
from feddbn.privacy.approval import Approval, read_approval, seal_approval
from feddbn.runtime.deployed.store import iso_time, write_atomically

if TYPE_CHECKING:
    from feddbn.privacy.keys import Identity

__all__ = ["APPROVALS", "DEFAULT_DAYS", "Approvals"]

APPROVALS = "_approvals"
DEFAULT_DAYS = 30.0
MOST_DAYS = 3650.0
_HOW = "its owner approves it with `feddbn site approve study.toml --kit KIT`"


class Approvals:
    """The approvals of one site.

    Parameters
    ----------
    state
        The site's state directory.
    site, identity
        Whose approvals they are, and the key that signs them.
    clock
        Seconds since 1970.
    begun
        Digest of a study -> runs that were begun since it was last approved, as another record says: an older file put
        back in its place does not win runs back.
    """

    def __init__(
        self,
        state: Path,
        site: str,
        identity: Identity,
        clock: Callable[[], float] = time.time,
        begun: Callable[[str], Collection[str]] = lambda digest: (),
    ) -> None:
        self._directory = Path(state) / APPROVALS
        self._site = site
        self._identity = identity
        self._clock = clock
        self._begun = begun
        self._seen: dict[str, tuple[tuple[int, int, int], Approval]] = {}
        self._digest: tuple[Study, str] | None = None

    def give(
        self, study: Study, days: float = DEFAULT_DAYS, runs: int = 1, epsilon: float | None = None
    ) -> Approval:
        """Approve a study; an earlier approval of the same study is replaced and its runs are forgotten.

        `epsilon` is what all runs together may cost; by default what the study promises, for each run.
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
        )
        with self._locked():
            return self._write(seal_approval(self._identity, approval))

    def all(self) -> list[tuple[Approval, str]]:
        """Return every approval with how it stands, the newest first; a damaged file is left out."""
        now, found = iso_time(self._clock()), []
        for path in sorted(self._directory.glob("*.json")):
            with contextlib.suppress(FileError):
                approval = self._read(path.stem)
                found.append((approval, approval.state(now)))
        return sorted(found, key=lambda one: one[0].given, reverse=True)

    def damaged(self) -> list[Path]:
        """Return the files that are no approvals of this site; they approve nothing."""
        out = []
        for path in sorted(self._directory.glob("*.json")):
            try:
                self._read(path.stem)
            except FileError:
                out.append(path)
        return out

    def revoke(self, which: str) -> Approval:
        """Take back the approval of the study of this name, or whose digest begins so; the file stays as a record."""
        open_ones = [approval for approval, state in self.all() if state != "revoked"]
        found = [one for one in open_ones if one.study == which or (which and one.digest.startswith(which))]
        if len(found) != 1:
            known = ", ".join(f"{one.study} ({one.digest[:12]})" for one in open_ones) or "none"
            what = "no approval" if not found else "more than one approval"
            raise ParameterError(
                f"{which!r} names {what} that can be revoked; name the study or the beginning of its digest: {known}."
            )
        with self._locked():
            approval = self._read(found[0].digest)
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
        with self._locked():
            approval = self._known(study)
            self._allow(approval, run_id, study)
            if run_id not in approval.used:
                self._write(seal_approval(self._identity, approval, used=(*approval.used, run_id)))

    def _known(self, study: Study) -> Approval:
        # Every message of a run brings the same object.
        if self._digest is None or self._digest[0] is not study:
            self._digest = (study, study.digest)
        try:
            return self._read(self._digest[1])
        except FileNotFoundError:
            raise SiteRefused(
                f"the study {study.name!r} ({study.digest[:12]}) is not approved at this site; {_HOW}."
            ) from None
        except FileError as error:
            raise SiteRefused(
                f"the study {study.name!r} is not approved at this site: {error} {_again()}"
            ) from None

    def _allow(self, approval: Approval, run_id: str, study: Study) -> None:
        now = iso_time(self._clock())
        if run_id not in approval.used:
            used = dict.fromkeys((*approval.used, *self._begun(approval.digest)))
            approval = replace(approval, used=tuple(used))
        reason = approval.why_not(run_id, study.privacy.epsilon, __version__, now)
        if reason is not None:
            raise SiteRefused(f"the study {study.name!r} {reason}. {_again()}")

    def _read(self, digest: str) -> Approval:
        """Return a signed approval; what was read before is read again only if the file has changed."""
        path = self._directory / f"{digest}.json"
        try:
            found = path.stat()
            version = (found.st_ino, found.st_mtime_ns, found.st_size)
            known = self._seen.get(digest)
            if known is not None and known[0] == version:
                return known[1]
            approval = read_approval(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise
        except (OSError, UnicodeDecodeError):
            raise FileError(f"the approval {path.name} cannot be read.") from None
        if approval.digest != digest or approval.site != self._site:
            raise FileError(f"the approval {path.name} is one of another study or another site.")
        if not approval.is_signed(self._identity.public):
            raise FileError(f"the approval {path.name} was not signed by this site's key.")
        self._seen[digest] = (version, approval)
        return approval

    def _write(self, approval: Approval) -> Approval:
        try:
            write_atomically(self._directory / f"{approval.digest}.json", approval.to_text().encode())
        except OSError as error:
            raise StateError(f"the approval cannot be stored: {error.strerror}.") from None
        return approval

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Two processes that count runs at the same time could count one of two."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self._directory / "lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _again() -> str:
    return f"{_HOW[0].upper()}{_HOW[1:]}."
