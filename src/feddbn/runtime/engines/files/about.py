"""What a signed file asks or holds, as findings: `feddbn show` says them in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from feddbn.core.encoding import decode
from feddbn.errors import FeddbnError
from feddbn.federation.protocol.messages import Request, read_reply
from feddbn.federation.protocol.site import site_task
from feddbn.findings import Finding
from feddbn.runtime.engines.files.signed import SignedFile
from feddbn.runtime.masked import read_secure_reply

WITH_NUMBERS = ("task", "masked")
"""What numbers from data leave with."""


def about_file(file: SignedFile, is_checked: bool) -> list[Finding]:
    """Return which file it is, who signed it, and what each of its messages asks or holds."""
    of = {"run": file.run, "site": file.site, "number": file.number, "by": file.by, "checked": is_checked}
    first = [Finding(f"file-{file.direction}", "note", of), Finding("file-signed", "note", of)]
    parts = map(_asked, file.requests) if file.direction == "question" else map(_held, file.messages)
    return [*first, *parts]


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
        try:
            values |= {"task": name, "purpose": site_task(name).purpose(name)}
        except FeddbnError:
            values |= {"task": name, "purpose": ""}
    return Finding("file-asks", "note", values)


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
    numbers = {"task": "vector", "masked": "y"}.get(phase)
    n = 0 if numbers is None or numbers not in arrays else int(arrays[numbers].shape[-1])
    n_bytes = sum(array.nbytes for array in arrays.values())
    return Finding("file-holds", "note", {"phase": phase, "numbers": n, "bytes": n_bytes})


def refusals(findings: list[Finding]) -> Iterator[str]:
    """Yield what was refused, in the site's words."""
    return (str(one.values["sentence"]) for one in findings if one.code == "file-refuses")
