import json

import pytest

pytest.importorskip("cryptography")
from feddbn.console.lead_facts import course_of, run_facts, site_facts
from feddbn.console.lead_watch import Point, Sight
from feddbn.runtime.engines.interface import Job
from support.owned_sites import make_study

NOW = 1_700_000_000.0
STUDY = make_study(name="sepsis", method="fdbnl", parameters={"n_lags": 1})


def job(status="RUNNING", said="running", **more):
    ended = status.startswith("FINISHED")
    return Job("run-1", "job-1", status, "2026-11-16T10:00:00", "", status == "RUNNING", ended, said, **more)


def sight(**more):
    return Sight(opened=NOW - 100, taken=NOW, **more)


def test_a_site_is_connected_silent_since_or_not_seen():
    found = site_facts(
        sight(connected=("north",), seen={"north": NOW, "south": NOW - 135}), ["north", "south", "west"], NOW
    )
    said = {one.name: (one.level, one.words) for one in found}
    assert said["north"] == ("good", "connected")
    assert said["south"][0] == "bad"
    assert said["south"][1].startswith("silent since ")
    assert said["south"][1].endswith("(2 min 15 s)")
    assert said["west"] == ("caution", "has never been connected, as far as this lead has seen")


def test_nothing_is_claimed_about_sites_while_the_server_cannot_be_asked():
    (one,) = site_facts(sight(trouble="no answer.", trouble_since=NOW, seen={"north": NOW - 9}), [], NOW)
    assert (one.level, one.words) == ("unknown", "not known; connected 9 s ago")


def points(n, seconds=2.0, **note):
    return tuple(
        Point(k + 1, NOW + seconds * k, {"round": k + 1.0, "max_rounds": 100.0, **note}) for k in range(n)
    )


def test_progress_and_the_most_time_left_follow_from_the_pace():
    course = points(11)
    progress = {
        "state": "running",
        "sums": 11,
        "present": ["north", "south"],
        "task": "fdbnl-step",
        "note": course[-1].note,
    }
    facts = run_facts(
        sight(connected=("north", "south"), progress={"run-1": progress}, points={"run-1": course}),
        job(),
        STUDY,
        None,
        NOW,
    )
    # 89 rounds of 2 s.
    assert facts.left.startswith("round 11 of at most 100, 2 s for each sum: at most 2 min 58 s left")
    assert facts.share == pytest.approx(0.11)
    assert facts.missing == ("west",)
    assert facts.warnings == ("not in the last sum: west (not connected).",)
    # A site that was in the last sum and is not connected any more is told, too, unless nobody can know.
    whole = {"run-1": {**progress, "present": ["north", "south", "west"]}}
    gone = run_facts(sight(connected=("north", "south"), progress=whole), job(), STUDY, None, NOW)
    assert gone.warnings == ("not connected at the moment: west.",)
    assert run_facts(sight(trouble="no answer.", progress=whole), job(), STUDY, None, NOW).warnings == ()
    assert facts.words == "running; asks for fdbnl-step"
    assert facts.level == "good"


def test_a_method_that_does_not_count_rounds_promises_nothing():
    course = tuple(Point(k, NOW + k, {}) for k in range(3))
    progress = {"sums": 2, "present": ["north"], "note": {}}
    facts = run_facts(sight(progress={"run-1": progress}, points={"run-1": course}), job(), STUDY, None, NOW)
    assert facts.share is None
    assert facts.left == "1 s for each sum; how many it needs is not known before"
    fresh = run_facts(sight(), job(), None, None, NOW)
    assert (fresh.left, fresh.sums, fresh.missing) == ("", None, ())


def test_resamples_are_counted_against_those_of_the_study():
    study = make_study(goal="confidence", confidence={"replicates": 50})
    progress = {"sums": 3, "present": ["north"], "note": {"replicates": 20.0}}
    facts = run_facts(sight(progress={"run-1": progress}), job(), study, None, NOW)
    assert facts.share == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("status", "said", "more", "outcome", "level", "words"),
    [
        ("SUBMITTED", "waits to be started", {}, None, "unknown", "waits to be started"),
        ("FINISHED:COMPLETED", "finished", {}, None, "good", "finished"),
        (
            "FINISHED:ABORTED",
            "stopped on request",
            {"was_stopped": True},
            None,
            "caution",
            "stopped on request",
        ),
        (
            "FINISHED:ABNORMAL",
            "stopped",
            {},
            {"state": "stopped", "sentence": "south is missing."},
            "bad",
            "stopped: south is missing.",
        ),
        (
            "FINISHED:COMPLETED",
            "finished",
            {},
            {"state": "collecting", "sentence": "awaited."},
            "bad",
            "collecting: awaited.",
        ),
    ],
)
def test_how_a_run_ended_in_words(status, said, more, outcome, level, words):
    facts = run_facts(sight(), job(status, said, **more), STUDY, outcome, NOW)
    assert (facts.level, facts.words) == (level, words)


def test_warnings_of_a_result_are_told():
    outcome = {"state": "finished", "summary": {"result": {"warnings": ["few rows."]}}}
    assert run_facts(sight(), job("FINISHED:COMPLETED", "finished"), STUDY, outcome, NOW).warnings == (
        "few rows.",
    )


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
