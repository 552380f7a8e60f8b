"""The site's end of the line: bytes in, bytes out, no sockets and no files.

Rules of this file
------------------
- One message at a time; a refused message changes nothing.
- The handshake comes first: version, variables, lags, sites and the site's own checks, before any data
  statistic.
- A task passes the fence (`decide`); its new state is stored before its answer leaves.
- Errors leave as one sentence. A traceback or a data value never does; what may depend on data or on the owner's rules
  leaves as one and the same sentence, and the owner is told why.
- Only the server may call: engines that let sites call each other must pass who calls.
"""

from __future__ import annotations

import enum
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from feddbn._version import __version__
from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import SiteData
from feddbn.core.kinds import Kind
from feddbn.data.site import with_columns
from feddbn.errors import AggregationError, FeddbnError, ProtocolError, SiteRefused, StateError
from feddbn.federation.protocol.messages import (
    LONGEST,
    MAX_MESSAGE_BYTES,
    NEVER,
    WITHHELD,
    RecordStore,
    Reply,
    Request,
    SiteRecord,
    Snapshot,
    code_of,
    digest_of,
    encode_reply,
    read_request,
    refusal,
    refused_in,
    sentence_of,
    task_from,
)
from feddbn.federation.protocol.site import PLAIN, Channel, Guard, Site, notes_of
from feddbn.federation.protocol.study import Study, StudyResult, personal_result, study_from_json
from feddbn.federation.protocol.task import Task
from feddbn.words import say

# What a site and a server agree on before any task: version, site, variables, units; names only, no data.


def agree(study: Study, site: str, variables: Sequence[str], version: str) -> None:
    """Refuse a study this site cannot take part in; reads names only, no data.

    Raises
    ------
    SiteRefused
        If version, site or variables do not fit.
    """
    if version != __version__:
        raise SiteRefused(
            f"the server runs feddbn {version}, this site {__version__}; install the same version on both.",
            code="other-version",
        )
    if site not in study.sites:
        raise SiteRefused(f"the study {study.name!r} does not name the site {site!r}.", code="not-a-site")
    if study.n_lags is not None and study.n_lags < 0:
        raise SiteRefused(
            f"the study asks for n_lags = {study.n_lags}; it must be 0 or more.", code="bad-lags"
        )
    offered = frozenset(variables)
    missing = [name for name in study.variables if name not in offered]
    if missing:
        raise SiteRefused(
            f"the study {study.name!r} asks for variables that this site does not offer: {_first(missing)}; it has "
            f"{_first(variables)}. Add the columns to the site's data (or to `variables` in its settings), rename them, or "
            "leave them out of the study.",
            code="lacks-variables",
        )


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def chosen_variables(study: Study, variables: Sequence[str]) -> tuple[str, ...]:
    """Return the study's variables that a site has, in the study's order."""
    known = frozenset(variables)
    return tuple(name for name in study.variables if name in known)


def unit_differences(study: Study, units: Mapping[str, str]) -> list[str]:
    """Return "variable: study's unit, site's unit" where both say one and they are not the same text."""
    return [
        f"{name} in {unit} instead of {units[name]}"
        for name, unit in study.units.items()
        if name in units and units[name].strip() != unit.strip()
    ]


def unsaid_units(study: Study, units: Mapping[str, str], held: Sequence[str]) -> list[str]:
    """Return the variables of a site for which the study gives a unit and the site does not say one."""
    return [name for name in chosen_variables(study, held) if name in study.units and name not in units]


def kind_differences(study: Study, own: Mapping[str, Kind]) -> list[str]:
    """Return in words where a study and a site mean other kinds or levels of a variable.

    Both may leave open what numbers are; but levels with names have to be declared by both, in one order, since nothing in a
    sum tells which of them is the first.
    """
    found = []
    said = study.kinds
    for name in study.variables:
        theirs, ours = said.get(name), own.get(name)
        known = theirs or ours
        has_names = known is not None and known.levels != tuple(map(str, range(known.n_levels)))
        if theirs == ours or (None in (theirs, ours) and not has_names):
            continue
        found.append(f"{name}: {_in_words(theirs)} in the study, {_in_words(ours)} here")
    return found


def _in_words(kind: Kind | None) -> str:
    if kind is None:
        return "not declared"
    return f"{kind.name} ({', '.join(kind.levels)})" if kind.levels else kind.name


def announcement(study: Study, variables: Sequence[str]) -> str:
    """Return what a study will do here, the end of a line for the people at the site."""
    how = "secure aggregation" if study.privacy.secure_aggregation else "plain sums"
    noise = "" if study.privacy.epsilon is None else f", epsilon {study.privacy.epsilon:g}"
    return (
        f"method {' and '.join(study.methods)} ({study.goal}), "
        f"{len(variables)} variables ({', '.join(variables[:8])}"
        f"{', ...' if len(variables) > 8 else ''}), {len(study.sites)} sites, {how}{noise}."
    )


def greeted(request: Request | None) -> Study | None:
    """Return the study of a greeting, if it is one."""
    if request is None or request.kind != "hello":
        return None
    try:
        return study_from_json(str(request.meta.get("study")))
    except FeddbnError:
        return None


# The rule that a task changes a site at most once, whatever the network repeats, delays or reorders.
#
# Theory of operation
# -------------------
# The server numbers the tasks of a run 0, 1, 2, ... A site keeps two snapshots: `previous`, the last one the
# server has counted, and `current`, after the last task it executed. Each task says `after`: the number of the
# last task whose answer by this site was counted. Then
#
# - ``seq == current.seq`` and the same digest: the recorded answer is given again, nothing is executed;
# - ``seq > current.seq`` and ``after == current.seq``: execute from the current snapshot (the usual step);
# - ``seq > current.seq`` and ``after == previous.seq``: the last answer came too late to be counted; execute
#   from the previous snapshot, as if the uncounted task had never been asked;
# - anything else is refused and changes nothing.
#
# A server that resumes from its journal is at most one task behind a site, and asks the same question again: it
# gets the recorded answer. A site that was away for rounds still holds the snapshot the server means.
#
# Known weakness: a site that lost its state directory cannot take part in a running run again, except as a
# newcomer if its earlier answers were never counted.


class Step(enum.Enum):
    """What a site does with a task."""

    EXECUTE = "executed"
    REPEAT = "answered again from the record"
    STEP_BACK = "executed from the previous state; the last answer was not counted"


def decide(record: SiteRecord, seq: int, after: int, digest: str) -> Step:
    """Return what to do with task `seq`; one that fits no rule raises and nothing has changed."""
    current, previous = record.current.seq, record.previous.seq
    if seq < 0 or after < NEVER or after >= seq:
        raise ProtocolError(f"task {seq} after task {after} is not a possible order.", code="bad-order")
    if seq == current:
        if digest == record.digest:
            return Step.REPEAT
        raise ProtocolError(
            f"task {seq} was already answered and now has another content.", code="changed-task"
        )
    if seq <= current:
        raise ProtocolError(
            f"task {seq} is stale: this site has already answered task {current}.", code="stale-task"
        )
    if after == current:
        return Step.EXECUTE
    if after == previous:
        return Step.STEP_BACK
    raise StateError(
        f"the server counted this site's answer to task {after}, but the stored states are of tasks "
        f"{_name(previous)} and {_name(current)}; the site cannot go on with this run.",
        code="lost-state",
    )


def _name(seq: int) -> str:
    return "none" if seq == NEVER else str(seq)


StudyCheck = Callable[[Study], None]
Answer = tuple[Mapping[str, Any], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class SiteEvent:
    """What happened to one message, for the site's own log."""

    what: str
    run_id: str = ""
    seq: int = -1
    kind: str = ""
    task: str = ""
    sentence: str = ""
    code: str = ""
    error: Exception | None = field(default=None, repr=False)
    study: Study | None = field(default=None, repr=False)


class Masking(Protocol):
    """A site's end of secure aggregation."""

    def __call__(self, run_id: str, study: Study, site: SiteEndpoint) -> Callable[[bytes], bytes]:
        """Return what answers its messages in a run."""
        ...

    def forget(self, run_id: str) -> None:
        """Forget the keys of a run."""
        ...


class SiteEndpoint:
    """Answers the server's messages for one site.

    Parameters
    ----------
    site
        Data, guards and name.
    store
        Keeps the record of each run; a save is durable when it returns.
    checks
        The site's own conditions on a study (its policy); each raises `SiteRefused`.
    approve
        ``(run id, study, whether numbers leave)``: refuses a run of a study that the owner did not approve, and counts
        one whose numbers leave. Asked before all other checks, so that a study nobody approved learns nothing else, with
        every message, so that an approval can be taken back, and before each new answer.
    last_hash
        Returns the hash of the last line of the site's log, which each answer takes along; empty if there is none.
    guards
        Makes the guards around the answers of a run (policy, noise, audit); None keeps the site's own.
    masked
        Makes, for a run, the function that answers the messages of secure aggregation, and forgets its keys; None refuses
        studies that ask for it. In such a study no vector leaves in any other way.
    keep
        Called at the end with (run id, result, personal arrays): writes to the site's own disk.
    on_event
        Called for everything that happened.
    """

    def __init__(
        self,
        site: Site,
        store: RecordStore,
        *,
        checks: Sequence[StudyCheck] = (),
        approve: Callable[[str, Study, bool], None] | None = None,
        last_hash: Callable[[], str] = lambda: "",
        guards: Callable[[str, Study], Sequence[Guard]] | None = None,
        masked: Masking | None = None,
        keep: Callable[[str, StudyResult, Mapping[str, np.ndarray]], None] | None = None,
        on_event: Callable[[SiteEvent], None] | None = None,
        max_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self._site = site
        self._store = store
        self._checks = tuple(checks)
        self._approve = approve or (lambda run_id, study, begins: None)
        self._last_hash = last_hash
        self._handlers: dict[str, Callable[[Request, SiteRecord], Answer]] = {
            "hello": self._hello,
            "task": self._task,
            "secagg": self._secagg,
            "finish": self._finish,
        }
        self._guards = guards
        self._masked = masked
        self._whole = site.data
        self._masking: tuple[str, Callable[[bytes], bytes]] | None = None
        self._asked: tuple[Request, SiteRecord] | None = None
        self._keep = keep
        self._on_event = on_event
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._record: SiteRecord | None = None
        self._agreed: tuple[str, Study] | None = None

    @property
    def name(self) -> str:
        """Name of the site."""
        return self._site.name

    def handle(self, message: bytes, caller: str = "server") -> bytes:
        """Return the reply to one message; a refusal is a reply too, never an exception."""
        request: Request | None = None
        with self._lock:
            try:
                if caller != "server":
                    raise SiteRefused(
                        f"this site answers only its server, not {caller!r}.", code="not-the-server"
                    )
                request = read_request(message, self._max_bytes)
                handler = self._handlers.get(request.kind)
                if handler is None:
                    raise ProtocolError(
                        f"this site does not know the message kind {request.kind!r}.", code="unknown-message"
                    )
                record = self._open_record(request)
                if request.kind != "hello":
                    self._study(record)
                meta, arrays = handler(request, record)
                meta = {**meta, "log": self._last_hash()}
                return encode_reply(Reply(self.name, request.kind, request.run_id, request.seq, meta, arrays))
            except Exception as error:
                return self._refusal(request, error)

    def _refusal(self, request: Request | None, error: Exception) -> bytes:
        """Return the reply that says no; the owner is told why."""
        if str(error) != WITHHELD:
            # On a full disk nobody can be told either.
            with suppress(Exception):
                self._tell_why(request, error, study=greeted(request))
        return encode_reply(refusal(self.name, request, error))

    def _tell_why(self, request: Request | None, error: Exception, **more: Any) -> None:
        unexpected = None if isinstance(error, FeddbnError) else error
        said, code = sentence_of(error)[:LONGEST], code_of(error)
        self._tell("refused", request, sentence=said, code=code, error=unexpected, **more)

    @contextmanager
    def _withheld(self, request: Request | None, **more: Any) -> Iterator[None]:
        """Tell the owner why something was refused, and whoever asked only that it was."""
        try:
            yield
        except Exception as error:
            # A full disk tells nothing about data, and the same question may be asked again.
            if code_of(error) == "not-stored":
                raise
            self._tell_why(request, error, **more)
            raise SiteRefused(WITHHELD, code="withheld") from None

    def _tell(self, what: str, request: Request | None, **more: Any) -> None:
        if self._on_event is not None:
            # A log must not grow by what somebody else says at length.
            where = ("", -1, "") if request is None else (request.run_id, request.seq, request.kind[:LONGEST])
            self._on_event(SiteEvent(what, *where, **more))

    def _open_record(self, request: Request) -> SiteRecord:
        """Return the record of the request's run; only a hello may open a new one."""
        if self._record is None or self._record.run_id != request.run_id:
            self._record = self._store.load(request.run_id)
        if self._record is not None:
            return self._record
        if request.kind != "hello":
            raise StateError(
                f"run {request.run_id!r} is not known at this site; it must begin with a handshake.",
                code="unknown-run",
            )
        return SiteRecord(request.run_id, self.name, "", "")

    def _study(self, record: SiteRecord) -> Study:
        """Return the study of a known run; a restarted site checks it again: its policy may have changed."""
        if self._agreed is None or self._agreed[0] != record.run_id:
            study = study_from_json(record.study)
            self._agree(record.run_id, study, record.version)
            self._join(record.run_id, study)
            return study
        self._approve(*self._agreed, False)
        return self._agreed[1]

    def _join(self, run_id: str, study: Study) -> None:
        self._agreed = (run_id, study)
        if study.variables != tuple(self._site.data.variables):
            # Picked from what was read when the site was opened: a second reading could find other rows.
            # Another site as far as programs go: what it remembers is of other columns.
            self._site = self._site.with_data(with_columns(self._whole, study.variables))
        if self._guards is not None:
            # What a budget or the books have to say is the owner's business, too.
            with self._withheld(None):
                self._site.guards = tuple(self._guards(run_id, study))

    def _agree(self, run_id: str, study: Study, version: str) -> None:
        self._approve(run_id, study, False)
        agree(study, self.name, tuple(self._whole.variables), version)
        if study.privacy.secure_aggregation and self._masked is None:
            raise SiteRefused(
                "the study asks for secure aggregation, which is not set up at this site.", code="no-masking"
            )
        for check in self._checks:
            check(study)

    def _leave(self, record: SiteRecord) -> None:
        """Store an answer that leaves; a run is counted with its first, so that one that computes nothing costs nothing."""
        assert self._agreed is not None
        self._approve(*self._agreed, True)
        self._commit(record)

    def _commit(self, record: SiteRecord) -> None:
        try:
            self._store.save(record)
        except BaseException:
            # What is on disk is not known now; the next message reads it again.
            self._record = None
            raise
        self._record = record

    def _hello(self, request: Request, record: SiteRecord) -> Answer:
        study = study_from_json(str(request.meta.get("study")))
        version = str(request.meta.get("version"))
        if record.study and record.study != study.to_json():
            raise SiteRefused(
                f"run {request.run_id!r} was opened with another study at this site.", code="other-study"
            )
        if record.version not in ("", version):
            raise SiteRefused(
                f"run {request.run_id!r} was begun with feddbn {record.version} "
                f"and cannot go on with {version}.",
                code="other-version",
            )
        self._agree(request.run_id, study, version)
        if not record.study:
            self._commit(replace(record, study=study.to_json(), version=version))
        self._join(request.run_id, study)
        # A handshake begins a segment; the server's end of secure aggregation begins anew with new keys, so does ours.
        # What protects earlier sums is on disk: the register of sums, and for whom the last answer was opened.
        # A collection is one segment, however often its server was restarted.
        self._masking = None
        if not study.attendance.collects:
            self._forget_keys(request.run_id, study)
        said = announcement(study, self._site.data.variables)
        self._tell("agreed", request, task=study.method, sentence=said, study=study)
        return {"version": __version__, "last": record.current.seq}, {}

    def _forget_keys(self, run_id: str, study: Study) -> None:
        self._masking = None
        if self._masked is not None and study.privacy.secure_aggregation:
            self._masked.forget(run_id)

    def _task(self, request: Request, record: SiteRecord) -> Answer:
        if self._study(record).privacy.secure_aggregation:
            raise SiteRefused(
                "the answers of this study leave only under secure aggregation.", code="masking-required"
            )
        task = task_from(request)
        if task.participants is not None and self.name not in task.participants:
            raise ProtocolError(f"task {request.seq} does not ask this site.", code="not-asked")
        vector = self._vector(request, record, task)
        return {"digest": digest_of(task)}, {"vector": vector}

    def _tell_notes(self, request: Request, task: str, base: Snapshot, after: Snapshot) -> None:
        for note in notes_of(after.state) if notes_of(after.state) != notes_of(base.state) else ():
            self._tell("note", request, task=task, sentence=say(note, "owner"), code=note.code)

    def _vector(
        self, request: Request, record: SiteRecord, task: Task, channel: Channel = PLAIN
    ) -> FloatArray:
        """Return the answer to a task: the recorded one, or a new one that is stored first."""
        digest = digest_of(task)
        step = decide(record, request.seq, request.after, digest)
        if step is Step.REPEAT:
            self._check_noise(record, channel)
        else:
            base = record.current if step is Step.EXECUTE else record.previous
            self._site.state = dict(base.state)
            with self._withheld(request, task=task.name):
                vector = np.array(self._site.answer(task, replace(channel, digest=digest)), dtype=np.float64)
            after = Snapshot(request.seq, dict(self._site.state), _longer(base.history, digest))
            # The sites of a run's first sum are those of all its sums, so this answer is booked for them at once.
            opened = record.opened if step is Step.EXECUTE else ()
            record = replace(record, previous=base, current=after, digest=digest, vector=vector)
            record = replace(record, opened=opened, n_guaranteed=channel.n_guaranteed)
            self._leave(record)
            self._tell_notes(request, task.name, base, after)
        self._tell(step.value, request, task=task.name)
        assert record.vector is not None
        return record.vector

    def _check_noise(self, record: SiteRecord, channel: Channel) -> None:
        """Refuse to send a noisy answer again into a sum of fewer sites than its share of noise was made for."""
        has_noise = self._study(record).privacy.epsilon is not None
        if has_noise and channel.n_guaranteed < record.n_guaranteed:
            raise AggregationError(
                f"the noise in this answer was made for sums of {record.n_guaranteed} sites or more; it is not sent into "
                f"one of {channel.n_guaranteed}.",
                code="noise-share",
            )

    def _secagg(self, request: Request, record: SiteRecord) -> Answer:
        """Pass one message of secure aggregation on; the vector it masks comes through the fence."""
        study = self._study(record)
        if self._masked is None or not study.privacy.secure_aggregation:
            raise ProtocolError("this study does not use secure aggregation.", code="not-masked")
        if self._masking is None or self._masking[0] != request.run_id:
            self._masking = (request.run_id, self._masked(request.run_id, study, self))
        inner = request.arrays.get("message")
        if inner is None or inner.dtype != np.uint8:
            raise ProtocolError("this message of secure aggregation is empty.", code="bad-message")
        self._asked = (request, record)
        try:
            reply = self._masking[1](inner.tobytes())
        finally:
            self._asked = None
        said = refused_in(reply)
        if said and said != WITHHELD:
            self._tell("refused", request, sentence=said[:LONGEST])
        return {}, {"message": np.frombuffer(reply, dtype=np.uint8)}

    @property
    def whole(self) -> SiteData:
        """All the data that this site offers, whatever a study chooses of it."""
        return self._whole

    def answer(self, task: Task, channel: Channel = PLAIN) -> FloatArray:
        """Return the answer that the masks in the making hide: it passes the fence and is stored first."""
        if self._asked is None:
            raise ProtocolError("no task is being asked.", code="not-asked")
        return self._vector(*self._asked, task, channel)

    def history(self) -> str:
        """Return the digest of all tasks that the state behind the last answer has seen."""
        return "" if self._record is None else self._record.previous.history

    def opening(self, contributors: frozenset[str]) -> None:
        """Store for whom the last answer's masks are opened, before they are: a restart must not forget it.

        The answers after a run's first are stored with these sites, and nothing is left to write.
        Two sums of one answer over different sites differ by the answers of the sites that changed, and by no more noise
        than these sites added. What the envelope says of the task plays no part: only the last answer has open masks.
        """
        assert self._asked is not None
        record, sites = self._asked[1], tuple(sorted(contributors))
        if record.opened == sites:
            return
        if record.opened:
            raise AggregationError(
                "this task has been opened for another set of sites; the difference would show a few.",
                code="other-sites",
            )
        self._commit(replace(record, opened=sites))

    def _finish(self, request: Request, record: SiteRecord) -> Answer:
        """Keep the shared result and this site's personal one; nothing personal is in the reply."""
        result = StudyResult(dict(request.arrays), dict(request.meta.get("summary", {})))
        snapshot = record.previous if request.after == record.previous.seq else record.current
        make = personal_result(self._study(record).method)
        with self._withheld(request):
            personal = {} if make is None else make(dict(snapshot.state), result)
        if self._keep is not None:
            self._keep(request.run_id, result, personal)
        self._forget_keys(request.run_id, self._study(record))
        self._tell("finished", request, study=self._study(record))
        return {"personal": sorted(personal)}, {}


def _longer(history: str, digest: str) -> str:
    """Digest of a history of tasks and one task more."""
    return hashlib.sha256(f"{history} {digest}".encode()).hexdigest()
