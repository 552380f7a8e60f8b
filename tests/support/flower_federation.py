"""Real Flower processes on loopback, TLS and registered site keys, for tests and benchmarks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from feddbn.runtime.deployed.site_socket import SOCKET_NAME
from feddbn.runtime.engines.flower.kit import make_flower_kits, write_flower_app
from feddbn.runtime.engines.flower.names import OUTCOME_MARK
from feddbn.runtime.engines.plan import FederationPlan
from support.nvflare_federation import POLICY, TESTS, children, free_ports

SERVER = "localhost"
SERVE = "import sys; from pathlib import Path; from feddbn.cli.site import serve; serve(Path(sys.argv[1]))"
BIN = Path(sys.executable).parent


class FlowerFederation:
    """A SuperLink and SuperNodes; `run` submits a study and returns its outcome."""

    def __init__(self, root, sites, frames):
        self.root = Path(root)
        self.sites = tuple(sites)
        self.kits = make_flower_kits(FederationPlan("demo", SERVER, self.sites), self.root)
        self.port, *self._node_ports = free_ports(1 + len(self.sites) + 1)
        for site in self.sites:
            frames[site].to_csv(self.kits[site] / "data.csv", index=False)
            lines = [f'name = "{site}"', 'data = "data.csv"', 'state = "state"', 'policy = "policy.toml"']
            lines += ['identity = "identity.key"', 'peers = "peers.toml"', ""]
            (self.kits[site] / "policy.toml").write_text(POLICY)
            (self.kits[site] / "feddbn_site.toml").write_text("\n".join(lines))
        (self.kits[SERVER] / "feddbn_server.toml").write_text('runs = "runs"\n')
        home = self.root / "home"
        (home / ".flwr").mkdir(parents=True)
        self.environment = {
            **os.environ,
            "HOME": str(home),
            "FLWR_HOME": str(home / ".flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
            "FEDDBN_SERVER_SETTINGS": str(self.kits[SERVER] / "feddbn_server.toml"),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([*[p for p in sys.path if p], str(TESTS)]),
            "OMP_NUM_THREADS": "1",
        }
        (home / ".flwr" / "config.toml").write_text(
            '[superlink]\ndefault = "here"\n[superlink.here]\n'
            f'address = "127.0.0.1:{self.port}"\nroot-certificates = "{self.kits[SERVER] / "ca.pem"}"\n'
        )
        self.processes = {}

    def _start(self, name, *command):
        with open(self.root / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def flwr(self, *arguments, timeout_s=180):
        command = [str(BIN / "flwr"), *arguments]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def start_node(self, site, key=None):
        kit = self.kits[site]
        port = self._node_ports[self.sites.index(site) if key is None else -1]
        self._start(
            site if key is None else f"{site}-stranger",
            str(BIN / "flower-supernode"),
            *("--root-certificates", str(kit / "ca.pem"), "--superlink", f"127.0.0.1:{self.port}"),
            *("--auth-supernode-private-key", str(key or kit / "site.key"), "--port", str(port)),
            *("--node-config", f'feddbn-site="{kit / "feddbn_site.toml"}"'),
        )

    def __enter__(self):
        try:
            self._start_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start_all(self):
        kit = self.kits[SERVER]
        self._start(
            SERVER,
            str(BIN / "flower-superlink"),
            *("--ssl-ca-certfile", str(kit / "ca.pem"), "--ssl-certfile", str(kit / "server.pem")),
            *("--ssl-keyfile", str(kit / "server.key"), "--enable-supernode-auth"),
            *("--disable-runtime-dependency-installation", "--database", str(kit / "state.db")),
            *("--host", "127.0.0.1", "--port", str(self.port)),
        )
        for site in self.sites:
            self._retry(
                "supernode", "register", str(self.kits[site] / "site.key.pub"), "here", "--name", site
            )
            self._start(
                f"{site}-served", sys.executable, "-c", SERVE, str(self.kits[site] / "feddbn_site.toml")
            )
            self.start_node(site)
        end = time.monotonic() + 240
        # A message that arrives before its site is served would be answered by a process that knows no masks.
        while not all((self.kits[site] / "state" / SOCKET_NAME).exists() for site in self.sites):
            if time.monotonic() > end:
                raise TimeoutError(f"the sites are not served; see {self.root}")
            time.sleep(0.1)
        while time.monotonic() < end:
            listed = self.flwr("supernode", "list", "here", "--format", "json").stdout
            if listed.count('"online"') == len(self.sites):
                return
            time.sleep(0.5)
        raise TimeoutError(f"the nodes did not come up; see {self.root}")

    def _retry(self, *arguments, timeout_s=240):
        end = time.monotonic() + timeout_s
        while True:
            done = self.flwr(*arguments)
            if done.returncode == 0:
                return
            if time.monotonic() > end:
                raise TimeoutError(done.stdout + done.stderr)
            time.sleep(0.5)

    def submit(self, study, run_id):
        """Start a run; the returned process ends with it."""
        app = write_flower_app(study, run_id, self.root / "apps")
        return subprocess.Popen(
            [str(BIN / "flwr"), "run", str(app), "here", "--stream"],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def outcome(self, submitted, timeout_s=600):
        text, _ = submitted.communicate(timeout=timeout_s)
        for line in text.splitlines():
            if OUTCOME_MARK in line:
                return json.loads(line.partition(OUTCOME_MARK)[2])
        raise AssertionError(text)

    def __exit__(self, *error):
        for process in self.processes.values():
            for pid in [*children(process.pid), process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
