"""Kits and running consoles for tests of the owner's console."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from starlette.testclient import TestClient

from feddbn.cli.study import check_study
from feddbn.console.gate import Gate, Keys, bound, host_names, server_of
from feddbn.console.site_pages import site_app
from feddbn.errors import NotEnoughSites
from support.consortium import NAMES, Consortium, as_kits

SCRIPT = "<script>alert(1)</script>"
HOST = "127.0.0.1:8764"


class SiteKits(Consortium):
    """Three sites as their owners have them, in the layout of kits, with one true edge from u to v, a step later."""

    def __init__(self, place: Path, n_rows: int = 60) -> None:
        super().__init__(place)
        as_kits(place)
        rng = np.random.default_rng(0)
        for name in NAMES:
            u = rng.normal(size=n_rows)
            frame = pd.DataFrame({"u": u, "v": 0.8 * np.roll(u, 1) + rng.normal(size=n_rows)})
            frame.to_csv(self.place / name / "data" / "r000.csv", index=False)

    def offer(self, study, run_id="offered", submitter="lead@example.org"):
        """Send a study that nobody has approved, as a lead would."""
        with pytest.raises(NotEnoughSites):
            self.run(study, run_id, self.restart(submitter=submitter))

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
