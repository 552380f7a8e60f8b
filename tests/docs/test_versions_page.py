"""What the version policy and the citation promise, held against the code."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import feddbn
from feddbn.methods import result
from feddbn.model import export, summary

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")


def test_the_formats_of_files_are_those_of_the_code():
    rows = re.findall(r"^\| [^|]*\| `(feddbn-\w+)` \| (\d+)(?: to (\d+))?", PAGE, re.M)
    stated = {name: int(last or first) for name, first, last in rows}
    assert stated == {module.FORMAT: module.VERSION for module in (export, result, summary)}


def test_public_modules_say_what_is_public():
    (line,) = re.findall(r"Names in `__all__` of (.*?),\n", PAGE, re.S)
    modules = re.findall(r"`([\w.]+)`", line)
    assert len(modules) > 5
    for name in modules:
        assert import_module(name).__all__, name


@pytest.fixture(scope="module")
def citation():
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_the_citation_has_what_its_format_asks_for(citation):
    assert citation["cff-version"] == "1.2.0"
    assert {"title", "message", "authors", "version", "license"} <= citation.keys()
    for one in citation["references"]:
        assert {"type", "title", "authors"} <= one.keys()
        assert one["type"] in {"article", "software"}
        for author in one["authors"]:
            assert author.keys() in ({"name"}, {"family-names", "given-names"})


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
