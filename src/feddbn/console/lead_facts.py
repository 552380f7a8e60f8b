"""What the console of a lead shows: sites, runs and their course in words.

The one place that turns what an engine's session says into words for pages: `Session.sites`, `Job.words`, and what a running
study tells about itself (`Progress` of runtime/deployed/conduct.py). Better words there are better words here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from feddbn.console.lead_watch import Point, Sight
from feddbn.console.words import ago, when
from feddbn.errors import FeddbnError, FileError, StateError
from feddbn.federation.protocol.study import Study
from feddbn.findings import Findings
from feddbn.runtime.deployed.results import export_result, read_outcome
from feddbn.runtime.deployed.store import EventLog, iso_time, run_directory
from feddbn.runtime.engines.interface import Job, Session, span_in_words
from feddbn.words import say

__all__ = ["LeadResults", "RunFacts", "SiteFact", "course_of", "run_facts", "site_facts", "study_of"]


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
        return render_report(stored, edges=read_edges(edges) if edges.exists() else None, audience="lead")


_COUNTS = ("round", "max_rounds", "replicates", "step")
"""Parts of a note that count and are no curves."""


@dataclass(frozen=True)
class SiteFact:
    """One site and how long it is silent, in words."""

    name: str
    level: str
    words: str


@dataclass(frozen=True)
class RunFacts:
    """One run in words; `share` is how far it has come at least, None if that is not known."""

    run: str
    study: Study | None
    words: str
    level: str
    began: str
    is_running: bool
    has_ended: bool
    sums: int | None
    share: float | None
    left: str
    present: tuple[str, ...]
    missing: tuple[str, ...]
    warnings: tuple[str, ...]


def study_of(session: Session, run: str) -> Study | None:
    """Return the study that was sent under this name with this kit; None for a run of another lead."""
    try:
        return session.study_of(run)
    except (FeddbnError, OSError):
        return None


def site_facts(sight: Sight, named: Sequence[str], now: float) -> list[SiteFact]:
    """Return every site that is connected, was, or that a study names."""
    found = []
    for name in sorted({*sight.connected, *sight.seen, *named}):
        if sight.trouble and sight.taken is not None:
            last = sight.seen.get(name)
            words = "not known" if last is None else f"not known; connected {ago(now - last)}"
            found.append(SiteFact(name, "unknown", words))
        elif name in sight.connected:
            found.append(SiteFact(name, "good", "connected"))
        elif name in sight.seen:
            since = sight.seen[name]
            found.append(
                SiteFact(name, "bad", f"silent since {when(iso_time(since))} ({span_in_words(now - since)})")
            )
        else:
            found.append(SiteFact(name, "caution", "has never been connected, as far as this lead has seen"))
    return found


def run_facts(
    sight: Sight, job: Job, study: Study | None, outcome: Mapping[str, Any] | None, now: float
) -> RunFacts:
    """Return a run in words; `outcome` is what was fetched of it, if it was."""
    progress = sight.progress.get(job.run, {})
    points = sight.points.get(job.run, ())
    sites = tuple(study.sites) if study is not None else tuple(progress.get("sites") or ())
    present = tuple(str(name) for name in progress.get("present") or ())
    missing = tuple(name for name in sites if name not in present) if job.is_running and present else ()
    note = progress.get("note") or {}
    share, left = _left(points, note, study, now) if job.is_running else (None, "")
    return RunFacts(
        run=job.run,
        study=study,
        words=_words(job, progress, outcome),
        level=_level(job, outcome),
        began=job.submitted,
        is_running=job.is_running,
        has_ended=job.has_ended,
        sums=int(progress["sums"]) if "sums" in progress else None,
        share=share,
        left=left,
        present=present,
        missing=missing,
        warnings=_warnings(job, progress, sites, missing, outcome, sight),
    )


def _words(job: Job, progress: Mapping[str, Any], outcome: Mapping[str, Any] | None) -> str:
    if outcome is not None and job.has_ended and outcome.get("sentence"):
        return f"{outcome['state']}: {outcome['sentence']}"
    if job.is_running and progress.get("state") == "collecting":
        return "running; it waits for sites that have not come yet"
    if job.is_running and progress.get("task"):
        return f"{job.words}; asks for {progress['task']}"
    return job.words


def _level(job: Job, outcome: Mapping[str, Any] | None) -> str:
    if not job.has_ended:
        return "good" if job.is_running else "unknown"
    is_finished = outcome is None or outcome.get("state") == "finished"
    return "good" if job.words == "finished" and is_finished else "caution" if job.was_stopped else "bad"


def _left(
    points: Sequence[Point], note: Mapping[str, float], study: Study | None, now: float
) -> tuple[float | None, str]:
    """Return how far a run has come at least, and how long it still takes at most, in words."""
    pace = _seconds_per_sum(points)
    reached, most = note.get("round"), note.get("max_rounds")
    if "replicates" in note and study is not None:
        reached, most = note["replicates"], float(study.confidence.replicates)
    each = "" if pace is None else f"{pace:.2g} s for each sum"
    if reached is None or not most:
        return None, f"{each}; how many it needs is not known before" if each else ""
    share = min(reached / most, 1.0)
    if pace is None:
        return share, f"round {reached:.0f} of at most {most:.0f}"
    rest = span_in_words((most - reached) * pace)
    return (
        share,
        f"round {reached:.0f} of at most {most:.0f}, {each}: at most {rest} left, less if it converges before",
    )


def _seconds_per_sum(points: Sequence[Point]) -> float | None:
    last = points[-20:]
    steps = [
        (after.time - before.time) / (after.sums - before.sums)
        for before, after in pairwise(last)
        if after.sums > before.sums
    ]
    return median(steps) if steps else None


def _warnings(
    job: Job,
    progress: Mapping[str, Any],
    sites: Sequence[str],
    missing: Sequence[str],
    outcome: Mapping[str, Any] | None,
    sight: Sight,
) -> tuple[str, ...]:
    found = []
    if missing:
        gone = [f"{name} (not connected)" if name not in sight.connected else name for name in missing]
        found.append(f"not in the last sum: {', '.join(gone)}.")
    # While the server cannot be asked, nobody knows who is connected.
    away = [name for name in sites if name not in (*sight.connected, *missing)]
    if job.is_running and away and not sight.trouble:
        found.append(f"not connected at the moment: {', '.join(away)}.")
    if job.is_running and progress.get("last"):
        found.append(str(progress["last"]))
    if outcome is not None:
        result = (outcome.get("summary") or {}).get("result") or {}
        found += [say(one, "lead") for one in Findings.stored_in(result) if one.level != "good"]
    return tuple(dict.fromkeys(found))


def course_of(points: Sequence[Point], fetched: Path | None) -> list[dict[str, Any]]:
    """Return the curves of a run: name, sums and values; of a run that was fetched all of it."""
    course = [(point.sums, point.note) for point in points]
    if fetched is not None and (fetched / "events.jsonl").exists():
        events = [event for event in EventLog(fetched / "events.jsonl").read() if event.get("what") == "sum"]
        course = [(int(event.get("seq", 0)) + 1, event.get("note") or {}) for event in events]
    names = dict.fromkeys(name for _, note in course for name in note if name not in _COUNTS)
    curves = []
    for name in names:
        pairs = [
            (sums, float(note[name])) for sums, note in course if name in note and math.isfinite(note[name])
        ]
        if pairs:
            curves.append({"name": name, "sums": [x for x, _ in pairs], "values": [y for _, y in pairs]})
    return curves
