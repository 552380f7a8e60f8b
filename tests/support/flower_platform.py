"""Flower on this machine: a SuperLink, our nodes, and a ServerApp that carries what a test sends."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from feddbn.runtime.engines.local import free_ports
from support.bridge import PLACE, Bridge

TESTS = Path(__file__).parents[1]
VERSION = "1.41.0"
# Flower's tight pins beside what is installed here; nothing else is changed.
_BESIDE = (
    f"flwr=={VERSION}",
    "alembic>=1.18.1,<2",
    "fastapi>=0.138,<0.139",
    "grpcio-health-checking>=1.70,<1.82",
    "iterators==0.0.2",
    "mako",
    "tomli<3",
    "tomli-w<2",
    "python-dotenv",
    "protobuf>=5.28,<7",
    "starlette>=1.3.1,<1.4",
    "typer>=0.13,<0.21",
    "uvicorn>=0.49,<0.50",
    "rich>=14,<15",
)
_APP = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "trial"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "trial"
[tool.flwr.app.components]
serverapp = "trial.server:app"
clientapp = "trial.client:app"
"""
_SERVER = """
from flwr.serverapp import ServerApp
from feddbn.adapters.flower_server import GridExchange
from support.bridge import serve
app = ServerApp()
@app.main()
def main(grid, context):
    serve(GridExchange(grid, 20.0))
"""
_CLIENT = """
import os
from pathlib import Path
Path(os.environ["FEDDBN_TEST_MARK"]).write_text("code from the server has run")
from flwr.clientapp import ClientApp
app = ClientApp()
"""


def overlay() -> Path:
    """A folder with Flower, kept for the next time."""
    place = Path(tempfile.gettempdir()) / f"feddbn-flwr-{VERSION}"
    if not (place / "flwr").is_dir():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", f"{place}.new"]
        done = subprocess.run([*command, *_BESIDE], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"flwr {VERSION} cannot be installed here: {done.stderr.strip().splitlines()[-1:]}")
        shutil.rmtree(place, ignore_errors=True)
        os.rename(f"{place}.new", place)
    return place


class Flower:
    """A SuperLink; `node` starts one of ours, `supernode` one of Flower's, `run` an app whose client code leaves a mark."""

    def __init__(self, root: Path) -> None:
        self.root, self.mark, self.processes = root, root / "mark", []
        root.mkdir(parents=True)
        place = overlay()
        path = [str(place), *[one for one in sys.path if one], str(TESTS)]
        self.port, self._more = free_ports(2)
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(root),
            "FLWR_HOME": str(root / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
            "FEDDBN_TEST_MARK": str(self.mark),
            PLACE: str(root / "bridge"),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        (root / "flwr").mkdir()
        here = f'address = "127.0.0.1:{self.port}"\ninsecure = true\n'
        (root / "flwr" / "config.toml").write_text(f'[superlink]\ndefault = "here"\n[superlink.here]\n{here}')
        where = ["--insecure", "--host", "127.0.0.1", "--port", str(self.port)]
        self._start("superlink", ["flower-superlink", *where, "--disable-runtime-dependency-installation"])

    def _start(self, name, command):
        with open(self.root / f"{name}.log", "ab") as log:
            more = {"cwd": self.root, "start_new_session": True}
            made = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, **more)
        self.processes.append(made)
        return made

    def wait(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.1)
        raise TimeoutError((self.root / "superlink.log").read_text()[-2000:])

    def node(self, name, folder):
        command = [sys.executable, "-m", "feddbn.adapters.flower", str(folder), f"127.0.0.1:{self.port}"]
        return self._start(name, [*command, "--insecure"])

    def supernode(self):
        where = ["--superlink", f"127.0.0.1:{self.port}", "--port", str(self._more)]
        return self._start("supernode", ["flower-supernode", "--insecure", *where])

    def run(self):
        """Send the trial app."""
        app = self.root / "app"
        (app / "trial").mkdir(parents=True)
        (app / "pyproject.toml").write_text(_APP)
        for name, text in (("__init__", ""), ("server", _SERVER), ("client", _CLIENT)):
            (app / "trial" / f"{name}.py").write_text(text)
        return self._start("run", ["flwr", "run", str(app), "here"])

    def close(self):
        for process in reversed(self.processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


@contextlib.contextmanager
def carried(root: Path, sites):
    """The exchange of a ServerApp to our nodes for these sites (name -> folder)."""
    with Flower(root) as flower:
        flower.wait()
        for name, folder in sites.items():
            flower.node(name, folder)
        with Bridge(root / "bridge", lambda environment: [flower.run()]) as exchange:
            yield flower, exchange
