import html
import json

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("starlette")
from feddbn.console.gate import Gate, Keys
from feddbn.console.lead_pages import lead_app
from support.console_kits import HOST, SCRIPT, FakeSession, SiteKits, entered, press, wait_until, watching
from support.owned_sites import make_study


@pytest.fixture(scope="module")
def fetched(tmp_path_factory):
    """The files that a server keeps of a finished run."""
    kits = SiteKits(tmp_path_factory.mktemp("kits"))
    study = make_study(name="sepsis")
    kits.approve(study)
    result, received = kits.run(study)
    outcome = {
        "run": "run-1",
        "study": json.loads(study.to_json()),
        "state": "finished",
        "received": list(received),
        "summary": dict(result.summary),
    }
    return {"outcome.json": json.dumps(outcome, default=str).encode(), "result.feddbn": result.to_bytes()}


@pytest.fixture
def session(tmp_path, fetched):
    return FakeSession(tmp_path / "lead@example.org", fetched)


@pytest.fixture
def opened(session):
    keys = Keys()
    with watching(session) as watch:
        wait_until(lambda: watch.look().taken)
        app = lead_app(session, watch, session.kit / "results", keys)
        yield entered(Gate(app, keys, {HOST}), keys), keys, watch


def seen(opened, run):
    wait_until(lambda: opened[2].look().job_of(run) is not None)


def test_sites_and_runs_of_a_federation(session, opened):
    client, _, watch = opened
    session.remember(make_study(name="sepsis", sites=("north", "south", "east")), "run-1")
    session.add("run-1")
    session.said["job-run-1"] = {
        "sums": 3,
        "present": ["north"],
        "task": "moments",
        "note": {"round": 3, "max_rounds": 10},
        "last": f"site {SCRIPT} is late.",
    }
    wait_until(lambda: "run-1" in watch.look().progress)
    text = client.get("/").text
    page = html.unescape(text)
    assert "running; asks for moments" in page
    assert "round 3 of at most 10" in page
    assert "not in the last sum: south, east (not connected)." in page
    assert "has never been connected" in page
    assert "<script>alert" not in text
    session.connected = ["north"]
    wait_until(lambda: watch.look().connected == ("north",))
    assert "silent since" in client.get("/").text
    page = html.unescape(client.get("/runs/run-1").text)
    assert "north, south, east" in page
    course = client.get("/runs/run-1/course").json()
    assert course == {"curves": [], "ended": False}


def test_a_result_is_fetched_and_its_report_opened(session, opened):
    client, keys, _ = opened
    session.add("run-1", "FINISHED:COMPLETED")
    seen(opened, "run-1")
    assert "It has not been fetched." in client.get("/runs/run-1").text
    assert client.get("/runs/run-1/report").status_code == 400
    answer = press(client, keys, "/runs/run-1/fetch")
    assert "The result of run-1 was fetched." in answer.text
    assert "Open the report" in answer.text
    assert (session.kit / "results" / "run-1" / "dbn.json").exists()
    report = client.get("/runs/run-1/report")
    assert "Dynamic Bayesian network report" in report.text
    assert report.headers["content-security-policy"].startswith("sandbox")
    assert client.get("/runs/run-1/course").json()["ended"] is True


def test_a_run_that_stopped_says_why_once_it_was_fetched(session, opened):
    client, keys, _ = opened
    outcome = {"state": "stopped", "sentence": "the handshake has 2 of the 3 sites it needs; missing: west."}
    session.fetched = {"outcome.json": json.dumps(outcome).encode()}
    session.add("run-2", "FINISHED:EXECUTION_EXCEPTION")
    seen(opened, "run-2")
    answer = press(client, keys, "/runs/run-2/fetch")
    assert "Stopped: the handshake has 2 of the 3 sites it needs; missing: west." in answer.text
    assert "Open the report" not in answer.text


def test_a_run_is_stopped_by_its_button_and_an_ended_one_is_not(session, opened):
    client, keys, watch = opened
    session.add("run-3")
    seen(opened, "run-3")
    assert "Stop this run" in client.get("/runs/run-3").text
    press(client, keys, "/runs/run-3/stop")
    assert session.aborted == ["job-run-3"]
    session.add("run-3", "FINISHED:ABORTED", was_stopped=True)
    wait_until(lambda: watch.look().job_of("run-3").has_ended)
    assert press(client, keys, "/runs/run-3/stop").status_code == 400
    assert press(client, keys, "/runs/run-3/fetch").status_code == 200
    session.add("run-4")
    seen(opened, "run-4")
    assert press(client, keys, "/runs/run-4/fetch").status_code == 400


def test_unknown_runs_and_names_that_are_none(opened):
    client, _, _ = opened
    assert client.get("/runs/none").status_code == 404
    assert client.get("/runs/..%2f..%2fetc").status_code in (400, 404)
    assert client.get("/runs/%3Cscript%3E").status_code == 400


def test_a_server_that_cannot_be_reached_is_said(session, opened):
    client, _, watch = opened
    session.down = "the server server:8003 cannot be reached."
    wait_until(lambda: watch.look().trouble)
    page = client.get("/").text
    assert "The server cannot be asked: the server server:8003 cannot be reached." in page
    assert "not known; connected" in page
