import json
import time

import numpy as np
import pytest

import support.study_programs  # noqa: F401
from feddbn.core.designs.recordings import Block
from feddbn.data.memory import ArrayRecording, MemorySite
from feddbn.errors import NotEnoughSites
from feddbn.federation.protocol.endpoint import SiteEndpoint
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.study_methods import StudyResult
from feddbn.runtime.deployed.conduct import Progress, conduct
from feddbn.runtime.deployed.results import export_result, read_outcome
from feddbn.runtime.engines.interface import run_state
from support.faults import Fault, FaultyExchange, LocalExchange, MemoryStore

NAMES = ("a", "b")
STUDY = Study(
    name="s",
    method="walk",
    variables=("u", "v"),
    sites=NAMES,
    parameters={"rounds": 4},
    attendance={"when_missing": "abort"},
)


def sites():
    def make(name):
        rows = np.random.default_rng(ord(name)).normal(size=(9, 2))
        data = MemorySite(("u", "v"), [ArrayRecording("r", (Block(rows),))])
        return SiteEndpoint(Site(name, data), MemoryStore(name))

    return LocalExchange(NAMES, make)


def test_a_run_leaves_result_outcome_events_and_progress(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    progress = Progress("run-1", NAMES)
    result = conduct(sites(), STUDY, "run-1", tmp_path / "runs", out, progress, lambda sentence: None)
    for place in (out, tmp_path / "runs" / "run-1"):
        stored = StudyResult.from_bytes((place / "result.feddbn").read_bytes())
        np.testing.assert_array_equal(stored.arrays["centre"], result.arrays["centre"])
        assert read_outcome(place)["state"] == "finished"
        assert read_outcome(place)["received"] == ["a", "b"]
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    assert [e["seq"] for e in events if e["what"] == "sum"] == [0, 1, 2, 3]
    assert progress.read()["sums"] == 4
    assert progress.read()["state"] == "finished"
    assert progress.read()["note"] == {"round": 3.0}


def test_a_stopped_run_says_why_and_goes_on_where_it_stopped(tmp_path):
    exchange = sites()
    faulty = FaultyExchange(exchange, Fault(), np.random.default_rng(0))
    told = []
    progress = Progress("run-1", NAMES)
    original = progress.update

    def update(**values):
        original(**values)
        if values.get("sums") == 2:
            faulty.away = {"b"}

    progress.update = update
    with pytest.raises(NotEnoughSites):
        conduct(faulty, STUDY, "run-1", tmp_path / "runs", tmp_path, progress, told.append)
    outcome = read_outcome(tmp_path)
    assert outcome["state"] == "stopped"
    assert outcome["code"] == "too-few-sites"
    assert "missing: b" in outcome["sentence"]
    assert any("'b'" in sentence for sentence in told)
    assert run_state(outcome).code == "run-stopped"
    assert not (tmp_path / "result.feddbn").exists()
    faulty.away = set()
    again = Progress("run-1", NAMES)
    found = conduct(faulty, STUDY, "run-1", tmp_path / "runs", tmp_path, again, told.append)
    assert again.read()["resumed_after"] == 2
    fresh = conduct(
        sites(), STUDY, "run-2", tmp_path / "runs", tmp_path, Progress("run-2", NAMES), told.append
    )
    np.testing.assert_array_equal(found.arrays["centre"], fresh.arrays["centre"])


def test_sites_that_sums_were_made_without_are_named_in_outcome_result_and_log(tmp_path):
    patient = {"when_missing": "continue", "min_sites": 1}
    study = Study.model_validate({**STUDY.model_dump(), "attendance": patient})
    faulty = FaultyExchange(sites(), Fault(), np.random.default_rng(0))
    progress, told = Progress("run-1", NAMES), []
    original = progress.update

    def update(**values):
        original(**values)
        faulty.away = {"b"} if values.get("sums") == 3 else faulty.away

    progress.update = update
    conduct(faulty, study, "run-1", tmp_path / "runs", tmp_path, progress, told.append)
    outcome = read_outcome(tmp_path)
    (absent,) = outcome["absent"]
    assert (absent["site"], absent["missed"], absent["sums"]) == ("b", 1, 4)
    assert any("sum 3" in sentence and "'b'" in sentence for sentence in told)
    assert run_state(outcome).about == ("b",)
    # Of a method that commands read, the result says it, too.
    stored = {"format": "feddbn-result", "privacy": None, "warnings": ["before."]}
    (tmp_path / "result.feddbn").write_bytes(StudyResult({}, {"result": stored}).to_bytes())
    export_result(tmp_path)
    written = json.loads((tmp_path / "result.json").read_text())
    assert written["warnings"] == ["before.", absent["words"]]


def test_a_site_that_cannot_be_reached_is_not_waited_for(tmp_path):
    patient = {"when_missing": "continue", "min_sites": 1}
    study = Study.model_validate({**STUDY.model_dump(), "attendance": patient})
    faulty = FaultyExchange(sites(), Fault(), np.random.default_rng(0))
    faulty.away = {"b"}
    progress = Progress("run-1", NAMES)
    # The handshake would otherwise ask for half a minute.
    start = time.monotonic()
    conduct(faulty, study, "run-1", tmp_path / "runs", tmp_path, progress, lambda sentence: None, {"a"})
    assert time.monotonic() - start < 15
    (absent,) = read_outcome(tmp_path)["absent"]
    assert absent["site"] == "b"
    assert absent["missed"] == absent["sums"]
