"""Several modules: every code has words, and settings are written as their reader writes them."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path
from typing import get_args

import pytest

import feddbn.words
from feddbn.errors import DataError, Given
from feddbn.findings import LEVELS, Finding
from feddbn.report.record import read_record
from feddbn.report.verdicts import verdicts
from feddbn.words import Audience, argument, card, first_lines, say, setting, told
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


def test_arguments_of_errors_are_written_as_their_reader_writes_them():
    names = [argument(name, "cli") for name in ("variables", "prepare.exogenous")]
    assert names == ["--variables", "-p prepare.exogenous"]
    assert argument("prepare.exogenous") == "Prepare(exogenous=...)"
    given = [
        ("variables", ["a"]),
        ("time", "my time"),
        ("sort", True),
        ("freq", 1.5),
        ("kinds",),
        ("time", None),
    ]
    error = DataError(" ".join(f"{Given(*one)}" for one in given))
    assert str(error) == "variables=['a'] time='my time' sort=True freq=1.5 kinds= time=None"
    assert (
        told(error.parts, "cli") == "--variables ['a'] --time 'my time' --sort --freq 1.5 --kinds --time None"
    )
    assert told(error.parts, "python") == str(error)
    # It comes back from another process as it was raised there.
    assert pickle.loads(pickle.dumps(error)).parts == error.parts


def test_five_lines_are_shown_and_then_how_many_more():
    many = [Finding("text", "note", {"text": f"note {k}"}) for k in range(6)]
    lines = first_lines(
        [Finding("text", "good", {"text": "fine"}), *many, Finding("text", "error", {"text": "bad"})]
    )
    assert lines[:2] == ["bad", "note 0"]
    assert len(lines) == 6
    assert "2" in lines[-1]
    assert say(many[0]) == "note 0"


def test_all_findings_are_shown_where_all_are_asked_for():
    both = tuple(Finding("text", "note", {"text": f"site {k}"}) for k in range(2))
    merged = [
        Finding("text", "note", {"text": "two sites"}, parts=both),
        Finding("text", "good", {"text": "fine"}),
    ]
    assert first_lines([*merged, *merged], most=None) == ["site 0", "site 1"] * 2


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
        (
            Finding("kinds", "note", {"kinds": {"n": "count"}}, ("n",), {"kinds": {"n": "count"}}),
            "python",
            "Cure: if so, use MixedDBN(kinds={'n': 'count'}); other methods treat them as numbers and refuse text.",
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


def test_where_something_was_found_stands_before_it_with_how_many_other_sites_have_it():
    values = {"site": "a", "value": -999.0, "n": 2, "n_sites": 3}
    text = say(Finding("sentinel", "warning", values, ("x",)))
    assert text.startswith("site 'a' and 2 more: column 'x': -999 appears 2 times")


def test_a_refusal_is_parted_from_its_cure_and_names_options():
    parts = ["site 'a' lacks column 'b'; choose common ones with ", ["variables"], "."]
    found = card(Finding("refused", "error", {"text": "", "parts": parts, "why": ""}), "cli")
    assert (found.detail, found.advice) == (
        "site 'a' lacks column 'b'.",
        "Cure: choose common ones with --variables.",
    )


P = {"p": 1e-9}
MEMORY = {**P, "autocorrelation": 0.4, "echo": 1.0, "n_lags": 1, "lag_gain": 12.0, "looked_only": True}
ROWS = {"n_effective": 80.0, "n_rows": 100, "looked_only": True}
VIOLATED = {
    "hidden": {"causes": [["a", "b"]], "gain": 60.0},
    "memory": MEMORY,
    "dependence": {**P, "correlation": 0.3},
    "curvature": P,
    "change": {"edges": [["a", "b", lag, 0.5, 0.01, 3e5] for lag in range(6)]},
    "volatility": {**P, **ROWS, "correlation": 0.3},
    "thirds": {**P, "ratio": 3.0},
    "spread": {**P, "spread": 0.7},
    "tails": {**P, "kurtosis": 12.0},
}
DISCOVERIES = {
    **{"fdr": 0.1, "n_lagged": 1, "n_links": 2, "n_tested": 51, "n": 400.0, "n_columns": 12},
    **{"because": [], "is_checked": True},
}
FOUND = [
    Finding("own-means", "note", {"evidence": 12.0}, cure={"prepare.center": "none"}),
    Finding(
        "own-courses",
        "note",
        {"evidence": 12.0, "degree": 3, "periods": [24.0], "shares": {"a": 0.4, "b": 0.001}},
        cure={"prepare.detrend": 0, "prepare.period": None},
    ),
    Finding("own-scales", "note", {"evidence": 12.0}, cure={"prepare.gains": "none"}),
    Finding("cells-bounded", "note", {"n": 12, "share": 0.004}, ("a",), {"prepare.robust": "off"}),
    Finding("empty-cells", "note", {"share": 0.1, "n": 90.0}, cure={"prepare.missing": "drop"}),
    Finding("pairs-unseen", "warning", {"pairs": [["a", "b", [0, 1]], ["a", "a", [1]]]}),
    *(
        Finding("sites-disagree", "warning", {"n": n, "n_sites": 6, "left_out": out, "personal": own})
        for n, out, own in ((1, True, True), (1, True, False), (3, False, False), (1, False, False))
    ),
    *(
        Finding("two-rates", "warning", {"n": n, "n_sites": 6, "left_out": out, "personal": False})
        for n, out in ((1, True), (4, False))
    ),
    Finding("not-looked-at-under-noise", "unknown", cure={"prepare.center": "recording"}),
    Finding("no-intercepts", "note"),
    Finding(
        "kinds-as-lines", "warning", {"kinds": {"a": "count", "b": "binary"}, "means": {"a": 1.3, "b": 0.5}}
    ),
    Finding("lag-added", "note", {"n_lags": 2, "gain": 12.0}),
    Finding("noise-memory-removed", "note", {"memory": 0.6}, cure={"check_residuals": False}),
    *(Finding("residuals", "warning", {"violations": [first, *VIOLATED], **VIOLATED}) for first in VIOLATED),
    Finding("residuals", "note", {"violations": ["tails"], **VIOLATED}),
    *(
        Finding("data-do-not-tell", "warning", {"n_edges": 5, "n_low": 4, "because": because})
        for because in (["memory", "hidden"], ["something-new"], [])
    ),
    Finding("residuals-hidden", "warning", {"causes": [["a", "b"], ["c", "d"]], "gain": 60.0}),
    Finding("residuals-memory", "warning", MEMORY),
    Finding("residuals-memory", "warning", {**MEMORY, "echo": 5.0, "lag_gain": None}),
    Finding("residuals-dependence", "warning", {**P, "correlation": 0.3}),
    Finding("residuals-volatility", "note", {**P, **ROWS, "correlation": 0.3}),
    Finding("residuals-thirds", "note", {**P, "ratio": 3.0}),
    Finding("residuals-spread", "note", {**P, "spread": 0.7}),
    Finding("residuals-tails", "note", {**P, "kurtosis": 12.0}),
    Finding("residuals-curvature", "warning", P),
    Finding("residuals-change", "warning", {"edges": [["a", "b", 0, 0.5, 0.01, 3e5]]}),
    Finding(
        "could-be-hidden",
        "warning",
        {"edges": [["a", "b", 0], ["b", "c", 1]], "n_edges": 4, "causes": [["a", "b"]], "gain": 3.0},
    ),
    Finding(
        "curves",
        "note",
        {"n_curves": 2, "n_edges": 3, "n_products": 1, "gain": 40.0},
        cure={"features": "linear"},
    ),
    *(
        Finding("discoveries", "warning", {**DISCOVERIES, **values})
        for values in ({}, {"because": ["hidden", "something-new"]}, {"n": 9.0}, {"is_checked": False})
    ),
    Finding("few-rows-for-curves", "warning", {"n": 59.0, "q": 32, "others": ["quadratic", "linear"]}),
    Finding("rows-added", "note", {"n_new": 10, "n_before": 90}),
    Finding("treated-as-before", "warning", {"own_means": True, "degree": 1, "outliers": ["a"]}),
    Finding("not-selected-by-spread", "note", {"fewest": 4}),
    Finding("sites-not-compared", "unknown", cure={"prepare.on_disagreement": "warn"}),
    Finding("noise-shape-not-looked-at", "unknown", cure={"use_nongaussian": "auto"}),
    Finding("few-rows-for-marks", "warning", {"n": 20.0, "q": 12}),
    Finding("marks", "note", {"n_edges": 4, "n_hidden": 1, "n_open": 2}),
    Finding("cyclic-marks", "warning", {"n": 2}),
]
# Calls, attributes of fits and keyword arguments.
PYTHON = re.compile(r"\w\(\w+=|\b[a-z]+_\b|[a-z]=['\"]|feddbn\.\w")


@pytest.mark.parametrize("found", FOUND, ids=lambda found: found.code)
def test_sentences_are_whole_and_speak_to_their_readers(found):
    said = {audience: say(found, audience) for audience in get_args(Audience)}
    assert all(re.search(r"\.\)?$", one) and "  " not in one for one in said.values())
    assert not any(one.startswith(f"{found.code}: ") for one in said.values())
    for audience in ("cli", "owner", "lead"):
        assert not PYTHON.search(said[audience]), said[audience]
    for name in found.cure:
        assert f"-p {name}=" in said["cli"]
        assert f"{name} = " in said["lead"]


def test_what_a_site_alone_found_is_said_with_its_name():
    inner = Finding("own-means", "note", {"evidence": 12.0}, cure={"prepare.center": "none"})
    found = Finding("of-site", "note", {"site": "a", "what": ", its own network", "finding": inner.to_dict()})
    assert say(found, "cli") == f"site 'a', its own network: {say(inner, 'cli')}"


@pytest.mark.parametrize(
    ("code", "values", "words"),
    [
        ("site-silent", {"site": "west", "heard": 1e9, "seconds": 190}, "Sep 2001, "),
        ("site-absent", {"site": "b", "missed": 1, "sums": 3, "why": "late."}, "1 of 3 sums: late."),
        ("run-goes-on", {"sums": 1, "present": 1, "sites": 2, "late": {"b": 75}}, "b for 1 min 15 s"),
        ("run-left", {"pace": 2.0, "reached": 11.0, "most": 100.0}, "at most 2 min 58 s left"),
        ("run-left", {"pace": 2.0, "reached": None}, "2 s for each sum; the number of sums is not known"),
        (
            "job-stopped",
            {"run": "x"},
            "`feddbn study results x` says why, `feddbn study resume x` continues it",
        ),
    ],
)
def test_runs_and_sites(code, values, words):
    assert words in say(Finding(code, "note", values), "lead")


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


@pytest.mark.parametrize("audience", ["python", "cli", "lead"])
def test_every_verdict_on_a_result_is_a_question_with_an_answer(audience):
    status = {"name": "STALLED", "message": "stopped early", "converged": False}
    facts = {"residuals": {"violations": ["memory", "tails"], "memory_p": 1e-9}, "varsortability": 0.95}
    stored = example_result() | {"status": status, "diagnostics": facts, "privacy": None}
    for one in verdicts(read_record(stored)):
        words = card(one, audience)
        assert words.question.endswith("?")
        assert words.answer.endswith(".")
        if audience != "python":
            assert "OneShotDBN(" not in str(words)


def test_numbers_that_a_result_does_not_have_are_left_out():
    values = {"answer": "no", "violations": ["memory", "tails"], "memory_p": 1e-9}
    detail = card(Finding("verdict-residuals", "error", values)).detail
    assert detail == "Residuals are autocorrelated (p 1e-09); the noise has heavy tails."


def test_how_to_ask_for_another_method_is_said_as_the_reader_asks():
    found = Finding(
        "verdict-order", "warning", {"answer": "scales", "method": "FDBNL", "varsortability": 0.9}
    )
    assert "OneShotDBN(noise_variance='free')" in card(found).advice
    assert "--method oneshot -p noise_variance=free" in card(found, "cli").advice
    assert 'method = "oneshot" and noise_variance = "free"' in card(found, "lead").advice


def test_a_stored_finding_without_its_values_is_said_plainly():
    assert say(Finding("pairs-unseen", "warning", {"n": 3})) == "pairs-unseen: n 3."


def test_nobody_is_told_to_use_the_method_that_is_used():
    values = {"n": 3, "n_sites": 5, "left_out": False, "personal": False}
    told = {
        one: say(Finding("sites-disagree", "warning", {**values, "one_network": one}), "cli")
        for one in (True, False)
    }
    assert ("pfdbnl" in told[True], "pfdbnl" in told[False]) == (True, False)


def test_what_sums_up_findings_of_sites_names_the_site_and_what_it_is():
    units = Finding("other-units", "warning", {"factor": 0.13}, ("sbp",))
    note = Finding("site-note", "warning", {"site": "lyon", "finding": units.to_dict()})
    whole = Finding("sites-compared", "warning", parts=(note, note))
    assert say(whole, "cli").startswith(f"site 'lyon': {say(units, 'cli').partition(':')[0]}; ")
