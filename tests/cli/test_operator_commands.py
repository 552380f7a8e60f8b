"""The operators' commands without an engine running: help, files, exit codes, sentences."""

import json
import shutil
import time
from types import SimpleNamespace
from typing import ClassVar

import pytest
from typer.testing import CliRunner

from feddbn.cli.main import app
from feddbn.cli.study import read_study
from feddbn.errors import ParameterError
from support.saying import refused
from support.study_files import study_text

STUDY = study_text("[privacy]\nsecure_aggregation = true\n[parameters]\nn_lags = 1\n", method="fdbnl")


def run(*arguments, **options):
    return CliRunner().invoke(app, [str(a) for a in arguments], **options)


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    pytest.importorskip("nvflare")
    place = tmp_path_factory.mktemp("kits")
    names = ("--server", "localhost", "--site", "north", "--site", "south", "--site", "west")
    done = run("federation", "init", place / "fed", *names, "--port", "1", "--admin-port", "2")
    assert done.exit_code == 0, done.output
    return place / "fed" / "kits"


def test_kits_refuse_code_shells_and_foreign_classes_and_keep_logs_at_home(kits):
    for name in ("localhost", "north", "south"):
        rights = json.loads((kits / name / "local" / "authorization.json").read_text())["permissions"]
        for role, allowed in rights.items():
            if role != "member":
                assert allowed["byoc"] == "none"
                assert allowed["shell_commands"] == "none"
        resources = json.loads((kits / name / "local" / "resources.json").read_text())
        assert len(resources["class_allow_list"]) == 6
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert "/tmp/nvflare" not in (kits / name / "local" / "resources.json").read_text()
    site = json.loads((kits / "north" / "local" / "resources.json").read_text())
    assert site["allow_log_streaming"] is False
    assert (kits / "north").stat().st_mode & 0o077 == 0


def checked(*arguments):
    done = run("site", "check", *arguments, "--json")
    return done.exit_code, {finding["what"]: finding for finding in json.loads(done.output)}


def test_site_check_says_what_is_wrong_and_what_is_right(kits, tmp_path):
    kit = ("--kit", kits / "north")
    code, findings = checked(*kit)
    assert code == 1
    assert (findings["data"]["ok"], findings["server"]["ok"]) == (False, False)
    (kits / "north" / "data").mkdir()
    rows = "".join(f"{k},{k * k % 7}\n" for k in range(20))
    (kits / "north" / "data" / "one.csv").write_text(f"u,v\n{rows}")
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    _, findings = checked(*kit, "--study", study)
    assert all(part in findings["data"]["text"] for part in ("1 recording, ", "20 rows", "u, v"))
    good = {what for what, told in findings.items() if told["ok"] is True}
    assert {"settings", "data", "study", "state", "classes", "logs", "clock", "certificate"} <= good
    assert {"code in jobs", "private keys"} <= good
    study.write_text(STUDY.replace("secure_aggregation = true", ""))
    _, findings = checked(*kit, "--study", study)
    assert "require_masking" in findings["study"]["text"]
    study.write_text(STUDY.replace('"v"', '"w"'))
    _, findings = checked(*kit, "--study", study)
    assert all(part in findings["study"]["text"] for part in ("w", "u, v"))
    assert "server" in run("site", "check", *kit).output


def test_site_check_notices_a_loosened_kit(kits, tmp_path):
    kit = tmp_path / "south"
    shutil.copytree(kits / "south", kit)
    path = kit / "local" / "authorization.json"
    path.write_text(path.read_text().replace('"byoc": "none"', '"byoc": "any"'))
    path = kit / "local" / "resources.json"
    path.write_text(path.read_text().replace('"class_allow_list": [', '"class_allow_list": ["*",'))
    _, findings = checked("--kit", kit)
    assert findings["code in jobs"]["ok"] is findings["classes"]["ok"] is False


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("secure_aggregation = true", "secure_aggregation = true\nmin_sites = 4", "3"),
        (
            "[privacy]",
            '[attendance]\nwhen_missing = "continue"\nmin_sites = 5\n[privacy]',
            "attendance.min_sites = 5",
        ),
        ("secure_aggregation", "secure_agregation", "privacy.secure_agregation"),
        ("n_lags = 1", "lambda_w = -3", "lambda_w=-3"),
    ],
)
def test_a_study_that_cannot_be_run_is_refused_before_it_is_sent(tmp_path, old, new, name):
    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace(old, new))
    with refused(ParameterError, name):
        read_study(path)


def test_a_run_keeps_its_study(kits, tmp_path):
    kit = kits / "lead@example.org"
    assert "'run-7'" in run("study", "resume", "run-7", "--kit", kit).output
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    (kit / "runs").mkdir()
    (kit / "runs" / "run-1.json").write_text("{}")
    done = run("study", "submit", path, "--kit", kit, "--run", "run-1")
    assert done.exit_code == 2
    assert "'run-1'" in done.output


class Session:
    """What NVFlare's session says in these tests: two sites are connected."""

    def __init__(self, user, kit, timeout):
        assert user == "lead@example.org"

    heard: ClassVar = {"north": time.time(), "south": time.time()}
    answers = ("north", "south")

    def get_system_info(self):
        clients = [SimpleNamespace(name=name, last_connect_time=when) for name, when in self.heard.items()]
        return SimpleNamespace(client_info=clients)

    def get_client_job_status(self, sites):
        return [
            {"client_name": site, "status": "no_jobs" if site in self.answers else "no_reply"}
            for site in sites
        ]

    def set_timeout(self, seconds):
        pass

    def unset_timeout(self):
        pass

    def list_jobs(self, detailed):
        return []

    def close(self):
        pass


def test_a_study_whose_sites_are_not_connected_is_not_sent(kits, tmp_path, monkeypatch):
    """The kit may have any name; the lead's is in it."""
    monkeypatch.setattr("nvflare.fuel.flare_api.flare_api.new_secure_session", Session)
    shutil.copytree(kits / "lead@example.org", tmp_path / "mine")
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    done = run("study", "submit", path, "--kit", tmp_path / "mine", "--run", "run-2")
    assert done.exit_code == 2
    assert all(part in done.output for part in ("3 of its 3 sites", "west", "north, south"))
    assert not (tmp_path / "mine" / "runs" / "run-2.json").exists()


def test_the_session_of_a_study_that_is_refused_is_closed(kits, tmp_path, monkeypatch):
    """It is opened while the study is tried out."""
    closed = []
    monkeypatch.setattr("nvflare.fuel.flare_api.flare_api.new_secure_session", Session)
    monkeypatch.setattr(Session, "close", lambda session: closed.append(session))
    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace("n_lags = 1", "n_lags = -1"))
    done = run("study", "submit", path, "--kit", kits / "lead@example.org", "--run", "run-3")
    assert done.exit_code == 2
    assert "n_lags=-1" in done.output
    assert len(closed) == 1


@pytest.fixture
def lonely(kits, monkeypatch):
    """A lead's kit whose server is not there."""

    def refuse(user, kit, timeout):
        raise OSError("nobody answers")

    monkeypatch.setattr("nvflare.fuel.flare_api.flare_api.new_secure_session", refuse)
    return kits / "lead@example.org"


OLD = 1_000_000_000.0


@pytest.mark.parametrize(
    ("answers", "heard", "is_slow", "is_here"),
    [
        (True, 0.0, False, True),
        # Our clock may be wrong: who answers is there.
        (True, 100.0, False, True),
        (True, -100.0, True, True),
        # Its process has ended, which shows at once, or it is frozen and has not reported either.
        (False, 1.0, False, False),
        (False, 100.0, True, False),
        # It may just be slow.
        (False, 5.0, True, True),
    ],
)
def test_a_site_is_silent_if_it_cannot_be_called_or_does_not_report(
    kits, monkeypatch, answers, heard, is_slow, is_here
):
    from feddbn.runtime.engines.nvflare import engine

    monkeypatch.setattr("nvflare.fuel.flare_api.flare_api.new_secure_session", Session)
    monkeypatch.setattr(engine, "_AT_ONCE_S", -1.0 if is_slow else 300.0)
    monkeypatch.setattr(Session, "heard", {"north": time.time(), "south": time.time() - heard})
    monkeypatch.setattr(Session, "answers", ("north", "south") if answers else ("north",))
    with engine.NVFlareSession(kits / "lead@example.org") as console:
        north, south = console.presence()
    assert north.is_here
    assert south.is_here == is_here


def test_status_says_since_when_a_site_is_silent(kits, tmp_path, monkeypatch):
    monkeypatch.setattr("nvflare.fuel.flare_api.flare_api.new_secure_session", Session)
    monkeypatch.setattr(Session, "heard", {"north": time.time(), "south": OLD})
    monkeypatch.setattr(Session, "answers", ("north",))
    shutil.copytree(kits / "lead@example.org", tmp_path / "mine")
    said = run("study", "status", "--kit", tmp_path / "mine").output
    assert "Sep 2001, " in said
    found = json.loads(run("study", "status", "--kit", tmp_path / "mine", "--json").output)
    assert found["sites"] == ["north"]
    assert found["silent"] == {"south": "2001-09-09 01:46:40 UTC"}


def test_a_server_that_is_not_there_is_named(lonely):
    done = run("study", "status", "--kit", lonely)
    assert done.exit_code == 2
    assert "localhost:2" in done.output


def test_unusual_tasks_are_told_before_a_study_is_sent(lonely, tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace('method = "fdbnl"', 'method = "pfdbnl"') + 'mu = "auto"\n')
    assert read_study(path).parameters["mu"] == "auto"
    done = run("study", "submit", path, "--kit", lonely)
    assert "loss.rows, loss.sums" in done.stderr


def test_a_sites_terminal_tells_studies_and_its_log_has_all(kits):
    values = json.loads((kits / "north" / "local" / "log_config.json").read_text())
    terminal = values["handlers"]["consoleHandler"]
    assert values["filters"][terminal["filters"][0]]["()"].endswith("StudiesOnly")
    assert values["handlers"]["logFileHandler"].get("filters", []) == []
    assert "start.sh" not in (kits / "north" / "readme.txt").read_text()


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ('prepare.exogenous = ["w"]', "'w'"),
        ('mu = "auto"', "'mu'"),
    ],
)
def test_a_study_that_cannot_be_is_refused_whether_or_not_the_server_is_there(
    refuses, lonely, tmp_path, parameters, name
):
    path = tmp_path / "study.toml"
    path.write_text(f"{STUDY}{parameters}\n")
    assert name in refuses("study", "submit", path, "--kit", lonely)


def test_a_study_of_functions_that_only_others_have_is_not_tried_out(lonely, tmp_path):
    """Server and sites register them; the lead's machine need not."""
    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace("fdbnl", "oneshot") + 'features = "theirs"\n')
    done = run("study", "submit", path, "--kit", lonely)
    assert all(part in done.output for part in ("features = 'theirs'", "localhost:2"))
