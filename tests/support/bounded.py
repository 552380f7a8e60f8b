"""Work in a process of its own that may take so much memory and time of the processor, and no more."""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STATM = Path("/proc/self/statm")


@contextmanager
def at_most(mebibytes: int, seconds: int) -> Iterator[None]:
    """Let this process take so much more: beyond it allocating fails, and the system ends the process (SIGXCPU)."""
    limits = {resource.RLIMIT_CPU: math.ceil(time.process_time() + seconds)}
    if STATM.exists():
        taken = int(STATM.read_text().split()[0]) * resource.getpagesize()
        limits[resource.RLIMIT_AS] = taken + mebibytes * 2**20
    before = {what: resource.getrlimit(what) for what in limits}
    for what, limit in limits.items():
        resource.setrlimit(what, (limit, before[what][1]))
    try:
        yield
    finally:
        for what, limit in before.items():
            resource.setrlimit(what, limit)


def in_child(code: str, *arguments: object) -> str:
    """Run a program in a fresh interpreter that finds what this one finds; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout
