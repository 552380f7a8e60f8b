"""``feddbn study plan``: the study's text, and a check that was sent, approved and answered like any study."""

import json

import pytest

pytest.importorskip("cryptography")
from support.consortium import make_study
from support.file_kits import FileKits
from support.study_files import study_text


def test_a_plan_reads_the_text_and_the_outcome_of_a_check(run, refuses, tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(study_text("[parameters]\nn_lags = 1\n[privacy]\nsecure_aggregation = true\n"))

    def told(*more):
        done = run("study", "plan", path, "--json", *more)
        return done.exit_code, {one["code"] for one in json.loads(done.stdout)["findings"]}

    code, found = told()
    assert (code, "plan-leaves" in found, "plan-rows" in found) == (0, True, False)
    kits = FileKits(tmp_path)
    check = make_study(goal="check", parameters={"n_lags": 1})
    assert kits.run(check, "look").state == "finished"
    _, found = told("--after", "look", "--kit", kits.lead)
    assert "plan-rows" in found
    assert "plan-rows" not in run("study", "plan", path, "--after", "look", "--kit", kits.lead).stdout
    assert "none" in refuses("study", "plan", path, "--after", "none", "--kit", kits.lead)
    assert "--kit" in refuses("study", "plan", path, "--after", "look")
