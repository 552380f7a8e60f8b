"""Commands on networks with variables of other kinds: simulate, score, forecast, effects, export, plot."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import feddbn
from support.mixed_networks import mixed_network


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    path = tmp_path_factory.mktemp("mixed") / "network.json"
    mixed_network(covariance=True).to_json(path)
    return path


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    mixed_network().simulate(40, 0, burn_in=10).to_csv(path, index=False)
    return path


def succeed(outcome):
    assert outcome.exit_code == 0, outcome.output
    return outcome


def test_simulated_files_are_those_of_the_library(run, refuses, tmp_path):
    options = ("-d", 3, "--n-sites", 2, "--n-samples", 40, "--seed", 3)
    succeed(run("simulate", "-o", tmp_path / "a", *options, "--kinds", "binary,count"))
    fed = feddbn.simulate(d=3, n_sites=2, n_samples=40, random_state=3, kinds=["binary", "count"])
    pd.testing.assert_frame_equal(
        pd.read_csv(tmp_path / "a" / "site-1.csv"), fed.sites["site-1"][0], check_dtype=False
    )
    truth = feddbn.DBN.from_json(tmp_path / "a" / "truth.json")
    assert truth.equals(feddbn.DBN.from_dict(fed.truth.to_dict()))
    kinds = ("--kinds", "x1=ordinal:no,bad", "--kinds", "x2=categorical:3")
    succeed(run("simulate", "-o", tmp_path / "b", *options, *kinds))
    kinds = feddbn.DBN.from_json(tmp_path / "b" / "truth.json").kinds
    assert [kind.name for kind in kinds] == ["continuous", "ordinal", "categorical"]
    assert [kind.levels for kind in kinds[1:]] == [("no", "bad"), ("0", "1", "2")]
    told = json.loads(
        succeed(run("score", tmp_path / "a" / "truth.json", tmp_path / "a" / "truth.json", "--json")).stdout
    )
    assert {row["kind"] for row in told["by_kind"]} == {"binary", "count"}
    assert (
        "binary" in succeed(run("score", tmp_path / "a" / "truth.json", tmp_path / "a" / "truth.json")).stdout
    )
    assert "'x1=binary,count'" in refuses("simulate", "-o", tmp_path, "--kinds", "x1=binary,count")
    assert "'colour'" in refuses("simulate", "-o", tmp_path, "--kinds", "colour")
    assert "--kinds" in refuses("simulate", "-o", tmp_path, "--system", "lorenz96", "--kinds", "binary")


def test_forecasts_hold_levels_by_name(run, refuses, network, history):
    told = json.loads(
        succeed(run("forecast", network, history, "--steps", 2, "--do", "ward=south", "--json")).stdout
    )
    table = pd.DataFrame(told["forecast"])
    held = table[table["variable"] == "ward"].set_index(["step", "level"])["mean"]
    assert held[1, "south"] == 1
    assert held[2, "north"] == 0
    dbn = mixed_network(covariance=True)
    wanted = dbn.do({"ward": "south"}, pd.read_csv(history), 2, 0.9, random_state=0)
    np.testing.assert_allclose(table["mean"], wanted.to_frame()["mean"], atol=1e-12)
    assert "pain" in succeed(run("forecast", network, history, "--variables", "pain")).stdout
    assert "north, south, west" in refuses("forecast", network, history, "--do", "ward=east")


def test_effects_from_level_to_level(run, refuses, network):
    options = ("--at", "north", "--by", "west", "--horizon", 1)
    told = json.loads(succeed(run("effects", network, "ward", "temp", *options, "--json")).stdout)
    wanted = mixed_network().effects("ward", "temp", 1, at="north", by="west", random_state=0)
    np.testing.assert_allclose([row["total"] for row in told["effects"]], wanted["total"], atol=1e-12)
    shown = succeed(run("effects", network, "ward", *options)).stdout
    assert all(level in shown for level in ("west", "north"))
    assert "north, south, west" in refuses("effects", network, "ward", "--at", "east")


def test_tables_and_pictures(run, refuses, network, tmp_path):
    succeed(run("export", network, "-o", tmp_path / "c.csv", "--format", "coefficients"))
    dbn = mixed_network(covariance=True)
    assert (tmp_path / "c.csv").read_text() == dbn.to_coefficients_csv()
    linear = tmp_path / "linear.json"
    feddbn.DBN(np.zeros((2, 2)), np.zeros((1, 2, 2))).to_json(linear)
    out = tmp_path / "d.csv"
    assert "dbn.edges()" in refuses("export", linear, "-o", out, "--format", "coefficients")
    assert "--format curves" in refuses("export", network, "-o", out, "--format", "curves")
