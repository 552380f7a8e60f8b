"""Who is there and since when others are silent; how a run stands."""

import json

import pytest

from feddbn.runtime.engines.interface import Presence, SeenSites, run_state
from feddbn.runtime.server.conduct import Progress
from feddbn.runtime.server.results import absences_in

HEARD = 1_000_000_000.0


def test_how_a_site_stands():
    found = [
        Presence(*one).finding(HEARD + 190)
        for one in (("west", True, HEARD), ("west", False), ("west", False, HEARD))
    ]
    assert [one.code for one in found] == ["site-here", "site-away", "site-silent"]
    assert (found[2].values["heard"], found[2].values["seconds"]) == (HEARD, 190)


def test_sites_that_the_server_has_forgotten_are_remembered(tmp_path):
    path = tmp_path / "runs" / "seen"
    found = SeenSites(path).completed([Presence("b", True, HEARD), Presence("a", True, HEARD + 1)])
    assert [one.site for one in found] == ["a", "b"]
    again = SeenSites(path).completed([Presence("a", True, HEARD + 9)], named=("c",))
    assert again == [Presence("a", True, HEARD + 9), Presence("b", False, HEARD), Presence("c", False)]


def test_a_site_that_is_there_is_written_down_once_a_minute(tmp_path):
    path = tmp_path / "runs" / "seen"

    def remembered(*there):
        SeenSites(path).completed(there)
        return json.loads(path.read_text())

    assert remembered(Presence("a", True, HEARD)) == {"a": HEARD}
    assert remembered(Presence("a", True, HEARD + 59)) == {"a": HEARD}
    # Another site, a site that falls silent and a minute are news; all is written then.
    both = {"a": HEARD + 10, "b": HEARD}
    assert remembered(Presence("a", True, HEARD + 10), Presence("b", True, HEARD)) == both
    assert remembered(Presence("a", True, HEARD + 20), Presence("b", True, HEARD + 15)) == both
    silent = {"a": HEARD + 30, "b": HEARD + 15}
    assert remembered(Presence("a", True, HEARD + 30), Presence("b", False, HEARD + 15)) == silent
    assert remembered(Presence("a", True, HEARD + 90), Presence("b", False, HEARD + 15))["a"] == HEARD + 90
    # A server whose clock was put back is believed.
    assert remembered(Presence("a", True, HEARD - 600))["a"] == HEARD - 600


@pytest.mark.parametrize("content", ["", "[1]", '{"a": "x"}'])
def test_a_damaged_memory_is_begun_anew(tmp_path, content):
    path = tmp_path / "seen"
    path.write_text(content)
    assert SeenSites(path).completed([Presence("a", True, HEARD)]) == [Presence("a", True, HEARD)]


def test_absences_are_counted_over_all_parts_of_a_run():
    events = [
        {"what": "silent", "seq": 0, "site": "b", "sentence": "late."},
        {"what": "sum", "seq": 0, "sites": ["a"], "missing": ["b", "c"]},
        {"what": "sum", "seq": 1, "sites": ["a", "b"], "missing": ["c"]},
        # A run that is resumed makes a sum again if it was not written down.
        {"what": "sum", "seq": 1, "sites": ["a", "b"], "missing": ["c"]},
        {"what": "sum", "seq": 2, "sites": ["a", "b", "c"]},
    ]
    assert [one.values for one in absences_in(events)] == [
        {"site": "b", "missed": 1, "sums": 3, "why": "late.", "code": ""},
        {"site": "c", "missed": 2, "sums": 3, "why": "", "code": ""},
    ]
    assert absences_in([]) == []


@pytest.mark.parametrize(
    ("values", "code", "told"),
    [
        ({"state": "starting", "awaited": {"b": 12.0}}, "run-starts", {"late": {"b": 12.0}}),
        (
            {
                "state": "running",
                "sums": 1,
                "present": ["a"],
                "sites": ["a", "b"],
                "awaited": {"a": 1.0, "b": 75},
            },
            "run-goes-on",
            {"sums": 1, "present": 1, "sites": 2, "late": {"b": 75.0}},
        ),
        ({"state": "collecting", "last": "waits."}, "run-collects", {"sentence": "waits"}),
        ({"state": "finished", "absent": []}, "run-finished", {}),
        ({"state": "stopped", "sentence": "b refused."}, "run-stopped", {"sentence": "b refused"}),
        ({"state": "failed"}, "run-failed", {}),
    ],
)
def test_how_a_run_stands(values, code, told):
    found = run_state(values)
    assert found.code == code
    assert told.items() <= found.values.items()


def test_progress_tells_who_is_awaited():
    progress = Progress("run", ("a", "b"), lambda: {"b": 30.0})
    assert progress.read()["awaited"] == {"b": 30.0}
    assert run_state(progress.read()).about == ("b",)
