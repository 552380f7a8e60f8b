"""Results that a lead has fetched, below one directory: ``<out>/<run>``, as `feddbn results` leaves them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feddbn.errors import FileError, StateError
from feddbn.runtime.deployed.results import export_result, read_outcome
from feddbn.runtime.deployed.store import run_directory
from feddbn.runtime.engines.interface import Session

__all__ = ["LeadResults"]


class LeadResults:
    """Fetches, reads and shows results."""

    def __init__(self, out: Path) -> None:
        self._out = Path(out)

    def place(self, run: str) -> Path:
        """Return where the files of a run are, or will be."""
        return run_directory(self._out, run, create=False)

    def outcome(self, run: str) -> Mapping[str, Any] | None:
        """Return how a run ended, if that was fetched."""
        try:
            return read_outcome(self.place(run))
        except FileError:
            return None

    def has_report(self, run: str) -> bool:
        """Whether there is a network to show."""
        return (self.place(run) / "dbn.json").exists()

    def fetch(self, session: Session, run: str) -> str:
        """Fetch the result of a run that has ended, as `feddbn results` does; return its state."""
        job = session.job_of(run)
        if not job.has_ended:
            raise StateError(f"run {run!r} has not ended: {job.words}.")
        place = session.fetch(job.job, run_directory(self._out, run))
        state = str(read_outcome(place)["state"])
        if state == "finished":
            export_result(place)
        return state

    def report(self, run: str) -> str:
        """Return the report of a run as HTML; what draws it is imported now, since the first page does not need it."""
        from feddbn.methods.result import Result
        from feddbn.report import render_report
        from feddbn.report.record import read_edges

        place = self.place(run)
        if not self.has_report(run):
            raise StateError(f"no network of run {run!r} was fetched; fetch its result first.")
        edges = place / "edges.csv"
        stored = Result.load(place / "result.json").to_dict()
        return render_report(stored, edges=read_edges(edges) if edges.exists() else None)
