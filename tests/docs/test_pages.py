"""The project's pages: examples run, names exist, links lead somewhere."""

from __future__ import annotations

import pkgutil
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

import feddbn
from feddbn.cli.main import app
from feddbn.experiments.config import experiment_names
from support.references import is_test, is_there

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def map_rows():
    rows = []
    for line in (
        (ROOT / "docs" / "paper-map.md")
        .read_text(encoding="utf-8")
        .split("## Where we differ")[0]
        .splitlines()
    ):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and cells[0] not in ("in the paper", "---"):
            rows.append(cells)
    return rows


def test_the_example_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "converged" in printed
    assert "shd" in printed
    assert feddbn.DBN.from_json(tmp_path / "network.json").d == 5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")
@pytest.mark.parametrize(
    "page", ["quickstart", "tutorials/plant", "edge-confidence", "preparing-data", "simulating", "mixed"]
)
def test_the_snippets_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    snippets = re.findall(r"```(?:python|\{code-cell\} python3)\n(?::tags:.*\n)?(.*?)```", text, re.S)
    assert snippets
    names = {}
    for snippet in snippets:
        exec(compile(snippet, f"{page}.md", "exec"), names)


@pytest.mark.slow
def test_the_commands_of_the_quick_start_run_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    feddbn (.*)$", text, re.M)
    assert len(lines) > 5
    for line in lines:
        outcome = CliRunner().invoke(app, shlex.split(line, comments=True), prog_name="feddbn")
        assert outcome.exit_code == 0, f"{line}: {outcome.output}"
    made = {path.name for path in tmp_path.iterdir()}
    assert {"result.json", "edges.csv", "result.html", "graph.pdf", "network.graphml"} <= made


def test_the_paper_map_covers_the_paper():
    rows = " ".join(row[0] for row in map_rows())
    for label in (
        "V1",
        "Local",
        "Global",
        "para",
        "p_local1",
        "p_cen",
        "Algorithm 1",
        "Algorithm 2",
        "VC_20",
    ):
        assert label in rows


def names_in(column):
    return sorted({name for row in map_rows() for name in re.findall(r"`([^`]+)`", row[column])})


def test_every_name_of_the_paper_map_exists():
    names = names_in(1)
    assert len(names) > 25
    assert [name for name in names if not is_there(name)] == []


def test_every_test_of_the_paper_map_exists():
    names = names_in(2)
    assert len(names) > 25
    assert [name for name in names if not is_test(name)] == []


def test_every_experiment_that_a_page_reproduces_exists():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"feddbn reproduce ([a-z][\w-]+)", text))
    assert len(named) > 10
    assert named <= {*experiment_names(), "all"}


def test_links_of_all_pages_lead_somewhere():
    broken = []
    for page in PAGES:
        text = re.sub(r"```.*?```|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.S)
        for target in re.findall(r"\]\(([^)]+)\)", text):
            is_elsewhere = target.startswith(("http", "#", "mailto:"))
            if not is_elsewhere and not (page.parent / target.split("#")[0]).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_every_public_name_of_the_package_exists_and_is_listed():
    assert sorted(feddbn.__all__) == sorted(set(feddbn.__all__))
    for name in feddbn.__all__:
        assert getattr(feddbn, name) is not None
    assert set(feddbn._WHERE) - feddbn._OLD | {"__version__"} == set(feddbn.__all__)
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = feddbn.nothing


def public_modules():
    found = []
    for module in pkgutil.walk_packages(feddbn.__path__, "feddbn."):
        if not any(part.startswith("_") for part in module.name.split(".")[1:]):
            found.append(module.name)
    return sorted(found)


def test_every_module_says_what_it_is_for_and_lists_no_name_it_lacks():
    silent = []
    for name in public_modules():
        try:
            module = import_module(name)
        except ImportError:
            # It needs a dependency that is optional and not installed.
            continue
        source = Path(str(module.__file__))
        has_code = re.search(r"^(from|import|def|class) ", source.read_text(encoding="utf-8"), re.M)
        if source.name == "__init__.py" and not has_code:
            continue
        if not module.__doc__:
            silent.append(name)
        listed = getattr(module, "__all__", ())
        silent += [f"{name}.{public}" for public in listed if not hasattr(module, public)]
    assert silent == []


def test_the_changelog_has_a_section_for_what_is_not_released():
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_citation_names_the_version():
    assert f"version: {feddbn.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
