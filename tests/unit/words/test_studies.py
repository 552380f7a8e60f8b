"""Sentences about studies, runs and sites."""

import time

import pytest

from feddbn.findings import Finding
from feddbn.words import card, say
from feddbn.words.studies import span, when


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 s"),
        (59, "59 s"),
        (135, "2 min 15 s"),
        (1215, "20 min"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (200_000, "2 days"),
    ],
)
def test_spans(seconds, words):
    assert span(seconds) == words


def test_times_of_today_are_hours_and_others_have_a_day():
    today = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    assert when(today) == f"{today[11:16]} UTC"
    assert when("2024-03-01T07:08:09Z") == "2024-03-01 07:08 UTC"
    assert when("never") == "never"


@pytest.mark.parametrize(
    ("code", "values", "words"),
    [
        (
            "site-silent",
            {"site": "west", "heard": 1e9, "seconds": 190},
            "silent since 2001-09-09 01:46:40 UTC (3 min",
        ),
        ("site-unknown", {"site": "west", "seconds": 2}, "not known; connected just now"),
        (
            "site-absent",
            {"site": "b", "missed": 1, "sums": 3, "why": "late."},
            "missing from 1 of 3 sums: late.",
        ),
        (
            "run-goes-on",
            {"sums": 1, "present": 1, "sites": 2, "late": {"b": 75}},
            "no answer from b for 1 min 15 s",
        ),
        ("run-left", {"pace": 2.0, "reached": 11.0, "most": 100.0}, "at most 2 min 58 s left"),
        ("run-left", {"pace": 2.0, "reached": None}, "2 s for each sum; how many it needs is not known"),
        ("job-stopped", {"run": "x"}, "`feddbn results x` says why, `feddbn resume x` goes on"),
    ],
)
def test_runs_and_sites(code, values, words):
    assert words in say(Finding(code, "note", values), "lead")


def test_a_study_names_what_protects_it():
    privacy = {"masks": True, "min_sites": 3, "epsilon": 1.0, "delta": 1e-5, "unit": "row"}
    said = card(Finding("study-privacy", "note", privacy), "owner")
    assert said.question == "privacy"
    assert "sums of at least 3 sites are opened; noise: epsilon 1, delta 1e-05 for each row" in said.detail
    open_ones = card(Finding("study-privacy", "note", {**privacy, "masks": False, "epsilon": None}), "owner")
    assert "NO secure aggregation" in open_ones.detail


def test_nobody_who_typed_no_python_is_shown_python():
    inner = Finding("site-own-network", "note")
    said = card(Finding("own-data", "note", {"finding": inner.to_dict()}), "owner")
    assert said.question == "data: site-own-network"
    assert said.detail == f"note: {say(inner, 'owner')}"
    assert "`dbns_`" not in said.detail


@pytest.mark.parametrize(
    ("spent", "words"),
    [(1.994, "epsilon 1.99 of 10 for each row spent, 8.01 left (delta = 1e-05)"), (None, "all of 10 spent")],
)
def test_a_budget(spent, words):
    values = {"limit": 10.0, "unit": "row", "delta": 1e-5, "spent": spent}
    assert card(Finding("budget", "note", values), "owner").detail.startswith(words)
