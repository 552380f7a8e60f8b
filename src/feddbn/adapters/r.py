"""R: a site as a process that R starts, and a study whose exchange is a function of R.

``python -m feddbn.adapters.r FOLDER MAILBOX`` opens the site in a folder and answers what it reads from
standard input, one message a line in base64 (with - and _, without = at the end). The reply to the n-th line is the file n
of the mailbox, which appears whole: base R can write to a process or read from it, not both. The process ends with its
input. A site that cannot be opened leaves the reason in the file ``failed``.
"""

from __future__ import annotations

import sys
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path

from feddbn import engine
from feddbn.errors import FeddbnError, reading
from feddbn.federation.protocol.study import parse_study
from feddbn.runtime.server.results import export_result

__all__ = ["conduct", "main"]


def main(folder: str, mailbox: str) -> None:
    """Answer messages until there are no more."""
    place = Path(mailbox)

    def put(name: str, content: bytes) -> None:
        (place / "next").write_bytes(content)
        (place / "next").rename(place / name)

    try:
        site = engine.open_site(folder)
    except FeddbnError as error:
        return put("failed", str(error).encode())
    for n, line in enumerate(sys.stdin, 1):
        put(str(n), site.handle(_bytes(line)))


def conduct(
    study: str, exchange: Callable[[dict[str, str]], Mapping[str, str]], folder: str, run: str | None = None
) -> str:
    """Run the study in a file, or go on with a run; return the path of its result.

    The exchange carries messages and replies in base64.
    """
    with reading(f"the study file {study}"):
        parsed = parse_study(Path(study).read_text(encoding="utf-8"), study)
    run = run or f"{parsed.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"

    def carry(messages: Mapping[str, bytes]) -> dict[str, bytes]:
        in_text = {name: urlsafe_b64encode(one).decode().rstrip("=") for name, one in messages.items()}
        # An empty list of R has no names.
        return {name: _bytes(text) for name, text in dict(exchange(in_text)).items()}

    engine.conduct(parsed, carry, folder, run=run)
    export_result(Path(folder) / run)
    return str(Path(folder) / run / "result.json")


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text.strip() + "==")


if __name__ == "__main__":
    main(*sys.argv[1:])
