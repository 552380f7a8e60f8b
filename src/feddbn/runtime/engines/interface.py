"""What every engine does for the people of a federation; one engine is one folder beside this file.

`Engine` makes kits, checks them and runs server and sites. `Session` is the lead's side: send, watch, stop, resume and
fetch. A run outlives the engine's jobs: resuming is sending the same study again under the same name, and the server's
journal does the rest. What an engine cannot do it refuses with one sentence.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from feddbn.errors import FederationError, StateError
from feddbn.federation.protocol.messages import check_run_id
from feddbn.federation.protocol.study import Study, study_from_json
from feddbn.runtime.deployed.presence import Presence, SeenSites
from feddbn.runtime.engines.plan import FederationPlan

if TYPE_CHECKING:
    from feddbn.runtime.deployed.check import Finding

__all__ = ["Engine", "Job", "Process", "Session", "Watch", "sites_needed"]

Watch = Callable[[dict[str, Any]], None]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Process:
    """What runs a server or a site in the foreground."""

    command: Sequence[str]
    environment: Mapping[str, str]

    def become(self) -> NoReturn:
        """Turn this process into it; what it writes is for its owner only."""
        os.umask(0o077)
        os.execvpe(self.command[0], list(self.command), self.environment)


@dataclass(frozen=True)
class Job:
    """One attempt of the engine at a run; `status` is in the engine's words, `said` in ours.

    `was_stopped`: on request of a person.
    """

    run: str
    job: str
    status: str
    submitted: str
    duration: str
    is_running: bool
    has_ended: bool
    said: str = ""
    was_stopped: bool = False

    @property
    def words(self) -> str:
        """How it stands, for people."""
        return self.said or self.status


class Session(ABC):
    """A lead's connection to the server, a context manager; what was sent before is known without connecting."""

    def __init__(self, kit: Path) -> None:
        self.kit = Path(kit)

    @abstractmethod
    def __enter__(self) -> Session: ...

    @abstractmethod
    def __exit__(self, *error: object) -> None: ...

    @abstractmethod
    def presence(self) -> list[Presence]:
        """Return what the server knows of the sites, silent ones included."""

    def sites(self) -> list[str]:
        """Return the names of the sites that are connected and not silent."""
        return sorted(one.site for one in self.presence() if one.is_here)

    def known_sites(self, named: Iterable[str] = ()) -> list[Presence]:
        """Return all sites that this lead has seen or that are named, connected, silent or never there."""
        return SeenSites(self.kit / "runs" / "seen_sites").completed(self.presence(), named)

    @abstractmethod
    def jobs(self) -> list[Job]:
        """Return all jobs, the newest first."""

    @abstractmethod
    def submit(self, study: Study, run_id: str) -> str:
        """Send a study, new or resumed, under its run id; return the engine's job id."""

    @abstractmethod
    def progress(self, job_id: str) -> dict[str, Any] | None:
        """Return what the running study says about itself, or None if it does not run (yet)."""

    @abstractmethod
    def wait(self, job_id: str, watch: Watch | None = None) -> str:
        """Wait until a job has ended; return its status."""

    @abstractmethod
    def abort(self, job_id: str) -> None:
        """Stop a job; its run can be resumed."""

    @abstractmethod
    def fetch(self, job_id: str, out: Path) -> Path:
        """Put outcome, result and events of a job that has ended into `out`."""

    def job_of(self, run_id: str) -> Job:
        """Return the newest job of a run."""
        for job in self.jobs():
            if job.run == run_id:
                return job
        raise StateError(f"the server knows no job of run {run_id!r}.")

    def begin(self, study: Study, run_id: str, tell: Tell = lambda sentence: None) -> str:
        """Send a study whose sites are there and remember it for `study_of`; return the engine's job id.

        `tell` hears which of its sites are missing where it can begin without them.
        """
        known = self.known_sites(study.sites)
        here = [one.site for one in known if one.is_here]
        missing = [one.words() for one in known if one.site in study.sites and not one.is_here]
        needed = sites_needed(study)
        if len(study.sites) - len(missing) < needed:
            # An engine may let such a study wait for ever without a word.
            raise StateError(
                f"the study {study.name!r} needs {needed} of its {len(study.sites)} sites, but {', '.join(missing)}; "
                f"connected: {', '.join(here) or 'none'}. Start the sites or leave them out of the study."
            )
        for words in missing:
            tell(f"{words}; the study begins without it.")
        job = self.submit(study, run_id)
        path = self._memory(run_id)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        path.write_text(study.to_json(), encoding="utf-8")
        return job

    def claim(self, study: Study, run_id: str) -> None:
        """Refuse a study under a name that was sent with another."""
        path = self._memory(run_id)
        if path.exists() and path.read_text(encoding="utf-8") != study.to_json():
            raise StateError(
                f"run {run_id!r} was sent with another study; give this one another name with --run."
            )

    def study_of(self, run_id: str) -> Study:
        """Return the study that was sent under this name."""
        path = self._memory(run_id)
        if not path.exists():
            raise StateError(f"no run {run_id!r} was sent with the kit {self.kit}.")
        return study_from_json(path.read_text(encoding="utf-8"))

    def _memory(self, run_id: str) -> Path:
        return self.kit / "runs" / f"{check_run_id(run_id)}.json"


def sites_needed(study: Study) -> int:
    """Return how many sites must be there: all of them, unless the study may go on without some or waits for them."""
    if study.attendance.collects:
        return 1
    if study.attendance.when_missing != "continue":
        return len(study.sites)
    return min(study.attendance.min_sites, len(study.sites))


class Engine(ABC):
    """One way to carry a federation.

    Attributes
    ----------
    name
        What it is called in ``--engine``.
    instead
        What to do where it is refused to do something, the end of a sentence.
    """

    name: str
    instead: str

    @abstractmethod
    def make_kits(self, plan: FederationPlan, directory: Path) -> dict[str, Path]:
        """Write one kit per participant below ``directory/kits``; return participant -> kit."""

    @abstractmethod
    def check_site(self, kit: Path, study: Study | None = None) -> list[Finding]:
        """Return the findings for a site's kit, and whether it could join `study` if one is given."""

    @abstractmethod
    def site_settings(self, kit: Path) -> Path:
        """Return where the settings file of a site's kit is."""

    def server_process(self, kit: Path) -> Process:
        """Return what runs a server's kit, made ready to start."""
        raise self._cannot("start a server")

    def site_process(self, kit: Path) -> Process:
        """Return what runs a site's kit."""
        raise self._cannot("start a site")

    def session(self, kit: Path) -> Session:
        """Return a session with a lead's kit, not yet connected."""
        raise self._cannot("send, watch and fetch studies")

    def _cannot(self, what: str) -> FederationError:
        return FederationError(f"feddbn does not {what} on the engine {self.name!r}; {self.instead}.")
