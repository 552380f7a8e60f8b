"""Who is there and since when others are silent; how a run stands, in words."""

import json

import pytest

from feddbn.runtime.deployed.conduct import Progress
from feddbn.runtime.deployed.results import absences_in
from feddbn.runtime.deployed.run_words import run_in_words
from feddbn.runtime.engines.interface import Presence, SeenSites, span_in_words

HEARD = 1_000_000_000.0


@pytest.mark.parametrize(
    ("presence", "words"),
    [
        (Presence("west", True, HEARD), "west is connected"),
        (Presence("west", False), "west is not connected"),
        (Presence("west", False, HEARD), "west is silent since 2001-09-09 01:46:40 UTC (3 min 10 s)"),
    ],
)
def test_a_site_in_words(presence, words):
    assert presence.words(now=HEARD + 190) == words


def test_a_clock_that_is_slow_makes_no_negative_spans():
    assert Presence("west", False, HEARD).words(now=HEARD - 50).endswith("(0 s)")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 s"),
        (0.4, "0 s"),
        (12.4, "12 s"),
        (59, "59 s"),
        (60, "1 min"),
        (135, "2 min 15 s"),
        (1215, "20 min"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (200_000, "2 days"),
        (4 * 86400, "4 days"),
    ],
)
def test_spans_in_words(seconds, words):
    assert span_in_words(seconds) == words


def test_sites_that_the_server_has_forgotten_are_remembered(tmp_path):
    seen = SeenSites(tmp_path / "runs" / "seen")
    assert [
        one.site for one in seen.completed([Presence("b", True, HEARD), Presence("a", True, HEARD + 1)])
    ] == [
        "a",
        "b",
    ]
    again = SeenSites(tmp_path / "runs" / "seen").completed([Presence("a", True, HEARD + 9)], named=("c",))
    assert [(one.site, one.is_here, one.heard) for one in again] == [
        ("a", True, HEARD + 9),
        ("b", False, HEARD),
        ("c", False, None),
    ]


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


@pytest.mark.parametrize("content", ["", "[1]", '{"a": "x"}', "\x00"])
def test_a_damaged_memory_is_begun_anew(tmp_path, content):
    path = tmp_path / "seen"
    path.write_text(content)
    assert SeenSites(path).completed([Presence("a", True, HEARD)]) == [Presence("a", True, HEARD)]


def test_absences_are_counted_over_all_parts_of_a_run():
    events = [
        {"what": "silent", "seq": 0, "site": "b", "sentence": "site 'b' did not answer in time."},
        {"what": "sum", "seq": 0, "sites": ["a"], "missing": ["b", "c"]},
        {"what": "sum", "seq": 1, "sites": ["a", "b"], "missing": ["c"]},
        # A run that is resumed makes a sum again if it was not written down.
        {"what": "sum", "seq": 1, "sites": ["a", "b"], "missing": ["c"]},
        {"what": "sum", "seq": 2, "sites": ["a", "b", "c"]},
    ]
    b, c = absences_in(events)
    assert b.words == "site 'b' is missing from 1 of 3 sums: site 'b' did not answer in time."
    assert (c.missed, c.sums, c.words) == (2, 3, "site 'c' is missing from 2 of 3 sums.")
    assert absences_in([]) == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"state": "starting"}, "is being started"),
        ({"state": "starting", "awaited": {"b": 12.0}}, "is being started; no answer from b for 12 s"),
        (
            {
                "state": "running",
                "sums": 1,
                "present": ["a"],
                "sites": ["a", "b"],
                "awaited": {"a": 1.0, "b": 75},
            },
            "running: 1 sum, 1 of 2 sites in the last; no answer from b for 1 min 15 s",
        ),
        ({"state": "collecting", "last": "waits for b."}, "waits for its sites: waits for b"),
        ({"state": "finished", "absent": []}, "finished"),
        ({"state": "stopped", "sentence": "b refused."}, "stopped: b refused"),
        ({"state": "failed"}, "ended by an error; the server's log says why"),
    ],
)
def test_a_run_in_words(values, words):
    assert run_in_words(values) == words


def test_progress_tells_who_is_awaited():
    progress = Progress("run", ("a", "b"), lambda: {"b": 30.0})
    assert progress.read()["awaited"] == {"b": 30.0}
    assert "no answer from b for 30 s" in run_in_words(progress.read())
