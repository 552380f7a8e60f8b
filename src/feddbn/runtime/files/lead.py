"""The lead's side of studies by files.

Nothing runs between two steps: a *step* conducts the run over what has come, from its journal, and ends when sites are
awaited. A run is known by its name, which is that of its folder; its journal, its questions and the answers that were taken
are in the lead's kit, so whoever else can write to the folder cannot change them.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from feddbn.errors import FeddbnError, ParameterError, StateError, StillCollecting
from feddbn.federation.protocol.messages import check_run_id
from feddbn.federation.protocol.study import Attendance, Study, study_from_json
from feddbn.findings import Finding
from feddbn.runtime.files.exchange import FileExchange
from feddbn.runtime.files.kit import open_kit
from feddbn.runtime.server.conduct import Progress, conduct
from feddbn.runtime.store import EventLog, Store, run_directory, write_atomically
from feddbn.words import say

LOOK_S = 1.0
"""How often a folder is looked at."""
_LONGEST_H = 8784.0
"""The longest window that a study can have: a year."""
_FILES = ("outcome.json", "result.feddbn", "events.jsonl")
Watch = Callable[[dict[str, Any]], None]


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


class Lead:
    """A lead's kit: the runs that were begun with it, and the next step of one."""

    def __init__(self, kit: Path) -> None:
        self.kit = Path(kit)
        self._files = open_kit(kit, "lead")
        self._runs = self.kit / "runs"

    @property
    def name(self) -> str:
        """Whose kit it is."""
        return self._files.name

    @property
    def shared(self) -> Path:
        """Where a run's folder is made that nobody has named."""
        return self._files.settings.folder or Path()

    def check(self, study: Study, run_id: str) -> None:
        """Refuse a study that cannot be run with this kit, and a name that was used for another."""
        check_run_id(run_id)
        unknown = [site for site in study.sites if site not in self._files.keys]
        if unknown:
            raise ParameterError(
                f"the study names {unknown[0]!r}, of which this kit has no key; it has those of "
                f"{', '.join(sorted(self._files.keys))}.",
                code="unknown-site",
            )
        if study.lead and study.lead != self.name:
            raise ParameterError(
                f"the study is led by {study.lead!r}, but this kit is that of {self.name!r}; sites would refuse it.",
                code="other-lead",
            )
        path = self._memory(run_id)
        if path.exists() and path.read_text(encoding="utf-8") != study.to_json():
            raise StateError(
                f"run {run_id!r} was begun with another study; give the folder of this one another name.",
                code="other-study",
            )

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

    def study_of(self, run_id: str) -> Study:
        """Return the study that was begun under this name."""
        path = self._memory(run_id)
        if not path.exists():
            raise StateError(f"no run {run_id!r} was begun with the kit {self.kit}.", code="unknown-run")
        return study_from_json(path.read_text(encoding="utf-8"))

    def studies(self) -> dict[str, Study]:
        """Return every run that was begun with this kit, the newest first, and its study; what cannot be read is left out."""
        found = {}
        for path in sorted(self._runs.glob("*.json"), key=lambda one: one.stat().st_mtime_ns, reverse=True):
            with contextlib.suppress(FeddbnError, OSError, UnicodeDecodeError):
                found[path.stem] = study_from_json(path.read_text(encoding="utf-8"))
        return found

    def outcome(self, run_id: str) -> dict[str, Any]:
        """Return how a run stands since its last step, as ``outcome.json`` says; nothing if there is none."""
        try:
            path = run_directory(self._runs, run_id, create=False) / "outcome.json"
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return {}

    def progress(self, run_id: str) -> dict[str, Any]:
        """Return the outcome of a run, how many sums it has, and the sites in the last one."""
        events = EventLog(run_directory(self._runs, run_id, create=False) / "events.jsonl").read()
        sums = {int(one["seq"]): one for one in events if one.get("what") == "sum"}
        present = sums[max(sums)].get("sites", []) if sums else []
        return {**self.outcome(run_id), "run": run_id, "sums": len(sums), "present": present}

    def fetch(self, run_id: str, out: Path) -> Path:
        """Copy outcome, result and events of a run into `out`."""
        place = run_directory(self._runs, run_id, create=False)
        out = Path(out)
        out.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            if (place / name).exists():
                shutil.copy(place / name, out / name)
        return out

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
            folder, study, run_id, store, self._files.identity, self.name, self._files.keys, notes.append
        )

        def wait(seconds: float) -> None:
            if watch is not None:
                watch(progress.read())
            time.sleep(min(seconds, LOOK_S))

        place, outcome = run_directory(self._runs, run_id), self.outcome(run_id)
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
        return Stepped(self.outcome(run_id), dict(exchange.open), tuple(notes))

    def told(self, run_id: str, last: Stepped) -> list[str]:
        """Return how a run stands, for its lead."""
        files = {site: _relative(path) for site, path in last.questions.items()}
        is_first = all("-001-question" in path.name for path in last.questions.values())
        said = {"run": run_id, "sentence": last.outcome.get("sentence", ""), "files": files}
        said |= {"folder": self.typed(run_id), "is_first": is_first}
        code = "files-finished" if last.state == "finished" else "files-awaited"
        return say(Finding(code, "note", said), "lead").splitlines()

    def typed(self, run_id: str) -> str:
        """Return the folder of a run as a person here would type it."""
        return _relative(self.folder_of(run_id) or Path(run_id))

    def _memory(self, run_id: str) -> Path:
        return self._runs / f"{check_run_id(run_id)}.json"


def _relative(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
