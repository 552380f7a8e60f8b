"""Studies by files as an engine, and the lead's side of it.

Nothing runs between two steps: a *step* conducts the run over what has come, from its journal, and ends when sites are
awaited. A run is known by its name, which is that of its folder; its journal, its questions and the answers that were taken
are in the lead's kit, so whoever else can write to the folder cannot change them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from feddbn.errors import FederationError, ParameterError, StateError, StillCollecting
from feddbn.federation.protocol.messages import check_run_id
from feddbn.federation.protocol.study import Attendance, Study
from feddbn.findings import Finding
from feddbn.runtime.engines.files.exchange import FileExchange
from feddbn.runtime.engines.files.kit import (
    MARK,
    check_site,
    make_kits,
    make_more_kits,
    open_end_kit,
    open_kit,
    read_mark,
)
from feddbn.runtime.engines.interface import (
    Engine,
    FederationPlan,
    Job,
    Presence,
    Process,
    Session,
    Tell,
    Watch,
)
from feddbn.runtime.server.conduct import Progress, conduct
from feddbn.runtime.store import EventLog, Store, iso_time, run_directory, write_atomically
from feddbn.words import say

LOOK_S = 1.0
"""How often a folder is looked at."""
_LONGEST_H = 8784.0
"""The longest window that a study can have: a year."""
_STATES = {
    "finished": "job-finished",
    "collecting": "job-collects",
    "stopped": "job-stopped",
    "failed": "job-stopped",
}
_FILES = ("outcome.json", "result.feddbn", "events.jsonl")


def file_rules(study: Study) -> Attendance:
    """Return how sites are waited for: all of them, as long as it takes, unless the study itself collects."""
    if study.attendance.collects:
        return study.attendance
    return Attendance(when_missing="collect", window_h=_LONGEST_H)


@dataclass(frozen=True)
class Stepped:
    """How a run stands after a step: its outcome, the question files that wait for answers, and what was not used.

    Attributes
    ----------
    outcome
        As ``outcome.json`` has it; `state` is "collecting" while sites are awaited.
    questions
        Site -> the file it is asked with; once the run has finished, the file that brings it the result.
    notes
        Why files in the folder are not used, in sentences.
    """

    outcome: dict[str, Any]
    questions: dict[str, Path] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """How the run stands."""
        return str(self.outcome.get("state", ""))


class FilesSession(Session):
    """The lead's side of studies by files; there is nothing to connect to."""

    connects = False

    def __init__(self, kit: Path) -> None:
        super().__init__(kit)
        self._last = Stepped({})
        self._files = open_kit(kit, "lead")
        self._runs = self.kit / "runs"

    def __enter__(self) -> FilesSession:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: nothing was opened."""

    @property
    def lead(self) -> str:
        """Whose kit it is."""
        return self._files.name

    def presence(self) -> list[Presence]:
        """Return the sites; nobody is connected."""
        return [Presence(site, False) for site in sorted(self._files.keys)]

    def begin(self, study: Study, run_id: str, tell: Tell = lambda sentence: None) -> str:
        """Write the first questions of a study, or take the next step of one that has begun; nobody has to be there."""
        job = self.submit(study, run_id)
        for note in self._last.notes:
            tell(note)
        return job

    def jobs(self) -> list[Job]:
        """Return the runs that this lead has begun, the newest first."""
        found = []
        for path in self._runs.glob("*.json") if self._runs.is_dir() else ():
            outcome = self._outcome(path.stem)
            state = str(outcome.get("state", "failed"))
            found.append(
                Job(
                    run=path.stem,
                    job=path.stem,
                    status=state,
                    submitted=iso_time(path.stat().st_mtime),
                    duration="",
                    is_running=state == "collecting",
                    has_ended=state != "collecting",
                    code=_STATES.get(state, "job-other"),
                )
            )
        return sorted(found, key=lambda job: job.submitted, reverse=True)

    def submit(self, study: Study, run_id: str) -> str:
        """Make the run's folder, where the kit says or else here, and take a step in it; return its name."""
        self.check(study, run_id)
        folder = self.folder_of(run_id) or (self._files.settings.folder or Path()) / run_id
        self.remember(study, run_id, folder)
        self._last = self.step(study, run_id)
        return run_id

    def progress(self, job_id: str) -> dict[str, Any] | None:
        """Return how a run stands since its last step."""
        outcome = self._outcome(job_id)
        if not outcome:
            return None
        # A step that waits has not ended yet; what it does is in the run's events.
        events = EventLog(run_directory(self._runs, job_id, create=False) / "events.jsonl").read()
        waits = [str(one.get("sentence", "")) for one in events if one.get("what") == "collecting"]
        sums = {int(one["seq"]): one for one in events if one.get("what") == "sum"}
        present = sums[max(sums)].get("sites", []) if sums else []
        values = {"run": job_id, "state": outcome.get("state"), "last": waits[-1] if waits else ""}
        return {**values, "sums": len(sums), "present": present}

    def wait(self, job_id: str, watch: Watch | None = None) -> str:
        """Step a run whenever an answer has come, until it has ended; return how."""
        return self.step(self.study_of(job_id), job_id, watch=watch or (lambda values: None)).state

    def abort(self, job_id: str) -> None:
        """Refuse: between two steps nothing runs."""
        raise FederationError(
            f"run {job_id!r} goes by files, so there is nothing to stop: leave it, and tell the sites, whose owners can take "
            "their approvals back (`feddbn site refuse`).",
            code="nothing-runs",
        )

    def fetch(self, job_id: str, out: Path) -> Path:
        """Copy outcome, result and events of a run into `out`."""
        place = run_directory(self._runs, job_id, create=False)
        if not (place / "outcome.json").exists():
            raise StateError(f"run {job_id!r} was not stepped yet.", code="no-outcome")
        out = Path(out)
        out.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            if (place / name).exists():
                shutil.copy(place / name, out / name)
        return out

    def told_when_sent(self, run_id: str) -> list[str]:
        """Return who was asked with which file, and what comes next."""
        return self.told(run_id, self._last)

    def told_when_left(self, run_id: str) -> str:
        """Return that nothing goes on by itself."""
        return f"run {run_id} waits; `feddbn study step {self._typed(run_id)}` goes on with it."

    # What only studies by files have.

    def told(self, run_id: str, last: Stepped) -> list[str]:
        """Return how a run stands, for its lead."""
        folder = self._typed(run_id)
        files = {site: _relative(path) for site, path in last.questions.items()}
        is_first = all("-001-question" in path.name for path in last.questions.values())
        said = {"run": run_id, "sentence": last.outcome.get("sentence", ""), "folder": folder, "files": files}
        said["is_first"] = is_first
        code = "files-finished" if last.state == "finished" else "files-awaited"
        return say(Finding(code, "note", said), "lead").splitlines()

    def _typed(self, run_id: str) -> str:
        return _relative(self.folder_of(run_id) or Path(run_id))

    def check(self, study: Study, run_id: str) -> None:
        """Refuse a study that cannot be run with this kit, and a name that was used for another."""
        check_run_id(run_id)
        unknown = [site for site in (*study.sites, *study.privacy.keepers) if site not in self._files.keys]
        if unknown:
            raise ParameterError(
                f"the study names {unknown[0]!r}, of which this kit has no key; it has those of "
                f"{', '.join(sorted(self._files.keys))}.",
                code="unknown-site",
            )
        if study.lead and study.lead != self.lead:
            raise ParameterError(
                f"the study is led by {study.lead!r}, but this kit is that of {self.lead!r}; sites would refuse it.",
                code="other-lead",
            )
        self.claim(study, run_id)

    def folder_of(self, run_id: str) -> Path | None:
        """Return the folder of a run that was begun."""
        stored = Store(self._runs).get(run_id, "folder")
        return None if stored is None else Path(stored.decode())

    def remember(self, study: Study, run_id: str, folder: Path) -> None:
        """Keep which study a run is and where its folder is."""
        folder.mkdir(parents=True, exist_ok=True)
        path = self._memory(run_id)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        if not path.exists():
            path.write_text(study.to_json(), encoding="utf-8")
        Store(self._runs).put(run_id, "folder", str(folder.resolve()).encode())

    def step(
        self, study: Study, run_id: str, watch: Watch | None = None, accepts_refusals: bool = False
    ) -> Stepped:
        """Take the answers that are there and write the next questions; with `watch`, go on until the run has ended.

        `watch` hears how it stands whenever the folder was looked at. With `accepts_refusals` a site that refuses is not
        waited for: the study goes on without that question where it can, and stops otherwise.
        """
        folder = self.folder_of(run_id)
        assert folder is not None
        notes: list[str] = []
        store, progress = Store(self._runs), Progress(run_id, study.sites)
        exchange = FileExchange(
            folder, study, run_id, store, self._files.identity, self.lead, self._files.keys, notes.append
        )

        def wait(seconds: float) -> None:
            if watch is not None:
                watch(progress.read())
            time.sleep(min(seconds, LOOK_S))

        place, outcome = run_directory(self._runs, run_id), self._outcome(run_id)
        if outcome.get("state") == "finished":
            # Nothing is asked any more; the sites' receipts are taken.
            outcome["received"] = list(exchange.receipts())
            write_atomically(place / "outcome.json", json.dumps(outcome).encode())
            return Stepped(outcome, dict(exchange.open), tuple(notes))
        with contextlib.suppress(StillCollecting):
            conduct(
                exchange,
                study,
                run_id,
                self._runs,
                place,
                progress,
                lambda sentence: None,
                rules=file_rules(study),
                stay_s=0.0 if watch is None else float("inf"),
                wait=wait,
                accepts_refusals=accepts_refusals,
            )
        return Stepped(self._outcome(run_id), dict(exchange.open), tuple(notes))

    def _outcome(self, run_id: str) -> dict[str, Any]:
        try:
            path = run_directory(self._runs, run_id, create=False) / "outcome.json"
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return {}


def _relative(path: Path) -> str:
    """A path as a person here would type it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


class FilesEngine(Engine):
    """Kits with keys and no addresses; whoever carries the files carries the study."""

    name = "files"
    instead = (
        "the lead runs `feddbn study step`, and each site answers with `feddbn site answer` or `feddbn start`"
    )
    has_server = False
    has_keepers = True

    def make_kits(self, plan: FederationPlan, directory: Path) -> dict[str, Path]:
        """Write a kit for the lead and one for each site."""
        return make_kits(plan, directory)

    def federation_in(self, directory: Path) -> tuple[list[Path], str] | None:
        """Look into the authority's folder, and for the lead's kit, which was it in earlier versions."""
        places = [directory / "authority", *sorted((directory / "kits").glob("*"))]
        marks = {one: read_mark(one) for one in places if (one / MARK).exists()}
        found = [one for one, mark in marks.items() if mark.role in ("authority", "lead")]
        return (found, marks[found[0]].federation) if found else None

    def make_more_kits(self, names: Sequence[str], directory: Path, others: Path) -> dict[str, Path]:
        """Write the same for some more sites."""
        return make_more_kits(names, directory, others)

    def authority_key(self, kit: Path) -> str | None:
        """Return it; kits of earlier versions were made by the lead, whose key they have."""
        return super().authority_key(kit) or read_mark(kit).lead_key

    def check_site(self, kit: Path, study: Study | None = None) -> list[Finding]:
        """Check data, policy, keys and the shared folder."""
        return check_site(kit, study)

    def site_settings(self, kit: Path) -> Path:
        """Return its place in the kit."""
        return Path(kit) / "feddbn_site.toml"

    def site_process(self, kit: Path) -> Process:
        """Return what watches the shared folder of a site's kit, or of a keeper's."""
        open_end_kit(kit).shared_folder()
        return Process([sys.executable, "-m", "feddbn.runtime.engines.files.site", str(kit)], os.environ)

    def session(self, kit: Path) -> FilesSession:
        """Return the lead's side."""
        return FilesSession(kit)


ENGINE = FilesEngine()
