"""Start jobs as forks of a process that has already imported what they need (`warm_process`)."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import NoReturn

from feddbn.errors import StateError
from feddbn.runtime.deployed.warm_process import LENGTH_BYTES

__all__ = ["WarmJob", "WarmStart"]

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
    """The process to fork from: started once, started again by the next job if it was killed.

    Parameters
    ----------
    modules
        Names of the modules to import ahead.
    """

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
            raise StateError("this system cannot fork; jobs start in fresh interpreters.")
        self._close()
        ours, theirs = socket.socketpair()
        command = [
            sys.executable,
            "-m",
            "feddbn.runtime.deployed.warm_process",
            str(theirs.fileno()),
            *self._modules,
        ]
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
            raise StateError("forking was found impossible when the modules were imported.")
        self._start()
        raise StateError("the process to fork from was not running; it is started again.")

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
            raise StateError("the process to fork from is not ready.")
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
