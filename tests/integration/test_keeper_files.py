"""A study with two keepers by files: every message is a signed file, and whoever answers one is opened anew."""

import json

import pytest

import feddbn
from feddbn.cli.main import app
from feddbn.federation.protocol import batches
from support.keeping import KEEPERS, POLICY, additive
from support.study_files import ABOUT_LINE

STUDY = f"""name = "kept"
lead = "lead@example.org"
method = "summary"
variables = ["x0", "x1", "x2"]
sites = ["s0", "s1", "s2"]
{ABOUT_LINE}
[parameters]
n_lags = 1

[privacy]
keepers = ["keeper-a", "keeper-b"]
min_sites = 3
"""


def feddbn_says(capsys, *line):
    """What a command prints, as JSON."""
    with pytest.raises(SystemExit) as ended:
        app([str(word) for word in line])
    assert ended.value.code == 0, capsys.readouterr()
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_study_with_keepers_by_files(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(batches, "vdaf_of", additive)
    monkeypatch.chdir(tmp_path)
    names = ("s0", "s1", "s2")
    line = ["federation", "init", "fed", "--engine", "files"]
    line += [word for name in names for word in ("--site", name)]
    line += [word for name in KEEPERS for word in ("--keeper", name)]
    with pytest.raises(SystemExit):
        app(line)
    kits = tmp_path / "fed" / "kits"
    drawn = feddbn.simulate(d=3, n_lags=1, n_sites=3, n_samples=180, random_state=700)
    for name, recordings in zip(names, drawn.sites.values(), strict=True):
        recordings[0].to_csv(kits / name / "data" / "one.csv", index=False)
        (kits / name / "policy.toml").write_text(POLICY)
    run = tmp_path / "first"
    run.mkdir()
    (run / "study.toml").write_text(STUDY)
    capsys.readouterr()
    files = dict.fromkeys((*names, *KEEPERS), 0)
    for _ in range(30):
        step = feddbn_says(capsys, "study", "step", run, "--kit", kits / "lead@example.org", "--json")
        if "questions" not in step:
            break
        for name, path in step["questions"].items():
            who = "keeper" if name in KEEPERS else "site"
            told = feddbn_says(capsys, who, "answer", path, "--kit", kits / name, "--json")
            assert not told["refused"]
            files[name] += 1
    outcome = json.loads((run / "result" / "outcome.json").read_text())
    assert outcome["state"] == "finished"
    # The greeting with the first answers, the moments, and the moments with the proof of their weight.
    assert {files[name] for name in names} == {3}
    opened = feddbn_says(capsys, "keeper", "show", "--kit", kits / "keeper-b", "--json")["opened"]
    assert [one["sites"] for one in opened] == [list(names)] * 3
