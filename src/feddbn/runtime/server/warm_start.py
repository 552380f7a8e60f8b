"""Start jobs as forks of a process that has already imported what they need.

Starting a job in a fresh interpreter is nearly all import: 3 to 4 CPU seconds for each site and each study. `main` is
that process: it imports once, stays single-threaded, and each job is a fork of it: its own process, session, environment
and arguments, ended by the operating system like any other. What it runs is still `python -m MODULE`, by the same
function of the standard library. `WarmStart` is the other end.

Requests come over the socket whose number is the first argument, only from the process that holds the other end:
four bytes of length with the write end of a pipe, then JSON. The pipe answers with two lines: the fork says
``pid NUMBER``, and the process it was forked from, when the fork has ended, ``exit STATUS`` (negative: the signal). When
the socket closes, the site is gone and so is this process; a job notices that its parent has died, as it would have
noticed the site's death.
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
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from feddbn.errors import StateError

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


# How long a start may wait for the imports to end. Somebody is waiting for an answer meanwhile (NVFlare: 10 s).
PATIENCE_S = 5.0
_LOST = -signal.SIGKILL


class WarmJob:
    """One job: its process id, and its exit status when it has ended."""

    def __init__(self, answer: int, pid: int, rest: bytes = b"") -> None:
        self.pid = pid
        self._answer = answer
        self._said = rest
        self._status: int | None = None
        self._lock = threading.Lock()

    def __del__(self) -> None:
        # Not earlier: another thread may be waiting for the same number.
        os.close(self._answer)

    def poll(self) -> int | None:
        """Return the exit status (negative: the signal that ended it), None while it runs."""
        with self._lock:
            return self._poll()

    def wait(self) -> int:
        """Return the exit status when the job has ended."""
        while True:
            status = self.poll()
            if status is not None:
                return status
            _readable(self._answer, None)

    def terminate(self) -> None:
        """Kill the job and whatever it started in its process group."""
        with self._lock:
            if self._poll() is None:
                self._kill()

    def _poll(self) -> int | None:
        while self._status is None:
            if b"\n" in self._said:
                self._status = int(self._said.split()[1])
            elif not _readable(self._answer, 0.0):
                break
            elif piece := os.read(self._answer, 64):
                self._said += piece
            else:
                # The process that would have told is gone. The job must not go on unseen.
                self._kill()
                self._status = _LOST
        return self._status

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


class WarmStart:
    """The process to fork from, with these modules imported: started once, and again by the next job if it was killed."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = tuple(modules)
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Id of the process to fork from, None if there is none."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        """Begin to import; returns at once."""
        with self._lock:
            self._start()

    def _start(self) -> None:
        if not (hasattr(os, "fork") and hasattr(socket, "recv_fds")):
            raise StateError("this system cannot fork; jobs start in fresh interpreters.", code="cannot-fork")
        self._close()
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", __name__, str(theirs.fileno()), *self._modules]
        with theirs:
            # Its own session: an interrupt from the terminal is for the site, which then closes the socket.
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
            )
        self._connection = ours

    def launch(
        self,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        name: str,
        patience_s: float = PATIENCE_S,
    ) -> WarmJob:
        """Run `python -m module arguments` in a fork; raise `StateError` if that is not possible now.

        `name` is what `ps -o comm` shows, of which the system keeps 15 bytes. A job that was refused here never runs.
        """
        values = {"module": module, "arguments": list(arguments), "environment": dict(environment)}
        body = json.dumps({**values, "directory": os.getcwd(), "name": name}).encode()
        with self._lock:
            if self.pid is None or self._connection is None:
                self._start_again()
            answer, theirs = os.pipe()
            try:
                self._connection.settimeout(patience_s)
                socket.send_fds(self._connection, [len(body).to_bytes(LENGTH_BYTES, "big")], [theirs])
                self._connection.sendall(body)
            except OSError as error:
                os.close(answer)
                if self.pid is not None:
                    # Half a request may have been sent: nothing after it would be understood.
                    self._close()
                raise StateError(f"the process to fork from does not listen: {error}.") from None
            finally:
                os.close(theirs)
        return _await_start(answer, patience_s)

    def _start_again(self) -> NoReturn:
        if self._process is not None and self._process.returncode > 0:
            # It said why, and would again.
            raise StateError(
                "forking was found impossible when the modules were imported.", code="cannot-fork"
            )
        self._start()
        raise StateError("the process to fork from was not running; it is started again.", code="restarted")

    def close(self) -> None:
        """End the process to fork from, and with it its jobs."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _await_start(answer: int, patience_s: float) -> WarmJob:
    said = b""
    end = time.monotonic() + patience_s
    while b"\n" not in said:
        left = end - time.monotonic()
        piece = os.read(answer, 64) if left > 0 and _readable(answer, left) else b""
        if not piece:
            # Closing our end tells the other side not to run the job.
            os.close(answer)
            raise StateError("the process to fork from is not ready.", code="not-ready")
        said += piece
    first, _, rest = said.partition(b"\n")
    what, number = first.split()
    if what != b"pid":
        os.close(answer)
        raise StateError("the fork ended before it began.")
    return WarmJob(answer, int(number), rest)


def _readable(number: int, timeout_s: float | None) -> bool:
    # Not `select`: a site with many connections has file numbers beyond its limit of 1,024.
    waiter = select.poll()
    waiter.register(number, select.POLLIN)
    return bool(waiter.poll(None if timeout_s is None else 1000.0 * timeout_s))


if __name__ == "__main__":
    main(sys.argv[1:])
