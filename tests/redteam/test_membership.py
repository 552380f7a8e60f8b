"""Sums over other sites, or over other data, that a hostile server or lead would subtract from one another."""

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.errors import AggregationError, PrivacyError, ProtocolError, SiteRefused
from feddbn.federation.programs.fdbnl import StepQuestion
from feddbn.federation.protocol.messages import WITHHELD
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.runtime.store import FileStore
from support.hostile import Server, Sites
from support.saying import refused

pytestmark = pytest.mark.usefixtures("light")


def moments(sites):
    return GramQuestion(n_lags=1, variables=sites.variables)


def test_a_question_with_an_invented_parameter_is_no_other_question(tmp_path):
    sites = Sites(tmp_path)
    sites.greet(sites.study("oneshot"), "run")
    server = Server(sites, "run").keys()
    params = {**Task(moments(sites)).fields()["params"], "nonce": 1}
    with pytest.raises((ProtocolError, PrivacyError)):
        server.sum(moments(sites), 0, params=params)


def test_a_sum_over_some_participants_is_not_made(tmp_path):
    sites = Sites(tmp_path)
    sites.greet(sites.study("oneshot"), "run")
    server = Server(sites, "run").keys()
    opened = server.sum(moments(sites), 0)
    np.testing.assert_allclose(opened.value[0], sum(sites.moments(name)[0] for name in sites.names))
    with refused(ProtocolError, code="some-sites-only"):
        server.sum(moments(sites), 1, 0, participants=tuple(sites.names[:3]))


@pytest.mark.parametrize("restart", [False, True])
def test_the_same_task_is_not_opened_again_without_one_site(tmp_path, restart):
    sites = Sites(tmp_path)
    study = sites.study("oneshot")
    sites.greet(study, "run")
    Server(sites, "run").keys().sum(moments(sites), 0, unmask_seq=77)
    if restart:
        for name in sites.names:
            sites.restart(name)
    sites.greet(study, "run")
    again = Server(sites, "run").keys()
    with refused(AggregationError, 3, code="shows-few-sites"):
        again.sum(moments(sites), 0, alive=sites.names[:3], unmask_seq=77)


@pytest.mark.parametrize("restart", [False, True])
def test_the_sites_of_the_first_sum_of_a_run_are_those_of_all_its_sums(tmp_path, monkeypatch, restart):
    """Seven of ten differ by three: fewer than the five that show two honest ones if three work with the server."""
    sites = Sites(tmp_path, k=10, rows=30)
    study = sites.study("fdbnl")
    sites.greet(study, "run")
    server = Server(sites, "run").keys()
    server.sum(moments(sites), 0)
    # The answer is stored for the same sites, so that opening it needs no second record.
    saved = []
    keep = FileStore.save
    with monkeypatch.context() as patched:
        patched.setattr(FileStore, "save", lambda self, record: (saved.append(record), keep(self, record)))
        server.sum(moments(sites), 1, 0)
    assert [record.opened for record in saved] == [tuple(sites.names)] * 10
    if restart:
        for name in sites.names:
            sites.restart(name)
        sites.greet(study, "run")
        server = Server(sites, "run").keys()
    with refused(AggregationError, 5, code="shows-few-sites"):
        server.sum(moments(sites), 2, 1, alive=sites.names[:7])


def test_a_first_sum_that_was_never_opened_may_be_of_fewer_sites(tmp_path):
    sites = Sites(tmp_path, k=10, rows=30)
    sites.greet(sites.study("fdbnl"), "run")
    server = Server(sites, "run").keys()
    server.mask_each(dict.fromkeys(sites.names, Task(moments(sites))), 0)
    assert len(server.sum(moments(sites), 0, alive=sites.names[:7]).contributors) == 7


@pytest.mark.parametrize("second", [["s0", "s1", "s2"], ["s0", "s1", "s2", "s4"]])
def test_a_second_run_over_other_sites_is_refused(tmp_path, second):
    sites = Sites(tmp_path, k=5)
    first = ["s0", "s1", "s2", "s3"]
    sites.greet(sites.study("oneshot", first), "run-1")
    Server(sites, "run-1", first).keys().sum(moments(sites), 0)
    for name in sites.names:
        sites.restart(name)
    sites.greet(sites.study("oneshot", second), "run-2")
    with refused(AggregationError, 3, code="shows-few-sites"):
        Server(sites, "run-2", second).keys().sum(moments(sites), 0)


def test_three_runs_that_differ_by_three_sites_each_do_not_show_the_seventh(tmp_path):
    sites = Sites(tmp_path, k=7, rows=30)
    for run, names in (("run-1", sites.names[:3]), ("run-2", sites.names[3:6])):
        sites.greet(sites.study("oneshot", names), run)
        Server(sites, run, names).keys().sum(moments(sites), 0)
    sites.greet(sites.study("oneshot"), "run-3")
    # s6 has never been asked; it knows of the others' sums because they sign them.
    server = Server(sites, "run-3").keys()
    with refused(AggregationError, 4, code="shows-few-sites"):
        server.sum(moments(sites), 0)


def test_new_rows_at_one_site_are_not_shown_by_a_second_run(tmp_path):
    sites = Sites(tmp_path)
    study = sites.study("oneshot")
    sites.greet(study, "run-1")
    Server(sites, "run-1").keys().sum(moments(sites), 0)
    sites.data["s1"][0] = np.vstack([sites.data["s1"][0], [[9.0, 9.0, 9.0]]])
    sites.write("s1")
    sites.restart("s1")
    sites.greet(study, "run-2")
    with refused(AggregationError, 3, code="shows-few-sites"):
        Server(sites, "run-2").keys().sum(moments(sites), 0)
    # With new data at three sites the difference is a sum of three.
    for name in ("s2", "s3"):
        sites.data[name][0] = np.vstack([sites.data[name][0], [[9.0, 9.0, 9.0]]])
        sites.write(name)
        sites.restart(name)
    sites.greet(study, "run-3")
    assert len(Server(sites, "run-3").keys().sum(moments(sites), 0).contributors) == 4


ROUNDS = 'schedule = "rounds"'


def step(sites, scale, number, C):
    d, q = len(sites.variables), 2 * len(sites.variables)
    about = {"n_lags": 1, "variables": sites.variables, "weighting": "samples", "n_total": 600.0}
    rounds = {"round": number, "ask": "gradient", "rho2_before": 1.0, "rho2": 1.0, "relaxation": 1.0}
    arrays = {"C": C, "origin": np.zeros(q), "scale": np.full(q, scale), "metric": np.ones(q)}
    assert C.shape == (q, d)
    return StepQuestion(**about, **rounds, **arrays)


def test_a_state_made_by_a_question_to_one_site_only_is_not_added_up(tmp_path):
    sites = Sites(tmp_path, k=3)
    sites.greet(sites.study("fdbnl", parameters=ROUNDS), "run")
    server = Server(sites, "run").keys()
    C = np.zeros((6, 3))
    # Round 0 asks the victim something else than the others; it is masked and never opened.
    lies = {name: Task(step(sites, 1.0, 0, C if name == "s1" else C + 1.0)) for name in sites.names}
    server.mask_each(lies, seq=0)
    with refused(AggregationError, code="asked-otherwise"):
        server.sum(step(sites, 1.0, 1, C), seq=1, after=0)


def test_a_state_in_other_units_is_not_gone_on_with(tmp_path):
    sites = Sites(tmp_path, k=3)
    sites.greet(sites.study("fdbnl", parameters=ROUNDS), "run")
    server = Server(sites, "run").keys()
    C = np.zeros((6, 3))
    # With a huge scale the others would add next to nothing to the victim's numbers.
    lies = {name: Task(step(sites, 1.0 if name == "s1" else 1e4, 0, C)) for name in sites.names}
    server.mask_each(lies, seq=0)
    with pytest.raises(SiteRefused, match=WITHHELD):
        server.sum(step(sites, 1.0, 1, C), seq=1, after=0)


def test_a_lead_who_sees_results_only_gets_no_second_study_without_one_site(tmp_path):
    from feddbn.errors import NotEnoughSites
    from feddbn.runtime.server.conduct import run_study
    from feddbn.runtime.server.coordinator import Coordinator
    from feddbn.runtime.settings import load_programs
    from support.faults import MemoryJournal

    load_programs(("feddbn.analysis.studies",))
    sites = Sites(tmp_path)
    exact = "lambda_w = 0.0\nlambda_a = 0.0\nw_threshold = 0.0\na_threshold = 0.0\n"

    def run(names, run_id):
        study = sites.study("fdbnl", names, exact)
        study = study.model_copy(
            update={"attendance": study.attendance.model_copy(update={"max_wait_s": 0.0})}
        )

        def exchange(messages):
            return {name: sites.ends[name].handle(message) for name, message in messages.items()}

        return run_study(Coordinator(exchange, study, run_id, MemoryJournal(), pause_s=0.0), study)

    run(sites.names, "first")
    with refused(NotEnoughSites, 3):
        run(sites.names[:3], "second")


def test_an_owner_is_told_before_that_a_study_over_other_sites_would_be_refused(tmp_path):
    from feddbn.runtime.settings import read_policy, read_site_settings
    from feddbn.runtime.site.check import why_refused

    sites = Sites(tmp_path)
    settings = read_site_settings(sites.places["s0"] / "feddbn_site.toml")
    policy = read_policy(settings.policy)

    def remarks(study, policy=policy):
        found = why_refused(settings, policy, sites.variables, study)
        return [one.values["why"] for one in found] == ["shows-few-sites"]

    some = sites.study("oneshot", sites.names[:3])
    noisy = sites.study("oneshot", sites.names[:3], privacy="epsilon = 1.0")
    before = [remarks(study) for study in (some, sites.study("oneshot"), noisy)]
    sites.greet(sites.study("oneshot"), "run")
    Server(sites, "run").keys().sum(moments(sites), 0)
    after = [remarks(study) for study in (some, sites.study("oneshot"), noisy)]
    assert (before, after) == ([False] * 3, [True, False, True])
    # Noise covers every set only where a budget adds up what all of it tells.
    assert not remarks(noisy, policy.model_copy(update={"max_epsilon": 5.0}))
