"""``feddbn study plan``, and what ``submit`` does with red lines: by files, where a round takes as long as people do."""

import json

import pytest

pytest.importorskip("cryptography")
from support.file_kits import FileKits
from support.owned_sites import NAMES, make_study
from support.study_files import study_text

STUDY = study_text(
    '[parameters]\nn_lags = 1\n[units]\nu = "mmHg"\nv = "1/min"\n[privacy]\nsecure_aggregation = true\n'
)


@pytest.fixture
def kits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    return FileKits(tmp_path)


def told(run, *more):
    done = run("study", "plan", "study.toml", "--json", *more)
    rows = {row["code"]: row for row in json.loads(done.stdout)["rows"]}
    return done.exit_code, rows


def test_a_plan_says_what_is_known_and_goes_on_as_answers_come(kits, run, tmp_path):
    code, rows = told(run)
    assert (code, rows["plan-not-asked"]["colour"]) == (0, "yellow")
    assert "plan-earlier-none" not in rows
    code, rows = told(run, "--kit", kits.lead)
    assert (code, rows["plan-awaited"]["numbers"]["about"]) == (0, list(NAMES))
    for question in tmp_path.glob("plan-*/*/*question.feddbn"):
        kits.answer(question)
    code, rows = told(run, "--kit", kits.lead)
    assert (code, rows["plan-units-refused"]["numbers"]["why"]) == (1, "units-unsaid")
    table = run("study", "plan", "study.toml", "--kit", kits.lead, "--no-ask")
    assert max(map(len, table.stdout.splitlines())) <= 80
    # What one owner has to mend stops the study before its sites are asked.
    refused = run("study", "submit", "study.toml", "--kit", kits.lead)
    assert refused.exit_code == 2
    assert "--despite" in refused.output
    assert not list(tmp_path.glob("s-*"))
    sent = run("study", "submit", "study.toml", "--kit", kits.lead, "--run", "one", "--despite", "we know")
    assert sent.exit_code == 0, sent.output
    assert json.loads((kits.lead / "runs" / "one.json").read_text())["despite"] == "we know"


def test_a_pilot_over_other_sites_is_told_at_once(kits, run):
    runs = kits.lead / "runs"
    (runs / "pilot").mkdir(parents=True)
    (runs / "pilot.json").write_text(make_study(sites=(*NAMES, "east")).to_json())
    (runs / "pilot" / "outcome.json").write_text(json.dumps({"state": "finished"}))
    refused = run("study", "submit", "study.toml", "--kit", kits.lead)
    assert refused.exit_code == 2
    assert "pilot" in refused.output
    code, rows = told(run, "--kit", kits.lead)
    assert (code, rows["plan-earlier"]["numbers"]["about"]) == (1, ["pilot"])
    # Nobody is asked for what would be refused.
    assert "plan-not-asked" in rows
    assert sorted(path.name for path in runs.glob("*.json")) == ["pilot.json"]


def test_where_feddbn_sends_no_studies_the_plan_is_what_is_known(kits, run, tmp_path):
    from feddbn.runtime.engines.interface import FederationPlan, engine

    made = engine("platform").make_kits(FederationPlan("p", "none", NAMES), tmp_path / "platform")
    code, rows = told(run, "--kit", made["north"])
    assert (code, rows["plan-not-asked"]["colour"]) == (0, "yellow")
    assert "platform" in rows["plan-not-asked"]["sentence"]
