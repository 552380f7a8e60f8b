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


def test_clean_data_end_with_a_sentence_and_exit_code_0(run, federation):
    outcome = run("check", federation)
    assert outcome.exit_code == 0
    assert outcome.stdout == "Nothing was found that would make a network wrong.\n"


def test_warnings_are_a_table_with_options_that_cure_them(run, hospitals):
    outcome = run("check", hospitals)
    assert outcome.exit_code == 0
    assert "--series patient --time hour" in outcome.stdout
    assert "and 2 more" in outcome.stdout
    assert "1 warning." in outcome.stdout
    assert max(len(line) for line in outcome.stdout.splitlines()) <= 80


def test_the_cure_of_a_finding_cures_it(run, hospitals):
    outcome = run("check", hospitals, "--series", "patient", "--time", "hour", "--json")
    assert [finding["what"] for finding in json.loads(outcome.stdout) if finding["what"] == "glued"] == []


def test_an_error_ends_with_exit_code_1_and_json_has_every_field(run, tmp_path: Path):
    for k in range(3):
        ward(120, k).assign(copy=lambda x: x["pulse"]).to_csv(tmp_path / f"ward-{k}.csv", index=False)
    outcome = run("check", tmp_path, "--json")
    assert outcome.exit_code == 1
    (finding,) = json.loads(outcome.stdout)
    assert set(finding) == {"what", "severity", "sentence", "cure", "site", "recording", "columns"}
    assert (finding["what"], finding["severity"], finding["columns"]) == ("copy", "error", ["copy", "pulse"])


def test_what_cannot_be_opened_ends_with_exit_code_2(refuses, federation, tmp_path: Path):
    assert "does not exist" in refuses("check", tmp_path / "nowhere")
    assert "--lags" in refuses("check", federation, "--lags", "-1")
