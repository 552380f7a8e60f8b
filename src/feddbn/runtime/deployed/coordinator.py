"""Sums over any exchange: the server's half that every distributed engine shares.

Theory of operation
-------------------
`Coordinator` is a `Federation`. For each task it first looks into the journal (`replay`): a recorded sum is returned
after its task digest was checked (resume). Otherwise it has the sum made (`sums`, `masked_sums`), holds who is in it
against the study's rule (`attendance`), writes it to the journal and only then returns it. The fence at the sites
(federation/protocol/endpoint.py) makes asking again (`asking`) harmless.

A silent site is a drop-out. "wait" asks again until `max_wait_s`, "continue" goes on with at least `min_sites`,
"abort" stops. "collect" is the exchange's business (`collecting`): here all its sites seem to be there at once.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from feddbn._version import __version__
from feddbn.errors import ProtocolError, StateError
from feddbn.federation.protocol.messages import NEVER, Exchange, Reply, Request, digest_of, encode_request
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.study_methods import StudyResult, study_method
from feddbn.federation.protocol.task import Federation, Sum, Task
from feddbn.runtime.deployed.asking import Line, ServerEvent, Tell
from feddbn.runtime.deployed.attendance import Roll
from feddbn.runtime.deployed.rehearsal import rehearse
from feddbn.runtime.deployed.replay import Replay
from feddbn.runtime.deployed.shared_heads import share_heads
from feddbn.runtime.deployed.store import JournalFile
from feddbn.runtime.deployed.sums import Turn, sums_for
from feddbn.runtime.noisy import noise_aware

__all__ = ["Coordinator", "run_study"]


class Coordinator:
    """A federation of sites that are reached through an exchange.

    Parameters
    ----------
    exchange
        Carries messages; gives each call its own timeout.
    study
        What is computed and by whom; its `attendance` rules drop-outs.
    run_id
        Names the run at every site and at the server; it outlives engine jobs.
    log
        The journal's place; what it was given is on disk when it returns.
    on_event
        Told about agreements, refusals, silent sites, sums.
    pause_s
        Between two attempts of the "wait" policy.
    opening_s
        How long the handshake waits at least, whatever the study's rules: sites may still be reading data.
    here
        The sites that the exchange can reach at all; the others are not waited for. None: all.
    """

    answered_tasks: frozenset[str] | None = None

    def __init__(
        self,
        exchange: Exchange,
        study: Study,
        run_id: str,
        log: JournalFile,
        on_event: Tell | None = None,
        pause_s: float = 0.2,
        opening_s: float = 30.0,
        here: Collection[str] | None = None,
    ) -> None:
        self._study = study
        self._away = frozenset() if here is None else frozenset(study.sites) - frozenset(here)
        self._opening_s = opening_s
        self._replay = Replay(log, study, run_id)
        self._line = Line(exchange, run_id, on_event or (lambda event: None), pause_s)
        self._roll = Roll(study.attendance)
        self._sums = sums_for(study, self._line, self._roll)

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the study's sites, sorted, whether they are present or not."""
        return tuple(sorted(self._study.sites))

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the study's variables."""
        return self._study.variables

    @property
    def n_recorded(self) -> int:
        """How many sums the journal holds."""
        return self._replay.n_recorded

    def state_of(self, site: str) -> None:
        """Return None: a deployed site's state is its own business."""

    def hello(self) -> tuple[str, ...]:
        """Agree on the study with every site before any task; return who agreed.

        A refusal excludes the site for this segment, or stops the run if the study insists on every site.
        """
        line, roll = self._line, self._roll
        meta = {"study": self._study.to_json(), "version": __version__}
        message = encode_request(Request("hello", line.run_id, meta=meta))
        present: dict[str, Reply] = {}
        # A site reads its data before its first reply, which may take longer than a round: that is no absence.
        opening_s = 0.0 if self._study.attendance.collects else self._opening_s
        for _ in line.attempts(max(roll.patience_s, opening_s)):
            waiting = [site for site in self.sites if site not in present and site not in line.refused]
            present.update(line.ask(dict.fromkeys(waiting, message), "hello", NEVER))
            missing = set(self.sites) - present.keys()
            if missing <= line.refused.keys() | self._away or (roll.insists and line.refused):
                break
        agreed = tuple(sorted(present))
        roll.require(agreed, self.sites, "the handshake", line.reasons)
        line.tell(ServerEvent("agreed", sites=agreed))
        share_heads(line, present)
        return agreed

    def sum(self, task: Task) -> Sum:
        """Return the sum for `task`: from the journal if it is there, else from the sites."""
        digest = digest_of(task)
        seq, counted = self._replay.seq, dict(self._replay.counted)
        recorded = self._replay.recall(digest)
        if recorded is None:
            return self._replay.record(digest, self._make(task, digest))
        if self._study.attendance.collects and self._study.privacy.secure_aggregation:
            # Its keys hide the sums to come, too. All it takes is on record, and no site is asked.
            again = self._sums(Turn(task, digest, seq, self.sites, counted))
            if again.contributors != recorded.contributors or not np.array_equal(again.value, recorded.value):
                raise StateError(
                    f"what sites sent for sum {seq} does not give the sum in the journal; begin a new run."
                )
        return recorded

    def _make(self, task: Task, digest: str) -> Sum:
        seq, start = self._replay.seq, time.monotonic()
        asked = self.sites if task.participants is None else tuple(sorted(task.participants))
        unknown = [name for name in asked if name not in self.sites]
        if unknown:
            raise ProtocolError(
                f"task {task.name!r} names the site {unknown[0]!r}, which is not in this federation."
            )
        answer = self._sums(Turn(task, digest, seq, asked, self._replay.counted))
        self._roll.require(answer.contributors, asked, f"task {seq} ({task.name!r})", self._line.reasons)
        seconds = time.monotonic() - start
        here = answer.contributors
        missing = tuple(site for site in asked if site not in here)
        self._line.tell(
            ServerEvent("sum", seq, task.name, sites=here, missing=missing, note=task.note, seconds=seconds)
        )
        return answer

    def finish(self, result: StudyResult) -> tuple[str, ...]:
        """Send the shared result to every site, each of which keeps its personal one; return who has it."""
        line, meta = self._line, {"summary": dict(result.summary)}
        counted = self._replay.counted
        messages = {
            site: encode_request(
                Request("finish", line.run_id, NEVER, counted.get(site, NEVER), meta, result.arrays)
            )
            for site in self.sites
            if site not in line.refused
        }
        received = line.ask(messages, "finish", NEVER)
        share_heads(line, received)
        return tuple(sorted(received))


def run_study(
    coordinator: Coordinator, study: Study, kept: Mapping[str, Any] | None = None
) -> tuple[StudyResult, tuple[str, ...]]:
    """Return the result of a study and who received it: handshake, program, personal results.

    `kept` is what the run that it updates has kept.
    """
    method = study_method(study.method)
    rehearse(study)
    federation: Federation = coordinator
    if study.privacy.epsilon is not None:
        federation = noise_aware(coordinator, study)
    coordinator.hello()
    result = method.run_study(study, federation, kept)
    return result, coordinator.finish(result)
