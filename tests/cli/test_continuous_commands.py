"""Continuous time at the command line: fit, effects, forecast, plot, export, report."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from feddbn import RateNetwork
from feddbn.results.result import Result

TRUTH = RateNetwork.driven(
    [[-0.5, 0.6], [0.0, -1.0]], [1.0, 1.0], ["a", "b"], mean=[5.0, 1.0], nugget=[0.1, 0.1], step="1h"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two sites of long tables, and one recording alone."""
    folder, rng = tmp_path_factory.mktemp("readings"), np.random.default_rng(920)
    (folder / "data").mkdir()
    for site in ("north", "south"):
        parts = []
        for stay in range(5):
            times = np.cumsum(rng.exponential(0.5, 200))
            rows = TRUTH.sample(times, rng)
            rows["when"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(times, unit="h").round("s")
            parts.append(rows.melt("when", var_name="what", value_name="value").assign(stay=stay))
        table = pd.concat(parts).sample(frac=0.7, random_state=1).sort_values(["stay", "when", "what"])
        table.to_csv(folder / "data" / f"{site}.csv", index=False)
    rows.to_csv(folder / "one.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def result(folder):
    from typer.testing import CliRunner

    from feddbn.cli.main import app

    options = ["--series", "stay", "--time", "when", "--names", "what", "--values", "value"]
    path = folder / "result.json"
    told = CliRunner().invoke(
        app, ["fit", str(folder / "data"), "-m", "continuous", *options, "-p", "longest=24", "-o", str(path)]
    )
    assert told.exit_code == 0, told.output
    assert "Half-life" in told.stdout
    assert "rate per h" in told.stdout
    return path


def test_a_long_table_becomes_rates(result):
    rates = Result.load(result).rates
    assert rates is not None
    assert rates.step == "1h"
    table = rates.to_frame()
    assert table.loc[table["source"] != table["target"], ["source", "target"]].values.tolist() == [["a", "b"]]


def test_effects_have_intervals_at_any_hour(run, result, tmp_path):
    told = json.loads(run("effects", result, "a", "b", "--hours", 2.5, "--by", 1, "--json").stdout)["effects"]
    rates = Result.load(result).rates
    expected = rates.effect("a", "b", hours=2.5)
    (usual,) = json.loads(run("effects", result, "a", "b", "--hours", 2.5, "--json").stdout)["effects"]
    assert usual["effect"] == pytest.approx(expected.value * rates.stationary[0, 0] ** 0.5)
    assert told == [
        {
            "steps": 2.5,
            "effect": expected.value,
            "error": expected.error,
            "lower": expected.lower,
            "upper": expected.upper,
        }
    ]
    every = json.loads(run("effects", result, "a", "--horizon", 3, "--json").stdout)["effects"]
    assert [row["target"] for row in every] == ["b"]
    steps = json.loads(run("effects", result, "a", "b", "--horizon", 3, "--json").stdout)["effects"]
    assert [row["steps"] for row in steps] == [0, 1, 2, 3]


def test_forecasts_are_those_of_the_library(run, result, folder):
    rows = pd.read_csv(folder / "one.csv", parse_dates=["when"]).set_index("when")
    at = rows.index[-1] + pd.Timedelta("90min")
    told = json.loads(
        run("forecast", result, folder / "one.csv", "--time", "when", "--at", at, "--json").stdout
    )["forecast"]
    expected = Result.load(result).rates.forecast(rows, times=[at], interval=0.9)
    assert [row["mean"] for row in told] == pytest.approx(expected.mean.iloc[0].tolist())
    assert [row["upper"] for row in told] == pytest.approx(expected.upper.iloc[0].tolist())
    ahead = run("forecast", result, folder / "one.csv", "--time", "when", "--steps", 2, "--variables", "b")
    assert ahead.exit_code == 0
    assert "a " not in ahead.stdout.split("variable", 1)[1]
    plain = run("forecast", result, folder / "one.csv", "--steps", 2)
    assert "1h after the one before" in " ".join(plain.stderr.split())


def test_what_has_no_meaning_is_refused(refuses, result, folder, federation):
    one = folder / "one.csv"
    assert "--by" in refuses("effects", result, "a", "b", "--by", "much")
    assert "--through" in refuses("effects", result, "a", "b", "--through", "b")
    assert "--do" in refuses("forecast", result, one, "--time", "when", "--do", "a=1")
    assert "--at" in refuses("forecast", federation / "truth.json", federation / "site-0.csv", "--at", "3")
    assert "--hours" in refuses("effects", federation / "truth.json", "x0", "x1", "--hours", 3)
    assert "--format rates" in refuses(
        "export", federation / "truth.json", "--format", "rates", "-o", "r.csv"
    )
    refuses("forecast", result, one, "--time", "when", "--at", "soon")
    refuses("effects", result, "a", "z", "--hours", 3)
    refuses("fit", folder / "data", "-m", "continuous", "-p", "longest=0")
