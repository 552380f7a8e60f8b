"""Options for readings: a table with one reading per row goes from the command line to a network."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from feddbn.cli.main import app

RUN = CliRunner()
READ = ["--site", "ward", "--series", "stay", "--time", "t", "--names", "what", "--values", "x"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Readings of three wards; the pulse is in beats per second, some of it beyond what is plausible."""
    rng = np.random.default_rng(0)
    parts = []
    for ward in "abc":
        level = np.zeros(2)
        for hour in range(400):
            level = np.array([0.7 * level[0], 0.5 * level[0] + 0.3 * level[1]]) + rng.normal(size=2)
            for name, value in zip(("pulse", "map"), (1.2 + 0.02 * level[0], 80 + level[1]), strict=True):
                n = 1 + int(rng.random() < 0.2)
                minutes = rng.integers(0, 60, n)
                parts += [
                    (ward, "s", f"2024-01-{1 + hour // 24:02d}T{hour % 24:02d}:{m:02d}", name, value)
                    for m in minutes
                ]
    long = pd.DataFrame(parts, columns=["ward", "stay", "t", "what", "x"])
    long.loc[[5, 50], "x"] = 900.0
    path = tmp_path_factory.mktemp("readings") / "long.csv"
    long.sample(frac=1, random_state=0).to_csv(path, index=False)
    return path


def test_a_network_is_learned_from_readings(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    command = ["fit", str(table), *READ, "--freq", "1h", "--limits", "adult-icu", "--out", str(out)]
    done = RUN.invoke(app, command)
    assert done.exit_code == 0, done.output
    assert {one["code"] for one in json.loads(out.read_text())["findings"]} >= {"averaged"}


def test_a_forecast_goes_on_from_readings(run, refuses, table: Path, tmp_path: Path) -> None:
    out, history = tmp_path / "result.json", tmp_path / "history.csv"
    assert run("fit", table, *READ, "--freq", "1h", "-o", out).exit_code == 0
    long = pd.read_csv(table)
    one = long[(long["ward"] == "a") & (long["x"] < 900)].drop(columns=["ward", "stay"])
    one.to_csv(history, index=False)
    options = ["--time", "t", "--names", "what", "--values", "x"]
    assert "--freq" in refuses("forecast", out, history, *options)
    done = run("forecast", out, history, *options, "--freq", "1h", "--steps", "2", "--json")
    assert done.exit_code == 0, done.output
    wide = one.assign(t=pd.to_datetime(one["t"]).dt.floor("h")).pivot_table(
        index="t", columns="what", values="x"
    )
    wide.to_csv(tmp_path / "wide.csv")
    same = run("forecast", out, tmp_path / "wide.csv", "--time", "t", "--steps", "2", "--json")
    assert same.exit_code == 0, same.output
    # Means differ in their last bits.
    mine, its = (
        json.loads(each.stdout, parse_float=lambda text: round(float(text), 7)) for each in (done, same)
    )
    assert mine == its


def test_a_description_is_taken_unless_an_option_says_otherwise(tmp_path: Path) -> None:
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 2)), columns=["x", "y"]).assign(t=range(80))
    rows[::-1].to_csv(tmp_path / "n.csv", index=False)
    path = tmp_path / "n.toml"
    refusals = []
    for text, options in (("", []), ("", ["--sort"]), ("sort = true\n", [])):
        path.write_text(f'data = "n.csv"\ntime = "t"\n{text}')
        done = RUN.invoke(app, ["check", str(path), *options, "--json"])
        refusals.append([one["values"]["why"] for one in json.loads(done.stdout) if one["code"] == "refused"])
    assert refusals == [["earlier"], [], []]
