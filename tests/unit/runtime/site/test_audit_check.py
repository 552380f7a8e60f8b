import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
from feddbn.runtime.site.audit import check_logs, export_logs, logs_at
from support.consortium import Consortium, make_study


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    sites, study = Consortium(tmp_path_factory.mktemp("ran")), make_study()
    sites.approve(study, runs=2)
    for run in ("run-1", "run-2"):
        sites.run(study, run)
    return sites


@pytest.fixture
def logs(ran, tmp_path):
    """The exported logs of one site."""
    export_logs(ran.state("north"), tmp_path / "logs")
    return tmp_path / "logs"


def problems(ran, logs, held=()):
    reports = check_logs(logs_at(logs), ran.owner("north").audit.key, held)
    return {report.log: report.problem for report in reports if report.problem is not None}


def test_untouched_logs_are_intact_and_signed(ran, logs):
    assert logs_at(logs) == logs_at(ran.state("north"))
    reports = check_logs(logs_at(logs), ran.owner("north").audit.key)
    assert [report.log for report in reports] == ["_site.jsonl", "run-1.jsonl", "run-2.jsonl"]
    assert {report.chain.seal for report in reports} == {"signed"}
    assert problems(ran, logs) == {}


def test_a_run_whose_log_was_taken_away_or_emptied_is_named(ran, logs):
    (logs / "run-1.jsonl").unlink()
    assert list(problems(ran, logs)) == ["run-1.jsonl"]
    (logs / "run-1.jsonl").write_text("")
    assert list(problems(ran, logs)) == ["run-1.jsonl"]


def test_the_log_of_another_run_in_its_place_is_named(ran, logs):
    (logs / "run-1.jsonl").write_text((logs / "run-2.jsonl").read_text())
    assert list(problems(ran, logs)) == ["run-1.jsonl"]


def test_a_hash_that_no_line_has_any_more_is_named(ran, logs):
    held = [ran.owner("north").audit.last_hash()]
    assert problems(ran, logs, held) == {}
    lines = (logs / "_site.jsonl").read_text().splitlines(keepends=True)
    (logs / "_site.jsonl").write_text("".join(lines[:-1]))
    assert problems(ran, logs) == {}
    assert list(problems(ran, logs, held)) == [f"hash {held[0][:12]}"]


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
