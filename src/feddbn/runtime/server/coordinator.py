"""Sums over any exchange: the server's half that every distributed engine shares.

Theory of operation
-------------------
`Coordinator` is a `Federation`. For each task it first looks into the journal (`Replay`): a recorded sum is returned
after its task digest was checked (resume). Otherwise it has the sum made (`PlainSums`, `masked_sums`), holds who is in it
against the study's rule (`Roll`), writes it to the journal and only then returns it. The fence at the sites
(federation/protocol/endpoint.py) makes asking again (`Line`) harmless.

A silent site is a drop-out. "wait" asks again until `max_wait_s`, also a site whose refusal time may cure
(`asking.PASSING`: its owner has not decided yet, its disk is full); any other refusal ends the run at once. "continue" goes
on with at least `min_sites`, "abort" stops. "collect" is the exchange's business (`collecting`): here all its sites seem to
be there at once.

A site that was silent twice in a row is asked only in the 2nd, 4th, 8th, ... round after, so that a dead one does not
cost a full timeout each round; if the sites left are too few, everybody is asked.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np

from feddbn._version import __version__
from feddbn.core.arrays import FloatArray
from feddbn.errors import FeddbnError, ProtocolError, StateError
from feddbn.federation.protocol.messages import (
    NEVER,
    Exchange,
    Header,
    Journal,
    Reply,
    Request,
    digest_of,
    encode_request,
    task_request,
)
from feddbn.federation.protocol.study import Attendance, Study, StudyResult
from feddbn.federation.protocol.task import Sum, Task
from feddbn.privacy.policy import DEFAULT_MIN_SITES
from feddbn.privacy.secagg import odd_ones
from feddbn.runtime.server.asking import Line, ServerEvent, Tell, Turn, too_few
from feddbn.runtime.store import RunJournal

MAX_BACKOFF = 16


class Roll:
    """The attendance of a run so far and the rule it is held against."""

    def __init__(self, rules: Attendance) -> None:
        self._rules = rules
        self._misses: Counter[str] = Counter()
        self._resting: dict[str, int] = {}

    @property
    def insists(self) -> bool:
        """Whether every site must be there."""
        return self._rules.when_missing != "continue" and self._rules.enough is None

    @property
    def patience_s(self) -> float:
        """How long a sum in the clear is asked for again."""
        return self._rules.max_wait_s if self._rules.when_missing == "wait" else 0.0

    def final(self, line: Line) -> set[str]:
        """Return the sites whose refusal ends what is asked: not those that a study which waits may wait for."""
        return set(line.refused) - (line.passing if self.patience_s > 0 else set())

    def awake(self, participants: Sequence[str], seq: int) -> list[str]:
        """Return who is asked in round `seq`."""
        awake = [site for site in participants if self._resting.get(site, -1) <= seq]
        return awake if len(awake) >= self._needed(participants) else list(participants)

    def note(self, present: Iterable[str], silent: Iterable[str], seq: int) -> None:
        """Take down who answered in round `seq` and who did not."""
        for site in present:
            self._misses.pop(site, None)
            self._resting.pop(site, None)
        for site in silent:
            self._misses[site] += 1
            if self._misses[site] > 1:
                self._resting[site] = seq + 1 + min(2 ** (self._misses[site] - 1), MAX_BACKOFF)

    def require(
        self, present: Sequence[str], asked: Sequence[str], what: str, reasons: Mapping[str, FeddbnError]
    ) -> None:
        """Raise `NotEnoughSites` with the missing sites' own reasons if the rule is not met."""
        needed = self._needed(asked)
        if len(present) >= max(needed, 1):
            return
        missing = [site for site in asked if site not in present]
        sentence = f"{what} has {len(present)} of the {needed} sites it needs; missing: {', '.join(missing)}."
        raise too_few(sentence, missing, reasons, "too-few-sites")

    def _needed(self, asked: Sequence[str]) -> int:
        fewest = self._rules.min_sites if self._rules.enough is None else self._rules.enough
        return len(asked) if self.insists else min(fewest, len(asked))


class Replay:
    """The sums of a run in its journal, and how far its program has come.

    `seq` is the number of the next sum, and `counted` has, for each site, the number of the last task whose answer by it is
    in a sum so far.
    """

    def __init__(self, log: RunJournal, study: Study, run_id: str) -> None:
        self._log = log
        header = Header(run_id, study.to_json(), study.digest, __version__, tuple(sorted(study.sites)))
        stored = log.read()
        if stored is None:
            stored = Journal(header)
            log.write(stored.header_bytes())
        self._journal = stored
        self._check(header)
        self._run_id = run_id
        self.seq = 0
        self.counted: dict[str, int] = {}

    def record(self, digest: str, answer: Sum) -> Sum:
        """Write the answer to the next task down and return it."""
        self._log.write(self._journal.add(digest, answer))
        return self._count(answer)

    @property
    def n_recorded(self) -> int:
        """How many sums there are."""
        return len(self._journal.entries)

    def recall(self, digest: str) -> Sum | None:
        """Return the recorded answer to the next task, None where the record ends."""
        if self.seq == self.n_recorded:
            return None
        entry = self._journal.entries[self.seq]
        if entry.digest != digest:
            raise StateError(
                f"run {self._run_id!r} cannot be resumed: sum {self.seq} in its journal answers another "
                "task than the program asked now; use the version, machine type and study it began with.",
                code="other-task",
            )
        return self._count(entry.answer)

    def _count(self, answer: Sum) -> Sum:
        self.counted.update(dict.fromkeys(answer.contributors, self.seq))
        self.seq += 1
        return answer

    def _check(self, now: Header) -> None:
        then = self._journal.header
        if (then.run_id, then.study_digest) != (now.run_id, now.study_digest):
            raise StateError(
                f"the journal found for run {now.run_id!r} belongs to another run or study.", code="other-run"
            )
        if then.version != now.version:
            raise StateError(
                f"run {now.run_id!r} was begun with feddbn {then.version} "
                f"and cannot be resumed with {now.version}.",
                code="other-version",
            )


class PlainSums:
    """Asks for the sites' vectors and adds them in sorted site order."""

    def __init__(self, line: Line, roll: Roll, max_norm: float | None = None) -> None:
        self._line = line
        self._roll = roll
        self._max_norm = max_norm

    def __call__(self, turn: Turn) -> Sum:
        """Return the sum over the sites that answered before the study's patience ended."""
        line, vectors = self._line, dict[str, FloatArray]()
        pending = self._roll.awake(turn.participants, turn.seq)
        for attempt in line.attempts(self._roll.patience_s):
            messages = {
                site: encode_request(
                    task_request(turn.task, line.run_id, turn.seq, turn.after(site), attempt)
                )
                for site in pending
            }
            vectors.update(self._vectors(line.ask(messages, turn.task.name, turn.seq), turn))
            pending = [site for site in pending if site not in vectors]
            self._roll.note(vectors, pending, turn.seq)
            if not pending or self._roll.final(line) & set(pending):
                break
        vectors = self._same_shape(vectors, turn)
        names = tuple(sorted(vectors))
        total = np.zeros_like(vectors[names[0]]) if names else np.zeros(0)
        for name in names:
            total += vectors[name]
        return Sum(total, names)

    def _vectors(self, replies: Mapping[str, Reply], turn: Turn) -> dict[str, FloatArray]:
        told = {
            site: self._checked(site, reply, reply.arrays.get("vector"), turn)
            for site, reply in replies.items()
        }
        return {site: vector for site, vector in told.items() if vector is not None}

    def _checked(self, site: str, reply: Reply, vector: np.ndarray | None, turn: Turn) -> FloatArray | None:
        """Return what a site sent, or None if it cannot be used."""
        if reply.meta.get("digest") != turn.digest or vector is None or not np.all(np.isfinite(vector)):
            self._refuse(site, f"site {site!r} sent no finite vector for this task.", turn, "not-finite")
        elif self._max_norm is not None and not np.linalg.norm(vector) <= self._max_norm:
            said = f"site {site!r} sent a vector longer than the study's max_norm = {self._max_norm:g}."
            self._refuse(site, said, turn, "too-long")
        else:
            return np.asarray(vector, dtype=np.float64)
        return None

    def _same_shape(self, vectors: dict[str, FloatArray], turn: Turn) -> dict[str, FloatArray]:
        """Keep the vectors of the shape that most have; a site whose shape differs is not counted."""
        odd = odd_ones({site: vector.shape for site, vector in vectors.items()}, "shape")
        for site, shape, usual in odd:
            said = f"site {site!r} answered with shape {shape}, most with {usual}."
            self._refuse(site, said, turn, "other-shape")
        return {site: vector for site, vector in vectors.items() if site not in {one for one, _, _ in odd}}

    def _refuse(self, site: str, sentence: str, turn: Turn, code: str) -> None:
        self._line.note_odd(site, sentence, turn.task.name, turn.seq, code)


class Coordinator:
    """A federation of sites that are reached through an exchange, which gives each call its own timeout.

    `log` has on disk what it was given when it returns. `on_event` hears of agreements, refusals, silent sites and sums. The
    handshake waits `opening_s` at least, whatever the study's rules: sites may still be reading data. Sites that are not in
    `here` cannot be reached at all and are not waited for. `rules` stand in for the study's attendance.
    `missing` has for each sum so far, also of an earlier segment, the sites that were asked and are not in it.
    """

    answered_tasks: frozenset[str] | None = None

    def __init__(
        self,
        exchange: Exchange,
        study: Study,
        run_id: str,
        log: RunJournal,
        on_event: Tell | None = None,
        pause_s: float = 0.2,
        opening_s: float = 30.0,
        here: Collection[str] | None = None,
        rules: Attendance | None = None,
    ) -> None:
        self._study = study
        self._collects = (rules or study.attendance).collects
        self._away = frozenset() if here is None else frozenset(study.sites) - frozenset(here)
        self._opening_s = opening_s
        self._replay = Replay(log, study, run_id)
        self._line = Line(exchange, run_id, on_event or (lambda event: None), pause_s)
        self._roll = Roll(rules or study.attendance)
        # Makes the sum for a task; whether the sites in it are enough is said here.
        self._sums: Callable[[Turn], Sum]
        self.missing: list[tuple[str, ...]] = []
        if study.privacy.secure_aggregation:
            # Masks need a package that plain studies do without.
            from feddbn.runtime.server.masked_sums import MaskedSums

            self._sums = MaskedSums(study, self._line, rules or study.attendance)
        else:
            self._sums = PlainSums(self._line, self._roll, study.privacy.max_norm)

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the study's sites, sorted, whether they are present or not."""
        return tuple(sorted(self._study.sites))

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the study's variables."""
        return self._study.variables

    @property
    def fewest_sites(self) -> int | None:
        """How many sites every number of a sum must rest on; None where noise hides them."""
        privacy = self._study.privacy
        if privacy.epsilon is not None:
            return None
        return min(max(privacy.min_sites, DEFAULT_MIN_SITES), len(self._study.sites))

    @property
    def logs(self) -> Mapping[str, str]:
        """Site -> the hash of the last line of its log, as its last answer said."""
        return self._line.logs

    @property
    def n_recorded(self) -> int:
        """How many sums the journal holds."""
        return self._replay.n_recorded

    def state_of(self, site: str) -> None:
        """Return None: a deployed site's state is its own business."""

    def hello(self) -> tuple[str, ...]:
        """Agree on the study with every site before any task; return who agreed.

        A refusal excludes the site for this segment, or stops the run if the study insists on every site; one that time may
        cure is waited for if the study waits.
        """
        line, roll = self._line, self._roll
        meta = {"study": self._study.to_json(), "version": __version__}
        message = encode_request(Request("hello", line.run_id, meta=meta))
        present: dict[str, Reply] = {}
        # A site reads its data before its first reply, which may take longer than a round: that is no absence.
        opening_s = 0.0 if self._collects else self._opening_s
        for _ in line.attempts(max(roll.patience_s, opening_s)):
            waiting = set(self.sites) - present.keys() - roll.final(line)
            present.update(line.ask(dict.fromkeys(sorted(waiting), message), "hello", NEVER))
            missing, final = set(self.sites) - present.keys(), roll.final(line)
            if missing <= final | self._away or (roll.insists and final):
                break
        agreed = tuple(sorted(present))
        roll.require(agreed, self.sites, "the handshake", line.reasons)
        line.tell(ServerEvent("agreed", sites=agreed))
        return agreed

    def sum(self, task: Task) -> Sum:
        """Return the sum for `task`: from the journal if it is there, else from the sites."""
        answer = self._sum(task)
        asked = self.sites if task.participants is None else sorted(task.participants)
        self.missing.append(tuple(site for site in asked if site not in answer.contributors))
        return answer

    def _sum(self, task: Task) -> Sum:
        digest = digest_of(task)
        seq, counted = self._replay.seq, dict(self._replay.counted)
        recorded = self._replay.recall(digest)
        if recorded is None:
            return self._replay.record(digest, self._make(task, digest))
        if self._collects and self._study.privacy.secure_aggregation:
            # Its keys hide the sums to come, too. All it takes is on record, and no site is asked.
            again = self._sums(Turn(task, digest, seq, self.sites, counted))
            if again.contributors != recorded.contributors or not np.array_equal(again.value, recorded.value):
                raise StateError(
                    f"what sites sent for sum {seq} does not give the sum in the journal; begin a new run.",
                    code="other-sum",
                )
        return recorded

    def _make(self, task: Task, digest: str) -> Sum:
        seq, start = self._replay.seq, time.monotonic()
        asked = self.sites if task.participants is None else tuple(sorted(task.participants))
        unknown = [name for name in asked if name not in self.sites]
        if unknown:
            raise ProtocolError(
                f"task {task.name!r} names the site {unknown[0]!r}, which is not in this federation.",
                code="unknown-site",
            )
        answer = self._sums(Turn(task, digest, seq, asked, self._replay.counted))
        self._accept(task, answer, asked, seq, start)
        return answer

    def _accept(self, task: Task, answer: Sum, asked: tuple[str, ...], seq: int, start: float) -> None:
        """Hold a sum against the rule on missing sites, and tell of it."""
        self._roll.require(answer.contributors, asked, f"task {seq} ({task.name!r})", self._line.reasons)
        seconds = time.monotonic() - start
        here = answer.contributors
        missing = tuple(site for site in asked if site not in here)
        self._line.tell(
            ServerEvent("sum", seq, task.name, sites=here, missing=missing, note=task.note, seconds=seconds)
        )

    def finish(self, result: StudyResult) -> tuple[str, ...]:
        """Send the shared result to every site, each of which keeps its personal one; return who has it."""
        line, meta = self._line, {"summary": dict(result.summary)}
        counted = self._replay.counted
        messages = {
            site: encode_request(
                Request("finish", line.run_id, NEVER, counted.get(site, NEVER), meta, result.arrays)
            )
            for site in self.sites
            # Who refused one question later on, which a program can go without, has a right to the result.
            if site not in line.refused or site in counted
        }
        received: dict[str, Reply] = {}
        # A site that is silent just now has its personal result to make, and secrets of masks to forget. Who was missing
        # from the last sum is not waited for.
        awaited = counted.keys() & messages.keys() - self._away - set(
            self.missing[-1] if self.missing else ()
        )
        for _ in line.attempts(0.0 if self._collects else max(self._roll.patience_s, self._opening_s)):
            received.update(
                line.ask({one: messages[one] for one in messages if one not in received}, "finish", NEVER)
            )
            if not awaited - received.keys() - line.refused.keys():
                break
        return tuple(sorted(received))
