"""Strangers who want to run code at a site: the engine that let them is gone, its kits are refused, jobs bring no code."""

import ast
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import feddbn
from feddbn.cli.main import app
from feddbn.errors import FileError, ParameterError
from feddbn.runtime.engines.interface import engine, engine_names, engine_of
from support.saying import refused


def run(*arguments):
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    return done.exit_code, " ".join(done.output.split())


def imported(path):
    """Top-level packages that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name.split(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_nothing_but_the_adapter_speaks_flower_and_no_engine_does():
    """What a Flower server sends a node of ours is never run: `tests/integration/test_flower.py`."""
    found = {path: set(imported(path)) for path in Path(feddbn.__file__).parent.rglob("*.py")}
    assert any("nvflare" in packages for packages in found.values())
    speaking = {path.stem for path, packages in found.items() if "flwr" in packages}
    assert speaking == {"flower", "flower_server"}
    assert "flower" not in engine_names()


def test_the_engine_is_refused_with_the_reason_and_the_one_to_use(tmp_path):
    with refused(ParameterError, "flower", "nvflare"):
        engine("flower")
    where = ("federation", "init", tmp_path / "fed", "--server", "localhost", "--site", "a")
    code, text = run(*where, "--engine", "flower")
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert "'flower'" in text
    assert "nvflare" in text


@pytest.mark.parametrize(
    "command", [("site", "check"), ("start",), ("study", "status"), ("study", "resume", "run-1")]
)
def test_a_kit_of_that_engine_is_of_no_use_any_more(tmp_path, command):
    (tmp_path / "ca.pem").touch()
    (tmp_path / "feddbn_site.toml").touch()
    with refused(FileError, "flower"):
        engine_of(tmp_path)
    code, text = run(*command, "--kit", tmp_path)
    assert code == 2
    assert "federation init" in text


def test_commands_that_ran_it_are_gone():
    assert run("federation", "flower-app", "--help")[0] != 0
    assert run("site", "serve", "--help")[0] != 0


def test_kits_refuse_jobs_with_code_and_classes_that_no_study_needs(tmp_path):
    pytest.importorskip("nvflare")
    code, text = run("federation", "init", tmp_path / "fed", "--server", "localhost", "--site", "north")
    assert code == 0, text
    for name in ("localhost", "north"):
        local = tmp_path / "fed" / "kits" / name / "local"
        rights = json.loads((local / "authorization.json").read_text())["permissions"]
        assert {right.get("byoc", "none") for right in rights.values()} == {"none"}
        allowed = json.loads((local / "resources.json").read_text())["class_allow_list"]
        assert len(allowed) == 6
        ours = ("feddbn.runtime.nvflare_", "feddbn.adapters.nvflare_kit.", "nvflare.collab.runtime.")
        assert all(one.startswith(ours) for one in allowed)
