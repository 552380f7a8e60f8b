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


def test_an_unknown_name_is_one_sentence_and_exit_code_2():
    result = run(app, ["reproduce", "fig7"])
    assert result.exit_code == 2
    assert "no experiment is called 'fig7'" in result.output
    assert "Traceback" not in result.output


def test_pages_without_rows_say_what_to_do(tmp_path):
    result = run(app, ["reproduce", "--out", str(tmp_path), "--pages", str(tmp_path / "p")])
    assert result.exit_code == 2
    assert "has no rows.jsonl; run feddbn reproduce first" in result.output


def test_a_scheduler_that_does_not_answer_is_one_sentence(tmp_path, tiny_file, monkeypatch):
    distributed = pytest.importorskip("distributed")

    def silent(*_args, **_options):
        raise OSError("no route")

    monkeypatch.setattr(distributed, "Client", silent)
    result = run(app, ["reproduce", tiny_file, "--out", str(tmp_path), "--scheduler", "tcp://127.0.0.1:9"])
    assert result.exit_code == 2
    assert "scheduler='tcp://127.0.0.1:9' does not answer" in result.output
