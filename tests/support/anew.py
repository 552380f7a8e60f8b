"""A site that is opened in a process of its own for one message."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

from feddbn import engine

# Forked from a process without threads that has the package imported already.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["feddbn.analysis.studies", "feddbn.runtime.site.open_site"])


def _answer(end: Connection, place: Path, message: bytes) -> None:
    end.send_bytes(engine.open_site(place).handle(message))


def answer_anew(place: Path, message: bytes) -> bytes:
    """The site's reply from a new process, which has ended; what it leaves is on its disk."""
    here, there = _PROCESSES.Pipe()
    process = _PROCESSES.Process(target=_answer, args=(there, place, message))
    process.start()
    there.close()
    reply = here.recv_bytes()
    process.join()
    return reply
