"""What a reader of the README types, typed: every line, in the order of the page, in a folder of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import feddbn
from feddbn.cli.main import app

pytestmark = pytest.mark.promise

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST_SCREEN = "\n".join(README.splitlines()[:40])
# Typed by other tests: installing (tests/scripts/test_built_release.py), `make try` (tests/integration/test_try.py),
# the tables of hospitals (tests/scripts/test_examples.py).
ELSEWHERE = ("git clone", "cd ", "pip install", "make try", "make test")


def typed() -> Iterator[str]:
    """Every line of the README that goes to a shell."""
    for block in re.findall(r"```sh\n(.*?)```", README, re.S):
        yield from block.splitlines()
    yield from re.findall(r"^    (\S.*)$", README, re.M)


LINES = [line.partition("  #")[0].strip() for line in typed()]
CLIF = [line for line in LINES if "clif.toml" in line]
SIMULATED = [line for line in LINES if line.startswith("feddbn ") and line not in CLIF][:3]


def test_every_line_is_typed_by_some_test() -> None:
    rest = [line for line in LINES if not line.startswith(ELSEWHERE)]
    assert rest == ["make demo", *SIMULATED, *CLIF, "feddbn report result.json"]


def test_the_first_screen_names_the_two_commands_that_set_all_up() -> None:
    for target in ("demo", "test"):
        assert f"make {target}" in FIRST_SCREEN
        done = subprocess.run(
            ["make", "-n", target, "VENV=none"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert "-m venv none" in done.stdout
        assert "install --editable" in done.stdout


def test_make_demo_writes_the_report_that_the_page_names(tmp_path: Path) -> None:
    """The set-up is that of this environment; what `make demo` does after it is done here."""
    done = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True)
    line = done.stdout.splitlines()[-1].split()
    assert line[0].endswith("bin/feddbn")
    subprocess.run([sys.executable, "-m", "feddbn", *line[1:]], cwd=tmp_path, capture_output=True, check=True)
    assert (tmp_path / "demo" / "report.html").stat().st_size > 10_000


def test_the_lines_on_simulated_data_end_with_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert [line.split()[1] for line in SIMULATED] == ["simulate", "fit", "report"]
    for line in SIMULATED:
        done = CliRunner().invoke(app, line.split()[1:])
        assert done.exit_code == 0, done.output
    truth, found = feddbn.DBN.from_json("data/truth.json"), json.loads(Path("result.json").read_text())
    assert len(found["edges"]) >= np.count_nonzero(truth.W)
    assert "<svg" in Path("result.html").read_text()


@pytest.mark.filterwarnings("ignore::feddbn.errors.UnitsWarning")
def test_the_lines_of_python_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    exec(compile(code, "README.md", "exec"), names := {})
    printed = capsys.readouterr().out
    assert "std err" in printed
    assert "shd" in printed
    assert feddbn.DBN.from_json(tmp_path / "network.json").d == 5
    assert names["model"].edge_probabilities_ is not None


LABELS = {
    "`OneShotDBN`": "OneShotDBN",
    "`FDBNL`": "FDBNL",
    "average of the sites' own networks": "Ave",
}


@pytest.mark.slow
def test_the_table_of_wrong_edges_is_what_its_command_prints() -> None:
    (command,) = re.findall(r"`python (benchmarks/demo_table\.py \d+)`", README)
    run = [sys.executable, *command.split()]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True)
    measured = [re.split(r"\s*\|\s*", line)[1:] for line in done.stdout.splitlines()[2:]]
    numbers = {cells[0]: [f"{float(cells[k].split()[0]):.1f}" for k in (1, 4)] for cells in measured}
    shown = re.findall(r"^\| (.*?) \| (\d+\.\d) \| (\d+\.\d) \|$", README, re.M)
    assert {LABELS[name]: list(both) for name, *both in shown} == {
        one: numbers[one] for one in LABELS.values()
    }
