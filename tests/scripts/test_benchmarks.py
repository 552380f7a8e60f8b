"""Every benchmark runs at its smallest setting: its numbers mean nothing here, that it runs does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import replicate, systems, tables

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
USED_BY_OTHERS = [
    "arena_words",
    "peers",
    "pictures",
    "settings",
    "timing",
]
# `python -m benchmarks`: tests of their own.
PACKAGE = ["__init__", "__main__", "replicate", "systems", "tables", "truth"]
PARTS_OF_RUN = ["against_peers", "arena", "scaling"]
# It asks for one thread before numpy is loaded, so it gets a process of its own.
ALONE = {"run": ["--tiny", "--out", "{out}"]}
COMMANDS = {
    "planner": ["--settings 1 --edges 2 --seed 900"],
    "discoveries": [
        "--clean 2 --others 1 --bic 1 --peer 0 --scenarios none spikes --seed 900 --out {out}/trials.csv",
        "--read {out}/trials.csv",
    ],
    "readings": ["20000"],
    "arena": [
        "--list",
        "--d 3 --sites 2 --rows 60 --seeds 1-2 --scenarios none spikes=0.1 missing=0.9 --methods OneShotDBN --out {out}",
        "--d 3 --sites 2 --rows 60 --seeds 1 --scenarios offsets --methods OneShotDBN FDBNL --strength 5",
    ],
    "large": [
        "networks --d 4 --out {out}/networks.json",
        "rows --rows 2000",
    ],
    "monitor": [
        "null --federations 1 --looks 2 --noise normal t5 sites rows short --seed 900",
        "delay --federations 1 --repeat 1 --looks 12 --every 12 --sizes 0.4 --seed 900",
    ],
    "optimum": ["optimum splits certificates accuracy cost --problems 1 --tiny"],
    "sum_cost": ["--sites 4 5 6"],
    "units": ["--seeds 1 --settings 18"],
    "privacy_utility": [
        "run {out}/rows.csv --recordings 40 --epsilon 8 4 --seeds 0-0",
        "table {out}/rows.csv",
    ],
}
CALLS = {
    "hospitals": lambda m: sys.stdout.write(m.tabled(["repaired", "mixed"], 3, 100, 900, 2).text()),
    "changing": lambda m: m.main(1, 0, ["edges-1", "constant-1"]),
    "demo_table": lambda m: m.main(2, d=3, n_samples=100),
    "latent": lambda m: m.main(1, 0),
    "latent_picture": lambda m: sys.stdout.write(str(m.rows(20).shape)),
    "mixed": lambda m: m.table(m.LEARNERS, 150, m.MIXED, range(2), 3),
    "paper_setting": lambda m: m.main(2, settings=((3, 60),)),
    "personal_accuracy": lambda m: m.main(range(1), [0.1], d=3, n_samples=90),
    "privacy_membership": lambda m: m.main(n_trials=5),
}
# Whatever a small setting leads to is not the subject.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def test_every_script_of_the_folder_is_run_here():
    there = {path.stem for path in BENCHMARKS.glob("*.py")}
    assert there == {
        *PACKAGE,
        *USED_BY_OTHERS,
        *PARTS_OF_RUN,
        *ALONE,
        *COMMANDS,
        *CALLS,
    }


@pytest.mark.parametrize("name", CALLS)
def test_a_benchmark_runs_at_its_smallest_setting(name, script, capsys):
    CALLS[name](script(name))
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_line_of_a_benchmark_runs(name, script, monkeypatch, capsys, tmp_path):
    module = script(name)
    for line in COMMANDS[name]:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *line.format(out=tmp_path).split()])
        module.main()
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", ALONE)
def test_a_benchmark_that_measures_the_package_from_inside_runs(name, tmp_path):
    arguments = [argument.format(out=tmp_path) for argument in ALONE[name]]
    done = subprocess.run(
        [sys.executable, BENCHMARKS / f"{name}.py", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "| " in done.stdout


def of_the_package(*arguments: str) -> list[str]:
    """The lines that `python -m benchmarks` prints."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    done = subprocess.run(command, cwd=BENCHMARKS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_claims_are_held_against_a_known_truth():
    head, _, *lines = of_the_package("truth", "--kind", "clean", "--seeds", "1")
    assert len(lines) == 3
    assert {line.count("|") for line in lines} == {head.count("|")}
    assert not any("refused" in line for line in lines)


@pytest.mark.parametrize("kind", systems.KINDS)
def test_a_system_is_drawn_again_from_its_seed_and_its_truth_is_of_its_variables(kind):
    for drawn in systems.KINDS[kind].values():
        sites, truth = drawn(3)
        again, same = drawn(3)
        frames = [one for recordings in sites.values() for one in recordings]
        for one, other in zip(frames, (x for recordings in again.values() for x in recordings), strict=True):
            pd.testing.assert_frame_equal(one, other)
        assert truth == same
        ends = {name for edge in truth.instant | truth.delayed for name in edge}
        assert ends <= set(frames[0])
        assert not {edge[1] for edge in truth.instant} & truth.knobs
        assert truth.instant


def test_claims_of_two_halves_are_held_against_each_other():
    pytest.importorskip("statsmodels")
    head, _, *lines = of_the_package("replicate", "--sets", "macrodata", "--halvings", "1")
    assert [line.split(" | ")[1] for line in lines] == ["OneShotDBN", "yardstick"]
    assert {line.count("|") for line in lines} == {head.count("|")}


@pytest.mark.skipif("FEDDBN_DATA" not in os.environ, reason="FEDDBN_DATA names no data")
def test_claims_of_two_halves_of_vital_signs_are_held_against_each_other():
    _, _, package, _ = of_the_package("replicate", "--sets", "8h-thin", "--halvings", "1")
    assert "refused" not in package


def test_halves_cuts_and_what_is_thinned_keep_units_apart():
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(2400, 3)), columns=list("abc"))
    each = np.repeat(np.arange(80), 30)
    rows = rows.assign(unit=each // 2, recording=each, step=np.tile(np.arange(30), 80))
    data, rng = replicate.Recordings(rows, list("abc")), np.random.default_rng(1)
    first, second = data.halves(rng)
    assert not set(first.rows["unit"]) & set(second.rows["unit"])
    assert len(first.rows) + len(second.rows) == len(rows)
    assert replicate.cut(data, rng).rows[list("abc")].isna().to_numpy().mean() == pytest.approx(
        0.15, abs=0.02
    )
    # Rows are independent, so effective rows are about as many as rows with a past: 29 in each recording.
    assert 340 <= 29 * replicate.thinned(data, rng).rows["recording"].nunique() < 500


def test_claims_are_counted_by_hand():
    truth = tables.Truth(frozenset({("a", "b"), ("c", "b")}), frozenset({("a", "c")}), frozenset({"a"}))
    told = tables.Told({("a", "b"): 1.0, ("a", "c"): 0.6}, {("b", "a"): 0.95}, {("a", "c"): 0.92}, 2.0)
    score = tables.Score()
    score.add(told, truth)
    # b-c is missing and a-c is extra; a-b is claimed, the wrong way round and into an input.
    assert (score.wrong, score.found) == ({"links": 2, "delayed": 0}, {"links": 1, "delayed": 1})
    assert (score.right, score.reversed, score.false, score.into_knobs) == (0, 1, 0, 1)
    assert score.binned.tolist() == [[1, 0], [1, 1], [1, 1]]
