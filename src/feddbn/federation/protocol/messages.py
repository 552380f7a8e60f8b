"""Requests and replies between server and sites as bytes; one envelope for every engine.

A request carries the run id, its sequence number and, for a task, `after`: the number of the last task of
this run whose answer by this site the server counted. A reply repeats run, number and task digest, so that a
stale or replayed reply can never be taken for the answer to another question. What a task's `note` says is
for people at the server and does not travel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from feddbn import errors
from feddbn.core.encoding import decode, encode, own_meta
from feddbn.errors import ProtocolError
from feddbn.federation.protocol.site import task_from_fields
from feddbn.federation.protocol.task import Task, task_digest

__all__ = [
    "MAX_MESSAGE_BYTES",
    "NEVER",
    "WITHHELD",
    "Reply",
    "Request",
    "check_run_id",
    "digest_of",
    "encode_reply",
    "encode_request",
    "raise_refusal",
    "read_reply",
    "read_request",
    "refusal",
    "refusal_fields",
    "refused_in",
    "sentence_of",
    "task_from",
    "task_request",
]

MAX_MESSAGE_BYTES = 64 * 2**20
NEVER = -1
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
    """What the server asks: `kind` is hello, task, secagg, heads or finish."""

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


def check_run_id(run_id: object) -> str:
    """Return the run id, or refuse one that could not be a directory name."""
    if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id) or ".." in run_id:
        raise ProtocolError(
            "a run id has 1 to 64 characters out of a-z, 0-9, '.', '_' and '-', and starts with a-z or 0-9."
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
        raise ProtocolError("a request needs whole numbers as seq and after.")
    return Request(
        str(envelope["kind"]), check_run_id(envelope.get("run")), seq, after, envelope["meta"], arrays
    )


def read_reply(message: bytes, max_bytes: int = MAX_MESSAGE_BYTES) -> Reply:
    """Inverse of `encode_reply`; a refusal raises the error the site named, with the site's own sentence."""
    envelope, arrays = _open(message, "reply", max_bytes)
    site, seq, meta = str(envelope.get("site")), envelope.get("seq"), envelope["meta"]
    if not isinstance(seq, int):
        raise ProtocolError("a reply needs a whole number as seq.")
    if envelope["kind"] == "refusal":
        raise_refusal(site, meta)
    return Reply(site, str(envelope["kind"]), str(envelope.get("run")), seq, meta, arrays)


def refusal_fields(error: Exception) -> dict[str, str]:
    """Return what travels of an error: a sentence, no traceback; an unexpected error shows only its type."""
    name = type(error).__name__ if isinstance(error, errors.FeddbnError) else "StateError"
    return {"error": name, "sentence": sentence_of(error)}


def sentence_of(error: Exception) -> str:
    """Return an error in one sentence."""
    if isinstance(error, errors.FeddbnError):
        return str(error)
    return f"an unexpected {type(error).__name__} occurred at the site; its own log has the details."


def refused_in(message: bytes) -> str:
    """Return why this site's own message of secure aggregation says no; empty if it does not."""
    meta = own_meta(message)
    return str(meta.get("sentence")) if meta.get("kind") == "refusal" else ""


def raise_refusal(site: str, fields: Mapping[str, Any]) -> NoReturn:
    """Raise the error that a site named, with the site's own sentence."""
    error = _TRAVELLING.get(str(fields.get("error")), ProtocolError)
    raise error(f"site {site!r} refused: {str(fields.get('sentence'))[:500]}")


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
        raise ProtocolError(f"the digest of task {task.name!r} does not fit its content.")
    return task


def digest_of(task: Task) -> str:
    """Return a SHA-256 of everything a site program reads; the note is not part of it."""
    return task_digest(task.fields(), task.arrays, task.participants)


def _open(message: bytes, kind: str, max_bytes: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if not isinstance(message, (bytes, bytearray, memoryview)):
        raise ProtocolError(f"a message is bytes, got {type(message).__name__}.")
    if len(message) > max_bytes:
        raise ProtocolError(f"this message has {len(message)} bytes; the limit is {max_bytes}.")
    envelope, arrays = decode(bytes(message))
    if envelope.get("type") != kind or "kind" not in envelope or not isinstance(envelope.get("meta"), dict):
        raise ProtocolError(f"this message is not a {kind}.")
    return envelope, arrays
