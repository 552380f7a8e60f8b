import json

import pytest

pytest.importorskip("cryptography")
from feddbn.console.lead_facts import course_of, run_facts, site_facts
from feddbn.console.lead_watch import Point, Sight
from feddbn.runtime.engines.interface import Job
from support.owned_sites import make_study
from support.saying import codes, only

pytestmark = pytest.mark.usefixtures("light")

NOW = 1_700_000_000.0
STUDY = make_study(name="sepsis", method="fdbnl", parameters={"n_lags": 1})


def job(status="RUNNING", code="job-runs", **more):
    ended = status.startswith("FINISHED")
    return Job("run-1", "job-1", status, "2026-11-16T10:00:00", "", status == "RUNNING", ended, code, **more)


RUNNING = job()


def facts_of(job=RUNNING, study=STUDY, outcome=None, **seen):
    return run_facts(Sight(opened=NOW - 100, taken=NOW, **seen), job, study, outcome)


def test_a_site_is_connected_silent_since_not_seen_or_unknown():
    sight = Sight(NOW, NOW, connected=("north",), seen={"north": NOW, "south": NOW - 135})
    north, south, west = site_facts(sight, ["north", "south", "west"], NOW)
    assert codes([north, south, west]) == ["site-here", "site-silent", "site-away"]
    assert (south.level, south.values["seconds"]) == ("error", 135)
    # While the server cannot be asked, nothing is claimed.
    sight = Sight(
        NOW, NOW, trouble="no answer.", trouble_since=NOW, seen={"north": NOW - 9}, sites=("north",)
    )
    (one,) = site_facts(sight, [], NOW)
    assert (one.code, one.level, one.values["seconds"]) == ("site-unknown", "unknown", 9)


def test_progress_and_the_most_time_left_follow_from_the_pace():
    course = tuple(Point(k + 1, NOW + 2.0 * k, {"round": k + 1.0, "max_rounds": 100.0}) for k in range(11))
    progress = {"state": "running", "sums": 11, "present": ["north", "south"], "task": "step.fdbnl"}
    progress["note"] = course[-1].note
    here = ("north", "south")
    facts = facts_of(connected=here, progress={"run-1": progress}, points={"run-1": course})
    assert facts.left.values == {"pace": 2.0, "reached": 11.0, "most": 100.0}
    assert facts.share == pytest.approx(0.11)
    assert (facts.state.code, facts.state.level) == ("run-goes-on", "good")
    away = only(facts.warnings, "not-in-last-sum")
    assert (away.about, away.values["away"]) == (("west",), ["west"])
    # A site that was in the last sum and is not connected any more is told, too, unless nobody can know.
    whole = {"run-1": {**progress, "present": ["north", "south", "west"]}}
    (gone,) = facts_of(connected=here, progress=whole).warnings
    assert (gone.code, gone.about) == ("not-connected", ("west",))
    assert facts_of(trouble="no answer.", progress=whole).warnings == ()


def test_a_method_that_does_not_count_rounds_promises_nothing():
    course = tuple(Point(k, NOW + k, {}) for k in range(3))
    progress = {"sums": 2, "present": ["north"], "note": {}}
    facts = facts_of(progress={"run-1": progress}, points={"run-1": course})
    assert (facts.share, facts.left.values) == (None, {"pace": 1.0, "reached": None})
    fresh = facts_of(study=None)
    assert (fresh.left, fresh.sums, fresh.warnings) == (None, 0, ())
    # Resamples are counted against those of the study.
    study = make_study(goal="confidence", confidence={"replicates": 50})
    progress = {"sums": 3, "present": ["north"], "note": {"replicates": 20.0}}
    assert facts_of(study=study, progress={"run-1": progress}).share == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("job", "outcome", "level", "code"),
    [
        (job("SUBMITTED", "job-waits"), None, "unknown", "job-waits"),
        (job("FINISHED:COMPLETED", "job-finished"), None, "good", "job-finished"),
        (job("FINISHED:ABORTED", "job-aborted", was_stopped=True), None, "warning", "run-ended"),
        (job("FINISHED:ABNORMAL", "job-stopped"), None, "error", "run-ended"),
        (
            job("FINISHED:ABNORMAL", "job-stopped"),
            {"state": "stopped", "sentence": "no."},
            "error",
            "run-stopped",
        ),
        (
            job("FINISHED:COMPLETED", "job-finished"),
            {"state": "collecting", "sentence": "x."},
            "note",
            "run-collects",
        ),
    ],
)
def test_how_a_run_ended_and_whether_it_can_go_on(job, outcome, level, code):
    facts = facts_of(job, outcome=outcome)
    assert (facts.state.level, facts.state.code) == (level, code)
    assert facts.can_resume == code.startswith("run-")
    assert not facts_of(job, None, outcome).can_resume
    if outcome is not None:
        assert facts.state.values["sentence"] == outcome["sentence"].rstrip(".")


def test_who_refused_is_told_by_itself_with_the_reason():
    said = {"west": {"code": "refused-by-owner", "sentence": "site 'west' refused: not now."}}
    stopped = {"state": "stopped", "sentence": "2 of 3 sites. site 'west' refused: not now.", "said": said}
    facts = facts_of(job("FINISHED:ABNORMAL", "job-stopped"), outcome=stopped)
    assert facts.state.values == {"sentence": "2 of 3 sites"}
    (one,) = facts.refused
    assert (one.code, one.about, one.values["sentence"]) == (
        "site-refuses",
        ("west",),
        "site 'west' refused: not now.",
    )
    # While it runs, too.
    (one,) = facts_of(progress={"run-1": {"said": said, "last": "x"}}).refused
    assert one.about == ("west",)


def test_warnings_of_a_result_are_told():
    outcome = {"state": "finished", "summary": {"result": {"warnings": ["few rows."]}}}
    (told,) = facts_of(job("FINISHED:COMPLETED", "job-finished"), outcome=outcome).warnings
    assert told.values == {"text": "few rows."}


def test_curves_leave_out_what_counts_and_what_is_not_finite(tmp_path):
    course = (
        Point(1, NOW, {"round": 1.0, "max_rounds": 9.0, "h": 4.0}),
        Point(3, NOW, {"round": 2.0, "max_rounds": 9.0, "h": float("nan"), "objective": 2.0}),
        Point(5, NOW, {"h": 1.0, "objective": float("inf")}),
    )
    assert course_of(course, None) == [
        {"name": "h", "sums": [1, 5], "values": [4.0, 1.0]},
        {"name": "objective", "sums": [3], "values": [2.0]},
    ]
    # What was fetched is the whole course.
    events = [{"what": "sum", "seq": k, "note": {"h": 1.0 / (k + 1)}} for k in range(4)]
    lines = [*events[:2], {"what": "silent", "site": "b"}, *events[2:]]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert course_of(course, tmp_path) == [
        {"name": "h", "sums": [1, 2, 3, 4], "values": [1.0, 0.5, 1 / 3, 0.25]}
    ]
    assert course_of((), tmp_path / "none") == []
