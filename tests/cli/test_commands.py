"""What every command does when all is well."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn import simulate
from feddbn.cli.main import COMMANDS
from feddbn.method_table import available_methods, default_method
from feddbn.results.result import Result

pytestmark = pytest.mark.promise


def test_help_lists_every_command(run):
    text = run("--help").output
    assert [name for name in COMMANDS if f"│ {name} " not in text] == []


def test_version_is_the_package_version(run):
    assert run("--version").stdout == f"feddbn {feddbn.__version__}\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), partial(simulate)),
        (
            ("--corruption", "offsets", "--corruption", "missing=0.3", "--corruption", "two-rates=3"),
            partial(simulate, corruptions={"two-rates": 3, "offsets": 3.0, "missing": 0.3}),
        ),
        (("--effects", "gp"), partial(simulate, effects="gp")),
    ],
)
def test_simulate_writes_exactly_what_the_library_draws(run, tmp_path, options, expected):
    size = ("-d", 4, "--n-sites", 2, "--n-samples", 30, "--seed", 5)
    outcome = run("simulate", "-o", tmp_path, *size, *options)
    assert outcome.exit_code == 0, outcome.output
    made = expected(d=4, n_sites=2, n_samples=30, random_state=5)
    for site, frames in made.sites.items():
        # Python's own float() rounds correctly, so equality means that no digit was lost.
        written = pd.read_csv(tmp_path / f"{site}.csv", dtype=str).map(float)
        pd.testing.assert_frame_equal(written, frames[0], check_exact=True)
    assert feddbn.DBN.from_json(tmp_path / "truth.json").equals(made.truth)


def test_simulate_gives_each_recording_a_file_and_each_site_a_truth(run, tmp_path):
    pytest.importorskip("pyarrow")
    options = ("--n-sites", 2, "--n-samples", 40, "--n-recordings", 2, "--heterogeneity", "independent")
    outcome = run("simulate", "-o", tmp_path, "-d", 3, *options, "--format", "parquet", "--json")
    files = json.loads(outcome.stdout)["files"]
    assert [Path(file).relative_to(tmp_path).as_posix() for file in files] == [
        f"site-{k}/recording-{r}.parquet" for k in range(2) for r in range(2)
    ]
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert truth["format"] == "feddbn-truths"
    assert set(truth["sites"]) == {"site-0", "site-1"}
    scored = run("fit", tmp_path, "-o", tmp_path / "r.json", "-m", "fdbnl")
    assert scored.exit_code == 0, scored.output
    means = json.loads(run("score", tmp_path / "truth.json", tmp_path / "r.json", "--json").stdout)
    assert set(means["sites"]) == {"site-0", "site-1"}


def test_fit_and_score_round_trip(run, federation, tmp_path):
    out = tmp_path / "deep" / "result.json"
    fitted = run(
        "fit", federation, "-o", out, "--method", "fdbnl", "--lambda-w", 0.03, "-p", "rounds.tol=1e-5"
    )
    assert fitted.exit_code == 0, fitted.output
    assert str(out) in fitted.stdout
    direct = feddbn.FDBNL(lambda_w=0.03, rounds=feddbn.Rounds(tol=1e-5)).fit(str(federation))
    stored = Result.load(out)
    np.testing.assert_array_equal(stored.dbn.W, direct.W_)
    np.testing.assert_array_equal(stored.dbn.A, direct.A_)
    scored = json.loads(run("score", federation / "truth.json", out, "--json").stdout)
    truth = feddbn.DBN.from_json(federation / "truth.json")
    assert scored == json.loads(json.dumps(feddbn.score(truth, direct.dbn_).to_dict()))
    table = run("score", federation / "truth.json", out)
    assert table.exit_code == 0
    assert "shd_paper" in table.stdout


def test_fit_without_a_method_uses_the_recommended_one(run, federation, tmp_path):
    outcome = run("fit", federation, "-o", tmp_path / "r.json", "--json")
    assert outcome.exit_code == 0, outcome.output
    printed = json.loads(outcome.stdout)
    assert printed["method"] == available_methods()[0].cls
    assert default_method() == available_methods()[0].name


def test_fit_keeps_forbidden_edges_out_and_required_ones_in(run, federation, tmp_path):
    out = tmp_path / "r.json"
    options = ("--forbid", "*,x0,0", "--require", "x0,x3,1", "-m", "fdbnl")
    outcome = run("fit", federation, "-o", out, *options)
    assert outcome.exit_code == 0, outcome.output
    dbn = Result.load(out).dbn
    assert not np.any(dbn.W[:, 0])
    assert dbn.A[0, 0, 3] != 0


def test_compare_scores_every_method_against_the_truth(run, federation):
    truth = federation / "truth.json"
    outcome = run(
        "compare", federation, "--truth", truth, "-m", "fdbnl", "-m", "Ave", "-m", "local", "--json"
    )
    assert outcome.exit_code == 0, outcome.output
    lines = {line["method"]: line for line in json.loads(outcome.stdout)["methods"]}
    assert list(lines) == ["fdbnl", "average", "local"]
    fitted = feddbn.FDBNL().fit(str(federation))
    expected = feddbn.score(feddbn.DBN.from_json(truth), fitted.dbn_)
    for part in ("W", "A"):
        assert lines["fdbnl"]["scores"][part]["shd"] == expected[part]["shd"]
    assert lines["local"]["scores"]["W"]["shd"] >= lines["fdbnl"]["scores"]["W"]["shd"]
    assert lines["fdbnl"]["held_out_log_likelihood"] is None


def test_compare_without_a_truth_tests_on_rows_no_method_saw(run, federation):
    outcome = run("compare", federation, "-m", "fdbnl", "-m", "average", "--n-lags", 1)
    assert outcome.exit_code == 0, outcome.output
    assert "20%" in outcome.stdout


def test_real_process_prints_pure_json_and_no_progress(federation, tmp_path):
    command = [sys.executable, "-m", "feddbn", "fit", str(federation), "-o", str(tmp_path / "r.json")]
    done = subprocess.run([*command, "-m", "fdbnl", "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["format"] == "feddbn-result"
    assert done.stderr == ""


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_interrupt_exits_130_without_a_traceback(tmp_path):
    code = (
        "import signal, time\n"
        # A job in a shell's background starts with the signal ignored, and so does what it starts.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import feddbn.sim.simulation as s\n"
        "def slow(**k):\n    print('started', flush=True); time.sleep(300)\n"
        "s.simulate = slow\n"
        "from feddbn.cli.main import app\n"
        f"app(['simulate', '-o', {str(tmp_path)!r}])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert errors.decode().strip() == "feddbn: interrupted."


def test_select_says_what_to_fit_with(run, federation):
    outcome = run("select", federation, "-g", "lambda_w=0.2,0.02", "--json", "-p", "rounds.tol=1e-3")
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(outcome.stdout)
    assert found["chosen"]["lambda_w"] in (0.2, 0.02)
    assert [line["lambda_w"] for line in found["candidates"]] == [0.2, 0.02]
    assert sum(line["chosen"] for line in found["candidates"]) == 1


def test_fit_draws_a_link_without_a_direction_as_a_line(run, tmp_path):
    rng = np.random.default_rng(0)
    a = 3 * rng.normal(size=1500)
    b = 0.5 * a + rng.normal(size=1500)
    frame = pd.DataFrame({"a": a, "b": 1000 * b, "c": 1000 * (0.8 * b + 2 * rng.normal(size=1500))})
    frame.to_csv(tmp_path / "site.csv", index=False)
    told = run("fit", tmp_path / "site.csv", "-o", tmp_path / "result.json")
    assert told.exit_code == 0
    lines = [" ".join(line.split()) for line in told.stdout.splitlines()]
    assert any(line.startswith(("a -- b 0 ", "b -- a 0 ")) for line in lines)
    assert any(line.startswith("2 links") for line in lines)
    assert "link" in told.stdout
    assert "in sd" in told.stdout
    stored = json.loads((tmp_path / "result.json").read_text())
    assert stored["dbn"]["version"] == 1
    assert {frozenset(pair) for pair in stored["dbn"]["open_edges"]} == {frozenset("ab"), frozenset("bc")}
    assert all(edge["presence"] > 0.99 for edge in stored["edges"] if edge["lag"] == 0)
    assert run("report", tmp_path / "result.json").exit_code == 0
    assert '"has_open":true' in (tmp_path / "result.html").read_text()
    assert run("plot", tmp_path / "result.json", "--raw", "-o", tmp_path / "g.png").exit_code == 0
    assert run("export", tmp_path / "result.json", "-o", tmp_path / "n.dot").exit_code == 0
    assert (tmp_path / "n.dot").read_text().count("dir=none") == 2


@pytest.fixture(scope="module")
def quick() -> tuple[str, ...]:
    return ("-m", "pfdbnl", "-p", "rounds.tol=1e-3")


def test_fit_writes_the_shared_edges_as_json_and_hides_small_counts(run, federation, tmp_path, quick):
    outcome = run("fit", federation, "-o", tmp_path / "r.json", *quick, "--min-count", 3, "--json")
    found = json.loads(outcome.stdout)
    report = found["shared_edges"]
    assert report["min_count"] == 3
    assert {edge["kind"] for edge in report["edges"]} <= {"shared", "hidden"}
    assert set(report["deviations"]) == set(found["personal"]) == {"site-0", "site-1", "site-2"}


def test_select_chooses_mu_by_default_for_personal_networks(run, federation, quick):
    outcome = run("select", federation, *quick, "--n-blocks", 1, "-g", "mu=2,.1")
    assert outcome.exit_code == 0, outcome.output
    assert "--method pfdbnl -p mu=" in outcome.stdout
    from feddbn.method_table import METHODS
    from feddbn.methods.selection import AUTO_GRIDS, default_grid

    assert default_grid(METHODS["pfdbnl"]) == {"mu": list(AUTO_GRIDS["mu"])}
    assert set(default_grid(METHODS["fdbnl"])) == {"lambda_w", "lambda_a"}
