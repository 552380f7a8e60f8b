"""The documentation site: groups of pages, names of the API, docstrings as markup, what a built page loads.

`make docs-test` builds the site and runs every tutorial; what is here needs neither Sphinx nor a kernel.
"""

from __future__ import annotations

import re
import runpy
from importlib import import_module
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GROUPS = runpy.run_path(str(DOCS / "_ext" / "page_groups.py"))
DATA = runpy.run_path(str(DOCS / "_ext" / "absent_data.py"))
CHECKS = runpy.run_path(str(ROOT / "tools" / "check_site.py"))
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
# Every name in `__all__` of these is on a page of the API.
ROOMS = [
    "feddbn",
    "feddbn.data",
    "feddbn.preflight",
    "feddbn.datasets",
    "feddbn.errors",
    "feddbn.interop.autoregression",
    "feddbn.interop.causal_learn",
    "feddbn.interop.graphs",
    "feddbn.interop.regression",
    "feddbn.interop.tigramite",
    "feddbn.metrics",
    "feddbn.report",
    "feddbn.sim",
]


def listed_pages():
    groups = GROUPS["groups_in"]((DOCS / "index.md").read_text(encoding="utf-8"))
    return [page for pages in groups.values() for page in pages]


def test_every_page_is_in_one_group_and_every_group_has_only_pages_that_are_there():
    listed = listed_pages()
    assert sorted(listed) == sorted(set(listed)), "docs/index.md lists a page twice"
    there = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")} - {"index"}
    below = {
        page for page in there for glob in GROUPS["CHILDREN"].values() if PurePosixPath(page).match(glob)
    }
    in_none = sorted(there - set(listed) - below)
    assert in_none == [], f"add a line for {in_none} to a group of docs/index.md"
    assert sorted(set(listed) - there) == [], "docs/index.md lists pages that are not there"


def words_of(*pages):
    return sum(len(path.read_text(encoding="utf-8").split()) for path in pages)


def test_what_a_user_reads_stays_short():
    """A limit that is reached means that something has to go, or belongs to another part."""
    groups = GROUPS["groups_in"]((DOCS / "index.md").read_text(encoding="utf-8"))
    assert list(groups) == ["Use", "Understand", "Maintain"]
    used = [DOCS / f"{page}.md" for page in groups["Use"]]
    assert GROUPS["CHILDREN"].keys().isdisjoint(groups["Use"])
    assert len(used) <= 20
    assert words_of(*used) <= 40_000
    assert words_of(ROOT / "README.md") <= 750


def test_every_public_name_is_on_a_page_of_the_api():
    names, module = set(), ""
    for page in sorted((DOCS / "api").glob("*.md")):
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith(".. currentmodule:: "):
                module = line.split()[-1]
            elif re.fullmatch(r"   \w+", line):
                names.add(f"{module}.{line.strip()}")
    missing = []
    for room in ROOMS:
        try:
            public = import_module(room).__all__
        except ImportError:
            # An adapter whose package is not installed.
            continue
        missing += [name for n in public if (name := f"{room}.{n}") not in names and not n.startswith("__")]
    assert missing == [], "put these on a page of docs/api"
    for name in names:
        module, _, short = name.rpartition(".")
        assert module not in ROOMS or hasattr(import_module(module), short), (
            f"{name} is on a page and not there"
        )


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_is_a_notebook_that_can_be_read_without_scrolling_sideways(page):
    text = page.read_text(encoding="utf-8")
    assert text.startswith(
        "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n  language: python\n---\n\n# "
    )
    cells = re.findall(r"```\{code-cell\} python3\n(.*?)```", text, re.S)
    assert len(cells) >= 4
    assert [line for cell in cells for line in cell.splitlines() if len(line) > 94] == []
    is_on_other_data = "feddbn.datasets" in text or "FEDDBN_DATA" in text
    assert (DATA["needed_file"](text) is not None) == is_on_other_data, "name the file: <!-- needs FILE -->"


def test_what_a_page_loads_from_elsewhere_and_links_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "index.html").write_text(
        '<link rel="stylesheet" href="https://fonts.example/a.css"><link rel="canonical" href="https://here.example/">'
        '<script src="//cdn.example/x.js"></script><img src="there.png"><img src="data:image/png;base64,AA">'
        '<style>p { background: url("http://pics.example/p.png") }</style><script>import("https://m.example/m.js")</script>'
        '<a href="https://elsewhere.example/">fine</a><a href="b.html#place">fine</a>'
        '<a href="b.html#lost">no</a><a href="c.html">no</a>'
        '<p id="here"></p><a href="#here">fine</a>',
        encoding="utf-8",
    )
    (tmp_path / "b.html").write_text('<h1 id="place">b</h1>', encoding="utf-8")
    (tmp_path / "there.png").touch()
    (tmp_path / "s.css").write_text("@import 'https://fonts.example/b.css';", encoding="utf-8")
    assert CHECKS["outside_requests"](tmp_path) == [
        "index.html: https://fonts.example/a.css",
        "index.html: //cdn.example/x.js",
        "index.html: http://pics.example/p.png",
        "index.html: https://m.example/m.js",
        "s.css: https://fonts.example/b.css",
    ]
    assert CHECKS["broken_links"](tmp_path) == ["index.html: b.html#lost", "index.html: c.html"]
