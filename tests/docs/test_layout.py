"""Unit tests mirror the package, so that a module's tests are found without a search."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "src" / "feddbn"


def mirrors_a_module(path: Path) -> bool:
    """Whether a module has the name of a file of tests, with or without more words after it, and its folder."""
    folder = PACKAGE / path.parent.relative_to(TESTS / "unit")
    about = path.stem.removeprefix("test_")
    return any(about == module.stem or about.startswith(f"{module.stem}_") for module in folder.glob("*.py"))


def test_unit_tests_are_named_after_a_module_or_say_that_they_test_several():
    lost = [
        str(path.relative_to(TESTS))
        for path in sorted((TESTS / "unit").rglob("test_*.py"))
        if not mirrors_a_module(path)
        and not path.read_text(encoding="utf-8").startswith('"""Several modules: ')
    ]
    assert lost == []


def test_helper_modules_are_in_one_package():
    allowed = {"conftest.py", "__init__.py"}
    elsewhere = [
        str(path.relative_to(TESTS))
        for path in sorted(TESTS.rglob("*.py"))
        if path.parent.name != "support" and path.name not in allowed and not path.name.startswith("test_")
    ]
    assert elsewhere == []
