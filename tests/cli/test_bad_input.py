"""Bad input: one sentence, exit code 2, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from feddbn.errors import DataError


@pytest.fixture
def two_sites(tmp_path):
    """Write two sites after `change` was applied to the second."""
    rng = np.random.default_rng(0)

    def write(change=lambda frame: frame):
        directory = tmp_path / "sites"
        directory.mkdir()
        for name in ("a", "b"):
            frame = pd.DataFrame(rng.normal(size=(40, 3)), columns=list("uvw"))
            frame.insert(0, "day", range(40))
            (frame if name == "a" else change(frame)).to_csv(directory / f"{name}.csv", index=False)
        return directory

    return write


def fit(refuses, directory, tmp_path, *options):
    text = refuses("fit", directory, "-m", "fdbnl", "-o", tmp_path / "r.json", *options)
    assert not (tmp_path / "r.json").exists()
    return text


def test_infinite_value(refuses, two_sites, tmp_path):
    directory = two_sites(lambda f: f.assign(v=f["v"].where(f.index != 7, np.inf)))
    text = fit(refuses, directory, tmp_path, "--time", "day")
    assert "'b'" in text
    assert "infinit" in text


def test_missing_values_are_counted(run, two_sites, tmp_path):
    directory = two_sites(lambda f: f.assign(v=f["v"].where(f.index != 7)))
    outcome = run("fit", directory, "-m", "fdbnl", "-o", tmp_path / "r.json", "--time", "day", "--json")
    assert outcome.exit_code == 0, outcome.output
    sites = {site["name"]: site for site in json.loads(outcome.stdout)["sites"]}
    assert sites["b"]["usable_rows"] == sites["a"]["usable_rows"]
    assert sites["b"]["complete_rows"] == sites["a"]["complete_rows"] - 2
    assert 0 < sites["b"]["missing_percent"] < 1


def test_a_site_without_one_of_the_values_counts_for_the_others(run, two_sites, tmp_path):
    directory = two_sites(lambda f: f.assign(v=np.nan))
    outcome = run("fit", directory, "-m", "fdbnl", "-o", tmp_path / "r.json", "--time", "day")
    assert outcome.exit_code == 0
    assert "16.7% of the cells are empty; all rows were used for what they hold" in outcome.output


def test_only_missing_values(refuses, two_sites, tmp_path):
    text = fit(
        refuses, two_sites(lambda f: f.assign(u=np.nan, v=np.nan, w=np.nan)), tmp_path, "--time", "day"
    )
    assert "site 'b' has no usable row" in text


def test_wrong_column(refuses, two_sites, tmp_path):
    text = fit(refuses, two_sites(), tmp_path, "--time", "hour")
    assert "has no column 'hour', which --time asks for" in text


def test_missing_variable(refuses, two_sites, tmp_path):
    text = fit(refuses, two_sites(lambda f: f.drop(columns="w")), tmp_path, "--time", "day")
    assert "site 'b' lacks column 'w' compared with site 'a'" in text


def test_text_in_a_variable(refuses, two_sites, tmp_path):
    text = fit(refuses, two_sites(lambda f: f.assign(v="high")), tmp_path, "--time", "day")
    assert "'v'" in text
    assert "high" not in text


def test_too_few_rows(refuses, two_sites, tmp_path):
    text = fit(refuses, two_sites(lambda f: f.head(2)), tmp_path, "--time", "day", "--n-lags", 3)
    assert "site 'b' has only 2 rows in its longest segment; n_lags=3 needs at least 4" in text


def test_constant_variable(refuses, tmp_path):
    rows = np.random.default_rng(0).normal(size=(40, 2))
    pd.DataFrame({"u": rows[:, 0], "v": rows[:, 1], "c": 1.5}).to_csv(tmp_path / "one.csv", index=False)
    text = fit(refuses, tmp_path / "one.csv", tmp_path)
    assert "variable 'c' is constant over all sites" in text


def test_duplicate_times(refuses, two_sites, tmp_path):
    text = fit(refuses, two_sites(lambda f: f.assign(day=[0, *range(39)])), tmp_path, "--time", "day")
    assert "site 'b'" in text
    assert "same" in text or "twice" in text or "duplicate" in text


def test_unsorted_times(refuses, two_sites, tmp_path):
    text = fit(
        refuses, two_sites(lambda f: f.assign(day=f["day"].to_numpy()[::-1])), tmp_path, "--time", "day"
    )
    assert "sort" in text


def test_missing_path(refuses, tmp_path):
    text = fit(refuses, tmp_path / "nowhere", tmp_path)
    assert "does not exist; check the path" in text


def test_directory_without_data(refuses, tmp_path):
    assert "has no .csv, .tsv or .parquet file" in fit(refuses, tmp_path, tmp_path)


def test_unreadable_file(refuses, tmp_path):
    (tmp_path / "site.parquet").write_bytes(b"PAR1 this is not parquet")
    assert "site.parquet" in fit(refuses, tmp_path / "site.parquet", tmp_path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--lambda-w", "-1"), "lambda_w=-1.0 must be a number of at least 0 or 'auto'."),
        (("--n-lags", "-1"), "n_lags=-1 must be a whole number of at least 0 or 'auto'."),
        (("--n-lags", "two"), "n_lags='two' must be a whole number of at least 0, or auto."),
        (("-p", "refit=yes"), "refit='yes' must be True or False."),
        (("-p", "max_rounds=0"), "max_rounds=0 must be a whole number of at least 1."),
        (("-p", "schedule=fast"), "schedule='fast' is not known; choose 'gram', 'rounds' or 'paper'."),
        (("-p", "lamda_a=0.1"), "method 'fdbnl' has no parameter 'lamda_a'; did you mean 'lambda_a'?"),
        (("-p", "tol"), "--param 'tol' must look like key=value"),
        (("-p", "tol=1", "-p", "tol=2"), "--param gives 'tol' twice; keep one of them."),
        (("-p", "n_lags=1", "--n-lags", "1"), "n_lags is given by its own option and by --param"),
        (("--forbid", "u->v"), "--forbid 'u->v' must look like FROM,TO,LAG"),
        (("--forbid", "u,nobody,0"), "nobody"),
    ],
)
def test_impossible_parameter(refuses, two_sites, tmp_path, options, sentence):
    assert sentence in fit(refuses, two_sites(), tmp_path, "--time", "day", *options)


def test_unknown_method(refuses, two_sites, tmp_path):
    text = refuses("fit", two_sites(), "-m", "magic", "-o", tmp_path / "r.json")
    assert text.startswith("method='magic' is not known; choose one of ")
    assert "fdbnl" in text


def test_best_site_without_a_truth(refuses, two_sites, tmp_path):
    text = refuses("fit", two_sites(), "-m", "best-site", "-o", tmp_path / "r.json")
    assert "chooses by the truth" in text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("-d", "0"), "d must be a whole number of at least 1, got 0."),
        (("--heterogeneity", "2"), "heterogeneity must be a share between 0 and 1 or 'independent', got 2.0"),
        (("--noise", "cauchy"), "noise must be one of"),
        (("--site-sizes", "3,x"), "site_sizes='3,x' must be whole numbers separated by commas"),
        (("--mess", "sunspots"), "mess='sunspots' is not known; choose from unequal-noise, slow-levels, "),
        (("--mess", "spikes=many"), "mess='spikes=many' must be a name or name=number, such as spikes=0.02."),
        (("--mess", "spikes=2"), "mess='spikes' has strength 2.0, but it must be a number from 0 to 1"),
        (("--seed", "-1"), "random_state must be a whole number of at least 0"),
        (
            ("--effects", "sine"),
            "effects must be one of linear, gp, spline, sigmoid, threshold, quadratic, mixed",
        ),
        (("--interactions", "1.5"), "interactions must be a whole number (products of two lagged causes"),
        (("--system", "lorentz"), "system must be one of lorenz96, lotka-volterra, got 'lorentz'."),
        (
            ("--system", "lorenz96", "--effects", "gp"),
            "--effects belongs to random networks and does nothing with --system lorenz96; leave it out.",
        ),
        (
            ("--system", "lotka-volterra", "--forcing", "3"),
            "--forcing belongs to --system lorenz96 and does nothing with --system lotka-volterra; leave it out.",
        ),
        (
            ("--dt", "3"),
            "--dt belongs to --system lorenz96 or lotka-volterra and does nothing here; leave it out.",
        ),
        (("--system", "lorenz96", "--d", "3"), "d must be a whole number of at least 4, got 3."),
    ],
)
def test_impossible_simulation(refuses, tmp_path, options, sentence):
    assert sentence in refuses("simulate", "-o", tmp_path / "s", *options)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "is not readable JSON; it may be damaged or cut off."),
        ("[1]", "is not a JSON file of feddbn"),
        ('{"format": "other"}', "holds no true network"),
        ('{"format": "feddbn-result", "version": 99}', "reads up to 1; upgrade feddbn."),
        ('{"format": "feddbn-result", "version": 1}', "is a damaged result: it lacks 'dbn'"),
    ],
)
def test_corrupt_result(refuses, federation, tmp_path, content, sentence):
    (tmp_path / "r.json").write_text(content)
    assert sentence in refuses("score", federation / "truth.json", tmp_path / "r.json")


def test_truth_of_other_variables(refuses, run, two_sites, federation, tmp_path):
    run("fit", two_sites(), "-m", "fdbnl", "-o", tmp_path / "r.json", "--variables", "u,v,w")
    text = refuses("score", federation / "truth.json", tmp_path / "r.json")
    assert "truth and estimate must have the same variables" in text


def test_output_that_is_a_directory(refuses, two_sites, tmp_path):
    text = refuses("fit", two_sites(), "-m", "fdbnl", "-o", tmp_path, "--time", "day")
    assert "cannot be written: it is a directory" in text


def test_held_out_share_beyond_one(refuses, two_sites):
    assert "held_out=2.0 must lie between 0 and 1" in refuses("compare", two_sites(), "--held-out", 2)


def test_parameter_that_no_compared_method_has(refuses, two_sites):
    text = refuses("compare", two_sites(), "-m", "fdbnl", "-p", "colour=red")
    assert text == "none of the compared methods has the parameter 'colour'; leave it out."


def test_missing_extra_names_the_installation(refuses, monkeypatch):
    from feddbn.cli.main import Entry

    def load(self, name):
        raise ModuleNotFoundError("No module named 'nvflare.apis'", name="nvflare.apis")

    monkeypatch.setattr(Entry, "load", load)
    assert (
        refuses("fit") == "this needs the package 'nvflare': install it with `pip install 'feddbn[nvflare]'`."
    )


@pytest.mark.parametrize("arguments", [("fit",), ("fit", "x", "--bad"), ("fti",), ("score", "one")])
def test_wrong_usage_exits_2(run, arguments):
    outcome = run(*arguments)
    assert outcome.exit_code == 2
    assert outcome.stdout == ""
    assert "Traceback" not in outcome.stderr


def test_debug_shows_where_it_failed(run, tmp_path):
    outcome = run("fit", tmp_path, "--debug")
    assert isinstance(outcome.exception, Exception)
    assert "has no .csv" in str(outcome.exception)


def test_a_bug_is_one_sentence_and_exit_code_1(run, federation, monkeypatch):
    def broken(*args, **options):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("feddbn.methods.comparison.fit_method", broken)
    outcome = run("fit", federation)
    assert outcome.exit_code == 1
    assert outcome.stderr == (
        "feddbn: unexpected ZeroDivisionError: division by zero; run again with --debug and report it.\n"
    )


def test_real_process_fails_with_one_line(tmp_path):
    command = [sys.executable, "-m", "feddbn", "fit", str(tmp_path / "nowhere")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("feddbn: file ")
    assert len(done.stderr.splitlines()) == 1


def test_real_process_shows_the_traceback_with_debug(tmp_path):
    command = [sys.executable, "-m", "feddbn", "fit", str(tmp_path / "nowhere"), "--debug"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert DataError.__module__ in done.stderr


@pytest.mark.parametrize("text", ["lambda_w", "=1", "lambda_w="])
def test_a_grid_without_a_name_or_values(text):
    from feddbn.cli.select import _grid
    from feddbn.errors import ParameterError

    with pytest.raises(ParameterError, match="must look like key=v1,v2"):
        _grid([text])


def test_a_grid_of_words_says_what_can_be_chosen(refuses, federation):
    text = refuses("select", federation, "-g", "center=none,recording")
    assert "grid names 'center', which held-out rows cannot choose" in text
    assert "-p center=auto chooses it from the first sum" in text
    assert "contains 'high'; give numbers" in refuses("select", federation, "-g", "lambda_w=high")
