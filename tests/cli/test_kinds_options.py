from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feddbn.cli.options import given_parameters, parse_kinds
from feddbn.core.kinds import read_kinds
from feddbn.errors import ParameterError
from feddbn.method_table import METHODS
from feddbn.words import setting
from support.saying import refused
from support.wards import wards

KINDLY, PLAIN = METHODS["mixed"], METHODS["oneshot"]


@pytest.fixture
def hospitals(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name, frame in wards(3).items():
        n = len(frame)
        frame = frame.assign(calls=rng.poisson(1.5, n), ward=rng.choice(["north", "south", "west"], n))
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


def test_options_say_kinds_and_levels():
    said = parse_kinds(
        [
            "visits=count",
            "ward=north, south ,west",
            "pain=ordinal:no,some,bad",
            "score=ordinal:5",
            "s=binary:f,m",
        ]
    )
    assert said == {
        "visits": "count",
        "ward": ["north", "south", "west"],
        "pain": {"ordinal": ["no", "some", "bad"]},
        "score": {"ordinal": 5},
        "s": {"binary": ["f", "m"]},
    }
    assert [kind.n_levels for kind in read_kinds(said, tuple(said))] == [0, 3, 3, 5, 2]
    assert parse_kinds(None) is None
    assert parse_kinds([]) is None


def test_what_is_printed_can_be_typed():
    said: dict[str, Any] = {
        "visits": "count",
        "local ward": ["a b", "c"],
        "pain": {"ordinal": ["no", "bad"]},
        "n": {"ordinal": 4},
    }
    words = shlex.split(setting("kinds", said, "cli"))
    assert parse_kinds([word for word in words if word != "--kinds"]) == said


@pytest.mark.parametrize("inside", [True, False])
def test_files_say_kinds_too(tmp_path, inside):
    kinds = {"visits": "count", "pain": {"ordinal": ["no", "bad"]}}
    (tmp_path / "kinds.json").write_text(json.dumps({"kinds": kinds} if inside else kinds))
    head = "[kinds]\n" if inside else ""
    (tmp_path / "kinds.toml").write_text(f'{head}visits = "count"\npain = {{ ordinal = ["no", "bad"] }}\n')
    for name in ("kinds.json", "kinds.toml"):
        assert parse_kinds([str(tmp_path / name), "x=positive"]) == {**kinds, "x": "positive"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["calls"], "--kinds 'calls'"),
        (["calls=cuont"], "--kinds 'calls=cuont'"),
        (["ward=north,,south"], "--kinds 'ward=north,,south'"),
        (["calls=count", "calls=binary"], "'calls'"),
        (["nowhere.toml"], "--kinds 'nowhere.toml'"),
    ],
)
def test_bad_kinds_end_with_one_sentence_and_exit_code_2(refuses, hospitals, options, words):
    told = refuses("fit", hospitals, *[text for option in options for text in ("--kinds", option)])
    assert words in told


def test_files_that_hold_no_kinds_are_refused(refuses, hospitals, tmp_path_factory):
    place = tmp_path_factory.mktemp("kinds")
    (place / "list.json").write_text("[1]")
    (place / "broken.toml").write_text("a = ")
    assert "list.json" in refuses("check", hospitals, "--kinds", place / "list.json")
    assert "broken.toml" in refuses("check", hospitals, "--kinds", place / "broken.toml")


@pytest.mark.parametrize("command", ["fit", "compare", "select", "confidence"])
def test_methods_that_know_no_kinds_are_refused_with_the_one_that_does(refuses, hospitals, command):
    assert "--method mixed" in refuses(command, hospitals, "--kinds", "calls=count")


def test_kinds_become_a_parameter_of_methods_that_have_it():
    read = {"kinds": {"calls": "count"}, "site": None}
    found = given_parameters([KINDLY, KINDLY], read, ["n_lags=2"])
    assert (found, read) == ({"kinds": {"calls": "count"}, "n_lags": 2}, {"site": None})
    with refused(ParameterError, "--kinds", "--param"):
        given_parameters([KINDLY], {"kinds": {"calls": "count"}}, ['kinds={"calls": "count"}'])
    with refused(ParameterError, "--kinds", "oneshot"):
        given_parameters([KINDLY, PLAIN], {"kinds": {"calls": "count"}}, None)
    assert given_parameters([PLAIN], {"kinds": None}, None) == {}


def test_check_proposes_options_that_cure_its_findings(run, hospitals):
    outcome = run("check", hospitals)
    assert outcome.exit_code == 1
    (line,) = [line for line in outcome.stdout.splitlines() if line.startswith("If you agree: ")]
    assert line == "If you agree: --method mixed --kinds calls=count --kinds ward=north,south,west"
    cured = run("check", hospitals, *line.split()[5:])
    assert (cured.exit_code, len(cured.stdout.splitlines())) == (0, 1)


def test_a_fit_names_the_options_that_cure_it(run, hospitals, tmp_path_factory):
    out = tmp_path_factory.mktemp("fit") / "result.json"
    outcome = run("fit", hospitals, "--variables", "pulse,breath,calls", "-o", out)
    assert outcome.exit_code == 0
    assert "--method mixed --kinds calls=count" in outcome.output
