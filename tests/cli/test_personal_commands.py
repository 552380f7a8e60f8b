"""Personal networks from the command line: what sites share, what is chosen, and bad input."""

from __future__ import annotations

import json

import pandas as pd
import pytest


@pytest.fixture(scope="module")
def quick() -> tuple[str, ...]:
    return ("-m", "pfdbnl", "-p", "rounds.tol=1e-3")


def test_fit_shows_what_sites_share_and_what_is_special(run, federation, tmp_path, quick):
    outcome = run("fit", federation, "-o", tmp_path / "r.json", *quick)
    assert outcome.exit_code == 0, outcome.output
    assert "3/3" in outcome.stdout
    assert "site-2" in outcome.stdout


def test_fit_writes_the_shared_edges_as_json_and_hides_small_counts(run, federation, tmp_path, quick):
    outcome = run("fit", federation, "-o", tmp_path / "r.json", *quick, "--min-count", 3, "--json")
    found = json.loads(outcome.stdout)
    report = found["shared_edges"]
    assert report["min_count"] == 3
    assert {edge["kind"] for edge in report["edges"]} <= {"shared", "hidden"}
    assert set(report["deviations"]) == set(found["personal"]) == {"site-0", "site-1", "site-2"}


def test_sites_with_different_columns_are_fitted_when_told_so(run, refuses, federation, tmp_path, quick):
    for k in range(3):
        frame = pd.read_csv(federation / f"site-{k}.csv").drop(columns=[f"x{k}"])
        frame.to_csv(tmp_path / f"site-{k}.csv", index=False)
    assert "'x0'" in refuses("fit", tmp_path, "-o", tmp_path / "r.json", *quick)
    arguments = ("-p", "partial.different_variables=true", "--json")
    outcome = run("fit", tmp_path, "-o", tmp_path / "r.json", *quick, *arguments)
    assert outcome.exit_code == 0, outcome.output
    personal = json.loads(outcome.stdout)["personal"]
    assert personal["site-1"]["variables"] == ["x0", "x2", "x3"]


def test_select_chooses_mu_by_default_for_personal_networks(run, federation, quick):
    outcome = run("select", federation, *quick, "--n-blocks", 1, "-g", "mu=2,.1")
    assert outcome.exit_code == 0, outcome.output
    assert "Fit with: -p mu=" in outcome.stdout
    from feddbn.method_table import METHODS
    from feddbn.methods.selection import AUTO_GRIDS, default_grid

    assert default_grid(METHODS["pfdbnl"]) == {"mu": list(AUTO_GRIDS["mu"])}
    assert set(default_grid(METHODS["fdbnl"])) == {"lambda_w", "lambda_a"}


def test_compare_has_the_personal_methods_only_when_asked(run, federation):
    arguments = ("--truth", federation / "truth.json", "-p", "rounds.tol=1e-3", "--json")
    outcome = run("compare", federation, "--personal", "-m", "pfdbnl", "-m", "local", *arguments)
    assert [line["label"] for line in json.loads(outcome.stdout)["methods"]] == ["PFDBNL", "LocalOnly"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("fit -m pfdbnl --min-count 0", "--min-count 0"),
        ("fit -m pfdbnl -p mu=big", "mu='big'"),
        ("fit -m pfdbnl -p n_clusters=9", "n_clusters=9"),
        ("select -m pfdbnl -g mu=0,1", "mu=0"),
        ("select -m pfdbnl -g mu=1 --n-blocks 0", "n_blocks=0"),
        ("select -m fdbnl -g mu=1", "'mu'"),
        ("select -m oneshot", "OneShotDBN"),
    ],
)
def test_bad_input_is_one_sentence(refuses, federation, tmp_path, line, name):
    command, *others = line.split()
    out = ["-o", tmp_path / "r.json"] if command == "fit" else []
    assert name in refuses(command, federation, *others, *out)
