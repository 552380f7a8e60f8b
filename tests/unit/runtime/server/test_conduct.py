"""What a run leaves at the server: result, outcome, events, progress; and what a study is refused for before it is sent."""

import json

import numpy as np
import pytest

from feddbn.analysis import studies  # noqa: F401 (registers the methods)
from feddbn.errors import NotEnoughSites, ParameterError
from feddbn.federation.protocol.messages import read_request
from feddbn.federation.protocol.study import Study, StudyResult
from feddbn.runtime.server.conduct import Progress, conduct, rehearse, run_study
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.server.results import export_result, read_outcome, run_state
from support.faults import MemoryJournal
from support.walks import Place, walk

NAMES = ("a", "b")
STUDY = walk(NAMES, 4, when_missing="abort")
PATIENT = walk(NAMES, 4, when_missing="continue", min_sites=1)


class Run:
    """A run over sites of which some can be sent away after so many sums."""

    def __init__(self, place, run_id="run-1"):
        self.place, self.run_id, self.told = place, run_id, []
        self.faulty = Place(NAMES).faulty()

    def __call__(self, study=STUDY, away_after=None, **more):
        self.progress = Progress(self.run_id, NAMES)
        update = self.progress.update

        def watched(**values):
            update(**values)
            if away_after is not None and values.get("sums") == away_after:
                self.faulty.away = {"b"}

        self.progress.update = watched
        runs = self.place / "runs"
        return conduct(
            self.faulty, study, self.run_id, runs, self.place, self.progress, self.told.append, **more
        )


def test_a_run_leaves_result_outcome_events_and_progress(tmp_path):
    run = Run(tmp_path)
    result = run()
    for place in (tmp_path, tmp_path / "runs" / "run-1"):
        stored = StudyResult.from_bytes((place / "result.feddbn").read_bytes())
        np.testing.assert_array_equal(stored.arrays["centre"], result.arrays["centre"])
        assert (read_outcome(place)["state"], read_outcome(place)["received"]) == ("finished", ["a", "b"])
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [e["seq"] for e in events if e["what"] == "sum"] == [0, 1, 2, 3]
    told = run.progress.read()
    assert (told["sums"], told["state"], told["note"]) == (4, "finished", {"round": 3.0})


def test_a_stopped_run_says_why_and_goes_on_where_it_stopped(tmp_path):
    run = Run(tmp_path)
    with pytest.raises(NotEnoughSites):
        run(away_after=2)
    outcome = read_outcome(tmp_path)
    assert (outcome["state"], outcome["code"]) == ("stopped", "too-few-sites")
    assert "missing: b" in outcome["sentence"]
    assert any("'b'" in sentence for sentence in run.told)
    assert run_state(outcome).code == "run-stopped"
    assert not (tmp_path / "result.feddbn").exists()
    run.faulty.away = set()
    found = run()
    assert run.progress.read()["resumed_after"] == 2
    np.testing.assert_array_equal(found.arrays["centre"], Run(tmp_path, "run-2")().arrays["centre"])


def test_who_was_absent_is_read_from_the_journal_also_where_events_were_lost(tmp_path):
    run = Run(tmp_path)
    deliver = run.faulty._deliver

    def losing(name, message):
        # Events are for people: nobody waits for the disk, and old ones are cut off.
        if read_request(message).kind == "finish":
            (tmp_path / "runs" / "run-1" / "events.jsonl").unlink(missing_ok=True)
        return deliver(name, message)

    run.faulty._deliver = losing
    run(PATIENT, away_after=2)
    (absent,) = read_outcome(tmp_path)["absent"]
    assert (absent["site"], absent["missed"], absent["sums"]) == ("b", 2, 4)


def test_sites_that_sums_were_made_without_are_named_in_outcome_result_and_log(tmp_path):
    run = Run(tmp_path)
    run(PATIENT, away_after=3)
    outcome = read_outcome(tmp_path)
    (absent,) = outcome["absent"]
    assert (absent["site"], absent["missed"], absent["sums"]) == ("b", 1, 4)
    assert any("sum 3" in sentence and "'b'" in sentence for sentence in run.told)
    assert run_state(outcome).about == ("b",)
    # Of a method that commands read, the result says it, too.
    stored = {"format": "feddbn-result", "privacy": None, "warnings": ["before."]}
    (tmp_path / "result.feddbn").write_bytes(StudyResult({}, {"result": stored}).to_bytes())
    export_result(tmp_path)
    written = json.loads((tmp_path / "result.json").read_text())
    assert written["warnings"] == ["before.", absent["words"]]


def test_a_site_that_cannot_be_reached_is_not_waited_for(tmp_path):
    run = Run(tmp_path)
    exchange, greeted = run.faulty, []
    exchange.away = {"b"}

    def counted(messages):
        greeted.extend(site for site, one in messages.items() if read_request(one).kind == "hello")
        return exchange(messages)

    run.faulty = counted
    run(PATIENT, here={"a"})
    # The handshake would otherwise ask for half a minute.
    assert greeted == ["a", "b"]
    (absent,) = read_outcome(tmp_path)["absent"]
    assert absent["site"] == "b"
    assert absent["missed"] == absent["sums"]


MASKED = {"secure_aggregation": True}


def study(method="oneshot", parameters=None, **more):
    values = {"name": "s", "method": method, "variables": ("u", "v"), "sites": ("a", "b", "c"), **more}
    return Study.model_validate({**values, "parameters": parameters or {}})


@pytest.mark.parametrize(
    "plan",
    [
        *(
            study(method)
            for method in ("oneshot", "changing", "mixed", "fdbnl", "pfdbnl", "latent", "summary")
        ),
        study("pfdbnl", {"mu": "auto"}),
        study(goal="confidence"),
        study(goal="check"),
        study("fdbnl", goal="select"),
        study(goal="compare", compare={"against": ["fdbnl"]}),
        study(privacy={**MASKED, "epsilon": 1.0}),
        study(parameters={"prepare.exogenous": ["v"]}),
    ],
)
def test_a_study_that_can_be_passes(plan):
    rehearse(plan)


WRONG = [
    (study(parameters={"prepare.center": "sideways"}), "center='sideways'"),
    (study(parameters={"prepare.exogenous": ["w"]}), "'w'"),
    (study(goal="check", parameters={"prepare.exogenous": ["w"]}), "'w'"),
    (study(parameters={"forbidden_edges": [["u", "v", 7]]}), "lag 7"),
    (study("fdbnl", {"required_edges": [["u", "v", 0], ["v", "u", 0]]}), "cycle"),
    (study("pfdbnl", goal="select", select={"grid": {"mu": [0, 1]}}), "mu=0"),
    (study("changing", goal="check"), "'changing'"),
    (study(goal="check", privacy={**MASKED, "epsilon": 1.0}), "noise"),
]


@pytest.mark.parametrize(("plan", "said"), WRONG)
def test_a_study_that_cannot_be_is_refused_before_any_site_is_asked(plan, said):
    with pytest.raises(ParameterError, match=said):
        rehearse(plan)

    def exchange(messages):
        raise AssertionError("a site was asked")

    coordinator = Coordinator(exchange, plan, "run", MemoryJournal(), pause_s=0.0, opening_s=0.0)
    with pytest.raises(ParameterError, match=said):
        run_study(coordinator, plan)
