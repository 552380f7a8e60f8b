"""A site's audit logs on disk: one for each run, and the site's own.

``<state>/_audit/<run id>.jsonl`` holds what a run asked and what left. ``_site.jsonl`` (no run can have this name) holds
greetings, refused ones too, approvals and the ends of runs; with each it says how far the run's log had come, so that
its last hash stands for all logs of the site. Logs are never pruned. A line that a crash has torn is cut off: what it
would have said did not happen, because a line is on disk before the site acts.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feddbn.errors import FileError
from feddbn.privacy.audit import (
    GENESIS,
    AuditChain,
    AuditEntry,
    Head,
    parse_entries,
    signed_head,
    verify_chain,
)
from feddbn.runtime.deployed.lines import append_lines, for_owner, whole_part
from feddbn.runtime.deployed.store import AUDIT, iso_time

if TYPE_CHECKING:
    from feddbn.privacy.keys import Identity

__all__ = ["DECISIONS", "SITE_LOG", "SiteAudit", "whole_lines"]

SITE_LOG = "_site.jsonl"
DECISIONS = ("approved", "revoked", "declined")
"""Events that only the site's owner can bring about."""
MOST_REFUSED = 100
"""Refused greetings that the site's own log takes in a day: others could fill it."""


def whole_lines(path: Path) -> list[str]:
    """Return the lines of a log up to the last that was written to its end; none if there is no log."""
    try:
        return whole_part(Path(path).read_bytes()).decode("utf-8").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FileError(f"the audit log {path.name} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise FileError(f"the audit log {path.name} is not text.") from None


@dataclass
class _Standing:
    """Where the site's own log stands, and what it says since midnight and since its owner last decided something."""

    chain: AuditChain
    version: tuple[int, int, int] | None = None
    day: str = ""
    said: dict[tuple[str, ...], AuditEntry] = field(default_factory=dict)
    n_refused: int = 0

    def hear(self, entry: AuditEntry) -> None:
        """Take an entry down."""
        if entry.time[:10] != self.day:
            self.day, self.n_refused = entry.time[:10], 0
            self.said.clear()
        if entry.event in DECISIONS:
            self.said.clear()
        self.said[_about(entry)] = entry
        self.n_refused += entry.event == "refused"


def _about(entry: AuditEntry) -> tuple[str, ...]:
    """All that an entry says but when."""
    return tuple(
        str(value)
        for name, value in entry.fields().items()
        if name not in ("index", "time", "previous", "hash", "signature")
    )


class SiteAudit:
    """The site's own log, written by any of its processes, and where the logs of runs are.

    Parameters
    ----------
    state
        The site's state directory.
    site, identity
        Who writes, and the key that signs; without one, nothing is signed and there are no heads.
    clock
        Seconds since 1970.
    """

    def __init__(
        self,
        state: Path,
        site: str,
        identity: Identity | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.directory = Path(state) / AUDIT
        self.site = site
        self.identity = identity
        self._clock = clock
        self._known: _Standing | None = None

    @property
    def key(self) -> bytes | None:
        """The public key that the site's logs are signed for."""
        return None if self.identity is None else self.identity.public

    @property
    def path(self) -> Path:
        """The site's own log."""
        return self.directory / SITE_LOG

    def run_log(self, run_id: str) -> Path:
        """Return the log of a run."""
        return self.directory / f"{run_id}.jsonl"

    def entries(self) -> list[AuditEntry]:
        """Return what the site's own log says."""
        return parse_entries(whole_lines(self.path))

    def note(
        self,
        event: str,
        task: str = "",
        note: str = "",
        run: str = "",
        **more: Any,
    ) -> AuditEntry:
        """Write one entry, on disk when this returns; a log that is not intact is not continued.

        What was written today is not written again, unless the owner has decided something since, and refused greetings are
        not all written where they are many: a server that repeats itself does not fill the disk.
        """
        with self.locked():
            standing = self._standing()
            now = iso_time(self._clock())
            said = {
                "site": self.site,
                "event": event,
                "task": task,
                "asked_by": more.pop("asked_by", "server"),
                "note": note[:500],
                "run": run,
                "chain": self._reached(run),
                **more,
            }
            if event == "refused" and now[:10] == standing.day and standing.n_refused >= MOST_REFUSED:
                said = {name: said[name] for name in ("site", "event", "task", "asked_by")}
                said["note"] = (
                    f"more than {MOST_REFUSED} greetings were refused today; this log does not list the others"
                )
            # Made without a signature first: most of what a server repeats is not written.
            known = standing.said.get(_about(AuditChain().add(time=now, **said)))
            if known is not None and event not in DECISIONS and now[:10] == standing.day:
                return known
            entry = standing.chain.add(write=partial(append_lines, self.path), time=now, **said)
            standing.hear(entry)
            standing.version = self._version()
            return entry

    def head(self) -> Head | None:
        """Return where the site's own log stands, signed; None for a site without a key."""
        if self.identity is None:
            return None
        with self.locked():
            return signed_head(self.identity, self.site, self._standing().chain, iso_time(self._clock()))

    def _standing(self) -> _Standing:
        """Return where the site's own log stands; it is read if it is not as this process left it."""
        version = self._version()
        if self._known is None or version is None or self._known.version != version:
            lines = whole_lines(self.path)
            chain = AuditChain.resume(lines, self.identity, self.key)
            # There was no such log in the version that did not sign.
            if self.key is not None and lines and verify_chain(lines, key=self.key).seal == "unkeyed":
                raise FileError("the audit log is not intact (it is not signed) and is not continued.")
            self._known = _Standing(chain, version)
            for entry in parse_entries(lines):
                self._known.hear(entry)
        return self._known

    def _version(self) -> tuple[int, int, int] | None:
        """Tell one content of the log, which grows, from another."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _reached(self, run_id: str) -> str:
        """How far the log of a run has come, "n hash"."""
        if not run_id:
            return ""
        try:
            last = parse_entries(whole_lines(self.run_log(run_id))[-1:])
        except FileError:
            return "not a log"
        return f"{last[0].index + 1} {last[0].hash}" if last else f"0 {GENESIS}"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the site's own log and what it keeps of others: several processes may answer for one site."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self.directory / "site.lock", "ab", opener=for_owner) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
