"""Several modules: every code has words, and settings are written as their reader writes them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import feddbn.words
from feddbn.findings import Finding
from feddbn.words import argument, first_lines, reworded, say, setting

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


def test_arguments_and_sentences_of_errors_are_reworded():
    names = [argument(name, "cli") for name in ("variables", "prepare.exogenous")]
    assert names == ["--variables", "-p prepare.exogenous"]
    assert argument("prepare.exogenous") == "Prepare(exogenous=...)"
    said = "variables=['a'] lacks 'b': give time='my time', sort=True, freq=1.5, kinds= or variables=."
    assert reworded(said, "python") == said
    expected = (
        "--variables ['a'] lacks 'b': give --time 'my time', --sort, --freq 1.5, --kinds or --variables."
    )
    assert reworded(said, "cli") == expected


def test_five_lines_are_shown_and_then_how_many_more():
    many = [Finding("text", "note", {"text": f"note {k}"}) for k in range(6)]
    lines = first_lines(
        [Finding("text", "good", {"text": "fine"}), *many, Finding("text", "error", {"text": "bad"})]
    )
    assert lines[:2] == ["bad", "note 0"]
    assert len(lines) == 6
    assert "2" in lines[-1]
    assert say(many[0]) == "note 0"
