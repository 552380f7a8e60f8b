"""Several modules: sites say whether the network of all is better for them than their own, and what a result makes of it."""

import json
from dataclasses import replace

import numpy as np
import pytest

import feddbn
from feddbn import FDBNL, OneShotDBN
from feddbn.analysis import studies  # noqa: F401 (registers the methods)
from feddbn.cli.printed import print_result
from feddbn.console.site_facts import verdict_here
from feddbn.errors import ResultWarning
from feddbn.federation.guards.study_plan import plan_of
from feddbn.federation.programs.alone import TASK, Alone, AloneQuestion, verdict_of
from feddbn.federation.protocol.task import Task, of_task
from feddbn.privacy.policy import USUAL_TASKS
from feddbn.report.record import read_record
from feddbn.report.verdicts import verdicts
from feddbn.results.remarks import alone_finding
from feddbn.results.result import Result
from feddbn.runtime.settings import read_site_settings
from feddbn.words import say
from support.consortium import RULE, Consortium, Liar, by_rule, raw

D = 3
PLAIN = {"prepare.robust": "off", "prepare.gains": "none", "prepare.on_disagreement": "ignore"}


def rows(seed, turned=False, n=160):
    rng, x = np.random.default_rng(seed), np.zeros((n, D))
    noise = rng.normal(size=(n, D))
    for t in range(1, n):
        x[t] = 0.4 * x[t - 1] + noise[t]
        x[t, 1:] += (-0.8 if turned else 0.8) * x[t, :-1]
    return x


def sites(n_turned=0, n=5):
    return {f"s{k}": [rows(900 + 10 * k, k < n_turned), rows(901 + 10 * k, k < n_turned)] for k in range(n)}


@pytest.mark.parametrize("method", [OneShotDBN, FDBNL])
def test_a_site_that_differs_says_that_the_network_is_worse_for_it(method):
    data = {"s0": [rows(900, True, 90)], **{f"s{k}": [rows(900 + k, n=400)] for k in range(1, 5)}}
    model = method(**PLAIN).fit(data)
    found = model.alone_
    assert found.sites["s0"].sign == -1
    assert (found.worse, found.better + found.equal) == (1, 4)
    (told,) = model.findings_.of("alone")
    assert (told.level, told.about) == ("warning", ("s0",))
    stored = Result.from_estimator(model).to_dict()["diagnostics"]["alone"]
    assert stored["sites"]["s0"]["verdict"] == "worse"
    assert {**{name: stored[name] for name in ("better", "equal", "worse")}, "untold": 0} == dict(told.values)


def test_the_comparison_changes_no_bit_of_what_is_learned(monkeypatch):
    data, settings = sites(), {**PLAIN}
    found = OneShotDBN(**settings).fit(data)
    assert found.alone_.worse == 0
    monkeypatch.setattr("feddbn.methods.oneshot.is_compared", lambda federation: False)
    without = OneShotDBN(**settings).fit(data)
    assert without.alone_ is None
    assert (found.n_rounds_, found.dbn_.to_dict()) == (without.n_rounds_ + 1, without.dbn_.to_dict())
    assert found.edge_probabilities_.equals(without.edge_probabilities_)


def test_where_it_is_worse_for_many_the_result_begins_with_it_in_red(capsys):
    with pytest.warns(ResultWarning):
        model = OneShotDBN(**PLAIN).fit(sites(n_turned=2, n=4))
    assert model.alone_.worse >= 2
    result = Result.from_estimator(model)
    assert result.findings[0].code == "alone"
    assert result.findings[0].level == "error"
    print_result(result)
    counts = f"worse for {model.alone_.worse}"
    assert counts in capsys.readouterr().out.split("\n")[0]
    # The first line below the sizes.
    assert counts in " ".join(result.summary().split("=" * 79)[2].split("\n- ")[1].split())
    (first, *_) = verdicts(read_record(result.to_dict()))
    assert (first.code, first.level, first.values["answer"]) == ("verdict-alone", "error", "many")


def test_levels_of_recordings_that_were_not_taken_off_are_told_with_their_cure():
    rng = np.random.default_rng(7)
    data = {name: [one + 3 * rng.normal(size=D) for one in found] for name, found in sites(n=3).items()}
    with pytest.warns(ResultWarning):
        model = FDBNL(**PLAIN, **{"prepare.center": "none"}).fit(data)
    (told,) = model.findings_.of("alone")
    assert (told.level, told.values["worse"], dict(told.cure)) == (
        "error",
        3,
        {"prepare.center": "recording"},
    )
    assert FDBNL(**PLAIN, **told.cure).fit(data).alone_.worse == 0


def test_levels_follow_from_the_counts():
    levels = {(3, 1, 0): "good", (3, 1, 1): "warning", (1, 1, 2): "error", (0, 0, 0): "unknown"}
    assert {counts: alone_finding(Alone(*counts), 4).level for counts in levels} == levels
    assert "better for 1 site, equal for 2" in say(alone_finding(Alone(1, 2, 0), 3))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_listed", [True, False])
def test_masked_sites_tell_their_verdicts_as_one_sum_and_their_owners_the_own(tmp_path, is_listed):
    listed = [task for task in USUAL_TASKS if is_listed or task != TASK]
    rig = Consortium(tmp_path, sites(n_turned=1, n=3), f"{RULE}tasks = {json.dumps(listed)}\n")
    study = rig.study("oneshot", {**PLAIN})
    told, _ = rig.run(study, "run")
    facts = told.summary["result"]["diagnostics"]["alone"]
    assert "sites" not in facts
    found = {one["code"]: one for one in told.summary["result"]["findings"]}
    # Who does not answer it takes part in everything else.
    assert "probabilities-not-resampled" not in found
    verdict = verdict_here(read_site_settings(rig.place / "s0" / "feddbn_site.toml"), "run")
    if is_listed:
        assert sum(facts.values()) == 3
        assert facts["worse"] >= 1
        assert (verdict.code, verdict.values["verdict"]) == ("alone-here", "worse")
    else:
        assert facts == {"better": 0, "equal": 0, "worse": 0}
        assert found["alone"]["level"] == "unknown"
        assert verdict is None


def test_a_server_hears_three_whole_counts_once(tmp_path):
    rig = Consortium(tmp_path, sites(n=3), by_rule())
    study = rig.study("oneshot", {**PLAIN, "prepare.center": "none"}, {"protection": "weights"})
    assert of_task(plan_of(study), TASK) == (1, 3)
    server = Liar(rig, study)
    weights = np.concatenate([np.triu(np.full((D, D), 0.8), 1) * (np.eye(D, k=1) > 0), 0.4 * np.eye(D)])
    question = AloneQuestion(
        n_lags=1,
        variables=rig.variables,
        weights=weights,
        intercept=np.zeros(D),
        allowed=np.ones((2 * D, D)) - np.eye(2 * D, D),
        n_total=1280.0,
    )
    total = server.sum(Task(question)).value
    assert total.sum() == pytest.approx(3)
    np.testing.assert_allclose(total, np.rint(total), atol=1e-6)
    # The same question has the same answer; another network is refused.
    np.testing.assert_allclose(server.sum(Task(question)).value, total, atol=1e-6)
    server.refused(Task(replace(question, weights=0.5 * weights)), "beyond-plan")
    arrays = {**question.arrays, "weights": np.ones((2 * D, D))}
    server.malformed(raw(TASK, question.params, arrays), "cycle")


def test_a_site_that_stays_out_of_sums_is_not_counted():
    federation = feddbn.simulated(sites(n=2))
    question = AloneQuestion(
        n_lags=1,
        variables=federation.variables,
        weights=np.zeros((2 * D, D)),
        intercept=np.zeros(D),
        allowed=np.ones((2 * D, D)) - np.eye(2 * D, D),
        n_total=600.0,
        abstain=True,
    )
    federation.state_of("s0")["agreement.abstains"] = np.array(1.0)
    assert federation.sum(Task(question)).value.tolist() == [0.0, 0.0, 1.0]
    assert verdict_of(federation.state_of("s0")) is None
    assert verdict_of(federation.state_of("s1")).sign == -1
    # Nor is one with too few rows to tell.
    few = feddbn.simulated({"s0": [rows(900, n=16)], "s1": [rows(901)]})
    assert few.sum(Task(replace(question, abstain=False))).value.sum() == 1.0
    assert not verdict_of(few.state_of("s0")).is_told
