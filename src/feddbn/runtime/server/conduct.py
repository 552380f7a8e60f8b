"""Run one study at the server over any exchange: rehearsal, journal, events, progress and result files.

*Rehearsal.* Some arguments make sense only beside the study's variables and sites: an input that is not among the
variables, a forbidden edge with an unknown name. A method looks at these when it begins. So it is
begun here, up to its first question, on a federation that has the names of the study's own and no sites behind them: what
cannot be is refused before anything is sent.

*Updates.* A study with `update_of` is about new rows. The server adds their sums to those of the earlier run, which it has
had in its journal all along and keeps in its store; they are sent to nobody. Every update is also a look of a monitor
(`analysis/monitor.py`), which keeps its state beside these sums: their difference shows the server nothing new.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from feddbn.errors import FeddbnError, FileError, StateError, StillCollecting
from feddbn.federation.guards.study_plan import check_noise_size
from feddbn.federation.protocol.messages import Exchange
from feddbn.federation.protocol.study import (
    Attendance,
    Study,
    StudyResult,
    check_goal,
    check_name,
    check_noise,
    check_sites,
    study_method,
)
from feddbn.federation.protocol.task import Federation, Sum, Task
from feddbn.federation.sums.in_view import FewerVariables, with_what_is_in_view
from feddbn.method_table import find_method
from feddbn.runtime.noisy import noise_aware
from feddbn.runtime.server.asking import ServerEvent
from feddbn.runtime.server.collecting import Collecting, VisitBook
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.server.results import absences_in, read_outcome
from feddbn.runtime.settings import load_programs
from feddbn.runtime.store import EventLog, RunJournal, Store, run_directory, write_atomically
from feddbn.words import say


class _FirstQuestion(BaseException):
    """The method has begun, and would now ask the sites."""


class _NoSites:
    """A federation of the study's names; whoever asks it has passed the rehearsal."""

    answered_tasks: frozenset[str] | None = None

    def __init__(self, study: Study) -> None:
        self.sites = tuple(sorted(study.sites))
        self.variables = study.variables

    def state_of(self, site: str) -> None:
        """Return None: there is no site."""

    def sum(self, task: Task) -> Sum:
        """End the rehearsal."""
        raise _FirstQuestion


def rehearse(study: Study) -> None:
    """Refuse a study whose method would refuse it, with the sentence of the method; nothing is sent.

    An update begins with what an earlier run has kept, which only the server has: of it only the arguments are checked.

    Raises
    ------
    ParameterError
        If the method cannot begin with these parameters, variables and sites.
    """
    check_goal(study)
    if study.update_of:
        return
    federation: Federation = _NoSites(study)
    with contextlib.suppress(_FirstQuestion):
        if study.privacy.epsilon is not None:
            federation = noise_aware(federation, study)
        study_method(study.method).run_study(study, federation)


def check_study(study: Study) -> None:
    """Refuse a study that no site could take part in: an unknown method, impossible noise or sites; nothing is sent.

    Raises
    ------
    ParameterError
        With what is wrong, and what would be right.
    """
    # These look at methods, which are above this layer.
    load_programs(("feddbn.analysis.studies",))
    check_name(study.method)
    for method in study.methods:
        find_method(method, offered=True)
    check_goal(study)
    check_noise(study)
    check_noise_size(study)
    check_sites(study)


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
    rules: Attendance | None = None,
    stay_s: float | None = None,
    wait: Callable[[float], None] = time.sleep,
    accepts_refusals: bool = False,
) -> StudyResult:
    """Run or resume `study`; the result and the events are written to `out` and to the run's directory.

    `here` are the sites that the exchange can reach; a study that collects ends with `StillCollecting` when none of them is
    awaited any more, and goes on when it is resumed with others.

    An engine whose sites are never there together gives its own `rules` instead of the study's attendance. A collection stays
    `stay_s` seconds after the last reply, by default `timeout_s` of the rules; `wait` passes the time between two looks.
    With `accepts_refusals` it does not wait for who refuses.

    A run that stops (too few sites, a refusal) raises after writing ``outcome.json`` with the sentence; its
    journal stays, so that it can be resumed.
    """
    directory = run_directory(runs, run_id)
    events = EventLog(directory / "events.jsonl")
    # Site -> the code and the words of what it said no with, until it takes part.
    said: dict[str, dict[str, str]] = {}

    def tell(event: ServerEvent) -> None:
        values = asdict(event)
        events.write(values)
        for site in event.sites:
            said.pop(site, None)
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
            if event.what == "refused":
                said[event.site] = {"code": event.code, "sentence": event.sentence}
            progress.update(last=event.sentence, said=dict(said))
            log(event.sentence)

    outcome: dict[str, Any] = {"run": run_id, "study": json.loads(study.to_json())}
    journal = RunJournal(runs, run_id)
    collection: Collecting | None = None
    coordinator: Coordinator | None = None
    try:
        rules = rules or study.attendance
        if rules.collects:
            stay_s = rules.timeout_s if stay_s is None else stay_s
            book = VisitBook(runs, run_id)
            exchange = collection = Collecting(
                exchange, rules, book, tell, here, stay_s, wait=wait, accepts_refusals=accepts_refusals
            )
        # Who comes to a collection later is waited for all the same.
        reached = None if collection is not None else here
        kept = earlier_sums(runs, study)
        coordinator = Coordinator(exchange, study, run_id, journal, tell, here=reached, rules=rules)
        if collection is not None:
            collection.n_recorded = coordinator.n_recorded
        progress.update(resumed_after=coordinator.n_recorded)
        result, received = run_study(coordinator, study, kept)
        keep_sums(runs, run_id, study, result)
        outcome.update(state="finished", received=list(received), summary=dict(result.summary))
        for site in sorted(set(study.sites) - set(received)):
            log(f"the result has not reached site {site!r}; resuming run {run_id!r} sends it again.")
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
        outcome.update(state="stopped", error=type(error).__name__, code=error.code, sentence=str(error))
        # Site -> the code of what it said no with.
        outcome["reasons"] = error.values.get("reasons", {})
        log(str(error))
        raise
    finally:
        journal.close()
        outcome.setdefault("state", "failed")
        outcome["said"] = said
        outcome["logs"] = _with_logs(directory, {} if coordinator is None else coordinator.logs)
        said_so_far = events.read()
        if outcome["state"] == "finished" and coordinator is not None:
            # Events are for people and may be lost; the journal tells who was in a sum.
            said_so_far = [one for one in said_so_far if one.get("what") != "sum"]
            said_so_far += [
                {"what": "sum", "seq": seq, "missing": sites} for seq, sites in enumerate(coordinator.missing)
            ]
        outcome["absent"] = [{**one.values, "words": say(one, "lead")} for one in absences_in(said_so_far)]
        progress.update(state=outcome["state"])
        for place in (directory, out):
            write_atomically(place / "outcome.json", json.dumps(outcome, default=str).encode())
        if events.path.exists():
            write_atomically(out / "events.jsonl", events.path.read_bytes())


def _with_logs(directory: Path, logs: Mapping[str, str]) -> dict[str, list[str]]:
    """Return, by site, the hashes of its log that the lead has: of each segment of a run the last."""
    try:
        known: dict[str, list[str]] = read_outcome(directory).get("logs", {})
    except FileError:
        known = {}
    return {
        site: [*known.get(site, ()), *((logs[site],) if site in logs else ())] for site in {**known, **logs}
    }


_SAME = ("method", "variables", "parameters", "sites", "units")


def keep_sums(runs: Path, run_id: str, study: Study, result: StudyResult) -> None:
    """Keep what an update of this run will need, at the server."""
    if result.kept:
        values = {"study": json.loads(study.to_json()), **result.kept}
        Store(runs).put(run_id, "sums", json.dumps(values).encode())


def earlier_sums(runs: Path, study: Study) -> Mapping[str, Any] | None:
    """Return what the run that a study updates has kept; None if it updates none. Another question is refused."""
    if not study.update_of:
        return None
    stored = Store(runs).get(study.update_of, "sums")
    if stored is None:
        raise StateError(
            f"update_of = {study.update_of!r}: the server has no sums of such a run; it did not finish, was deleted after "
            "`keep_days`, or learned by more than second moments. Ask about all rows in a study of its own.",
            code="no-sums",
        )
    try:
        kept: dict[str, Any] = json.loads(stored)
        before = Study.model_validate(kept["study"])
    except (ValueError, KeyError) as error:
        raise StateError(
            f"update_of = {study.update_of!r}: its sums cannot be read: {error}.", code="unreadable"
        ) from None
    differ = [name for name in _SAME if getattr(before, name) != getattr(study, name)]
    if differ:
        raise StateError(
            f"update_of = {study.update_of!r}: the study has other {differ[0]} than that run; only the same question can be "
            "updated.",
            code="other-question",
        )
    if before.attendance.when_missing == "continue" or before.attendance.enough is not None:
        raise StateError(
            f"update_of = {study.update_of!r}: that run was allowed to go on without a site; update runs that wait for all.",
            code="had-absences",
        )
    return kept


def run_study(
    coordinator: Coordinator, study: Study, kept: Mapping[str, Any] | None = None
) -> tuple[StudyResult, tuple[str, ...]]:
    """Return the result of a study and who received it: handshake, program, personal results.

    `kept` is what the run that it updates has kept.
    """
    rehearse(study)
    federation: Federation = coordinator
    if study.privacy.epsilon is not None:
        federation = noise_aware(coordinator, study)
    coordinator.hello()
    federation, study = _in_view(federation, study, kept)
    result = study_method(study.method).run_study(study, federation, kept)
    return result, coordinator.finish(result)


def _in_view(
    federation: Federation, study: Study, kept: Mapping[str, Any] | None
) -> tuple[Federation, Study]:
    """Leave out of a study what few sites, or few rows of a site, would be seen by; an update has the variables it had."""
    if find_method(study.method) is None:
        return federation, study
    if kept is None:
        federation = with_what_is_in_view(federation, 1 if study.n_lags is None else study.n_lags)
    else:
        names = tuple(kept["sums"]["variables"])
        federation = FewerVariables(federation, names, ()) if names != study.variables else federation
    names = federation.variables
    if names == study.variables:
        return federation, study
    parameters = dict(study.parameters)
    kinds = parameters.get("kinds")
    if isinstance(kinds, dict):
        parameters["kinds"] = {name: kind for name, kind in kinds.items() if name in names}
    prepare = parameters.get("prepare")
    if isinstance(prepare, dict):
        parameters["prepare"] = prepare = dict(prepare)
    for given in (parameters, prepare if isinstance(prepare, dict) else {}):
        for key in ("exogenous", "prepare.exogenous"):
            inputs = given.get(key)
            if isinstance(inputs, list):
                given[key] = [name for name in inputs if name in names]
    return federation, study.model_copy(update={"variables": names, "parameters": parameters})
