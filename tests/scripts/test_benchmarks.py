"""Every benchmark runs at its smallest setting: its numbers mean nothing here, that it runs does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
USED_BY_OTHERS = [
    "arena_words",
    "breaches",
    "naive",
    "mixed_peers",
    "peers",
    "pictures",
    "settings",
    "timing",
]
PARTS_OF_RUN = ["against_naive", "against_peers", "arena", "nonlinear", "scaling"]
# It asks for one thread before numpy is loaded, so it gets a process of its own.
ALONE = {"run": ["--tiny", "--out", "{out}"]}
COMMANDS = {
    "planner": ["--settings 1 --edges 2 --seed 900"],
    "calibration": [
        "edges --federations 2 --rows 60 --sites 2 --variables 3 --replicates 3",
        "edges --federations 1 --rows 90 --sites 2 --variables 3 --replicates 2 --estimator curved",
        "intervals --series 2 --rows 60 --sites 2 --variables 3 --fitted",
    ],
    "claims": ["collect {out} --seeds 900 --only smoothed"],
    "discoveries": [
        "--clean 2 --others 1 --bic 1 --peer 0 --scenarios none spikes --seed 900 --out {out}/trials.csv",
        "--read {out}/trials.csv",
    ],
    "continuous": [
        "--d 3 --seeds 1 --readings 2000 --methods sums oneshot --what plain regular",
        "--d 2 --seeds 1 --readings 1500 --count rows --methods sums --what levels",
        "--d 3 --seeds 1 --readings 3000 --methods estimator oneshot --what jitter two-rates",
    ],
    "readings": ["20000"],
    "roots": ["simulated --seeds 900-900 --only lags --methods"],
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
    "nonlinear": ["forecast linear --tiny --out {out}", "--read {out} --page {out}/page.md"],
    "optimum": ["optimum splits certificates accuracy cost --problems 1 --tiny"],
    "sum_cost": ["--sites 4 5 6"],
    "units": ["--seeds 1 --settings 18"],
    "oneshot_accuracy": ["one --d 4 --n 60 --seeds 2"],
    "oneshot_against_dynotears": ["--seeds 2 --d 3 --n 60 --weak"],
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
    "noise": lambda m: m.main(2, settings=(("FDBNL", 3, 300, 3),)),
    "paper_setting": lambda m: m.main(2, settings=((3, 60),)),
    "personal_accuracy": lambda m: m.main(range(1), [0.1], d=3, n_samples=90),
    "personal_participation": lambda m: (m.table(range(1), d=3), m.curve(None, d=3)),
    "privacy_membership": lambda m: m.main(n_trials=5),
}
ON_REAL_DATA = {
    "intensive_care": lambda m: sys.stdout.write("".join(table.text() for table in m.measured(1))),
}

# Whatever a small setting leads to is not the subject.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


# Other people's code that is no dependency: a stand-in takes its place.
STANDS_IN = ["dynotears_published"]


def test_every_script_of_the_folder_is_run_here():
    there = {path.stem for path in BENCHMARKS.glob("*.py")}
    assert there == {
        *STANDS_IN,
        *USED_BY_OTHERS,
        *PARTS_OF_RUN,
        *ALONE,
        *COMMANDS,
        *CALLS,
        *ON_REAL_DATA,
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


@pytest.mark.skipif("FEDDBN_DATA" not in os.environ, reason="FEDDBN_DATA names no data")
@pytest.mark.parametrize("name", ON_REAL_DATA)
def test_a_benchmark_on_real_data_runs(name, script, capsys):
    ON_REAL_DATA[name](script(name))
    assert capsys.readouterr().out


def test_the_published_code_is_read_from_its_folder(script, tmp_path, capsys):
    module = script("dynotears_published")
    with pytest.raises(SystemExit, match="has no causalnex: pip download"):
        module.main([str(tmp_path)])
    file = tmp_path / "causalnex" / "structure" / "dynotears.py"
    file.parent.mkdir(parents=True)
    # An empty network: ours must be lower.
    file.write_text(
        "from causalnex.structure import StructureModel\n"
        "from causalnex.structure.transformers import DynamicDataTransformer\n"
        "def _learn_dynamic_structure(X, Xlags, bounds, lambda_w, lambda_a):\n"
        "    d, q = X.shape[1], X.shape[1] + Xlags.shape[1]\n"
        "    assert len(bounds) == 2 * q * d and bounds[0] == (0, 0)\n"
        "    return 0 * X.T @ X, 0 * Xlags.T @ X\n"
    )
    before = set(sys.modules)
    module.main([str(tmp_path), "--problems", "2", "--largest", "5"])
    assert "causalnex" not in set(sys.modules) - before
    said = capsys.readouterr().out.splitlines()
    assert said[-1].startswith("2 problems: ours above by at most -")
