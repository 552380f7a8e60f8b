"""The project's pages: examples run, names exist, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import feddbn
from feddbn.cli.main import app
from feddbn.data import read_sites
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import run_program
from feddbn.runtime.simulated.in_process import InProcessFederation
from reproduction.config import experiment_names

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page for place in ("docs", "reproduction") for page in (*ROOT.glob("*.md"), *(ROOT / place).rglob("*.md"))
)


def is_there(name):
    """Whether a dotted name can be imported."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            if not hasattr(found, attribute) and attribute not in getattr(found, "__annotations__", {}):
                return False
            found = getattr(found, attribute, None)
        return True
    return False


def is_test(name):
    """Whether ``path`` or ``path::test`` is there."""
    path, _, test = name.partition("::")
    return (ROOT / path).is_file() and (not test or f"def {test}(" in (ROOT / path).read_text("utf-8"))


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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")
@pytest.mark.parametrize(
    "page", ["quickstart", "tutorials/plant", "edge-confidence", "preparing-data", "simulating", "mixed"]
)
def test_the_snippets_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    snippets = re.findall(r"```(?:python|\{code-cell\} python3)\n(?::tags:[^\n]*\n)?(.*?)```", text, re.S)
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
    named = set(re.findall(r"python -m reproduction ([a-z][\w-]+)", text))
    assert len(named) > 10
    assert named <= {*experiment_names(), "all", "attack"}


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
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = feddbn.nothing


def test_every_public_name_is_on_a_page_of_the_api():
    names, module = set(), ""
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith(".. currentmodule:: "):
                module = line.split()[-1]
            elif re.fullmatch(r"   \w+", line):
                names.add(f"{module}.{line.strip()}")
    rooms = [
        "feddbn",
        *(f"feddbn.{room}" for room in ("data", "errors", "metrics", "report", "sim")),
    ]
    public = {f"{room}.{name}" for room in rooms for name in import_module(room).__all__ if name[:2] != "__"}
    assert sorted(public - names) == [], "put these on a page of docs/api"
    assert [name for name in sorted(names) if name.rpartition(".")[0] in rooms and not is_there(name)] == []


@pytest.fixture(scope="module")
def citation():
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_the_citation_has_the_paper_the_software_and_the_method_of_its_own(citation):
    paper, oneshot = citation["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Chen", "Ma", "Yue"]
    # The same preprint as at the end of every report.
    template = (Path(feddbn.__file__).parent / "report" / "templates" / "report.html").read_text()
    (number,) = re.findall(r"eprint = \{([\d.]+)\}", template)
    assert paper["identifiers"][0]["value"] == f"arXiv:{number}"
    assert oneshot["title"] in template
    assert (ROOT / "docs" / oneshot["url"].rpartition("/")[2]).exists()
    assert citation["version"] == oneshot["version"] == feddbn.__version__


PRIVACY, DETAILS = (
    (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("privacy.md", "privacy-details.md")
)
NAMED = re.findall(r"`(test_\w+)::(\w+)`", PRIVACY + DETAILS)


def test_every_promise_of_the_page_on_privacy_names_its_test():
    promised = PRIVACY.split("## What nobody can")[1].split("\n## ")[0]
    rows = [line for line in promised.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 12
    assert [row for row in rows if not re.search(r"`test_\w+::\w+`", row)] == []


def test_every_test_that_the_page_names_exists():
    assert len(NAMED) > 15
    for file, part in NAMED:
        source = (ROOT / "tests" / "redteam" / f"{file}.py").read_text(encoding="utf-8")
        assert re.search(rf"def test_\w*{part}", source), f"{file} has no test with {part} in its name"


def test_every_file_of_attacks_is_named_on_the_page():
    files = {path.stem for path in (ROOT / "tests" / "redteam").glob("test_*.py")}
    assert files - {file for file, _ in NAMED} <= {"test_07_rows_of_removed"}


EXTENDING = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")


def snippet(section):
    text = EXTENDING.split(f"## {section}\n")[1]
    return re.search(r"```python\n(.*?)```", text, re.S)[1]


def test_a_site_task_is_asked_and_its_answers_add_up():
    values = {name: np.random.default_rng(k).normal(size=(50, 2)) for k, name in enumerate("ab")}
    federation = InProcessFederation({name: Site(name, data) for name, data in read_sites(values).items()})
    names = {"__name__": "snippet"}
    exec(snippet("A site task"), names)
    found = run_program(names["share_above"]([0.0, 1.0]), federation)
    np.testing.assert_array_equal(found, (np.concatenate(list(values.values())) > [0.0, 1.0]).sum(axis=0))


def test_a_design_takes_a_trend_off_every_recording():
    t = np.arange(60.0)
    rng = np.random.default_rng(0)
    levels = rng.normal(size=(60, 2))
    data = {
        kind: read_sites({"s": [levels + slope * t[:, None]]})["s"]
        for kind, slope in (("flat", 0.0), ("trend", 3.0))
    }
    found = {}
    for kind, site in data.items():
        names = {"site": site}
        exec(snippet("A design"), names)
        found[kind] = names["gram"]
    np.testing.assert_allclose(found["flat"].scatter, found["trend"].scatter, atol=1e-6)
    assert found["flat"].n == 58
    assert found["flat"].n_removed == 2
