"""Run one study at the server over any exchange: journal, events, progress and result files."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from feddbn.errors import FeddbnError, StillCollecting
from feddbn.federation.protocol.messages import Exchange
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.study_methods import StudyResult
from feddbn.runtime.deployed.absences import absences_in
from feddbn.runtime.deployed.asking import ServerEvent
from feddbn.runtime.deployed.collecting import Collecting
from feddbn.runtime.deployed.coordinator import Coordinator, run_study
from feddbn.runtime.deployed.store import EventLog, JournalFile, run_directory, write_atomically
from feddbn.runtime.deployed.updates import earlier_sums, keep_sums
from feddbn.runtime.deployed.visit_book import VisitBook

__all__ = ["Progress", "conduct"]


class Progress:
    """The state of a run for people: readable from another thread while the run goes on.

    `awaited` tells which sites have not answered yet, and for how many seconds.
    """

    def __init__(
        self, run_id: str, sites: tuple[str, ...], awaited: Callable[[], Mapping[str, float]] = dict
    ) -> None:
        self._lock = threading.Lock()
        self._awaited = awaited
        self._values: dict[str, Any] = {
            "run": run_id,
            "state": "starting",
            "sums": 0,
            "sites": list(sites),
            "present": [],
        }

    def update(self, **values: Any) -> None:
        """Change some values."""
        with self._lock:
            self._values.update(values)

    def read(self) -> dict[str, Any]:
        """Return a copy."""
        with self._lock:
            return {**self._values, "awaited": dict(self._awaited())}


def conduct(
    exchange: Exchange,
    study: Study,
    run_id: str,
    runs: Path,
    out: Path,
    progress: Progress,
    log: Callable[[str], None],
    here: Collection[str] | None = None,
) -> StudyResult:
    """Run or resume `study`; the result and the events are written to `out` and to the run's directory.

    `here` are the sites that the exchange can reach; a study that collects ends with `StillCollecting` when none of them is
    awaited any more, and goes on when it is resumed with others.

    A run that stops (too few sites, a refusal) raises after writing ``outcome.json`` with the sentence; its
    journal stays, so that it can be resumed.
    """
    directory = run_directory(runs, run_id)
    events = EventLog(directory / "events.jsonl")

    def tell(event: ServerEvent) -> None:
        values = asdict(event)
        events.write(values)
        if event.what == "sum":
            note = dict(event.note or {})
            progress.update(
                state="running", sums=event.seq + 1, task=event.task, present=list(event.sites), note=note
            )
            for site in event.missing:
                log(f"sum {event.seq} ({event.task!r}) was made without site {site!r}.")
        elif event.what == "collecting":
            progress.update(state="collecting", present=list(event.sites), last=event.sentence)
            log(event.sentence)
        elif event.sentence:
            progress.update(last=event.sentence)
            log(event.sentence)

    outcome: dict[str, Any] = {"run": run_id, "study": json.loads(study.to_json())}
    journal = JournalFile(directory / "journal.feddbn")
    collection: Collecting | None = None
    if study.attendance.collects:
        book = VisitBook(directory / "visits.feddbn")
        rules = study.attendance
        exchange = collection = Collecting(exchange, rules, book, tell, here, stay_s=rules.timeout_s)
    try:
        # Who comes to a collection later is waited for all the same.
        reached = None if collection is not None else here
        coordinator = Coordinator(exchange, study, run_id, journal, tell, here=reached)
        if collection is not None:
            collection.n_recorded = coordinator.n_recorded
        progress.update(resumed_after=coordinator.n_recorded)
        result, received = run_study(coordinator, study, earlier_sums(runs, study))
        keep_sums(directory, study, result)
        outcome.update(state="finished", received=list(received), summary=dict(result.summary))
        for place in (directory, out):
            write_atomically(place / "result.feddbn", result.to_bytes())
        return result
    except StillCollecting as error:
        outcome.update(
            state="collecting", sentence=str(error), awaited=list(error.awaited), until=error.until
        )
        log(str(error))
        raise
    except FeddbnError as error:
        outcome.update(state="stopped", error=type(error).__name__, sentence=str(error))
        log(str(error))
        raise
    finally:
        journal.close()
        outcome.setdefault("state", "failed")
        outcome["absent"] = [one.to_dict() for one in absences_in(events.read())]
        progress.update(state=outcome["state"])
        for place in (directory, out):
            write_atomically(place / "outcome.json", json.dumps(outcome, default=str).encode())
        if events.path.exists():
            write_atomically(out / "events.jsonl", events.path.read_bytes())
