"""`feddbn check`: of files, and of what a study found in the data of all sites."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.wards import stays, ward


@pytest.fixture
def hospitals(tmp_path: Path) -> Path:
    for name, n in (("north", 6), ("south", 8), ("west", 5)):
        stays(n).to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


def test_clean_data_end_with_one_line_and_exit_code_0(run, federation):
    outcome = run("check", federation)
    assert outcome.exit_code == 0
    assert len(outcome.stdout.splitlines()) == 1
    assert json.loads(run("check", federation, "--json").stdout) == []


def test_warnings_are_a_table_with_options_that_cure_them(run, hospitals):
    outcome = run("check", hospitals)
    assert outcome.exit_code == 0
    assert "--series patient --time hour" in outcome.stdout
    assert "and 2 more" in outcome.stdout
    cured = run("check", hospitals, "--series", "patient", "--time", "hour", "--json")
    assert "glued" not in {finding["code"] for finding in json.loads(cured.stdout)}


def test_an_error_ends_with_exit_code_1_and_json_has_every_field(run, tmp_path: Path):
    for k in range(3):
        ward(120, k).assign(hour=range(120)).to_csv(tmp_path / f"ward-{k}.csv", index=False)
    outcome = run("check", tmp_path, "--json")
    assert outcome.exit_code == 1
    for finding in json.loads(outcome.stdout):
        assert set(finding) == {"code", "level", "values", "about", "cure", "parts", "finding", "advice"}
        # A fit refuses a variable that only follows time.
        assert (finding["code"], finding["level"], finding["about"]) == ("undeclared-time", "error", ["hour"])
    assert run("fit", tmp_path, "-o", tmp_path / "result.json").exit_code != 0


OF_STUDY = {
    "code": "cycles",
    "level": "warning",
    "values": {"periods": [24.0]},
    "cure": {"prepare.period": "auto"},
}


def test_findings_of_a_study_are_read(run, tmp_path):
    path = tmp_path / "findings.json"
    path.write_text(json.dumps([OF_STUDY]))
    done = run("check", path)
    assert done.exit_code == 0, done.output
    assert "24 rows" in done.output
    assert 'prepare.period = "auto"' in done.output
    path.write_text(json.dumps([{**OF_STUDY, "level": "error"}]))
    assert run("check", path).exit_code == 1


@pytest.mark.parametrize("text", ["3", '[{"code": "x", "level": "bad"}]'])
def test_what_are_no_findings_is_one_sentence(refuses, tmp_path, text):
    path = tmp_path / "findings.json"
    path.write_text(text)
    assert "findings.json" in refuses("check", path)
