"""What new users typed: missing cells mean the same in every command, headers count rows, advice can be typed, errors are
JSON where that was asked for.
"""

from __future__ import annotations

import json
import shlex
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.cli.main import COMMANDS
from feddbn.data import read_sites, summary
from feddbn.data.layout import Layout
from feddbn.errors import DataError, ParameterError
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
    with pytest.warns(DeprecationWarning, match="confidence"):
        same = feddbn.edge_confidence(feddbn.OneShotDBN(), gaps, **asked)
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


@pytest.mark.parametrize("method", ["oneshot", "changing"])
def test_a_header_says_how_many_rows_were_used(run, gaps, tmp_path, method):
    outcome = run(
        "fit", gaps, *COLUMNS, "-m", method, "-o", tmp_path / "r.json", "-p", "prepare.missing=drop"
    )
    assert outcome.exit_code == 0, outcome.output
    complete = int(summary(read_sites(gaps, series="patient", time="hour"), 1)["complete_rows"].sum())
    assert f"{complete} of {6 * N}" in outcome.stdout
    stored = json.loads((tmp_path / "r.json").read_text())
    assert sum(site["used_rows"] for site in stored["sites"]) == complete


def test_a_report_with_a_table_of_edges_keeps_the_network(run, fitted, tmp_path):
    stored = json.loads(fitted[0].read_text())
    table = pd.DataFrame(stored["edges"])[["source", "target", "lag", "weight"]].assign(probability=1.0)
    table.to_csv(tmp_path / "same.csv", index=False)
    table.assign(source="x3", target="x2", lag=1).head(1).to_csv(tmp_path / "other.csv", index=False)
    same, other = (
        run(
            "report",
            fitted[0],
            "-o",
            tmp_path / "r.html",
            "--edges",
            tmp_path / f"{name}.csv",
            "--json",
        )
        for name in ("same", "other")
    )
    assert json.loads(same.stdout)["findings"] == []
    (found,) = json.loads(other.stdout)["findings"]
    assert (found["code"], found["level"], found["values"]["both"]) == ("edges-differ", "error", 0)
    assert len(found["values"]["only_network"]) == len(table)


def test_what_select_ends_with_can_be_typed(run, gaps, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    typed = (
        "select",
        gaps,
        *COLUMNS,
        "-g",
        "lambda_w=0.1,0.05",
        "--lags",
        1,
        "-p",
        "prepare.center=recording",
    )
    chosen = run(*typed, "--json")
    assert chosen.exit_code == 0, chosen.output
    line = json.loads(chosen.stdout)["fit"]
    assert shlex.join(line) in run(*typed).stdout
    assert line[:2] == ["feddbn", "fit"]
    fitted = run(*line[1:], "--json")
    assert fitted.exit_code == 0, fitted.output
    stored = json.loads(fitted.stdout)
    assert stored["method"] == "FDBNL"
    assert stored["parameters"]["lambda_w"] == json.loads(chosen.stdout)["chosen"]["lambda_w"]


@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_the_line_that_select_ends_with_has_each_setting_once_however_it_was_typed(run, gaps, debug):
    typed = (
        "--param=prepare.center=recording",
        "-gn_lags=1,2",
        "--grid",
        "lambda_w=0.1",
        "-pn_lags=2",
        "-mfdbnl",
    )
    chosen = run(*debug, "select", gaps, *COLUMNS, *typed, "--json")
    assert chosen.exit_code == 0, chosen.output
    line = json.loads(chosen.stdout)["fit"]
    settings = [word.partition("=")[0] for option, word in pairwise(line) if option in ("-p", "--param")]
    assert sorted(settings) == ["lambda_w", "n_lags", "prepare.center"]
    assert not any(word.startswith(("-g", "--grid", "-m")) for word in line)
    assert run(*line[1:], "--json").exit_code == 0


def jittered(share, seed=0):
    rng = np.random.default_rng(seed)
    times = np.arange(60) * 60 + np.r_[0, rng.integers(-1, 2, 59) * int(60 * share / 2)]
    return pd.DataFrame({"t": times, "a": rng.normal(size=60), "b": rng.normal(size=60)})


@pytest.mark.parametrize(("share", "given", "cure"), [(0.15, None, 0.2), (0.3, 0.2, 0.3), (0.46, 0.2, 0.49)])
def test_a_jitter_that_is_proposed_reads_the_data_and_is_not_the_one_that_was_typed(share, given, cure):
    frame = jittered(share)
    with pytest.raises(DataError) as caught:
        read_sites({"s": frame}, time="t", jitter=given)
    proposed = {one.name: one.value for one in caught.value.parts if not isinstance(one, str)}
    assert (caught.value.code, proposed["jitter"]) == ("closer", cure)
    for name, value in proposed.items():
        read_sites({"s": frame}, **{"time": "t", "jitter": given, name: value})


def test_rows_of_one_time_are_averaged_or_told_apart_unless_that_was_said():
    frame = pd.concat([jittered(0), jittered(0, 1)]).sort_values("t").assign(who=["p", "q"] * 60)

    def proposed(**said):
        with pytest.raises(DataError) as caught:
            read_sites({"s": frame}, time="t", variables=["a", "b"], **said)
        return {one.name for one in caught.value.parts if not isinstance(one, str)}

    assert proposed() == {"series", "irregular"}
    twice = frame.assign(who="p")
    frame = twice
    assert proposed(series="who") == {"irregular"}


def text_sites(place, change=lambda frame: frame, **how):
    rng = np.random.default_rng(3)
    for name in SITES:
        frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=list("uvw"))
        (change(frame) if name == "north" else frame).to_csv(place / f"{name}.csv", index=False, **how)
    return place


def test_a_file_with_semicolons_and_decimal_commas_is_read_and_says_so(tmp_path):
    (tmp_path / "plain").mkdir()
    plain = read_sites(text_sites(tmp_path / "plain"))
    (tmp_path / "eu").mkdir()
    text_sites(tmp_path / "eu", sep=";", decimal=",")
    for how in ({}, {"stream_bytes": 0}):
        found = read_sites(tmp_path / "eu", **how)
        for name in SITES:
            mine, its = (
                np.concatenate([b.values for r in one[name].recordings() for b in r.blocks()])
                for one in (found, plain)
            )
            np.testing.assert_array_equal(mine, its)
            (note,) = found[name].remarks
            assert (note.code, note.values) == ("text-format", {"separator": ";", "decimal": ","})
    assert read_sites(tmp_path / "eu", separator=";", decimal=",")["east"].remarks == ()


def test_a_number_too_large_and_text_among_numbers_are_named_with_row_and_value(run, tmp_path):
    (tmp_path / "huge").mkdir()
    huge = text_sites(tmp_path / "huge", lambda f: f.assign(v=f["v"].where(f.index != 7, 1e300)))
    with refused(DataError, "'v'", "row 7", "1e+300", code="huge"):
        feddbn.OneShotDBN().fit(huge)
    assert summary(read_sites(huge, limits={"v": (-100, 100)}), 1)["usable_rows"].sum() == 177
    (tmp_path / "text").mkdir()
    text = text_sites(
        tmp_path / "text",
        lambda f: f.astype(object).assign(v=f["v"].astype(object).where(f.index != 7, "high")),
    )
    (found,) = (one for one in json.loads(run("check", text, "--json").stdout) if one["code"] == "text-cells")
    assert (found["values"]["row"], found["values"]["cell"], found["level"]) == (7, "high", "error")


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


@pytest.mark.parametrize(
    ("typed", "meant"), [("fitt", "'fit'"), ("conpare", "'compare'"), ("stdy", "'study'")]
)
def test_a_mistyped_command_has_a_suggestion(refuses, typed, meant):
    assert meant in refuses(typed)


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
