"""What a signed file asks or holds, as findings: `feddbn show` says them in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from feddbn.errors import FeddbnError
from feddbn.federation.protocol.encoding import decode
from feddbn.federation.protocol.messages import Request, read_reply
from feddbn.federation.protocol.site import site_task
from feddbn.findings import Finding
from feddbn.runtime.files.signed import SignedFile
from feddbn.runtime.masked import read_secure_reply

WITH_NUMBERS = ("task", "masked")
"""What numbers from data leave with."""


def about_file(file: SignedFile, is_checked: bool) -> list[Finding]:
    """Return which file it is, who signed it, and what its message asks or holds."""
    of = {"run": file.run, "site": file.site, "number": file.number, "by": file.by, "checked": is_checked}
    first = [Finding(f"file-{file.direction}", "note", of), Finding("file-signed", "note", of)]
    if file.direction == "question":
        return [*first, _asked(file.request)]
    return [*first, _held(file.message)]


def phase_of(request: Request) -> tuple[str, Mapping[str, Any]]:
    """Return what a message asks for in one word, and the task that it carries, if it does."""
    if request.kind != "secagg":
        return request.kind, request.meta
    meta = decode(request.arrays["message"].tobytes())[0]
    return str(meta.get("phase")), meta.get("task") or {}


def _asked(request: Request) -> Finding:
    phase, task = phase_of(request)
    values: dict[str, Any] = {"phase": phase, "sum": request.seq}
    if phase in WITH_NUMBERS:
        name = str(task.get("name", ""))
        values["task"] = (name, _purpose(name))
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
    n_bytes = sum(array.nbytes for array in arrays.values())
    return Finding("file-holds", "note", {"phase": phase, "numbers": n, "bytes": n_bytes})


def _is_numbers(phase: str, name: str) -> bool:
    """Whether an array of a reply holds a site's numbers."""
    return (phase, name) in (("task", "vector"), ("masked", "y"))


def refusals(findings: list[Finding]) -> Iterator[str]:
    """Yield what was refused, in the site's words."""
    return (str(one.values["sentence"]) for one in findings if one.code == "file-refuses")
