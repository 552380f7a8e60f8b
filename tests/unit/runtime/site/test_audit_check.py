import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
from feddbn.errors import FileError
from feddbn.runtime.site.audit import check_logs, export_logs, logs_at
from support.owned_sites import OwnedSites, make_study
from support.saying import refused

pytestmark = pytest.mark.usefixtures("light")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    sites, study = OwnedSites(tmp_path_factory.mktemp("ran")), make_study()
    sites.approve(study, runs=2)
    for run in ("run-1", "run-2"):
        sites.run(study, run)
    return sites


@pytest.fixture
def logs(ran, tmp_path):
    """The exported logs of one site."""
    export_logs(ran.state("north"), tmp_path / "logs")
    return tmp_path / "logs"


def problems(ran, logs, heads=()):
    reports = check_logs(logs_at(logs), ran.owner("north").audit.key, heads)
    return {report.log: report.problem for report in reports if report.problem is not None}


def held(ran):
    (peer,) = [peer for peer in ran.owner("south").heads.all() if peer.site == "north"]
    return [peer.held]


def test_untouched_logs_are_intact_and_signed(ran, logs):
    assert logs_at(logs) == logs_at(ran.state("north"))
    reports = check_logs(logs_at(logs), ran.owner("north").audit.key, held(ran))
    assert [report.log for report in reports] == ["_site.jsonl", "run-1.jsonl", "run-2.jsonl"]
    assert {report.chain.seal for report in reports} == {"signed"}
    assert problems(ran, logs, held(ran)) == {}


def test_logs_are_found_where_they_were_in_earlier_versions(ran, logs):
    state = ran.state("north")
    assert logs_at(state / "_audit") == logs_at(logs)
    assert logs_at(state / "_audit" / "run-1.jsonl") == logs_at(logs / "run-1.jsonl")
    with refused(FileError, "run-9.jsonl"):
        logs_at(state / "_audit" / "run-9.jsonl")


def test_a_run_whose_log_was_taken_away_or_emptied_is_named(ran, logs):
    (logs / "run-1.jsonl").unlink()
    assert list(problems(ran, logs)) == ["run-1.jsonl"]
    (logs / "run-1.jsonl").write_text("")
    assert list(problems(ran, logs)) == ["run-1.jsonl"]


def test_the_log_of_another_run_in_its_place_is_named(ran, logs):
    (logs / "run-1.jsonl").write_text((logs / "run-2.jsonl").read_text())
    assert list(problems(ran, logs)) == ["run-1.jsonl"]


def test_the_sites_own_log_must_reach_the_heads_that_others_hold(ran, logs):
    lines = (logs / "_site.jsonl").read_text().splitlines(keepends=True)
    (logs / "_site.jsonl").write_text("".join(lines[:-1]))
    assert problems(ran, logs) == {}
    assert list(problems(ran, logs, held(ran))) == ["_site.jsonl"]
    (logs / "_site.jsonl").unlink()
    assert list(problems(ran, logs, held(ran))) == ["_site.jsonl"]


def test_edited_and_unreadable_logs_are_named(ran, logs):
    path = logs / "run-1.jsonl"
    path.write_text(path.read_text().replace("gram.rows", "moment", 1))
    assert "line 2" in problems(ran, logs)["run-1.jsonl"]
    path.write_bytes(b"\xff\n")
    assert list(problems(ran, logs)) == ["run-1.jsonl"]
    (logs / "_site.jsonl").write_text("nothing\n")
    assert "_site.jsonl" in problems(ran, logs)


def test_there_may_be_no_logs():
    assert check_logs({}) == []


@pytest.mark.parametrize("is_edited", [False, True])
def test_a_small_program_of_its_own_verifies_an_export(ran, logs, is_edited):
    path = logs / "run-1.jsonl"
    if is_edited:
        path.write_text(path.read_text().replace("gram.rows", "gram.row", 1))
    program = Path(__file__).parents[4] / "tools" / "verify_audit.py"
    key = ran.owner("north").audit.key.hex()
    done = subprocess.run(
        [sys.executable, "-I", str(program), *map(str, sorted(logs.iterdir())), "--key", key],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == int(is_edited), done.stderr
    assert done.stdout.count("intact") == 3
    assert ("NOT intact: line 2" in done.stdout) == is_edited
