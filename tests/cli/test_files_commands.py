"""Studies by files as people type them: kits, steps, answers, what files say, and what is refused in one sentence."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("cryptography")
from feddbn.cli.main import app
from support.file_kits import FileKits
from support.study_files import study_text

PAGE = Path(__file__).parents[2] / "docs" / "files.md"
STUDY = study_text("[privacy]\nsecure_aggregation = true\n")


@pytest.fixture
def kits(tmp_path):
    made = FileKits(tmp_path, policy=None)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "study.toml").write_text(STUDY)
    return made


@pytest.fixture
def question(kits, run, tmp_path):
    """The first question to a site."""
    done = run("study", "step", tmp_path / "one", "--kit", kits.lead, "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert (said["run"], said["state"], said["awaited"]) == ("one", "collecting", ["north", "south", "west"])
    return Path(said["questions"]["north"])


def test_a_question_is_read_approved_and_answered_with_the_same_bytes(kits, run, question, tmp_path):
    north = kits.kits["north"]
    first = run("site", "answer", question, "--kit", north, "--json")
    assert first.exit_code == 1
    assert json.loads(first.stdout)["refused"]
    told = run("show", question, "--kit", north)
    assert told.exit_code == 0
    assert all(word in told.stdout for word in ("question 1", "lead@example.org", "oneshot", "gram.rows"))
    assert run("site", "approve", question, "--kit", north, "--yes").exit_code == 0
    out = tmp_path / "out"
    out.mkdir()
    done = [
        json.loads(run("site", "answer", question, "--kit", north, "-o", out, "--json").stdout) for _ in "12"
    ]
    assert [one["again"] for one in done] == [False, True]
    assert [one["refused"] for one in done] == [[], []]
    answer = Path(done[0]["answer"])
    content = answer.read_bytes()
    assert run("site", "answer", question, "--kit", north, "-o", answer).exit_code == 0
    assert answer.read_bytes() == content
    held = {one["code"] for one in json.loads(run("show", answer, "--kit", kits.lead, "--json").stdout)}
    assert held == {"file-answer", "file-signed", "file-holds"}
    (tmp_path / "one" / "from-a-mail.feddbn").write_bytes(content)
    after = run("study", "step", tmp_path / "one", "--kit", kits.lead)
    assert after.exit_code == 0
    # The refusal still lies beside the question; the answer counts.
    assert str(question) not in after.stdout
    status = run("study", "status", "--kit", kits.lead, "--json")
    assert [one["run"] for one in json.loads(status.stdout)["runs"]] == ["one"]


def test_the_lead_reads_the_reason_of_a_refusal(kits, run, question, tmp_path):
    north, step = kits.kits["north"], ("study", "step", tmp_path / "one", "--kit", kits.lead)
    run("site", "answer", question, "--kit", north)
    assert "refused" not in json.loads(run(*step, "--json").stdout)["sentence"]
    assert run("site", "refuse", "s", "--kit", north, "--reason", "the board said no").exit_code == 0
    run("site", "answer", question, "--kit", north)
    said = json.loads(run(*step, "--json").stdout)
    assert "the board said no" in said["sentence"]
    assert run(*step, "--accept-refusals").exit_code == 0
    (row,) = json.loads(run("study", "status", "--kit", kits.lead, "--json").stdout)["runs"]
    assert "the board said no" in json.dumps(row)


def test_what_cannot_be_used_is_refused_with_one_sentence(kits, refuses, question, tmp_path, umask):
    north, south, folder = kits.kits["north"], kits.kits["south"], tmp_path / "one"
    assert "'south'" in refuses("site", "answer", question, "--kit", south)
    assert "lead@example.org" in refuses("site", "answer", question, "--kit", kits.lead)
    assert "study.toml" in refuses("site", "answer", folder / "study.toml", "--kit", north)
    assert "none.feddbn" in refuses("site", "answer", folder / "none.feddbn", "--kit", north)
    short = tmp_path / "short.feddbn"
    short.write_bytes(question.read_bytes()[:-9])
    assert "short.feddbn" in refuses("site", "answer", short, "--kit", north)
    assert "short.feddbn" in refuses("show", short)
    other = FileKits(tmp_path / "other")
    assert "not signed" in refuses("site", "answer", question, "--kit", other.kits["north"])
    assert "not signed" in refuses("show", question, "--kit", other.kits["north"])
    assert "itself" in refuses(
        "site", "answer", question, "--kit", _approved(north, question), "-o", question
    )
    assert "no-such" in refuses("study", "step", tmp_path / "no-such", "--kit", kits.lead)
    assert "'north'" in refuses("study", "step", folder, "--kit", north)
    (tmp_path / "Bad Name").mkdir()
    assert "'Bad Name'" in refuses("study", "step", tmp_path / "Bad Name", "--kit", kits.lead)
    (folder / "study.toml").write_text(STUDY.replace('"s"', '"t"'))
    assert "'one'" in refuses("study", "step", folder, "--kit", kits.lead)
    assert "folder" in refuses("start", "--kit", north)
    assert "a site" in refuses("start", "--kit", kits.lead)
    for lead in ("a/b@c", "nobody"):
        assert repr(lead) in refuses("federation", "init", tmp_path / "f", "--site", "a", "--lead", lead)


def _approved(kit, question):
    CliRunner().invoke(app, ["site", "approve", str(question), "--kit", str(kit), "--yes"])
    return kit


def test_every_file_of_a_kit_and_of_a_study_is_told(kits, run, refuses, tmp_path):
    north = kits.kits["north"]
    for path, code in (
        (tmp_path / "one" / "study.toml", "study-purpose"),
        (north / "policy.toml", "site-policy"),
        (north / "feddbn_site.toml", "settings-read"),
        (north / "files.toml", "files-kit"),
        (north / "peers.toml", "peers-listed"),
    ):
        done = run("show", path, "--json")
        assert done.exit_code == 0, done.output
        assert code in {one["code"] for one in json.loads(done.stdout)}
    assert "one.csv" in refuses("show", north / "data" / "one.csv")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_commands_of_the_page_run_one_after_the_other(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    (toml,) = re.findall(r"```toml\n# sepsis/study.toml\n(.*?)```", text, re.S)
    lines = [shlex.split(line, comments=True) for line in re.findall(r"^    feddbn (.*)$", text, re.M)]
    init, check, step, show, approve, answer, again, report, start, waiting = lines
    assert step == again
    assert (start[0], waiting) == ("start", [*step, "--wait"])

    def done(line, *more):
        outcome = CliRunner().invoke(app, [*line, *more], prog_name="feddbn")
        assert outcome.exit_code == 0, f"{line}: {outcome.output}"

    def at(line, site):
        return [word.replace("north", site) for word in line]

    done(init)
    sites = tomllib.loads(toml)["sites"]
    run("simulate", "-o", "data", "-d", 4, "--n-sites", 3, "--n-samples", 300)
    for k, site in enumerate(sites):
        Path(f"data/site-{k}.csv").rename(f"federation/kits/{site}/data/site.csv")
        done(at(check, site))
    Path("sepsis").mkdir()
    Path("sepsis/study.toml").write_text(toml)
    done(step)
    for site in sites:
        done(at(show, site))
        done(at(approve, site), "--yes")
    number = 0
    while not Path("sepsis/result/result.json").exists():
        number += 1
        for site in sites:
            done([word.replace("-001-", f"-{number:03d}-") for word in at(answer, site)])
        done(step)
    assert 10 < number < 20
    done(report)
    done(["show", "sepsis/result/result.json"])
