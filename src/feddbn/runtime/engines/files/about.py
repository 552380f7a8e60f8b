"""What a signed file asks or holds, as findings: `feddbn show` says them in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from feddbn.core.encoding import decode
from feddbn.errors import FeddbnError
from feddbn.federation.protocol.messages import FIRST, Request, first_questions, read_reply
from feddbn.federation.protocol.site import site_task
from feddbn.federation.protocol.study import study_from_json
from feddbn.findings import Finding
from feddbn.runtime.engines.files.signed import SignedFile
from feddbn.runtime.masked import read_secure_reply

WITH_NUMBERS = ("task", "batch", "masked")
"""What numbers from data leave with."""


def about_file(file: SignedFile, is_checked: bool) -> list[Finding]:
    """Return which file it is, who signed it, and what each of its messages asks or holds."""
    of = {"run": file.run, "site": file.site, "number": file.number, "by": file.by, "checked": is_checked}
    first = [Finding(f"file-{file.direction}", "note", of), Finding("file-signed", "note", of)]
    if file.direction == "question":
        has_keepers = bool(study_from_json(file.study).privacy.keepers)
        asked = (one for request in file.requests for one in _with_first(request))
        return [*first, *(_asked(one, has_keepers) for one in asked)]
    return [*first, *(_held(one) for reply in file.messages for one in _with_first_answers(reply))]


def _with_first(request: Request) -> list[Request]:
    """A request, and the first questions if it is a greeting that carries them."""
    first = first_questions(request)
    return [request] if first is None else [request, first]


def _with_first_answers(reply: bytes) -> list[bytes]:
    """A reply, and the answers to the first questions if they are in it."""
    with suppress(FeddbnError):
        first = read_reply(reply).arrays.get(FIRST)
        return [reply] if first is None else [reply, first.tobytes()]
    return [reply]


def phase_of(request: Request) -> tuple[str, Mapping[str, Any]]:
    """Return what a message asks for in one word, and the task that it carries, if it does."""
    if request.kind != "secagg":
        return request.kind, request.meta
    meta = decode(request.arrays["message"].tobytes())[0]
    return str(meta.get("phase")), meta.get("task") or {}


def _asked(request: Request, has_keepers: bool) -> Finding:
    phase, task = phase_of(request)
    told = "sealed" if phase == "batch" and has_keepers else phase
    values: dict[str, Any] = {"phase": told, "sum": request.seq}
    if phase in WITH_NUMBERS:
        named = task.get("tasks") or [task]
        values["tasks"] = [(name, _purpose(name)) for name in (str(one.get("name", "")) for one in named)]
    return Finding("file-asks", "note", values)


def _purpose(task: str) -> str:
    try:
        return site_task(task).purpose(task)
    except FeddbnError:
        return ""


def _held(reply: bytes) -> Finding:
    try:
        found = read_reply(reply)
        phase, arrays = found.kind, found.arrays
        if phase == "secagg":
            meta, arrays = read_secure_reply(arrays["message"].tobytes())
            phase = str(meta.get("phase"))
    except KeyError:
        return Finding("file-refuses", "warning", {"sentence": "the reply is empty.", "why": "empty-reply"})
    except FeddbnError as error:
        return Finding("file-refuses", "warning", {"sentence": str(error), "why": error.code})
    counted = [array.shape[-1] for name, array in arrays.items() if array.ndim and _is_numbers(phase, name)]
    n = int(sum(counted))
    if phase == "batch" and not n:
        phase = "sealed"
    n_bytes = sum(array.nbytes for array in arrays.values())
    return Finding("file-holds", "note", {"phase": phase, "numbers": n, "bytes": n_bytes})


def _is_numbers(phase: str, name: str) -> bool:
    """Whether an array of a reply holds a site's numbers."""
    return (phase, name) in (("task", "vector"), ("masked", "y")) or (
        phase == "batch" and name.startswith("vector")
    )


def refusals(findings: list[Finding]) -> Iterator[str]:
    """Yield what was refused, in the site's words."""
    return (str(one.values["sentence"]) for one in findings if one.code == "file-refuses")
