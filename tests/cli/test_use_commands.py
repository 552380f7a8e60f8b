"""What one does with a result: forecast, effects, export, confidence, plot, report."""

from __future__ import annotations

import json

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.results.result import Result
from support.report_results import curved_dbn


@pytest.fixture(scope="module")
def result(tmp_path_factory, federation):
    """A stored fit of FDBNL that knows its truth."""
    truth = feddbn.DBN.from_json(federation / "truth.json")
    model = feddbn.FDBNL(n_lags=1).fit({p.stem: pd.read_csv(p) for p in sorted(federation.glob("*.csv"))})
    path = tmp_path_factory.mktemp("result") / "result.json"
    return Result.from_estimator(model, truth=truth).save(path)


@pytest.fixture(scope="module")
def personal(tmp_path_factory, result):
    """The same with a network of its own for each site."""
    loaded = Result.load(result)
    own = {site["name"]: loaded.dbn for site in loaded.sites[:-1]} | {"site-2": loaded.truth}
    path = tmp_path_factory.mktemp("personal") / "personal.json"
    path.write_text(json.dumps({**loaded.to_dict(), "personal": {k: v.to_dict() for k, v in own.items()}}))
    return path


def succeed(outcome):
    assert outcome.exit_code == 0, outcome.output
    return outcome


def test_a_forecast_is_that_of_the_library(run, result, federation, tmp_path):
    history = federation / "site-0.csv"
    options = ("--steps", 3, "--interval", 0.8, "--do", "x2=1.5", "-o", tmp_path / "deep" / "f.csv")
    told = json.loads(succeed(run("forecast", result, history, *options, "--json")).stdout)
    expected = Result.load(result).dbn.do({"x2": 1.5}, pd.read_csv(history), 3, interval=0.8).to_frame()
    for table in (pd.DataFrame(told["forecast"]), pd.read_csv(tmp_path / "deep" / "f.csv")):
        pd.testing.assert_frame_equal(table, expected.drop(columns="time"), atol=1e-12)
    shown = succeed(run("forecast", result, history, "--variables", "x1")).stdout
    assert "90% intervals" in shown
    assert "x1" in shown
    assert "x0" not in shown


def test_a_forecast_takes_the_codes_of_its_fit_as_empty(run, tmp_path):
    made = feddbn.simulate(d=3, n_sites=3, n_samples=600, random_state=0)
    for value, name in ((-999.0, "coded"), (np.nan, "empty")):
        (tmp_path / name).mkdir()
        for site, (table,) in made.sites.items():
            cells = table.copy()
            cells.iloc[[50, -1], 0] = value
            cells.to_csv(tmp_path / name / f"{site}.csv", index=False)
    found = {}
    for name, more in (("coded", ["-p", "prepare.empty_values=-999"]), ("empty", [])):
        out = tmp_path / f"{name}.json"
        assert run("fit", tmp_path / name, *more, "-o", out).exit_code == 0
        ahead = run("forecast", out, tmp_path / name / "site-0.csv", "--steps", 2, "--json")
        assert ahead.exit_code == 0, ahead.output
        found[name] = json.loads(ahead.stdout)
    assert found["coded"] == found["empty"]


def test_a_forecast_goes_on_from_one_recording_of_several(run, result, federation, tmp_path):
    one, other = (pd.read_csv(federation / f"site-{k}.csv") for k in (0, 1))
    pd.concat([one.assign(who="a"), other.assign(who="b")]).to_csv(tmp_path / "all.csv", index=False)
    told = succeed(run("forecast", result, tmp_path / "all.csv", "--series", "who=b", "--steps", 2, "--json"))
    alone = succeed(run("forecast", result, federation / "site-1.csv", "--steps", 2, "--json"))
    assert told.stdout == alone.stdout
    for wrong in ("who=c", "nobody=a", "who"):
        refused = run("forecast", result, tmp_path / "all.csv", "--series", wrong)
        assert refused.exit_code == 2
        assert f"--series {wrong}" in refused.output


def test_effects_of_a_pair_and_of_one_variable_on_all(run, result, tmp_path):
    dbn = Result.load(result).dbn
    i, j = np.argwhere(dbn.W)[0]
    source, target = dbn.variables[i], dbn.variables[j]
    told = json.loads(succeed(run("effects", result, source, target, "--horizon", 4, "--json")).stdout)
    pd.testing.assert_frame_equal(pd.DataFrame(told["effects"]), dbn.effects(source, target, 4))
    out = tmp_path / "all.csv"
    succeed(run("effects", result, source, "-o", out))
    table = pd.read_csv(out).set_index("target")
    total = dbn.impulse_responses(10)[:, i, j] * np.sqrt(dbn.stationary_covariance()[i, i])
    assert table.loc[target, "cumulative"] == pytest.approx(total.sum())
    assert table.loc[target, "largest"] == pytest.approx(total[np.abs(total).argmax()])
    assert source not in table.index


def test_a_network_is_exported_in_every_form_and_reads_back(run, personal, tmp_path):
    dbn = Result.load(personal).personal["site-2"]
    for ending in ("json", "graphml", "csv", "dot"):
        succeed(run("export", personal, "-o", tmp_path / f"n.{ending}", "--of", "site-2"))
    assert feddbn.DBN.from_json(tmp_path / "n.json").equals(dbn)
    assert nx.read_graphml(tmp_path / "n.graphml").number_of_edges() == len(dbn.edges())
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "n.csv"), dbn.edges(), check_dtype=False)
    assert (tmp_path / "n.dot").read_text().startswith("digraph")
    succeed(run("export", personal, "-o", tmp_path / "l.npz", "--format", "lingam", "--of", "site-2"))
    succeed(run("export", personal, "-o", tmp_path / "t.npz", "--format", "tigramite", "--of", "site-2"))
    with np.load(tmp_path / "l.npz") as arrays:
        np.testing.assert_array_equal(arrays["adjacency_matrices"], dbn.to_lingam())
        assert tuple(arrays["variables"]) == dbn.variables
    with np.load(tmp_path / "t.npz") as arrays:
        np.testing.assert_array_equal(arrays["val_matrix"], dbn.to_tigramite()[1])


def test_confidence_writes_the_librarys_table_and_a_report_shows_it(run, result, federation, tmp_path):
    out, page = tmp_path / "edges.csv", tmp_path / "report.html"
    options = ("-m", "dynotears", "--replicates", 2, "--seed", 3, "-o", out)
    succeed(run("confidence", federation, *options))
    sites = {p.stem: pd.read_csv(p) for p in sorted(federation.glob("*.csv"))}
    expected = feddbn.confidence(feddbn.Dynotears(), sites, 2, random_state=3)
    pd.testing.assert_frame_equal(pd.read_csv(out), pd.DataFrame(expected), check_dtype=False)
    succeed(run("report", result, "-o", page, "--edges", out))
    assert '"has_interval":true' in page.read_text()
    succeed(run("confidence", federation, "-m", "latent", "--replicates", 2, "-o", out))
    marks = feddbn.confidence(feddbn.LatentDBN(), sites, 2)
    # A spreadsheet takes a mark such as --> for a formula, so it has a ' in front.
    written = pd.read_csv(out, keep_default_na=False)
    pd.testing.assert_frame_equal(
        written.assign(mark=written["mark"].str.lstrip("'")), marks, check_dtype=False
    )


def test_a_report_shows_what_a_study_found_in_the_data(run, refuses, result, tmp_path):
    found = {"code": "text", "level": "warning", "values": {"text": "cells <script>"}, "about": ["x0"]}
    path, page = tmp_path / "findings.json", tmp_path / "report.html"
    path.write_text(json.dumps([found]))
    succeed(run("report", result, "-o", page, "--check", path))
    text = page.read_text(encoding="utf-8")
    assert '<section id="check">' in text
    assert "cells &lt;script&gt;" in text
    path.write_text("[1]")
    assert "findings.json" in refuses("report", result, "-o", page, "--check", path)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("graph", ("--min-weight", 0.1)),
        ("time-series", ()),
        ("truth", ()),
        ("sites", ()),
        ("responses", ("--shock", "x1", "--horizon", 5)),
    ],
)
def test_every_figure_can_be_drawn(run, personal, tmp_path, kind, options):
    out = tmp_path / f"{kind}.svg"
    succeed(run("plot", personal, kind, "-o", out, *options))
    assert "<svg" in out.read_text()[:1000]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("forecast RESULT DATA", "3"),
        ("forecast RESULT DATA/site-0.csv --do x9=1", "'x9'"),
        ("forecast PERSONAL DATA/site-0.csv --of site-9", "site-0, site-1, site-2"),
        ("effects RESULT", "'SOURCE' --help"),
        ("export RESULT -o n.foo", ".graphml --format"),
        ("export RESULT -o n.txt --format lingam", ".npz lingam"),
        ("plot RESULT picture", "KIND 'picture' 'graph'"),
        ("plot RESULT responses", "--shock"),
        ("report RESULT --edges DATA/site-0.csv", "'source'"),
        ("report RESULT --audit DATA/site-0.csv", "line"),
        ("report RESULT --colour red", "'--colour' '--out'"),
        ("magic", "'magic'"),
    ],
)
def test_what_cannot_be_done_names_what_is_wrong(
    refuses, result, personal, federation, tmp_path, monkeypatch, line, names
):
    monkeypatch.chdir(tmp_path)
    places = {"RESULT": result, "PERSONAL": personal, "DATA": federation}
    words = []
    for word in line.split():
        head, slash, rest = word.partition("/")
        words.append(f"{places[head]}{slash}{rest}" if head in places else word)
    said = refuses(*words)
    assert all(name in said for name in names.split()), said


@pytest.fixture(scope="module")
def curved(tmp_path_factory):
    """A stored network with curves."""
    path = tmp_path_factory.mktemp("curved") / "dbn.json"
    curved_dbn().to_json(path)
    return path


def test_power_says_which_effects_a_study_can_find(run):
    line = "power --rows 1200 --sites 6 --recordings 30 --missing 0.1 --effect 0.1 --effect 0.25"
    succeed(run(*line.split()))
    found = json.loads(succeed(run(*line.split(), "--json")).output)
    same = feddbn.power(1200, sites=6, recordings=30, missing=0.1)
    assert found["smallest_effect"] == same.smallest_effect()
    assert list(found["power"]) == ["0.1", "0.25"]
    none = json.loads(succeed(run("power", "--rows", "20", "--recordings", "10", "--json")).output)
    assert none["smallest_effect"] is None
    outcome = run("power", "--rows", "100", "--sites", "5", "--recordings", "2")
    assert (outcome.exit_code, "--recordings 2" in outcome.output + outcome.stderr) == (2, True)
