"""Several modules: a study picks its variables by name; what a site keeps can be opened by every command."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import feddbn
import feddbn.analysis.studies
from feddbn.analysis.confidence import confidence
from feddbn.analysis.truth import read_network
from feddbn.cli.main import app
from feddbn.data import read_sites
from feddbn.errors import FileError
from feddbn.federation.guards.study_plan import tasks_of
from feddbn.federation.protocol.encoding import encode
from feddbn.federation.protocol.endpoint import SiteEndpoint
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.study import Privacy, Study, check_goal, parse_study, study_from_json
from feddbn.results.result import Result
from feddbn.runtime.server.conduct import run_study
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.server.results import export_result
from feddbn.runtime.store import FileStore
from support.faults import LocalExchange, MemoryJournal
from support.saying import refused
from support.study_files import ABOUT, ABOUT_LINE
from support.wards import COLUMNS, ward

NAMES = ("a", "b", "c")


def tables() -> dict[str, pd.DataFrame]:
    return {name: ward(150, seed) for seed, name in enumerate(NAMES)}


def make_study(method, goal="network", confidence=None, **parameters):
    values = {"name": "s", "method": method, "variables": COLUMNS[:3], "sites": NAMES, "about": ABOUT}
    return Study(**values, goal=goal, confidence=confidence or {}, parameters={"n_lags": 1, **parameters})


def run(tmp_path, frames, method, **options):
    """Run a study over messages; every site keeps what it is to keep below `tmp_path`."""
    study = make_study(method, **options)
    events = []

    def make(name):
        store = FileStore(tmp_path / name, name)
        site = Site(name, read_sites({name: frames[name]}, missing="keep")[name])
        return SiteEndpoint(site, store, keep=store.keep, on_event=events.append)

    log = MemoryJournal()
    coordinator = Coordinator(LocalExchange(NAMES, make), study, "run-1", log, pause_s=0.0, opening_s=0.0)
    result, _ = run_study(coordinator, study)
    return result, events


def test_a_subset_in_another_order_is_read_by_name(tmp_path):
    frames = tables()
    untidy = {name: frame[[*reversed(COLUMNS)]].copy() for name, frame in frames.items()}
    # A cell that is missing in a column that is not asked for costs no row.
    untidy["b"].loc[40, "oxygen"] = np.nan
    expected, _ = run(tmp_path / "1", {k: f[COLUMNS[:3]] for k, f in frames.items()}, "fdbnl")
    found, events = run(tmp_path / "2", untidy, "fdbnl")
    np.testing.assert_array_equal(found.arrays["W"], expected.arrays["W"])
    np.testing.assert_array_equal(found.arrays["A"], expected.arrays["A"])
    (said, *_) = [event.sentence for event in events if event.what == "agreed"]
    assert all(word in said for word in ("fdbnl", "pulse, pressure, breath", "3 sites"))


@pytest.mark.parametrize("options", [{}, {"prepare.scale": "federated", "prepare.center": "recording"}])
def test_personal_files_of_a_deployment_can_be_opened(tmp_path, options):
    frames = tables()
    run(tmp_path, frames, "pfdbnl", mu=0.5, **options)
    local = feddbn.PFDBNL(mu=0.5, n_lags=1, **options).fit({k: f[COLUMNS[:3]] for k, f in frames.items()})
    for name in NAMES:
        path = tmp_path / name / "run-1" / "personal.feddbn"
        for dbn in (read_network(path), Result.load(path).dbn, read_network(path, name)):
            assert dbn.variables == local.dbns_[name].variables
            for part in ("W", "A", "intercept", "noise_variances"):
                np.testing.assert_allclose(
                    getattr(dbn, part), getattr(local.dbns_[name], part), rtol=1e-9, atol=1e-12
                )
        shared = Result.load(path.with_name("result.feddbn"))
        np.testing.assert_allclose(shared.dbn.W, local.dbn_.W, atol=1e-12)


def command(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_every_command_opens_what_a_site_keeps(tmp_path):
    frames = tables()
    run(tmp_path, frames, "pfdbnl", mu=0.5)
    frames["a"].to_csv(tmp_path / "history.csv", index=False)
    own = tmp_path / "a" / "run-1" / "personal.feddbn"
    (tmp_path / "truth.json").write_text(read_network(own).to_json())
    for kept in (own, own.with_name("result.feddbn")):
        for line in (
            ("forecast", kept, tmp_path / "history.csv", "--json"),
            ("effects", kept, "pulse", "--json"),
            ("score", tmp_path / "truth.json", kept),
            ("export", kept, "-o", tmp_path / "edges.csv"),
        ):
            outcome = command(*line)
            assert outcome.exit_code == 0, outcome.output
        assert command("plot", kept, "sites").exit_code == 2
    for line in (("plot", own, "-o", tmp_path / "graph.svg"), ("report", own, "-o", tmp_path / "page.html")):
        outcome = command(*line)
        assert outcome.exit_code == 0, outcome.output
    # The page has nothing to compare the site's network with, and does not call it what all share.
    assert "Not shared" not in (tmp_path / "page.html").read_text()
    told = json.loads(command("effects", own, "pulse", "pressure", "--json").stdout)["effects"]
    expected = read_network(own).effects("pulse", "pressure", 10)["total"]
    np.testing.assert_allclose([line["total"] for line in told], expected, rtol=1e-9)


def test_a_personal_file_needs_its_result(tmp_path):
    run(tmp_path, tables(), "pfdbnl")
    place = tmp_path / "a" / "run-1"
    (place / "result.feddbn").unlink()
    with refused(FileError, "result.feddbn"):
        read_network(place / "personal.feddbn")
    (place / "other.feddbn").write_bytes(encode({"type": "other"}, {}))
    with refused(FileError, "network"):
        read_network(place / "other.feddbn")
    (place / "personal.feddbn").write_bytes((place / "personal.feddbn").read_bytes()[:-1])
    with refused(FileError, "personal.feddbn"):
        read_network(place / "personal.feddbn")


def test_a_study_without_units_has_the_text_it_always_had():
    text = f'name = "s"\nmethod = "fdbnl"\nvariables = ["u"]\nsites = ["a"]\n{ABOUT_LINE}'
    assert "units" not in parse_study(text).to_json()
    assert parse_study(text + '[units]\nu = "1/min"').units == {"u": "1/min"}
    with refused(feddbn.errors.ParameterError, "units", "'w'"):
        parse_study(text + '[units]\nw = "1/min"')


def test_confidence_is_a_study(tmp_path):
    frames = tables()
    how = {"replicates": 6, "seed": 3, "level": 0.8}
    options = {"noise_variance": "free"}
    result, events = run(tmp_path, frames, "oneshot", goal="confidence", confidence=how, **options)
    asked = {event.task for event in events if event.what.startswith("executed")}
    assert asked <= set(tasks_of(make_study("oneshot", "confidence")))
    local = confidence(
        feddbn.OneShotDBN(n_lags=1, **options),
        {name: frame[COLUMNS[:3]] for name, frame in frames.items()},
        n_replicates=6,
        random_state=3,
        level=0.8,
    )
    found = pd.DataFrame(result.summary["edges"])
    local = pd.DataFrame(local)
    pd.testing.assert_frame_equal(found, local, check_dtype=False, atol=1e-9)
    (tmp_path / "result.feddbn").write_bytes(result.to_bytes())
    export_result(tmp_path)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "edges.csv"), local, check_dtype=False, atol=1e-9)


@pytest.mark.parametrize(
    ("study", "sentence"),
    [
        (
            lambda: make_study("pfdbnl", "confidence"),
            "'pfdbnl'",
        ),
        (lambda: make_study("oneshot", "confidence", n_lags="auto"), "n_lags"),
        (
            lambda: make_study("oneshot", "confidence").model_copy(update={"privacy": Privacy(epsilon=1.0)}),
            "noise",
        ),
    ],
)
def test_a_study_of_confidence_that_cannot_be_is_refused_before_it_is_sent(study, sentence):
    with pytest.raises(feddbn.errors.ParameterError, match=sentence):
        check_goal(study())
    assert {"gram.rows", "gram.parts"} <= set(tasks_of(make_study("oneshot", "confidence")))


def test_a_study_of_a_network_has_the_text_it_always_had():
    assert "goal" not in make_study("fdbnl").to_json()
    assert "confidence" not in make_study("fdbnl").to_json()
    again = study_from_json(make_study("oneshot", "confidence", {"seed": 4}).to_json())
    assert again.confidence.seed == 4
