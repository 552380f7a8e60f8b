import json

import pytest
from typer.testing import CliRunner

from feddbn.cli.main import app
from support.tiny_experiment import TINY

run = CliRunner().invoke


@pytest.fixture
def tiny_file(tmp_path):
    file = tmp_path / "tiny.toml"
    file.write_text(TINY)
    return str(file)


def test_run_resume_and_pages(tmp_path, tiny_file):
    out, pages = str(tmp_path / "rows"), tmp_path / "pages"
    first = run(app, ["reproduce", tiny_file, "--quick", "--out", out])
    assert first.exit_code == 0, first.output
    assert "2 cells run" in first.output
    again = run(app, ["reproduce", tiny_file, "--quick", "--out", out, "--json"])
    assert json.loads(again.stdout) == {"run": 0, "before": 2, "refused": 0, "waiting": {}}
    written = run(app, ["reproduce", tiny_file, "--quick", "--out", out, "--pages", str(pages)])
    assert written.exit_code == 0, written.output
    assert {path.name for path in pages.iterdir()} == {"README.md", "tiny.md", "tiny-paper-text.svg"}


def test_list_names_every_experiment():
    names = [one["name"] for one in json.loads(run(app, ["reproduce", "--list", "--json"]).stdout)]
    assert "dream4" in names
    assert len(names) == 15


def test_what_cannot_be_reproduced_is_one_sentence(refuses, tmp_path):
    assert "'fig7'" in refuses("reproduce", "fig7")
    assert "rows.jsonl" in refuses("reproduce", "--out", tmp_path, "--pages", tmp_path / "p")
