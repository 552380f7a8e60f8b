"""Several modules: every code has words, and settings are written as their reader writes them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import feddbn.words
from feddbn.findings import LEVELS, Finding
from feddbn.report.record import read_record
from feddbn.report.verdicts import verdicts
from feddbn.words import card, first_lines, say, setting
from feddbn.words.data import _SENTENCES
from support.report_results import example_result

SRC = Path(feddbn.__file__).parent


def codes_in_source() -> set[str]:
    """The codes of findings that are made anywhere."""
    found = set()
    for path in SRC.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "from feddbn.findings import" in text else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding" and node.args:
                found |= {one.value for one in node.args[:1] if isinstance(one, ast.Constant)}
    return found


def test_every_code_has_words():
    assert codes_in_source() - set(feddbn.words._sentences()) == set()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("time", "local time", ("time='local time'", "--time 'local time'", 'time = "local time"')),
        ("sort", True, ("sort=True", "--sort", "sort = true")),
        ("day_first", False, ("day_first=False", "--month-first", "day_first = false")),
        ("jitter", 0.2, ("jitter=0.2", "--jitter 0.2", "jitter = 0.2")),
        ("kinds", {"n": "count"}, ("kinds={'n': 'count'}", "--kinds n=count", 'kinds = { "n" = "count" }')),
        (
            "kinds",
            {"a": {"ordinal": ["x", "y z"]}},
            ("kinds={'a': {'ordinal': ['x', 'y z']}}", "--kinds 'a=ordinal:x,y z'",
             'kinds = { "a" = { "ordinal" = ["x", "y z"] } }'),
        ),
        ("prepare.period", None, ("Prepare(period=None)", "-p prepare.period=None", "prepare.period = []")),
    ],
)  # fmt: skip
def test_settings_are_written_as_their_reader_writes_them(name, value, expected):
    assert tuple(setting(name, value, audience) for audience in ("python", "cli", "lead")) == expected


def test_errors_and_what_has_a_cure_are_shown_and_then_how_many_more():
    notes = [Finding("text", "note", {"text": f"note {k}"}) for k in range(3)]
    cured = Finding("text", "warning", {"text": "cured"}, cure={"prepare.robust": "off"})
    every = [
        Finding("text", "good", {"text": "fine"}),
        *notes,
        Finding("text", "error", {"text": "bad"}),
        cured,
    ]
    lines = first_lines(every)
    assert lines[0] == "bad"
    assert "cured" in lines[1]
    assert len(lines) == 3
    assert "3" in lines[2]
    assert len(first_lines(every, every=True)) == 5


@pytest.mark.parametrize(
    ("finding", "audience", "advice"),
    [
        (
            Finding(
                "glued",
                "warning",
                {"site": "a", "how": "names", "n_starts": 1},
                ("patient", "hour"),
                {"series": "patient", "time": "hour"},
            ),
            "cli",
            "Cure: --series patient --time hour.",
        ),
        (
            Finding("shuffled-time", "warning", {"site": "a"}, ("t",), {"time": "t", "sort": True}),
            "owner",
            'Cure: time = "t", sort = true.',
        ),
    ],
)
def test_cures_are_written_as_their_reader_writes_them(finding, audience, advice):
    assert card(finding, audience).advice == advice


NUMBERS = (
    "n_values n_starts n n_text n_numbers n_rows usable rows n_lags recordings sites columns fewest of factor"
)
ANY = {
    **dict.fromkeys(NUMBERS.split(), 3),
    **{"site": "a", "same_recording": "r", "same_site": "b", "step": "1 unit", "value": -9.0},
    **{"periods": [24.0], "share": 0.01, "most": 0.2, "kept": ["a", "b"], "cells": {"a": 3}},
    **{"shares": {"a": 0.2}, "limits": {"a": [1, 2]}, "part": 0.9, "every": 2, "own": "2h"},
    **{"units": ["F", "C"], "offset": -17.8, "level": 99.0, "usual": 37.0, "becomes": 37.2},
    "steps": [{"step": "1h", "kept": 0.9, "filled": {"a": 0.5, "b": 0.1}}],
}


@pytest.mark.parametrize("name", _SENTENCES)
@pytest.mark.parametrize("audience", ["python", "cli", "owner", "lead"])
def test_every_template_can_be_filled(name, audience):
    code, _, variant = name.partition("/")
    level = variant if variant in LEVELS else "warning"
    words = card(Finding(code, level, {**ANY, "how": variant}, ("x", "y"), {"time": "x"}), audience)
    assert words.detail.endswith(".")
    assert "{" not in f"{words.detail}{words.advice}".replace("{ ", "")


# Calls, attributes of fits and keyword arguments.


def test_nobody_who_typed_no_python_is_shown_python():
    inner = Finding("site-own-network", "note")
    said = card(Finding("own-data", "note", {"finding": inner.to_dict()}), "owner")
    assert said.question == "data: site-own-network"
    assert said.detail == f"note: {say(inner, 'owner')}"
    assert "`dbns_`" not in said.detail


@pytest.mark.parametrize("audience", ["python", "cli", "lead"])
def test_every_verdict_on_a_result_is_a_question_with_an_answer(audience):
    status = {"name": "MAX_ROUNDS", "message": "stopped early", "converged": False}
    facts = {"residuals": {"violations": ["memory", "tails"], "memory_p": 1e-9}, "varsortability": 0.95}
    stored = example_result() | {"status": status, "diagnostics": facts, "privacy": None}
    for one in verdicts(read_record(stored)):
        words = card(one, audience)
        assert words.question.endswith("?")
        assert words.answer.endswith(".")
        if audience != "python":
            assert "OneShotDBN(" not in str(words)


def test_a_stored_finding_without_its_values_is_said_plainly():
    assert say(Finding("pairs-unseen", "warning", {"n": 3})) == "pairs-unseen: n 3."
