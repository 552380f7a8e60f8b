from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from feddbn.analysis.truth import write_truth
from feddbn.cli.data import FileFormat, write_sites
from feddbn.cli.main import app
from feddbn.sim.simulation import simulate

Run = Callable[..., Any]


@pytest.fixture
def run() -> Run:
    """Run one command line in this process."""

    def call(*arguments: object) -> Any:
        return CliRunner().invoke(app, [str(a) for a in arguments], prog_name="feddbn")

    return call


@pytest.fixture
def refuses(run: Run) -> Callable[..., str]:
    """Run a command line that must fail with one sentence and exit code 2; return the sentence."""

    def call(*arguments: object) -> str:
        outcome = run(*arguments)
        assert outcome.exit_code == 2, outcome.output
        assert "Traceback" not in outcome.output
        assert outcome.stdout == ""
        lines = outcome.stderr.strip().splitlines()
        assert len(lines) == 1, lines
        assert lines[0].startswith("feddbn: ")
        assert lines[0].endswith((".", "?"))
        return lines[0].removeprefix("feddbn: ")

    return call


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data and truth of three small sites; tests only read them."""
    directory = tmp_path_factory.mktemp("federation")
    drawn = simulate(d=4, n_sites=3, n_samples=240, mean_degree=2, random_state=1)
    write_sites(drawn, directory, FileFormat.csv)
    write_truth(drawn, directory / "truth.json")
    return directory
