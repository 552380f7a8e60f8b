"""A process that has imported everything a job needs and forks into one whenever it is asked.

Starting a job in a fresh interpreter is nearly all import: 3 to 4 CPU seconds for each site and each study. This
process imports once, stays single-threaded, and each job is a fork of it: its own process, session, environment and
arguments, ended by the operating system like any other. What it runs is still `python -m MODULE`, by the same
function of the standard library.

Requests come over the socket whose number is the first argument, only from the process that holds the other end:
four bytes of length with the write end of a pipe, then JSON. The pipe answers with two lines: the fork says
``pid NUMBER``, and this process, when the fork has ended, ``exit STATUS`` (negative: the signal). When the socket
closes, the site is gone and so is this process; a job notices that its parent has died, as it would have noticed the
site's death.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import json
import os
import random
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["LENGTH_BYTES", "main"]

LENGTH_BYTES = 4


@dataclass(frozen=True)
class _Job:
    module: str
    arguments: list[str]
    environment: dict[str, str]
    directory: str
    name: str


def main(arguments: Sequence[str]) -> None:
    """Import the modules named after the socket's number, then serve; in a fork, run the job and return."""
    connection = socket.socket(fileno=int(arguments[0]))
    for name in arguments[1:]:
        # A part that is not installed here is not needed here, or the job itself will say that it is missing.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if _threads() > 1:
        # A lock that another thread holds stays locked in a fork for ever.
        sys.exit(f"feddbn: jobs start cold, since importing started {_threads() - 1} threads.")
    # NVFlare asks once per job where a call came from; the answer needs an index of all modules, which then stays.
    inspect.stack()
    # Objects made so far live as long as this process; without this every fork's first collection would touch, and so
    # copy, all of them.
    gc.collect()
    gc.freeze()
    job = _serve(connection)
    if job is not None:
        _become(job)


def _threads() -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/task"))
    return threading.active_count()


def _serve(connection: socket.socket) -> _Job | None:
    """Fork for each request; return the job in the fork, None when the other end has closed the socket."""
    wake, woken = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([connection.fileno(), wake], [], [])
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
            _report_ended(running)
        if connection.fileno() not in ready:
            continue
        request = _receive(connection)
        if request is None:
            return None
        job, answer = request
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            connection.close()
            for number in (wake, woken, *running.values()):
                os.close(number)
            _begin(answer)
            return job
        running[pid] = answer


def _begin(answer: int) -> None:
    """Leave the session of the process it was forked from, and tell whoever asked."""
    os.setsid()
    try:
        os.write(answer, f"pid {os.getpid()}\n".encode())
    except BrokenPipeError:
        # They have given up waiting and started the job in another way: it must not run twice.
        os._exit(0)
    os.close(answer)


def _report_ended(running: dict[int, int]) -> None:
    # Only processes of ours: a module may have started some of its own.
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            answer = running.pop(pid)
            with contextlib.suppress(BrokenPipeError):
                os.write(answer, f"exit {os.waitstatus_to_exitcode(status)}\n".encode())
            os.close(answer)


def _receive(connection: socket.socket) -> tuple[_Job, int] | None:
    head, numbers, _, _ = socket.recv_fds(connection, LENGTH_BYTES, 1)
    if len(head) < LENGTH_BYTES or len(numbers) != 1:
        return None
    length = int.from_bytes(head, "big")
    body = bytearray()
    while len(body) < length:
        piece = connection.recv(length - len(body))
        if not piece:
            return None
        body += piece
    values: dict[str, Any] = json.loads(body)
    return _Job(**values), numbers[0]


def _become(job: _Job) -> None:
    """Turn this fork into what `python -m MODULE ARGUMENTS` would be."""
    os.environ.clear()
    os.environ.update(job.environment)
    os.chdir(job.directory)
    # Forks must not share random numbers. Python's own generator is seeded anew by fork; numpy's global one is not.
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    with contextlib.suppress(OSError):
        # What `ps -o comm` shows; the command line stays that of the process it was forked from.
        Path("/proc/self/comm").write_text(job.name, encoding="utf-8")
    # The module was imported for what it imports; it runs as `__main__`, once.
    sys.modules.pop(job.module, None)
    sys.argv = [job.module, *job.arguments]
    runpy.run_module(job.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
