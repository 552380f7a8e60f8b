"""What the console of a lead shows: sites, runs and their course, from what an engine's session says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from feddbn.console.lead_watch import Point, Sight
from feddbn.federation.protocol.study import Study
from feddbn.findings import Finding, Findings, Level
from feddbn.runtime.engines.interface import Job, Presence, run_state, sites_that_refuse
from feddbn.runtime.store import EventLog

if TYPE_CHECKING:
    from feddbn.results.result import Result

_COUNTS = ("round", "max_rounds", "replicates", "step")
"""Parts of a note that count and are no curves."""


@dataclass(frozen=True)
class RunFacts:
    """One run; `share` is how far it has come at least, None if that is not known, and `left` how long it may take.

    `refused` are the sites that said no, each with its reason.
    """

    job: Job
    study: Study | None
    state: Finding
    sums: int
    share: float | None
    left: Finding | None
    present: tuple[str, ...]
    warnings: tuple[Finding, ...]
    refused: tuple[Finding, ...] = ()

    @property
    def can_resume(self) -> bool:
        """Whether it was sent with this kit, has ended, and has not finished."""
        is_finished = self.state.code in ("run-finished", "job-finished")
        return self.study is not None and self.job.has_ended and not is_finished


def site_facts(sight: Sight, named: Sequence[str], now: float) -> list[Finding]:
    """Return how every site stands that is connected, was, or that a study names."""
    found = []
    for name in sorted({*sight.sites, *named}):
        heard = sight.seen.get(name)
        if sight.trouble and sight.taken is not None:
            values = {"site": name, "seconds": None if heard is None else now - heard}
            found.append(Finding("site-unknown", "unknown", values))
        else:
            found.append(Presence(name, name in sight.connected, heard).finding(now))
    return found


def run_facts(
    sight: Sight,
    job: Job,
    study: Study | None,
    outcome: Mapping[str, Any] | None,
    connects: bool = True,
) -> RunFacts:
    """Return how a run stands; `outcome` is what was fetched of it, if it was; `connects`: whether sites can be connected."""
    progress = sight.progress.get(job.run, {})
    sites = tuple(study.sites) if study is not None else tuple(progress.get("sites") or ())
    present = tuple(str(name) for name in progress.get("present") or ())
    missing = tuple(name for name in sites if name not in present) if job.is_running and present else ()
    share, left = (
        _left(sight.points.get(job.run, ()), progress.get("note") or {}, study)
        if job.is_running
        else (None, None)
    )
    return RunFacts(
        job=job,
        study=study,
        state=_state(job, progress, outcome),
        sums=int(progress.get("sums") or 0),
        share=share,
        left=left,
        present=present,
        warnings=_warnings(job, progress, sites if connects else (), missing, outcome, sight),
        refused=tuple(sites_that_refuse(progress if job.is_running else outcome or {})),
    )


def _state(job: Job, progress: Mapping[str, Any], outcome: Mapping[str, Any] | None) -> Finding:
    level: Level = "unknown"
    if job.is_running:
        level = "good"
    elif job.has_ended:
        level = "good" if job.code == "job-finished" else "warning" if job.was_stopped else "error"
    # What a server that was told to stop left behind says less than that it was told so.
    if outcome is not None and job.has_ended and not job.was_stopped:
        return _without_refusals(outcome)
    if job.has_ended and job.code != "job-finished":
        return Finding("run-ended", level, {"job": job.code})
    if job.is_running and progress:
        return replace(run_state(progress), level=level)
    return Finding(job.code, level, {"run": job.run, "status": job.status.lower()})


def _without_refusals(outcome: Mapping[str, Any]) -> Finding:
    """How a run ended; what sites said no with is told by itself."""
    sentence = str(outcome.get("sentence") or "")
    for said in (outcome.get("said") or {}).values():
        sentence = sentence.replace(said["sentence"], "")
    return run_state({**outcome, "sentence": sentence.strip()})


def _left(
    points: Sequence[Point], note: Mapping[str, float], study: Study | None
) -> tuple[float | None, Finding | None]:
    """Return how far a run has come at least, and how long it still takes at most."""
    pace = _seconds_per_sum(points)
    reached, most = note.get("round"), note.get("max_rounds")
    if "replicates" in note and study is not None:
        reached, most = note["replicates"], float(study.confidence.replicates)
    if reached is None or not most:
        return None, None if pace is None else Finding("run-left", "note", {"pace": pace, "reached": None})
    return min(reached / most, 1.0), Finding(
        "run-left", "note", {"pace": pace, "reached": reached, "most": most}
    )


def _seconds_per_sum(points: Sequence[Point]) -> float | None:
    steps = [
        (after.time - before.time) / (after.sums - before.sums)
        for before, after in pairwise(points[-20:])
        if after.sums > before.sums
    ]
    return median(steps) if steps else None


def _warnings(
    job: Job,
    progress: Mapping[str, Any],
    sites: Sequence[str],
    missing: tuple[str, ...],
    outcome: Mapping[str, Any] | None,
    sight: Sight,
) -> tuple[Finding, ...]:
    found = []
    if missing:
        gone = [name for name in missing if name not in sight.connected]
        found.append(Finding("not-in-last-sum", "warning", {"away": gone}, missing))
    # While the server cannot be asked, nobody knows who is connected.
    away = tuple(name for name in sites if name not in (*sight.connected, *missing))
    if job.is_running and away and not sight.trouble:
        found.append(Finding("not-connected", "warning", about=away))
    # Who is awaited, and who refused, is said elsewhere.
    is_told = progress.get("said") or progress.get("state") == "collecting"
    if job.is_running and progress.get("last") and not is_told:
        found.append(Finding("text", "warning", {"text": str(progress["last"])}))
    if outcome is not None:
        result = (outcome.get("summary") or {}).get("result") or {}
        found += [one for one in Findings.stored_in(result) if one.level != "good"]
    return tuple(found)


def result_numbers(result: Result, study: Study | None) -> dict[str, str]:
    """Return what two results are compared by beside their edges, in words."""
    rows = result.rows_used[0]
    noise = (result.privacy or {}).get("epsilon")
    levels = Counter(one.level for one in result.findings)
    return {
        "Method": result.method,
        "Sites": "–" if study is None else ", ".join(study.sites),
        "Rows": f"{rows:,.0f}" if isinstance(rows, int | float) else "–",
        "Variables": str(result.dbn.d),
        "Lags": str(result.dbn.n_lags),
        "Edges": str(int(result.dbn.is_edge.sum())),
        "Epsilon": "–" if noise is None else f"{noise:g}",
        "Errors and warnings": str(levels["error"] + levels["warning"]),
    }


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
