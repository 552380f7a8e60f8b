import html
import json
import re
import time

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("starlette")
from feddbn.console.gate import Gate, Keys
from feddbn.federation.protocol.study import parse_study
from support.console_kits import (
    HOST,
    SCRIPT,
    FakeSession,
    SiteKits,
    codes,
    entered,
    lead,
    press,
    wait_until,
    watching,
)
from support.owned_sites import make_study
from support.study_files import ABOUT

pytestmark = pytest.mark.usefixtures("light")


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
        yield entered(Gate(lead(session, watch)(keys), keys, {HOST}), keys), keys, watch


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
    assert {"run-starts", "not-in-last-sum", "site-here", "site-away", "text"} <= set(told)
    assert 'width="30.00"' in page.text
    assert "<script>alert" not in page.text
    session.connected = ["north"]
    wait_until(lambda: watch.look().connected == ("north",))
    assert codes(client.get("/")).count("site-silent") == 2
    assert "north, south, east" in client.get("/runs/run-1").text
    course = client.get("/runs/run-1/course").json()
    assert course == {"curves": [], "ended": False}


def test_a_result_is_fetched_by_itself_and_its_report_opened(session, opened):
    client, keys, _ = opened
    session.add("run-1", "FINISHED:COMPLETED")
    seen(opened, "run-1")
    # A run of somebody else is fetched when this lead asks for it.
    assert "/runs/run-1/report" not in client.get("/runs/run-1").text
    assert client.get("/runs/run-1/report").status_code == 400
    answer = press(client, keys, "/runs/run-1/fetch")
    assert codes(answer)[0] == "run-fetched"
    assert "/runs/run-1/report" in answer.text
    session.remember(make_study(name="sepsis"), "run-2")
    session.add("run-2", "FINISHED:COMPLETED")
    seen(opened, "run-2")
    wait_until(lambda: "/runs/run-2/report" in client.get("/runs/run-2").text)
    assert (session.kit / "results" / "run-2" / "dbn.json").exists()
    report = client.get("/runs/run-2/report")
    assert "<svg" in report.text
    assert report.headers["content-security-policy"].startswith("sandbox")
    assert client.get("/runs/run-2/course").json()["ended"] is True
    # Both have a network now.
    page = client.get("/compare?first=run-1&second=run-2")
    assert codes(page) == ["networks-compared"]
    assert set(re.findall('data-where="([a-z]+)"', page.text)) == {"both"}
    assert codes(client.get("/compare?first=run-1&second=../run-2")) == []


def test_a_run_that_stopped_says_why_and_is_resumed(session, opened):
    client, keys, watch = opened
    refusal = {"sentence": f"site west refused: not for that purpose. {SCRIPT}", "code": "refused"}
    outcome = {"state": "stopped", "sentence": "the handshake has 2 of the 3 sites it needs; missing: west."}
    session.fetched = {"outcome.json": json.dumps({**outcome, "said": {"west": refusal}}).encode()}
    session.remember(make_study(name="sepsis"), "run-2")
    session.add("run-2", "FINISHED:EXECUTION_EXCEPTION")
    seen(opened, "run-2")
    wait_until(lambda: "site-refuses" in codes(client.get("/runs/run-2")))
    page = client.get("/runs/run-2")
    assert codes(page) == ["run-stopped", "site-refuses"]
    assert outcome["sentence"] in page.text
    assert "not for that purpose." in page.text
    assert SCRIPT not in page.text + client.get("/").text
    assert "/runs/run-2/report" not in page.text
    assert "/runs/run-2/resume" in page.text
    answer = press(client, keys, "/runs/run-2/resume")
    assert codes(answer)[:2] == ["run-resumed", "job-runs"]
    assert watch.look().job_of("run-2").is_running
    assert codes(press(client, keys, "/runs/run-2/resume"), 400) == ["goes-on"]
    # What is not there cannot be resumed with too few sites.
    session.connected = ["north"]
    session.add("run-2", "FINISHED:EXECUTION_EXCEPTION")
    wait_until(lambda: watch.look().job_of("run-2").has_ended)
    assert codes(press(client, keys, "/runs/run-2/resume"), 400) == ["sites-away"]


def test_times_are_those_of_this_place(session, opened, monkeypatch):
    client, _, _ = opened
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        session.add("run-1", submitted="2026-06-16T02:32:00Z")
        seen(opened, "run-1")
        assert "15 Jun 2026, 22:32 EDT" in client.get("/").text
    finally:
        monkeypatch.undo()
        time.tzset()


FIELDS = {
    "name": "sepsis",
    "lead": "lead@example.org",
    "method": "oneshot",
    "goal": "network",
    "n_lags": "1",
    "variables": "u = mmHg\n v ",
    "sites": ["north", "south"],
    "more_sites": "west",
    "masks": "yes",
    "min_sites": "3",
    "when_missing": "abort",
    **ABOUT,
}


def test_a_study_is_written_checked_and_sent(session, opened):
    client, keys, _watch = opened
    form = client.get("/write").text
    assert all(f'name="{name}"' in form for name in FIELDS)
    assert form.count('name="sites"') == 3
    page = press(client, keys, "/check", **FIELDS)
    assert codes(page)[0] == "study-possible"
    assert "plan-not-asked" in codes(page)
    text = shown_text(page)
    study = parse_study(text)
    assert (study.sites, study.variables, study.units) == (
        ("north", "south", "west"),
        ("u", "v"),
        {"u": "mmHg"},
    )
    assert study.privacy.secure_aggregation
    answer = press(client, keys, "/send", text=text, run="first-run")
    assert codes(answer)[:2] == ["run-sent", "job-runs"]
    assert session.study_of("first-run") == study
    # One name is one study, and one that does not begin is not sent.
    other = text.replace("mmHg", "kPa")
    assert codes(press(client, keys, "/send", text=other, run="first-run"), 400) == ["other-study"]
    assert press(client, keys, "/send", text=text, run="../x").status_code == 400
    assert "kPa" in press(client, keys, "/write", text=other).text
    assert "mmHg" in client.get("/write?from=first-run").text
    assert client.get("/write?from=none").status_code == 400


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "none"},
        {"variables": ""},
        {"min_sites": "9"},
        {"epsilon": "much"},
        {"more": "[parameters"},
        {"more": f"name = '{SCRIPT}'"},
        {"purpose": ""},
    ],
)
def test_what_is_wrong_with_a_study_is_said_beside_its_text_and_not_sent(session, opened, wrong):
    client, keys, _ = opened
    page = press(client, keys, "/check", **{**FIELDS, **wrong})
    assert codes(page) == ["text"]
    assert 'action="/send"' not in page.text
    assert SCRIPT not in page.text
    assert press(client, keys, "/send", text=shown_text(page), run="r").status_code == 400
    assert session.listed == []


def shown_text(page):
    return html.unescape(re.search(r"<textarea[^>]*>(.*?)</textarea>", page.text, re.S)[1])


def test_sites_are_asked_before_and_a_red_plan_needs_a_reason(session, opened):
    client, keys, watch = opened
    text = shown_text(press(client, keys, "/check", **FIELDS))
    page = press(client, keys, "/plan", text=text.replace("\n", "\r\n"))
    (run,) = session.studies_sent()
    assert session.studies_sent()[run].goal == "check"
    assert watch.look().job_of(run).is_running
    assert "plan-not-asked" in codes(page)
    assert codes(press(client, keys, "/plan", text=text), 400) == ["goes-on"]
    # It ends without the owner of one site; what came of it is where plans look for it.
    said = {"west": {"code": "not-approved", "sentence": "site 'west': not approved."}}
    outcome = {"state": "stopped", "sentence": "2 of 3.", "said": said, "reasons": {"west": "other-unit"}}
    refusal = {
        "what": "refused",
        "site": "west",
        "sentence": "site 'west' refused: kPa.",
        "code": "other-unit",
    }
    session.fetched = {
        "outcome.json": json.dumps(outcome).encode(),
        "events.jsonl": json.dumps(refusal).encode() + b"\n",
    }
    session.add(run, "FINISHED:EXECUTION_EXCEPTION")
    here = page.url.path.removeprefix(keys.base)
    wait_until(lambda: 'class="chip error"' in client.get(here).text)
    assert 'name="despite"' in client.get(here).text
    assert codes(press(client, keys, "/send", text=text, run="first"), 400) == ["plan-red"]
    answer = press(client, keys, "/send", text=text, run="first", despite="a pilot.")
    assert codes(answer)[0] == "run-sent"
    assert session.study_of("first").despite == "a pilot."
    assert client.get("/check/none").status_code == 404


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
