"""The consoles of an owner and of a lead beside real processes: a study waits, is approved by a button, and is watched."""

import contextlib
import html
import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

pytest.importorskip("nvflare")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
from feddbn.federation.protocol.study import Study
from support.study_files import ABOUT
from support.trials import SITES

pytestmark = pytest.mark.usefixtures("light")

VARIABLES = ("x0", "x1", "x2", "x3")


class Browser:
    """A console that was started as people start it, and somebody who opens the address it prints."""

    def __init__(self, federation, *command):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "feddbn", *map(str, command), "--port", "0"],
            env=federation.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())

    def open(self):
        address = self._process.stdout.readline().removeprefix("Open ").strip()
        with self._opener.open(address, timeout=30) as first:
            self._root = first.url.rstrip("/")

    def get(self, path):
        with self._opener.open(self._root + path, timeout=60) as answer:
            return html.unescape(answer.read().decode())

    def press(self, path, **fields):
        key = re.search(
            r'name="form" value="([^"]+)"',
            self.get("/studies" if "/studies" in path else path.rsplit("/", 1)[0]),
        )
        body = urllib.parse.urlencode({"form": key[1], **fields}).encode()
        with self._opener.open(self._root + path, body, timeout=120) as answer:
            return html.unescape(answer.read().decode())

    def wait_for(self, path, pattern, timeout_s=120):
        end, text = time.monotonic() + timeout_s, ""
        while time.monotonic() < end:
            with contextlib.suppress(urllib.error.HTTPError):
                text = self.get(path)
                if found := re.search(pattern, text):
                    return found
            time.sleep(0.3)
        raise AssertionError(f"{pattern!r} did not come: {re.sub('<[^>]+>', ' ', text)[-1500:]}")

    def close(self):
        self._process.send_signal(signal.SIGINT)
        try:
            return self._process.wait(20)
        finally:
            self._process.kill()
            self._process.stdout.close()


@pytest.fixture
def consoles(federation):
    with contextlib.ExitStack() as stack:

        def start(*command):
            console = Browser(federation, *command)
            stack.callback(console.close)
            return console

        yield start


@pytest.fixture
def by_hand(federation):
    """At one site the owner decides."""
    path = federation.kits["site-a"] / "local" / "policy.toml"
    before = path.read_text()
    path.write_text(before.replace("approve_by_rule = true", "approve_by_rule = false"))
    yield
    path.write_text(before)


def test_an_owner_approves_what_came_by_itself_and_its_lead_watches_it(federation, consoles, by_hand):
    study = Study(
        name="watched",
        about=ABOUT,
        method="fdbnl",
        lead="lead@example.org",
        variables=VARIABLES,
        sites=SITES,
        # More rounds than it needs, so that there is something to watch.
        parameters={
            "n_lags": 1,
            "schedule": "rounds",
            "rounds.max_rounds": 150,
            "rounds.tol": 1e-15,
            "rounds.h_tol": 1e-15,
        },
        attendance={"timeout_s": 60.0, "when_missing": "continue", "min_sites": 2},
    )
    lead = consoles("console", "--kit", federation.admin_kit)
    owner = consoles("console", "--kit", federation.kits["site-a"])
    for console in (lead, owner):
        console.open()
    assert study.digest not in owner.get("/")
    # Refused by the one site whose owner decides; that is how it comes to the owner's page.
    federation.console.submit(study, "watched-1")
    owner.wait_for("/", rf"/studies/{study.digest}")
    page = owner.get(f"/studies/{study.digest}")
    assert "lead@example.org" in page
    assert "step.fdbnl" in page
    # Without that site the run goes on, or it has ended by now: both are said.
    lead.wait_for("/", r"watched-1")
    try:
        said = lead.press("/runs/watched-1/stop")
    except urllib.error.HTTPError as refusal:
        said = refusal.read().decode()
    assert re.search('data-code="(run-aborted|has-ended)"', said)

    approved = owner.press(f"/studies/{study.digest}/approve", runs="1", days="1")
    assert 'data-code="approval-given"' in approved
    job = federation.console.submit(study, "watched-2")
    owner.wait_for("/", r'data-run="watched-2"')
    # What a run says about itself stays until its job has ended, seconds after its last sum.
    lead.wait_for("/runs/watched-2", r"round \d+ of at most 150(?s:.*)site-a, site-b, site-c")
    assert federation.console.wait(job, 120.0).endswith("COMPLETED")
    lead.wait_for("/runs/watched-2", r'data-code="job-finished"')
    watched = json.loads(lead.get("/runs/watched-2/course"))
    assert 'data-code="run-fetched"' in lead.press("/runs/watched-2/fetch")
    whole = json.loads(lead.get("/runs/watched-2/course"))
    objective = {curve["name"]: curve for curve in whole["curves"]}["objective"]
    assert len(objective["sums"]) > 20
    # What was watched are points of what was fetched.
    seen = {curve["name"]: curve for curve in watched["curves"]}["objective"]
    assert set(zip(seen["sums"], seen["values"], strict=True)) <= set(
        zip(objective["sums"], objective["values"], strict=True)
    )
    assert "/runs/watched-2/report" in lead.get("/runs/watched-2")
    assert lead.get("/").count('data-code="site-here"') == 4
    # The owner's page has what left; nothing runs any more, and the result is there.
    assert "data-run=" not in owner.get("/")
    assert "step.fdbnl" in owner.get("/log?run=watched-2")
    assert 'data-code="networks-not-compared"' in owner.get("/results/watched-2")
    assert 'data-wrong="0"' in owner.get("/data")
    assert owner.close() == 0
