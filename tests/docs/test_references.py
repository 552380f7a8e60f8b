"""What docstrings, comments and pages refer to exists; every test here reports all that does not at once."""

from __future__ import annotations

from support.references import (
    ROOT,
    cited_tests,
    files_in,
    is_file,
    is_own_name,
    is_some_test,
    is_there,
    names_in,
    names_in_code,
    own_names_in,
    paths_in,
    prose,
)

MODULES = sorted((ROOT / "src").rglob("*.py"))
SCRIPTS = sorted(path for part in ("tests", "benchmarks", "examples") for path in (ROOT / part).rglob("*.py"))
# The changelog tells how things were called when they changed.
PAGES = sorted(
    path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")) if path.name != "CHANGELOG.md"
)


def broken(paths, found_in, is_right):
    return [
        f"{path.relative_to(ROOT)}: {name}"
        for path in paths
        for name in sorted(found_in(prose(path)))
        if not is_right(name, path)
    ]


def test_modules_that_are_named_can_be_imported():
    assert broken(MODULES + PAGES, names_in, lambda name, path: is_there(name)) == []


def test_names_in_single_backticks_occur_in_the_code():
    assert broken(MODULES, own_names_in, lambda name, path: is_own_name(name)) == []


def test_files_that_are_named_exist():
    assert broken(MODULES + SCRIPTS + PAGES, files_in, is_file) == []


def test_names_in_the_code_of_pages_exist():
    used = {(path, name) for path in PAGES for name in names_in_code(path.read_text(encoding="utf-8"))}
    assert len(used) > 100
    assert [f"{path.relative_to(ROOT)}: {name}" for path, name in sorted(used) if not is_there(name)] == []


def test_paths_of_pages_lead_somewhere():
    def is_path(name, path):
        # What a benchmark writes is not there before it has run.
        return name.startswith("benchmarks/results/") or (ROOT / name).exists()

    assert broken(PAGES, paths_in, is_path) == []


def test_tests_that_a_comment_names_exist():
    assert broken(MODULES, cited_tests, lambda name, path: is_some_test(name)) == []
