"""Kits, sessions and running consoles for tests of the console, without an engine's processes."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from starlette.testclient import TestClient

from feddbn.cli.study import check_study
from feddbn.console.gate import Gate, Keys, bound, host_names, server_of
from feddbn.console.lead_pages import lead_app
from feddbn.console.lead_results import LeadResults
from feddbn.console.lead_watch import LeadWatch
from feddbn.console.site_pages import site_app
from feddbn.errors import FederationError, NotEnoughSites
from feddbn.runtime.engines.interface import Job, Presence, Session
from support.owned_sites import NAMES, OwnedSites, as_kits

SCRIPT = "<script>alert(1)</script>"
HOST = "127.0.0.1:8764"


class SiteKits(OwnedSites):
    """Three sites as their owners have them, in the layout of kits, with one true edge from u to v, a step later."""

    def __init__(self, place: Path, n_rows: int = 60) -> None:
        super().__init__(place)
        as_kits(place)
        rng = np.random.default_rng(0)
        for name in NAMES:
            u = rng.normal(size=n_rows)
            frame = pd.DataFrame({"u": u, "v": 0.8 * np.roll(u, 1) + rng.normal(size=n_rows)})
            frame.to_csv(self.place / name / "data" / "one.csv", index=False)

    def offer(self, study, run_id="offered", submitter="lead@example.org"):
        """Send a study that nobody has approved, as a lead would."""
        with pytest.raises(NotEnoughSites):
            self.run(study, run_id, self.exchange(submitter=submitter))

    def app(self, keys, name="north"):
        return site_app(self.place / name, check_study, keys)

    def client(self, name="north", **more):
        """The owner's browser, at the first page."""
        keys = Keys()
        return entered(Gate(self.app(keys, name), keys, {HOST}), keys, **more), keys


def entered(gate, keys, **more):
    """A client with the console's cookie; paths are below its room."""
    client = TestClient(gate, base_url=f"http://{HOST}", follow_redirects=True, **more)
    answer = client.get("/enter", params={"token": keys.token})
    assert answer.status_code == 200, answer.text
    client.base_url = f"http://{HOST}{keys.base}"
    return client


def codes(answer, status=200):
    """The codes of the findings that a page shows, in order."""
    assert answer.status_code == status, answer.text
    return re.findall(r'data-code="([^"]*)"', answer.text)


def press(client, keys, path, **fields):
    """Press a button of a form."""
    return client.post(path, data={"form": keys.form, **fields})


class FakeSession(Session):
    """A federation that stands as a test says; `fetched` are the files of every result."""

    def __init__(self, kit: Path, fetched: dict[str, bytes] | None = None) -> None:
        super().__init__(kit)
        self.kit.mkdir(parents=True, exist_ok=True)
        self.connected = ["north", "south", "west"]
        self.heard: dict[str, float] = {}
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

    def presence(self):
        self._ask()
        self.heard |= dict.fromkeys(self.connected, time.time())
        return [Presence(name, name in self.connected, when) for name, when in self.heard.items()]

    def jobs(self):
        self._ask()
        return list(self.listed)

    def submit(self, study, run_id):
        self._ask()
        return self.add(run_id).job

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
        code = {"RUNNING": "job-runs", "FINISHED:COMPLETED": "job-finished"}.get(status, "job-other")
        job = Job(run, f"job-{run}", status, submitted, "", status == "RUNNING", ended, code, **more)
        self.listed = [job, *(old for old in self.listed if old.run != run)]
        return job


@contextlib.contextmanager
def watching(session, poll_s=0.02) -> Iterator[LeadWatch]:
    watch = LeadWatch(session, results_of(session), poll_s).start()
    try:
        yield watch
    finally:
        watch.stop()


def wait_until(true, timeout_s=300.0):
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextlib.contextmanager
def served(make) -> Iterator[tuple[str, Keys]]:
    """A console at a real port, in a thread: the address to open, and its secrets."""
    keys = Keys()
    listening = bound("127.0.0.1", 0)
    names = host_names(listening)
    server = server_of(Gate(make(keys), keys, names))
    thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield keys.address(names[0]), keys
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()


def results_of(session):
    return LeadResults(session.kit / "results", session.kit)


def lead(session, watch):
    return lambda keys: lead_app(session, watch, results_of(session), check_study, keys)
