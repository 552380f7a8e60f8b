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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feddbn.errors import FileError
from feddbn.privacy.audit import GENESIS, AuditChain, AuditEntry, parse_entries, verify_chain
from feddbn.privacy.heads import Head, signed_head
from feddbn.runtime.deployed.lines import append_lines, for_owner, whole_part
from feddbn.runtime.deployed.store import AUDIT, iso_time

if TYPE_CHECKING:
    from feddbn.privacy.keys import Identity

__all__ = ["SITE_LOG", "SiteAudit", "whole_lines"]

SITE_LOG = "_site.jsonl"


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


def _same(entry: AuditEntry, **values: Any) -> bool:
    return all(getattr(entry, name) == value for name, value in values.items())


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

        What was just written is not written again: a server that repeats itself does not fill the disk.
        """
        with self.locked():
            lines = whole_lines(self.path)
            chain = self._chain(lines)
            reached = self._reached(run)
            for last in parse_entries(lines[-1:]):
                if _same(last, event=event, task=task, note=note[:500], run=run, chain=reached, **more):
                    return last
            return chain.add(
                write=partial(append_lines, self.path),
                time=iso_time(self._clock()),
                site=self.site,
                event=event,
                task=task,
                asked_by=more.pop("asked_by", "server"),
                note=note[:500],
                run=run,
                chain=reached,
                **more,
            )

    def head(self) -> Head | None:
        """Return where the site's own log stands, signed; None for a site without a key."""
        if self.identity is None:
            return None
        with self.locked():
            chain = self._chain(whole_lines(self.path))
            return signed_head(self.identity, self.site, chain, iso_time(self._clock()))

    def _chain(self, lines: list[str]) -> AuditChain:
        """Return where the site's own log stands; there was none in the version that did not sign."""
        chain = AuditChain.resume(lines, self.identity, self.key)
        if self.key is not None and lines and verify_chain(lines, key=self.key).seal == "unkeyed":
            raise FileError("the audit log is not intact (it is not signed) and is not continued.")
        return chain

    def _reached(self, run_id: str) -> str:
        """How far the log of a run has come, "n hash"."""
        if not run_id:
            return ""
        try:
            entries = parse_entries(whole_lines(self.run_log(run_id)))
        except FileError:
            return "not a log"
        return f"{len(entries)} {entries[-1].hash if entries else GENESIS}"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the site's own log and what it keeps of others: several processes may answer for one site."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self.directory / "site.lock", "ab", opener=for_owner) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
