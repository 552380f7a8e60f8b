"""Real NVFlare processes on loopback for tests, soak runs and benchmarks."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from feddbn.errors import FederationError
from feddbn.runtime.engines.interface import FederationPlan
from feddbn.runtime.engines.local import free_ports
from feddbn.runtime.engines.nvflare.components import process_name
from feddbn.runtime.engines.nvflare.kit import make_kits, start_command, start_environment

TESTS = Path(__file__).parents[1]
SERVER = "localhost"
POLICY = """
methods = ["FDBNL", "PFDBNL", "OneShotDBN", "walk"]
tasks = [
  "survey.*", "agree", "gram.pairs", "gram.diagonal", "gram.rows", "gram.resamples", "residuals.shapes", "residuals.checks",
  "step.fdbnl", "step.personal", "step.finish", "walk",
]
features = ["linear"]
min_sites = 2
require_masking = false
max_rounds = 1000
approve_by_rule = true
"""


def children(pid):
    """All descendants of a process, from /proc."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found, todo = [], [pid]
    while todo:
        parent = todo.pop()
        below = [child for child, above in parents.items() if above == parent]
        found += below
        todo += below
    return found


def command_of(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def runs_job(pid, job=""):
    """Whether a process runs a job (this one): a fork has a name of its own, a fresh interpreter a telling command."""
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/comm").read_text().startswith(process_name(job)):
            return True
    command = command_of(pid)
    return job in command and bool(re.search(r"-m nvflare\S+\.(worker|runner)_process ", command))


class RemoteConsole:
    """The calls of `Console`, made in another process."""

    def __init__(self, kit, environment):
        self._process = subprocess.Popen(
            [sys.executable, str(TESTS / "support" / "nvflare_console.py")],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            self._call("open", str(kit))
        except BaseException:
            self.close()
            raise

    def _call(self, name, *arguments):
        self._process.stdin.write(json.dumps({"call": name, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("@"):
                reply = json.loads(line[1:])
                if "error" in reply:
                    raise FederationError(reply["error"])
                return reply["answer"]
        raise FederationError("the console process ended")

    def submit(self, study, run_id):
        return self._call("submit", study.to_json(), run_id)

    def submit_job(self, job):
        return self._call("submit_job", str(job))

    def sites(self):
        return self._call("sites")

    def progress(self, job):
        return self._call("progress", job)

    def abort(self, job):
        return self._call("abort", job)

    def wait(self, job, timeout_s=600.0):
        return self._call("wait", job, None, timeout_s)

    def fetch(self, job, out):
        return Path(self._call("fetch", job, str(out)))

    def close(self):
        """Log out; a server keeps half a megabyte for every session that just vanishes."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._process.stdin.close()
            self._process.wait(20)
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


class NVFlareFederation:
    """Provisioned kits below `root` and the processes that run them."""

    def __init__(self, root, frames, programs=(), settings="", max_jobs=5):
        sites = tuple(frames)
        self.root = Path(root)
        self._console = None
        home = self.root / "home"
        home.mkdir(parents=True, exist_ok=True)
        port, admin_port = free_ports(2)
        self.plan = FederationPlan("demo", SERVER, tuple(sites), port, admin_port, "lead@example.org")
        self.environment = {
            **start_environment(),
            # How long a job is held open for a site that has died in it.
            "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "5",
            # Sites of a "walk" study dawdle until this file exists, so that a test can act in its middle.
            "FEDDBN_TEST_QUICK": str(self.root / "quick"),
            "HOME": str(home),
            "PYTHONPATH": os.pathsep.join([*[p for p in sys.path if p], str(TESTS)]),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self.kits = make_kits(self.plan, self.root / "federation")
        at_site = ", ".join(f'"{p}"' for p in ("feddbn.federation.programs", *programs))
        at_server = ", ".join(f'"{p}"' for p in ("feddbn.analysis.studies", *programs))
        for site, frame in frames.items():
            kit = self.kits[site]
            frame.to_csv(kit / "data.csv", index=False)
            lines = [
                f'name = "{site}"',
                'data = "../data.csv"',
                'state = "../state"',
                f"programs = [{at_site}]",
            ]
            lines += ['policy = "policy.toml"', 'identity = "identity.key"', 'peers = "peers.toml"']
            (kit / "local" / "policy.toml").write_text(POLICY)
            (kit / "local" / "feddbn_site.toml").write_text("\n".join([*lines, settings, ""]))
        path = self.kits[SERVER] / "local" / "resources.json"
        path.write_text(path.read_text().replace('"max_jobs": 4', f'"max_jobs": {max_jobs}'))
        text = f'runs = "../runs"\nprograms = [{at_server}]\n'
        (self.kits[SERVER] / "local" / "feddbn_server.toml").write_text(text)
        self.processes = {}

    @property
    def admin_kit(self):
        return self.kits[self.plan.admin]

    @property
    def runs(self):
        return self.kits[SERVER] / "runs"

    def data(self):
        """The sites' files, for a reference run in this process."""
        return {site: self.kits[site] / "data.csv" for site in self.plan.sites}

    def state(self, site):
        return self.kits[site] / "state"

    def start(self, *names):
        for name in names or (SERVER, *self.plan.sites):
            log = open(self.root / f"{name}.log", "ab")  # noqa: SIM115
            self.processes[name] = subprocess.Popen(
                start_command(self.kits[name]),
                env={**self.environment, "FEDDBN_TEST_SITE": name},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            log.close()

    def revive(self):
        """Start what was killed and is still away: a test that failed half-way must not fail those after it."""
        away = [name for name in (SERVER, *self.plan.sites) if name not in self.processes]
        if away:
            self.start(*away)
            self.wait_until_up()

    def terminal(self, name):
        """What a person at this machine saw."""
        return (self.root / f"{name}.log").read_text(errors="replace")

    def log(self, name):
        """All that was said, by the engine, too."""
        written = self.kits[name] / "log.txt"
        return self.terminal(name) + (written.read_text(errors="replace") if written.exists() else "")

    @property
    def console(self):
        """The lead's session, opened when it is first needed: its process takes seconds to start."""
        if self._console is None:
            self._console = RemoteConsole(self.admin_kit, self.environment)
        return self._console

    def hang_up(self):
        if self._console is not None:
            self._console.close()
            self._console = None

    def wait_until_up(self, timeout_s=240):
        """Wait until the server and every site can be used; generous, for machines that are busy."""
        wanted = sorted(self.plan.sites)
        end = time.monotonic() + timeout_s
        while not self._listens():
            if time.monotonic() > end:
                raise TimeoutError(f"the server did not come up: {self.log(SERVER)[-2000:]}")
            time.sleep(0.1)
        said = ""
        while time.monotonic() < end:
            try:
                if sorted(self.console.sites()) == wanted:
                    return
            except FederationError as error:
                said = str(error)
                self.hang_up()
            time.sleep(0.2)
        raise TimeoutError(f"{wanted} did not come up; see {self.root}; {said}")

    def _listens(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.plan.admin_port), 5):
            return True
        return False

    def slow_down(self):
        """Let sites of "walk" studies take their `pause_s` from now on."""
        (self.root / "quick").unlink(missing_ok=True)

    def hurry(self):
        """Let them go on without pauses."""
        (self.root / "quick").touch()

    def kill(self, name, sig=signal.SIGKILL):
        """Kill a participant with everything it started."""
        process = self.processes.pop(name, None)
        if process is None:
            return
        if name == SERVER:
            self.hang_up()
        for pid in [*children(process.pid), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)
        process.wait()

    def job_processes(self, name, job=""):
        """Process ids of the jobs a participant runs, or of one job."""
        return [pid for pid in children(self.processes[name].pid) if runs_job(pid, job)]

    def warm_process(self, name):
        """Id of the process that a participant's jobs are forked from."""
        (found,) = [
            pid
            for pid in children(self.processes[name].pid)
            if "feddbn.runtime.server.warm_start" in command_of(pid) and not runs_job(pid)
        ]
        return found

    def stop(self):
        self.hang_up()
        for name in list(self.processes):
            self.kill(name)

    def __enter__(self):
        try:
            self.start()
            self.wait_until_up()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error):
        self.stop()
