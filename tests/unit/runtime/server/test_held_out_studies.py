"""Several modules: studies that choose parameters or compare methods on held-out rows, over endpoints of real sites."""

from __future__ import annotations

import json
import logging

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from feddbn import FDBNL, select, simulate
from feddbn.analysis import studies  # noqa: F401
from feddbn.analysis.comparison import compare
from feddbn.cli.main import app
from feddbn.cli.printed import print_held_out
from feddbn.data import read_sites
from feddbn.errors import NotEnoughSites, ParameterError, SiteRefused
from feddbn.federation.guards.study_plan import tasks_of
from feddbn.federation.programs.held_out import HeldOutSumsQuestion
from feddbn.federation.protocol.messages import WITHHELD, encode_request, read_reply, task_request
from feddbn.federation.protocol.study import Privacy, check_goal, parse_study
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.statistics import make_fold
from feddbn.method_table import get_method
from feddbn.privacy.policy import SitePolicy
from feddbn.results.result import Result
from feddbn.runtime.server.conduct import run_study
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.server.results import export_result
from feddbn.runtime.settings import read_site_settings
from feddbn.runtime.site.kit_files import write_site_files
from feddbn.runtime.site.open_site import open_site
from support.entropy import Entropy
from support.faults import LocalExchange, MemoryJournal
from support.saying import kept_out, refused
from support.study_files import ABOUT_LINE

pytest.importorskip("cryptography")
CORRUPTIONS = {"offsets": 1, "trend": 1, "missing": 0.1, "spikes": 0.005}
HELD_OUT = ("loss.rows", "loss.sums")
# Equal numbers need no finished fits.
FEW = {"rounds.tol": 1e-2, "rounds.max_rounds": 12}
ONE_PROCESS = {"prepare.on_disagreement": "ignore"}


class Sites:
    """Sites on disk, as a kit makes them, whose owners allow what held-out rows need."""

    def __init__(self, place, n_sites=4, extra=HELD_OUT, corruptions=CORRUPTIONS):
        fed = simulate(d=3, n_sites=n_sites, n_samples=130 * n_sites, random_state=3, corruptions=corruptions)
        self.names = tuple(sorted(fed.sites))
        self.variables = tuple(fed.truth.variables)
        places = {name: place / name for name in self.names}
        for name, directory in places.items():
            (directory / "data").mkdir(parents=True)
            fed.sites[name][0].to_csv(directory / "data" / "ward.csv", index=False)
        self.entropy = Entropy()
        write_site_files(places, entropy=self.entropy("keys"))
        tasks = json.dumps([*SitePolicy().tasks, *extra])
        for directory in places.values():
            open_to_all = f"require_masking = false\nmax_rounds = 5000\nmin_rows = 1\ntasks = {tasks}\n"
            (directory / "policy.toml").write_text(open_to_all + "approve_by_rule = true\n")
        self.data = {
            name: read_sites({name: directory / "data"}, missing="keep")[name]
            for name, directory in places.items()
        }
        self.events = []
        self.exchange = LocalExchange(self.names, lambda name: self.open(places[name], name))

    def open(self, directory, name):
        endpoint = open_site(
            read_site_settings(directory / "feddbn_site.toml"),
            name,
            logging.getLogger("test"),
            entropy=self.entropy(name),
        )
        tell = endpoint._on_event

        def both(event):
            self.events.append(event)
            tell(event)

        endpoint._on_event = both
        return endpoint

    def study(self, text):
        listed = [", ".join(f'"{name}"' for name in names) for names in (self.variables, self.names)]
        head = f'name = "s"\nvariables = [{listed[0]}]\nsites = [{listed[1]}]\n{ABOUT_LINE}'
        # What is compared with one process is compared without noise.
        masks = '\n[privacy]\nsecure_aggregation = false\nprotection = "exact"\n'
        return parse_study(head + text + masks)

    def coordinator(self, study):
        return Coordinator(self.exchange, study, "run-1", MemoryJournal(), pause_s=0.0, opening_s=0.0)

    def run(self, text):
        study = self.study(text)
        result, _ = run_study(self.coordinator(study), study)
        asked = {event.task for event in self.events if event.what.startswith("executed")}
        assert asked <= set(tasks_of(study))
        return result


SELECT = """
method = "{method}"
goal = "select"
[parameters]
rounds.tol = 1e-2
rounds.max_rounds = 12
[select]
grid = {grid}
n_blocks = 2
share = 0.3
"""
COMPARE = """
method = "oneshot"
goal = "compare"
[parameters]
rounds.tol = 1e-2
rounds.max_rounds = 12
noise_variance = "free"
[compare]
against = ["fdbnl"]
share = 0.25
"""


def test_a_study_chooses_as_one_process_does(tmp_path):
    sites, grid = Sites(tmp_path), {"lambda_w": [0.2, 0.05]}
    result = sites.run(SELECT.format(method="fdbnl", grid="{ lambda_w = [0.2, 0.05] }"))
    local = select(FDBNL(**FEW).set_params(**ONE_PROCESS), sites.data, grid)
    found = result.summary["selection"]
    assert found["chosen"] == local.chosen
    table = pd.DataFrame(found["candidates"])
    pd.testing.assert_frame_equal(table, local.table, check_dtype=False, rtol=1e-9, atol=1e-12)
    # The network is that of the chosen parameters, from all rows.
    fitted = FDBNL(**FEW, **local.chosen).set_params(**ONE_PROCESS).fit(sites.data)
    np.testing.assert_allclose(
        Result.from_dict(result.summary["result"]).dbn.W, fitted.dbn_.W, rtol=1e-9, atol=1e-12
    )


@pytest.mark.slow
def test_a_study_compares_as_one_process_does_and_is_reported(tmp_path, capsys):
    sites = Sites(tmp_path / "sites")
    result = sites.run(COMPARE)
    methods = [get_method(name) for name in ("oneshot", "fdbnl")]
    given = {**FEW, "noise_variance": "free", **ONE_PROCESS}
    local = {line.method.name: line.held_out for line in compare(sites.data, methods, given, held_out=0.25)}
    found = {row["method"]: row["held_out_log_likelihood"] for row in result.summary["comparison"]["methods"]}
    assert found == pytest.approx(local, rel=1e-9)
    place = tmp_path / "result"
    place.mkdir()
    (place / "result.feddbn").write_bytes(result.to_bytes())
    export_result(place)
    stored = Result.load(place / "result.json")
    assert stored.method == "OneShotDBN"
    assert [row["method"] for row in stored.diagnostics["comparison"]["methods"]] == list(local)
    outcome = CliRunner().invoke(app, ["report", str(place / "result.json"), "-o", str(place / "page.html")])
    assert outcome.exit_code == 0, outcome.output
    page = (place / "page.html").read_text()
    assert f"{local['fdbnl']:.5g}" in page
    capsys.readouterr()
    print_held_out(result.summary)
    told = capsys.readouterr().out
    assert "25%" in told
    assert "OneShotDBN" in told
    assert max(map(len, told.splitlines())) <= 80


def test_three_sites_choose_without_squares_that_would_tell_them_apart(tmp_path, capsys):
    sites = Sites(tmp_path, 3, corruptions=None)
    study = sites.study(SELECT.format(method="fdbnl", grid="{ lambda_w = [0.2, 0.05] }"))
    coordinator = sites.coordinator(study)
    result, _ = run_study(coordinator, study)
    found = result.summary["selection"]
    assert [row["standard_error"] for row in found["candidates"]] == [None, None]
    best = min(found["candidates"], key=lambda row: row["loss"])
    assert found["chosen"] == {"lambda_w": best["lambda_w"]}
    assert "4 sites" in found["remarks"][0]
    print_held_out(result.summary)
    assert "4 sites" in capsys.readouterr().out
    # A server that asks for the squares anyway gets none.
    question = HeldOutSumsQuestion(n_candidates=2, best=0)
    with pytest.raises(NotEnoughSites, match=WITHHELD):
        coordinator.sum(Task(question))
    assert "few-sites" in {event.code for event in sites.events}


@pytest.mark.parametrize(
    ("question", "participants", "code"),
    [
        (
            lambda v: GramQuestion(n_lags=1, variables=v, fold=make_fold(0, 2, 0.301)),
            None,
            "other-fold",
        ),
        (
            lambda v: GramQuestion(n_lags=1, variables=v, fold=make_fold(0, 3, 0.3)),
            None,
            "other-fold",
        ),
        (lambda v: HeldOutSumsQuestion(n_candidates=2), 3, "some-sites-only"),
    ],
)
def test_a_hostile_server_cannot_choose_the_folds(tmp_path, question, participants, code):
    sites = Sites(tmp_path, corruptions=None)
    study = sites.study(SELECT.format(method="fdbnl", grid="{ lambda_w = [0.2, 0.05] }"))
    sites.coordinator(study).hello()
    asked = None if participants is None else sites.names[:participants]
    message = encode_request(task_request(Task(question(sites.variables), asked), "run-1", 0, -1))
    with pytest.raises(SiteRefused, match=WITHHELD):
        read_reply(sites.exchange({sites.names[0]: message})[sites.names[0]])
    assert code in {event.code for event in sites.events}


def test_a_study_of_a_network_holds_out_nothing(tmp_path):
    sites = Sites(tmp_path, corruptions=None)
    study = sites.study('method = "oneshot"\n')
    sites.coordinator(study).hello()
    question = GramQuestion(n_lags=1, variables=sites.variables, fold=make_fold(0, 2, 0.3))
    name = sites.names[0]
    message = encode_request(task_request(Task(question), "run-1", 0, -1))
    with pytest.raises(SiteRefused, match=WITHHELD):
        read_reply(sites.exchange({name: message})[name])
    assert "other-fold" in {event.code for event in sites.events}


def test_owners_allow_held_out_rows_by_name(tmp_path):
    sites = Sites(tmp_path, extra=(), corruptions=None)
    study = sites.study(COMPARE)
    with kept_out("tasks-not-allowed"):
        run_study(sites.coordinator(study), study)


def test_owners_allow_every_method_of_a_comparison(tmp_path):
    sites = Sites(tmp_path, corruptions=None)
    for name in sites.names:
        path = tmp_path / name / "policy.toml"
        path.write_text(path.read_text() + 'methods = ["OneShotDBN", "PFDBNL"]\n')
    again = LocalExchange(sites.names, lambda name: sites.open(tmp_path / name, name))
    sites.exchange = again
    study = sites.study(COMPARE)
    with kept_out("methods-not-allowed"):
        run_study(sites.coordinator(study), study)


HEAD = f'name = "s"\nvariables = ["u", "v"]\nsites = ["a", "b", "c", "d"]\n{ABOUT_LINE}'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            'method = "oneshot"\ngoal = "select"',
            "'oneshot'",
        ),
        (
            'method = "fdbnl"\ngoal = "select"\n[select]\ngrid = { rho = [1] }',
            "rho",
        ),
        (
            'method = "fdbnl"\ngoal = "select"\n[parameters]\nn_lags = "auto"',
            "n_lags='auto'",
        ),
        ('method = "fdbnl"\ngoal = "compare"', "goal = 'compare'"),
        (
            'method = "fdbnl"\ngoal = "compare"\n[compare]\nagainst = ["average"]',
            "'average'",
        ),
        ('method = "fdbnl"\ngoal = "compare"\n[compare]\nagainst = ["FDBNL"]', "FDBNL"),
        (
            'method = "fdbnl"\ngoal = "compare"\n[parameters]\nfeatures = "spline"\n[compare]\nagainst = ["oneshot"]',
            "features = 'spline'",
        ),
        (
            'method = "fdbnl"\ngoal = "compare"\n[parameters]\nlambda_w = "auto"\n[compare]\nagainst = ["oneshot"]',
            "lambda_w = 'auto'",
        ),
        (
            'method = "fdbnl"\ngoal = "compare"\n[parameters]\nmu = 1\n[compare]\nagainst = ["oneshot"]',
            "'mu'",
        ),
    ],
)
def test_what_a_study_cannot_do_is_refused_before_it_is_sent(text, sentence):
    with pytest.raises(ParameterError, match=sentence):
        check_goal(parse_study(HEAD + text))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            'method = "fdbnl"\n[select]\nrule = "best"',
            r"\[select\]",
        ),
        (
            'method = "fdbnl"\ngoal = "select"\n[select]\nshare = 0.33',
            "select.share",
        ),
        (
            'method = "fdbnl"\ngoal = "select"\n[select]\nn_blocks = 11',
            "select.n_blocks",
        ),
        (
            'method = "fdbnl"\ngoal = "chose"',
            "goal",
        ),
    ],
)
def test_a_study_file_with_a_wrong_table_is_refused(text, sentence):
    with pytest.raises(ParameterError, match=sentence):
        parse_study(HEAD + text)


def test_held_out_rows_carry_no_noise():
    study = parse_study(HEAD + 'method = "oneshot"\ngoal = "compare"\n[compare]\nagainst = ["fdbnl"]')
    check_goal(study)
    with refused(ParameterError, "epsilon"):
        check_goal(study.model_copy(update={"privacy": Privacy(epsilon=1.0)}))
    assert "loss.rows" in tasks_of(study)
    assert "loss.sums" not in tasks_of(study)
    assert "select" not in json.loads(study.to_json())
    assert parse_study(HEAD + 'method = "oneshot"').held_out is None
