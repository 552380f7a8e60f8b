"""An exchange that lives in another process, for tests: a platform's server side calls `serve`, a test uses `Bridge`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from multiprocessing.connection import Client, Listener, wait
from pathlib import Path

PLACE = "FEDDBN_TEST_BRIDGE"
_KEY = b"feddbn tests"


def serve(exchange):
    """Carry what the test sends until it hangs up."""
    with Client(os.environ[PLACE], authkey=_KEY) as end, contextlib.suppress(EOFError):
        while True:
            end.send(exchange(end.recv()))


class Bridge:
    """The exchange as the test sees it; `start` begins the processes, which end with it."""

    def __init__(self, place: Path, start, timeout_s=60.0):
        self._listener = Listener(str(place), authkey=_KEY)
        self.processes: list[subprocess.Popen] = []
        self.seconds: list[float] = []
        try:
            self.processes += start({PLACE: str(place)})
            socket = self._listener._listener._socket
            if not wait([socket], timeout_s):
                raise TimeoutError("the platform's server side did not call")
            self._end = self._listener.accept()
        except BaseException:
            self.close()
            raise

    def __call__(self, messages):
        begun = time.monotonic()
        self._end.send(dict(messages))
        replies = self._end.recv()
        self.seconds.append(time.monotonic() - begun)
        return replies

    def close(self):
        if hasattr(self, "_end"):
            self._end.close()
        self._listener.close()
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.5 if process is not self.processes[0] else 15)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()
