"""Times on the command line: sorting, jitter, day-first dates, and the times of a forecast."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.results.result import Result


@pytest.fixture(scope="module")
def model():
    """A fit of three sites, and its data."""
    fed = feddbn.simulate(d=3, n_sites=3, n_samples=450, random_state=2)
    data = {name: frames[0].set_axis(list("uvw"), axis=1) for name, frames in fed.sites.items()}
    return feddbn.FDBNL(n_lags=1).fit(data), data


@pytest.fixture
def stored(model, tmp_path):
    return Result.from_estimator(model[0]).save(tmp_path / "result.json")


def edges(outcome):
    assert outcome.exit_code == 0, outcome.output
    return [(e["source"], e["target"], e["lag"], e["weight"]) for e in json.loads(outcome.stdout)["edges"]]


def test_a_fit_of_untidy_times_is_that_of_tidy_ones(run, model, tmp_path):
    parts = []
    for k, (name, frame) in enumerate(model[1].items()):
        dates = pd.date_range("2023-01-10", periods=len(frame), freq="h") + pd.to_timedelta(
            np.random.default_rng(k).integers(-60, 60, len(frame)), unit="s"
        )
        parts.append(frame.assign(site=name, when=dates.strftime("%d/%m/%Y %H:%M:%S")))
    pd.concat(parts).sample(frac=1, random_state=0).to_csv(tmp_path / "long.csv", index=False)
    options = ("-m", "fdbnl", "-o", tmp_path / "r.json", "--site", "site", "--time", "when", "--json")
    outcome = run("fit", tmp_path / "long.csv", *options, "--sort", "--day-first")
    expected = [tuple(row) for row in model[0].dbn_.edges().itertuples(index=False)]
    for mine, its in zip(edges(outcome), expected, strict=True):
        assert mine[:3] == its[:3]
        assert mine[3] == pytest.approx(its[3], rel=1e-9)
    refused = run("fit", tmp_path / "long.csv", *options, "--sort")
    assert refused.exit_code == 2
    assert "--day-first" in refused.stderr
    assert "--sort" in run("fit", tmp_path / "long.csv", *options, "--day-first").stderr
    tight = run(
        "fit", tmp_path / "long.csv", *options, "--sort", "--day-first", "--freq", "1h", "--jitter", 0.01
    )
    assert "--jitter" in tight.stderr


def test_a_forecast_says_when(run, model, stored, tmp_path):
    frame = next(iter(model[1].values()))
    dates = pd.date_range("2024-05-01", periods=len(frame), freq="15min")
    frame.assign(t=dates).to_csv(tmp_path / "h.csv", index=False)
    told = run("forecast", stored, tmp_path / "h.csv", "--time", "t", "--steps", 2, "--json")
    table = pd.DataFrame(json.loads(told.stdout)["forecast"])
    assert table["time"].unique().tolist() == [str(dates[-1] + k * pd.Timedelta("15min")) for k in (1, 2)]
    assert (
        str(dates[-1] + pd.Timedelta("15min"))
        in run("forecast", stored, tmp_path / "h.csv", "--time", "t").stdout
    )
    frame.assign(t=0.72 * np.arange(len(frame))).to_csv(tmp_path / "f.csv", index=False)
    told = run("forecast", stored, tmp_path / "f.csv", "--time", "t", "--steps", 1, "--json")
    assert json.loads(told.stdout)["forecast"][0]["time"] == pytest.approx(0.72 * len(frame))


def test_missing_cells_at_the_end_do_not_move_the_first_step(run, model, stored, tmp_path):
    whole = next(iter(model[1].values()))
    for hole, said in (
        ((slice(-3, None), 0), "1 missing cell."),
        ((slice(-2, None), slice(None)), "2 rows"),
    ):
        frame = whole.copy()
        frame.iloc[hole] = np.nan
        expected = model[0].dbn_.forecast(frame, 1).mean.to_numpy()[0]
        frame.assign(t=range(len(frame))).to_csv(tmp_path / "h.csv", index=False)
        told = run("forecast", stored, tmp_path / "h.csv", "--time", "t", "--steps", 1, "--json")
        assert said in told.stderr
        rows = json.loads(told.stdout)["forecast"]
        assert rows[0]["time"] == len(frame)
        np.testing.assert_allclose([row["mean"] for row in rows], expected, atol=1e-10)
        told = run("forecast", stored, tmp_path / "h.csv", "--steps", 1, "--json")
        rows = json.loads(told.stdout)["forecast"]
        np.testing.assert_allclose([row["mean"] for row in rows], expected, atol=1e-10)
