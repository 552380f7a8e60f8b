"""What a lead has fetched of runs: a folder for each, as `feddbn study results` leaves it, and of which job it is.

A run that was resumed has had several jobs, so what an earlier one left is not taken for the end of the last.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feddbn.errors import FeddbnError, FileError, StateError
from feddbn.runtime.engines.interface import Job, Session
from feddbn.runtime.engines.planning import PLANS
from feddbn.runtime.server.results import export_result, read_outcome
from feddbn.runtime.store import run_directory, write_atomically

_JOB = "job.json"
_PLAN = re.compile(r"plan-[0-9a-f]{12}-[0-9]+")


class LeadResults:
    """The folders of runs below `out`; what came of dry rounds lies in the `kit`, where plans look for it."""

    def __init__(self, out: Path, kit: Path) -> None:
        self._out, self._plans = Path(out), Path(kit) / "runs" / PLANS

    def place(self, run: str) -> Path:
        """Return where the files of a run are, or will be."""
        return run_directory(self._plans if _PLAN.fullmatch(run) else self._out, run, create=False)

    def fetch(self, session: Session, job: Job) -> None:
        """Fetch how a job ended and its result; what cannot be fetched is noted, and raised."""
        place = self.place(job.run)
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            session.fetch(job.job, place)
            if read_outcome(place).get("state") == "finished":
                export_result(place)
        except (StateError, FileError) as error:
            # A server that cannot be reached is asked again; what it does not have, it will not have later.
            self._note(job, str(error))
            raise
        self._note(job, "")

    def _note(self, job: Job, trouble: str) -> None:
        note = {"job": _known(job), "trouble": trouble}
        write_atomically(self.place(job.run) / _JOB, json.dumps(note).encode())

    def forget(self, run: str) -> None:
        """Fetch again what this run leaves next."""
        (self.place(run) / _JOB).unlink(missing_ok=True)

    def note(self, job: Job) -> str | None:
        """Return why the end of a job cannot be fetched, empty if it was; None if nobody has tried."""
        try:
            note = json.loads((self.place(job.run) / _JOB).read_text(encoding="utf-8"))
            return str(note["trouble"]) if note["job"] == _known(job) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def outcome(self, job: Job) -> Mapping[str, Any] | None:
        """Return how a job ended, if that was fetched."""
        try:
            return read_outcome(self.place(job.run)) if self.note(job) == "" else None
        except FeddbnError:
            return None


def _known(job: Job) -> str:
    """Where studies go by files a run is one job, which may stop and go on."""
    return f"{job.job} {job.status}"
