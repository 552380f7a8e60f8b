"""Bad input: one sentence that names what is wrong, exit code 2, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from feddbn.errors import BudgetExceeded, DataError, FileError, NotEnoughSites, SiteRefused

pytestmark = pytest.mark.promise


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


@pytest.mark.parametrize(
    ("change", "options", "names"),
    [
        (lambda f: f.assign(v=f["v"].where(f.index != 7, np.inf)), (), ("'b'", "'v'", "row 7")),
        (lambda f: f.drop(columns="w"), (), ("'b'", "'w'", "--variables")),
        (lambda f: f.assign(v="high"), (), ("'v'", "--kinds")),
        (lambda f: f.assign(day=[0, *range(39)]), (), ("'b'", "'day'", "--series")),
        (lambda f: f, ("--lambda-w", "-1"), ("--lambda-w -1 ",)),
        (lambda f: f, ("-p", "schedule=fast"), ("-p schedule=fast ", "'gram'")),
        (lambda f: f, ("-p", "lamda_a=0.1"), ("'lamda_a'", "'lambda_a'")),
        (lambda f: f, ("-p", "tol"), ("--param 'tol'",)),
        (lambda f: f, ("--forbid", "u->v"), ("--forbid 'u->v'", "FROM,TO,LAG")),
        (lambda f: f, ("-m", "magic"), ("-m magic ", "fdbnl")),
        (lambda f: f, ("--n-lags=-1",), ("--n-lags=-1 ",)),
        (lambda f: f, ("-p", "prepare.robust=some"), ("-p prepare.robust=some ", "'off'")),
    ],
)
def test_what_cannot_be_fitted_is_named(refuses, two_sites, tmp_path, change, options, names):
    out = tmp_path / "r.json"
    text = refuses("fit", two_sites(change), "-m", "fdbnl", "-o", out, "--time", "day", *options)
    assert not out.exists()
    assert all(name in text for name in names), text
    assert "high" not in text


def test_missing_values_are_counted(run, two_sites, tmp_path):
    directory = two_sites(lambda f: f.assign(v=f["v"].where(f.index != 7)))
    outcome = run("fit", directory, "-m", "fdbnl", "-o", tmp_path / "r.json", "--time", "day", "--json")
    assert outcome.exit_code == 0, outcome.output
    sites = {site["name"]: site for site in json.loads(outcome.stdout)["sites"]}
    assert sites["b"]["usable_rows"] == sites["a"]["usable_rows"]
    assert sites["b"]["complete_rows"] == sites["a"]["complete_rows"] - 2
    assert 0 < sites["b"]["missing_percent"] < 1


@pytest.mark.parametrize(
    ("name", "content"), [("nowhere", None), ("", None), ("a.parquet", b"PAR1 not parquet")]
)
def test_what_cannot_be_read_is_named(refuses, tmp_path, name, content):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert str(tmp_path / name) in refuses("fit", tmp_path / name, "-o", tmp_path / "r.json")


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--site-sizes", "3,x"), ("site_sizes='3,x'",)),
        (("--corruption", "sunspots"), ("--corruption sunspots", "two-rates")),
    ],
)
def test_impossible_simulation(refuses, tmp_path, options, names):
    text = refuses("simulate", "-o", tmp_path / "s", *options)
    assert all(name in text for name in names), text
    assert not (tmp_path / "s").exists()


def test_missing_extra_names_the_installation(refuses, monkeypatch):
    from feddbn.cli.main import Entry

    def load(self, name):
        raise ModuleNotFoundError("No module named 'nvflare.apis'", name="nvflare.apis")

    monkeypatch.setattr(Entry, "load", load)
    assert "pip install 'feddbn[nvflare]'" in refuses("fit")


@pytest.mark.parametrize("arguments", [("fit",), ("fit", "x", "--bad"), ("fti",), ("score", "one")])
def test_wrong_usage_exits_2(run, arguments):
    outcome = run(*arguments)
    assert outcome.exit_code == 2
    assert outcome.stdout == ""
    assert "Traceback" not in outcome.stderr


@pytest.mark.parametrize("arguments", [("--nosuch", "--json"), ("--version=3", "fit", "--json")])
def test_an_error_before_the_name_of_a_command_is_one_sentence_and_json(run, arguments):
    outcome = run(*arguments)
    assert (outcome.exit_code, len(outcome.stderr.splitlines())) == (2, 1)
    assert json.loads(outcome.stdout)["error"]["code"] == "usage"


def test_what_a_federation_refuses_ends_with_1_and_bad_input_with_2(run, federation, monkeypatch):
    ends = {SiteRefused: 1, NotEnoughSites: 1, BudgetExceeded: 1, DataError: 2}
    for kind, code in ends.items():

        def refused(*args, kind=kind, **options):
            raise kind("no.", code="said-no")

        monkeypatch.setattr("feddbn.analysis.comparison.fit_method", refused)
        outcome = run("fit", federation, "--json")
        assert (outcome.exit_code, json.loads(outcome.stdout)["error"]["kind"]) == (code, kind.__name__)


def test_a_bug_is_one_sentence_and_exit_code_70(run, federation, monkeypatch):
    def broken(*args, **options):
        raise ZeroDivisionError("1/0")

    monkeypatch.setattr("feddbn.analysis.comparison.fit_method", broken)
    outcome = run("fit", federation)
    assert outcome.exit_code == 70
    assert len(outcome.stderr.splitlines()) == 1
    assert all(part in outcome.stderr for part in ("ZeroDivisionError: 1/0", "--debug"))


def test_a_real_process_fails_with_one_line_and_debug_lets_the_error_through(run, tmp_path):
    command = [sys.executable, "-m", "feddbn", "fit", str(tmp_path / "nowhere")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert done.stderr.startswith("feddbn: ")
    assert isinstance(run("fit", tmp_path / "nowhere", "--debug").exception, FileError)
