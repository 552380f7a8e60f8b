"""What a study found in the data of all sites, read by `feddbn check`."""

import json

import pytest
from typer.testing import CliRunner

from feddbn.cli.main import app


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


FINDING = {
    "what": "cycles",
    "severity": "warning",
    "sentence": "cycles of 24 rows <b>stand out</b>.",
    "cure": "period='auto' takes them off",
    "site": None,
    "recording": None,
    "columns": [],
}


def test_findings_of_a_study_are_read_by_check(tmp_path):
    path = tmp_path / "findings.json"
    path.write_text(json.dumps([FINDING]))
    done = run("check", path)
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "cycles of 24 rows" in said
    assert 'period = "auto" takes them off' in said
    path.write_text(json.dumps([{**FINDING, "severity": "error"}]))
    assert run("check", path).exit_code == 1


@pytest.mark.parametrize("text", ["{", "3", '[{"what": "x"}]', '{"summary": {}}', '[{"severity": "bad"}]'])
def test_what_are_no_findings_is_one_sentence(tmp_path, text):
    path = tmp_path / "findings.json"
    path.write_text(text)
    done = run("check", path)
    assert done.exit_code == 2
    assert "findings.json of a study" in " ".join(done.output.split())
