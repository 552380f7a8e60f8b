"""A whole federation on one machine: kits, server and sites of an engine as processes that end together."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from feddbn.errors import FederationError, MissingExtra, NotEnoughSites
from feddbn.runtime.engines.interface import Engine, FederationPlan, Process, Session

if TYPE_CHECKING:
    import psutil

LOOPBACK = "localhost"
_PAUSE_S = 0.2
_PATIENCE_S = 10.0


def free_ports(n: int) -> list[int]:
    """Return `n` different ports of this machine that nobody listens at now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def end_with_all_it_started(process: subprocess.Popen[bytes]) -> float:
    """Kill a process and everything below it, also what left its session; return the processor seconds they used.

    All are stopped before the first is killed: what is stopped starts nothing that would be missed.
    """
    import psutil

    stopped: set[psutil.Process] = set()
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(process.pid)
        while new := {root, *root.children(recursive=True)} - stopped:
            for one in new:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.suspend()
            stopped |= new
    seconds = 0.0
    for one in stopped:
        with contextlib.suppress(psutil.NoSuchProcess):
            # Of itself and of what it has waited for.
            seconds += sum(one.cpu_times()[:4])
            one.kill()
    process.wait()
    end = time.monotonic() + _PATIENCE_S
    while any(_lives(one) for one in stopped) and time.monotonic() < end:
        time.sleep(0.01)
    return seconds


def _lives(process: psutil.Process) -> bool:
    """Whether it still runs; one that has ended may stay listed until somebody asks how."""
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class LocalFederation:
    """Server, sites and lead of one engine below one directory; a context manager that leaves no process behind.

    Kits and logs in `root` stay; `seconds_used` are processor seconds of the processes that were ended.
    """

    def __init__(self, engine: Engine, sites: tuple[str, ...], root: Path, name: str = "try") -> None:
        try:
            import psutil  # noqa: F401
        except ImportError:
            raise MissingExtra("psutil", "nvflare") from None
        port, admin_port = free_ports(2)
        self.plan = FederationPlan(name, LOOPBACK, tuple(sites), port, admin_port)
        self.root = Path(root)
        self.kits: Mapping[str, Path] = engine.make_kits(self.plan, self.root)
        self.seconds_used = 0.0
        self._engine = engine
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # Engines keep notes in the home directory and leave temporary files when they are killed: all of it stays below.
        self._places = {"HOME": self.root / "home", "TMPDIR": self.root / "tmp"}
        for place in (self.root / "logs", *self._places.values()):
            place.mkdir(mode=0o700)

    @property
    def lead_kit(self) -> Path:
        """The kit of who submits studies."""
        return self.kits[self.plan.admin]

    def log(self, name: str) -> Path:
        """Return where a participant's output goes."""
        return self.root / "logs" / f"{name}.log"

    def __enter__(self) -> LocalFederation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and every site."""
        self.run(LOOPBACK, self._engine.server_process(self.kits[LOOPBACK]))
        for site in self.plan.sites:
            self.run(site, self._engine.site_process(self.kits[site]))

    def run(self, name: str, process: Process) -> None:
        """Run something that ends with the federation; its output goes to its log."""
        environment = {**process.environment, **{name: str(place) for name, place in self._places.items()}}
        with open(self.log(name), "ab") as log:
            self._processes[name] = subprocess.Popen(
                list(process.command),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C at the terminal is for us, who then end them in order.
                start_new_session=True,
                umask=0o077,
            )

    def wait_until_up(
        self, timeout_s: float = 180.0, arrived: Callable[[str], None] = lambda site: None
    ) -> None:
        """Wait until the server answers and every site is connected; `arrived` hears of each site once."""
        end = time.monotonic() + timeout_s
        while not self._answers():
            self._check(end, LOOPBACK, "the server does not answer")
        awaited = set(self.plan.sites)
        session: Session | None = None
        with contextlib.ExitStack() as open_sessions:
            while awaited:
                try:
                    session = session or open_sessions.enter_context(self._engine.session(self.lead_kit))
                    here = awaited.intersection(session.sites())
                except FederationError:
                    # The port is open before the server knows its people.
                    session, here = None, set()
                for site in sorted(here):
                    arrived(site)
                awaited -= here
                if awaited:
                    self._check(
                        end, min(awaited), f"{', '.join(sorted(awaited))} did not connect to the server"
                    )

    def _check(self, end: float, name: str, sentence: str) -> None:
        """Wait a moment, or say what is missing when time is up."""
        if time.monotonic() < end:
            time.sleep(_PAUSE_S)
            return
        lines = self.log(name).read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "there is none")
        raise NotEnoughSites(f"{sentence} in time; the last line of the log of {name}: {last}")

    def _answers(self) -> bool:
        ports = (self.plan.port, self.plan.admin_port)
        with contextlib.suppress(OSError):
            for port in ports:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        return False

    def stop(self) -> None:
        """End every process, with whatever it started."""
        for name in list(self._processes):
            self.seconds_used += end_with_all_it_started(self._processes[name])
            del self._processes[name]
