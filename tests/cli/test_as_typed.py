"""What new users typed: missing cells mean the same in every command, headers count rows, advice can be typed, errors are
JSON where that was asked for.
"""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.cli.main import COMMANDS
from feddbn.data import read_sites, summary
from feddbn.data.layout import Layout
from feddbn.errors import ParameterError
from feddbn.results.result import Result
from support.saying import refused

N, SITES = 150, ("east", "north", "west")


@pytest.fixture(scope="module")
def gaps(tmp_path_factory):
    """Three hospitals of two patients; x0 acts on x1; a third of the cells is empty, so hardly any row is complete."""
    place, rng = tmp_path_factory.mktemp("gaps"), np.random.default_rng(900)
    for name in SITES:
        parts = []
        for patient in ("p", "q"):
            x = rng.normal(size=(N, 4))
            for t in range(1, N):
                x[t] += 0.5 * x[t - 1]
                x[t, 1] += 0.8 * x[t - 1, 0]
            frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(4)])
            frame = frame.mask(rng.random(x.shape) < 0.35)
            parts.append(frame.assign(patient=patient, hour=range(N)))
        pd.concat(parts).to_csv(place / f"{name}.csv", index=False)
    return place


COLUMNS = ("--series", "patient", "--time", "hour")


@pytest.fixture(scope="module")
def fitted(gaps):
    """The result file of a default fit."""
    model = feddbn.OneShotDBN().fit(gaps, series="patient", time="hour")
    return Result.from_estimator(model).save(gaps.parent / "r.json"), model


def test_empty_cells_mean_the_same_in_fit_confidence_compare_and_python(run, gaps, tmp_path):
    counts = summary(read_sites(gaps, series="patient", time="hour"), 1)
    assert counts["usable_rows"].sum() == 6 * (N - 1)
    assert counts["complete_rows"].sum() < 60
    fitted = run("fit", gaps, *COLUMNS, "-o", tmp_path / "r.json", "--json")
    assert fitted.exit_code == 0, fitted.output
    found = json.loads(fitted.stdout)
    assert sum(site["used_rows"] for site in found["sites"]) == 6 * (N - 1)
    table = run("confidence", gaps, *COLUMNS, "--replicates", 5, "-o", tmp_path / "e.csv", "--json")
    assert table.exit_code == 0, table.output
    asked = {"n_replicates": 5, "random_state": 0, "series": "patient", "time": "hour"}
    same = feddbn.confidence(feddbn.OneShotDBN(), gaps, **asked)
    (mine,) = (
        one for one in json.loads(table.stdout)["edges"] if (one["source"], one["target"]) == ("x0", "x1")
    )
    (its,) = same[(same["source"] == "x0") & (same["target"] == "x1")].to_dict("records")
    assert mine["weight"] == pytest.approx(its["weight"], rel=1e-9)
    assert mine["weight"] == pytest.approx(0.8, abs=0.1)
    assert mine["ci_high"] - mine["ci_low"] < 0.25
    compared = run("compare", gaps, *COLUMNS, "-m", "oneshot", "--json")
    assert compared.exit_code == 0, compared.output
    (line,) = json.loads(compared.stdout)["methods"]
    (own,) = feddbn.compare_methods(gaps, ["oneshot"], series="patient", time="hour")
    assert line["held_out_log_likelihood"] == pytest.approx(own.held_out, rel=1e-9)


def test_the_line_that_select_ends_with_has_each_setting_once_however_it_was_typed(
    run, gaps, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    typed = (
        "--param=prepare.center=recording",
        "-gn_lags=1,2",
        "--grid",
        "lambda_w=0.1",
        "-pn_lags=2",
        "-mfdbnl",
    )
    chosen = run("--debug", "select", gaps, *COLUMNS, *typed, "--json")
    assert chosen.exit_code == 0, chosen.output
    line = json.loads(chosen.stdout)["fit"]
    settings = [word.partition("=")[0] for option, word in pairwise(line) if option in ("-p", "--param")]
    assert sorted(settings) == ["lambda_w", "n_lags", "prepare.center"]
    assert not any(word.startswith(("-g", "--grid", "-m")) for word in line)
    assert run(*line[1:], "--json").exit_code == 0
    assert (tmp_path / "result.json").exists()


def leaves(name, command):
    """Every command below one, with its options."""
    inner = getattr(command, "commands", None)
    if inner:
        return [leaf for key, one in inner.items() for leaf in leaves(f"{name} {key}", one)]
    return [(name, {option for one in command.params for option in one.opts})]


def test_every_command_that_prints_a_result_has_json_and_lags_have_one_name():
    every = dict(leaf for name, entry in COMMANDS.items() for leaf in leaves(name, entry.load(name)))
    assert {name for name, options in every.items() if "--json" not in options} == {"start", "console"}
    named = {option for options in every.values() for option in options if option.endswith("lags")}
    assert named == {"--n-lags"}
    # Whatever a sentence may name as an option of reading can be typed.
    for field in Layout.__dataclass_fields__:
        shown = feddbn.words.argument(field, "cli")
        assert not shown.startswith("--") or shown in every["fit"], field


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (("fit", "nowhere"), ""),
        (("fitt",), "usage"),
        (("fit", ".", "--nonsense"), "usage"),
        (("check", "."), ""),
    ],
)
def test_errors_are_json_where_json_was_asked_for(run, tmp_path, monkeypatch, line, code):
    monkeypatch.chdir(tmp_path)
    outcome = run(*line, "--json")
    told = json.loads(outcome.stdout)["error"]
    assert (outcome.exit_code, told["code"]) == (2, code)
    assert outcome.stderr == f"feddbn: {told['sentence']}\n"


def test_a_study_of_another_version_says_versions(refuses, tmp_path):
    (tmp_path / "s.toml").write_text('version = 99\nname = "x"\n', encoding="utf-8")
    said = refuses("show", tmp_path / "s.toml")
    assert {"99", feddbn.__version__} <= set(said.replace(":", " ").split())


def test_a_summary_of_a_model_is_a_text_and_data_are_no_estimator(gaps, fitted):
    model = fitted[1]
    assert feddbn.summary(model) == model.summary()
    assert f"{6 * (N - 1)} of {6 * N}" in model.summary()
    assert "1 lag," in repr(model.dbn_)
    with refused(ParameterError, "OneShotDBN()", code="no-estimator"):
        feddbn.confidence(gaps, series="patient", time="hour")
