import json

import pytest

from reproduction.__main__ import main
from reproduction.config import experiment_names
from reproduction.tests.tiny import TINY


@pytest.mark.promise
def test_run_resume_and_pages(tmp_path, capsys):
    file, out, pages = tmp_path / "tiny.toml", str(tmp_path / "rows"), tmp_path / "pages"
    file.write_text(TINY)
    line = [str(file), "--quick", "--out", out]
    assert main(line) == 0
    assert "2 cells run" in capsys.readouterr().out
    assert main(line) == 0
    assert "0 cells run" in capsys.readouterr().out
    assert main([*line, "--pages", str(pages)]) == 0
    assert {path.name for path in pages.iterdir()} == {"README.md", "tiny.md", "tiny-paper-text.svg"}


def test_list_names_every_experiment(capsys):
    assert main(["--list"]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == list(experiment_names())


@pytest.mark.parametrize("line", [["fig7"], ["--out", "nothing-here", "--pages", "p"]])
def test_what_cannot_be_reproduced_is_one_sentence(line, capsys):
    assert main(line) == 1
    assert capsys.readouterr().err.count("\n") == 1


def attacked(capsys, *words):
    assert main(["attack", "--variables", "4", "--sites", "3", "--json", *words]) == 0
    report = json.loads(capsys.readouterr().out)
    assert all(row["masked_rms"] >= report["mean_guess"] for row in report["rounds"])
    return report["rounds"]


def test_attack_shows_the_break_and_the_repair(capsys):
    assert attacked(capsys, "--rows", "40")[1]["plain_worst"] < 1e-8


def test_attack_on_personal_messages(capsys):
    last = attacked(capsys, "--method", "pfdbnl", "--rows", "60")[-1]
    # Sites solve their step to 1e-5; the messages cannot be inverted more exactly than that.
    assert last["plain_worst"] < 1e-2
    assert last["plain_median"] < 1e-3
