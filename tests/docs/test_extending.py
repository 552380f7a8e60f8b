"""The diffs of docs/extending.md: each applies to the source, its test passes with it, and fails without its source."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

if shutil.which("git") is None:
    pytest.skip("git applies the diffs and is not installed", allow_module_level=True)
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
SECTIONS = ["A treatment of rows", "A design", "A learner"]


def diff_of(section: str) -> str:
    (found,) = re.findall(r"```diff\n(.*?)```", PAGE.split(f"## {section}\n")[1].split("\n## ")[0], re.S)
    return found


def added_tests(diff: str) -> list[str]:
    return re.findall(r"^\+\+\+ b/(tests/\S+)$", diff, re.M)


def tree_with(directory: Path, diffs: list[str], *options: str) -> Path:
    """A copy of the source with the diffs applied."""
    shutil.copytree(ROOT / "src", directory / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", directory)
    for diff in diffs:
        # One line of context is enough to find the place; lines above it may move.
        command = ["git", "apply", "-C1", *options, "-"]
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(directory.parent)}
        done = subprocess.run(
            command, input=diff.encode(), cwd=directory, env=environment, capture_output=True
        )
        assert done.returncode == 0, done.stderr.decode()
    return directory


def outcomes(tree: Path, diffs: list[str]) -> dict[str, set[str]]:
    """File of tests -> how the tests in it ended, in a process of its own."""
    files = [file for diff in diffs for file in added_tests(diff)]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--continue-on-collection-errors", *files]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    found: dict[str, set[str]] = {file: set() for file in files}
    for how, file in re.findall(r"^(PASSED|FAILED|ERROR) (tests/[^\s:]+)", done.stdout, re.M):
        found[file].add(how)
    return found


def test_each_diff_has_source_and_one_file_of_tests():
    assert len(re.findall("```diff", PAGE)) == len(SECTIONS)
    for section in SECTIONS:
        files = re.findall(r"^\+\+\+ b/(\S+)$", diff_of(section), re.M)
        assert len(added_tests(diff_of(section))) == 1
        assert any(file.startswith("src/") for file in files)


def test_a_treatment_is_a_function_a_field_and_a_line_of_words():
    added = {
        file: [line for line in lines.splitlines() if re.match(r"\+[^+]", line)]
        for file, lines in re.findall(
            r"^\+\+\+ b/src/(\S+)\n(.*?)(?=^--- |\Z)", diff_of(SECTIONS[0]), re.M | re.S
        )
    }
    rooms = {"feddbn/core/designs/cells.py": 4, "feddbn/federation/sums/prepare.py": 3}
    assert {file: len(lines) for file, lines in added.items()} == {
        **rooms,
        "feddbn/words/preprocessing.py": 1,
    }


def test_all_diffs_together_pass_their_tests(tmp_path):
    diffs = [diff_of(section) for section in SECTIONS]
    found = outcomes(tree_with(tmp_path, diffs), diffs)
    assert found == {file: {"PASSED"} for diff in diffs for file in added_tests(diff)}


def test_no_test_of_them_passes_without_the_source(tmp_path):
    diffs = [diff_of(section) for section in SECTIONS]
    found = outcomes(tree_with(tmp_path, diffs, "--include=tests/*"), diffs)
    assert all(how and "PASSED" not in how for how in found.values()), found


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
def test_a_diff_alone_passes_its_test_and_the_linter(section, tmp_path):
    diff = diff_of(section)
    tree = tree_with(tmp_path, [diff])
    assert outcomes(tree, [diff]) == {file: {"PASSED"} for file in added_tests(diff)}
    files = re.findall(r"^\+\+\+ b/(\S+)$", diff, re.M)
    for how in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *how, *files], cwd=tree, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout
