"""What must be refused on a running NVFlare federation, with a logged sentence, while the others go on."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

pytest.importorskip("nvflare")
import support.study_programs  # noqa: F401
from feddbn.errors import FederationError
from feddbn.federation.protocol.study import Study
from feddbn.runtime.engines.nvflare.engine import write_job
from feddbn.runtime.engines.nvflare.kit import ALLOWED_CLASSES, make_kits, start_command
from support.mischief import CLASSES
from support.nvflare_federation import SERVER, children
from support.study_files import ABOUT
from support.trials import journal_of

pytestmark = pytest.mark.usefixtures("light")

IDENTITY = "'site-a' but claimed endpoint 'site-x'"
SITES = ("site-a", "site-b", "site-c")


def make_study(name, **changes):
    values = {
        "name": name,
        "about": ABOUT,
        "method": "walk",
        "variables": ("x0", "x1", "x2", "x3"),
        "sites": SITES,
        "parameters": {"rounds": 12, "pause_s": 0.0},
        "attendance": {"timeout_s": 120.0, "when_missing": "continue", "min_sites": 2},
    }
    return Study(**{**values, **changes})


@pytest.fixture(scope="module")
def jobs(federation, tmp_path_factory):
    """Every offending job, submitted at once beside an honest study; name -> (job id or error, status)."""
    place = tmp_path_factory.mktemp("jobs")
    honest = make_study("honest")

    with_code = write_job(honest, "with-code", place)
    (with_code / "app" / "custom").mkdir()
    (with_code / "app" / "custom" / "code.py").write_text("print('here')\n")

    foreign = write_job(honest, "foreign-class", place)
    path = foreign / "app" / "config" / "config_fed_client.json"
    values = json.loads(path.read_text())
    values["components"].append({"id": "x", "path": "subprocess.Popen", "args": {"args": ["true"]}})
    path.write_text(json.dumps(values))

    bad_server = write_job(make_study("bad-server"), "bad-server", place)
    path = bad_server / "app" / "config" / "config_fed_server.json"
    path.write_text(
        path.read_text().replace("feddbn.runtime.nvflare_server.FeddbnServer", "support.mischief.BadServer")
    )

    bad_site = write_job(make_study("bad-site"), "bad-site", place)
    shutil.copytree(bad_site / "app", bad_site / "bad")
    path = bad_site / "bad" / "config" / "config_fed_client.json"
    path.write_text(
        path.read_text().replace("feddbn.runtime.nvflare_site.FeddbnSite", "support.mischief.BadSite")
    )
    path = bad_site / "meta.json"
    meta = json.loads(path.read_text())
    meta["deploy_map"] = {"app": ["server", "site-a", "site-b"], "bad": ["site-c"]}
    path.write_text(json.dumps(meta))

    for name, classes in ((SERVER, CLASSES[:1]), ("site-c", CLASSES[1:])):
        path = federation.kits[name] / "local" / "resources.json"
        values = json.loads(path.read_text())
        values["class_allow_list"] = [*ALLOWED_CLASSES, *classes]
        path.write_text(json.dumps(values))
    limits = federation.kits["site-b"] / "local" / "feddbn_site.toml"
    limits.write_text(limits.read_text() + "max_lags = 2\n")

    greedy = make_study("greedy", parameters={"rounds": 12, "n_lags": 5})
    console = federation.console
    sent = {}
    for name, job in (
        ("with-code", with_code),
        ("foreign-class", foreign),
        ("bad-server", bad_server),
        ("bad-site", bad_site),
    ):
        try:
            sent[name] = console.submit_job(job)
        except FederationError as error:
            sent[name] = str(error)
    for study in (greedy, honest):
        sent[study.name] = console.submit(study, study.name)
    out = {}
    for name, job in sent.items():
        try:
            status = console.wait(job)
            folder = console.fetch(job, place / "out" / name) if status.endswith("COMPLETED") else None
        except FederationError as error:
            status, folder = f"refused: {error}", None
        out[name] = (job, status, folder)
    return out


def events_of(federation, run_id):
    lines = (federation.runs / run_id / "events.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_the_honest_study_beside_them_finishes(jobs):
    assert jobs["honest"][1] == "FINISHED:COMPLETED"


def test_a_job_with_code_in_it_is_refused(jobs, federation):
    assert "COMPLETED" not in jobs["with-code"][1]
    assert "BYOC not permitted" in federation.log(SERVER)


def test_a_class_that_is_not_allowed_is_refused(jobs, federation):
    assert "COMPLETED" not in jobs["foreign-class"][1]
    logs = "".join(federation.log(site) for site in SITES)
    assert "Component 'subprocess.Popen'" in logs
    assert "allow_list" in logs


def test_a_study_that_breaks_a_sites_policy_is_refused_by_that_site(jobs, federation):
    assert jobs["greedy"][1] == "FINISHED:COMPLETED"
    refused = [e for e in events_of(federation, "greedy") if e["what"] == "refused"]
    assert (refused[0]["site"], refused[0]["code"]) == ("site-b", "too-many-lags")
    assert "n_lags = 5" in federation.log("site-b")
    journal = journal_of(federation, "greedy")
    assert all(e.answer.contributors == ("site-a", "site-c") for e in journal.entries)
    assert not (federation.state("site-b") / "greedy").exists()


def test_a_site_refuses_replayed_tampered_and_huge_messages(jobs, federation):
    _, status, folder = jobs["bad-server"]
    assert status == "FINISHED:COMPLETED"
    said = json.loads((folder / "outcome.json").read_text())["said"]
    for site in SITES:
        answers = {what: (kind, text) for name, what, kind, text in said if name == site}
        assert {answers[what][0] for what in ("replayed", "tampered", "garbage")} == {"refused"}
        assert all(word in answers["replayed"][1] for word in ("task 0", "task 1"))
        assert "checksum" in answers["tampered"][1]
        assert all(number in answers["garbage"][1] for number in ("104857600", "67108864"))
        # A repeat is not a replay: the answer of record is given again.
        assert answers["again"] == answers["second"]
        assert answers["third"][0] == "task"
        assert "104857600" in federation.log(site)


def test_the_server_refuses_tampered_replayed_and_huge_replies_while_the_others_go_on(jobs, federation):
    assert jobs["bad-site"][1] == "FINISHED:COMPLETED"
    refused = [e["sentence"] for e in events_of(federation, "bad-site") if e["what"] == "refused"]
    expected = ("damaged", "another question", "67108864")
    where = [next(k for k, said in enumerate(refused) if sentence in said) for sentence in expected]
    assert where == sorted(where)
    journal = journal_of(federation, "bad-site")
    assert all({"site-a", "site-b"} <= set(e.answer.contributors) for e in journal.entries)
    assert journal.entries[-1].answer.contributors == SITES
    neighbours = (federation.kits["site-c"] / "local" / "neighbours.txt").read_text()
    assert "'site-c'" in neighbours


def start(federation, kit, log):
    with open(log, "wb") as file:
        return subprocess.Popen(
            start_command(kit),
            env=federation.environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def test_a_foreign_certificate_and_a_borrowed_one_do_not_let_a_site_in(federation, tmp_path):
    """One kit is of another federation; the other is site-a's, used under a name that was never registered."""
    foreign = make_kits(federation.plan, tmp_path / "other")["site-a"]
    borrowed = tmp_path / "site-x"
    shutil.copytree(
        federation.kits["site-a"],
        borrowed,
        ignore=shutil.ignore_patterns("state", "*.fl", "transfer", "data.csv"),
    )
    script = borrowed / "startup" / "sub_start.sh"
    script.write_text(script.read_text().replace("uid=site-a", "uid=site-x"))
    logs = {kit: tmp_path / f"log-{k}" for k, kit in enumerate((foreign, borrowed))}
    started = [start(federation, kit, log) for kit, log in logs.items()]
    try:
        end = time.monotonic() + 240
        while time.monotonic() < end:
            refused = "CERTIFICATE_VERIFY_FAILED" in logs[foreign].read_text()
            if refused and IDENTITY in federation.log(SERVER):
                break
            time.sleep(0.2)
        assert sorted(federation.console.sites()) == sorted(federation.plan.sites)
    finally:
        for process in started:
            for pid in [*children(process.pid), process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
    assert "CERTIFICATE_VERIFY_FAILED" in logs[foreign].read_text()
    assert IDENTITY in federation.log(SERVER)
