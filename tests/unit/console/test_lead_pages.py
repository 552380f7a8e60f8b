import json

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("starlette")
from feddbn.console.gate import Gate, Keys
from feddbn.console.lead_pages import lead_app
from support.console_kits import (
    HOST,
    SCRIPT,
    FakeSession,
    SiteKits,
    codes,
    entered,
    press,
    wait_until,
    watching,
)
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
    page = client.get("/")
    told = codes(page)
    assert {"run-asks", "not-in-last-sum", "site-here", "site-away", "text"} <= set(told)
    assert 'width="30.00"' in page.text
    assert "<script>alert" not in page.text
    session.connected = ["north"]
    wait_until(lambda: watch.look().connected == ("north",))
    assert codes(client.get("/")).count("site-silent") == 2
    assert "north, south, east" in client.get("/runs/run-1").text
    course = client.get("/runs/run-1/course").json()
    assert course == {"curves": [], "ended": False}


def test_a_result_is_fetched_and_its_report_opened(session, opened):
    client, keys, _ = opened
    session.add("run-1", "FINISHED:COMPLETED")
    seen(opened, "run-1")
    assert "/runs/run-1/report" not in client.get("/runs/run-1").text
    assert client.get("/runs/run-1/report").status_code == 400
    answer = press(client, keys, "/runs/run-1/fetch")
    assert codes(answer)[0] == "run-fetched"
    assert "/runs/run-1/report" in answer.text
    assert (session.kit / "results" / "run-1" / "dbn.json").exists()
    report = client.get("/runs/run-1/report")
    assert "<svg" in report.text
    assert report.headers["content-security-policy"].startswith("sandbox")
    assert client.get("/runs/run-1/course").json()["ended"] is True


def test_a_run_that_stopped_says_why_once_it_was_fetched(session, opened):
    client, keys, _ = opened
    outcome = {"state": "stopped", "sentence": "the handshake has 2 of the 3 sites it needs; missing: west."}
    session.fetched = {"outcome.json": json.dumps(outcome).encode()}
    session.add("run-2", "FINISHED:EXECUTION_EXCEPTION")
    seen(opened, "run-2")
    answer = press(client, keys, "/runs/run-2/fetch")
    assert codes(answer)[:2] == ["run-unfinished", "text"]
    assert outcome["sentence"] in answer.text
    assert "/runs/run-2/report" not in answer.text


def test_a_run_is_stopped_by_its_button_and_an_ended_one_is_not(session, opened):
    client, keys, watch = opened
    session.add("run-3")
    seen(opened, "run-3")
    assert "/runs/run-3/stop" in client.get("/runs/run-3").text
    press(client, keys, "/runs/run-3/stop")
    assert session.aborted == ["job-run-3"]
    session.add("run-3", "FINISHED:ABORTED", was_stopped=True)
    wait_until(lambda: watch.look().job_of("run-3").has_ended)
    assert codes(press(client, keys, "/runs/run-3/stop"), 400) == ["has-ended"]
    assert press(client, keys, "/runs/run-3/fetch").status_code == 200
    session.add("run-4")
    seen(opened, "run-4")
    assert codes(press(client, keys, "/runs/run-4/fetch"), 400) == ["not-ended"]


def test_unknown_runs_and_names_that_are_none(opened):
    client, _, _ = opened
    assert client.get("/runs/none").status_code == 404
    assert client.get("/runs/..%2f..%2fetc").status_code in (400, 404)
    assert client.get("/runs/%3Cscript%3E").status_code == 400


def test_a_server_that_cannot_be_reached_is_said(session, opened):
    client, _, watch = opened
    session.down = "the server server:8003 cannot be reached."
    wait_until(lambda: watch.look().trouble)
    page = client.get("/")
    assert session.down in page.text
    assert set(codes(page)) == {"site-unknown"}
