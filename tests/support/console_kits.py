"""Kits, sessions and running consoles for tests of the console, without an engine's processes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from feddbn.cli.submit import check_study
from feddbn.console.gate import Gate, Keys
from feddbn.console.lead_pages import lead_app
from feddbn.console.lead_watch import LeadWatch
from feddbn.console.site_pages import site_app
from feddbn.errors import FederationError
from feddbn.federation.protocol.study import Study
from feddbn.runtime.deployed.kit_files import write_site_files
from feddbn.runtime.deployed.open_site import open_site
from feddbn.runtime.deployed.owner import Owner
from feddbn.runtime.deployed.settings import read_site_settings
from feddbn.runtime.engines.interface import Job, Session
from support.faults import LocalExchange, MemoryJournal
from support.owned_sites import NAMES, ONE_SUM

SCRIPT = "<script>alert(1)</script>"
HOST = "127.0.0.1:8764"
NOW = 1_700_000_000.0


class SiteKits:
    """Three sites as their owners have them, in the layout of kits."""

    def __init__(self, place: Path, n_rows: int = 60) -> None:
        self.place = Path(place)
        rng = np.random.default_rng(0)
        for name in NAMES:
            (self.place / name / "local").mkdir(parents=True)
            (self.place / name / "data").mkdir()
            u = rng.normal(size=n_rows)
            frame = pd.DataFrame({"u": u, "v": 0.8 * u + rng.normal(size=n_rows)})
            frame.to_csv(self.place / name / "data" / "one.csv", index=False)
        write_site_files({name: self.place / name / "local" for name in NAMES}, above="../")

    def kit(self, name="north"):
        return self.place / name

    def settings(self, name="north"):
        return read_site_settings(self.kit(name) / "local" / "feddbn_site.toml")

    def owner(self, name="north"):
        return Owner(self.settings(name))

    def policy(self, text, name="north"):
        (self.kit(name) / "local" / "policy.toml").write_text(text)

    def exchange(self, submitter="lead@example.org"):
        import logging

        def make(name):
            return open_site(self.settings(name), name, logging.getLogger("test"), submitter)

        return LocalExchange(NAMES, make)

    def run(self, study, run_id="run-1"):
        """Run a study that everybody has approved; one that nobody has is refused by all."""
        from feddbn.runtime.deployed.coordinator import Coordinator, run_study

        coordinator = Coordinator(self.exchange(), study, run_id, MemoryJournal(), pause_s=0.0, opening_s=0.0)
        return run_study(coordinator, study)

    def approve(self, study, **more):
        for name in NAMES:
            self.owner(name).approve(study, more.get("days", 30.0), more.get("runs", 1), more.get("epsilon"))

    def app(self, keys, name="north"):
        return site_app(self.kit(name), check_study, keys)


def study(**changes) -> Study:
    values: dict[str, Any] = {
        "name": "sepsis",
        "method": "oneshot",
        "lead": "lead@example.org",
        "variables": ("u", "v"),
        "sites": NAMES,
        "parameters": ONE_SUM,
        "privacy": {"secure_aggregation": True},
        "attendance": {"when_missing": "abort"},
    }
    return Study(**{**values, **changes})


class FakeSession(Session):
    """A federation that stands as a test says; `fetched` are the files of every result."""

    def __init__(self, kit: Path, fetched: dict[str, bytes] | None = None) -> None:
        super().__init__(kit)
        self.connected = ["north", "south", "west"]
        self.listed: list[Job] = []
        self.said: dict[str, dict[str, Any]] = {}
        self.fetched = fetched or {}
        self.aborted: list[str] = []
        self.down = ""
        self.threads: set[int] = set()

    def __enter__(self):
        self._ask()
        return self

    def __exit__(self, *error):
        return None

    def _ask(self):
        self.threads.add(threading.get_ident())
        if self.down:
            raise FederationError(self.down)

    def sites(self):
        self._ask()
        return list(self.connected)

    def jobs(self):
        self._ask()
        return list(self.listed)

    def submit(self, study, run_id):
        raise NotImplementedError

    def progress(self, job_id):
        return self.said.get(job_id)

    def wait(self, job_id, watch=None):
        raise NotImplementedError

    def abort(self, job_id):
        self._ask()
        self.aborted.append(job_id)

    def fetch(self, job_id, out):
        self._ask()
        out.mkdir(parents=True, exist_ok=True)
        for name, content in self.fetched.items():
            (out / name).write_bytes(content)
        return out

    def remember(self, study, run_id):
        path = self._memory(run_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(study.to_json())

    def add(self, run, status="RUNNING", submitted="2026-11-16T10:32:00Z", **more):
        ended = status.startswith("FINISHED")
        said = {"RUNNING": "running", "FINISHED:COMPLETED": "finished"}.get(status, status.lower())
        job = Job(
            run, f"job-{run}", status, submitted, "", status == "RUNNING", ended, **{"said": said, **more}
        )
        self.listed = [job, *(old for old in self.listed if old.run != run)]
        return job


@contextlib.contextmanager
def watching(session, poll_s=0.02) -> Iterator[LeadWatch]:
    watch = LeadWatch(session, poll_s).start()
    try:
        yield watch
    finally:
        watch.stop()


def wait_until(true, timeout_s=10.0):
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextlib.contextmanager
def served(make) -> Iterator[tuple[str, Keys]]:
    """A console at a real port, in a thread: the address to open, and its secrets."""
    import uvicorn

    from feddbn.console.serve import _bound

    keys = Keys()
    listening = _bound("127.0.0.1", 0)
    host = f"127.0.0.1:{listening.getsockname()[1]}"
    gate = Gate(make(keys), keys, {host})
    config = uvicorn.Config(
        gate, http="h11", ws="none", lifespan="off", access_log=False, log_level="warning"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield keys.address(host), keys
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()


def lead(session, watch, out):
    return lambda keys: lead_app(session, watch, out, keys)
