"""Sums over any exchange: the server's half that every distributed engine shares.

Theory of operation
-------------------
`Coordinator` is a `Federation`. For each task it first looks into the journal: a recorded sum is returned
after its task digest was checked (resume). Otherwise it asks the sites, adds the answers in sorted site
order, writes the sum to the journal and only then returns it. The fence at the sites (federation/protocol/fence.py)
makes asking again harmless.

A silent site is a drop-out. "wait" asks again until `max_wait_s`, "continue" goes on with at least
`min_sites`, "abort" stops. A site that was silent twice in a row is then asked only in the 2nd, 4th, 8th, ...
round after, so that a dead one does not cost a full timeout each round; if the sites left are too few,
everybody is asked.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from feddbn._version import __version__
from feddbn.core.arrays import FloatArray
from feddbn.errors import (
    AggregationError,
    FederationError,
    NotEnoughSites,
    PrivacyError,
    ProtocolError,
    SiteRefused,
    StateError,
)
from feddbn.federation.protocol.exchange import Exchange
from feddbn.federation.protocol.journal import Header, Journal
from feddbn.federation.protocol.messages import (
    Reply,
    Request,
    digest_of,
    encode_request,
    read_reply,
    task_request,
)
from feddbn.federation.protocol.study import Study, StudyResult, study_method
from feddbn.federation.protocol.task import Federation, Sum, Task

__all__ = ["Coordinator", "Log", "MemoryJournal", "ServerEvent", "run_study"]

MAX_BACKOFF = 16
SAME_ANSWER = 5


class Log(Protocol):
    """Where the journal is kept; `write` is durable when it returns."""

    def read(self) -> Journal | None:
        """Return the journal, or None for a new run."""
        ...

    def write(self, record: bytes) -> None:
        """Append one record."""
        ...


@dataclass(frozen=True)
class ServerEvent:
    """What happened at the server, for its log and for progress."""

    what: str
    seq: int = -1
    task: str = ""
    site: str = ""
    sentence: str = ""
    sites: tuple[str, ...] = ()
    note: Mapping[str, float] | None = None
    seconds: float = 0.0


class MemoryJournal:
    """A journal that lives as long as this object."""

    def __init__(self) -> None:
        self.stored = b""

    def read(self) -> Journal | None:
        """Return what was written."""
        from feddbn.federation.protocol.journal import read_journal

        journal, length = read_journal(self.stored)
        self.stored = self.stored[:length]
        return journal

    def write(self, record: bytes) -> None:
        """Append."""
        self.stored += record


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
        The journal's place.
    on_event
        Told about agreements, refusals, silent sites, sums.
    pause_s
        Between two attempts of the "wait" policy.
    opening_s
        How long the handshake waits at least, whatever the study's rules: sites may still be reading data.
    """

    def __init__(
        self,
        exchange: Exchange,
        study: Study,
        run_id: str,
        log: Log,
        on_event: Callable[[ServerEvent], None] | None = None,
        pause_s: float = 0.2,
        opening_s: float = 30.0,
    ) -> None:
        self._exchange = exchange
        self._study = study
        self._run_id = run_id
        self._log = log
        self._on_event = on_event or (lambda event: None)
        self._pause_s = pause_s
        self._opening_s = opening_s
        self._seq = 0
        self._misses: Counter[str] = Counter()
        self._resting: dict[str, int] = {}
        self._refused: dict[str, str] = {}
        self._said: dict[str, str] = {}
        stored = log.read()
        if stored is None:
            header = Header(run_id, study.to_json(), study.digest, __version__, tuple(sorted(study.sites)))
            self._journal = Journal(header)
            log.write(self._journal.header_bytes())
        else:
            self._journal = stored
            self._check_header()
        self._counted: dict[str, int] = {}
        self._secure: tuple[Any, Any] | None = None

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the study's sites, sorted, whether they are present or not."""
        return self._journal.header.sites

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the study's variables."""
        return self._study.variables

    @property
    def answered_tasks(self) -> frozenset[str] | None:
        """Every task that the sites' policies allow."""
        return None

    def state_of(self, site: str) -> None:
        """Return None: a deployed site's state is its own business."""

    @property
    def n_recorded(self) -> int:
        """How many sums the journal holds."""
        return len(self._journal.entries)

    def hello(self) -> tuple[str, ...]:
        """Agree on the study with every site before any task; return who agreed.

        A refusal excludes the site for this segment, or stops the run if the study insists on every site.
        """
        meta = {"study": self._study.to_json(), "version": __version__}
        message = encode_request(Request("hello", self._run_id, meta=meta))
        present: list[str] = []
        waiting = list(self.sites)
        start = time.monotonic()
        rules = self._study.attendance
        insists = rules.when_missing != "continue"
        # A site reads its data before its first reply, which may take longer than a round: that is no absence.
        patience = max(rules.max_wait_s if rules.when_missing == "wait" else 0.0, self._opening_s)
        while waiting:
            for site, reply in self._ask(dict.fromkeys(waiting, message), "hello", -1).items():
                if isinstance(reply, Reply):
                    present.append(site)
            waiting = [site for site in waiting if site not in present and site not in self._refused]
            if not waiting or (insists and self._refused) or time.monotonic() - start >= patience:
                break
            time.sleep(self._pause_s)
        self._require(tuple(sorted(present)), self.sites, "the handshake")
        self._on_event(ServerEvent("agreed", sites=tuple(sorted(present))))
        return tuple(sorted(present))

    def sum(self, task: Task) -> Sum:
        """Return the sum for `task`: from the journal if it is there, else from the sites."""
        digest = digest_of(task)
        seq = self._seq
        if seq < len(self._journal.entries):
            entry = self._journal.entries[seq]
            if entry.digest != digest:
                raise StateError(
                    f"run {self._run_id!r} cannot be resumed: sum {seq} in its journal answers another task "
                    f"than the program asked now; use the version, machine type and study it began with."
                )
            answer = entry.answer
        else:
            answer = self._collect(task, seq)
            self._log.write(self._journal.add(digest, answer))
        self._counted.update(dict.fromkeys(answer.contributors, seq))
        self._seq += 1
        return answer

    def finish(self, result: StudyResult) -> tuple[str, ...]:
        """Send the shared result to every site, each of which keeps its personal one; return who has it."""
        done: list[str] = []
        messages = {}
        for site in self.sites:
            after = self._counted.get(site, -1)
            meta = {"summary": dict(result.summary)}
            if site not in self._refused:
                messages[site] = encode_request(
                    Request("finish", self._run_id, -1, after, meta, result.arrays)
                )
        for site, reply in self._ask(messages, "finish", -1).items():
            if isinstance(reply, Reply):
                done.append(site)
        return tuple(sorted(done))

    def _check_header(self) -> None:
        header = self._journal.header
        if header.run_id != self._run_id or header.study_digest != self._study.digest:
            raise StateError(f"the journal found for run {self._run_id!r} belongs to another run or study.")
        if header.version != __version__:
            raise StateError(
                f"run {self._run_id!r} was begun with feddbn {header.version} "
                f"and cannot be resumed with {__version__}."
            )

    def _collect(self, task: Task, seq: int) -> Sum:
        rules = self._study.attendance
        participants = self.sites if task.participants is None else tuple(sorted(task.participants))
        unknown = [name for name in participants if name not in self.sites]
        if unknown:
            raise ProtocolError(
                f"task {task.name!r} names the site {unknown[0]!r}, which is not in this federation."
            )
        if self._study.privacy.secure_aggregation:
            return self._collect_masked(task, seq, participants)
        start = time.monotonic()
        vectors: dict[str, FloatArray] = {}
        pending = self._awake(participants, seq)
        attempt = 0
        heard: Counter[tuple[str, str]] = Counter()
        while pending:
            self._said = {}
            messages = {
                site: encode_request(
                    task_request(task, self._run_id, seq, self._counted.get(site, -1), attempt)
                )
                for site in pending
            }
            vectors.update(self._vectors(self._ask(messages, task.name, seq), digest_of(task)))
            pending = [site for site in pending if site not in vectors]
            self._note_attendance(vectors, pending, seq)
            insists = any(site in self._refused for site in pending) or self._is_in_vain(heard)
            if rules.when_missing != "wait" or not pending or insists:
                break
            if time.monotonic() - start >= rules.max_wait_s:
                break
            attempt += 1
            time.sleep(self._pause_s)
        vectors = self._same_shape(vectors, task, seq)
        names = tuple(sorted(vectors))
        self._require(names, participants, f"task {seq} ({task.name!r})")
        total = np.zeros_like(vectors[names[0]])
        total += vectors[names[0]]
        for name in names[1:]:
            total += vectors[name]
        seconds = time.monotonic() - start
        self._on_event(ServerEvent("sum", seq, task.name, sites=names, note=task.note, seconds=seconds))
        return Sum(total, names)

    def _collect_masked(self, task: Task, seq: int, participants: tuple[str, ...]) -> Sum:
        """Return the sum under secure aggregation; each attempt uses new masks."""
        from feddbn.federation.programs.private_moments import guaranteed_sites
        from feddbn.runtime.deployed.masking import EnvelopeCourier, Incomplete
        from feddbn.runtime.simulated.secure import SecureFederation

        rules = self._study.attendance
        start = time.monotonic()
        if self._secure is None:
            courier = EnvelopeCourier(
                self.sites, self._run_id, lambda m: self._ask(m, "secagg", self._seq), self._note_refusal
            )
            privacy = self._study.privacy
            # Noise is spread over the sites the threshold guarantees, so that must not change with the roster.
            threshold = None if privacy.epsilon is None else guaranteed_sites(self._study)
            self._secure = (
                courier,
                SecureFederation(courier, self._run_id, privacy.min_sites, threshold),
            )
        courier, secure = self._secure
        new_keys = False
        heard: Counter[tuple[str, str]] = Counter()
        while True:
            self._said = {}
            courier.begin(seq, self._counted, participants, rules.when_missing == "continue")
            try:
                if new_keys:
                    # A new epoch asks everybody: who came back is in it.
                    secure.agree_on_keys()
                answer = secure.sum(task)
                break
            except (Incomplete, AggregationError) as error:
                new_keys = True
                waited = time.monotonic() - start
                if rules.when_missing == "abort" or waited >= rules.max_wait_s or self._is_in_vain(heard):
                    reasons = " ".join(self._said[site] for site in sorted(self._said))
                    raise NotEnoughSites(f"task {seq} ({task.name!r}): {error} {reasons}".rstrip()) from None
                time.sleep(self._pause_s)
        self._require(answer.contributors, participants, f"task {seq} ({task.name!r})")
        seconds = time.monotonic() - start
        names = answer.contributors
        self._on_event(ServerEvent("sum", seq, task.name, sites=names, note=task.note, seconds=seconds))
        return answer

    def _is_in_vain(self, heard: Counter[tuple[str, str]]) -> bool:
        """Whether a site refused the same task with the same sentence again and again: no accident of the network."""
        heard.update((site, said) for site, said in self._said.items() if "refused:" in said)
        return any(count >= SAME_ANSWER for count in heard.values())

    def _note_refusal(self, site: str, error: Exception) -> None:
        self._said[site] = str(error)
        self._on_event(ServerEvent("refused", self._seq, "secagg", site, str(error)))

    def _ask(self, messages: Mapping[str, bytes], what: str, seq: int) -> dict[str, Reply | Exception]:
        """Send and read the replies; a damaged, stale or foreign reply counts as none."""
        answers: dict[str, Reply | Exception] = {}
        for site, raw in sorted(self._exchange(messages).items()):
            try:
                reply = read_reply(raw)
                if site not in messages or (reply.site, reply.run_id, reply.seq) != (site, self._run_id, seq):
                    raise ProtocolError(f"the reply that arrived for site {site!r} answers another question.")
                answers[site] = reply
                self._refused.pop(site, None)
            except (FederationError, PrivacyError) as error:
                answers[site] = error
                self._said[site] = str(error)
                if isinstance(error, SiteRefused | StateError | PrivacyError):
                    self._refused[site] = str(error)
                self._on_event(ServerEvent("refused", seq, what, site, str(error)))
        for site in sorted(set(messages) - set(answers)):
            self._on_event(ServerEvent("silent", seq, what, site, f"site {site!r} did not answer in time."))
        return answers

    def _vectors(self, answers: Mapping[str, Reply | Exception], digest: str) -> dict[str, FloatArray]:
        out: dict[str, FloatArray] = {}
        for site, reply in answers.items():
            if not isinstance(reply, Reply):
                continue
            vector = reply.arrays.get("vector")
            if reply.meta.get("digest") != digest or vector is None or not np.all(np.isfinite(vector)):
                sentence = f"site {site!r} sent no finite vector for this task."
                self._on_event(ServerEvent("refused", reply.seq, reply.kind, site, sentence))
                continue
            out[site] = np.asarray(vector, dtype=np.float64)
        return out

    def _same_shape(self, vectors: dict[str, FloatArray], task: Task, seq: int) -> dict[str, FloatArray]:
        """Keep the vectors of the most common shape; a site whose shape differs is not counted."""
        shapes = Counter(vector.shape for vector in vectors.values())
        if len(shapes) <= 1:
            return vectors
        common = shapes.most_common(1)[0][0]
        for site, vector in sorted(vectors.items()):
            if vector.shape != common:
                sentence = f"site {site!r} answered with shape {vector.shape}, most with {common}."
                self._on_event(ServerEvent("refused", seq, task.name, site, sentence))
        return {site: vector for site, vector in vectors.items() if vector.shape == common}

    def _require(self, present: tuple[str, ...], asked: tuple[str, ...], what: str) -> None:
        rules = self._study.attendance
        missing = [site for site in asked if site not in present]
        needed = min(rules.min_sites, len(asked)) if rules.when_missing == "continue" else len(asked)
        if len(present) >= max(needed, 1):
            return
        said = {**self._refused, **self._said}
        reasons = " ".join(said[site] for site in missing if site in said)
        sentence = f"{what} has {len(present)} of the {needed} sites it needs; missing: {', '.join(missing)}."
        raise NotEnoughSites(f"{sentence} {reasons}".rstrip())

    def _awake(self, participants: tuple[str, ...], seq: int) -> list[str]:
        awake = [site for site in participants if self._resting.get(site, -1) <= seq]
        rules = self._study.attendance
        few = rules.when_missing != "continue" or len(awake) < min(rules.min_sites, len(participants))
        return list(participants) if few else awake

    def _note_attendance(self, present: Mapping[str, object], silent: list[str], seq: int) -> None:
        for site in present:
            self._misses.pop(site, None)
            self._resting.pop(site, None)
        for site in silent:
            self._misses[site] += 1
            if self._misses[site] > 1:
                self._resting[site] = seq + 1 + min(2 ** (self._misses[site] - 1), MAX_BACKOFF)


def run_study(coordinator: Coordinator, study: Study) -> tuple[StudyResult, tuple[str, ...]]:
    """Return the result of a study and who received it: handshake, program, personal results."""
    method = study_method(study.method)
    method.check(study.parameters)
    federation: Federation = coordinator
    if study.privacy.epsilon is not None:
        from feddbn.runtime.simulated.private import noise_aware

        federation = noise_aware(coordinator, study)
    coordinator.hello()
    result = method.run(study.parameters, federation)
    return result, coordinator.finish(result)
