"""Work in another process that is killed at a commit of a store: no sleep, no clock, and each point is tried.

A point is before or after a commit: the first commit has the points 0 and 1. The process that begins the children has no
threads, and none of what pytest patches. Work is a function at the top of a file; what it is given and gives back is pickled.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import pickle
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

KILLED = 9


@dataclass(frozen=True)
class Ended:
    """How a child ended: whether it was killed, what it had said, its commits, and what it returned."""

    is_killed: bool
    said: tuple[str, ...]
    n_commits: int = 0
    value: Any = None


def in_child(work: Callable[..., Any], *given: Any, at: int | None = None) -> Ended:
    """Run ``work(say, *given)`` in a new process, to its end or until the point `at`."""
    server = _server()
    job = pickle.dumps((inspect.getfile(work), work.__qualname__, pickle.dumps(given), at))
    _write(server.stdin, job)
    status, said, last = pickle.loads(_read(server.stdout))
    if status not in (0, KILLED):
        raise AssertionError(f"the work ended with {status}: {last.decode(errors='replace')}")
    words = tuple(said.decode().split())
    return Ended(True, words) if status else Ended(False, words, *pickle.loads(last))


def crash_points(work: Callable[..., Any], *given: Any) -> range:
    """Run the work once; return the points at which it can be killed."""
    return range(2 * in_child(work, *given).n_commits)


def killed_at(point: int, work: Callable[..., Any], *given: Any) -> tuple[str, ...]:
    """Kill the work at a point; return what it had said."""
    return in_child(work, *given, at=point).said


@cache
def _server() -> subprocess.Popen[bytes]:
    """The process whose children do the work; it ends with this one, whose end closes its input."""
    paths = [str(Path(__file__).parents[1]), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "support.crash"]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _write(pipe: BinaryIO, content: bytes) -> None:
    pipe.write(len(content).to_bytes(8, "big") + content)
    pipe.flush()


def _read(pipe: BinaryIO) -> bytes:
    return pipe.read(int.from_bytes(pipe.read(8), "big"))


def _count_commits(at: int | None) -> list[int]:
    """Count the commits of this process from now on, and end it at a point."""
    passed = [0]

    class Connection(sqlite3.Connection):
        changes = False

        def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
            self.changes = self.changes or sql == "BEGIN IMMEDIATE"
            if not (self.changes and sql == "COMMIT"):
                return super().execute(sql, *given)
            self._pass()
            done = super().execute(sql, *given)
            self._pass()
            return done

        def _pass(self) -> None:
            if passed[0] == at:
                os._exit(KILLED)
            passed[0] += 1

    connect = sqlite3.connect
    sqlite3.connect = lambda *given, **more: connect(*given, **{"factory": Connection, **more})
    return passed


def _work(function: Callable[..., Any], given: bytes, at: int | None, said: int, last: int) -> None:
    """Be the child; never returns."""
    status = 0
    try:
        passed = _count_commits(at)
        value = function(lambda word: os.write(said, f"{word}\n".encode()), *pickle.loads(given))
        found = pickle.dumps((passed[0] // 2, value))
    except BaseException:
        status, found = 1, traceback.format_exc().encode()
    os.close(said)
    with open(last, "wb") as file:
        file.write(found)
    os._exit(status)


def _serve() -> None:
    """Begin children until the input ends."""
    # What children would otherwise import, each for itself.
    for name in (
        "analysis.studies",
        "runtime.site.open_site",
        "runtime.site.masking",
        "runtime.server.conduct",
    ):
        importlib.import_module(f"feddbn.{name}")
    # Processes are killed here, machines are not.
    sys.modules["feddbn.runtime.store"].SYNCHRONOUS = "OFF"
    os.fsync = lambda handle: None
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    loaded: dict[str, Any] = {}
    while header := sys.stdin.buffer.read(8):
        file, name, given, at = pickle.loads(sys.stdin.buffer.read(int.from_bytes(header, "big")))
        if file not in loaded:
            spec = importlib.util.spec_from_file_location(f"work_{len(loaded)}", file)
            loaded[file] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(loaded[file])
        pipes = [os.pipe(), os.pipe()]
        child = os.fork()
        if child == 0:
            _work(getattr(loaded[file], name), given, at, pipes[0][1], pipes[1][1])
        for _, end in pipes:
            os.close(end)
        told = []
        for start, _ in pipes:
            with open(start, "rb") as pipe:
                told.append(pipe.read())
        _, status = os.waitpid(child, 0)
        _write(answers, pickle.dumps((os.waitstatus_to_exitcode(status), *told)))


if __name__ == "__main__":
    _serve()
