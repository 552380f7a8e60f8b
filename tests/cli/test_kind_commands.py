"""Commands on networks with variables of other kinds: simulate, score, forecast, effects, export, plot."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.cli.options import Reading, given_parameters, parse_kinds
from feddbn.data.kinds import read_kinds
from feddbn.errors import ParameterError
from feddbn.method_table import METHODS
from support.mixed_networks import mixed_network
from support.saying import refused
from support.wards import wards


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
    told = json.loads(
        succeed(run("score", tmp_path / "a" / "truth.json", tmp_path / "a" / "truth.json", "--json")).stdout
    )
    assert {row["kind"] for row in told["by_kind"]} == {"binary", "count"}
    assert (
        "binary" in succeed(run("score", tmp_path / "a" / "truth.json", tmp_path / "a" / "truth.json")).stdout
    )
    assert "'x1=binary,count'" in refuses("simulate", "-o", tmp_path, "--kinds", "x1=binary,count")


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


def test_tables_and_pictures(run, refuses, network, tmp_path):
    succeed(run("export", network, "-o", tmp_path / "c.csv", "--format", "coefficients"))
    dbn = mixed_network(covariance=True)
    pd.testing.assert_frame_equal(
        pd.read_csv(tmp_path / "c.csv", keep_default_na=False, na_values={"ratio": [""]}), dbn.coefficients()
    )
    linear = tmp_path / "linear.json"
    feddbn.DBN(np.zeros((2, 2)), np.zeros((1, 2, 2))).to_json(linear)
    out = tmp_path / "d.csv"
    assert "--format curves" in refuses("export", network, "-o", out, "--format", "curves")


KINDLY, PLAIN = METHODS["mixed"], METHODS["oneshot"]


@pytest.fixture
def hospitals(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name, frame in wards(3).items():
        n = len(frame)
        frame = frame.assign(calls=rng.poisson(1.5, n), ward=rng.choice(["north", "south", "west"], n))
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


def test_options_say_kinds_and_levels():
    said = parse_kinds(
        [
            "visits=count",
            "ward=north, south ,west",
            "pain=ordinal:no,some,bad",
            "score=ordinal:5",
            "s=binary:f,m",
        ]
    )
    assert said == {
        "visits": "count",
        "ward": ["north", "south", "west"],
        "pain": {"ordinal": ["no", "some", "bad"]},
        "score": {"ordinal": 5},
        "s": {"binary": ["f", "m"]},
    }
    assert [kind.n_levels for kind in read_kinds(said, tuple(said))] == [0, 3, 3, 5, 2]
    assert parse_kinds(None) is None
    assert parse_kinds([]) is None


@pytest.mark.parametrize("inside", [True, False])
def test_files_say_kinds_too(tmp_path, inside):
    kinds = {"visits": "count", "pain": {"ordinal": ["no", "bad"]}}
    (tmp_path / "kinds.json").write_text(json.dumps({"kinds": kinds} if inside else kinds))
    head = "[kinds]\n" if inside else ""
    (tmp_path / "kinds.toml").write_text(f'{head}visits = "count"\npain = {{ ordinal = ["no", "bad"] }}\n')
    for name in ("kinds.json", "kinds.toml"):
        assert parse_kinds([str(tmp_path / name), "x=positive"]) == {**kinds, "x": "positive"}


@pytest.mark.parametrize("command", ["fit", "select"])
def test_methods_that_know_no_kinds_are_refused_with_the_one_that_does(refuses, hospitals, command):
    assert "--method mixed" in refuses(command, hospitals, "--kinds", "calls=count")


def test_kinds_become_a_parameter_of_methods_that_have_it():
    said = Reading(feddbn.Layout(), {"calls": "count"})
    assert given_parameters([KINDLY, KINDLY], said, ["n_lags=2"]) == {
        "kinds": {"calls": "count"},
        "n_lags": 2,
    }
    with refused(ParameterError, "--kinds", "--param"):
        given_parameters([KINDLY], said, ['kinds={"calls": "count"}'])
    with refused(ParameterError, "--kinds", "oneshot"):
        given_parameters([KINDLY, PLAIN], said, None)
    assert given_parameters([PLAIN], Reading(feddbn.Layout()), None) == {}
