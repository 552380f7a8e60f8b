"""What travels between server and sites, and what both store of a run, as bytes; one envelope for every engine.

A request carries the run id, its sequence number and, for a task, `after`: the number of the last task of
this run whose answer by this site the server counted. A reply repeats run, number and task digest, so that a
stale or replayed reply can never be taken for the answer to another question. What a task's `note` says is
for people at the server and does not travel.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import numpy as np

from feddbn import errors
from feddbn.core.arrays import FloatArray
from feddbn.errors import ProtocolError, StateError
from feddbn.federation.protocol.encoding import decode, encode, own_meta
from feddbn.federation.protocol.site import SiteState, task_from_fields
from feddbn.federation.protocol.task import Sum, Task, task_digest
from feddbn.words import one_line

MAX_MESSAGE_BYTES = 64 * 2**20
MOST_WORDS = 8 * 2**20
"""Bytes of a message that are no numbers: read, they take many times as much memory."""
NEVER = -1
LONGEST = 500
"""Characters of a refusal that travel, or stand in a log."""
WITHHELD = "this site refused the question; its owner can read why."
"""All that a server is told of a refusal that may depend on data or on the owner's rules."""
_RUN_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
# What an error may be called on the way; any other becomes a ProtocolError.
_TRAVELLING: dict[str, type[errors.FeddbnError]] = {
    "SiteRefused": errors.SiteRefused,
    "StateError": errors.StateError,
    "NotEnoughSites": errors.NotEnoughSites,
    "BudgetExceeded": errors.BudgetExceeded,
    "AggregationError": errors.AggregationError,
}


@dataclass(frozen=True)
class Request:
    """What the server asks: `kind` is hello, task, secagg or finish."""

    kind: str
    run_id: str
    seq: int = NEVER
    after: int = NEVER
    meta: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """What one site answers to one request."""

    site: str
    kind: str
    run_id: str
    seq: int
    meta: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)


def is_run_id(run_id: object) -> bool:
    """Whether a run may be called so: its name can be that of a directory."""
    return isinstance(run_id, str) and bool(_RUN_ID.fullmatch(run_id)) and ".." not in run_id


def check_run_id(run_id: object) -> str:
    """Return the run id, or refuse one that could not be a directory name."""
    if not isinstance(run_id, str) or not is_run_id(run_id):
        raise ProtocolError(
            "a run id has 1 to 64 characters out of a-z, 0-9, '.', '_' and '-', and starts with a-z or 0-9.",
            code="bad-run-id",
        )
    return run_id


def encode_request(request: Request) -> bytes:
    """Return the bytes of a request."""
    return _encode("request", request, after=request.after)


def encode_reply(reply: Reply) -> bytes:
    """Return the bytes of a reply."""
    return _encode("reply", reply, site=reply.site)


def _encode(kind: str, message: Request | Reply, **more: object) -> bytes:
    envelope = {"type": kind, "kind": message.kind, "run": message.run_id, "seq": message.seq, **more}
    return encode({**envelope, "meta": dict(message.meta)}, message.arrays)


def read_request(message: bytes, max_bytes: int = MAX_MESSAGE_BYTES) -> Request:
    """Inverse of `encode_request`; anything else raises `ProtocolError`."""
    envelope, arrays = _open(message, "request", max_bytes)
    seq, after = envelope.get("seq"), envelope.get("after")
    if not isinstance(seq, int) or not isinstance(after, int):
        raise ProtocolError("a request needs whole numbers as seq and after.", code="bad-message")
    return Request(
        str(envelope["kind"]), check_run_id(envelope.get("run")), seq, after, envelope["meta"], arrays
    )


def read_reply(message: bytes, max_bytes: int = MAX_MESSAGE_BYTES) -> Reply:
    """Inverse of `encode_reply`; a refusal raises the error the site named, with the site's own sentence."""
    envelope, arrays = _open(message, "reply", max_bytes)
    site, seq, meta = str(envelope.get("site")), envelope.get("seq"), envelope["meta"]
    if not isinstance(seq, int):
        raise ProtocolError("a reply needs a whole number as seq.", code="bad-message")
    if envelope["kind"] == "refusal":
        raise_refusal(site, meta)
    return Reply(site, str(envelope["kind"]), str(envelope.get("run")), seq, meta, arrays)


def refusal_fields(error: Exception) -> dict[str, str]:
    """Return what travels of an error: a sentence and its code, no traceback; an unexpected error shows only its type."""
    name = type(error).__name__ if isinstance(error, errors.FeddbnError) else "StateError"
    return {"error": name, "sentence": sentence_of(error)[:LONGEST], "code": code_of(error)}


def sentence_of(error: Exception) -> str:
    """Return an error in one sentence."""
    if isinstance(error, errors.FeddbnError):
        return str(error)
    if isinstance(error, OSError):
        return f"the site cannot use a file of its own ({error.strerror}); its own log has the details."
    return f"an unexpected {type(error).__name__} occurred at the site; its own log has the details."


def code_of(error: Exception) -> str:
    """Return the code of an error; it tells less than its sentence."""
    if isinstance(error, OSError):
        return "not-stored"
    return error.code if isinstance(error, errors.FeddbnError) else "unexpected"


def refused_in(message: bytes) -> str:
    """Return why this site's own message of secure aggregation says no; empty if it does not."""
    meta = own_meta(message)
    return str(meta.get("sentence")) if meta.get("kind") == "refusal" else ""


def raise_refusal(site: str, fields: Mapping[str, Any]) -> NoReturn:
    """Raise the error that a site named, with the site's own sentence and code."""
    error = _TRAVELLING.get(str(fields.get("error")), ProtocolError)
    # A site may write anything, and a lead reads it on a screen.
    sentence, code = (
        one_line(str(fields.get("sentence")), LONGEST),
        one_line(str(fields.get("code", "")), 100),
    )
    # Somebody who has not read a study yet has not refused it.
    said = "" if code == "not-approved" else " refused"
    raise error(f"site {site!r}{said}: {sentence}", code=code, site=site)


def refusal(site: str, request: Request | None, error: Exception) -> Reply:
    """Return the reply that says no."""
    run_id, seq = (request.run_id, request.seq) if request is not None else ("", NEVER)
    return Reply(site, "refusal", run_id, seq, refusal_fields(error))


def task_request(task: Task, run_id: str, seq: int, after: int, attempt: int = 0) -> Request:
    """Return the request that carries a task to a site."""
    participants = None if task.participants is None else sorted(task.participants)
    meta = {**task.fields(), "digest": digest_of(task), "attempt": attempt, "participants": participants}
    return Request("task", run_id, seq, after, meta, task.arrays)


def task_from(request: Request) -> Task:
    """Return the task a request carries; its digest must fit its content."""
    task = task_from_fields(request.meta, request.arrays, request.meta.get("participants"))
    if digest_of(task) != request.meta.get("digest"):
        raise ProtocolError(
            f"the digest of task {task.name!r} does not fit its content.", code="wrong-digest"
        )
    return task


def digest_of(task: Task) -> str:
    """Return a SHA-256 of everything a site program reads; the note is not part of it."""
    return task_digest(task.fields(), task.arrays, task.participants)


def _open(message: bytes, kind: str, max_bytes: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if not isinstance(message, (bytes, bytearray, memoryview)):
        raise ProtocolError(f"a message is bytes, got {type(message).__name__}.", code="bad-message")
    if len(message) > max_bytes:
        raise ProtocolError(
            f"this message has {len(message)} bytes; the limit is {max_bytes}.", code="too-long"
        )
    envelope, arrays = decode(bytes(message), MOST_WORDS)
    if envelope.get("type") != kind or "kind" not in envelope or not isinstance(envelope.get("meta"), dict):
        raise ProtocolError(f"this message is not a {kind}.", code="bad-message")
    return envelope, arrays


# What carries messages between the server and its sites: the only thing an engine has to provide.

Exchange = Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
"""Sends one message to each named site and returns one reply from each that answered in time.

Who is missing from the replies has dropped out; a silent site raises nothing.
"""


# What a site stores for a run, as one self-checking byte string, and the place that keeps it.


@dataclass(frozen=True)
class Snapshot:
    """The state of a site after task `seq` (NEVER: before the first).

    `history` is a digest of all tasks that led to it: states with another history are not added up under masks.
    """

    seq: int = NEVER
    state: SiteState = field(default_factory=dict)
    history: str = ""

    def __post_init__(self) -> None:
        # A site program is a pure function; one that writes into the state it was given would spoil a repeat.
        for array in self.state.values():
            array.setflags(write=False)


@dataclass(frozen=True)
class SiteRecord:
    """Everything a site must remember of one run.

    Attributes
    ----------
    run_id, site
        Whose record this is; a record of another run or site is refused.
    study, version
        The study this run was opened with, as canonical text, and the package version it began with.
    previous, current
        The last counted state and the state after the last executed task.
    digest, vector
        The last executed task and the answer to it, after every guard: a repeat sends the same bytes,
        so noise is never drawn twice for one release.
    opened
        The sites for whose masked sum of the last task this site has helped to open the masks, or may: those of the
        sum before. It helps for no others.
    n_guaranteed
        Fewest sites in any sum that the answer may be part of: what its noise was made for.
    """

    run_id: str
    site: str
    study: str
    version: str
    previous: Snapshot = field(default_factory=Snapshot)
    current: Snapshot = field(default_factory=Snapshot)
    digest: str = ""
    vector: FloatArray | None = None
    opened: tuple[str, ...] = ()
    n_guaranteed: int = 1


def encode_record(record: SiteRecord) -> bytes:
    """Return the bytes of a record."""
    arrays: dict[str, np.ndarray] = {f"previous/{k}": v for k, v in record.previous.state.items()}
    arrays.update({f"current/{k}": v for k, v in record.current.state.items()})
    if record.vector is not None:
        arrays["vector"] = record.vector
    meta = {"type": "site-record", "run": record.run_id, "site": record.site}
    begun = {"study": record.study, "version": record.version}
    numbers = {"previous": record.previous.seq, "current": record.current.seq, "digest": record.digest}
    histories = [record.previous.history, record.current.history]
    masks = {"opened": list(record.opened), "n_guaranteed": record.n_guaranteed, "histories": histories}
    return encode({**meta, **begun, **numbers, **masks}, arrays)


def decode_record(message: bytes, run_id: str, site: str) -> SiteRecord:
    """Inverse of `encode_record`; damage or a record of another run or site raises `StateError`."""
    try:
        meta, arrays = decode(message)
    except ProtocolError as error:
        raise StateError(
            f"the stored state of run {run_id!r} at site {site!r} cannot be read: {error}",
            code="damaged-state",
        ) from None
    if meta.get("type") != "site-record" or meta.get("run") != run_id or meta.get("site") != site:
        raise StateError(
            f"the stored state found for run {run_id!r} at site {site!r} belongs to another run or site.",
            code="foreign-state",
        )
    states: dict[str, SiteState] = {"previous": {}, "current": {}}
    for key, array in arrays.items():
        part, _, name = key.partition("/")
        if part in states:
            states[part][name] = array
    before, now = meta["histories"]
    return SiteRecord(
        run_id,
        site,
        str(meta["study"]),
        str(meta["version"]),
        Snapshot(int(meta["previous"]), states["previous"], str(before)),
        Snapshot(int(meta["current"]), states["current"], str(now)),
        str(meta["digest"]),
        arrays.get("vector"),
        tuple(meta["opened"]),
        int(meta["n_guaranteed"]),
    )


class RecordStore(Protocol):
    """A place that keeps one site's records; `save` has happened when it returns."""

    def load(self, run_id: str) -> SiteRecord | None:
        """Return the record of a run, or None if this site never took part."""
        ...

    def save(self, record: SiteRecord) -> None:
        """Replace the record of the run, all or nothing."""
        ...


# The server's checkpoint: an append-only journal of sums; resuming is replaying.
#
# A server program is deterministic. Its journal therefore needs no program state: a header (run, study,
# version, sites) and one record per sum (number, task digest, contributors, value) are enough. Resuming runs
# the program again, feeds it the recorded sums after checking that it asked the same questions, and goes on
# live where the journal ends: bit-identical by construction.
#
# A record is a self-checking message that names the digest of the record before it. Damage raises `StateError`.


@dataclass(frozen=True)
class Header:
    """What a run is: it never changes after the first record."""

    run_id: str
    study: str
    study_digest: str
    version: str
    sites: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """One sum, and the digest of the task that it answers."""

    digest: str
    answer: Sum


class Journal:
    """The records of a run; `header_bytes` and `add` return what must reach the disk before going on."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.entries: list[Entry] = []
        self.last = ""

    def header_bytes(self) -> bytes:
        """Return the first record."""
        head = self.header
        meta = {"type": "journal", "run": head.run_id, "study": head.study, "study_digest": head.study_digest}
        return self._record({**meta, "version": head.version, "sites": list(head.sites)}, {})

    def add(self, digest: str, answer: Sum) -> bytes:
        """Append a sum and return its record."""
        meta = {"type": "sum", "digest": digest, "sites": list(answer.contributors)}
        record = self._record(meta, {"value": answer.value})
        self.entries.append(Entry(digest, answer))
        return record

    def _record(self, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        record = encode({**meta, "before": self.last}, arrays)
        self.last = hashlib.sha256(record).hexdigest()
        return record


def read_journal(records: Iterable[bytes]) -> Journal | None:
    """Return the journal of these records; None without any."""
    journal: Journal | None = None
    last = ""
    for number, record in enumerate(records):
        try:
            meta, arrays = decode(record)
        except ProtocolError as error:
            raise StateError(
                f"the journal is damaged at record {number}: {error}", code="damaged-journal"
            ) from None
        if meta.get("before") != last:
            raise StateError(
                f"the journal is damaged at record {number}: a record before it was changed or removed.",
                code="damaged-journal",
            )
        last = hashlib.sha256(record).hexdigest()
        if journal is not None:
            answer = Sum(arrays["value"], tuple(meta["sites"]))
            journal.entries.append(Entry(str(meta["digest"]), answer))
        elif meta.get("type") == "journal":
            run_id, study, digest, version = (
                str(meta[k]) for k in ("run", "study", "study_digest", "version")
            )
            journal = Journal(Header(run_id, study, digest, version, tuple(meta["sites"])))
        else:
            raise StateError("the journal does not begin with a header.", code="damaged-journal")
        journal.last = last
    return journal
